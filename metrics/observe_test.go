package metrics_test

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/metrics"
	"pgregory.net/rapid"
)

// seen is what a histogram of the limiter "api" says: its count, its sum in seconds, and how many are within
// a bound.
type seen struct {
	count  int
	sum    float64
	within map[string]int
}

func histogram(t *testing.T, c *metrics.Collector, name string) seen {
	t.Helper()
	h := seen{within: map[string]int{}}
	found := false
	for _, line := range scrape(t, c) {
		rest, ok := strings.CutPrefix(line, "quotient_"+name+"_seconds_")
		if !ok || !strings.Contains(line, `limiter="api"`) {
			continue
		}
		found = true
		labels, value, _ := strings.Cut(rest, "} ")
		v := must(strconv.ParseFloat(value, 64))
		switch kind, _, _ := strings.Cut(labels, "{"); kind {
		case "count":
			h.count = int(v)
		case "sum":
			h.sum = v
		case "bucket":
			_, le, _ := strings.Cut(labels, `le="`)
			h.within[strings.TrimSuffix(le, `"`)] = int(v)
		}
	}
	if !found {
		t.Fatalf("no histogram %s", name)
	}
	return h
}

// observed returns a collector with one limiter, "api", that it observes.
func observed(limit quotient.Limit, opts ...quotient.Option) (*metrics.Collector, *quotient.Limiter) {
	var reg quotient.Registry
	c := metrics.New(&reg)
	return c, must(reg.Limiter("api", limit, append(opts, c.Observe())...))
}

// near reports whether two sums of seconds differ by rounding alone.
func near(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }

func expect(t *testing.T, c *metrics.Collector, count int, wait, overhead float64) {
	t.Helper()
	if h := histogram(t, c, "wait"); h.count != count || !near(h.sum, wait) {
		t.Errorf("wait: %d in %v s, want %d in %v s", h.count, h.sum, count, wait)
	}
	if h := histogram(t, c, "overhead"); h.count != count || !near(h.sum, overhead) {
		t.Errorf("overhead: %d in %v s, want %d in %v s", h.count, h.sum, count, overhead)
	}
}

var everyFiveSeconds = quotient.Rates(quotient.Rate{Name: "slow", Events: 1, Per: 5 * time.Second})

func TestWithinTheLimitCountsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := observed(perSecond("x", 10))
		must(l.Acquire(t.Context(), "k"))
		expect(t, c, 1, 0, 0)
		if h := histogram(t, c, "overhead"); h.within["1e-06"] != 1 {
			t.Errorf("got %v", h.within)
		}
	})
}

// TestEveryVerbCounts checks that calls that never wait are observed as well.
func TestEveryVerbCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := observed(perSecond("x", 10))
		l.Allow("k")
		_, _ = l.TryAcquire("k")
		_, _ = l.TryAcquireUpTo("k", 3)
		must(l.Acquire(t.Context(), "k"))
		for range 10 {
			l.Allow("k") // refused after four more: refusals are not observed
		}
		expect(t, c, 8, 0, 0)
	})
}

// TestIntendedWaitingIsNoOverhead: five seconds until there is a token are a wait, and cost the limiter
// nothing.
func TestIntendedWaitingIsNoOverhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := observed(everyFiveSeconds)
		must(l.Acquire(t.Context(), "k"))
		must(l.Acquire(t.Context(), "k"))
		expect(t, c, 2, 5, 0)
		if h := histogram(t, c, "wait"); h.within["2.5"] != 1 || h.within["5"] != 2 {
			t.Errorf("got %v", h.within)
		}
	})
}

// TestOnlyLatenessIsOverhead: the token is there after five seconds, and the caller looks after seven.
func TestOnlyLatenessIsOverhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// a turn of a paced limit would be lost
		unpaced := quotient.Rates(quotient.Rate{Events: 1, Per: 5 * time.Second, Burst: 2})
		c, l := observed(unpaced, quotient.OnWait(func(string, time.Duration) {
			time.Sleep(7 * time.Second)
		}))
		must(l.Acquire(t.Context(), "k", quotient.Weight(2)))
		must(l.Acquire(t.Context(), "k"))
		expect(t, c, 2, 7, 2)
	})
}

// TestWaitingForSlotsEndsWithTheRelease: until a slot is free the wait is intended.
func TestWaitingForSlotsEndsWithTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := observed(quotient.Limit{InFlight: 1})
		first := must(l.Acquire(t.Context(), "k"))
		time.AfterFunc(3*time.Second, first.Release)
		must(l.Acquire(t.Context(), "k")).Release()
		expect(t, c, 2, 3, 0)
	})
}

