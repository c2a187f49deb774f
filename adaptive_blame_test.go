package quotient

import (
	"math"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// holdsBack makes a controller hold a call back.
func holdsBack(t *testing.T, l *Limiter, p *panel, name string) {
	t.Helper()
	p.gives(t, l, name, policy.Pace{Rate: 1})
	time.Sleep(10 * time.Second)
	keep := []Permit{took(t, l, "k", Cost("tokens", 1))}
	if name == inFlight8 { // one more than learned is in flight
		keep = append(keep, took(t, l, "k", Cost("tokens", 1)))
	}
	d := refusedFor(t, l, l.Check("k", Cost("tokens", 1)).Reason, "k", Cost("tokens", 1))
	if d.Rule != ctrlRule {
		t.Fatalf("refused by %q, want the controller of %s", d.Rule, name)
	}
	for _, permit := range keep {
		permit.Release()
	}
	delete(p.says, name)
	time.Sleep(10 * time.Second)
}

// A refusal is attributed to one controller; the others see only that time has passed.
func TestRefusalsAreAttributed(t *testing.T) {
	q := func(unit string, limit, left float64) policy.Quota {
		return policy.Quota{Unit: unit, Limit: limit, Remaining: left}
	}
	for _, c := range []struct {
		name   string
		held   []string // the controllers that held calls back, in this order
		quotas [4]policy.Quota
		want   string
	}{
		{"requests, if nothing is known", nil, [4]policy.Quota{}, requests},
		{"who held back", []string{tokens}, [4]policy.Quota{}, tokens},
		{"slots that held back", []string{inFlight8}, [4]policy.Quota{}, inFlight8},
		{"who held back last", []string{inFlight8, tokens, requests}, [4]policy.Quota{}, requests},
		{"who held back last of two", []string{requests, inFlight8}, [4]policy.Quota{}, inFlight8},
		{"the quota that is the nearest to its end", nil,
			[4]policy.Quota{q("", 100, 50), q("tokens", 10_000, 900)}, tokens},
		{"whoever held back", []string{tokens}, [4]policy.Quota{q("tokens", 1000, 1000), q("", 100, 1)},
			requests},
		{"the only quota", []string{inFlight8}, [4]policy.Quota{3: q("tokens", 1000, 1000)}, tokens},
		{"requests of two that are at their end", nil, [4]policy.Quota{q("tokens", 1000, 0), q("", 100, 0)},
			requests},
		{"quotas of what is not governed", []string{tokens}, [4]policy.Quota{q("bytes", 10, 0)}, tokens},
		{"quotas that are none", []string{tokens},
			[4]policy.Quota{q("", -1, 0), q("", 10, math.NaN()), q("", math.Inf(1), 1)}, tokens},
	} {
		row(t, c.name, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			for _, name := range c.held {
				holdsBack(t, l, p, name)
			}
			took(t, l, "k", Cost("tokens", 1)).Done(policy.Feedback{
				Outcome: policy.Throttled, RetryAfter: time.Second, Quotas: c.quotas,
			})
			for _, name := range []string{requests, tokens, inFlight8} {
				s, want := p.last(t, name), policy.Sample{}
				if name == c.want {
					want.Outcome, want.RetryAfter = policy.Throttled, time.Second
				}
				if s.Outcome != want.Outcome || s.RetryAfter != want.RetryAfter || s.Now != since(l) {
					t.Errorf("%s got %+v, want %v", name, s, want.Outcome)
				}
			}
			if n := l.Stats().Throttled; n != 1 {
				t.Errorf("counted %d", n)
			}
		})
	}
}

// Paced is each controller's own, and ends when the controller has got it.
func TestPacedIsEachControllersOwn(t *testing.T) {
	for _, name := range []string{requests, tokens, inFlight8} {
		row(t, name, func(t *testing.T) {
			l, p := governing(t, Replicas(1))
			holdsBack(t, l, p, name)
			for _, want := range []bool{true, false} {
				took(t, l, "k", Cost("tokens", 1)).Done(success)
				time.Sleep(time.Second)
				for _, other := range []string{requests, tokens, inFlight8} {
					if got := p.last(t, other).Paced; got != (want && other == name) {
						t.Errorf("%s: paced %v though %s held back", other, got, name)
					}
				}
			}
		})
	}
}

