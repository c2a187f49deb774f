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
)

const year = 365 * 24 * time.Hour

func TestValidateAccepts(t *testing.T) {
	for _, limit := range []Limit{
		{},
		Limit{Deny: true},
		{InFlight: 1},
		{InFlight: maxInFlight},
		Rates(PerSecond(0.5), PerMinute(10), PerHour(100)),
		Rates(Every(3 * time.Second)),
		Rates(Rate{Events: 1, Per: 3650 * 24 * time.Hour}),
		Rates(Rate{Events: 1, Per: math.MaxInt64}),
		Rates(Rate{Events: 0.001, Per: math.MaxInt64}),
		Rates(Rate{Events: 0.001, Per: math.MaxInt64, Kind: Window}),
		Rates(Rate{Events: 1.1e-13, Per: time.Second}),
		Rates(Rate{Events: 1e9, Per: time.Second}),
		Rates(Rate{Events: maxEvents, Per: time.Second}),
		Rates(Rate{Events: 1, Per: time.Second, Burst: maxAmount}),
		Rates(Rate{Events: 1, Per: time.Millisecond, Kind: Window}),
		Rates(Rate{Events: 1, Per: 48 * time.Hour, Kind: Window, Zone: "Europe/Berlin"}),
		Rates(Rate{Events: 1, Per: 7 * 24 * time.Hour, Kind: CountedWindow, Zone: "UTC"}),
		Rates(Rate{Events: 1, Per: time.Second}, Rate{Events: 1, Per: time.Second}),
		Rates(Rate{Name: "a", Events: 1, Per: time.Second},
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
	{Limit{InFlight: math.MinInt}, "Limit.InFlight", fmt.Sprint(math.MinInt)},
	{Limit{Rates: make([]Rate, maxRates+1)}, "Limit.Rates", "17"},
	{Rates(PerSecond(math.NaN())), "Rates[0].Events", "NaN"},
	{Rates(PerSecond(math.Inf(1))), "Rates[0].Events", "+Inf"},
	{Rates(PerSecond(math.Inf(-1))), "Rates[0].Events", "-Inf"},
	{Rates(PerSecond(0)), "Rates[0].Events", "0"},
	{Rates(PerSecond(-3)), "Rates[0].Events", "-3"},
	{Rates(PerSecond(1e300)), "Rates[0].Events", "1e+300"},
	{Rates(PerSecond(1), PerMinute(-7)), "Rates[1].Events", "-7"},
	{Rates(Rate{Events: 1}), "Rates[0].Per", "0s"},
	{Rates(Every(-time.Second)), "Rates[0].Per", "-1s"},
	{Rates(Every(math.MinInt64)), "Rates[0].Per", "-2562047h"},
	{Rates(perSecond(1, -2)), "Rates[0].Burst", "-2"},
	{Rates(Rate{Events: 5, Per: time.Second, Burst: 3, Kind: Window}), "Rates[0].Burst", "3"},
	{Rates(Rate{Events: 0.0009, Per: time.Second, Kind: Window}), "Rates[0].Events", "0.0009"},
	{Rates(Rate{Events: 5, Per: time.Second, Burst: 2, Kind: Paced}), "Rates[0].Burst", "2 on a paced rate"},
	{Rates(Rate{Events: 5, Per: time.Second, Kind: 4}), "Rates[0].Kind", "Kind(4)"},
	{Rates(Rate{Events: 5, Per: time.Microsecond, Kind: Window}), "Rates[0].Per", "1µs"},
	{Rates(Rate{Events: 5, Per: 24 * time.Hour, Zone: "Europe/Berlin"}), "Rates[0].Zone", `"Europe/Berlin" on a bucket`},
	{Rates(Rate{Events: 5, Per: time.Hour, Kind: Window, Zone: "Europe/Berlin"}), "Rates[0].Zone",
		`"Europe/Berlin" on a window of 1h0m0s`},
	{Rates(Rate{Events: 5, Per: 24 * time.Hour, Kind: Window, Zone: "Europe/Berln"}), "Rates[0].Zone", `"Europe/Berln"`},
	{Rates(Rate{Events: 5, Per: 24 * time.Hour, Kind: CountedWindow, Zone: "Local"}), "Rates[0].Zone", `"Local"`},
	{Rates(Rate{Events: 1e12, Per: time.Millisecond}), "Rates[0].Events", "1e+12 per 1ms"},
	{Rates(PerSecond(5e-324)), "Rates[0].Events", "5e-324 per 1s"}, // a millionth of it underflows to 0
	{Rates(Rate{Events: 5e-324, Per: math.MaxInt64}), "Rates[0].Events", "5e-324 per 2562047h47m16.8"},
	{Rates(Rate{Events: 0.00099999, Per: math.MaxInt64}), "Rates[0].Events", "0.00099999 per 2562047h"},
	{Rates(PerSecond(1), Rate{Unit: "x", Events: 1e-300, Per: time.Nanosecond}), "Rates[1].Events",
		"1e-300 per 1ns"},
	{Rates(Rate{Events: 1e-13, Per: time.Second, Burst: 1}), "Rates[0].Events", "1e-13 per 1s"},
	{Rates(PerSecond(1), PerSecond(2)), "Rates[1].Name", `"second"`},
	{Rates(Rate{Name: "rate 2", Events: 1, Per: time.Hour}, Rate{Events: 1, Per: time.Hour}), "Rates[1].Name",
		`"rate 2"`},
}

// beyond are weights, costs and bursts that are too large. There is none where an int has 32 bits.
var beyond = slices.DeleteFunc([]int{min(maxAmount+1, math.MaxInt), math.MaxInt},
	func(n int) bool { return n <= maxAmount })

func TestValidateNamesFieldAndValue(t *testing.T) {
	for _, n := range beyond {
		says(t, Rates(perSecond(1, n)).Validate(), "Rates[0].Burst", fmt.Sprint(n))
	}
	for _, c := range badLimits {
		says(t, c.limit.Validate(), "quotient: ", c.field, c.value)
		l, err := New(c.limit)
		is(t, "a limiter beside an error", l, nil)
		says(t, err, c.field, c.value)
	}
}

// A value that is refused changes nothing, neither the limit nor its state.
func TestSetLimitKeepsTheOldLimit(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 3)))
		wants(t, l, "k", 3)
		for _, c := range badLimits {
			says(t, l.SetLimit(c.limit), c.field, c.value)
			says(t, l.Override("k", &c.limit, 0), "quotient: ", "Override", c.field, c.value)
			wants(t, l, "k", 0)
			wants(t, l, fmt.Sprint("new after ", c.field, c.value), 3)
		}
		stats(t, l, "Limit", Rates(perSecond(1, 3)))
		time.Sleep(2 * time.Second)
		wants(t, l, "k", 2)
	})
}

