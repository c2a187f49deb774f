package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

// Bounds of a history, so that a state of the model is one flat value.
const (
	semaphores = 3
	mostPeers  = 12
)

// rules are what is fixed for one history. Times are nanoseconds since its start.
type rules struct {
	max, level [semaphores]int64 // max at the start
	keepIdle   int64
	grace      int64 // after each restart; 0 means none
}

// A state is the whole service, as a sequential program sees it. It shares no code with package lease.
type state struct {
	now, graceEnds int64
	epoch          int // restarts so far
	n              int // peers
	bad            bool
	peers          [mostPeers]peerState // by id
	max            [semaphores]int64
	last           [semaphores]uint64 // the newest token that was given, where that is known
	queue          [semaphores]queue
}

type queue struct {
	n   int
	ids [mostPeers]uint64
}

type peerState struct {
	id      uint64
	expires int64
	broken  [semaphores]bool
	refused lockAsked // what it waited for, until a configuration made that impossible
	locks   [semaphores]lockState
}

// lockState is a lock if count is not 0. Its token is known early: it is taken from what the client sees
// later, and 0 where the client never sees it.
type lockState struct {
	count int64
	token uint64
	held  bool
}

// model returns the model of a history.
func (r rules) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return &state{max: r.max, graceEnds: r.grace} },
		Step: func(st, in, out any) (bool, any) {
			next := *st.(*state)
			ok := r.step(&next, in.(*input), out.(*output))
			return ok && !next.bad, &next
		},
		Equal: func(a, b any) bool { return *a.(*state) == *b.(*state) },
		DescribeOperation: func(in, out any) string {
			return fmt.Sprintf("%v -> %v", *in.(*input), *out.(*output))
		},
		DescribeState: func(st any) string { return fmt.Sprintf("%+v", *st.(*state)) },
	}
}

// step does one operation, and reports whether it may answer so.
func (r rules) step(s *state, in *input, out *output) bool {
	if in.epoch != s.epoch {
		return in.epoch < s.epoch && out.lost // its server has gone: it does nothing any more
	}
	if in.at < s.now {
		return false
	}
	r.advance(s, in.at)
	if in.kind == breakLock && out.err == notHeld {
		p := s.peer(in.id)
		if p != nil && p.locks[in.semaphore].held && p.locks[in.semaphore].token == 0 {
			return true // no client has seen the token: it may be another one than that of the request
		}
	}
	want := r.do(s, in)
	if out.lost || in.kind == ask && in.blocks {
		return true
	}
	return want.agrees(out)
}

// agrees reports whether an answer is the one that is wanted. A wanted token of 0 is any token.
func (want answer) agrees(out *output) bool {
	if want.granted {
		return out.err == "" && out.token != 0 && (want.token == 0 || want.token == out.token)
	}
	return out.err == want.err && out.token == 0 && (out.n == want.n || out.n == unseen)
}

// lockAsked is a lock that was asked for, if count is not 0.
type lockAsked struct {
	semaphore int
	count     int64
}

// answer is what an operation must answer.
type answer struct {
	granted bool
	token   uint64
	err     string
	n       int64
}

func (r rules) do(s *state, in *input) answer {
	switch in.kind {
	case restart:
		*s = state{now: s.now, epoch: s.epoch + 1, max: s.max, last: s.last, graceEnds: s.now + r.grace}
		return answer{}
	case configure:
		r.configure(s, in.semaphore, in.count)
		return answer{}
	case remainder:
		return answer{n: s.max[in.semaphore] - s.acquired(in.semaphore)}
	case removeExpired:
		return answer{n: r.removeExpired(s)}
	case newPeer:
		return answer{err: s.add(in.id, s.now+in.ttl)}
	case restore:
		return r.restore(s, in)
	}
	p := s.peer(in.id)
	switch {
	case in.kind == ask:
		return r.ask(s, p, in)
	case p == nil && in.kind == expire:
		return answer{}
	case p == nil && in.kind == removePeer:
		return answer{n: 0}
	case p == nil:
		return answer{err: unknownPeer}
	}
	return r.ofPeer(s, p, in)
}

// ofPeer does what only a peer that is known can do.
func (r rules) ofPeer(s *state, p *peerState, in *input) answer {
	l := &p.locks[in.semaphore]
	switch in.kind {
	case heartbeat:
		p.expires = s.now + in.ttl
		return answer{n: p.brokenMask()}
	case removePeer:
		r.remove(s, p.id)
		return answer{n: 1}
	case expire:
		if p.busy() {
			r.remove(s, p.id)
		} else {
			p.expires = s.now - 1
		}
		return answer{}
	case acquired:
		if p.refused.count != 0 {
			return answer{err: s.missing(p.refused.semaphore, p.refused.count)}
		}
		return answer{n: int64(asBit(!p.waits()))}
	case wait:
		return s.wait(p, l, in)
	case release:
		if p.refused.semaphore == in.semaphore {
			p.refused = lockAsked{}
		}
		if l.count != 0 {
			r.end(s, p, in.semaphore)
		}
		return answer{}
	case breakLock:
		if !l.held || l.token != 0 && l.token != in.token {
			return answer{err: notHeld}
		}
		p.broken[in.semaphore] = true
		r.end(s, p, in.semaphore)
		return answer{}
	}
	panic(fmt.Sprintf("no such operation: %d", in.kind))
}