// A rule that held back before the first feedback is not noted: the key may have been dropped and made again
// since.
func TestNothingIsNotedBeforeTheFirstFeedback(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		permit := took(t, l, "k", Cost("tokens", 1000))
		if d := refusedFor(t, l, ReasonRate, "k", Cost("tokens", 1000)); d.Rule != ctrlRule {
			t.Fatalf("refused by %q, want a controller", d.Rule)
		}
		permit.Done(throttled)
		if s := p.last(t, requests); s.Outcome != policy.Throttled {
			t.Errorf("requests: got %+v", s)
		}
		if s := p.last(t, tokens); s.Outcome != policy.Unknown || s.Paced {
			t.Errorf("tokens: got %+v", s)
		}
	})
}

// fickle makes a controller when New checks whether it learns, and none for the keys.
type fickle struct{ asked *int }

func (f fickle) New(uint64) policy.Controller {
	if *f.asked++; *f.asked <= 2 {
		return policy.AIMD{}.New(0)
	}
	return nil
}

// A policy that makes no controller for a key leaves its pace as it starts.
func TestPolicyThatMakesNoController(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(20, 40)), Policy(fickle{new(int)}))
		took(t, l, "k").Done(throttled)
		paces(t, l, "k", 20)
	})
}

// With all that can be governed at once each controller governs its own.
func TestFiveControllers(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		limit := Limit{InFlight: 8, Rates: []Rate{perSecond(2000, 4000)}}
		for _, unit := range []string{"a", "b", "c"} {
			limit.Rates = append(limit.Rates, Rate{Name: unit, Unit: unit, Events: 1000, Per: time.Second})
		}
		l := limiterOf(t, limit, Policy(policy.AIMD{}))
		f := throttled
		f.Quotas[0] = policy.Quota{Unit: "b", Limit: 10}
		took(t, l, "k", Cost("b", 10)).Done(f)
		for i, want := range []float64{2000, 1000, 500, 1000, 8} {
			if got := gateOf(l, "k").ext.learned.pacers[i].pace; got != want {
				t.Errorf("controller %d: %v, want %v", i, got, want)
			}
		}
	})
}

func requestsAndTokens(t testing.TB, p policy.Policy) *Limiter {
	return limiterOf(t, rated(perSecond(100, 100),
		Rate{Name: "tokens", Unit: "tokens", Events: 1000, Per: time.Second, Burst: 100_000}),
		Policy(p), BeyondShare(), Replicas(1))
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

// A refusal of a request that took no tokens is not the controller of tokens' business, whatever the answer
// says of tokens.
func TestRefusalOfWhatWasTaken(t *testing.T) {
	spent := policy.Feedback{Outcome: policy.Throttled, RetryAfter: time.Minute, Quotas: [4]policy.Quota{
		{Limit: 6000, Remaining: 5000, Reset: time.Second},
		{Unit: "tokens", Limit: 60000, Reset: time.Minute},
	}}
	for name, f := range map[string]policy.Feedback{
		"quotas": spent, "held back last": {Outcome: policy.Throttled, RetryAfter: time.Minute},
	} {
		row(t, name, func(t *testing.T) {
			l := requestsAndTokens(t, policy.Tracking{})
			took(t, l, "k").Done(success)
			took(t, l, "k", Cost("tokens", 5000)).Done(success)
			refusedFor(t, l, ReasonRate, "k", Cost("tokens", 5000)) // the controller of tokens holds one back
			time.Sleep(10 * time.Second)
			if n := refusedUntil(l, f); n > 200 {
				t.Errorf("%d requests in 30 s though each answer said to wait for a minute", n)
			}
		})
	}
}
