package policy_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
	"pgregory.net/rapid"
)

// ramped is a controller of a Ramp and its pace.
type ramped struct {
	policy.Pace
	ctrl   policy.Controller
	bounds policy.Bounds
	now    time.Duration
}

func rampOf(p policy.Policy, ceiling float64) *ramped {
	r := &ramped{ctrl: p.New(1), bounds: policy.Bounds{Share: ceiling, Ceiling: ceiling}}
	r.tell(policy.Sample{})
	return r
}

func (r *ramped) tell(s policy.Sample) { s.Now = r.now; r.Pace = r.ctrl.Next(s, r.bounds) }

// second is one second in which so much is taken, and calls were held back or not. The rate is then that of
// the next one.
func (r *ramped) second(taken float64, paced bool) {
	r.now += time.Second
	r.tell(policy.Sample{Taken: taken, Paced: paced})
}

// wait is some time without a call.
func (r *ramped) wait(d time.Duration) { r.now += d; r.tell(policy.Sample{}) }

// A ramp from 10 to 20 in ten seconds. Each letter is a second, after the first one. f is full use, h half of
// it, l less, p nothing taken but held back, b all given back, w without a call. The digits are the rates
// after each, less 10.
func TestRampModes(t *testing.T) {
	for _, c := range []struct {
		mode       policy.RampMode
		play, want string
	}{
		{policy.RampScheduled, "fhlpwwwwwfff", "1 2 3 4 5 6 7 8 9 10 10 10"},
		{policy.RampRelaxed, "fhlpwwwwwfff", "1 2 3 4 4 4 4 4 4 5 6 7"},
		{policy.RampRelaxed, "wwwfwwl", "0 0 0 1 1 1 2"},
		{policy.RampOnlyIfUsed, "fhlpwwwwwfff", "1 2 2 2 2 2 2 2 2 3 4 5"},
		{policy.RampGoBack, "fhlpw", "1 2 1 0 0"},
		{policy.RampGoBack, "ffffffwwwwwwwwf", "1 2 3 4 5 6 6 6 6 6 4.5 4 3.5 3 4"},
		{policy.RampGoBack, "fffffflwwwwwwwwwwwwwwf",
			"1 2 3 4 5 6 5 5 5 5 5 4.5 4 3.5 3 2.5 2 1.5 1 0.5 0 1"},
		{policy.RampGoBack, "fffffffffffflff", "1 2 3 4 5 6 7 8 9 10 10 10 9 10 10"},
		{policy.RampRelaxed, "ffffffffffff", "1 2 3 4 5 6 7 8 9 10 10 10"},
	} {
		l := rampOf(policy.Ramp{Mode: c.mode, Start: 0.5, Over: 10 * time.Second}, 20)
		for i, want := range strings.Fields(c.want) {
			switch c.play[i] {
			case 'f':
				l.second(math.Floor(l.Rate), false)
			case 'h':
				l.second(math.Ceil(l.Rate/2), true)
			case 'l':
				l.second(math.Ceil(l.Rate/2)-1, true)
			case 'p':
				l.second(0, true)
			case 'w':
				l.second(0, false)
			}
			var more float64
			if err := json.Unmarshal([]byte(want), &more); err != nil {
				t.Fatal(err)
			}
			near(t, c.mode.String()+" "+c.play[:i+1], l.Rate, 10+more)
		}
	}
}

// Where whole events are rarer than seconds each second with a call counts as used, whether there was an
// event in it or not.
func TestRampFractions(t *testing.T) {
	for _, c := range []struct {
		ceiling, taken float64
		paced          bool
		rise           float64 // in tenths
	}{
		{1, 0, true, 1}, {1, 1, false, 1}, {1, 0, false, 0}, // from 0.5: no whole event
		{3, 1, true, 1}, {3, 0, true, 0}, // from 1.5: one whole event
		{11, 4, true, 0}, {11, 5, false, 1}, // from 5.5
	} {
		l := rampOf(policy.Ramp{Mode: policy.RampOnlyIfUsed, Start: 0.5, Over: 5 * time.Second, Threshold: 1},
			c.ceiling)
		l.second(c.taken, c.paced)
		near(t, "part", l.Rate/c.ceiling, 0.5+c.rise/10)
	}
	l := rampOf(policy.Ramp{Mode: policy.RampOnlyIfUsed, Start: 0.3, Over: 5 * time.Second, Threshold: 1},
		100)
	l.second(30, false)
	l.second(43, false)
	near(t, "43 of 44, which is a little less in floating point", l.Rate, 44)
}

