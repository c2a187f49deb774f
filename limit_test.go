package quotient

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"
)

const year = 365 * 24 * time.Hour

func TestValidateAccepts(t *testing.T) {
	for _, limit := range []Limit{
		{},
		Limit{Deny: true},
		{InFlight: 1},
		{InFlight: maxInFlight},
		rated(PerSecond(0.5), PerMinute(10), PerHour(100)),
		rated(Every(3 * time.Second)),
		rated(Rate{Events: 1, Per: 3650 * 24 * time.Hour}),
		rated(Rate{Events: 1, Per: math.MaxInt64}),
		rated(Rate{Events: 0.001, Per: math.MaxInt64}),
		rated(Rate{Events: 0.001, Per: math.MaxInt64, Aligned: true}),
		rated(Rate{Events: 1.1e-13, Per: time.Second}),
		rated(Rate{Events: 1e9, Per: time.Second}),
		rated(Rate{Events: maxEvents, Per: time.Second}),
		rated(Rate{Events: 1, Per: time.Second, Burst: maxBurst}),
		rated(Rate{Events: 1, Per: time.Millisecond, Aligned: true}),
		rated(Rate{Events: 1, Per: time.Second}, Rate{Events: 1, Per: time.Second}),
		rated(Rate{Name: "a", Events: 1, Per: time.Second},
			Rate{Name: "a", Unit: "tokens", Events: 1, Per: time.Second}),
	} {
		if err := limit.Validate(); err != nil {
			t.Errorf("%+v: %v", limit, err)
		}
	}
}

// badLimits are limits that cannot be set, with what their errors must name.
var badLimits = []struct {
	limit        Limit
	field, value string
}{
	{Limit{InFlight: -1}, "Limit.InFlight", "-1"},
	{Limit{InFlight: maxInFlight + 1}, "Limit.InFlight", "1073741825"},
	{Limit{InFlight: math.MinInt}, "Limit.InFlight", "-9223372036854775808"},
	{Limit{Rates: make([]Rate, maxRates+1)}, "Limit.Rates", "17"},
	{rated(PerSecond(math.NaN())), "Rates[0].Events", "NaN"},
	{rated(PerSecond(math.Inf(1))), "Rates[0].Events", "+Inf"},
	{rated(PerSecond(math.Inf(-1))), "Rates[0].Events", "-Inf"},
	{rated(PerSecond(0)), "Rates[0].Events", "0"},
	{rated(PerSecond(-3)), "Rates[0].Events", "-3"},
	{rated(PerSecond(1e300)), "Rates[0].Events", "1e+300"},
	{rated(PerSecond(1), PerMinute(-7)), "Rates[1].Events", "-7"},
	{rated(Rate{Events: 1}), "Rates[0].Per", "0s"},
	{rated(Every(-time.Second)), "Rates[0].Per", "-1s"},
	{rated(Every(math.MinInt64)), "Rates[0].Per", "-2562047h"},
	{rated(perSecond(1, -2)), "Rates[0].Burst", "-2"},
	{rated(perSecond(1, maxBurst+1)), "Rates[0].Burst", "1099511627777"},
	{rated(perSecond(1, math.MaxInt)), "Rates[0].Burst", "9223372036854775807"},
	{rated(Rate{Events: 5, Per: time.Second, Burst: 3, Aligned: true}), "Rates[0].Burst", "3"},
	{rated(Rate{Events: 0.0009, Per: time.Second, Aligned: true}), "Rates[0].Events", "0.0009"},
	{rated(Rate{Events: 5, Per: time.Second, Counted: true}), "Rates[0].Counted", "true"},
	{rated(Rate{Events: 5, Per: time.Microsecond, Aligned: true}), "Rates[0].Per", "1µs"},
	{rated(Rate{Events: 1e12, Per: time.Millisecond}), "Rates[0].Events", "1e+12 per 1ms"},
	{rated(PerSecond(5e-324)), "Rates[0].Events", "5e-324 per 1s"}, // a millionth of it underflows to 0
	{rated(Rate{Events: 5e-324, Per: math.MaxInt64}), "Rates[0].Events", "5e-324 per 2562047h47m16.8"},
	{rated(Rate{Events: 0.00099999, Per: math.MaxInt64}), "Rates[0].Events", "0.00099999 per 2562047h"},
	{rated(PerSecond(1), Rate{Unit: "x", Events: 1e-300, Per: time.Nanosecond}), "Rates[1].Events",
		"1e-300 per 1ns"},
	{rated(Rate{Events: 1e-13, Per: time.Second, Burst: 1}), "Rates[0].Events", "1e-13 per 1s"},
	{rated(PerSecond(1), PerSecond(2)), "Rates[1].Name", `"second"`},
	{rated(Rate{Name: "rate 2", Events: 1, Per: time.Hour}, Rate{Events: 1, Per: time.Hour}), "Rates[1].Name",
		`"rate 2"`},
}