// TestARaiseEndsTheWait: the new limit has room at once, and what was waited until then was intended.
func TestARaiseEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := observed(everyFiveSeconds)
		must(l.Acquire(t.Context(), "k"))
		time.AfterFunc(time.Second, func() {
			_ = l.SetLimit(quotient.Rates(quotient.Rate{Name: "slow", Events: 1, Per: time.Millisecond}))
		})
		must(l.Acquire(t.Context(), "k"))
		if h := histogram(t, c, "overhead"); h.sum != 0 || h.count != 2 {
			t.Errorf("overhead %+v", h)
		}
		if h := histogram(t, c, "wait"); h.sum < 1 || h.sum > 1.01 {
			t.Errorf("wait %+v", h)
		}
	})
}

// TestTheNextAfterACancelledHead: its turn is its own, not that of the head that left.
func TestTheNextAfterACancelledHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := quotient.Rates(quotient.Rate{Name: "x", Events: 1, Per: time.Second, Burst: 10})
		c, l := observed(limit)
		must(l.Acquire(t.Context(), "k", quotient.Weight(10)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		left := make(chan error)
		go func() { _, err := l.Acquire(ctx, "k", quotient.Weight(10)); left <- err }()
		synctest.Wait()
		time.AfterFunc(4*time.Second, cancel)
		must(l.Acquire(t.Context(), "k", quotient.Weight(2)))
		<-left
		expect(t, c, 2, 4, 0)
	})
}

// TestManyWaitersInTurn: a crowd that is served in time has waited, and none of it was overhead.
func TestManyWaitersInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := observed(quotient.Rates(quotient.Rate{Name: "x", Events: 1, Per: time.Second, Burst: 1}))
		done := make(chan bool)
		for range 11 {
			go func() { _, err := l.Acquire(t.Context(), "k"); done <- err == nil }()
		}
		for range 11 {
			if !<-done {
				t.Fatal("refused")
			}
		}
		expect(t, c, 11, 55, 0)
	})
}

// TestPropertyInTimeIsNoOverhead: in fake time every timer is in time and every caller wakes at once. So no
// wait is overhead: whatever requests come, whatever they wait for, and whichever callers leave or change the
// limit meanwhile.
func TestPropertyInTimeIsNoOverhead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			c, l := observed(drawLimit(t, rapid.IntRange(0, 3).Draw(t, "slots")))
			var wg sync.WaitGroup
			for range rapid.IntRange(1, 20).Draw(t, "requests") {
				time.Sleep(drawTime(t, "pause"))
				hold, leaves := drawTime(t, "hold"), rapid.Bool().Draw(t, "leaves")
				wg.Go(func() { holdFor(l, hold, leaves) })
				if rapid.IntRange(0, 5).Draw(t, "change") == 0 {
					_ = l.SetLimit(drawLimit(t, l.Stats().Limit.InFlight))
				}
			}
			wg.Wait()
			if late := overheadOf(t, c); late > 1e-6 {
				t.Fatalf("%v s of overhead where nothing is late", late)
			}
		})
	})
}

func drawLimit(t *rapid.T, slots int) quotient.Limit {
	return quotient.Limit{InFlight: slots, Rates: []quotient.Rate{{
		Name: "x", Events: rapid.Float64Range(0.5, 20).Draw(t, "rate"), Per: time.Second,
		Burst: rapid.IntRange(1, 5).Draw(t, "burst"),
	}}}
}

// holdFor holds a permit for a while, and may leave when it has not got one by then.
func holdFor(l *quotient.Limiter, hold time.Duration, leaves bool) {
	patience := time.Hour
	if leaves {
		patience = hold
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if p, err := l.Acquire(ctx, "k"); err == nil {
		time.Sleep(hold)
		p.Release()
	}
}

// overheadOf is the sum of the overhead of the limiter "api", in seconds.
func overheadOf(t *rapid.T, c *metrics.Collector) float64 {
	for _, line := range scrape(t, c) {
		if v, ok := strings.CutPrefix(line, `quotient_overhead_seconds_sum{limiter="api"} `); ok {
			return must(strconv.ParseFloat(v, 64))
		}
	}
	t.Fatalf("no overhead")
	return 0
}

func drawTime(t *rapid.T, name string) time.Duration {
	return time.Duration(rapid.IntRange(0, 2000).Draw(t, name)) * time.Millisecond
}

// slowContext holds the lock of a limiter's shard: a deadline is asked for under it.
type slowContext struct {
	context.Context
	until time.Time
}

func (c slowContext) Deadline() (time.Time, bool) {
	for time.Now().Before(c.until) {
		runtime.Gosched()
	}
	return time.Time{}, false
}

// TestABusyLockIsOverhead is in real time: the token of a waiter comes after 20 ms, and the lock is free
// after 80.
func TestABusyLockIsOverhead(t *testing.T) {
	c, l := observed(quotient.Rates(quotient.Rate{Name: "x", Events: 1, Per: 20 * time.Millisecond,
		Burst: 1}), quotient.MaxKeys(1))
	began := time.Now()
	l.Allow("k")
	queued, done := make(chan bool), make(chan bool)
	go func() {
		p, _ := l.Acquire(announcing{t.Context(), queued}, "k")
		p.Release()
		done <- true
	}()
	<-queued
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = l.Acquire(slowContext{ctx, began.Add(80 * time.Millisecond)}, "k")
		done <- true
	}()
	<-done
	wait, overhead := histogram(t, c, "wait"), histogram(t, c, "overhead")
	cancel()
	<-done
	if intended := wait.sum - overhead.sum; overhead.sum < 0.055 || intended > 0.025 {
		t.Errorf("overhead %v s and intended %v s, want 0.06 and 0.02", overhead.sum, intended)
	}
}

