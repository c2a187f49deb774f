// Package rig is what the benchmarks share: processes that end with this one, tables, verdicts and the
// command line of a program that measures one part after the other.
package rig

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/quotient-go/quotient/internal/kept"
)

const (
	startWithin = 20 * time.Second // from the start of a server until it accepts connections
	stopWithin  = 30 * time.Second // from the order to end until the end
	mostSaid    = 64 << 10         // bytes of what a process says
)

// A Process is a server that ends with this program, however that ends: its input ends then.
type Process struct {
	PID  int
	cmd  *exec.Cmd
	in   *os.File // its end is the order to end; a server of others is killed then
	kept bool     // a server of others, which may be ordered to end by SIGTERM
	said tail
	done chan struct{}
	err  error // how it ended; read it once done is closed
}

// Start starts a server of others in a folder.
func Start(dir string, args ...string) (*Process, error) {
	if _, err := exec.LookPath(args[0]); err != nil {
		return nil, err
	}
	p := &Process{cmd: kept.Command(args...), kept: true}
	p.cmd.Dir = dir
	return p.start(func(out io.Reader) { _, _ = io.Copy(&p.said, out) })
}

// Again starts this program again, with these arguments. It must end when its input ends. What it prints is
// read by read, in a goroutine of its own; nil discards it.
func Again(read func(io.Reader), args ...string) (*Process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(exe, args...)}
	return p.start(read)
}

func (p *Process) start(read func(io.Reader)) (*Process, error) {
	p.done, p.cmd.Stderr, p.cmd.WaitDelay = make(chan struct{}), &p.said, time.Second
	out, err1 := p.cmd.StdoutPipe()
	in, ours, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // the process has it
	p.cmd.Stdin, p.in = in, ours
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	p.PID = p.cmd.Process.Pid
	go p.attend(out, read)
	return p, nil
}

// attend reads what the process prints until that ends, and waits for it: no zombie stays.
func (p *Process) attend(out io.Reader, read func(io.Reader)) {
	defer close(p.done)
	if read != nil {
		read(out)
	}
	_, _ = io.Copy(io.Discard, out)
	if p.err = p.cmd.Wait(); p.err != nil {
		p.err = fmt.Errorf("the process has ended: %w: %s", p.err, p.Said())
	}
	_, _ = p.in.WriteString("over\n") // nothing is left to kill
	_ = p.in.Close()
}

// Tell writes one line of JSON to the input of a process that Again started.
func (p *Process) Tell(v any) error { return json.NewEncoder(p.in).Encode(v) }

// ended is an error where the process has ended.
func (p *Process) ended() error {
	select {
	case <-p.done:
		return errors.Join(os.ErrProcessDone, p.err)
	default:
		return nil
	}
}

// Said is the last of what the process has written to its standard error, and a server to its output too.
func (p *Process) Said() string {
	p.said.mu.Lock()
	defer p.said.mu.Unlock()
	return p.said.buf.String()
}

// Signal sends a signal. The error is os.ErrProcessDone where the process has ended.
func (p *Process) Signal(s os.Signal) error {
	if err := p.ended(); err != nil {
		return err
	}
	found, _ := os.FindProcess(p.PID) // on Unix there is no error
	return found.Signal(s)
}

// Kill ends the process as a crash does, and waits for its end.
func (p *Process) Kill() error {
	err := p.Signal(os.Kill)
	<-p.done
	return err
}

// Stop ends the process in order and waits for it. The error is how it ended, if that was not in order.
func (p *Process) Stop() error {
	ordered := p.kept && p.Signal(syscall.SIGTERM) == nil
	if !p.kept {
		_ = p.in.Close() // it may have ended already
	}
	select {
	case <-p.done:
		if ordered {
			return nil // whatever it makes of the signal
		}
		return p.err
	case <-time.After(stopWithin + 5*time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
		return errors.New("the process did not end with its input")
	}
}

// Serves waits until the process accepts connections.
func (p *Process) Serves(ctx context.Context, addr string) error {
	err := Until(ctx, startWithin, func() error {
		if p.ended() != nil {
			return nil // more time does not mend it
		}
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return cmp.Or(p.ended(), err)
}

// Pause waits for a while, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Until calls f every 5 ms until it returns no error, and returns its last one when the time is over.
func Until(ctx context.Context, within time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w", within, err)
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

// At is the address of a port on loopback.
func At(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// FreePort is a free port that the system gives to no connection: it stays free between two starts.
func FreePort() (int, error) {
	for range 100 {
		port := 20_000 + rand.IntN(12_000)
		if l, err := net.Listen("tcp", At(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port between 20000 and 32000")
}

// Find returns the path of a program; Debian keeps servers outside of the PATH of users.
func Find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + program)
	}
	if err != nil {
		err = fmt.Errorf("%s is not installed (apt-get install %s): %w", program, program, err)
	}
	return path, err
}

// Build builds a package into a file, as the go command finds it in a folder.
func Build(ctx context.Context, file, dir, pkg string, env ...string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", file, pkg)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", file, err, text)
	}
	return nil
}
