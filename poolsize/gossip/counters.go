package gossip

import (
	"slices"
	"time"

	"github.com/quotient-go/quotient/poolsize/gossip/internal/heap"
)

// Counters are totals over the fleet: each replica adds to its own part, and each learns the sum. They may
// be used from many goroutines, also before Watch and after it. The next Watch then sends what was added.
//
// The part of a replica that leaves or dies remains, as far as any live replica has received it. A counter
// that no replica adds to for Config.Expire is forgotten. After a partition the sum includes both sides.
type Counters struct{ n *numbers }

// Counters returns the fleet's counters. All calls return the same ones.
func (s *Source) Counters() *Counters { return &Counters{s.numbers} }

// Add adds n, at least 1, to the counter of a key of at most 255 bytes. It reports whether it did. It adds
// nothing if an argument is out of range, or if there would be more keys than Config.MaxKeys.
func (c *Counters) Add(key string, n int64) bool {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	return c.n.node.Add(c.n.now(), key, n)
}

// Sum returns the sum over all replicas, this one included, and the age of the oldest part of it. The age
// is math.MaxInt64 while the sum is incomplete: while no Watch runs, and for an instant after each change
// of the fleet. The sum then holds the known parts.
func (c *Counters) Sum(key string) (sum int64, age time.Duration) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	sum, age = c.n.node.Total(c.n.now(), key)
	if !c.n.complete || len(key) > heap.MaxKeyLength {
		age = never
	}
	return sum, age
}

// Keys returns the keys of the counters that this replica knows, in order.
func (c *Counters) Keys() []string {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	return slices.Sorted(c.n.node.Counters())
}
