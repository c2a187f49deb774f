package quotient

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// inFlight fails unless so many slots are taken, of all keys.
func inFlight(t *testing.T, l *Limiter, n int) {
	t.Helper()
	stats(t, l, "InFlight", n)
}

func TestReleaseCountsOnce(t *testing.T) {
	l := limiterOf(t, Limit{InFlight: 3})
	p := took(t, l, "k", Weight(2))
	other := took(t, l, "k")
	copied := p
	inFlight(t, l, 3)
	p.Release()
	for range 5 {
		copied.Release()
		p.Done(policy.Feedback{Outcome: policy.Throttled})
	}
	stats(t, l, "InFlight", 1, "DoubleReleases", 10)
	took(t, l, "k", Weight(2))
	refusedFor(t, l, ReasonInFlight, "k")
	other.Release()
	inFlight(t, l, 2)
}

// A slot of the permit table is used again; the permit that had it before is not valid for its successor.
// Failure mode 27: no number of uses makes a permit of long ago good again.
func TestStalePermit(t *testing.T) {
	limit := Limit{InFlight: 1, Rates: []Rate{perSecond(1e6, 1e6), tokensPerMinute(6e7, 1e6)}}
	l := limiterOf(t, limit, Policy(policy.AIMD{}))
	stale := took(t, l, "k", Cost("tokens", 1))
	stale.Release()
	for i := range 10 {
		if i == 5 { // as if it had been used 2^31 times, together with the next taking
			stale.h.gen += 1<<31 - 1
			stale.h.gen += 1<<31 - 1
		}
		p := took(t, l, "k", Cost("tokens", 1))
		if p.h != stale.h || p.h.gen%2 == 0 {
			t.Fatalf("not the same holding: %+v, then %+v", stale, p)
		}
		stale.Release()
		stale.Done(policy.Feedback{Outcome: policy.Throttled})
		stale.Report(policy.Feedback{Outcome: policy.Throttled})
		stale.ExpireIn(1)
		says(t, stale.Correct("tokens", 5), "released")
		says(t, stale.Correct("", 0), "released")
		stats(t, l, "InFlight", 1, "DoubleReleases", 2*(i+1), "Throttled", 0)
		p.Release()
	}
	inFlight(t, l, 0)
}

// The reason for which a permit was taken does not affect the next one in the same place.
func TestPermitsLeaveNothingBehind(t *testing.T) {
	limit := Limit{Rates: []Rate{perSecond(1e6, 1e6), tokensPerMinute(600, 600)}, InFlight: 10}
	nothing, twenty := []CallOption{Cost("tokens", 0)}, []CallOption{Cost("tokens", 20)}
	for _, c := range []struct {
		name    string
		opts    []CallOption
		correct []int // costs, one after the other
	}{
		{"no cost", nil, nil},
		{"no cost, then some", nil, []int{5}},
		{"no cost, then some, then none", nil, []int{5, 0}},
		{"a cost of nothing", nothing, nil},
		{"a cost of nothing, then some", nothing, []int{7}},
		{"a cost", twenty, nil},
		{"a cost, then none", twenty, []int{0}},
		{"a cost, then more, then less", twenty, []int{50, 30}},
		{"a cost, then more, then none", twenty, []int{50, 0}},
		{"weight", []CallOption{Weight(4)}, nil},
	} {
		row(t, c.name, func(t *testing.T) {
			l := limiterOf(t, limit, MaxHold(time.Minute), MaxKeys(10))
			p := took(t, l, "k", c.opts...)
			for _, used := range c.correct {
				corrects(t, p, used)
			}
			p.Release()
			left := *p.h
			left.s, left.gen, left.next = nil, 0, nil
			// each taking sets them
			left.weight, left.slots, left.epoch, left.since, left.place = 0, 0, 0, 0, 0
			if !reflect.DeepEqual(left, holding{}) {
				t.Errorf("left behind: %+v", left)
			}
			// The next one has taken no tokens, so that it has none to give back, and owes what it says.
			took(t, l, "other", Cost("tokens", 100)).Release()
			before := tokensOf(t, l, "other")[1]
			next := took(t, l, "other")
			is(t, "in the same place", next.h, p.h)
			corrects(t, next, 10)
			is(t, "tokens after 10 were corrected", tokensOf(t, l, "other")[1], before-10)
			corrects(t, next, 0)
			is(t, "tokens where none were used", tokensOf(t, l, "other")[1], before)
		})
	}
}

func TestZeroPermitDoesNothing(t *testing.T) {
	var p Permit
	p.Release()
	p.Release()
	p.Done(policy.Feedback{Outcome: policy.Success})
	p.ExpireIn(time.Second)
	says(t, p.Correct("tokens", 1), "without a Cost")
	is(t, "a permit with nothing to give back", took(t, limiterOf(t, rated(PerSecond(1))), "k"), p)
}

// Failure mode 5: a waiter that is admitted in the instant in which its context ends gives all back.
func TestCancelOfAGrantedWaiter(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(1, 1), tokensPerMinute(60, 60)}, InFlight: 1})
		s := l.shard("k")
		s.mu.Lock()
		now := s.now()
		g := s.gate(l.hash("k"), "k", now, 0)
		w := newWaiter(demand{weight: 1, costs: [maxUnits]int{60}})
		w.key = "k"
		l.waiting.Add(1)
		s.enqueue(g, w, now)
		s.mu.Unlock()
		is(t, "admitted", len(w.ready), 1)
		is(t, "left", fmt.Sprint(tokensOf(t, l, "k")), "[0 0]")
		(&caller{s, g, w}).cancel()
		is(t, "left then", fmt.Sprint(tokensOf(t, l, "k")), "[1 60]")
		stats(t, l, "InFlight", 0, "Admitted", 0, "Cancelled", 1, "Waiting", 0)
	})
}

// Free holdings pin dropped gates, those pin their setting, and it pins all that followed.
func TestSettingsAreGarbage(t *testing.T) {
	l := limiterOf(t, Limit{InFlight: 10}, MaxKeys(10))
	var ps []Permit
	for i := range 70 { // two blocks
		ps = append(ps, took(t, l, key(i%10)))
	}
	for _, p := range ps {
		p.Release()
	}
	for i := range 20 { // other keys push the first ones out
		took(t, l, key(10+i)).Release()
	}
	for i := range 50_000 {
		setReplicas(t, l, 1+i%2)
	}
	for _, b := range l.shards[0].permits.blocks {
		for i := range b {
			if g := b[i].gate; g != nil {
				count := 0
				for st := g.setting; st != nil; st = st.next {
					count++
				}
				if count > 2*catchUp {
					t.Fatalf("a free holding keeps %d settings alive", count)
				}
			}
		}
	}
}

// BenchmarkSlot is one slot taken and given back; with a cost, also of what is corrected.
func BenchmarkSlot(b *testing.B) {
	for _, c := range []struct {
		name  string
		limit Limit
		opts  []CallOption
	}{
		{"slots", Limit{InFlight: 100}, nil},
		{"rate and slots", doneLimits()[1].limit, nil},
		{"requests and tokens", doneLimits()[2].limit, doneLimits()[2].opts},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := limiterOf(b, c.limit)
			b.ReportAllocs()
			for b.Loop() {
				p, err := l.Acquire(b.Context(), "k", c.opts...)
				if err != nil {
					b.Fatal(err)
				}
				p.Release()
			}
		})
	}
}