// A key that is denied while it shares a gate leaves the others' callers there, and keys that are dropped while
// one looks at all are left out.
func TestKeysThatComeAndGo(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		limit := Limit{Rates: []Rate{perSecond(1, 5)}, InFlight: 1}
		l := mustNew(t, limit, MaxKeys(1))
		busy, late := took(t, l, "busy"), took(t, l, "late")
		waits, other := asking(t, l, "late"), asking(t, l, "other")
		override(t, l, "late", &Limit{Deny: true})
		waits.refusedAfter(t, 0, ReasonDenied)
		other.waits(t)
		busy.Release()
		late.Release()
		other.admittedAfter(t, 0)
		other.permit.Release()
		time.Sleep(time.Minute)
		l, seen := mustNew(t, limit, MaxKeys(2)), 0
		wants(t, l, "a", 5)
		wants(t, l, "b", 5)
		time.Sleep(time.Minute)
		for range l.Keys() {
			wants(t, l, "c", 5)
			wants(t, l, "d", 5)
			seen++
		}
		is(t, "keys seen", seen, 1)
	})
}

func TestLimiterSharesNoMemoryWithItsCaller(t *testing.T) {
	rates := []Rate{perSecond(1, 3)}
	l := mustNew(t, Limit{Rates: rates})
	rates[0].Events = math.NaN()
	l.Stats().Limit.Rates[0].Events = math.NaN()
	is(t, "the limit", l.Stats().Limit.Rates[0], perSecond(1, 3))
}

