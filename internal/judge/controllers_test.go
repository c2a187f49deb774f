package judge

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/adversary"
	"github.com/quotient-go/quotient/internal/inside"
	"github.com/quotient-go/quotient/policy"
)

// Controllers may answer anything and limits may change at will. Each pace is finite, positive and at most
// at the ceiling of its controller. No pause is longer than an hour, and the slots are those of the replica
// at most.
func TestPropertyPacesStayInBounds(t *testing.T) {
	property(t, func(rt *rapid.T) {
		opts := []quotient.Option{quotient.Policy(drawAdversary(rt)), few}
		if rapid.Bool().Draw(rt, "beyond the share") {
			opts = append(opts, quotient.BeyondShare())
		}
		if rapid.Bool().Draw(rt, "pool is set") {
			opts = append(opts, quotient.StartPool(drawPool(rt)))
		}
		l := mustNew(rt, drawLimit(rt), opts...)
		var permits []quotient.Permit
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 11).Draw(rt, "what") {
			case 0:
				must(rt, l.SetPool(drawPool(rt), 0))
			case 1:
				must(rt, l.SetLimit(drawLimit(rt)))
			case 2:
				must(rt, l.SetLimit(quotient.Limit{Deny: true}))
				must(rt, l.SetLimit(drawLimit(rt)))
			case 3, 4:
				time.Sleep(drawPause(rt))
			case 5, 6, 7:
				if n := len(permits); n > 0 {
					permits[n-1].Done(drawFeedback(rt))
					permits = permits[:n-1]
				}
			default:
				if p, d := l.TryAcquire(key(rapid.IntRange(0, 2).Draw(rt, "key")),
					quotient.Weight(rapid.IntRange(1, 3).Draw(rt, "weight"))); d.OK {
					permits = append(permits, p)
				}
			}
			for k := range l.Keys() {
				boundedPaces(rt, k.Rules)
			}
		}
	})
}

func boundedPaces(rt *rapid.T, rules []quotient.RuleState) {
	slots := math.Inf(1)
	for _, x := range rules {
		if x.Name == "in-flight" {
			slots = x.Share
		}
		if x.Name != "adaptive" {
			continue
		}
		if x.Unit == "in-flight" && (x.Burst > max(1, slots) || x.Burst < 1) {
			rt.Fatalf("%v slots of %v", x.Burst, slots)
		}
		stop(rt, !(x.Pace > 0 && x.Pace <= x.Limit && x.Pace <= 1e12), "a pace out of bounds: %+v", x)
		if x.Left > x.Burst || math.IsNaN(x.Left) || math.IsInf(x.Left, -1) {
			rt.Fatalf("a bucket that holds what it cannot: %+v", x)
		}
		if x.Reset > time.Hour || x.Reset > 0 && x.ForgottenIn < x.Reset {
			rt.Fatalf("a pause of more than an hour, or that is forgotten before its end: %+v", x)
		}
	}
}

// diary is an adversary whose controllers, which it tells apart by their ceilings, note what they have
// answered last.
type diary struct {
	adversary.Policy
	answers map[float64]*answer
}

type answer struct {
	at   time.Duration
	pace policy.Pace
	new  bool
}

type diaryController struct {
	policy.Controller
	answers map[float64]*answer
}

func (d diary) New(seed uint64) policy.Controller {
	return diaryController{d.Policy.New(seed), d.answers}
}

func (l diaryController) Next(s policy.Sample, b policy.Bounds) policy.Pace {
	pace := l.Controller.Next(s, b)
	l.answers[b.Ceiling] = &answer{s.Now, pace, true}
	return pace
}

// promise is what one controller has said, worked out from its answers alone, and what was admitted since.
type promise struct {
	ledger
	ceiling     float64
	slots       bool
	pace        float64
	held        float64         // seconds, of slots
	pausedUntil time.Time       // nothing before it
	probe       time.Duration   // then one request in each, whatever it takes; 0: at the pace
	gates       []time.Duration // their beginnings and ends in turn, from base
	most        float64         // the largest ask
	base        time.Time
}

// from puts a fill rate in force from an instant on.
func (p *promise) from(at time.Time, rate float64) {
	for len(p.steps) > 0 && p.steps[len(p.steps)-1].at.After(at) {
		p.steps = p.steps[:len(p.steps)-1]
	}
	burst := max(1, 0.1*rate)
	if p.probe > 0 {
		burst = 1
	}
	p.steps = append(p.steps, step{at, rate, burst})
}

func (p *promise) fill() float64 {
	switch {
	case p.probe > 0:
		return float64(time.Second) / float64(p.probe)
	case !p.slots:
		return p.pace
	case p.held == 0, p.pace >= p.ceiling: // then the slots alone bound it
		return 1e12
	}
	return min(p.pace/p.held, 1e12)
}

// answered notes what a controller's answer comes to.
func (p *promise) answered(a *answer) {
	at := p.base.Add(a.at)
	if x := a.pace.Rate; x > 0 && !math.IsInf(x, 1) {
		p.pace = min(x, p.ceiling)
		p.pausedUntil, p.probe = time.Time{}, min(a.pace.Probe(), time.Hour)
		if wait := a.pace.NotBefore; wait > a.at {
			wait = min(wait, a.at+time.Hour)
			p.pausedUntil = p.base.Add(wait)
			p.gates = append(p.gates, a.at, wait)
		}
	}
	p.from(at, p.fill())
	if p.pausedUntil.After(at) {
		p.from(at, 0) // nothing accrues
		p.from(p.pausedUntil, p.fill())
	}
}

