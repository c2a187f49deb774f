package gossip

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quotient-go/quotient/internal/carry"
	"github.com/quotient-go/quotient/poolsize/gossip/internal/heap"
)

// longestCarrier is the most bytes of a carrier's name. The keys share the rest of heap.MaxKeyLength with it.
const longestCarrier = 64

// Carry is for Limiter.Follow, which calls it for a limiter with Demand; a program has no need to. It calls turn once
// in each Config.Interval while a Watch runs and its start is over, until stop. The name has at most 64 bytes without
// a zero byte. The name and a key have at most 254 bytes together: terms of a longer key are not summed. turn must not
// call stop.
func (s *Source) Carry(name string, turn func(carry.Sums)) (stop func(), err error) {
	if len(name) > longestCarrier || strings.Contains(name, "\x00") {
		return nil, fmt.Errorf("gossip: Carry: name: %.40q has %d bytes, not at most %d, or a zero byte",
			name, len(name), longestCarrier)
	}
	c := &carrier{n: s.numbers, count: &s.traffic, name: name, prefix: name + "\x00", turn: turn,
		said: map[string]struct{}{}}
	n := s.numbers
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.ContainsFunc(n.carriers, func(o *carrier) bool { return o.name == name }) {
		return nil, fmt.Errorf("gossip: Carry: name: %q is in use", name)
	}
	n.carriers = append(n.carriers, c)
	return c.stop, nil
}

// carrier carries what one limiter says. It is the Sums of its turns.
type carrier struct {
	n      *numbers
	count  *traffic
	name   string
	prefix string // of its keys, among those of other limiters

	mu      sync.Mutex // held during a turn; guards what follows
	turn    func(carry.Sums)
	stopped bool
	said    map[string]struct{} // keys that stand
}

func (c *carrier) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped {
		c.turn(c)
	}
}

// stop ends the turns, and takes all terms back. It may be called again.
func (c *carrier) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	for key := range c.said {
		c.n.node.Say(c.prefix+key, heap.Terms{})
	}
	clear(c.said)
	c.n.carriers = slices.DeleteFunc(c.n.carriers, func(o *carrier) bool { return o == c })
}

// Say is that of carry.Sums.
func (c *carrier) Say(key string, own carry.Terms) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if stands := c.n.node.Say(c.prefix+key, heap.Terms(own)); stands && own != (carry.Terms{}) {
		c.said[key] = struct{}{}
	} else {
		delete(c.said, key)
	}
}

// Keys is that of carry.Sums.
func (c *carrier) Keys() iter.Seq[string] { return slices.Values(c.n.keys(c.prefix)) }

// Sum is that of carry.Sums.
func (c *carrier) Sum(key string) (carry.Terms, time.Duration) {
	t, age := c.n.sum(c.prefix + key)
	return carry.Terms(t), age
}

// Bytes is that of carry.Sums.
func (c *carrier) Bytes() (sent, received uint64) {
	return c.count.sent.Load(), c.count.received.Load()
}

var _ carry.Carrier = (*Source)(nil)

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
