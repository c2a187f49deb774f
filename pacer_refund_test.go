package quotient

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// A lower cost is set against a debt of the controller's bucket, and brings no burst: the bucket has filled
// by itself meanwhile, or was paused.
func TestRefundsOfAController(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t,
			rated(Rate{Name: "tokens", Unit: "tokens", Events: 1000, Per: time.Second, Burst: 1_000_000}),
			Policy(&spyController{next: 100, start: 100}), BeyondShare(), Replicas(1))
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

// Events that have come back by themselves are set against a debt of the controller's bucket, also where
// nothing else comes back.
func TestRefundIntoADebtOfAController(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		rate := Rate{Name: "tokens", Unit: "tokens", Events: 1000, Per: time.Second, Burst: 1_000_000}
		l := limiterOf(t, rated(rate), policyOf(&spyController{next: 100, start: 100}, beyondShare),
			StartPool(Pool{Replicas: 1}))
		took(t, l, "k", Cost("tokens", 1)).Done(success)
		time.Sleep(time.Second)
		early := took(t, l, "k", Cost("tokens", 10)) // all that a tenth of a second brings
		time.Sleep(time.Second)
		took(t, l, "k", Cost("tokens", 50))
		for _, c := range []struct {
			used int
			wait time.Duration
		}{{10, 500}, {4, 440}, {0, 400}} {
			corrects(t, early, c.used)
			if d := refusedFor(t, l, ReasonRate, "k", Cost("tokens", 10)); d.RetryAfter != c.wait*
				time.Millisecond {
				t.Errorf("%d of ten used: retry after %v, want %d ms", c.used, d.RetryAfter, c.wait)
			}
		}
	})
}

func TestRefundAfterAGate(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, p := governing(t, Replicas(1))
		out := took(t, l, "k", Cost("tokens", 900))
		p.pause(t, l, tokens, 5000, 5*time.Second)
		time.Sleep(5 * time.Second)
		if err := out.Correct("tokens", 0); err != nil {
			t.Fatal(err)
		}
		if _, d := l.TryAcquire("k", Cost("tokens", 500)); d.OK {
			t.Error("500 tokens at the end of a gate, at which there is one")
		}
	})
}

// climbs is a controller that allows a hundred times as much after a success.
type climbs struct{}

func (climbs) New(uint64) policy.Controller { return climbs{} }
func (climbs) Next(s policy.Sample, _ policy.Bounds) policy.Pace {
	if s.Outcome == policy.Success {
		return policy.Pace{Rate: 1000}
	}
	return policy.Pace{Rate: 10}
}

// A permit that is corrected after all that was learned has been forgotten leaves no debt.
func TestGiveBackAfterForgetting(t *testing.T) {
	ramp := policy.Ramp{Start: .01, Over: 10 * time.Second}
	for _, ctrl := range []policy.Policy{ramp, climbs{}} {
		for _, unit := range []string{"", "tokens"} {
			row(t, fmt.Sprintf("%T, unit %s", ctrl, unit), func(t *testing.T) {
				r := Rate{Name: "r", Unit: unit, Events: 1000, Per: time.Second, Burst: 1000}
				l := limiterOf(t, Limit{Rates: []Rate{r}, InFlight: 1000}, Policy(ctrl))
				for range 20 { // to the top
					took(t, l, "k", Cost(unit, 1)).Done(policy.Feedback{Outcome: policy.Success})
					time.Sleep(time.Second)
				}
				p := took(t, l, "k", Cost(unit, 1))
				time.Sleep(time.Hour) // a long job
				must(t, p.Correct(unit, 0))
				p.Release()
				if _, d := l.TryAcquire("k", Cost(unit, 1)); !d.OK {
					t.Errorf("refused: %+v", d)
				}
			})
		}
	}
}

// relents is a controller whose pace falls to a fifth, or waits for a time, when it is refused.
type relents struct{ wait time.Duration }

func (p relents) New(uint64) policy.Controller { return p }
func (p relents) Next(s policy.Sample, _ policy.Bounds) policy.Pace {
	pace := policy.Pace{Rate: 100, Saved: time.Second}
	switch {
	case s.Outcome != policy.Throttled:
	case p.wait > 0:
		pace.NotBefore = s.Now + p.wait
	default:
		pace.Rate = 20
	}
	return pace
}

// Events taken before a controller stopped its key, or slowed it down, do not come back as a burst after
// that.
func TestGiveBackAfterRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		ctrl relents
		left int
	}{"a pace that falls": {relents{}, 20}, "a pause": {relents{300 * time.Millisecond}, 1}} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, Rates(Rate{Events: 100, Per: time.Second, Burst: 100}), Policy(c.ctrl))
			p := upTo(t, l, "k", 50, 50)
			time.Sleep(time.Second) // they have come back by themselves
			q := upTo(t, l, "k", 1, 1)
			q.Done(policy.Feedback{Outcome: policy.Throttled})
			time.Sleep(c.ctrl.wait)
			upTo(t, l, "k", 100, c.left)
			correct(t, p, 0)
			upTo(t, l, "k", 100, 0)
		})
	}
}