func TestRampResumes(t *testing.T) {
	for _, c := range []struct {
		mode          policy.RampMode
		start, resume float64
		first, third  float64 // parts: at the beginning, and after two seconds without a call
	}{
		{policy.RampScheduled, 0.5, 0.8, 0.8, 0.9},
		{policy.RampScheduled, 0.5, 0.2, 0.5, 0.6},
		{policy.RampScheduled, 0.5, 1, 1, 1},
		{policy.RampScheduled, 1, 1, 1, 1},
		{policy.RampRelaxed, 0.5, 0.8, 0.8, 0.8},
		{policy.RampOnlyIfUsed, 0.5, 0.8, 0.8, 0.8},
		{policy.RampGoBack, 0.5, 0.8, 0.8, 0.75}, // a second past the cool-down
		{policy.RampGoBack, 0.5, 0, 0.5, 0.5},
		{policy.RampGoBack, 0.5, 7, 0.5, 0.5}, // no part at all
		{policy.RampGoBack, 0.5, math.NaN(), 0.5, 0.5},
	} {
		p := policy.Ramp{Mode: c.mode, Start: c.start, Over: 10 * time.Second, Back: 1, CoolDown: time.Second,
			Resume: c.resume}
		l := rampOf(p, 100)
		near(t, "the beginning", l.Rate, 100*c.first)
		l.wait(2 * time.Second)
		near(t, "two seconds later", l.Rate, 100*c.third)
	}
}

// Fields that are not set, or out of range, have defaults in New.
func TestRampDefaults(t *testing.T) {
	if l := rampOf(policy.Ramp{}, 100); l.Rate != 100 || l.Until != 0 {
		t.Errorf("the zero value's pace is %+v", l.Pace)
	}
	if l := rampOf(policy.Ramp{Over: -time.Hour}, 100); l.Rate != 100 || l.Until != 0 {
		t.Errorf("the pace of a ramp over less than nothing is %+v", l.Pace)
	}
	near(t, "an hour's ramp", rampOf(policy.Ramp{Over: time.Hour}, 100).Rate, 1)
	bad := policy.Ramp{Mode: 9, Start: 2, Over: 10 * time.Second, Threshold: -1, Back: math.NaN(),
		CoolDown: -1, Resume: math.Inf(1)}
	l := rampOf(bad, 100)
	near(t, "a start that is none", l.Rate, 1)
	l.wait(5 * time.Second)
	near(t, "half a ramp by the clock", l.Rate, 50.5)
	bad.Mode, bad.Start = policy.RampGoBack, 0.5
	l = rampOf(bad, 100)
	for range 4 {
		l.second(math.Ceil(l.Rate/2), false) // half is enough
	}
	near(t, "a ramp of halves", l.Rate, 70)
	l.wait(4 * time.Second)
	near(t, "at the end of the cool-down", l.Rate, 70)
	l.wait(time.Second)
	near(t, "a second later", l.Rate, 62.5)
	bad.CoolDown = time.Millisecond // less than a second means one
	l = rampOf(bad, 100)
	l.second(50, false)
	near(t, "a second after the call", l.Rate, 55)
}

