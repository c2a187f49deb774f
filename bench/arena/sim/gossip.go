package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// With gossip, replicas pass on the reports of their controllers (policy.Reporter). Live replicas form a
// binary heap: each sends its neighbours, once in an interval, the sum of all words on its own side of that
// edge. Sums count as long as both ends know the same list of replicas.
const (
	gossipEvery = 200 * time.Millisecond // of each replica, at a phase of its own
	packetLoss  = .05
	freshNews   = 5 * time.Second // the age up to which reports are given to a controller
)

var (
	packetTime = Span{5 * time.Millisecond, 50 * time.Millisecond}
	learnTime  = Span{200 * time.Millisecond, time.Second} // until a change of the replicas is known to each
)

// words are a sum of reports, whose weight is how many they are.
type words struct {
	policy.Fleet
	oldest  time.Duration
	version int // of the list
}

type node struct {
	list    []int // of replicas that it knows
	version int
	edges   [3]edge // parent, children
	out     [3]packet
	learns  bool // an event is on its way
}

// edge is what a neighbour last sent.
type edge struct {
	peer int   // -1: none
	got  words // weight 0: nothing yet
}

// packet is on its way: at most one for an edge, since it takes less than an interval.
type packet struct {
	to int
	words
}

type whisper struct {
	rng     *rand.Rand
	nodes   []node
	version int     // of the list
	live    []int   // the list; replaced, never changed
	hint    float64 // that is in force
	parts   float64 // that it was computed with: the replicas that ran then
}

// relist makes the list of this instant, of which all replicas learn.
func (r *Run) relist() {
	w := r.whisper
	if w == nil {
		return
	}
	w.version++
	w.live = nil
	for i := range r.replicas {
		if !r.replicas[i].live {
			continue
		}
		w.live = append(w.live, i)
		if n := &w.nodes[i]; !n.learns {
			n.learns = true
			r.push(r.now+within(w.rng, learnTime), (*Run).learn, i)
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
	if n.list == nil {
		r.push(r.now+within(w.rng, Span{0, gossipEvery}), (*Run).gossip, i)
	}
	n.list, n.version = w.live, w.version
	at, _ := slices.BinarySearch(n.list, i)
	for e, k := range [3]int{(at+1)/2 - 1, 2*at + 1, 2*at + 2} {
		n.edges[e] = edge{peer: -1}
		if k >= 0 && k < len(n.list) {
			n.edges[e].peer = n.list[k]
		}
	}
}

// gossip is one interval of a replica: it sends, and hands a controller that speaks the reports.
func (r *Run) gossip(i int) {
	w := r.whisper
	n, p := &w.nodes[i], &r.replicas[i]
	if !p.live {
		return
	}
	own := words{Fleet: policy.Fleet{Weight: 1}, oldest: r.now, version: n.version}
	ctrl, speaks := p.ctrl.(policy.Reporter)
	if speaks {
		x := ctrl.Report(r.now + r.clock)
		if own.Refused = x.Refused; x.Wanting {
			own.Wanting, own.Rate = 1, x.Rate
		} else {
			own.Used = x.Rate
		}
	}
	for e := range n.edges {
		if to := n.edges[e].peer; to >= 0 {
			lost, takes := w.rng.Float64() < packetLoss, within(w.rng, packetTime)
			if !lost {
				n.out[e] = packet{to, n.sum(own, e)}
				r.push(r.now+takes, (*Run).receive, 3*i+e)
			}
		}
	}
	r.push(r.now+gossipEvery, (*Run).gossip, i)
	if speaks {
		r.inform(p, n.sum(own, -1), len(n.list))
	}
	r.serve(i)
}

// sum adds what all edges but one last sent.
func (n *node) sum(own words, but int) words {
	for e := range n.edges {
		if o := n.edges[e].got; e != but && o.Weight > 0 {
			own.Weight += o.Weight
			own.Wanting += o.Wanting
			own.Rate += o.Rate
			own.Used += o.Used
			own.Refused += o.Refused
			own.oldest = min(own.oldest, o.oldest)
		}
	}
	return own
}

// receive takes in a packet, which was sent at an edge.
func (r *Run) receive(k int) {
	w, from := r.whisper, k/3
	x := &w.nodes[from].out[k%3]
	n := &w.nodes[x.to]
	for e := range n.edges {
		if n.edges[e].peer == from && n.version == x.version {
			n.edges[e].got = x.words
		}
	}
}

// rehint notes a hint, from an instant on.
func (w *whisper) rehint(hint float64, s *Scenario, now time.Duration) {
	if hint == w.hint {
		return
	}
	w.hint, w.parts = hint, 0
	for i := range s.Replicas {
		if s.Live(i, now) {
			w.parts++
		}
	}
}

// inform hands a controller the reports, if they have changed; none while they are not complete and fresh.
func (r *Run) inform(p *replica, all words, replicas int) {
	var f *policy.Fleet
	if int(all.Weight) == replicas && r.now-all.oldest <= freshNews {
		all.Limit = p.bounds.Share * r.whisper.parts
		f = &all.Fleet
	}
	was := p.bounds.Fleet
	if f == was || f != nil && was != nil && *f == *was {
		return
	}
	p.bounds.Fleet = f
	r.obey(p, p.ctrl.Next(r.nothing(), p.bounds))
}
