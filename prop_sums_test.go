package quotient

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/internal/carry"
)

// borrowers are limiters of one pool whose callers come and go. They say to each other what they want.
type borrowers struct {
	*rapid.T
	*hub
	ls     []*Limiter
	asks   []int // of each limiter: in a step of 10 ms
	onsets []time.Time
	events []event
	held   [][]Permit
}

func newBorrowers(t *rapid.T, limit Limit) *borrowers {
	n := rapid.IntRange(1, 5).Draw(t, "replicas")
	b := &borrowers{T: t, asks: make([]int, n), held: make([][]Permit, n)}
	b.hub = &hub{turns: 100 * time.Millisecond, said: make([]map[string]carry.Terms, n)}
	for i := range n {
		b.said[i] = map[string]carry.Terms{}
		l := mustNew(t, limit, few, Replicas(n), Demand(3, time.Second))
		b.ls = append(b.ls, l)
		l.beginExchange()
	}
	return b
}

// step plays 10 ms. A replica takes its turn every tenth of them, each at another one.
func (b *borrowers) step(i int) {
	for j, l := range b.ls {
		if (i+3*j)%10 == 0 {
			before := b.said[j][carry.KeyText("k")]
			l.turn(&hubEnd{hub: b.hub, replica: j})
			if now := b.said[j][carry.KeyText("k")]; before[2] == 0 && now[2] > 0 { // it wants more
				b.onsets = append(b.onsets, time.Now())
			}
		}
		for range b.asks[j] {
			if p, d := l.TryAcquire("k"); d.OK {
				b.events = append(b.events, event{time.Now(), 1})
				b.held[j] = append(b.held[j], p)
			}
		}
	}
	time.Sleep(10 * time.Millisecond)
}

// phase has the callers of one replica come, go, or become more.
func (b *borrowers) phase(most int) {
	i := rapid.IntRange(0, len(b.ls)-1).Draw(b.T, "replica")
	was := b.asks[i]
	if b.asks[i] = rapid.SampledFrom([]int{0, 0, 1, most / 4, most}).Draw(b.T, "asks"); b.asks[i] > was {
		b.onsets = append(b.onsets, time.Now())
	}
}

// Bound 10 of a rate. A rate above the limit lasts no longer than reports take, from each onset on. It is no
// more than the shares of all others.
func TestPropertyBorrowedRate(t *testing.T) {
	property(t, func(t *rapid.T) {
		const perSecond, burst = 400, 20
		b := newBorrowers(t, Rates(Rate{Events: perSecond, Per: time.Second, Burst: burst}))
		i := 0
		for range rapid.IntRange(1, 8).Draw(t, "phases") {
			b.phase(8)
			for range rapid.IntRange(1, 300).Draw(t, "steps") {
				b.step(i)
				i++
			}
		}
		b.check(perSecond, max(burst, float64(len(b.ls))), 400*time.Millisecond)
	})
}

// check holds every window against its rate, its burst, and what onsets bring in it. Those that overlap count
// once.
func (b *borrowers) check(perSecond, burst float64, lasts time.Duration) {
	extra := perSecond * (1 - 1/float64(len(b.ls)))
	sum, last, until := 0.0, time.Time{}, time.Time{}
	for _, e := range b.events {
		passed := e.at.Sub(last).Seconds()
		for len(b.onsets) > 0 && !b.onsets[0].After(e.at) {
			until = b.onsets[0].Add(lasts)
			b.onsets = b.onsets[1:]
		}
		sum = max(0, sum-perSecond*passed)
		if over := min(passed, max(0, until.Sub(last).Seconds())); over > 0 {
			sum = max(0, sum-extra*over)
		}
		if sum, last = sum+e.n, e.at; sum > burst+1+.01*perSecond {
			b.Fatalf("%v above the rate of %v, with a burst of %v", sum, perSecond, burst)
		}
	}
}

// Bound 10 of slots. Beside the limit no more are in flight than the shares of the others. It is the limit
// alone when none has begun to want more for as long as reports takes, and permits from before are back.
func TestPropertyBorrowedSlots(t *testing.T) {
	property(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 60).Draw(t, "limit")
		b := newBorrowers(t, Limit{InFlight: limit})
		i := 0
		for range rapid.IntRange(1, 8).Draw(t, "phases") {
			b.phase(limit)
			keep := rapid.SampledFrom([]int{0, 1, 10, 1000}).Draw(t, "keep")
			began := i
			for range rapid.IntRange(1, 150).Draw(t, "steps") {
				b.step(i)
				i++
				if n, most := b.inFlight(), limit+limit*(len(b.ls)-1)/len(b.ls); n > most {
					t.Fatalf("%d in flight of %d", n, limit)
				}
				b.release(i, keep)
			}
			if n := b.inFlight(); keep <= 1 && i-began > 60 && n > limit {
				t.Fatalf("%d in flight of %d, long after the last onset", n, limit)
			}
		}
	})
}