func TestRampValidateNamesFieldAndValue(t *testing.T) {
	good := policy.Ramp{Mode: policy.RampGoBack, Start: 1, Over: time.Second, Threshold: 1, Back: 1,
		CoolDown: time.Second, Resume: 1}
	for _, r := range []policy.Ramp{{}, good} {
		if err := r.Validate(); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		spoil func(*policy.Ramp)
		want  string
	}{
		{func(r *policy.Ramp) { r.Mode = 4 }, "Ramp.Mode: there is no mode 4"},
		{func(r *policy.Ramp) { r.Over = -1 }, "Ramp.Over: -1ns is below 0"},
		{func(r *policy.Ramp) { r.CoolDown = -time.Second }, "Ramp.CoolDown: -1s is below 0"},
		{func(r *policy.Ramp) { r.Start = math.NaN() }, "Ramp.Start: NaN is not between 0 and 1"},
		{func(r *policy.Ramp) { r.Start = -0.1 }, "Ramp.Start: -0.1 is not between 0 and 1"},
		{func(r *policy.Ramp) { r.Threshold = 50 }, "Ramp.Threshold: 50 is not between 0 and 1"},
		{func(r *policy.Ramp) { r.Back = math.Inf(1) }, "Ramp.Back: +Inf is not between 0 and 1"},
		{func(r *policy.Ramp) { r.Resume = 1.5 }, "Ramp.Resume: 1.5 is not between 0 and 1"},
	} {
		r := good
		c.spoil(&r)
		if err := r.Validate(); err == nil || err.Error() != "policy: "+c.want {
			t.Errorf("%+v: %v, want %s", r, err, c.want)
		}
	}
}

func TestRampModeNames(t *testing.T) {
	for m, name := range []string{"scheduled", "relaxed", "only-if-used", "go-back"} {
		mode := policy.RampMode(m)
		text, err := json.Marshal(map[string]policy.RampMode{"mode": mode})
		if want := `{"mode":"` + name + `"}`; err != nil || string(text) != want || mode.String() != name {
			t.Errorf("mode %d: %s, %v, %s", m, text, err, mode)
		}
		var back struct{ Mode policy.RampMode }
		if err := json.Unmarshal(text, &back); err != nil || back.Mode != mode {
			t.Errorf("%s: mode %d, %v", text, back.Mode, err)
		}
	}
	if text, err := policy.RampMode(4).MarshalText(); err == nil || policy.RampMode(4).String() != "invalid" {
		t.Errorf("a mode that there is not is %q", text)
	}
	mode := policy.RampRelaxed
	for _, s := range []string{"", "Relaxed", "relaxed ", "resume", "invalid", strings.Repeat("x", 1<<20)} {
		if err := mode.UnmarshalText([]byte(s)); err == nil || mode != policy.RampRelaxed ||
			len(err.Error()) > 200 {
			t.Errorf("%.20q: mode %v, %v", s, mode, err)
		}
	}
}

// The controller is called again at the end of each of its seconds, which begin with its first call.
func TestRampIsConsultedAgain(t *testing.T) {
	l := rampOf(policy.Ramp{Over: 2 * time.Second}, 10)
	l.ctrl, l.now = policy.Ramp{Over: 2 * time.Second}.New(1), 300*time.Millisecond
	for _, c := range []struct {
		at, until float64
	}{{0.3, 1.3}, {0.3, 1.3}, {1.2, 1.3}, {1.3, 2.3}, {2, 2.3}, {9.9, 10.3}} {
		l.now = seconds(c.at)
		l.tell(policy.Sample{})
		if l.Until != seconds(c.until) || l.Saved != time.Second || l.NotBefore != 0 {
			t.Errorf("at %v s: %+v, want until %v s", c.at, l.Pace, c.until)
		}
	}
	wrong(t, l.Rate != 10, "at the top the rate is %v", l.Rate)
}