// wait is what a request that was blocked sees.
func (s *state) wait(p *peerState, l *lockState, in *input) answer {
	switch {
	case l.count != 0 && in.count > l.count:
		return answer{err: s.tooSmall(l, in)}
	case l.held:
		a := answer{granted: true, token: l.token}
		if l.token == 0 {
			l.token = in.token
		}
		return a
	case l.count != 0:
		return answer{}
	case p.expires < 0: // by an operation expire: asking was refused
		return answer{err: unknownPeer}
	}
	return answer{err: s.missing(in.semaphore, in.count)}
}

// missing is why a lock that was asked for is not there.
func (s *state) missing(i int, count int64) string {
	if count > s.max[i] {
		return never(count, s.max[i])
	}
	return notHeld
}

// tooSmall is why a lock that is there is not what is asked for.
func (s *state) tooSmall(l *lockState, in *input) string {
	if most := s.max[in.semaphore]; in.count > most {
		return never(in.count, most)
	}
	return grow(l.count, in.count)
}

func (r rules) ask(s *state, p *peerState, in *input) answer {
	if p != nil && p.locks[in.semaphore].count != 0 {
		return r.repeat(s, &p.locks[in.semaphore], in)
	}
	switch {
	case in.count > s.max[in.semaphore]:
		return answer{err: never(in.count, s.max[in.semaphore])}
	case p == nil || s.now > p.expires:
		return answer{err: unknownPeer}
	case p.waits():
		return answer{err: alreadyPending}
	}
	lowest := int64(math.MaxInt64)
	for i, l := range p.locks {
		if l.count != 0 {
			lowest = min(lowest, r.level[i])
		}
	}
	if asked := r.level[in.semaphore]; asked >= lowest {
		return answer{err: hierarchy(lowest, asked)}
	}
	fits := s.acquired(in.semaphore)+s.waiting(in.semaphore)+in.count <= s.max[in.semaphore]
	p.broken[in.semaphore], p.refused = false, lockAsked{}
	p.locks[in.semaphore] = lockState{count: in.count, token: in.token}
	q := &s.queue[in.semaphore]
	if s.graceEnds <= s.now && fits {
		s.grant(in.semaphore, &p.locks[in.semaphore])
		return answer{granted: true, token: in.token}
	}
	s.inOrder(in.semaphore, in.token)
	q.ids[q.n] = p.id
	q.n++
	return answer{}
}

// inOrder looks ahead: a token that will be older than one before it in the queue is against the order.
func (s *state) inOrder(i int, token uint64) {
	if token == 0 {
		return
	}
	q := &s.queue[i]
	for _, id := range q.ids[:q.n] {
		s.bad = s.bad || s.peer(id).locks[i].token > token
	}
}

func (r rules) repeat(s *state, l *lockState, in *input) answer {
	if in.count > l.count {
		return answer{err: s.tooSmall(l, in)}
	}
	l.count = in.count
	if l.token == 0 {
		l.token = in.token
	}
	r.dispatch(s, in.semaphore)
	return answer{granted: l.held, token: l.token}
}

func (r rules) restore(s *state, in *input) answer {
	if p := s.peer(in.id); p != nil {
		for i, l := range p.locks {
			given := in.locks[i]
			if held := l.count * int64(asBit(l.held)); held != given.count || held != 0 && given.token != 0 &&
				given.token != l.token {
				return answer{err: restoreChanges}
			}
		}
		p.expires = s.now + in.ttl
		return answer{}
	}
	if err := s.add(in.id, s.now+in.ttl); err != "" {
		return answer{err: err}
	}
	p := s.peer(in.id)
	beyond := int64(0)
	for i, l := range in.locks {
		if l.count == 0 {
			continue
		}
		p.locks[i] = lockState{l.count, l.token, true}
		s.last[i] = max(s.last[i], l.token)
		if s.acquired(i) > s.max[i] {
			beyond |= 1 << i
		}
	}
	return answer{n: beyond}
}

func (r rules) configure(s *state, i int, most int64) {
	s.max[i] = most
	q := &s.queue[i]
	for _, id := range slices.Clone(q.ids[:q.n]) {
		if p := s.peer(id); p.locks[i].count > most {
			s.unqueue(i, id)
			p.refused = lockAsked{i, p.locks[i].count}
			p.locks[i] = lockState{}
		}
	}
	r.dispatch(s, i)
}

func asBit(b bool) int {
	if b {
		return 1
	}
	return 0
}