func (p *promise) admitted(rt *rapid.T, n int) {
	if n == 0 {
		return
	}
	if time.Now().Before(p.pausedUntil) {
		rt.Fatalf("ceiling %v: admitted %v before the instant of its controller", p.ceiling,
			time.Until(p.pausedUntil))
	}
	if p.probe > 0 {
		n = 1
	}
	p.add(n)
	p.most = max(p.most, float64(n))
}

// check holds every window against the integral, the burst and the debt of a call above the burst. For each
// pause the one comes on top that passes at its end, whatever was owed.
func (p *promise) check(rt *rapid.T) {
	p.extra = p.most - 1
	p.gated = func(a, b time.Time) (n float64) {
		for k := 0; k < len(p.gates); k += 2 {
			if !p.base.Add(p.gates[k+1]).Before(a) && !p.base.Add(p.gates[k]).After(b) {
				n += p.most
			}
		}
		return n
	}
	p.ledger.check(func(format string, args ...any) {
		rt.Fatalf("ceiling %v, "+format, append([]any{p.ceiling}, args...)...)
	})
}

// Whatever controllers answer, any window admits at most what each of them allows. That is the integral of
// its rate, or of its slots over the time that they are held, and a burst. In flight are at most its slots
// and one more.
func TestPropertyPacersKeepWhatControllersReturn(t *testing.T) {
	property(t, func(rt *rapid.T) {
		d := diary{drawAdversary(rt), map[float64]*answer{}}
		limit := quotient.Limit{InFlight: rapid.SampledFrom([]int{0, 3, 12}).Draw(rt, "slots"), Rates: []quotient.Rate{
			{Name: "r", Events: 40, Per: time.Second, Burst: 1e6},
			{Name: "t", Unit: "tokens", Events: 100, Per: time.Second, Burst: 1e6},
		}}
		if rapid.Bool().Draw(rt, "requests alone") {
			limit.Rates = limit.Rates[:1]
		}
		l := mustNew(rt, limit, quotient.Policy(d), quotient.BeyondShare(), few, fix(func(c *inside.Chance) {
			c.Phase, c.Hash = 1, func(string) uint64 { return 1 }
		}))
		promises := make([]*promise, 0, 3)
		for _, x := range l.Stats().Rules {
			if x.Pace > 0 {
				p := &promise{ceiling: x.Limit, slots: x.Unit == "in-flight", pace: x.Pace, base: time.Now()}
				p.from(time.Now(), p.fill())
				promises = append(promises, p)
			}
		}
		keptPromises(rt, l, d, promises)
		for _, p := range promises {
			p.check(rt)
		}
	})
}

type sent struct {
	quotient.Permit
	weight int
	at     time.Time
}

func keptPromises(rt *rapid.T, l *quotient.Limiter, d diary, promises []*promise) {
	var out []sent
	used := 0
	for range rapid.IntRange(1, 80).Draw(rt, "steps") {
		switch rapid.IntRange(0, 5).Draw(rt, "what") {
		case 0, 1:
			time.Sleep(min(drawPause(rt), 4*time.Second)) // so that nothing is forgotten
		case 2, 3:
			if n := len(out); n > 0 {
				k := rapid.IntRange(0, n-1).Draw(rt, "whose")
				answered(out[k], drawFeedback(rt), d, promises)
				used -= out[k].weight
				out = append(out[:k], out[k+1:]...)
			}
		default:
			weight, cost := rapid.IntRange(1, 2).Draw(rt, "weight"), 0
			opts := []quotient.CallOption{quotient.Weight(weight)}
			if len(l.Stats().Limit.Rates) > 1 {
				cost = rapid.IntRange(0, 3).Draw(rt, "cost")
				opts = append(opts, quotient.Cost("tokens", cost))
			}
			for range rapid.IntRange(1, 30).Draw(rt, "asks") {
				permit, dec := l.TryAcquire("k", opts...)
				if !dec.OK {
					break
				}
				out, used = append(out, sent{permit, weight, time.Now()}), used+weight
				passed(rt, promises, weight, cost, used)
			}
		}
	}
}

// answered hands feedback back, and works out what the controllers have made of it.
func answered(s sent, f policy.Feedback, d diary, promises []*promise) {
	s.Done(f)
	for _, p := range promises {
		if p.slots && f.Outcome == policy.Success {
			took := time.Since(s.at).Seconds()
			if p.held == 0 {
				p.held = took
			}
			p.held += (took - p.held) / 16
		}
		if a := d.answers[p.ceiling]; a != nil && a.new {
			a.new = false
			p.answered(a)
		}
	}
}

// passed notes one admission with all controllers that govern something of it.
func passed(rt *rapid.T, promises []*promise, weight, cost, used int) {
	for _, p := range promises {
		n := weight
		if p.ceiling == 100 {
			n = cost
		}
		p.admitted(rt, n)
		if most := math.Floor(p.pace) + 1; p.slots && used > weight && float64(used) > min(most, p.ceiling) {
			rt.Fatalf("%d in flight, %v learned slots", used, p.pace)
		}
	}
}