// The takes of one second count in any order. More given back than was taken, as of earlier seconds, is
// nothing.
func TestRampAddsUpASecond(t *testing.T) {
	for _, c := range []struct {
		taken []float64
		want  float64
	}{
		{[]float64{5}, 11}, {[]float64{4}, 10}, {[]float64{2, 2, 1}, 11}, {[]float64{8, -3}, 11},
		{[]float64{8, -4}, 10},
		{[]float64{2, -100, 5}, 11}, {[]float64{-100, 5}, 11}, {[]float64{5, math.NaN()}, 10},
		{[]float64{math.Inf(1)}, 11}, {[]float64{math.Inf(1), math.Inf(-1), 5}, 10},
	} {
		l := rampOf(policy.Ramp{Mode: policy.RampOnlyIfUsed, Start: 0.5, Over: 10 * time.Second}, 20)
		for _, x := range c.taken {
			l.tell(policy.Sample{Taken: x})
		}
		near(t, "in the same second", l.Rate, 10)
		l.wait(time.Second)
		near(t, "in the next", l.Rate, c.want)
		l.tell(policy.Sample{Taken: 100})
		l.wait(time.Second)
		near(t, "after one that is full", l.Rate, c.want+1)
	}
}

// Ceilings that are none, and the smallest and largest there are.
func TestRampCeilings(t *testing.T) {
	for _, c := range []struct{ ceiling, want float64 }{
		{math.Inf(1), 1e9}, {math.NaN(), 2.5}, {0, 2.5}, {-1, 2.5}, {math.Inf(-1), 2.5},
		{math.MaxFloat64, math.MaxFloat64 / 2}, {math.SmallestNonzeroFloat64, math.SmallestNonzeroFloat64},
	} {
		p := policy.Ramp{Start: 0.5, Over: time.Second}
		if got := rampOf(p, c.ceiling).Rate; got != c.want {
			t.Errorf("at a ceiling of %v the rate is %v, want %v", c.ceiling, got, c.want)
		}
	}
}

// A clock that goes back stands still meanwhile, and one that jumps by centuries stops nothing.
func TestRampOddClocks(t *testing.T) {
	l := rampOf(policy.Ramp{Mode: policy.RampRelaxed, Start: 0.5, Over: 10 * time.Second}, 20)
	l.second(1, false)
	l.now -= time.Hour
	l.tell(policy.Sample{Taken: 1})
	near(t, "an hour earlier", l.Rate, 11)
	l.second(1, false)
	near(t, "and a second later", l.Rate, 12)
	for i, at := range []time.Duration{math.MaxInt64, math.MinInt64, math.MaxInt64} {
		l.now = at
		l.tell(policy.Sample{Taken: 1})
		near(t, "at the ends of time", l.Rate, []float64{13, 13, 14}[i])
	}
	wrong(t, l.Until != math.MaxInt64, "asked again at %v", l.Until)
}

