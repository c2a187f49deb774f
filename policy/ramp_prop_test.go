package policy_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/policy"
)

// anyRamp is a ramp that Validate accepts.
func anyRamp(t *rapid.T) policy.Ramp {
	part := func(name string) float64 {
		return rapid.OneOf(rapid.Float64Range(0, 1), rapid.SampledFrom([]float64{0, 1})).Draw(t, name)
	}
	r := policy.Ramp{
		Mode: policy.RampMode(rapid.IntRange(0, 3).Draw(t, "mode")), Start: part("start"),
		Threshold: part("threshold"),
		Over:      time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "over")), Back: part("back"),
		CoolDown: time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "cool-down")),
		Resume:   part("resume"),
	}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	return r
}

// least is the part that a ramp starts at.
func least(r policy.Ramp) float64 {
	switch {
	case r.Over == 0:
		return 1
	case r.Start == 0:
		return 0.01
	}
	return r.Start
}

// act is what happens in one second.
type act struct {
	taken float64
	paced bool
	after time.Duration // until the next
	extra int           // samples that say nothing, meanwhile
}

func acts(t *rapid.T) []act {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) act {
		return act{
			float64(rapid.IntRange(-2, 12).Draw(t, "taken")), rapid.Bool().Draw(t, "paced"),
			time.Duration(rapid.Int64Range(0, int64(8*time.Second)).Draw(t, "after")),
			rapid.IntRange(0, 3).Draw(t, "extra"),
		}
	}), 1, 40).Draw(t, "acts")
}

// The rate is a part of the ceiling from Start to all of it. A ramp without falls loses a rise only when the
// events that it rose by are given back. Without a call none rises after the first second, but for the
// clock's.
func TestPropertyRampStaysOnItsSlope(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyRamp(t)
		ceiling := math.Exp(rapid.Float64Range(-5, 10).Draw(t, "ln ceiling"))
		l := rampOf(p, ceiling)
		slope := math.Inf(1)
		if p.Over > 0 {
			slope = (1 - least(p)) * ceiling / p.Over.Seconds()
		}
		for _, a := range acts(t) {
			before, at := l.Rate, l.now
			l.now += a.after
			l.tell(policy.Sample{Taken: a.taken, Paced: a.paced})
			near := 1e-9 * ceiling
			switch passed := (l.now - at).Seconds(); {
			case l.Rate < least(p)*ceiling-near || l.Rate > ceiling:
				t.Fatalf("%+v: the rate is %v of %v", p, l.Rate, ceiling)
			case l.Rate < before-near && p.Mode != policy.RampGoBack && a.taken >= 0:
				t.Fatalf("%+v: the rate falls from %v to %v", p, before, l.Rate)
			case p.Mode != policy.RampScheduled && l.Rate > before+slope+near:
				t.Fatalf("%+v: the rate jumps from %v to %v", p, before, l.Rate)
			case l.Rate > before+slope*(passed+1)+near:
				t.Fatalf("%+v: the rate rises from %v to %v in %v s", p, before, l.Rate, passed)
			}
			before = l.Rate
			for range a.extra {
				l.wait(a.after)
				if p.Mode != policy.RampScheduled && l.Rate > before+near && a.after >= time.Second {
					t.Fatalf("%+v: without a call it rises from %v to %v", p, before, l.Rate)
				}
			}
		}
	})
}

// Samples that say nothing change nothing later: the pace follows from what was taken in which second.
func TestPropertyRampIsPureInTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyRamp(t)
		plain, asked := rampOf(p, 10), rampOf(p, 10)
		for _, a := range acts(t) {
			for i := range a.extra { // asked knows the end of each second, and more often
				asked.now = plain.now + a.after*time.Duration(i+1)/4
				asked.tell(policy.Sample{Taken: given(i == 0, a.taken), Paced: i == 0 && a.paced})
			}
			plain.now += a.after
			asked.now = plain.now
			plain.tell(policy.Sample{Taken: a.taken, Paced: a.paced})
			asked.tell(policy.Sample{Taken: given(a.extra == 0, a.taken), Paced: a.extra == 0 && a.paced})
			if plain.Pace != asked.Pace {
				t.Fatalf("%+v: %+v; asked more often %+v", p, plain.Pace, asked.Pace)
			}
		}
	})
}

func given(yes bool, x float64) float64 {
	if yes {
		return x
	}
	return 0
}

// judgeRamp returns the promise of a pace that is broken, whatever samples the controller got.
func judgeRamp(s policy.Sample, b policy.Bounds, p, twin policy.Pace) string {
	switch {
	case p != twin:
		return "the same samples give another pace"
	case !(p.Rate > 0) || math.IsInf(p.Rate, 1):
		return "the rate is not finite and positive"
	case b.Ceiling > 0 && p.Rate > b.Ceiling:
		return "the rate is above the ceiling"
	case p.NotBefore != 0:
		return "it shuts a gate"
	case p.Until != 0 && (p.Until <= s.Now && s.Now < math.MaxInt64 || p.Until-s.Now > time.Second):
		return "the end of the second is not within the next one"
	}
	return ""
}

// FuzzRamp holds what a ramp promises, for any samples, bounds and fields.
func FuzzRamp(f *testing.F) {
	for _, t := range tapes {
		f.Add([]byte(t))
	}
	for seed := range uint64(20) { // and long lives
		life, random := make([]byte, 1000), rand.New(rand.NewPCG(seed, 0))
		for i := range life {
			life[i] = byte(random.Uint32())
		}
		f.Add(life)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := tape(data)
		r := policy.Ramp{Mode: policy.RampMode(p.next() % 5), Start: p.number(), Over: p.span(),
			Threshold: p.number(), Back: p.number(), CoolDown: p.span(), Resume: p.number()}
		ctrl, twin := r.New(1), r.New(2)
		s, b := policy.Sample{}, policy.Bounds{Ceiling: p.number()}
		for len(p) > 0 {
			if broken := judgeRamp(s, b, ctrl.Next(s, b), twin.Next(s, b)); broken != "" {
				t.Fatalf("%+v: %s, at %+v under %+v", r, broken, s, b)
			}
			if s = p.sample(s.Now); s.Outcome == 7 {
				b.Ceiling = p.number()
			}
			s.Taken = p.number()
		}
	})
}
