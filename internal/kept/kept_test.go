package kept

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

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
		err = p.Serves(t.Context(), func() error { return errors.New("not yet") })
	}
	if err == nil || !strings.Contains(err.Error(), "no luck") || strings.Contains(err.Error(), "not yet") {
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
