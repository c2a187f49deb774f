package real

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const stopWithin = 5 * time.Second // of a process whose input has ended

// A process is the test program, started again as something else. It ends when its input does, so it ends
// with the test, however the test ends.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr bytes.Buffer // read it once done is closed
	done   chan struct{}
	err    error // how it ended; read it once done is closed
}

// start starts a process that is ended with the test. Its output goes to stdout, unless that is nil.
func start(t *testing.T, stdout io.Writer, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(exe, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.WaitDelay = stdout, &p.stderr, time.Second
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() { _ = p.stop() })
	return p
}

// stop ends the process and waits for it. The error is how it ended, if that was not in order.
func (p *process) stop() error {
	_ = p.in.Close() // it may have ended already
	select {
	case <-p.done:
	case <-time.After(stopWithin):
		_ = p.cmd.Process.Kill()
		<-p.done
		return errors.New("did not end with its input")
	}
	if p.err != nil {
		return fmt.Errorf("%w: %s", p.err, p.stderr.Bytes())
	}
	return nil
}

// keeperMain runs a server until the input ends, and ends it then. It returns the exit status.
func keeperMain(server []string, in io.Reader, stderr io.Writer) int {
	cmd := exec.Command(server[0], server[1:]...)
	cmd.Stdout, cmd.Stderr = stderr, stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		_ = cmd.Process.Kill()
	}()
	if err := cmd.Wait(); err != nil && !killed(cmd) {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func killed(cmd *exec.Cmd) bool { return !cmd.ProcessState.Exited() }

// TestAKeeperEndsItsServer: a server that was started by a keeper is not left behind.
func TestAKeeperEndsItsServer(t *testing.T) {
	var said bytes.Buffer
	if status := keeperMain([]string{"sleep", "600"}, strings.NewReader(""), &said); status != 0 ||
		said.Len() > 0 {
		t.Errorf("status %d: %s", status, said.String())
	}
	open, input := io.Pipe()
	defer input.Close()
	if status := keeperMain([]string{"false"}, open, &said); status != 1 {
		t.Errorf("a server that fails: status %d", status)
	}
	if status := keeperMain([]string{"/nowhere/to/be/found"}, open, &said); status != 1 {
		t.Errorf("no server: status %d", status)
	}
}
