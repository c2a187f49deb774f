// Package kept runs servers for tests and benchmarks. They end with the process that runs them, whatever ends that.
package kept

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Patience is how long a server may take to start or to stop; generous for a machine that is busy.
const Patience = 20 * time.Second

// keeper runs a command in the shell's own process, so that signals reach it. Beside it a subshell kills it
// when the pipe at its input ends without a word: its parent is gone. A hang-up reaches the whole group, but
// some servers ignore it, so the subshell must too.
const keeper = `exec 3<&0
(trap "" HUP INT TERM; read word <&3 || kill -9 $$) >/dev/null 2>&1 &
exec 3<&- </dev/null; exec "$@"`

// Process is one run of a server.
type Process struct {
	*os.Process
	args  []string
	alive io.WriteCloser // its end without a word ends the process
	ended chan struct{}  // closed when the process has ended
}

// Command is a process that is killed when its input, which must be a pipe, ends without a word.
func Command(args ...string) *exec.Cmd {
	return exec.Command("sh", append([]string{"-c", keeper, "sh"}, args...)...)
}

// Start runs a command. It writes to out, unless that is nil.
func Start(out *os.File, args ...string) (*Process, error) {
	cmd := Command(args...)
	in, alive, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // the keeper has it
	if cmd.Stdin = in; out != nil {
		cmd.Stdout, cmd.Stderr = out, out
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, alive.Close())
	}
	p := &Process{cmd.Process, args, alive, make(chan struct{})}
	go func() {
		defer close(p.ended)
		cmd.Wait() //nolint:errcheck // a signal ends it
	}()
	return p, nil
}

// Serves waits until the server answers. It is an error if that takes too long, or the process ends before.
func (p *Process) Serves(answers func() bool) error {
	for end := time.Now().Add(Patience); time.Now().Before(end); {
		if answers() {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s has ended", p.args)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s does not answer after %v", p.args, Patience)
}

// End ends the process by a signal, or the hard way if that takes too long, which is an error.
func (p *Process) End(how os.Signal) (err error) {
	p.Signal(how) //nolint:errcheck // it may have ended
	select {
	case <-p.ended:
	case <-time.After(Patience):
		err = fmt.Errorf("%s does not stop", p.args)
		p.Kill() //nolint:errcheck // as above
		<-p.ended
	}
	p.alive.Write([]byte("over\n")) //nolint:errcheck // nothing is left to kill; the keeper may be gone
	return errors.Join(err, p.alive.Close())
}
