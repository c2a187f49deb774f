// Package kept runs processes for tests and benchmarks: servers, and this program itself. They end with the process
// that runs them, whatever ends that.
package kept

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Patience is how long a process may take to start or to stop; generous for a machine that is busy.
const Patience = time.Minute

// mostSaid bounds what is kept of what a process says, in bytes.
const mostSaid = 64 << 10

// keeper runs a command in the shell's own process, so that signals reach it. Beside it a subshell kills it
// when the pipe at its input ends without a word: its parent is gone. A hang-up reaches the whole group, but
// some servers ignore it, so the subshell must too.
const keeper = `exec 3<&0
(trap "" HUP INT TERM; read word <&3 || kill -9 $$) >/dev/null 2>&1 &
exec 3<&- </dev/null; exec "$@"`

// Process is one run of a program.
type Process struct {
	PID    int
	server bool // of others: it may be ordered to end by SIGTERM
	cmd    *exec.Cmd
	in     *os.File // its end is the order to end; a server is killed then
	said   tail
	done   chan struct{}
	err    error // how it ended; read it once done is closed
}

// Start starts a server in a folder, "" for that of this process.
func Start(dir string, args ...string) (*Process, error) {
	if _, err := exec.LookPath(args[0]); err != nil {
		return nil, err
	}
	p := &Process{server: true, cmd: exec.Command("sh", append([]string{"-c", keeper, "sh"}, args...)...)}
	p.cmd.Dir, p.cmd.Stdout = dir, &p.said
	return p.start(func() {})
}

// Again starts this program again, with these arguments. It must end when its input ends. What it prints is
// read by read, in a goroutine of its own; nil discards it.
func Again(read func(io.Reader), args ...string) (*Process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(exe, args...)}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return p.start(func() {
		if read != nil {
			read(out)
		}
		_, _ = io.Copy(io.Discard, out)
	})
}

// start starts the process, and waits for its end once its output is read: no zombie stays.
func (p *Process) start(read func()) (*Process, error) {
	p.done, p.cmd.Stderr, p.cmd.WaitDelay = make(chan struct{}), &p.said, time.Second
	in, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // the process has it
	p.cmd.Stdin, p.in = in, ours
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	p.PID = p.cmd.Process.Pid
	go func() {
		defer close(p.done)
		read()
		if p.err = p.cmd.Wait(); p.err != nil {
			p.err = fmt.Errorf("the process has ended: %w: %s", p.err, p.Said())
		}
		_, _ = p.in.WriteString("over\n") // nothing is left to kill; the keeper may be gone
		_ = p.in.Close()
	}()
	return p, nil
}

// Tell writes one line of JSON to the input of a process that Again started.
func (p *Process) Tell(v any) error { return json.NewEncoder(p.in).Encode(v) }

// Said is the last of what the process has written to its standard error, and a server to its output too.
func (p *Process) Said() string {
	p.said.mu.Lock()
	defer p.said.mu.Unlock()
	return p.said.buf.String()
}

// Signal sends a signal. The error is os.ErrProcessDone where the process has ended.
func (p *Process) Signal(s os.Signal) error {
	select {
	case <-p.done:
		return errors.Join(os.ErrProcessDone, p.err)
	default:
		return p.cmd.Process.Signal(s)
	}
}

// Kill ends the process as a crash does, and waits for its end.
func (p *Process) Kill() error {
	err := p.Signal(os.Kill)
	<-p.done
	return err
}

// Stop ends the process in order and waits for it. The error is how it ended, if that was not in order.
func (p *Process) Stop() error {
	ordered := p.server && p.Signal(syscall.SIGTERM) == nil
	if !p.server {
		_ = p.in.Close() // it may have ended already
	}
	select {
	case <-p.done:
		if ordered {
			return nil // whatever it makes of the signal
		}
		return p.err
	case <-time.After(Patience):
		_ = p.Kill()
		return fmt.Errorf("%s does not stop", p.cmd.Args)
	}
}

// Serves waits until the process answers. It is an error if that takes too long, or the process ends before.
func (p *Process) Serves(ctx context.Context, answers func() error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		err := answers()
		if err == nil {
			return nil
		}
		select {
		case <-look.C:
		case <-p.done:
			return errors.Join(os.ErrProcessDone, p.err)
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w: %s", p.cmd.Args, err, p.Said())
		}
	}
}

// A tail keeps the last of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write takes all of b.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.buf.Write(b)
	t.buf.Next(max(0, t.buf.Len()-mostSaid))
	return n, err
}
