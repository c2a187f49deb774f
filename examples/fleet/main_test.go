package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// What the test program is for these arguments: a parent that starts one replica and then does nothing; the
// command.
const parentArg, programArg = "parent", "program"

// TestMain lets the test program be a replica too, because a fleet starts the program that runs.
func TestMain(m *testing.M) {
	if os.Args[1] == replicaArg {
		main()
	}
	switch os.Args[len(os.Args)-1] {
	case parentArg:
		os.Exit(parentMain())
	case programArg:
		os.Args = []string{"fleet", "-join", "0", "-kill", "0"}
		main()
	}
	goleak.VerifyTestMain(m)
}

func TestBadFlagsAreNamed(t *testing.T) {
	if got, said := play("-h"); got != exitHeld || !strings.Contains(said, "  -room ") {
		t.Errorf("-h: exit status %d, %s", got, said)
	}
	for _, tt := range []struct{ args, want string }{
		{"-limit 0", "-limit: 0"},
		{"-limit NaN", "-limit: NaN"},
		{"-room -1", "-room: -1"},
		{"-replicas 7", "-replicas: 7"},
		{"-duration 10ms", "-duration: 10ms"},
		{"-join 12s", "-join: 12s"},
		{"-kill 12s", "-kill: 12s"},
		{"-kill 2s", "-kill: 2s"},
		{"-replicas 1 -join 0", "-kill: 6s leaves no replica"},
		{"-act third", `"third" for flag -act: it is none of both, division, adaptive`},
		{"-tell lies", "-tell"},
		{"-pool file -believe 2", "-believe: 2"},
		{"-pool file -act adaptive", "-pool: in the adaptive act"},
		{"more", `unexpected argument "more"`},
		{"-unknown", "not defined: -unknown"},
	} {
		if got, said := play(strings.Fields(tt.args)...); got != exitFailed || !strings.Contains(said, tt.want) {
			t.Errorf("%s: exit status %d, want %d; said %q, want %q", tt.args, got, exitFailed, said, tt.want)
		}
	}
}

// play runs the command, and returns all that it says.
func play(args ...string) (status int, said string) {
	var stdout, stderr bytes.Buffer
	status = run(context.Background(), args, &stdout, &stderr)
	return status, stdout.String() + stderr.String()
}

// lacks is what is not said.
func lacks(said string, wanted ...string) []string {
	return slices.DeleteFunc(wanted, func(want string) bool { return strings.Contains(said, want) })
}

// shortRun is a run of three phases in three and a half seconds.
func shortRun(more ...string) []string {
	return append([]string{"-act", "division", "-duration", "3500ms", "-join", "1s", "-kill", "2s"}, more...)
}

// TestAFleetHoldsItsLimit is the command's own claim, with real processes and a real network. The
// bounds must hold in every run. How much of the limit is used depends on the machine too, which may
// stand still for seconds: one good run in three is asked for.
func TestAFleetHoldsItsLimit(t *testing.T) {
	var bad []string
	for range 3 {
		status, said := play(shortRun()...)
		missing := lacks(said, "replica 4 joins", "replica 2 is killed", "held    the fleet", "held    replica 4",
			"Every bound held.")
		if status != exitHeld || len(missing) > 0 {
			t.Fatalf("exit status %d, want %d, no %q in\n%s", status, exitHeld, missing, said)
		}
		if bad = badPhases(t, said); len(bad) == 0 {
			return
		}
		t.Logf("%s\n%s", strings.Join(bad, "\n"), said)
	}
	t.Errorf("no good run in three, the last one: %q", bad)
}

var phaseRow = regexp.MustCompile(`(?m)^  (\d) replicas +[\d.]+ – +[\d.]+ s +100/s +([\d.]+) % +([\d.]+) % +([\d.]+) `)

// badPhases reads the table of phases and returns what is not as it should be. Demand exceeds the limit all
// the time, so nearly all of it must be used, nearly nothing refused, and all replicas treated alike.
func badPhases(t *testing.T, out string) (bad []string) {
	t.Helper()
	rows := phaseRow.FindAllStringSubmatch(out, -1)
	if len(rows) != 3 {
		t.Fatalf("%d phases, want 3:\n%s", len(rows), out)
	}
	for i, row := range rows {
		var values [4]float64 // replicas, goodput, 429s, fairness
		for column := range values {
			x, err := strconv.ParseFloat(row[column+1], 64)
			if err != nil {
				t.Fatal(err)
			}
			values[column] = x
		}
		if want := []float64{3, 4, 3}[i]; values[0] != want {
			t.Errorf("phase %d: %v replicas, want %v", i, values[0], want)
		}
		if values[1] < 90 || values[2] > 2 || values[3] < 0.98 {
			bad = append(bad, row[0])
		}
	}
	return bad
}

// TestAWrongPoolSizeIsCaught: replicas that each believe to be alone exceed the limit, and the
// verdict reports it. This is the proof that the verdict can fail.
func TestAWrongPoolSizeIsCaught(t *testing.T) {
	t.Parallel()
	status, said := play(shortRun("-believe", "1", "-want", "200")...)
	missing := lacks(said, "BROKEN  the fleet", "A bound was BROKEN.")
	if status != exitBroken || len(missing) > 0 {
		t.Errorf("exit status %d, want %d, no %q in\n%s", status, exitBroken, missing, said)
	}
}

// cancelAt calls cancel at the first line of the table.
type cancelAt struct {
	said   bytes.Buffer
	cancel func()
}

func (c *cancelAt) Write(b []byte) (int, error) {
	n, err := c.said.Write(b)
	if strings.Contains(c.said.String(), "  1 s") {
		c.cancel()
	}
	return n, err
}

// TestAnInterruptEndsEverything: runFleet only returns once every process was waited for, and the check for leaks
// in TestMain sees the goroutines that do so.
func TestAnInterruptEndsEverything(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stderr bytes.Buffer
	status := run(ctx, nil, &cancelAt{cancel: cancel}, &stderr)
	if status != exitFailed || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("exit status %d, %s", status, stderr.String())
	}
}

// TestTheProgramItself interrupts the command with a signal.
func TestTheProgramItself(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], programArg)
	out := &cancelAt{cancel: func() { _ = cmd.Process.Signal(os.Interrupt) }}
	cmd.Stdout = out
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != exitFailed {
		t.Errorf("%v, want exit status %d\n%s", err, exitFailed, out.said.String())
	}
}
