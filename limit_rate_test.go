package quotient

import (
	"math"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Failure mode 8: rates at the edges saturate.
func TestRatesAtTheEdges(t *testing.T) {
	for _, c := range []struct {
		name  string
		rate  Rate
		burst int // admitted at once, if not more than can be counted here
		after time.Duration
		more  int // admitted then
	}{
		{"one event in ten years", Rate{Events: 1, Per: 10 * year}, 1, 10 * year, 1},
		{"not yet ten years", Rate{Events: 1, Per: 10 * year}, 1, 10*year - time.Second, 0},
		{"one event in the longest duration", Rate{Events: 1, Per: math.MaxInt64}, 1, 100 * year, 0},
		{"hardly ever", Rate{Events: 0.001, Per: math.MaxInt64}, 1, 100 * year, 0},
		{"a thousandth of an event", Rate{Events: 0.001, Per: time.Second}, 1, 1000 * time.Second, 1},
	} {
		row(t, c.name, func(t *testing.T) {
			l := limiterOf(t, rated(c.rate))
			wants(t, l, "k", c.burst)
			time.Sleep(c.after)
			wants(t, l, "k", c.more)
			l.Stats()
		})
	}
}

// Failure mode 8: all that follows from the slowest rates is a number, above 0, and no time is below 0.
func TestSlowestRates(t *testing.T) {
	pools := []Pool{
		{Replicas: 1}, {Replicas: 1, Ordinal: 1, Fixed: true}, {Replicas: maxReplicas},
		{Replicas: maxReplicas, Ordinal: 1}, {Replicas: maxReplicas, Ordinal: maxReplicas},
	}
	policies := map[string]Option{
		"fixed":    func(*options) error { return nil },
		"aimd":     Policy(policy.AIMD{}),
		"tracking": policyOf(policy.Tracking{}, beyondShare),
	}
	for _, r := range []Rate{
		{Events: 0.001, Per: math.MaxInt64},
		{Events: 0.001, Per: math.MaxInt64, Aligned: true},
		{Events: 0.001, Per: math.MaxInt64, Burst: 1},
		{Events: 0.001, Per: math.MaxInt64, Burst: 2},
		{Events: 0.001, Per: math.MaxInt64, Burst: maxBurst},
		{Events: 1, Per: math.MaxInt64, Burst: 1},
		{Events: 1.1e-13, Per: time.Second},
		{Events: 0.001, Per: time.Hour, Aligned: true},
		{Events: 1.1e-22, Per: time.Nanosecond},
	} {
		for _, pool := range pools {
			for name, p := range policies {
				row(t, []any{r, pool, name}, func(t *testing.T) {
					var overhead time.Duration
					l := limiterOf(t, rated(r), StartPool(pool), p,
						OnAdmit(func(_ string, _, over time.Duration) { overhead = over }))
					sane(t, l)
					l.TryAcquireUpTo("k", 1)
					sane(t, l)
					time.Sleep(100 * year)
					sane(t, l)
					if overhead < 0 {
						t.Errorf("overhead %v", overhead)
					}
				})
			}
		}
	}
}

// sane fails unless all numbers that a limiter shows of its rates and of the key k make sense.
func sane(t *testing.T, l *Limiter) {
	t.Helper()
	positive := func(what string, v float64) {
		t.Helper()
		if !(v > 0 && v < math.Inf(1)) {
			t.Errorf("%s: %v", what, v)
		}
	}
	for _, r := range l.Stats().Rules {
		positive("limit", r.Limit)
		positive("share", r.Share)
	}
	for i := range l.shards[0].setting.rules {
		r := &l.shards[0].setting.rules[i]
		if r.role != roleRate {
			continue
		}
		positive("the interval", r.interval)
		positive("the time of a full bucket", float64(r.in(r.size)))
		positive("the time of a burst", float64(r.in(float64(r.most))))
		if r.schedule != nil {
			positive("the windows' mean", r.schedule.mean())
		}
	}
	e := l.Explain("k")
	for _, x := range e.ctrls() {
		positive("the pace", x.Pace)
		positive("the ceiling", x.Limit)
	}
	for _, q := range l.AppendState(nil, "k") {
		if q.Left != q.Left || q.Reset < 0 {
			t.Errorf("quota: left %v, full in %v", q.Left, q.Reset)
		}
	}
	if r := e.Rules[0]; e.Next.RetryAfter < 0 || r.Reset < 0 || math.IsNaN(r.Left) ||
		r.Left < 1 && r.Reset == 0 {
		t.Errorf("wait %v, left %v, full in %v", e.Next.RetryAfter, r.Left, r.Reset)
	}
	if d := l.Check("k"); d.RetryAfter < 0 {
		t.Errorf("%+v", d)
	}
}

// An event due within a nanosecond counts as there, since a Duration cannot be shorter.
func TestLargestRates(t *testing.T) {
	for _, c := range []struct {
		events float64
		burst  int
		weight int // that is let through at once
		early  int // calls that come within the nanosecond
	}{
		{1e9, 0, 1e9, 0},
		{1e12, 0, 1e12, 999},
		{1e12, 5, 5, 999},
		{1e12, maxBurst, maxBurst, 999},
	} {
		row(t, c, func(t *testing.T) {
			l := limiterOf(t, rated(perSecond(c.events, c.burst)))
			for range 3 {
				took(t, l, "k", Weight(c.weight))
				wants(t, l, "k", c.early)
				time.Sleep(2 * time.Second)
				has(t, l, "k", float64(c.weight))
			}
			if c.weight < maxAmount {
				refusedFor(t, l, ReasonTooLarge, "k", Weight(c.weight+1))
			}
		})
	}
}

// A wait that is longer than any Duration is unknown, and a turn that never comes is waited for in vain.
func TestWaitBeyondEveryDuration(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Rate{Events: 0.001, Per: math.MaxInt64}))
		wants(t, l, "k", 1)
		if d := refusedFor(t, l, ReasonRate, "k"); d.RetryAfter != 0 {
			t.Errorf("retry after %v, want unknown", d.RetryAfter)
		}
		c := asking(t, l, "k")
		time.Sleep(100 * year)
		c.waits(t)
		c.gaveUp(t)
	})
}

func TestWaitOfManyYears(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(100*year)))
		wants(t, l, "k", 1)
		if d := refusedFor(t, l, ReasonRate, "k"); d.RetryAfter != 100*year {
			t.Errorf("retry after %v, want %v", d.RetryAfter, 100*year)
		}
		c := asking(t, l, "k")
		time.Sleep(100 * year)
		c.admittedAfter(t, 100*year)
	})
}

func TestRateConstructors(t *testing.T) {
	for _, c := range []struct {
		rate      Rate
		perSecond float64
		burst     float64
	}{
		{PerSecond(20), 20, 20},
		{PerSecond(0.5), 0.5, 1},
		{PerMinute(120), 2, 120},
		{PerMinute(30), 0.5, 30},
		{PerHour(7200), 2, 7200},
		{PerHour(0.5), 0.5 / 3600, 1},
		{Every(2 * time.Second), 0.5, 1},
		{perSecond(2, 9), 2, 9},
		{Rate{Events: 2.5, Per: time.Second, Aligned: true}, 2.5, 3},
		{Rate{Events: 0.5, Per: time.Second, Aligned: true}, 0.5, 1},
	} {
		if got := c.rate.perSecond(); got != c.perSecond {
			t.Errorf("%+v: %v events a second, want %v", c.rate, got, c.perSecond)
		}
		if got := c.rate.burst(); got != c.burst {
			t.Errorf("%+v: burst %v, want %v", c.rate, got, c.burst)
		}
	}
}
