package metrics_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
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

// value is what a scrape says of a histogram of the limiter "api": its sum in seconds, its count, or a bucket by
// a bound.
func value(t interface{ Fatalf(string, ...any) }, c *metrics.Collector, part, bound string) float64 {
	for _, line := range scrape(t, c) {
		if v, ok := strings.CutPrefix(line, fmt.Sprintf(`quotient_%s{limiter="api"%s} `, part, bound)); ok {
			return must(strconv.ParseFloat(v, 64))
		}
	}
	t.Fatalf("no series %s%s", part, bound)
	return 0
}

// observed returns a collector with one limiter, "api", that it observes.
func observed(limit quotient.Limit, opts ...quotient.Option) (*metrics.Collector, *quotient.Limiter) {
	var reg quotient.Registry
	c := metrics.New(&reg)
	return c, must(reg.Limiter("api", limit, append(opts, c.Observe("api"))...))
}

// late is a context whose caller begins to wait seven seconds too late.
type late struct{ context.Context }

func (c late) Done() <-chan struct{} {
	time.Sleep(7 * time.Second)
	return c.Context.Done()
}

// TestObserve holds what requests have waited, and what of that was overhead: in fake time every timer is in time.
func TestObserve(t *testing.T) {
	acquire := func(t *testing.T, l *quotient.Limiter, opts ...quotient.CallOption) quotient.Permit {
		return must(l.Acquire(t.Context(), "k", opts...))
	}
	// a turn of a paced limit would be lost
	unpaced := quotient.Rates(quotient.Rate{Events: 1, Per: 5 * time.Second, Burst: 2})
	everyFive := quotient.Rates(quotient.Rate{Name: "slow", Events: 1, Per: 5 * time.Second})
	tenfold := quotient.Rates(quotient.Rate{Name: "x", Events: 1, Per: time.Second, Burst: 10})
	for _, tt := range []struct {
		name           string
		limit          quotient.Limit
		ask            func(t *testing.T, l *quotient.Limiter)
		count          int
		wait, overhead float64
	}{
		{"within the limit", perSecond("x", 10),
			func(t *testing.T, l *quotient.Limiter) { acquire(t, l) }, 1, 0, 0},
		{"every verb, and no refusal", perSecond("x", 10), func(t *testing.T, l *quotient.Limiter) {
			l.Allow("k")
			_, _ = l.TryAcquire("k")
			_, _ = l.TryAcquireUpTo("k", 3)
			acquire(t, l)
			for range 10 {
				l.Allow("k") // refused after four more
			}
		}, 8, 0, 0},
		{"intended waiting", everyFive,
			func(t *testing.T, l *quotient.Limiter) { acquire(t, l); acquire(t, l) }, 2, 5, 0},
		{"a token after five seconds, a look after seven", unpaced,
			func(t *testing.T, l *quotient.Limiter) {
				acquire(t, l, quotient.Weight(2))
				must(l.Acquire(late{t.Context()}, "k"))
			}, 2, 7, 2},
		{"until a slot is free", quotient.Limit{InFlight: 1}, func(t *testing.T, l *quotient.Limiter) {
			time.AfterFunc(3*time.Second, acquire(t, l).Release)
			acquire(t, l).Release()
		}, 2, 3, 0},
		{"until a limit has room", everyFive, func(t *testing.T, l *quotient.Limiter) {
			acquire(t, l)
			time.AfterFunc(time.Second, func() { _ = l.SetLimit(quotient.Limit{InFlight: 8}) })
			acquire(t, l)
		}, 2, 1, 0},
		{"the next one after a head that has left", tenfold, func(t *testing.T, l *quotient.Limiter) {
			acquire(t, l, quotient.Weight(10))
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			left := make(chan error)
			go func() { _, err := l.Acquire(ctx, "k", quotient.Weight(10)); left <- err }()
			synctest.Wait()
			time.AfterFunc(4*time.Second, cancel)
			acquire(t, l, quotient.Weight(2))
			<-left
		}, 2, 4, 0},
		{"a crowd in turn", quotient.Rates(quotient.Every(time.Second)), func(t *testing.T, l *quotient.Limiter) {
			var all sync.WaitGroup
			for range 11 {
				all.Go(func() { acquire(t, l) })
			}
			all.Wait()
		}, 11, 55, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, l := observed(tt.limit)
				tt.ask(t, l)
				for name, want := range map[string]float64{"wait": tt.wait, "overhead": tt.overhead} {
					sum, count := value(t, c, name+"_seconds_sum", ""), value(t, c, name+"_seconds_count", "")
					if math.Abs(sum-want) > 1e-9 || count != float64(tt.count) {
						t.Errorf("%s: %v in %v s, want %d in %v s", name, count, sum, tt.count, want)
					}
				}
			})
		})
	}
}

// TestBuckets: the first bucket of overhead is a microsecond, and waiting has those that a user would notice.
func TestBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := observed(quotient.Rates(quotient.Rate{Events: 1, Per: 5 * time.Second}))
		must(l.Acquire(t.Context(), "k"))
		must(l.Acquire(t.Context(), "k"))
		small, large := value(t, c, "wait_seconds_bucket", `,le="2.5"`), value(t, c, "wait_seconds_bucket", `,le="5"`)
		overhead := value(t, c, "overhead_seconds_bucket", `,le="1e-06"`)
		if small != 1 || large != 2 || overhead != 2 {
			t.Errorf("%v waited for 2.5 s, %v for 5, and %v have no overhead", small, large, overhead)
		}
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
			if late := value(t, c, "overhead_seconds_sum", ""); late > 1e-6 {
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

func drawTime(t *rapid.T, name string) time.Duration {
	return time.Duration(rapid.IntRange(0, 2000).Draw(t, name)) * time.Millisecond
}

// TestHistogramsEndWithTheirLimiter: one that is kept and comes back goes on counting. A removed one leaves nothing
// behind, and the next one of its name begins at 0.
func TestHistogramsEndWithTheirLimiter(t *testing.T) {
	var reg quotient.Registry
	c := metrics.New(&reg)
	must(reg.Limiter("other", perSecond("x", 10), c.Observe("other"))).Allow("k")
	l := must(reg.Limiter("api", perSecond("x", 10), c.Observe("api")))
	l.Allow("k")
	reg.Remove("api")
	runtime.GC()
	l.Allow("k")
	if err := reg.Add("api", l); err != nil {
		t.Fatal(err)
	}
	if n := value(t, c, "wait_seconds_count", ""); n != 2 {
		t.Errorf("%v waits after it came back, want 2", n)
	}
	reg.Remove("api")
	runtime.GC()
	must(reg.Limiter("api", perSecond("x", 10), c.Observe("api")))
	if n := value(t, c, "wait_seconds_count", ""); n != 0 {
		t.Errorf("the new limiter begins with %v waits", n)
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
