package heap

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quotient-go/quotient/internal/tested"
)

// event is something that happens in a fleet at a time.
type event struct {
	at   time.Duration
	turn uint64
	run  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), cmp.Compare(e[i].turn, e[j].turn)) < 0
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// failer is a test, or a check of a property.
type failer interface {
	Fatal(...any)
	Fatalf(string, ...any)
}

// fleet is nodes over a network of events.
type fleet struct {
	t        failer
	rand     *rand.Rand
	opt      Options
	interval time.Duration
	delay    func() time.Duration
	lost     func(from, to uint64) bool
	cut      func(from, to uint64) bool
	twice    func() bool
	now      time.Duration
	queue    events
	turn     uint64
	nodes    map[uint64]*peer
	lastID   uint64
	sent     map[uint64]int // bytes with UDP and IP headers
	largest  int
}

// peer is a node that lives.
type peer struct {
	*Node
	dead bool
	lag  time.Duration // its clock beside that of the fleet
}

func newFleet(t failer, seed uint64, o Options) *fleet {
	return &fleet{
		t: t, rand: rand.New(rand.NewPCG(seed, 17)), opt: o, interval: 200 * time.Millisecond,
		delay: func() time.Duration { return 5 * time.Millisecond },
		lost:  func(_, _ uint64) bool { return false },
		cut:   func(_, _ uint64) bool { return false },
		twice: func() bool { return false },
		nodes: map[uint64]*peer{}, sent: map[uint64]int{},
	}
}

// start adds a node whose ticks have a random phase.
func (f *fleet) start(name string) *peer {
	f.lastID++
	p := &peer{Node: New(Member{name, f.lastID}, f.opt), lag: time.Duration(f.rand.Int64N(int64(time.Hour)))}
	f.nodes[f.lastID] = p
	f.after(time.Duration(f.rand.Int64N(int64(f.interval))), func() { f.tick(p) })
	return p
}

// many starts nodes, each of which knows all others as members.
func (f *fleet) many(count int) []*peer {
	ps := make([]*peer, count)
	for i := range ps {
		ps[i] = f.start(fmt.Sprintf("n%05d", i))
	}
	f.meet(ps...)
	return ps
}

// list is the members of a fleet, sorted.
func list(ps []*peer) []Member {
	ms := make([]Member, len(ps))
	for i, p := range ps {
		ms[i] = p.self
	}
	slices.SortFunc(ms, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return ms
}

// meet tells nodes that they are all members.
func (f *fleet) meet(ps ...*peer) {
	ms := list(ps)
	for _, p := range ps {
		p.SetMembers(f.clock(p), ms)
	}
}

func (f *fleet) kill(p *peer) {
	p.dead = true
	delete(f.nodes, p.self.ID)
}

func (f *fleet) clock(p *peer) time.Duration { return f.now + p.lag }

func (f *fleet) after(d time.Duration, run func()) {
	f.turn++
	heap.Push(&f.queue, event{f.now + d, f.turn, run})
}

func (f *fleet) tick(p *peer) {
	if p.dead {
		return
	}
	p.Tick(f.clock(p), func(to Member, packet []byte) {
		f.sent[p.self.ID] += len(packet) + 28
		f.largest = max(f.largest, len(packet))
		copies := 1
		if f.lost(p.self.ID, to.ID) {
			copies = 0
		}
		if f.twice() {
			copies++
		}
		for range copies {
			packet := slices.Clone(packet)
			f.after(f.delay(), func() { f.receive(to.ID, packet) })
		}
	})
	f.after(f.interval, func() { f.tick(p) })
}

func (f *fleet) receive(to uint64, packet []byte) {
	if p := f.nodes[to]; p != nil {
		if err := p.Receive(f.clock(p), packet); err != nil {
			f.t.Fatalf("%s: %v", p.self.Name, err)
		}
	}
}

// run lets time pass.
func (f *fleet) run(d time.Duration) { f.until(d, func() bool { return false }) }

// until lets time pass until something holds, and returns how much.
func (f *fleet) until(most time.Duration, holds func() bool) time.Duration {
	start := f.now
	for len(f.queue) > 0 && f.queue[0].at <= start+most {
		e := heap.Pop(&f.queue).(event)
		f.now = e.at
		e.run()
		if holds() {
			return f.now - start
		}
	}
	f.now = start + most
	return most
}

// racing is whether the race detector runs, under which large fleets take minutes.
var racing bool

// hop is the time that one edge takes at most.
const hop = 205 * time.Millisecond

func TestPropagation(t *testing.T) {
	for _, c := range []struct{ nodes, diameter int }{
		{3, 2}, {10, 5}, {20, 7}, {50, 10}, {100, 12}, {1000, 18}, {5000, 23},
	} {
		if (racing || testing.Short()) && c.nodes > 100 {
			continue
		}
		tested.Want(t, fmt.Sprintf("Diameter(%d)", c.nodes), Diameter(c.nodes), c.diameter)
		f := newFleet(t, 1, Options{})
		ps := f.many(c.nodes)
		whole := f.until(time.Minute, allOf(f, ps, func(p *peer) bool {
			_, age := p.Sum(f.clock(p), "k")
			return age != Never
		}))
		f.run(time.Second)
		worst := time.Duration(0)
		for _, at := range []int{len(ps) - 1, 0, len(ps) / 2} {
			value := int64(f.now)
			ps[at].Say("k", Terms{value})
			want := int64(0)
			for _, p := range ps {
				if en := p.table[name{gauge, "k"}]; en != nil {
					want += en.own[0]
				}
			}
			took := f.until(time.Minute, allOf(f, ps, func(p *peer) bool {
				sum, _ := p.Sum(f.clock(p), "k")
				return sum[0] == want
			}))
			worst = max(worst, took)
		}
		bound := time.Duration(1.1 * float64(c.diameter) * float64(hop))
		t.Logf("N = %4d: diameter %2d, all complete after %v, a change reaches all after %v, bound %v",
			c.nodes, c.diameter, whole, worst, bound)
		tested.Not(t, worst > bound, "N = %d: a change took %v, more than %v", c.nodes, worst, bound)
	}
}

// allOf reports whether something holds for all nodes. It asks the nodes in turn, and begins with the last
// that said no.
func allOf(f *fleet, ps []*peer, holds func(*peer) bool) func() bool {
	at := 0
	return func() bool {
		for range ps {
			if !holds(ps[at]) {
				return false
			}
			at = (at + 1) % len(ps)
		}
		return true
	}
}
