package quotient

import (
	"fmt"
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
	l := mustNew(t, Limit{InFlight: 3})
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
	l := mustNew(t, limit, Policy(policy.AIMD{}))
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

func TestZeroPermitDoesNothing(t *testing.T) {
	var p Permit
	p.Release()
	p.Release()
	p.Done(policy.Feedback{Outcome: policy.Success})
	p.ExpireIn(time.Second)
	says(t, p.Correct("tokens", 1), "without a Cost")
	is(t, "a permit with nothing to give back", took(t, mustNew(t, Rates(PerSecond(1))), "k"), p)
}

// Failure mode 5: a waiter that is admitted in the instant in which its context ends gives all back.
func TestCancelOfAGrantedWaiter(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := mustNew(t, Limit{Rates: []Rate{perSecond(1, 1), tokensPerMinute(60, 60)}, InFlight: 1})
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
	l := mustNew(t, Limit{InFlight: 10}, MaxKeys(10))
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
