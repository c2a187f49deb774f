package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Time limits of what the parent waits for.
const (
	startWithin = 15 * time.Second // a process that starts, also on a busy machine
	stopWithin  = 3 * time.Second  // a process whose input has ended
	tellWithin  = 5 * time.Second  // an answer of an admin endpoint
)

// A process is a replica, seen from its parent.
type process struct {
	id     int
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	hello  chan message    // gets the first message
	done   chan struct{}   // closed when the process has ended and was waited for
	admin  string          // set once hello was received
	urgent chan<- struct{} // gets something, if there is room, when the process believes something new or has ended
	steps  []step          // what its share was, and since when

	ending bool // its end was ordered: owned by the fleet

	mu        sync.Mutex
	waiting   int
	gaveUp    int
	failed    int
	lastError string
	overheads []time.Duration
	stall     time.Duration
	beliefs   []belief
	err       error // how it ended
}

// start runs this program again as a replica. Its end, for whatever cause, closes done. Reports that must
// not wait are announced to urgent.
func start(a assignment, urgent chan<- struct{}) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	order, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, replicaArg)
	cmd.WaitDelay = time.Second
	said := &tail{}
	cmd.Stderr = said
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{id: a.ID, cmd: cmd, stdin: stdin, hello: make(chan message, 1), done: make(chan struct{}), urgent: urgent}
	go p.attend(stdout, said)
	if _, err := stdin.Write(append(order, '\n')); err != nil {
		return nil, errors.Join(fmt.Errorf("replica %d: %w", a.ID, err), p.stop())
	}
	return p, nil
}

// attend reads what the replica says until it ends, and then waits for it: no zombie stays.
func (p *process) attend(stdout io.Reader, said *tail) {
	defer p.call()
	defer close(p.done)
	dec := json.NewDecoder(stdout)
	first := true
	for {
		var m message
		if dec.Decode(&m) != nil {
			break // the end, or a line cut off by it
		}
		if first {
			p.hello <- m
			first = false
			continue
		}
		p.note(m)
	}
	_, _ = io.Copy(io.Discard, stdout)
	err := p.cmd.Wait()
	if text := said.String(); text != "" {
		err = fmt.Errorf("%v: %s", err, text)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// call wakes up the listener of urgent.
func (p *process) call() {
	select {
	case p.urgent <- struct{}{}:
	default: // it will look anyway, or there is no listener
	}
}

// note takes in one report.
func (p *process) note(m message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(m.Beliefs) > 0 {
		defer p.call()
	}
	p.beliefs = append(p.beliefs, m.Beliefs...)
	p.waiting = m.Waiting
	p.gaveUp += m.GaveUp
	p.failed += m.Failed
	p.lastError = cmp.Or(m.LastError, p.lastError)
	p.overheads = append(p.overheads, m.Overheads...)
	p.stall = max(p.stall, m.Stall)
}

// ready waits for the replica's first message.
func (p *process) ready(ctx context.Context) (message, error) {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	select {
	case m := <-p.hello:
		p.admin = m.Admin
		return m, nil
	case <-p.done:
		return message{}, p.ended()
	case <-ctx.Done():
		return message{}, fmt.Errorf("replica %d did not start: %w", p.id, ctx.Err())
	}
}

// ended is the error of a replica that ended although it was not ordered to; nil while it lives.
func (p *process) ended() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("replica %d ended by itself: %v", p.id, p.err)
}

// kill ends the process without a word, as a crash does, and waits for its end.
func (p *process) kill() error {
	p.ending = true
	err := p.cmd.Process.Kill()
	<-p.done
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// stop ends the process in order: its input ends, it sends its last report. A replica that does not listen
// is killed.
func (p *process) stop() error {
	p.ending = true
	_ = p.stdin.Close() // the process may have ended already
	select {
	case <-p.done:
		return nil
	case <-time.After(stopWithin):
		return p.kill()
	}
}

// order tells the replica what to do from now on.
func (p *process) order(o order) error {
	if err := json.NewEncoder(p.stdin).Encode(o); err != nil {
		return fmt.Errorf("replica %d: %w", p.id, err)
	}
	return nil
}

// newAdminClient is a client for tell. It takes a new connection each time: the replica closes an idle one
// after a while, and a request that meets that end is lost.
func newAdminClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

// tell sets the replica's pool size through its admin endpoint.
func (p *process) tell(ctx context.Context, client *http.Client, replicas, ordinal int) error {
	ctx, cancel := context.WithTimeout(ctx, tellWithin)
	defer cancel()
	body := fmt.Sprintf(`{"replicas":%d,"ordinal":%d}`, replicas, ordinal)
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, p.admin+"/replicas", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("telling replica %d: %w", p.id, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("telling replica %d: %s: %s %v", p.id, resp.Status, answer, err)
	}
	return nil
}

// A tail keeps the last 2 KiB of what is written to it. The process that writes is waited for
// before it is read.
type tail struct{ buf bytes.Buffer }

func (t *tail) Write(b []byte) (int, error) {
	t.buf.Write(b)
	if over := t.buf.Len() - 2<<10; over > 0 {
		t.buf.Next(over)
	}
	return len(b), nil
}

func (t *tail) String() string { return strings.TrimSpace(t.buf.String()) }
