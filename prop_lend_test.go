package quotient

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// A loan ends at its instant, whether or not a call comes then. A limiter at which one looks all the time
// decides as one that is left alone.
func TestPropertyLoansEndLazily(t *testing.T) {
	property(t, func(t *rapid.T) {
		limit := Limit{Rates: []Rate{
			{Events: float64(rapid.IntRange(1, 50).Draw(t, "events")), Per: time.Second,
				Burst: rapid.IntRange(2, 40).Draw(t, "burst")},
			{Events: 200, Per: time.Minute, Burst: 20, Unit: "tok"},
		}, InFlight: rapid.IntRange(0, 9).Draw(t, "slots")}
		replicas := Replicas(rapid.IntRange(1, 6).Draw(t, "replicas"))
		lazy, eager := mustNew(t, limit, few, replicas), mustNew(t, limit, few, replicas)
		var held [2][]Permit
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := rapid.IntRange(0, 9).Draw(t, "n")
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0, 1, 2:
				a, x := lazy.TryAcquire("k", Cost("tok", n))
				b, y := eager.TryAcquire("k", Cost("tok", n))
				if x.OK != y.OK || (x.RetryAfter-y.RetryAfter).Abs() > time.Microsecond {
					t.Fatalf("one that is left alone decides %+v, one that is looked at %+v", x, y)
				}
				held[0], held[1] = append(held[0], a), append(held[1], b)
			case 3:
				part, lasts := float64(n)/9,
					time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms"))*time.Millisecond
				Lend(lazy, "k", part, lasts)
				Lend(eager, "k", part, lasts)
			case 4:
				for range rapid.IntRange(1, 500).Draw(t, "looks") {
					time.Sleep(7 * time.Millisecond)
					eager.AppendState(nil, "k")
				}
			case 5:
				for i := range held {
					if len(held[i]) > 0 {
						_ = held[i][0].Correct("tok", n/2)
						held[i][0].Release()
						held[i] = held[i][1:]
					}
				}
			case 6:
				p := Pool{Replicas: 1 + n}
				must(t, lazy.SetPool(p, 0))
				must(t, eager.SetPool(p, 0))
			}
		}
	})
}

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
	b.hub = &hub{turns: 100 * time.Millisecond, said: make([]map[string]Terms, n)}
	for i := range n {
		b.said[i] = map[string]Terms{}
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
			before := b.said[j][textKey+"k"]
			l.turn(&hubEnd{hub: b.hub, replica: j})
			if now := b.said[j][textKey+"k"]; before[2] == 0 && now[2] > 0 { // it wants more
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