// A rule beside Deny would mean that some calls are admitted.
func TestDenyStandsAlone(t *testing.T) {
	l := mustNew(t, Rates(PerSecond(1)))
	for _, limit := range []Limit{{Deny: true, InFlight: 5}, {Deny: true, Rates: []Rate{PerSecond(1)}}} {
		says(t, limit.Validate(), "Limit.Deny", "true")
		says(t, l.SetLimit(limit), "Limit.Deny")
		says(t, l.Override("k", &limit, 0), "Limit.Deny")
	}
	wants(t, l, "k", 1)
}

func TestFromRate(t *testing.T) {
	for _, c := range []struct {
		limit rate.Limit
		burst int
		words []string // of the error; none: valid
	}{
		{100, 20, nil}, {rate.Every(time.Minute), 1, nil}, {0.001, 1 << 30, nil},
		{rate.Inf, 1, []string{"Rates[0].Events"}},
		{0, 1, []string{"Rates[0].Events", "0"}}, {-1, 1, []string{"Rates[0].Events", "-1"}},
		{1, 0, []string{"Rates[0].Burst", "-1"}}, {1, -7, []string{"Rates[0].Burst", "-7"}},
	} {
		l, err := New(Rates(FromRate(c.limit, c.burst)))
		if len(c.words) > 0 {
			says(t, err, c.words...)
			continue
		}
		must(t, err)
		r := l.Stats().Rules[0]
		is(t, c, [3]float64{r.Limit, r.Burst, r.Left},
			[3]float64{float64(c.limit), float64(c.burst), float64(c.burst)})
		is(t, c, l.Stats().Limit.Rates[0].Kind == Paced, c.burst == 1)
	}
}

func TestLimitInWords(t *testing.T) {
	is(t, "all kinds", Limit{Rates: []Rate{
		PerSecond(10), {Unit: "tokens", Events: 0.5, Per: time.Hour, Burst: 7}, Every(time.Minute),
		aligned(3, time.Second), {Events: 4, Per: 90 * time.Minute, Kind: CountedWindow},
		{Events: 1, Per: time.Second, Kind: Paced, NoTurns: true},
	}, InFlight: 2}.String(), "second: 10 per 1s, rate 2: 0.5 tokens per 1h, burst 7, interval: 1 per 1m, paced, "+
		"w: 3 per 1s, window, rate 5: 4 per 1h30m, counted-window, rate 6: 1 per 1s, paced, no turns, in flight: 2")
}

