package main

import "slices"

// advance lets the time go on: peers expire, each at its own instant, and the grace time ends.
func (r rules) advance(s *state, to int64) {
	for {
		at, who := to, -1
		for i := range s.n {
			if p := &s.peers[i]; p.busy() && p.expires <= at {
				at, who = p.expires, i
			}
		}
		if s.graceEnds > s.now && s.graceEnds <= to && (who < 0 || s.graceEnds < at) {
			s.now = s.graceEnds
			for i := range s.max {
				r.dispatch(s, i)
			}
			continue
		}
		if who < 0 {
			break
		}
		s.now = max(s.now, at)
		r.remove(s, s.peers[who].id)
	}
	s.now = to
	for i := s.n - 1; i >= 0; i-- {
		if p := &s.peers[i]; !p.busy() && p.expires+r.keepIdle <= to {
			s.cut(i)
		}
	}
}

func (r rules) removeExpired(s *state) (n int64) {
	for i := s.n - 1; i >= 0; i-- {
		if p := &s.peers[i]; !p.busy() && p.expires <= s.now {
			s.cut(i)
			n++
		}
	}
	return n
}

// peer returns nil for one that is unknown.
func (s *state) peer(id uint64) *peerState {
	for i := range s.n {
		if s.peers[i].id == id {
			return &s.peers[i]
		}
	}
	return nil
}

// add adds a peer at its place. It returns the text of an error.
func (s *state) add(id uint64, expires int64) string {
	if s.n == mostPeers {
		return tooManyPeers
	}
	at := 0
	for at < s.n && s.peers[at].id < id {
		at++
	}
	copy(s.peers[at+1:s.n+1], s.peers[at:s.n])
	s.peers[at] = peerState{id: id, expires: expires}
	s.n++
	return ""
}

func (s *state) cut(at int) {
	copy(s.peers[at:s.n], s.peers[at+1:s.n])
	s.n--
	s.peers[s.n] = peerState{}
}

// remove takes a peer away with its locks, and serves those that wait for them.
func (r rules) remove(s *state, id uint64) {
	at := slices.IndexFunc(s.peers[:s.n], func(p peerState) bool { return p.id == id })
	locks := s.peers[at].locks
	for i, l := range locks {
		if l.count != 0 && !l.held {
			s.unqueue(i, id)
		}
	}
	s.cut(at)
	for i, l := range locks {
		if l.count != 0 {
			r.dispatch(s, i)
		}
	}
}

// end takes one lock away, and serves those that wait for it.
func (r rules) end(s *state, p *peerState, i int) {
	if !p.locks[i].held {
		s.unqueue(i, p.id)
	}
	p.locks[i] = lockState{}
	r.dispatch(s, i)
}

func (s *state) unqueue(i int, id uint64) {
	q := &s.queue[i]
	at := slices.Index(q.ids[:q.n], id)
	copy(q.ids[at:q.n], q.ids[at+1:q.n])
	q.n--
	q.ids[q.n] = 0
}

// dispatch grants the first of the queue as long as it fits.
func (r rules) dispatch(s *state, i int) {
	for q := &s.queue[i]; q.n > 0 && s.graceEnds <= s.now; {
		l := &s.peer(q.ids[0]).locks[i]
		if s.acquired(i)+l.count > s.max[i] {
			return
		}
		s.unqueue(i, q.ids[0])
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

func (s *state) acquired(i int) (sum int64) {
	for _, p := range s.peers[:s.n] {
		if p.locks[i].held {
			sum += p.locks[i].count
		}
	}
	return sum
}

func (s *state) waiting(i int) (sum int64) {
	for _, p := range s.peers[:s.n] {
		if !p.locks[i].held {
			sum += p.locks[i].count
		}
	}
	return sum
}

// busy reports whether p has a lock, held or pending.
func (p *peerState) busy() bool {
	return slices.ContainsFunc(p.locks[:], func(l lockState) bool { return l.count != 0 })
}

func (p *peerState) waits() bool {
	return slices.ContainsFunc(p.locks[:], func(l lockState) bool { return l.count != 0 && !l.held })
}

func (p *peerState) brokenMask() (mask int64) {
	for i, b := range p.broken {
		mask |= int64(asBit(b)) << i
	}
	return mask
}
