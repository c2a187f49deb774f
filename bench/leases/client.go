package main

import (
	"math/rand/v2"
	"time"
)

// Times of peers, in nanoseconds. One that is left to expire has brief; all others outlive the history.
const (
	brief = int64(30 * time.Millisecond)
	long  = int64(time.Hour)
)

// A client decides what to ask for next, from what it was answered so far. It sends one request at a time.
type client struct {
	rng   *rand.Rand
	rules rules

	peer    uint64 // 0: none
	gone    bool   // the server has answered that it does not know the peer
	dying   int    // so many requests more of a peer that expires meanwhile; 0: of one that stays
	held    [semaphores]lockState
	pending int // semaphore whose lock is pending, or -1
	want    int64
}

// next returns a request.
func (c *client) next() *input {
	switch {
	case c.peer != 0 && c.dying > 0:
		if c.dying--; c.dying == 0 {
			return &input{kind: removePeer, id: c.peer} // its answer shows whether the peer has expired
		}
		return c.lockAnother()
	case c.peer == 0:
		return c.create()
	case c.gone && c.rng.IntN(10) < 6:
		return c.bringBack(c.held)
	case c.gone:
		c.forget()
		return c.create()
	case c.pending >= 0:
		return c.whilePending()
	}
	return c.freely()
}

func (c *client) create() *input { return &input{kind: newPeer, ttl: long} }

func (c *client) bringBack(locks [semaphores]lockState) *input {
	return &input{kind: restore, id: c.peer, ttl: long, locks: locks}
}

func (c *client) forget() {
	c.peer, c.gone, c.dying, c.pending, c.held = 0, false, 0, -1, [semaphores]lockState{}
}

func (c *client) whilePending() *input {
	in := &input{id: c.peer, semaphore: c.pending, count: c.want}
	switch n := c.rng.IntN(20); {
	case n < 9:
		in.kind, in.blocks = ask, c.rng.IntN(4) > 0
	case n < 11:
		in.kind, in.count, in.blocks = ask, 1+c.rng.Int64N(c.want), true
	case n < 14:
		in.kind = release
	case n < 16:
		in.kind, in.ttl = heartbeat, long
	case n < 17:
		in.kind = acquired
	case n < 18:
		return c.lockAnother() // it is refused
	default:
		return c.anything()
	}
	return in
}

func (c *client) freely() *input {
	in := &input{id: c.peer, semaphore: c.rng.IntN(semaphores)}
	n := c.rng.IntN(40)
	switch {
	case n < 17:
		return c.lockAnother()
	case n < 26 && c.held[in.semaphore].count > 0:
		in.kind = release
	case n < 29 && c.held[in.semaphore].count > 0: // shrink, repeat, or grow, which is refused
		in.kind, in.count, in.blocks = ask, 1+c.rng.Int64N(c.held[in.semaphore].count+1), true
	case n < 33:
		in.kind, in.ttl = heartbeat, long
	case n < 34:
		return c.bringBack(c.held)
	default:
		return c.anything()
	}
	return in
}

// anything is one of what is seldom asked for.
func (c *client) anything() *input {
	in := &input{id: c.peer, semaphore: c.rng.IntN(semaphores)}
	switch c.rng.IntN(8) {
	case 0:
		in.kind = remainder
	case 1:
		in.kind = acquired
	case 2:
		in.kind = removePeer
	case 3:
		in.kind = removeExpired
	case 4: // a lock that it does not hold
		locks := c.held
		locks[in.semaphore].count++
		return c.bringBack(locks)
	case 5:
		in.kind = release
	case 6:
		c.dying = 2 + c.rng.IntN(3)
		in.kind, in.ttl = heartbeat, brief
	default:
		return c.lockAnother()
	}
	return in
}

// lockAnother asks for a lock, more often below the levels that are held than not.
func (c *client) lockAnother() *input {
	lowest := int64(1 << 40)
	for i, l := range c.held {
		if l.count > 0 {
			lowest = min(lowest, c.rules.level[i])
		}
	}
	at := c.rng.IntN(semaphores)
	for range 4 {
		if c.rules.level[at] < lowest {
			break
		}
		at = c.rng.IntN(semaphores)
	}
	count := 1 + c.rng.Int64N(c.rules.max[at])
	if c.rng.IntN(30) == 0 {
		count = c.rules.max[at] + 1
	}
	return &input{kind: ask, id: c.peer, semaphore: at, count: count, blocks: c.rng.IntN(4) > 0}
}

// answered learns from the answer to a request of this client.
func (c *client) answered(in *input, out *output) {
	switch {
	case out.lost:
		c.lost(in)
		return
	case in.id != c.peer && in.kind != newPeer:
		return
	case out.err == unknownPeer:
		c.gone, c.pending = true, -1
		return
	}
	switch in.kind {
	case newPeer:
		if out.err == "" {
			c.forget()
			c.peer = in.id
		}
	case ask:
		c.asked(in, out)
	case release:
		c.held[in.semaphore] = lockState{}
		if c.pending == in.semaphore {
			c.pending = -1
		}
	case removePeer:
		c.forget()
	case restore:
		if out.err == "" {
			c.gone = false
		}
	}
}

func (c *client) asked(in *input, out *output) {
	l := &c.held[in.semaphore]
	switch {
	case out.err != "":
		if c.pending == in.semaphore {
			c.pending = -1
		}
	case out.token == 0:
		*l, c.pending, c.want = lockState{}, in.semaphore, in.count
	default:
		*l = lockState{in.count, out.token, true}
		if c.pending == in.semaphore {
			c.pending = -1
		}
	}
}

// lost is an answer that never came. The request may have been carried out.
func (c *client) lost(in *input) {
	switch in.kind {
	case removePeer:
		c.forget()
	case release:
		c.held[in.semaphore] = lockState{}
	}
}
