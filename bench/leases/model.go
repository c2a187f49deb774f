package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

const semaphores = 3

// kind is what an operation does.
type kind string

const (
	newPeer       kind = "new_peer"
	heartbeat     kind = "heartbeat"
	removePeer    kind = "remove_peer"
	expire        kind = "expire" // the end of a peer's time, which lies somewhere in an interval
	ask           kind = "ask"
	wait          kind = "wait" // the rest of a call that was blocked
	release       kind = "release"
	restore       kind = "restore"
	remainder     kind = "remainder"
	acquired      kind = "is_acquired"
	removeExpired kind = "remove_expired"
	restart       kind = "restart" // a server ends; the next one starts without peers
)

// input is what a client asks for.
type input struct {
	kind      kind
	epoch     int // the server that was called
	id        uint64
	ttl       int64 // of a peer; of a call that blocks, how long it does at most
	semaphore int
	count     int64
	token     uint64 // of a call and a wait: what the lock's token will be seen to be; 0: it is never seen
	blocks    bool   // a call that is answered only by the wait that follows
	locks     [semaphores]lockState
}

// unseen is a number that the client does not get to know.
const unseen = -1 << 62

// output is what a client sees. A lost answer may be any, and the operation may never have been done.
type output struct {
	lost  bool
	token uint64
	err   string
	n     int64
}

// The texts of the interface, as its page has them.
const (
	unknownPeer    = "Unknown peer"
	alreadyPending = "Already pending. Only one pendig lock per peer is allowed."
	restoreChanges = "Restore is not allowed to change existing peers."
	notHeld        = "No such lock is held."
	tooLarge       = "Lock can never be acquired. Lock asks for count %d yet full count is only %d."
	notBelow       = "Lock hierachy violation. This may deadlock. The current lock level is %d the\n" +
		"        requested lock level was %d."
	grows = "Lock count can only shrink. The lock has count %d, asked for is %d."
)

// rules are what is fixed for one history.
type rules struct{ max, level [semaphores]int64 }

// A state is the whole service, as a sequential program sees it. It shares no code with package lease.
type state struct {
	epoch int // restarts so far
	bad   bool
	peers []peerState          // by id
	last  [semaphores]uint64   // the newest token that was given, where that is known
	late  []uint64             // tokens given to peers that had expired and went at once, for the waits that see them
	queue [semaphores][]uint64 // of peers
}

func (s state) clone() *state {
	s.peers = slices.Clone(s.peers)
	s.late = slices.Clone(s.late)
	for i, q := range s.queue {
		s.queue[i] = slices.Clone(q)
	}
	return &s
}

func (s *state) equal(o *state) bool {
	same := s.epoch == o.epoch && s.last == o.last && slices.Equal(s.peers, o.peers) && slices.Equal(s.late, o.late)
	for i, q := range s.queue {
		same = same && slices.Equal(q, o.queue[i])
	}
	return same
}

type peerState struct {
	id      uint64
	expired bool
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
		Init: func() any { return &state{} },
		Step: func(st, in, out any) (bool, any) {
			next := st.(*state).clone()
			ok := r.step(next, in.(*input), out.(*output))
			return ok && !next.bad, next
		},
		Equal: func(a, b any) bool { return a.(*state).equal(b.(*state)) },
		DescribeOperation: func(in, out any) string {
			return fmt.Sprintf("%+v -> %+v", *in.(*input), *out.(*output))
		},
	}
}

// step does one operation, and reports whether it may answer so.
func (r rules) step(s *state, in *input, out *output) bool {
	if in.epoch != s.epoch {
		return in.epoch < s.epoch && out.lost // its server has gone: it does nothing any more
	}
	want := r.do(s, in)
	return out.lost || in.kind == ask && in.blocks || want.agrees(out)
}

// anyToken is wanted where the client sees a token that the model does not know.
const anyToken = 1<<64 - 1

func granted(token uint64) output { return output{token: cmp.Or(token, anyToken)} }

func (want output) agrees(out *output) bool {
	return out.err == want.err && (out.n == want.n || out.n == unseen) &&
		(out.token == want.token || out.token != 0 && want.token == anyToken)
}

func (r rules) do(s *state, in *input) output {
	switch in.kind {
	case restart:
		*s = state{epoch: s.epoch + 1, last: s.last}
		return output{}
	case remainder:
		return output{n: r.max[in.semaphore] - s.sum(in.semaphore, true)}
	case removeExpired:
		before := len(s.peers)
		s.peers = slices.DeleteFunc(s.peers, func(p peerState) bool { return p.expired })
		return output{n: int64(before - len(s.peers))}
	case newPeer:
		s.add(in.id)
		return output{}
	case restore:
		return r.restore(s, in)
	}
	p := s.peer(in.id)
	switch {
	case in.kind == ask:
		return r.ask(s, p, in)
	case in.kind == wait && slices.Contains(s.late, in.token):
		return granted(in.token)
	case p == nil && (in.kind == expire || in.kind == removePeer):
		return output{}
	case p == nil:
		return output{err: unknownPeer}
	}
	return r.ofPeer(s, p, in)
}

// ofPeer does what only a peer that is known can do.
func (r rules) ofPeer(s *state, p *peerState, in *input) output {
	l := &p.locks[in.semaphore]
	switch in.kind {
	case heartbeat:
		p.expired = false
	case removePeer:
		r.remove(s, p)
		return output{n: 1}
	case expire:
		if p.expired = !p.has(false) && !p.has(true); !p.expired {
			r.remove(s, p)
		}
	case acquired:
		return output{n: int64(asBit(!p.has(false)))}
	case wait:
		return r.wait(l, in)
	case release:
		r.end(s, p, in.semaphore)
	}
	return output{}
}

