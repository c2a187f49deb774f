package judge

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/inside"
)

// countedFleet is a fleet whose replicas count together over a network that loses, delays and parts. It knows
// nothing of the library's windows: it writes down what was admitted, and which replicas could know of it.
type countedFleet struct {
	rt     *rapid.T
	rate   quotient.Rate
	maxAge time.Duration
	ends   []*countedEnd
	log    []countedEvent
	rough  bool // the network loses, clocks differ, replicas restart
}

type countedEvent struct {
	at            time.Time
	replica, life int
	window        int64
	n             int  // below 0: given back
	sure          bool // the window is known: the clock was not set back before
}

// countedEnd is one replica.
type countedEnd struct {
	*source
	fleet    *countedFleet
	id, life int
	l        *quotient.Limiter
	offset   time.Duration // of its wall clock
	farthest int64         // the latest window that it was in
	back     bool          // it has left that since
	next     time.Time     // its next turn
	deaf     bool
}

// turn delivers what is due, has the limiter speak, and sends that to the others.
func (e *countedEnd) turn() {
	said := e.line.takeTurn(e.id, e.deaf)
	for _, o := range e.fleet.ends {
		slowest, lost := 100, false
		if e.fleet.rough {
			slowest, lost = 1500, rapid.IntRange(0, 4).Draw(e.fleet.rt, "lost") == 0
		}
		if o != e && !lost {
			late := time.Duration(rapid.IntRange(0, slowest).Draw(e.fleet.rt, "late")) * time.Millisecond
			o.line.mail = append(o.line.mail, letter{said, e.id, time.Now().Add(late)})
		}
	}
	e.next = time.Now().Add(200 * time.Millisecond)
}

// start begins a life of the replica.
func (e *countedEnd) start() {
	if e.life++; e.source != nil {
		e.cancel()
	}
	e.l = mustNew(e.fleet.rt, quotient.Rates(e.fleet.rate), quotient.Replicas(len(e.fleet.ends)),
		quotient.Demand(4, e.fleet.maxAge), few, fix(func(c *inside.Chance) {
			c.Wall = func(t time.Time) int64 { return t.Add(e.offset).UnixNano() }
		}))
	e.source = following(e.l, newLine(len(e.fleet.ends)))
}

// window is the one by the replica's clock, and whether that is sure.
func (e *countedEnd) window() (k int64, sure bool) {
	wall, per := time.Now().Add(e.offset).UnixNano(), int64(e.fleet.rate.Per)
	k = wall / per
	if k > e.farthest {
		e.farthest, e.back = k, false
	}
	if k < e.farthest && !e.back {
		e.back = true
		e.life++ // a step back may open a window again, in which nothing was taken
	}
	return k, !e.back
}

func (e *countedEnd) note(n int) {
	k, sure := e.window()
	e.fleet.log = append(e.fleet.log, countedEvent{time.Now(), e.id, e.life, k, n, sure})
	if n > 0 && sure {
		e.check(k, n)
	}
}

// check holds an admission against bound 14: it is within the share, or within the limit with all that the
// others had admitted maxAge before.
func (e *countedEnd) check(k int64, n int) {
	limit, replicas := int(e.fleet.rate.Events), len(e.fleet.ends)
	net, least := make([]int, replicas), make([]int, replicas)
	for _, v := range e.fleet.log {
		if v.window != k || v.life != e.fleet.ends[v.replica].life || !v.sure {
			continue
		}
		net[v.replica] += v.n
		if time.Since(v.at) > e.fleet.maxAge {
			least[v.replica] = net[v.replica]
		} else {
			least[v.replica] = min(least[v.replica], net[v.replica])
		}
	}
	own, known := net[e.id], net[e.id]
	for i := range replicas {
		if i != e.id {
			known += max(0, least[i])
		}
	}
	if own > max(1, limit/replicas) && own > n && known > limit {
		e.fleet.rt.Fatalf("replica %d took %d, and has %d of %d by %d replicas; all others together had %d: %+v",
			e.id, n, own, limit, replicas, known-own, e.fleet.log)
	}
}

