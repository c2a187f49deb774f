package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// With gossip, replicas pass on the reports of their controllers (policy.Reporter). Live replicas form a
// binary heap: each sends its neighbours, once in an interval, the sum of all words on its own side of that
// edge. Sums count as long as both ends know the same list of replicas.
const (
	gossipEvery             = 200 * time.Millisecond // of each replica, at a phase of its own
	packetLoss              = .05
	packetLeast, packetMost = 5 * time.Millisecond, 50 * time.Millisecond
	freshNews               = 5 * time.Second // the age up to which reports are given to a controller
	// A change of the replicas is known to each after a time between these.
	learnLeast, learnMost = 200 * time.Millisecond, time.Second
)

type words struct {
	count                        int
	wanting, rate, used, refused float64
	oldest                       time.Duration
	version                      int
}

func (w words) plus(o words) words {
	return words{w.count + o.count, w.wanting + o.wanting, w.rate + o.rate, w.used + o.used, w.refused + o.refused,
		min(w.oldest, o.oldest), w.version}
}

type node struct {
	list    []int32 // of replicas that it knows
	version int
	edges   [3]edge // parent, children
	out     [3]packet
	learns  bool // an event is on its way
}

// edge is what a neighbour last sent.
type edge struct {
	peer int32 // -1: none
	got  words // count 0: nothing yet
}

// packet is on its way: at most one for an edge, since it takes less than an interval.
type packet struct {
	to int32
	words
}

type whisper struct {
	rng     *rand.Rand
	nodes   []node
	version int     // of the list
	live    []int32 // the list; replaced, never changed
	parts   float64 // that the hint in force was computed with
}

func newWhisper(replicas int, seed uint64) *whisper {
	return &whisper{rng: rand.New(rand.NewPCG(seed, 0xbb67ae8584caa73b)), nodes: make([]node, replicas)}
}

func (w *whisper) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rng.Int64N(int64(most-least)+1))
}

func (r *Run) relist() {
	w := r.whisper
	if w == nil {
		return
	}
	w.version++
	w.live = nil
	for i := range r.replicas {
		if n := &w.nodes[i]; r.replicas[i].live && !n.learns {
			n.learns = true
			r.push(r.now+w.between(learnLeast, learnMost), learns, i)
		}
	}
}

// learn gives a replica the list of this instant.
func (r *Run) learn(i int) {
	w := r.whisper
	n := &w.nodes[i]
	n.learns = false
	if !r.replicas[i].live {
		return
	}
	if w.live == nil {
		for k := range r.replicas {
			if r.replicas[k].live {
				w.live = append(w.live, int32(k))
			}
		}
	}
	if n.list == nil {
		r.push(r.now+w.between(0, gossipEvery), gossips, i)
	}
	n.list, n.version = w.live, w.version
	at, _ := slices.BinarySearch(n.list, int32(i))
	for e, k := range [3]int{(at - 1) / 2, 2*at + 1, 2*at + 2} {
		n.edges[e] = edge{peer: -1}
		if k < len(n.list) && (e > 0 || at > 0) {
			n.edges[e].peer = n.list[k]
		}
	}
}

func (r *Run) word(i int) words {
	w := words{count: 1, oldest: r.now, version: r.whisper.nodes[i].version}
	if ctrl, ok := r.replicas[i].ctrl.(policy.Reporter); ok {
		x := ctrl.Report(r.now + r.clock)
		if w.refused = x.Refused; x.Wanting {
			w.wanting, w.rate = 1, x.Rate
		} else {
			w.used = x.Rate
		}
	}
	return w
}

// gossip is one interval of a replica: it sends, and hands its controller the reports.
func (r *Run) gossip(i int) {
	w := r.whisper
	n, p := &w.nodes[i], &r.replicas[i]
	if !p.live {
		return
	}
	own := r.word(i)
	for e := range n.edges {
		if to := n.edges[e].peer; to >= 0 {
			lost, takes := w.rng.Float64() < packetLoss, w.between(packetLeast, packetMost)
			if !lost {
				n.out[e] = packet{to, n.sum(own, e)}
				r.push(r.now+takes, whispers, 3*i+e)
			}
		}
	}
	r.push(r.now+gossipEvery, gossips, i)
	r.inform(p, r.fleet(n, p, n.sum(own, -1)))
}

// sum adds what all edges but one last sent.
func (n *node) sum(own words, but int) words {
	for e := range n.edges {
		if e != but && n.edges[e].got.count > 0 {
			own = own.plus(n.edges[e].got)
		}
	}
	return own
}

// receive takes in a packet, which was sent at an edge.
func (r *Run) receive(k int32) {
	w, from := r.whisper, k/3
	x := &w.nodes[from].out[k%3]
	n := &w.nodes[x.to]
	for e := range n.edges {
		if n.edges[e].peer == from && n.version == x.version {
			n.edges[e].got = x.words
		}
	}
}

// fleet is the reports for a replica; nil while it is not complete and fresh.
func (r *Run) fleet(n *node, p *replica, all words) *policy.Fleet {
	if all.count != len(n.list) || r.now-all.oldest > freshNews {
		return nil
	}
	return &policy.Fleet{
		Weight: float64(all.count), Limit: p.bounds.Share * r.whisper.parts,
		Wanting: all.wanting, Rate: all.rate, Used: all.used, Refused: all.refused,
	}
}

// inform hands a controller that speaks reports.
func (r *Run) inform(p *replica, f *policy.Fleet) {
	was := p.bounds.Fleet
	same := f == was || f != nil && was != nil && *f == *was
	if _, speaks := p.ctrl.(policy.Reporter); !speaks || same {
		return
	}
	p.bounds.Fleet = f
	r.obey(p, p.ctrl.Next(r.nothing(), p.bounds))
}

// partsAt is how many parts the hint in force at t was computed with: the replicas that ran when it last
// changed.
func (s *Scenario) partsAt(t time.Duration) float64 {
	when, n := time.Duration(0), 0
	for _, c := range s.Hints {
		if c.At <= t {
			when = c.At
		}
	}
	for i := range s.Replicas {
		if s.Live(i, when) {
			n++
		}
	}
	return math.Max(1, float64(n))
}
