package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
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
		os.Args = []string{"fleet"}
		main()
	}
	goleak.VerifyTestMain(m)
}

func TestBadFlagsAreNamed(t *testing.T) {
	if got, said := play("-h"); got != exitHeld || !strings.Contains(said, "  -burst ") {
		t.Errorf("-h: exit status %d, %s", got, said)
	}
	for _, tt := range []struct{ args, want string }{
		{"-limit 0", "-limit: 0"},
		{"-limit NaN", "-limit: NaN"},
		{"-replicas 7", "-replicas: 7"},
		{"-duration 10ms", "-duration: 10ms"},
		{"-believe -1", "-believe: -1"},
		{"-act third", `"third" for flag -act: it is none of both, division, adaptive`},
		{"-policy lies", "-policy"},
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

// TestProcessesDivideALimit: the verdict on processes can be good; and bad, when each believes to be alone. A replica
// that loses the processor between two readings of a clock may be blamed for some milliseconds, so one run of three
// has to be as it should.
func TestProcessesDivideALimit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		believe string
		status  int
		says    []string
	}{
		{"0", exitHeld, []string{"3 replicas know how many they are", "replica 4 joins, its bucket empty",
			"all know of that after ", "replica 2 is killed", "held    the fleet", "held    replica 4",
			"What was shown\n  division  Every bound held. The processes used "}},
		{"1", exitBroken, []string{"BROKEN  the fleet", "  division  A bound was BROKEN."}},
	} {
		for left := 2; ; left-- {
			status, said := play("-act", "division", "-duration", "4s", "-want", "200",
				"-believe", tt.believe)
			missing := lacks(said, slices.Clone(tt.says)...)
			if status == tt.status && len(missing) == 0 {
				break
			}
			t.Logf("-believe %s: exit status %d, no %q in\n%s", tt.believe, status, missing, said)
			if left == 0 {
				t.Fatal("no run of three was as it should be")
			}
		}
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
	status := run(ctx, []string{"-act", "adaptive"}, &cancelAt{cancel: cancel}, &stderr)
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
