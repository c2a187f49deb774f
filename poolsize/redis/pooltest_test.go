package redis

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/pooltest"
	"github.com/redis/go-redis/v9"
)

// crowd is the rest of a fleet: processors that one goroutine keeps alive for as long as the test.
type crowd struct {
	mu  sync.Mutex
	all []*processor
	in  int // how many of them are in the fleet
}

// newCrowd returns n processors that are not in the fleet.
func newCrowd(t *testing.T, client redis.UniversalClient, n int) *crowd {
	c := &crowd{}
	for i := range n {
		s, err := source(client, fmt.Sprint("other", i)).complete()
		must(t, err)
		c.all = append(c.all, &processor{store: s.store(s.ID), member: newMember(s.Expiry, s.Weight)})
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.Tick(period); ; {
			select {
			case <-end:
				return
			case <-tick:
				c.sync(t)
			}
		}
	}()
	t.Cleanup(func() { close(end); <-ended })
	return c
}

func (c *crowd) sync(t *testing.T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.all[:c.in] {
		if a, err := p.sync(t.Context(), p.report, ""); err == nil {
			p.learn(a, time.Now())
		}
	}
}

// set lets n processors in, and the others out.
func (c *crowd) set(t testing.TB, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; c.in > n; c.in-- {
		c.all[c.in-1].leave(t.Context(), "")
	}
	c.in = n
}

// The source does what every source must do, also where it counts as two.
func TestPooltest(t *testing.T)          { conforms(t, 1) }
func TestPooltestOfAWeight(t *testing.T) { conforms(t, 2) }

func conforms(t *testing.T, weight int) {
	srv := start(t)
	client := clientOf(t, srv, nil)
	others := newCrowd(t, client, 6)
	pooltest.Run(t, pooltest.World{
		Source: func(testing.TB) quotient.Source {
			s := source(client, "this")
			s.Weight = weight
			return s
		},
		Weight: weight,
		Set:    func(t testing.TB, n int) { others.set(t, n-weight) },
		Break:  func(t testing.TB) { must(t, srv.Stop()) },
		Garbage: func(t testing.TB) {
			must(t, client.Set(t.Context(), "{quotient:f}:sizes", "garbage", 0).Err())
		},
		Heal: func(t testing.TB) {
			must(t, srv.Restart(false))
			wait(t, "the garbage is gone", func() bool {
				return client.Del(t.Context(), "{quotient:f}:sizes").Err() == nil
			})
		},
	})
}
