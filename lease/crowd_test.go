package lease

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// crowdTest is many peers that take locks of one semaphore, keep them for a while and give them back.
type crowdTest struct {
	*testing.T
	server *Server
	most   int64

	mu     sync.Mutex
	inUse  int64
	grants int
	last   map[uint64]bool // tokens
}

// TestNeverMoreThanTheMaximum counts in the peers, not in the server.
func TestNeverMoreThanTheMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, peers = 7, 40
		s, err := NewServer(Config{Semaphores: map[string]Semaphore{"A": {Max: most}}}, ServerOptions{})
		must(t, err)
		defer s.Close()
		c := &crowdTest{T: t, server: s, most: most, last: map[uint64]bool{}}
		var all sync.WaitGroup
		for i := range uint64(peers) {
			all.Go(func() { c.use(rand.New(rand.NewPCG(i, 1))) })
		}
		all.Wait()
		if c.grants < peers {
			t.Errorf("%d locks were held, want one for each of %d peers at least", c.grants, peers)
		}
		if st := s.Stats().Semaphores[0]; st.Acquired != 0 || st.Pending != 0 || len(s.blocked) != 0 {
			t.Errorf("in the end %d are held, %d pending, %d blocked", st.Acquired, st.Pending,
				len(s.blocked))
		}
	})
}

func (c *crowdTest) use(r *rand.Rand) {
	id, _, err := c.server.newPeer(time.Minute)
	if err != nil {
		c.Error(err)
		return
	}
	count := int64(0)
	for range 50 {
		if count == 0 {
			count = 1 + r.Int64N(c.most)
		}
		a := ask{peer: id, semaphore: "A", count: count, expiresIn: time.Minute}
		a.blockFor = time.Duration(r.IntN(5000)) * time.Millisecond
		ctx, cancel := context.WithTimeout(c.Context(), time.Duration(r.IntN(9000))*time.Millisecond)
		token, err := c.server.acquire(ctx, a)
		cancel()
		if err != nil {
			c.Error(err)
			return
		}
		if token != 0 {
			c.hold(token, count)
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
			c.hold(0, -count)
		} else if r.IntN(2) == 0 {
			continue // the place is kept, and asked for again
		}
		giveBack(c.T, c.server, id, "A")
		count = 0
	}
	giveBack(c.T, c.server, id, "A")
}

// hold counts what is in use, and its token.
func (c *crowdTest) hold(token uint64, count int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inUse += count; c.inUse > c.most {
		c.Errorf("%d are in use, want at most %d", c.inUse, c.most)
	}
	if token != 0 {
		if c.grants++; c.last[token] {
			c.Errorf("token %d was given twice", token)
		}
		c.last[token] = true
	}
}
