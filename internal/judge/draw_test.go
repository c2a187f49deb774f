package judge

import (
	"math"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/adversary"
	"github.com/quotient-go/quotient/policy"
)

// drawRate is a bucket of up to 60 events in a tenth of a second to a minute, with or without a burst.
func drawRate(t *rapid.T, label string) quotient.Rate {
	return quotient.Rate{
		Name:   label,
		Events: float64(rapid.IntRange(1, 60).Draw(t, label+" events")),
		Per:    drawMillis(t, label+" per", 100, 1000, 3000, 60000),
		Burst:  rapid.IntRange(0, 12).Draw(t, label+" burst"),
	}
}

// drawPacedRate is as drawRate, and paced in half of the draws, which gives a replica turns.
func drawPacedRate(t *rapid.T, name string) quotient.Rate {
	r := drawRate(t, name)
	if rapid.Bool().Draw(t, "paced") {
		r.Kind, r.Burst = quotient.Paced, 1
		if r.Per/time.Duration(r.Events) < 50*time.Millisecond {
			r.Per = time.Minute
		}
	}
	return r
}

// drawLimit is now and then a denial, else one rate or two, with and without a window and slots.
func drawLimit(t *rapid.T) quotient.Limit {
	if rapid.IntRange(0, 12).Draw(t, "deny") == 0 {
		return quotient.Limit{Deny: true}
	}
	limit := quotient.Rates(drawPacedRate(t, "a"))
	limit.InFlight = rapid.IntRange(0, 6).Draw(t, "in flight")
	if rapid.Bool().Draw(t, "second rate") {
		r := drawPacedRate(t, "b")
		r.Unit = "tokens"
		limit.Rates = append(limit.Rates, r)
	}
	if rapid.Bool().Draw(t, "window") {
		events := drawRate(t, "c").Events
		limit.Rates = append(limit.Rates, quotient.Rate{Name: "w", Events: events, Per: time.Second, Kind: quotient.Window})
	}
	return limit
}

// drawPool is a pool of up to nine that have no ordinals.
func drawPool(t *rapid.T) quotient.Pool {
	return quotient.Pool{Replicas: rapid.IntRange(1, 9).Draw(t, "replicas")}
}

// drawNumberedPool is as drawPool, mostly with an ordinal, fixed or not.
func drawNumberedPool(t *rapid.T) quotient.Pool {
	p := drawPool(t)
	p.Ordinal = rapid.IntRange(0, p.Replicas).Draw(t, "ordinal")
	p.Fixed = p.Ordinal > 0 && rapid.Bool().Draw(t, "fixed")
	return p
}

func drawPause(t *rapid.T) time.Duration {
	return drawMillis(t, "pause", 0, 1, 7, 50, 100, 333, 1000, 4000, 20000)
}

func drawMillis(t *rapid.T, label string, among ...int) time.Duration {
	return time.Duration(rapid.SampledFrom(among).Draw(t, label)) * time.Millisecond
}

func drawClass(t *rapid.T) quotient.Priority {
	return quotient.Priority(rapid.IntRange(int(quotient.PriorityLow), int(quotient.PriorityCritical)).Draw(t, "class"))
}

func drawFeedback(t *rapid.T) policy.Feedback {
	f := policy.Feedback{Outcome: policy.Outcome(rapid.IntRange(0, 5).Draw(t, "outcome"))}
	if rapid.Bool().Draw(t, "quota") {
		f.Quotas[rapid.IntRange(0, 3).Draw(t, "which quota")] = policy.Quota{
			Unit: rapid.SampledFrom([]string{"", "tokens", "other"}).Draw(t, "unit"), Limit: 10,
			Remaining: rapid.SampledFrom([]float64{0, 3, 10, -1, math.NaN(), math.Inf(1)}).Draw(t,
				"remaining"),
		}
	}
	return f
}

func drawRamp(rt *rapid.T) policy.Ramp {
	mode := policy.RampMode(rapid.IntRange(0, 3).Draw(rt, "mode"))
	return policy.Ramp{Mode: mode, Start: .2, Over: 5 * time.Second, CoolDown: 2 * time.Second}
}

func drawAdversary(t *rapid.T) adversary.Policy {
	return adversary.Policy{Seed: rapid.Uint64().Draw(t, "adversary"), Calm: rapid.Bool().Draw(t, "calm")}
}

// drawAnyPolicy is Fixed, or a controller that answers anything within the share. The bounds of the fleet hold
// under both.
func drawAnyPolicy(t *rapid.T) quotient.Option {
	if rapid.Bool().Draw(t, "fixed") {
		return quotient.Policy(policy.Fixed{})
	}
	return quotient.Policy(drawAdversary(t))
}
