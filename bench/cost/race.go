package main

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// contender is one side of a race: n operations on behalf of a worker, and how many of them were admitted.
type contender struct {
	name  string
	run   func(worker, n int) int
	check func() error // called after the last round; nil when there is nothing to check
}

// sample is what one round of one contender cost.
type sample struct{ ns, allocs float64 }

// series holds the samples of one contender, one a round.
type series struct {
	name    string
	samples []sample
}

func ns(s sample) float64     { return s.ns }
func allocs(s sample) float64 { return s.allocs }

// median of what f picks from each round.
func (s series) median(f func(sample) float64) float64 {
	return median(len(s.samples), func(i int) float64 { return f(s.samples[i]) })
}

// ratio is the median over all rounds of s's time divided by that of ref in the same round.
func (s series) ratio(ref series) float64 {
	return median(len(s.samples), func(i int) float64 { return s.samples[i].ns / ref.samples[i].ns })
}

// over is the median over all rounds of what f picks from s less what it picks from ref in the same round.
func (s series) over(ref series, f func(sample) float64) float64 {
	return median(len(s.samples), func(i int) float64 { return f(s.samples[i]) - f(ref.samples[i]) })
}

func median(n int, at func(int) float64) float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = at(i)
	}
	slices.Sort(v)
	return (v[n/2] + v[(n-1)/2]) / 2
}

// race lets all contenders run in turn, round after round (A B C A B C …), each for about one slice of
// time, on GOMAXPROCS = workers. It fails when any operation was refused: all races use limits that admit
// everything, so a refusal means that something else was measured.
func race(c config, workers int, cs []contender) ([]series, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(workers))
	out := make([]series, len(cs))
	counts := make([]int, len(cs))
	for i, who := range cs {
		out[i].name = who.name
		counts[i] = calibrate(who, workers, c.slice)
	}
	runtime.GC()
	for range c.rounds {
		for i, who := range cs {
			s, err := measure(who, workers, counts[i])
			if err != nil {
				return nil, err
			}
			out[i].samples = append(out[i].samples, s)
		}
	}
	for _, who := range cs {
		if who.check == nil {
			continue
		}
		if err := who.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", who.name, err)
		}
	}
	return out, nil
}

// calibrate returns how many operations fill a slice of time.
func calibrate(who contender, workers int, slice time.Duration) int {
	for n := 512; ; n *= 2 {
		start := time.Now()
		spread(who, workers, n)
		if took := time.Since(start); took > slice/8 {
			return max(1, int(float64(n)*float64(slice)/float64(took)))
		}
	}
}

// measure runs n operations and returns the wall time and the allocations for each.
func measure(who contender, workers, n int) (sample, error) {
	before := mallocs()
	start := time.Now()
	admitted := spread(who, workers, n)
	took := time.Since(start)
	made := mallocs() - before
	if admitted != n {
		return sample{}, fmt.Errorf("%s: %d of %d operations admitted, want all", who.name, admitted, n)
	}
	return sample{ns: float64(took.Nanoseconds()) / float64(n), allocs: float64(made) / float64(n)}, nil
}

// spread divides n operations over the workers and returns how many were admitted.
func spread(who contender, workers, n int) int {
	if workers == 1 {
		return who.run(0, n)
	}
	admitted := make([]int, workers)
	var wg sync.WaitGroup
	for w := range workers {
		share := n / workers
		if w < n%workers {
			share++
		}
		wg.Go(func() { admitted[w] = who.run(w, share) })
	}
	wg.Wait()
	total := 0
	for _, a := range admitted {
		total += a
	}
	return total
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
