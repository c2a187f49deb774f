package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"time"
)

// record is what was seen.
type record struct {
	config
	began time.Time
	err   error

	heap       []look // bytes of live objects after a collection
	goroutines []look
	series     []look
	took       []look // seconds for a scrape
	first      map[string]bool
	strange    int // series of later scrapes that the first did not have
	size       int // bytes of the last scrape

	asks              uint64
	events            int64
	distinct, keys    int
	eventBytes        int64
	tables            int64 // of the hottest keys
	failed, succeeded int   // scrapes
}

// look is one value at one time.
type look struct {
	at time.Duration
	v  float64
}

// watch scrapes and looks at the heap until the context ends.
func (r *record) watch(ctx context.Context, s *server) {
	var heap sync.WaitGroup
	heap.Go(func() {
		every(ctx, r.sample, func() { r.heap = append(r.heap, look{time.Since(r.began), live()}) })
	})
	every(ctx, r.scrape, func() {
		if err := r.scrapeOnce(ctx, s); err != nil && ctx.Err() == nil {
			r.failed++
			r.err = cmp.Or(r.err, err)
		}
		r.goroutines = append(r.goroutines, look{time.Since(r.began), float64(runtime.NumGoroutine())})
	})
	heap.Wait()
}

// every calls f once each period until the context ends.
func every(ctx context.Context, period time.Duration, f func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}

func (r *record) scrapeOnce(ctx context.Context, s *server) error {
	began := time.Now()
	series, size, err := s.scrape(ctx)
	if err != nil {
		return err
	}
	r.succeeded++
	r.took = append(r.took, look{time.Since(r.began), time.Since(began).Seconds()})
	r.series = append(r.series, look{time.Since(r.began), float64(len(series))})
	r.size = size
	if r.first == nil {
		r.first = make(map[string]bool)
		for _, name := range series {
			r.first[name] = true
		}
	}
	for _, name := range series {
		if !r.first[name] {
			r.strange++
		}
	}
	return nil
}

// live is what the heap holds after a collection.
func live() float64 {
	runtime.GC()
	m := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(m)
	return float64(m[0].Value.Uint64())
}

func (r *record) end(s *server, w *world) {
	r.asks, r.events, r.eventBytes, r.tables = w.asks.Load(), s.events.Load(), s.bytes.Load(), s.tables.Load()
	r.distinct, r.keys = w.distinct(), w.remembered()
}

// fifth returns the values of one fifth of the duration, 0 to 4.
func (r *record) fifth(looks []look, i int) (vs []float64) {
	for _, l := range looks {
		if int(5*l.at/r.duration) == i {
			vs = append(vs, l.v)
		}
	}
	return vs
}

// median of no values is 0, which no goal accepts.
func median(vs []float64) float64 {
	if len(vs) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(vs))[len(vs)/2]
}

func most(looks []look) (v float64) {
	for _, l := range looks {
		v = max(v, l.v)
	}
	return v
}

// mostGrowth is how much larger the heap may be in the last fifth than in the second: what is noise from collection to collection.
const mostGrowth = 1.05

// mostExtra is how many goroutines may come and go at an instant: timers that fire, and a connection that is
// made again.
const mostExtra = 8

// mostMore is how many more goroutines there may be at the end: what a connection or a collection has at the instants that make a median.
const mostMore = 2

// verdict is one goal.
type verdict struct {
	goal string
	is   string
	met  bool
}

func (r *record) verdicts() []verdict {
	second, last := median(r.fifth(r.heap, 1)), median(r.fifth(r.heap, 4))
	before, after := median(r.fifth(r.goroutines, 1)), median(r.fifth(r.goroutines, 4))
	seconds := r.duration.Seconds()
	due := int(0.8 * seconds / r.scrape.Seconds())
	return []verdict{
		{fmt.Sprintf("the heap of the last fifth is at most %.2f of the second", mostGrowth), fmt.Sprintf("%.3f", last/second), second > 0 && last > 0 && last <= mostGrowth*second},
		{"no series but those of the first scrape, and all of them", fmt.Sprintf("%d strange, %d of %.0f", r.strange, len(r.first), most(r.series)), r.constant()},
		{fmt.Sprintf("as many goroutines at the end, within %d", mostMore), fmt.Sprintf("%.0f and %.0f, at most %.0f", before, after, most(r.goroutines)), before > 0 && after <= before+mostMore && most(r.goroutines) <= before+mostExtra},
		{fmt.Sprintf("%d distinct keys were asked for and are remembered", r.config.keys), fmt.Sprintf("%d and %d", r.distinct, r.keys), r.distinct == r.config.keys && r.keys == r.config.keys},
		{fmt.Sprintf("at least %d scrapes, none failed", due), fmt.Sprintf("%d, %d failed", r.succeeded, r.failed), r.succeeded >= due && r.failed == 0},
		{fmt.Sprintf("at least %.0f events and a table on the page", 0.8*seconds), fmt.Sprintf("%d and %d", r.events, r.tables), float64(r.events) >= 0.8*seconds && r.tables > 0},
	}
}

// constant reports whether all scrapes had the same series.
func (r *record) constant() bool {
	return len(r.first) > 0 && r.strange == 0 && !slices.ContainsFunc(r.series, func(l look) bool { return int(l.v) != len(r.first) })
}

// report writes what was seen as markdown, and returns whether all goals are met.
func (r *record) report(w io.Writer) bool {
	fmt.Fprintf(w, "# Watched\n\nThree limiters under load for %v, %d distinct keys, a scrape of /metrics every %v, and an\noperator's page open. The page reads the events, and the 20 hottest keys every %v.\n", r.duration, r.config.keys, r.scrape, keysEvery)
	fmt.Fprintf(w, "%s, %d processors. Written by `go run ./watched -duration %v -out watched/results.md` in bench/.\n\n", runtime.Version(), runtime.GOMAXPROCS(0), r.duration)
	fmt.Fprintf(w, "| fifth | live heap, MB | series | goroutines | scrape, ms |\n| --- | --- | --- | --- | --- |\n")
	for i := range 5 {
		fmt.Fprintf(w, "| %d | %.2f | %.0f | %.0f | %.1f |\n", i+1, median(r.fifth(r.heap, i))/1e6, median(r.fifth(r.series, i)),
			median(r.fifth(r.goroutines, i)), 1000*median(r.fifth(r.took, i)))
	}
	fmt.Fprintf(w, "\nMedians. %d calls, %.0f a second with the filling before; a scrape has %d bytes; %d events of %d bytes\nand %d tables of the hottest keys on the page.\n\n",
		r.asks, float64(r.asks)/r.duration.Seconds(), r.size, r.events, r.eventBytes/max(1, r.events), r.tables)
	all := true
	for _, v := range r.verdicts() {
		word := "met"
		if !v.met {
			word, all = "MISSED", false
		}
		fmt.Fprintf(w, "- %s: %s **%s**\n", v.goal, v.is, word)
	}
	if r.err != nil {
		fmt.Fprintf(w, "\nAn error on the way: %v\n", r.err)
		all = false
	}
	return all
}
