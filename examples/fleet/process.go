package main

import (
	"bytes"
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
	ending bool            // its end was ordered: owned by the fleet

	mu    sync.Mutex
	total message // of all its reports
	err   error   // how it ended
}

// start runs this program again as a replica. Its end, for whatever cause, closes done. Reports that must
// not wait are announced to urgent.
func start(a assignment, urgent chan<- struct{}) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd, said := exec.Command(exe, replicaArg), &bytes.Buffer{}
	cmd.Stderr, cmd.WaitDelay = said, time.Second
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{id: a.ID, cmd: cmd, stdin: stdin, hello: make(chan message, 1), done: make(chan struct{}), urgent: urgent}
	go p.attend(stdout, said)
	if err := p.order(a); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// attend reads what the replica says until it ends, and then waits for it: no zombie stays.
func (p *process) attend(stdout io.Reader, said *bytes.Buffer) {
	for dec := json.NewDecoder(stdout); ; {
		var m message
		if dec.Decode(&m) != nil {
			break // the end, or a line cut off by it
		}
		if m.Admin != "" {
			p.hello <- m
			continue
		}
		p.mu.Lock()
		p.total.add(m)
		p.mu.Unlock()
		if len(m.Beliefs) > 0 {
			p.call()
		}
	}
	err := p.cmd.Wait()
	if said.Len() > 0 {
		err = fmt.Errorf("%v: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	p.mu.Lock()
	p.err = err
	p.mu.Unlock()
	close(p.done)
	p.call()
}

// call wakes up the listener of urgent.
func (p *process) call() {
	select {
	case p.urgent <- struct{}{}:
	default: // it will look anyway, or there is no listener
	}
}

// reported is all that the replica has reported.
func (p *process) reported() message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
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
		return fmt.Errorf("replica %d ended by itself: %v", p.id, p.err)
	default:
		return nil
	}
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

// order sends the replica its assignment, and what to do from now on.
func (p *process) order(o any) error {
	if err := json.NewEncoder(p.stdin).Encode(o); err != nil {
		return fmt.Errorf("replica %d: %w", p.id, err)
	}
	return nil
}

// tell sets the replica's pool size through its admin endpoint. It takes a new connection each time: the replica
// closes an idle one after a while, and a request that meets that end is lost.
func (p *process) tell(ctx context.Context, replicas, ordinal int) error {
	ctx, cancel := context.WithTimeout(ctx, tellWithin)
	defer cancel()
	body := strings.NewReader(fmt.Sprintf(`{"replicas":%d,"ordinal":%d}`, replicas, ordinal))
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, p.admin+"/replicas", body)
	if err != nil {
		return err
	}
	req.Close = true
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
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
