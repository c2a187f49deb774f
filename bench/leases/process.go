package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	startWithin = 20 * time.Second // from the start of a server until it accepts connections
	stopWithin  = 30 * time.Second // from the signal to the end of a server
)

// A process is a server under a keeper: this program, started again, which ends the server when its input
// ends. So no server outlives this program, however that ends.
type process struct {
	pid  int // of the server
	cmd  *exec.Cmd
	in   io.WriteCloser
	said tail
	done chan struct{}
	err  error // how it ended; read it once done is closed
}

// start starts a server.
func start(dir string, args ...string) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(exe, append([]string{keeperArg}, args...)...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stderr, p.cmd.WaitDelay = dir, &p.said, time.Second
	in, err1 := p.cmd.StdinPipe()
	out, err2 := p.cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	p.in = in
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		p.pid, err = strconv.Atoi(strings.TrimSpace(line))
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", args[0], errors.Join(err, p.stop()))
	}
	return p, nil
}

// signal sends a signal to the server.
func (p *process) signal(s os.Signal) error {
	select {
	case <-p.done:
		return fmt.Errorf("the server has ended: %w: %s", p.err, p.said.text())
	default:
		found, err := os.FindProcess(p.pid)
		if err != nil {
			return err
		}
		return found.Signal(s)
	}
}

// kill ends the server as a crash does, and waits for its end.
func (p *process) kill() error {
	err := p.signal(syscall.SIGKILL)
	<-p.done
	return err
}

// stop ends the server in order and waits for it. The error is how it ended, if that was not in order.
func (p *process) stop() error {
	_ = p.in.Close() // it may have ended already
	select {
	case <-p.done:
	case <-time.After(stopWithin + 5*time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
		return errors.New("did not end with its input")
	}
	if p.err != nil {
		return fmt.Errorf("%w: %s", p.err, p.said.text())
	}
	return nil
}

// serves waits until the server accepts connections.
func (p *process) serves(ctx context.Context, addr string) error {
	return until(ctx, startWithin, func() error {
		select {
		case <-p.done:
			return final{fmt.Errorf("the server has ended: %v: %s", p.err, p.said.text())}
		default:
		}
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// final is an error that more time does not mend.
type final struct{ error }

// until calls f every 5 ms until it returns no error, and returns its last one when the time is over.
func until(ctx context.Context, within time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		err := f()
		var end final
		if err == nil || errors.As(err, &end) {
			return err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w", within, err)
		}
	}
}

// keeperArg is the first argument of a keeper.
const keeperArg = "keeper"

// keeperMain runs a server until the input ends, and ends it then: with SIGTERM, and with SIGKILL when that
// takes too long. It prints the server's process id first, and returns the exit status.
func keeperMain(server []string, in io.Reader, stdout, stderr io.Writer) int {
	cmd := exec.Command(server[0], server[1:]...)
	cmd.Stdout, cmd.Stderr = stderr, stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	fmt.Fprintln(stdout, cmd.Process.Pid)
	var ordered atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, in)
		ordered.Store(true)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		time.AfterFunc(stopWithin, func() { _ = cmd.Process.Kill() })
	}()
	if err := cmd.Wait(); err != nil && !ordered.Load() {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// A tail keeps the last 4 KiB of what is written to it.
type tail struct {
	mu     sync.Mutex
	buf    bytes.Buffer
	beyond int // lines that report a restore beyond the maximum
}

// Write takes all of b.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.beyond += bytes.Count(b, []byte("restored beyond the maximum"))
	n, err := t.buf.Write(b)
	if over := t.buf.Len() - 4<<10; over > 0 {
		t.buf.Next(over)
	}
	return n, err
}

// count is how many restores beyond the maximum were reported.
func (t *tail) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.beyond
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}