// act takes one step at a replica.
func (e *countedEnd) act() {
	rt := e.fleet.rt
	what := rapid.IntRange(0, 11).Draw(rt, "what")
	if !e.fleet.rough {
		what %= 8
	}
	switch what {
	case 7:
		if p, got := e.l.TryAcquireUpTo("k", rapid.IntRange(1, 5).Draw(rt, "up to")); got > 0 {
			e.note(got)
			used := rapid.IntRange(0, got).Draw(rt, "used")
			must(rt, p.Correct("", used))
			e.note(used - got)
			p.Release()
		}
	case 8:
		e.deaf = !e.deaf
	case 9:
		_, _ = e.window()
		e.offset += time.Duration(rapid.IntRange(-2000, 2000).Draw(rt, "set by")) * time.Millisecond
		time.Sleep(time.Millisecond) // a limiter reads the wall clock once in an instant
		_, _ = e.window()
	case 10:
		if rapid.IntRange(0, 9).Draw(rt, "restart") == 0 {
			e.start()
		}
	default:
		n := rapid.IntRange(1, 3).Draw(rt, "weight")
		for range rapid.IntRange(1, 8).Draw(rt, "asks") {
			if _, d := e.l.TryAcquire("k", quotient.Weight(n)); d.OK {
				e.note(n)
			}
		}
	}
}

// run lives a history.
func (f *countedFleet) run() {
	for range rapid.IntRange(10, 150).Draw(f.rt, "steps") {
		time.Sleep(time.Duration(rapid.IntRange(0, 200).Draw(f.rt, "ms")) * time.Millisecond)
		for _, e := range f.ends {
			if !time.Now().Before(e.next) {
				e.turn()
			}
		}
		f.ends[rapid.IntRange(0, len(f.ends)-1).Draw(f.rt, "replica")].act()
	}
}

// checkTotals holds each window of a quiet history: the limit, and what any stretch of twice maxAge has
// admitted.
func (f *countedFleet) checkTotals() {
	total, most := map[int64]int{}, map[int64]int{}
	for i, v := range f.log {
		total[v.window] += v.n
		stretch := 0
		for _, o := range f.log[:i+1] {
			if o.window == v.window && v.at.Sub(o.at) <= 2*f.maxAge && o.n > 0 {
				stretch += o.n
			}
		}
		most[v.window] = max(most[v.window], stretch)
	}
	for k, n := range total {
		if n > max(int(f.rate.Events), len(f.ends))+most[k] {
			f.rt.Fatalf("window %d: %d of %v admitted, %d in twice maxAge: %+v", k, n, f.rate.Events,
				most[k], f.log)
		}
	}
}

// Bound 14, with the real limiter over random sums.
func TestPropertyCounted(t *testing.T) {
	property(t, func(rt *rapid.T) {
		f := &countedFleet{
			rt: rt, maxAge: time.Duration(rapid.IntRange(5, 20).Draw(rt, "max age")) * 100 * time.Millisecond,
			rough: rapid.IntRange(0, 3).Draw(rt, "rough") > 0,
		}
		f.rate = quotient.Rate{
			Name: "w", Per: time.Duration(rapid.IntRange(2, 10).Draw(rt, "seconds")) * time.Second,
			Events: float64(rapid.IntRange(1, 60).Draw(rt, "events")), Kind: quotient.CountedWindow,
		}
		f.ends = make([]*countedEnd, rapid.IntRange(2, 5).Draw(rt, "replicas"))
		for i := range f.ends {
			f.ends[i] = &countedEnd{fleet: f, id: i}
		}
		for _, e := range f.ends {
			if f.rough {
				e.offset = time.Duration(rapid.IntRange(-500, 500).Draw(rt, "offset")) * time.Millisecond
			}
			e.start()
			defer func() { e.cancel() }()
		}
		if f.run(); !f.rough {
			f.checkTotals()
		}
	})
}