func TestRampAllocatesNothing(t *testing.T) {
	l := rampOf(policy.Ramp{Mode: policy.RampGoBack, Over: time.Hour}, 20)
	if n := testing.AllocsPerRun(100, func() { l.second(3, true) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

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

// Samples that say nothing change nothing later, nor does what an upstream says: the pace follows from what was taken in
// which second.
func TestPropertyRampIsPureInTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyRamp(t)
		plain, asked := rampOf(p, 10), rampOf(p, 10)
		for _, a := range acts(t) {
			for i := range a.extra { // asked knows the end of each second, and more often
				asked.now = plain.now + a.after*time.Duration(i+1)/4
				asked.tell(policy.Sample{Taken: given(i == 0, a.taken), Paced: i == 0 && a.paced, Cost: 3,
					Outcome: policy.Outcome(i), RetryAfter: time.Minute, Quota: policy.Quota{Limit: 1, Reset: time.Hour}})
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
	for _, t := range append([]string{
		"0A", "0a", "000\xff0000000", "07000x0a0007000", "0\x0000202000202", "0\x000000000000000",
		"0000000000000\x020", "0a000a0a000a0000000", "0000000\x020000\x00\t00\xff000",
		"000\xfd000000000000\xfe0000000000000", "000000000000000A\x000000000000000000000000000",
		"00000000000\x00\x00\x000000\aA00000000A000000000",
		"00000\x00\x00000000\x04\xff00\x00a00000000000000A\xfe0000000",
	}, tapes...) {
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

// vector is a row of testdata/ramp-vectors.json: one pod of several that share a pool of one-second windows.
type vector struct {
	Test    string
	Max     float64 // tokens a second, over all pods
	Min     float64
	Ramp    float64 `json:"ramp_s"`
	Pods    int
	Mode    []any     // its name and its parameters
	Ask     [][2]*int // how many (null: all there are), and the seconds that pass afterwards
	Deposit []int     // given back right after each call
	Want    []int
}

func vectors(t *testing.T) (rows []vector) {
	data, err := os.ReadFile("testdata/ramp-vectors.json")
	if err == nil {
		err = json.Unmarshal(data, &rows)
	}
	if err != nil || len(rows) != 51 {
		t.Fatalf("%d rows of 51: %v", len(rows), err)
	}
	return rows
}

// ramp is the policy of a row.
func (v *vector) ramp(t *testing.T) policy.Ramp {
	r := policy.Ramp{Start: v.Min / v.Max, Over: seconds(v.Ramp)}
	percent := func(i int) float64 { return v.Mode[i].(float64) / 100 }
	switch v.Mode[0] {
	case "scheduled":
		r.Mode = policy.RampScheduled
	case "relaxed":
		r.Mode = policy.RampRelaxed
	case "only_if_used":
		r.Mode, r.Threshold = policy.RampOnlyIfUsed, percent(1)
	case "go_back_n":
		r.Mode, r.Threshold, r.Back = policy.RampGoBack, percent(3), percent(2)
		r.CoolDown = seconds(v.Mode[1].(float64))
	default:
		t.Fatalf("unknown mode %v", v.Mode)
	}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	return r
}

// windows is a pool of one-second windows on top of a controller. It asks the controller again when a second
// is over and a request comes, as a limiter does.
type windows struct {
	ctrl    policy.Controller
	bounds  policy.Bounds
	now     time.Duration
	until   time.Duration
	left    int // whole tokens of this window
	granted int // in this window, less what was given back
	sample  policy.Sample
}

func newWindows(p policy.Policy, ceiling float64, at time.Duration) *windows {
	w := &windows{ctrl: p.New(1), bounds: policy.Bounds{Share: ceiling, Ceiling: ceiling}, now: at}
	w.open()
	return w
}

// open begins a window. The rest of the last one is lost.
func (w *windows) open() {
	w.sample.Now, w.sample.Sent = w.now, w.now
	pace := w.ctrl.Next(w.sample, w.bounds)
	w.until, w.sample = pace.Until, policy.Sample{}
	w.left, w.granted = int(math.Floor(pace.Rate*(1+1e-9))), 0
}

// take takes as many of n as there are.
func (w *windows) take(n int) int {
	if w.now >= w.until && w.until > 0 {
		w.open()
	}
	got := min(n, w.left)
	w.left, w.granted = w.left-got, w.granted+got
	w.sample.Taken += float64(got)
	w.sample.Paced = w.sample.Paced || got < n
	return got
}

// deposit gives n back, never more than was granted.
func (w *windows) deposit(n int) {
	n = min(n, w.granted)
	w.left, w.granted = w.left+n, w.granted-n
	w.sample.Taken -= float64(n)
}

// play plays a row and returns what each call got.
func (v *vector) play(w *windows) (got []int) {
	for i, ask := range v.Ask {
		n := math.MaxInt32
		if ask[0] != nil {
			n = *ask[0]
		}
		got = append(got, w.take(n))
		w.deposit(v.Deposit[i])
		w.now += time.Duration(*ask[1]) * time.Second
	}
	return got
}

// All rows come out as they stand, whenever the clock began.
func TestRampVectors(t *testing.T) {
	since1970 := 56 * 365 * 24 * time.Hour
	for i, v := range vectors(t) {
		for _, start := range []time.Duration{0, since1970, since1970 + 700*time.Millisecond} {
			if got := v.play(newWindows(v.ramp(t), v.Max/float64(v.Pods), start)); !slices.Equal(got, v.Want) {
				t.Errorf("row %d, %s, %v, %v to %v by %d, from %v on:\ngot  %v\nwant %v",
					i, v.Test, v.Mode, v.Min, v.Max, v.Pods, start, got, v.Want)
			}
		}
	}
}
