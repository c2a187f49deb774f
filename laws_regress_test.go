package quotient

import (
	"context"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// What a review has found in the joining of laws to keys.

func requestsAndTokens(t testing.TB, p policy.Policy) *Limiter {
	return limiterOf(t, rated(perSecond(100, 100), Rate{Name: "tokens", Unit: "tokens", Events: 1000, Per: time.Second, Burst: 100_000}),
		Policy(p, CeilingLimit), StartPool(Pool{Replicas: 1}))
}

// refusedUntil asks every millisecond for half a minute, is refused by the upstream each time, and counts.
func refusedUntil(l *Limiter, f policy.Feedback) (n int) {
	for start := time.Now(); time.Since(start) < 30*time.Second; time.Sleep(time.Millisecond) {
		if p, d := l.TryAcquire("k"); d.OK {
			n++
			p.Done(f)
		}
	}
	return n
}

// A refusal of a request that took no tokens is not the law of tokens' business, whatever the answer says of tokens.
func TestRefusalOfWhatWasTaken(t *testing.T) {
	spent := policy.Feedback{Outcome: policy.Throttled, RetryAfter: time.Minute, Quotas: [4]policy.Quota{
		{Limit: 6000, Remaining: 5000, Reset: time.Second}, {Unit: "tokens", Limit: 60000, Reset: time.Minute},
	}}
	for name, f := range map[string]policy.Feedback{
		"quotas": spent, "held back last": {Outcome: policy.Throttled, RetryAfter: time.Minute},
	} {
		row(t, name, func(t *testing.T) {
			l := requestsAndTokens(t, policy.Tracking{})
			took(t, l, "k").Done(success)
			took(t, l, "k", Cost("tokens", 5000)).Done(success)
			refusedFor(t, l, ReasonRate, "k", Cost("tokens", 5000)) // the law of tokens holds one back
			time.Sleep(10 * time.Second)
			if n := refusedUntil(l, f); n > 200 {
				t.Errorf("%d requests in 30 s though each was told to wait for a minute", n)
			}
		})
	}
}

// fragile is a law that cannot bear a change of its bounds.
type fragile struct{ begun bool }

func (fragile) New(uint64) policy.Law { return new(fragile) }

func (f *fragile) Next(s policy.Sample, _ policy.Bounds) policy.Pace {
	if f.begun && s.Outcome == policy.Unknown {
		panic("a change")
	}
	f.begun = true
	return policy.Pace{Rate: 1}
}

// A law that panics at a change of the pool is dropped: who asks next has nothing to do with it.
func TestLawThatPanicsAtAChange(t *testing.T) {
	for name, ask := range map[string]func(*Limiter){
		"Allow":          func(l *Limiter) { l.Allow("k") },
		"TryAcquire":     func(l *Limiter) { l.TryAcquire("k") },
		"TryAcquireUpTo": func(l *Limiter) { l.TryAcquireUpTo("k", 1) },
		"Acquire":        func(l *Limiter) { _, _ = l.Acquire(context.Background(), "k") },
		"Check":          func(l *Limiter) { l.Check("k") },
	} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, rated(perSecond(10, 20)), Policy(fragile{}, CeilingShare))
			took(t, l, "k").Done(success)
			setReplicas(t, l, 2)
			ask(l)
			paces(t, l, "k", 1) // where a new law starts
			if pc := &gateOf(l, "k").more.learned.pacers[0]; pc.law != nil {
				t.Error("the law is still there")
			}
		})
	}
}

// A law that panics at a refusal takes no slot with it.
func TestLawThatPanicsAtDone(t *testing.T) {
	l := limiterOf(t, Limit{InFlight: 1, Rates: []Rate{PerSecond(10)}}, Policy(panickyPolicy{}, CeilingShare))
	p := took(t, l, "k")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is not handed on")
			}
		}()
		p.Done(throttled)
	}()
	if n := l.Stats().InFlight; n != 0 {
		t.Errorf("in flight %d after Done", n)
	}
}

// A policy that has no law for a while loses nobody's process.
func TestPolicyWithoutLawAtAChange(t *testing.T) {
	l := limiterOf(t, rated(perSecond(20, 40)), Policy(fickle{new(int)}, CeilingShare))
	setReplicas(t, l, 2)
	if !l.Allow("k") {
		t.Error("refused")
	}
}

// What a request has cost less is set against a debt of the law's bucket, and brings no burst: the bucket has filled by
// itself meanwhile, or was shut.
func TestRefundsOfALaw(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Rate{Name: "tokens", Unit: "tokens", Events: 1000, Per: time.Second, Burst: 1_000_000}),
			Policy(&spyLaw{next: 100, start: 100}, CeilingLimit), StartPool(Pool{Replicas: 1}))
		took(t, l, "k", Cost("tokens", 1)).Done(success)
		time.Sleep(time.Second)
		var permits []Permit
		for range 200 {
			permits = append(permits, took(t, l, "k", Cost("tokens", 10)))
			time.Sleep(200 * time.Millisecond)
		}
		n := 0
		for _, p := range permits {
			if err := p.Correct("tokens", 0); err != nil {
				t.Fatal(err)
			}
			if _, d := l.TryAcquire("k", Cost("tokens", 10)); d.OK {
				n += 10
			}
		}
		if n > 10 {
			t.Errorf("%d tokens at one instant from a bucket of 10", n)
		}
	})
}

func TestRefundAfterAGate(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, StartPool(Pool{Replicas: 1}))
		out := took(t, l, "k", Cost("tokens", 900))
		p.shut(t, l, tokens, 5000, 5*time.Second)
		time.Sleep(5 * time.Second)
		if err := out.Correct("tokens", 0); err != nil {
			t.Fatal(err)
		}
		if _, d := l.TryAcquire("k", Cost("tokens", 500)); d.OK {
			t.Error("500 tokens at the end of a gate, at which there is one")
		}
	})
}