func TestValidateNamesFieldAndValue(t *testing.T) {
	for _, c := range badLimits {
		says(t, c.limit.Validate(), "quotient: ", c.field, c.value)
	}
}

func TestNewRefusesABadLimit(t *testing.T) {
	for _, c := range badLimits {
		l, err := New(c.limit)
		if l != nil {
			t.Errorf("%+v: got a limiter", c.limit)
		}
		says(t, err, c.field, c.value)
	}
}

// Failure mode 1: a value that is refused changes nothing, neither the limit nor its state.
func TestSetLimitKeepsTheOldLimit(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 3)))
		wants(t, l, "k", 3)
		for _, c := range badLimits {
			says(t, l.SetLimit(c.limit), c.field, c.value)
			wants(t, l, "k", 0)
			wants(t, l, fmt.Sprint("new after ", c.field, c.value), 3)
		}
		if got := l.Stats().Limit.Rates; !slices.Equal(got, []Rate{perSecond(1, 3)}) {
			t.Errorf("the limit is now %+v", got)
		}
		time.Sleep(2 * time.Second)
		wants(t, l, "k", 2)
	})
}

func TestOverrideRefusesABadLimit(t *testing.T) {
	l := limiterOf(t, rated(perSecond(1, 3)))
	for _, c := range badLimits {
		says(t, l.Override("k", &c.limit), "quotient: ", c.field, c.value)
	}
	if n := len(l.Overrides()); n != 0 {
		t.Errorf("%d keys have a limit of their own", n)
	}
}

func TestLimiterSharesNoMemoryWithItsCaller(t *testing.T) {
	rates := []Rate{perSecond(1, 3)}
	l := limiterOf(t, Limit{Rates: rates})
	rates[0].Events = math.NaN()
	l.Stats().Limit.Rates[0].Events = math.NaN()
	l.Stats().Limit.Rates[0].Events = math.NaN()
	if got := l.Stats().Limit.Rates[0]; got != perSecond(1, 3) {
		t.Errorf("the limit is now %+v", got)
	}
}

func TestOptionsRefuseBadValues(t *testing.T) {
	for _, c := range []struct {
		opt   Option
		words []string
	}{
		{MaxKeys(0), []string{"MaxKeys", "0"}},
		{MaxKeys(-1), []string{"MaxKeys", "-1"}},
		{MaxKeys(maxKeys + 1), []string{"MaxKeys", "1073741825"}},
		{MaxWait(-1), []string{"MaxWait", "-1ns"}},
		{MaxWaiting(-1, 0), []string{"MaxWaiting for a key", "-1"}},
		{MaxWaiting(0, -2), []string{"MaxWaiting in total", "-2"}},
		{MaxHold(-time.Second), []string{"MaxHold", "-1s"}},
		{Policy(nil), []string{"Policy"}},
		{Logger(nil), []string{"Logger"}},
		{StartPool(Pool{}), []string{"Pool.Replicas", "0"}},
		{StartPool(Pool{Replicas: 2, Ordinal: 3}), []string{"Pool.Ordinal", "3"}},
		{HoldDown(-1), []string{"HoldDown", "-1ns"}},
		{HintMaxAge(-1), []string{"HintMaxAge", "-1ns"}},
	} {
		l, err := New(Limit{}, c.opt)
		if l != nil {
			t.Errorf("%q: got a limiter", c.words)
		}
		says(t, err, append(c.words, "quotient: ")...)
	}
}

