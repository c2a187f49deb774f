package main

import (
	"math/rand/v2"
	"strings"
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

// Requests are drawn from mixes of letters, each as often as it stands there.
const (
	whilePending = "aaaaaaaaassrrrhhqo**"
	freely       = "ooooooooooooooooorrrrrrrrrssghhhhb******"
	seldom       = "mqdewnto"
)

func (c *client) next() *input {
	switch {
	case c.peer != 0 && c.dying > 0:
		if c.dying--; c.dying == 0 {
			return &input{kind: removePeer, id: c.peer} // its answer shows whether the peer has expired
		}
		return c.lockAnother()
	case c.gone && c.rng.IntN(10) < 6:
		return c.bringBack(c.held)
	case c.gone || c.peer == 0:
		c.forget()
		return &input{kind: newPeer, ttl: long}
	case c.pending >= 0:
		return c.draw(whilePending, c.pending, c.want)
	}
	at := c.rng.IntN(semaphores)
	return c.draw(freely, at, c.held[at].count)
}

// draw returns a request from a mix. So many are held of a semaphore, or pending.
func (c *client) draw(mix string, semaphore int, count int64) *input {
	in := &input{id: c.peer, semaphore: semaphore, count: count, kind: ask, blocks: true}
	letter := mix[c.rng.IntN(len(mix))]
	if count == 0 && strings.Contains("rsg", string(letter)) {
		letter = 'h'
	}
	switch letter {
	case 'a': // again
		in.blocks = c.rng.IntN(4) > 0
	case 's': // shrink, or repeat
		in.count = 1 + c.rng.Int64N(count)
	case 'g': // grow, which is refused
		in.count++
	case 'r', 'n': // release what it has, or has not
		in.kind = release
	case 'h':
		in.kind, in.ttl = heartbeat, long
	case 't': // the last heartbeat
		c.dying = 2 + c.rng.IntN(3)
		in.kind, in.ttl = heartbeat, brief
	case 'b':
		return c.bringBack(c.held)
	case 'w': // with a lock that it does not hold
		locks := c.held
		locks[semaphore].count++
		return c.bringBack(locks)
	case 'o':
		return c.lockAnother()
	case '*':
		return c.draw(seldom, c.rng.IntN(semaphores), 0)
	default:
		in.kind = map[byte]kind{'m': remainder, 'q': acquired, 'd': removePeer, 'e': removeExpired}[letter]
	}
	in.blocks = in.blocks && in.kind == ask
	return in
}

func (c *client) bringBack(locks [semaphores]lockState) *input {
	return &input{kind: restore, id: c.peer, ttl: long, locks: locks}
}

func (c *client) forget() {
	c.peer, c.gone, c.dying, c.pending, c.held = 0, false, 0, -1, [semaphores]lockState{}
}

// lockAnother asks for a lock, more often below the levels that are held than not.
func (c *client) lockAnother() *input {
	at, lowest := c.rng.IntN(semaphores), c.rules.lowest(c.held)
	for tries := 0; tries < 4 && c.rules.level[at] >= lowest; tries++ {
		at = c.rng.IntN(semaphores)
	}
	count := 1 + c.rng.Int64N(c.rules.max[at])
	if c.rng.IntN(30) == 0 {
		count = c.rules.max[at] + 1
	}
	return &input{kind: ask, id: c.peer, semaphore: at, count: count, blocks: c.rng.IntN(4) > 0}
}

// answered learns from the answer to a request of this client. If an answer was lost, the request may have been
// carried out.
func (c *client) answered(in *input, out *output) {
	switch {
	case in.id != c.peer && in.kind != newPeer || out.lost && in.kind != removePeer && in.kind != release:
		return
	case out.err == unknownPeer:
		c.gone, c.pending = true, -1
		return
	}
	l := &c.held[in.semaphore]
	if (in.kind == ask || in.kind == release && !out.lost) && c.pending == in.semaphore {
		c.pending = -1
	}
	switch {
	case in.kind == removePeer:
		c.forget()
	case in.kind == release:
		*l = lockState{}
	case out.err != "":
	case in.kind == newPeer:
		c.forget()
		c.peer = in.id
	case in.kind == restore:
		c.gone = false
	case in.kind == ask && out.token == 0:
		*l, c.pending, c.want = lockState{}, in.semaphore, in.count
	case in.kind == ask:
		*l = lockState{in.count, out.token, true}
	}
}
