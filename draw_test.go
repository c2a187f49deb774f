package quotient

import (
	"math"
	"math/rand/v2"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/policy"
)

// drawRate is a bucket of up to 60 events in a tenth of a second to a minute, with or without a burst.
func drawRate(t *rapid.T, label string) Rate {
	return Rate{
		Name:   label,
		Events: float64(rapid.IntRange(1, 60).Draw(t, label+" events")),
		Per:    drawMillis(t, label+" per", 100, 1000, 3000, 60000),
		Burst:  rapid.IntRange(0, 12).Draw(t, label+" burst"),
	}
}

// drawPacedRate is as drawRate, and paced in half of the draws, which gives a replica turns.
func drawPacedRate(t *rapid.T, name string) Rate {
	r := drawRate(t, name)
	if rapid.Bool().Draw(t, "paced") {
		r.Kind, r.Burst = Paced, 1
		if r.Per/time.Duration(r.Events) < 50*time.Millisecond {
			r.Per = time.Minute
		}
	}
	return r
}

// drawLimit is now and then a denial, else one rate or two, with and without a window and slots.
func drawLimit(t *rapid.T) Limit {
	if rapid.IntRange(0, 12).Draw(t, "deny") == 0 {
		return Limit{Deny: true}
	}
	limit := Limit{Rates: []Rate{drawPacedRate(t, "a")}, InFlight: rapid.IntRange(0, 6).Draw(t, "in flight")}
	if rapid.Bool().Draw(t, "second rate") {
		r := drawPacedRate(t, "b")
		r.Unit = "tokens"
		limit.Rates = append(limit.Rates, r)
	}
	if rapid.Bool().Draw(t, "window") {
		events := drawRate(t, "c").Events
		limit.Rates = append(limit.Rates, Rate{Name: "w", Events: events, Per: time.Second, Kind: Window})
	}
	return limit
}

// drawPool is a pool of up to nine that have no ordinals.
func drawPool(t *rapid.T) Pool { return Pool{Replicas: rapid.IntRange(1, 9).Draw(t, "replicas")} }

// drawNumberedPool is as drawPool, mostly with an ordinal, fixed or not.
func drawNumberedPool(t *rapid.T) Pool {
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

func drawClass(t *rapid.T) Priority {
	return Priority(rapid.IntRange(int(PriorityLow), int(PriorityCritical)).Draw(t, "class"))
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

// Adversary is a policy whose controllers answer anything, and the same to the same seed. If it is calm they
// start at 5.
type Adversary struct {
	Seed    uint64
	Calm    bool
	Expires bool // some of its paces do
}

// New is policy.Policy's.

func (a Adversary) New(seed uint64) policy.Controller {
	return &adversaryController{rand.New(rand.NewPCG(a.Seed, seed)), a.Calm, a.Expires}
}

type adversaryController struct {
	*rand.Rand
	calm, expires bool
}

func (l *adversaryController) Next(s policy.Sample, b policy.Bounds) policy.Pace {
	if l.calm {
		l.calm = false
		return policy.Pace{Rate: min(b.Ceiling, 5)}
	}
	odd := []float64{
		math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, math.MaxFloat64, math.SmallestNonzeroFloat64, 1e-9,
		b.Ceiling, b.Share, 1e6,
	}
	p := policy.Pace{Rate: odd[l.IntN(len(odd))]}
	if l.IntN(2) == 0 {
		p.Rate = b.Ceiling * math.Exp(2-6*l.Float64())
	}
	switch l.IntN(12) {
	case 0:
		p.NotBefore = s.Now + time.Duration(math.Exp(math.Log(1e10)*l.Float64())) // up to ten seconds
	case 1:
		p.NotBefore = []time.Duration{math.MinInt64, -1, s.Now, s.Now - 1, math.MaxInt64}[l.IntN(5)]
	}
	if l.expires && l.IntN(8) == 0 {
		p.Until = s.Now + time.Duration(l.IntN(3000))*time.Millisecond
	}
	switch l.IntN(6) {
	case 0:
		p = p.Probing(time.Microsecond + time.Duration(math.Exp(math.Log(1e10)*l.Float64())))
	case 1:
		p = p.Probing([]time.Duration{math.MinInt64, -1, time.Microsecond, time.Hour,
			math.MaxInt64}[l.IntN(5)])
	}
	return p
}

func drawAdversary(t *rapid.T) Adversary {
	return Adversary{Seed: rapid.Uint64().Draw(t, "adversary"), Calm: rapid.Bool().Draw(t, "calm")}
}

// drawPolicy is Fixed, or a controller that answers anything under withinShare. The bounds of the fleet hold
// under both.
func drawPolicy(t *rapid.T) Option {
	if rapid.Bool().Draw(t, "fixed") {
		return Policy(policy.Fixed{})
	}
	return Policy(drawAdversary(t))
}

// mix says what the limits of mixedLimits are made of.
type mix struct {
	unit          string  // what the largest rate counts
	speed         float64 // at 1 rates are of a few events a second, and windows of five seconds
	window, later float64 // the events of a window, and of the same where it is a limit's for the second time
}

// mixedLimits are limits of every shape over the same few rates, for tests that go from one to another.
func mixedLimits(m mix) []Limit {
	tok := Rate{Name: "tokens", Unit: m.unit, Events: 20 * m.speed, Per: time.Second, Burst: 60}
	al := Rate{Name: "al", Events: m.window, Per: time.Duration(float64(5*time.Second) / m.speed),
		Kind: Window}
	al2 := al
	al2.Events = m.later
	s := Rate{Name: "s", Events: 3 * m.speed, Per: time.Second, Burst: 10}
	s2 := Rate{Name: "s2", Events: 2 * m.speed, Per: time.Second, Burst: 3}
	return []Limit{
		{Rates: []Rate{tok, s}, InFlight: 3}, {Rates: []Rate{s, tok, al}, InFlight: 6},
		{Rates: []Rate{al, tok}},
		{InFlight: 2}, Limit{Deny: true}, {}, {Rates: []Rate{s2, s}, InFlight: 4},
		{Rates: []Rate{tok, al2}, InFlight: 1}, {Rates: []Rate{s}}, {Rates: []Rate{s2}, InFlight: 9},
	}
}