// wait is what a request that was blocked sees.
func (r rules) wait(l *lockState, in *input) output {
	switch {
	case l.count != 0 && in.count > l.count:
		return r.tooMuch(l, in)
	case l.held:
		was := l.token
		l.token = cmp.Or(was, in.token)
		return granted(was)
	case l.count != 0:
		return output{}
	}
	return output{err: notHeld}
}

// tooMuch is why a lock that is there is not what is asked for.
func (r rules) tooMuch(l *lockState, in *input) output {
	if most := r.max[in.semaphore]; in.count > most {
		return output{err: fmt.Sprintf(tooLarge, in.count, most)}
	}
	return output{err: fmt.Sprintf(grows, l.count, in.count)}
}

func (r rules) ask(s *state, p *peerState, in *input) output {
	i := in.semaphore
	switch {
	case p != nil && p.locks[i].count != 0:
		return r.repeat(s, &p.locks[i], in)
	case in.count > r.max[i]:
		return r.tooMuch(nil, in)
	case p == nil:
		return output{err: unknownPeer}
	case p.has(false):
		return output{err: alreadyPending}
	}
	if lowest, asked := r.lowest(p.locks), r.level[i]; asked >= lowest {
		return output{err: fmt.Sprintf(notBelow, lowest, asked)}
	}
	if p.expired { // it goes once it holds or waits
		defer r.remove(s, p)
	}
	fits := s.sum(i, true)+s.sum(i, false)+in.count <= r.max[i]
	p.locks[i] = lockState{count: in.count, token: in.token}
	if fits {
		s.grant(i, &p.locks[i])
		if p.expired && in.blocks && in.token != 0 {
			s.late = append(s.late, in.token)
		}
		return granted(in.token)
	}
	for _, id := range s.queue[i] { // a token that will be older than one before it is against the order
		s.bad = s.bad || in.token != 0 && s.peer(id).locks[i].token > in.token
	}
	s.queue[i] = append(s.queue[i], p.id)
	return output{}
}

// lowest is the lowest level of the locks that are there.
func (r rules) lowest(locks [semaphores]lockState) int64 {
	level := int64(math.MaxInt64)
	for i, l := range locks {
		if l.count != 0 {
			level = min(level, r.level[i])
		}
	}
	return level
}

func (r rules) repeat(s *state, l *lockState, in *input) output {
	if in.count > l.count {
		return r.tooMuch(l, in)
	}
	l.count, l.token = in.count, cmp.Or(l.token, in.token)
	r.dispatch(s, in.semaphore)
	if !l.held {
		return output{}
	}
	return granted(l.token)
}

func (r rules) restore(s *state, in *input) output {
	if p := s.peer(in.id); p != nil {
		for i, l := range p.locks {
			given := in.locks[i]
			if held := l.count * int64(asBit(l.held)); held != given.count || held != 0 && given.token != 0 &&
				given.token != l.token {
				return output{err: restoreChanges}
			}
		}
		p.expired = false
		return output{}
	}
	p := s.add(in.id)
	for i, l := range in.locks {
		if l.count != 0 {
			p.locks[i] = lockState{l.count, l.token, true}
			s.last[i] = max(s.last[i], l.token)
		}
	}
	return output{}
}

// find returns where a peer is, or belongs.
func (s *state) find(id uint64) (at int, found bool) {
	return slices.BinarySearchFunc(s.peers, id, func(p peerState, id uint64) int { return cmp.Compare(p.id, id) })
}

// peer returns nil for one that is unknown.
func (s *state) peer(id uint64) *peerState {
	if at, found := s.find(id); found {
		return &s.peers[at]
	}
	return nil
}

func (s *state) add(id uint64) *peerState {
	at, _ := s.find(id)
	s.peers = slices.Insert(s.peers, at, peerState{id: id})
	return &s.peers[at]
}

// remove takes a peer away with its locks.
func (r rules) remove(s *state, p *peerState) {
	for i := range p.locks {
		r.end(s, p, i)
	}
	at, _ := s.find(p.id)
	s.peers = slices.Delete(s.peers, at, at+1)
}

// end takes one lock away, if it is there or is waited for, and serves those that wait for it.
func (r rules) end(s *state, p *peerState, i int) {
	s.queue[i] = slices.DeleteFunc(s.queue[i], func(of uint64) bool { return of == p.id })
	p.locks[i] = lockState{}
	r.dispatch(s, i)
}

// dispatch grants the first of the queue as long as it fits.
func (r rules) dispatch(s *state, i int) {
	for len(s.queue[i]) > 0 {
		l := &s.peer(s.queue[i][0]).locks[i]
		if s.sum(i, true)+l.count > r.max[i] {
			return
		}
		s.queue[i] = s.queue[i][1:]
		s.grant(i, l)
	}
}

// grant makes a lock one that is held. Its token must be newer than any before.
func (s *state) grant(i int, l *lockState) {
	l.held = true
	if l.token != 0 {
		s.bad = s.bad || l.token <= s.last[i]
		s.last[i] = l.token
	}
}

// sum is what is held of a semaphore, or what is waited for.
func (s *state) sum(i int, held bool) (sum int64) {
	for _, p := range s.peers {
		if p.locks[i].held == held {
			sum += p.locks[i].count
		}
	}
	return sum
}

// has reports whether a peer has a lock that is held, or one that is pending.
func (p *peerState) has(held bool) bool {
	return slices.ContainsFunc(p.locks[:], func(l lockState) bool { return l.count != 0 && l.held == held })
}

func asBit(b bool) int {
	if b {
		return 1
	}
	return 0
}