func (b *borrowers) inFlight() (n int) {
	for _, l := range b.ls {
		n += int(l.Stats().InFlight)
	}
	return n
}

// release gives back the oldest permits of all replicas, every so many steps; 0: all of them at each.
func (b *borrowers) release(i, every int) {
	for j, held := range b.held {
		n := len(held)
		if every > 0 {
			if n = min(n, 1); i%every != 0 {
				n = 0
			}
		}
		for _, p := range held[:n] {
			p.Release()
		}
		b.held[j] = held[n:]
	}
}

// All replicas are busy at once: none has more than its share at any time, so that the surge costs nothing.
func TestASurgeOfAll(t *testing.T) {
	for n := 1; n <= 5; n++ {
		synctest.Test(t, func(t *testing.T) {
			_, ls := pooled(t, n, Rates(Rate{Events: 1000, Per: time.Second, Burst: 40}))
			time.Sleep(time.Second)
			sum := 0
			for _, got := range hammer(5*time.Second, ls...) {
				sum += got
			}
			within(t, fmt.Sprint(n, " replicas"), 4900, 5040, sum)
		})
	}
}

// countedFleet is a fleet whose replicas count together over a network that loses, delays and parts. It knows
// nothing of the library's windows: it writes down what was admitted, and which replicas could know of it.
type countedFleet struct {
	rt     *rapid.T
	rate   Rate
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

// countedEnd is one replica, and what it has of the others.
type countedEnd struct {
	fleet    *countedFleet
	id, life int
	l        *Limiter
	offset   time.Duration // of its wall clock
	farthest int64         // the latest window that it was in
	back     bool          // it has left that since
	next     time.Time     // its next turn
	Wire                   // its own place is there too
	mail     []countedLetter
	deaf     bool
}

type countedLetter struct {
	Heard
	from int
	due  time.Time
}

// turn delivers what is due, has the limiter speak, and sends that to the others.
func (e *countedEnd) turn() {
	var later []countedLetter
	for _, m := range e.mail {
		switch {
		case m.due.After(time.Now()):
			later = append(later, m)
		case !e.deaf && m.Sent.After(e.Heard[m.from].Sent):
			e.Heard[m.from] = m.Heard
		}
	}
	e.mail = later
	e.Heard[e.id].Sent = time.Now()
	e.l.turn(e)
	view := Heard{time.Now(), maps.Clone(e.Own)}
	for _, o := range e.fleet.ends {
		slowest, lost := 100, false
		if e.fleet.rough {
			slowest, lost = 1500, rapid.IntRange(0, 4).Draw(e.fleet.rt, "lost") == 0
		}
		if o != e && !lost {
			late := time.Duration(rapid.IntRange(0, slowest).Draw(e.fleet.rt, "late")) * time.Millisecond
			o.mail = append(o.mail, countedLetter{view, e.id, time.Now().Add(late)})
		}
	}
	e.next = time.Now().Add(200 * time.Millisecond)
}

// start begins a life of the replica.
func (e *countedEnd) start() {
	e.life++
	e.Wire, e.mail = Wire{map[string]carry.Terms{}, make([]Heard, len(e.fleet.ends))}, nil
	wall := WithWallClock(func(t time.Time) int64 { return t.Add(e.offset).UnixNano() })
	e.l = mustNew(e.fleet.rt, Rates(e.fleet.rate), Replicas(len(e.fleet.ends)), Demand(4, e.fleet.maxAge),
		few, wall)
	e.l.beginExchange()
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
			if _, d := e.l.TryAcquire("k", Weight(n)); d.OK {
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
		f.rate = Rate{
			Name: "w", Per: time.Duration(rapid.IntRange(2, 10).Draw(rt, "seconds")) * time.Second,
			Events: float64(rapid.IntRange(1, 60).Draw(rt, "events")), Kind: CountedWindow,
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
		}
		if f.run(); !f.rough {
			f.checkTotals()
		}
	})
}
