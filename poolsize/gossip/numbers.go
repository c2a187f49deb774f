package gossip

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quotient-go/quotient/poolsize/gossip/internal/heap"
)

// never is the age of a sum that is not complete.
const never = heap.Never

// numbers are this replica's part of the sums of the fleet. They may be used from many goroutines, also
// while nothing is exchanged with others.
type numbers struct {
	began time.Time

	mu       sync.Mutex // guards what follows; no carrier's lock is taken under it
	node     *heap.Node
	complete bool // all members take part, and packets flow
	carriers []*carrier
	outbox   []parcel
}

// parcel is a packet for a neighbour.
type parcel struct {
	to     string
	packet []byte
}

func newNumbers(s *settings, id uint64) *numbers {
	return &numbers{began: time.Now(), node: heap.New(heap.Member{Name: s.Name, ID: id}, heap.Options{
		PacketSize: s.PacketSize - overhead(s.Fleet), MaxKeys: s.MaxKeys, Expire: s.Expire,
	})}
}

// overhead is what memberlist adds to a packet of numbers: the kind of message, a label, and what encryption
// takes (a version, a nonce, a tag).
func overhead(fleet string) int { return 1 + 2 + len(label(fleet)) + 1 + 12 + 16 }

func (n *numbers) now() time.Duration { return time.Since(n.began) }

// partners returns those of sorted members that exchange numbers, and reports whether all members do will.
// Replicas that start do not yet. If two have one name, only the one with the smaller number does. A member
// of another version that has no number never does.
func partners(members []member) (all []member, complete bool) {
	complete = true
	for _, m := range members {
		switch {
		case m.id == 0:
			complete = false
		case !m.settled:
		case len(all) > 0 && all[len(all)-1].name == m.name:
			complete = false
		default:
			all = append(all, m)
		}
	}
	return all, complete
}

// setPartners begins to exchange numbers with these members.
func (n *numbers) setPartners(all []member, complete bool) {
	ms := make([]heap.Member, len(all))
	for i, m := range all {
		ms[i] = heap.Member{Name: m.name, ID: m.id}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.node.SetMembers(n.now(), ms)
	n.complete = complete
}

// behind reports whether the sums lack a part, or one that is much older than it should be.
func (n *numbers) behind(interval time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.node.Stats(n.now())
	return s.Age > time.Second+time.Duration(2*s.Diameter)*interval
}

// rest notes that nothing is exchanged any more.
func (n *numbers) rest() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.complete = false
}

// receive takes in a packet. Malformed packets are counted.
func (n *numbers) receive(packet []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.node.Receive(n.now(), packet) //nolint:errcheck // the node counts them
}

// tick has each carrier say what it says, and sends what is due.
func (n *numbers) tick(send func(to string, packet []byte)) {
	n.mu.Lock()
	carriers := slices.Clone(n.carriers)
	n.mu.Unlock()
	for _, c := range carriers {
		c.run()
	}
	for _, p := range n.pack() {
		send(p.to, p.packet)
	}
}

// pack returns the packets that are due. They are valid until the next call.
func (n *numbers) pack() []parcel {
	n.mu.Lock()
	defer n.mu.Unlock()
	due := n.outbox[:0]
	n.node.Tick(n.now(), func(to heap.Member, packet []byte) {
		if len(due) == cap(due) {
			due = append(due, parcel{})
		} else {
			due = due[:len(due)+1]
		}
		last := &due[len(due)-1]
		last.to, last.packet = to.Name, append(last.packet[:0], packet...)
	})
	n.outbox = due
	return due
}

func (n *numbers) sum(key string) (heap.Terms, time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t, age := n.node.Sum(n.now(), key)
	if !n.complete || len(key) > heap.MaxKeyLength {
		age = never
	}
	return t, age
}

func (n *numbers) stats(s *Stats) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.node.Stats(n.now())
	if s.Age = h.Age; !n.complete {
		s.Age = never
	}
	s.Keys, s.Diameter, s.Refused = h.Keys, h.Diameter, h.Refused
}

// keys returns the gauges with a prefix, without it.
func (n *numbers) keys(prefix string) (keys []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for text := range n.node.Keys() {
		if key, ok := strings.CutPrefix(text, prefix); ok {
			keys = append(keys, key)
		}
	}
	return keys
}
