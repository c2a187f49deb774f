package lease

import (
	"container/heap"
	"maps"
	"slices"
	"time"
)

// peer is one client, or one task of it. All its locks have its expiry.
type peer struct {
	id      uint64
	expires time.Time
	locks   []*lock  // held and pending; at most one is pending
	refused *lock    // was pending until a configuration made it impossible; until the peer asks again
	broken  []string // semaphores whose lock an operator broke, until the peer asks for them again
	index   int      // in its heap
	inBusy  bool
}

// lock is one lock of a peer: held, or pending in its semaphore's queue.
type lock struct {
	peer       *peer
	semaphore  *semaphore
	count      int64
	token      uint64    // 0: pending
	since      time.Time // held or pending since
	prev, next *lock
}

// lock returns the peer's lock of a semaphore, or nil; also of no peer.
func (p *peer) lock(name string) *lock {
	if p == nil {
		return nil
	}
	return p.find(func(l *lock) bool { return l.semaphore.name == name })
}

func (p *peer) pending() *lock {
	return p.find(func(l *lock) bool { return l.token == 0 })
}

func (p *peer) find(is func(*lock) bool) *lock {
	if i := slices.IndexFunc(p.locks, is); i >= 0 {
		return p.locks[i]
	}
	return nil
}

func until(now time.Time, expiresIn time.Duration) time.Time {
	return now.Add(min(max(expiresIn, 0), maxDuration))
}

// AddPeer adds a peer that holds nothing and expires so long after now: at least 0, and at most 100 years. It
// fails with ErrTooManyPeers, and with ErrRestoreChanges where the id is taken: use a random one.
func (t *Table) AddPeer(id uint64, expiresIn time.Duration, now time.Time) error {
	t.Advance(now)
	if t.peers[id] != nil {
		return ErrRestoreChanges
	}
	if len(t.peers) >= t.config.MaxPeers {
		return ErrTooManyPeers
	}
	p := &peer{id: id, expires: until(now, expiresIn)}
	t.peers[id] = p
	heap.Push(&t.idle, p)
	return nil
}

// Heartbeat makes the peer expire so long after now: at least 0, and at most 100 years. It returns the semaphores whose
// lock of this peer an operator broke, until the peer asks for them again. It fails with ErrUnknownPeer.
func (t *Table) Heartbeat(id uint64, expiresIn time.Duration, now time.Time) (broken []string, err error) {
	t.Advance(now)
	p := t.peers[id]
	if p == nil {
		return nil, ErrUnknownPeer
	}
	p.expires = until(now, expiresIn)
	t.place(p)
	return slices.Clone(p.broken), nil
}

// RemovePeer removes a peer with all its locks, serves those that wait for them, and reports whether there
// was such a peer.
func (t *Table) RemovePeer(id uint64, now time.Time) bool {
	t.Advance(now)
	p := t.peers[id]
	if p == nil {
		return false
	}
	t.remove(p, now, func(s *semaphore) { s.totals.Released++ })
	return true
}

// RemoveExpired removes the peers that have expired and are kept because they hold nothing. It returns how many.
func (t *Table) RemoveExpired(now time.Time) int {
	t.Advance(now)
	n := 0
	for p := t.idle.first(); p != nil && !p.expires.After(now); p = t.idle.first() {
		t.remove(p, now, nil)
		n++
	}
	return n
}

// Peers returns the ids of all peers, in no order. It takes O(n) of them.
func (t *Table) Peers(now time.Time) []uint64 {
	t.Advance(now)
	return slices.AppendSeq(make([]uint64, 0, len(t.peers)), maps.Keys(t.peers))
}

// remove takes a peer away, gives its locks back and serves those that wait for them. Each lock that it held
// is counted.
func (t *Table) remove(p *peer, now time.Time, count func(*semaphore)) {
	heap.Remove(t.heapOf(p), p.index)
	delete(t.peers, p.id)
	for _, l := range p.locks {
		l.semaphore.unlink(l, now)
		if l.token != 0 {
			count(l.semaphore)
		}
	}
	for _, l := range p.locks {
		t.dispatch(l.semaphore, now)
		t.forget(l.semaphore)
	}
	t.notify(p)
}
