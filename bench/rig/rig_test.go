package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// echoArg makes the test program one that prints what it reads.
const echoArg = "echo"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == echoArg {
		_, _ = io.Copy(os.Stdout, os.Stdin)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// TestAProcessEnds holds that a server is there until it is ended, in order or not, and is not there then.
func TestAProcessEnds(t *testing.T) {
	for name, end := range map[string]func(*Process) error{"stop": (*Process).Stop, "kill": (*Process).Kill} {
		p, err := Start(t.TempDir(), "sleep", "600")
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("%s: it is not there: %v", name, err)
		}
		if err := end(p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := p.Signal(os.Interrupt); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%s: it takes a signal: %v", name, err)
		}
	}
}

// TestAServerThatFailsIsNamed holds that the error has what the server wrote, at once.
func TestAServerThatFailsIsNamed(t *testing.T) {
	p, err := Start(t.TempDir(), "sh", "-c", "echo no luck >&2; exit 3")
	if err == nil {
		err = p.Serves(t.Context(), At(1))
	}
	if err == nil || !strings.Contains(err.Error(), "no luck") || strings.Contains(err.Error(), "after") {
		t.Error(err)
	}
	if _, err := Start(t.TempDir(), "/nowhere/to/be/found"); err == nil {
		t.Error("a program that is not there was started")
	}
}

// TestAgainIsTold holds that what Tell writes comes back, and that the program ends with its input.
func TestAgainIsTold(t *testing.T) {
	var said string
	p, err := Again(func(r io.Reader) { _ = json.NewDecoder(r).Decode(&said) }, echoArg)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Tell("hello"), p.Stop()); err != nil || said != "hello" {
		t.Error(said, err)
	}
}

// TestProgram holds what the exit status says, and what is printed.
func TestProgram(t *testing.T) {
	part := func(name string, err error, vs ...Verdict) Part {
		s := Section{Title: name, Table: Table{Header: []string{"a", "bc"}}, Verdicts: vs}
		s.Add("row", Quantile([]int{3, 1, 2}, .5))
		return Part{name, func(context.Context) (Section, error) { return s, err }}
	}
	parts := []Part{
		part("good", nil, AtMost("x", 1, 2, " s"), AtLeast("y", 2, 2, ""), Exactly("z", 3, 3)),
		part("late", nil, AtMost("not measured", 0, 2, "")),
		part("aimless", nil),
		part("broken", errors.New("no luck")),
	}
	for _, c := range []struct {
		args, want string
		status     int
	}{
		{"-only good", "| a   | bc  |\n| --- | --- |\n| row | 2   |\n\n| goal | bound       | seen", 0},
		{"-only good,late", "**MISSED**", 1},
		{"-only aimless", "1 goals missed", 1},
		{"", "broken: no luck", 2},
		{"-only good,speed", `no part is called "speed"`, 2},
		{"more", `unexpected argument "more"`, 2},
		{"-n 4", "it is not between 1 and 3", 2}, {"-wait 1h", "it is not between 1s and 1m0s", 2},
		{"-n 2 -wait 3s -only good", "## good", 0},
		{"-h", "1 to 3", 0},
	} {
		n, wait := 1, time.Second
		flags := flag.NewFlagSet("test", flag.ContinueOnError)
		Ranged(flags, &n, "n", 1, 3, "some number")
		Ranged(flags, &wait, "wait", time.Second, time.Minute, "some time")
		var out bytes.Buffer
		p := Program{Title: "Test", Parts: parts}
		status := p.Main(flags, strings.Fields(c.args), &out, &out)
		if status != c.status || !strings.Contains(out.String(), c.want) {
			t.Errorf("%q: status %d\n%s", c.args, status, out.String())
		}
	}
}
