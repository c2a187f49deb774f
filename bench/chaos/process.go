package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"time"
)

const stopWithin = 10 * time.Second // of a process whose input has ended

// A process is a replica, seen from its parent.
type process struct {
	id    int
	addr  netip.Addr // in DNS; none: it gossips
	seat  *seat      // in the mesh; nil: it does not gossip
	name  string     // by which it gossips
	busy  bool       // its callers ask; owned by the fleet
	paths int
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{} // closed when the process has ended and was waited for
	since func(clock int64) time.Duration

	ordered bool // its end was ordered; owned by the fleet
	stopped bool // by SIGSTOP; owned by the fleet

	unlisted bool // the file and DNS do not count it; owned by the fleet

	mu   sync.Mutex // guards what follows
	life life
	err  error // how it ended
}

// start runs a program, this one or one like it, as a replica.
func start(exe string, a assignment, since func(int64) time.Duration) (*process, error) {
	p := &process{
		id: a.ID, cmd: exec.Command(exe, replicaArg),
		done: make(chan struct{}), since: since, life: life{ID: a.ID, Died: never},
	}
	for s := range sources {
		if a.has(s) {
			p.paths++
		}
	}
	var said tail
	p.cmd.Stderr, p.cmd.WaitDelay = &said, time.Second
	stdout, err1 := p.cmd.StdoutPipe()
	stdin, err2 := p.cmd.StdinPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	p.stdin = stdin
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.attend(stdout, &said)
	if err := json.NewEncoder(stdin).Encode(a); err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return p, nil
}

// tell gives a command. A process that is stopped does it when it goes on.
func (p *process) tell(c command) error {
	if err := json.NewEncoder(p.stdin).Encode(c); err != nil {
		return fmt.Errorf("a command to replica %d: %w", p.id, err)
	}
	return nil
}

// attend reads what the replica says until it ends, and then waits for it: no zombie stays.
func (p *process) attend(stdout io.Reader, said *tail) {
	defer close(p.done)
	dec := json.NewDecoder(stdout)
	for {
		var m message
		if dec.Decode(&m) != nil {
			break // the end, or a line cut off by it
		}
		p.note(m)
	}
	_, _ = io.Copy(io.Discard, stdout)
	err := p.cmd.Wait()
	if err != nil && said.Len() > 0 {
		err = fmt.Errorf("%w: %s", err, said.Bytes())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// note takes in one message.
func (p *process) note(m message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch l := &p.life; {
	case m.Born != 0:
		l.Born = p.since(m.Born)
	case m.Belief != nil && m.Belief.Source >= 0 && m.Belief.Source < sources:
		l.believes(m.Belief.Source, m.Belief.Replicas, p.since(m.Belief.From), p.since(m.Belief.At))
	case m.Place != nil && m.Place.Source >= 0 && m.Place.Source < sources:
		o := placed{span{p.since(m.Place.From), p.since(m.Place.At)}, m.Place.Ordinal}
		l.Places[m.Place.Source] = append(l.Places[m.Place.Source], o)
	case m.Listed != nil:
		l.Listed = append(l.Listed, turn{p.since(m.Listed.At), m.Listed.Members})
	case m.Lent != nil && m.Lent.Source >= 0 && m.Lent.Source < sources:
		l.Parts[m.Lent.Source] = append(l.Parts[m.Lent.Source], parted{p.since(m.Lent.At), m.Lent.Part})
	case m.Muted != nil && m.Muted.Source >= 0 && m.Muted.Source < sources:
		l.muted(m.Muted.Source, m.Muted.Silent, p.since(m.Muted.At))
	case m.Step != nil:
		l.Steps = append(l.Steps, clockStep{span{p.since(m.Step.From), p.since(m.Step.At)}, m.Step.Ahead})
	case m.Stall != nil:
		l.Stalls = append(l.Stalls, span{p.since(m.Stall.From), p.since(m.Stall.To)})
	case m.Counts != nil:
		l.Counts = m.Counts
	case m.End != nil:
		l.End = m.End
	}
}

// known reports whether the replica has a share of every path.
func (p *process) known() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, b := range p.life.Beliefs {
		if len(b) > 0 {
			n++
		}
	}
	return n == p.paths
}

// lived is a copy of what is known of its life.
func (p *process) lived() life {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life
}

// ended is how a process ended that was not ordered to; nil when it is there, or was ordered.
func (p *process) ended() error {
	if p.ordered {
		return nil
	}
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
	p.ordered = true
	err := p.cmd.Process.Kill()
	<-p.done
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// stop ends the process in order. A process that does not listen is killed, and that is an error.
func (p *process) stop() error {
	p.ordered = true
	_ = p.stdin.Close() // the process may have ended already
	select {
	case <-p.done:
	case <-time.After(stopWithin):
		return errors.Join(fmt.Errorf("replica %d did not end with its input", p.id), p.kill())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// A tail keeps the last 2 KiB of what is written to it.
type tail struct{ bytes.Buffer }

// Write takes all of b.
func (t *tail) Write(b []byte) (int, error) {
	n, err := t.Buffer.Write(b)
	if over := t.Len() - 2<<10; over > 0 {
		t.Next(over)
	}
	return n, err
}