// A rate that never decides is warned of once, where a limit is set, and is no error.
func TestWarnsOfNeedlessRates(t *testing.T) {
	second, minute := PerSecond(10), PerMinute(100)
	named := func(name string, events float64, per time.Duration, burst int) Rate {
		return Rate{Name: name, Events: events, Per: per, Burst: burst}
	}
	window := func(name string, events float64, per time.Duration) Rate {
		return Rate{Name: name, Events: events, Per: per, Kind: Window}
	}
	paced := func(name string, events float64, noTurns bool) Rate {
		return Rate{Name: name, Events: events, Per: time.Second, Kind: Paced, NoTurns: noTurns}
	}
	inZone := func(r Rate) Rate {
		r.Zone = "Europe/Berlin"
		return r
	}
	tok := Rate{Name: "free", Unit: "tok", Events: 1000, Per: time.Second}
	for _, c := range []struct {
		want  string // the rate that never decides
		rates []Rate
	}{
		{"", []Rate{second, PerHour(1000)}},
		{"", []Rate{second, minute}},
		{"minute", []Rate{second, PerMinute(600)}},
		{"minute", []Rate{PerMinute(600), second}},
		{"", []Rate{second, PerMinute(599)}},
		{"same", []Rate{second, named("same", 10, time.Second, 0)}},
		{"second", []Rate{second, named("small burst", 600, time.Minute, 9)}},
		{"", []Rate{second, named("small burst", 599, time.Minute, 11)}},
		{"", []Rate{second, tok}},
		{"second", []Rate{second, Every(100 * ms)}},
		{"one", []Rate{Every(100 * ms), named("one", 10, time.Second, 1)}}, // a bucket of one brings no turns
		{"one", []Rate{named("one", 10, time.Second, 1), Every(100 * ms)}},
		{"interval", []Rate{Every(100 * ms), paced("slower", 5, false)}},
		{"", []Rate{Every(100 * ms), paced("slower", 5, true)}},
		{"", []Rate{second, window("window", 609, time.Minute)}},
		{"window", []Rate{second, window("window", 610, time.Minute)}},
		{"window", []Rate{second, window("window", 610.5, time.Minute), tok}},
		{"second", []Rate{window("window", 5, time.Second), second}},
		{"", []Rate{window("window", 5.1, time.Second), second}},
		{"hours", []Rate{window("window", 100, time.Minute), window("hours", 6000, time.Hour)}},
		{"", []Rate{window("window", 100, time.Minute), window("hours", 5999, time.Hour)}},
		{"", []Rate{window("window", 10, 7*time.Second), window("odd", 34, 10*time.Second)}},
		{"odd", []Rate{window("window", 10, 7*time.Second), window("odd", 35, 10*time.Second)}},
		{"week", []Rate{inZone(window("day", 10, 24*time.Hour)), inZone(window("week", 70, 7*24*time.Hour))}},
		{"", []Rate{window("day", 10, 24*time.Hour), inZone(window("week", 70, 7*24*time.Hour))}},
		{"", []Rate{window("hour", 10, time.Hour), inZone(window("day", 260, 24*time.Hour))}}, // one day has 25 hours
		{"day", []Rate{window("hour", 10, time.Hour), inZone(window("day", 510, 24*time.Hour))}},
	} {
		row(t, fmt.Sprint(c.rates), func(t *testing.T) {
			var text strings.Builder
			log := slog.New(slog.NewTextHandler(&text, nil))
			limit := Rates(c.rates...)
			l := mustNew(t, limit, Logger(log))
			must(t, l.SetLimit(limit)) // which changes nothing
			must(t, l.SetLimit(Limit{}))
			must(t, l.SetLimit(limit))
			must(t, l.Override("k", &limit, 0))
			must(t, l.Override("k", nil, 0))
			mustNew(t, Limit{}, Logger(log), Plans(map[string]Limit{"p": limit}))
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

// Rates at the edges saturate. A wait that is longer than any Duration is unknown, and a turn
// that never comes is waited for in vain.
func TestRatesAtTheEdges(t *testing.T) {
	for _, c := range []struct {
		name  string
		rate  Rate
		after time.Duration
		more  int // admitted then
	}{
		{"one event in ten years", Every(10 * year), 10 * year, 1},
		{"not yet ten years", Every(10 * year), 10*year - time.Second, 0},
		{"one event in a hundred years", Every(100 * year), 100 * year, 1},
		{"one event in the longest duration", Every(math.MaxInt64), 100 * year, 0},
		{"hardly ever", Rate{Events: 0.001, Per: math.MaxInt64}, 100 * year, 0},
		{"a thousandth of an event", Rate{Events: 0.001, Per: time.Second}, 1000 * time.Second, 1},
	} {
		row(t, c.name, func(t *testing.T) {
			l := mustNew(t, Rates(c.rate))
			wants(t, l, "k", 1)
			if d := refusedFor(t, l, ReasonRate, "k"); c.more == 1 || c.name == "hardly ever" {
				is(t, "retry after", d.RetryAfter, c.after*time.Duration(c.more))
			}
			waiter := asking(t, l, "k")
			if time.Sleep(c.after); c.more == 1 {
				waiter.admittedAfter(t, c.after)
			} else {
				waiter.waits(t)
				waiter.gaveUp(t)
			}
			wants(t, l, "k", 0)
			l.Stats()
		})
	}
}