// announcing reports when a caller begins to wait under it.
type announcing struct {
	context.Context
	waits chan bool
}

func (c announcing) Done() <-chan struct{} { close(c.waits); return c.Context.Done() }

// TestHistogramsEndWithTheirLimiter: a removed limiter leaves nothing behind, and the next one of its name
// begins at 0.
func TestHistogramsEndWithTheirLimiter(t *testing.T) {
	var reg quotient.Registry
	c := metrics.New(&reg)
	must(reg.Limiter("api", perSecond("x", 10), c.Observe())).Allow("k")
	must(reg.Limiter("other", perSecond("x", 10), c.Observe())).Allow("k")
	if h := histogram(t, c, "wait"); h.count != 1 {
		t.Fatalf("got %+v", h)
	}
	reg.Remove("api")
	runtime.GC()
	must(reg.Limiter("api", perSecond("x", 10), c.Observe()))
	if h := histogram(t, c, "wait"); h.count != 0 {
		t.Errorf("the new limiter begins with %+v", h)
	}
}

// TestAKeptLimiterComesBackWithItsHistograms: taken out of the registry and put back, it goes on counting.
func TestAKeptLimiterComesBackWithItsHistograms(t *testing.T) {
	var reg quotient.Registry
	c := metrics.New(&reg)
	l := must(reg.Limiter("api", perSecond("x", 10), c.Observe()))
	l.Allow("k")
	reg.Remove("api")
	runtime.GC()
	l.Allow("k")
	if err := reg.Add("api", l); err != nil {
		t.Fatal(err)
	}
	if h := histogram(t, c, "wait"); h.count != 2 {
		t.Errorf("got %+v", h)
	}
}

// TestObservingAllocatesNothing checks it for requests within the limit.
func TestObservingAllocatesNothing(t *testing.T) {
	_, l := observed(quotient.Rates(quotient.Rate{Events: 1e9, Per: time.Second}))
	ctx := t.Context()
	for name, call := range map[string]func(){
		"Allow":      func() { l.Allow("k") },
		"TryAcquire": func() { p, _ := l.TryAcquire("k"); p.Release() },
		"Acquire":    func() { p, _ := l.Acquire(ctx, "k"); p.Release() },
	} {
		if n := testing.AllocsPerRun(1000, call); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// BenchmarkObserve measures the same requests without and with the histograms, in turns of 200 so that both
// meet the same noise. It reports the medians: the nanoseconds of a request, and how many times as long one
// takes that is observed.
func BenchmarkObserve(b *testing.B) {
	limit := quotient.Rates(quotient.Rate{Events: 1e9, Per: time.Second})
	_, on := observed(limit)
	off := must(quotient.New(limit))
	for name, call := range map[string]func(*quotient.Limiter){
		"Allow":   func(l *quotient.Limiter) { l.Allow("key") },
		"Acquire": func(l *quotient.Limiter) { p, _ := l.Acquire(context.Background(), "key"); p.Release() },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var without, with, ratio []float64
			for b.Loop() {
				a, o := turn(off, call), turn(on, call)
				without, with, ratio = append(without, a), append(with, o), append(ratio, o/a)
			}
			for unit, vs := range map[string][]float64{"ns-off": without, "ns-on": with, "on/off": ratio} {
				slices.Sort(vs)
				b.ReportMetric(vs[len(vs)/2], unit)
			}
		})
	}
}

// turn returns the mean nanoseconds of 200 requests.
func turn(l *quotient.Limiter, call func(*quotient.Limiter)) float64 {
	began := time.Now()
	for range 200 {
		call(l)
	}
	return float64(time.Since(began)) / 200
}