func TestDenyRefusesAll(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Deny: true})
		wants(t, l, "k", 0)
		refusedFor(t, l, ReasonDenied, "k")
		if _, n := l.TryAcquireUpTo("k", 5); n != 0 {
			t.Errorf("got %d of 5", n)
		}
		asking(t, l, "k").refusedAfter(t, 0, ReasonDenied)
		if !l.Stats().Limit.Deny || (Limit{}).Deny {
			t.Error("the statistics take Deny for the zero limit")
		}
	})
}

// A rule beside Deny would mean that some calls are admitted.
func TestDenyStandsAlone(t *testing.T) {
	l := limiterOf(t, rated(PerSecond(1)))
	for _, limit := range []Limit{{Deny: true, InFlight: 5}, {Deny: true, Rates: []Rate{PerSecond(1)}}} {
		says(t, limit.Validate(), "Limit.Deny", "true")
		says(t, l.SetLimit(limit), "Limit.Deny")
		says(t, l.Override("k", &limit), "Limit.Deny")
	}
	wants(t, l, "k", 1)
}

func TestFromRate(t *testing.T) {
	for _, c := range []struct {
		limit rate.Limit
		burst int
		words []string // of the error; none: valid
	}{
		{100, 20, nil},
		{rate.Every(time.Minute), 1, nil},
		{0.001, 1 << 30, nil},
		{rate.Inf, 1, []string{"Rates[0].Events"}},
		{0, 1, []string{"Rates[0].Events", "0"}},
		{-1, 1, []string{"Rates[0].Events", "-1"}},
		{1, 0, []string{"Rates[0].Burst", "-1"}},
		{1, -7, []string{"Rates[0].Burst", "-7"}},
	} {
		l, err := New(Rates(FromRate(c.limit, c.burst)))
		if len(c.words) > 0 {
			says(t, err, c.words...)
			continue
		}
		must(t, err)
		r := l.Stats().Rules[0]
		if r.Limit != float64(c.limit) || r.Burst != float64(c.burst) || r.Left != float64(c.burst) {
			t.Errorf("%v, burst %d: %+v", c.limit, c.burst, r)
		}
	}
}

func TestZeroLimitLimitsNothing(t *testing.T) {
	l := limiterOf(t, Limit{})
	for range 1000 {
		if !l.Allow("k") {
			t.Fatal("refused")
		}
	}
	if _, n := l.TryAcquireUpTo("k", 12); n != 12 {
		t.Errorf("got %d of 12", n)
	}
}

