package main

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	fairWorkers  = 64
	fairCapacity = 8
	fairTime     = time.Second
)

// fairnessFigure lets many goroutines fight for few slots. It compares how often each of them got one, and
// what a slot costs. A holder yields the processor while it holds its slot. Otherwise one goroutine would run
// through thousands of turns alone, without a contender.
func fairnessFigure(c config) ([]table, error) {
	var tables []table
	for _, cpu := range c.cpus {
		t, err := fairness(c, cpu)
		if err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// fairness is the table for one number of processors. The first contender is the one that the others are
// compared with, within each round.
func fairness(c config, cpu int) (table, error) {
	t := table{
		title:  fmt.Sprintf("In flight, %d goroutines for %d slots, cpu %d", fairWorkers, fairCapacity, cpu),
		note:   "Slots taken by the luckiest goroutine over those taken by the unluckiest; 1 is fair.",
		header: []string{"contender", "max/min", "worst round", "ns a slot", "x " + nameXSemaphore},
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cpu))
	peers := slotPeers()
	spreads, costs, ratios := make([][]float64, len(peers)), make([][]float64, len(peers)), make([][]float64, len(peers))
	for range c.rounds {
		for i, s := range peers {
			got, err := fight(s, fairTime/time.Duration(c.scale))
			if err != nil {
				return t, err
			}
			spreads[i] = append(spreads[i], got.spread)
			costs[i] = append(costs[i], got.ns)
			ratios[i] = append(ratios[i], got.ns/costs[0][len(costs[0])-1])
		}
	}
	for i, s := range peers {
		mid, worst, ratio := middle(spreads[i]), slices.Max(spreads[i]), middle(ratios[i])
		t.rows = append(t.rows, []string{s.name, fmt.Sprintf("%.3f", mid), fmt.Sprintf("%.3f", worst), number(middle(costs[i])), number(ratio)})
		if s.name == nameInFlight || s.name == nameSemaphore {
			t.verdicts = append(t.verdicts, verdict{s.name + ", max/min", mid, 1.1, ""})
		}
		if s.name == nameSemaphore {
			t.verdicts = append(t.verdicts, verdict{s.name + " against " + nameXSemaphore, ratio, 1, "x"})
		}
	}
	return t, nil
}

func middle(v []float64) float64 {
	return median(len(v), func(i int) float64 { return v[i] })
}

// fought is the outcome of one fight: max/min of the slots taken, and the time for each.
type fought struct{ spread, ns float64 }

// fight runs the goroutines for a while. It also asserts that no more than the capacity were ever held.
func fight(s slots, d time.Duration) (fought, error) {
	hold, err := s.make(fairCapacity)
	if err != nil {
		return fought{}, fmt.Errorf("%s: %w", s.name, err)
	}
	var held, tooMany atomic.Int64
	work := func() {
		if held.Add(1) > fairCapacity {
			tooMany.Add(1)
		}
		runtime.Gosched()
		held.Add(-1)
	}
	taken, took := contend(hold, work, d)
	least, total := slices.Min(taken), 0
	for _, n := range taken {
		total += n
	}
	if tooMany.Load() > 0 || least == 0 {
		return fought{}, fmt.Errorf("%s: %d times above the capacity, unluckiest goroutine got %d slots", s.name, tooMany.Load(), least)
	}
	return fought{
		spread: float64(slices.Max(taken)) / float64(least),
		ns:     float64(took.Nanoseconds()) / float64(total),
	}, nil
}

// contend returns how many slots each goroutine took before the time was up. All start together.
func contend(hold func(func()) bool, work func(), d time.Duration) ([]int, time.Duration) {
	taken := make([]int, fairWorkers)
	start, stop := make(chan struct{}), new(atomic.Bool)
	var wg sync.WaitGroup
	for i := range fairWorkers {
		wg.Go(func() {
			<-start
			for !stop.Load() && hold(work) {
				taken[i]++
			}
		})
	}
	began := time.Now()
	close(start)
	time.AfterFunc(d, func() { stop.Store(true) })
	wg.Wait()
	return taken, time.Since(began)
}
