package gossip

import (
	"slices"
	"time"

	"github.com/quotient-go/quotient/poolsize/gossip/internal/heap"
)

// Counters are totals over the fleet: each replica adds to its own part, and each learns the sum. They
// may be used from many goroutines, also before Watch and after it, when what is added waits for the
// next one.
//
// The sums of a replica stay when it leaves or dies, as far as any living one has received them. The sum of
// a counter that no replica adds to for Config.Expire is forgotten. After a partition both sides add up.
type Counters struct{ n *numbers }

// Counters returns the fleet's counters. All calls return the same ones.
func (s *Source) Counters() *Counters { return &Counters{s.numbers} }

// Add adds n, 1 or more, to a counter, whose key has at most 255 bytes. It reports whether it was added:
// nothing is if one of them is out of range, or if there are more keys than Config.MaxKeys.
func (c *Counters) Add(key string, n int64) bool {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	return c.n.node.Add(c.n.now(), key, n)
}

// Sum returns what all replicas have added, this one included, and the age of the oldest part of it. The
// age is math.MaxInt64 while the sum is not complete. It is so while no Watch runs, and for an instant
// after each change of the fleet. Then the sum holds what is known.
func (c *Counters) Sum(key string) (sum int64, age time.Duration) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	sum, age = c.n.node.Total(c.n.now(), key)
	if !c.n.complete || len(key) > heap.MaxKeyLength {
		age = never
	}
	return sum, age
}

// Keys returns the counters that are known here, in order.
func (c *Counters) Keys() []string {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	return slices.Sorted(c.n.node.Counters())
}