// A rate that never decides is warned of once, where a limit is set, and is no error.
func TestWarnsOfNeedlessRates(t *testing.T) {
	second, minute := PerSecond(10), PerMinute(100)
	window := func(events float64, per time.Duration) Rate {
		return Rate{Name: "window", Events: events, Per: per, Aligned: true}
	}
	for _, c := range []struct {
		rates []Rate
		want  string // the rate that never decides
	}{
		{[]Rate{second, PerHour(1000)}, ""},
		{[]Rate{second, minute}, ""},
		{[]Rate{second, PerMinute(600)}, "minute"},
		{[]Rate{PerMinute(600), second}, "minute"},
		{[]Rate{second, PerMinute(599)}, ""},
		{[]Rate{second, {Name: "same", Events: 10, Per: time.Second}}, "same"},
		{[]Rate{second, {Name: "small burst", Events: 600, Per: time.Minute, Burst: 9}}, "second"},
		{[]Rate{second, {Name: "small burst", Events: 599, Per: time.Minute, Burst: 11}}, ""},
		{[]Rate{second, {Name: "other", Unit: "tok", Events: 1000, Per: time.Second}}, ""},
		{[]Rate{second, Every(100 * time.Millisecond)}, "second"},
		{[]Rate{second, window(609, time.Minute)}, ""},
		{[]Rate{second, window(610, time.Minute)}, "window"},
		{[]Rate{second, window(610.5, time.Minute), {Name: "free", Unit: "tok", Events: 1, Per: 1}},
			"window"},
		{[]Rate{window(5, time.Second), second}, "second"},
		{[]Rate{window(5.1, time.Second), second}, ""},
		{[]Rate{window(100, time.Minute), {Name: "hours", Events: 6000, Per: time.Hour, Aligned: true}},
			"hours"},
		{[]Rate{window(100, time.Minute), {Name: "hours", Events: 5999, Per: time.Hour, Aligned: true}}, ""},
		{[]Rate{window(10, 7*time.Second), {Name: "odd", Events: 34, Per: 10 * time.Second, Aligned: true}},
			""},
		{[]Rate{window(10, 7*time.Second), {Name: "odd", Events: 35, Per: 10 * time.Second, Aligned: true}},
			"odd"},
	} {
		row(t, fmt.Sprint(c.rates), func(t *testing.T) {
			var text strings.Builder
			log := slog.New(slog.NewTextHandler(&text, nil))
			limit := Rates(c.rates...)
			l := limiterOf(t, limit, Logger(log))
			must(t, l.SetLimit(limit))
			must(t, l.Override("k", &limit))
			must(t, l.Override("k", nil))
			limiterOf(t, Limit{}, Logger(log), Plans(map[string]Limit{"p": limit}))
			want := 0
			if c.want != "" {
				want = 4
			}
			got := strings.Count(text.String(), "level=WARN msg=\"rate never decides\" ")
			if got != want || strings.Count(text.String(), "rate=\""+c.want+": ") < want ||
				strings.Count(text.String(), " key=k rate=") != want/4 ||
				strings.Count(text.String(), " plan=p rate=") != want/4 {
				t.Errorf("got %d warnings, want %d of %q:\n%s", got, want, c.want, &text)
			}
		})
	}
}

// Without a rate that is needless all calls fare as with it.
func TestPropertyNeedlessRates(t *testing.T) {
	property(t, func(rt *rapid.T) {
		b := drawRate(rt, "b")
		if rapid.Bool().Draw(rt, "windows") {
			b.Aligned, b.Burst = true, 0
		}
		factor := func(label string) float64 {
			return rapid.SampledFrom([]float64{1, 1.5, 2, 3, 3.5}).Draw(rt, label)
		}
		a := Rate{Name: "a", Per: time.Duration(factor("longer") * float64(b.Per))}
		a.Events = b.perSecond() * a.Per.Seconds() * factor("more")
		if a.Aligned = rapid.IntRange(0, 2).Draw(rt, "a windows") == 0; !a.Aligned {
			a.Burst = int(b.burst() * factor("more burst"))
		}
		if !a.needless(b) {
			return
		}
		n := 1 // the shares of windows are whole events
		if !a.Aligned && !b.Aligned {
			n = rapid.IntRange(1, 3).Draw(rt, "replicas")
		}
		with, without := mustNew(rt, Rates(a, b), Replicas(n)), mustNew(rt, Rates(b), Replicas(n))
		edges := []time.Duration{time.Millisecond, b.Per - time.Millisecond, b.Per / 2, drawPause(rt)}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			time.Sleep(rapid.SampledFrom(edges).Draw(rt, "pause"))
			most := rapid.SampledFrom([]int{1, 2, 1000}).Draw(rt, "at most")
			_, x := with.TryAcquireUpTo("k", most)
			_, y := without.TryAcquireUpTo("k", most)
			if x != y {
				rt.Fatalf("%v beside %v: got %v with it and %v without", a, b, x, y)
			}
		}
	})
}
