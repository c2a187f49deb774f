package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
)

// Names of the two sides of the live figure.
const (
	nameAlone = "quotient, no source"
	nameLive  = "quotient, a live source"
)

// liveEvery is how often the live source speaks: twenty times as often as the quickest real one.
const liveEvery = 5 * time.Millisecond

// Two in a hundred are to be seen, so many short pairs are taken in place of each round of the other figures.
const (
	livePairs = 12
	liveParts = 2 // of a slice: what one side of a pair takes
)

// everyTick is a source that always says the same.
type everyTick struct {
	pool  quotient.Pool
	heard chan struct{} // gets one value when the first report is in force
}

// Watch reports at once, and then every liveEvery.
func (s everyTick) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	report(s.pool, nil)
	s.heard <- struct{}{}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			report(s.pool, nil)
		}
	}
}

// liveFigure times Allow on one and the same limiter with and without a source that it follows, in turn.
func liveFigure(c config) ([]table, error) {
	t, err := uniform(max(100, 1000/c.scale))
	if err != nil {
		return nil, err
	}
	var tables []table
	for _, workers := range c.cpus {
		all, err := livePair(c, t, workers)
		if err != nil {
			return nil, err
		}
		title := fmt.Sprintf("Allow with a live source, %d keys, cpu %d", len(t.keys), workers)
		note := fmt.Sprintf("One limiter, with and without in turn, %d pairs. The source says the same pool every %v.", livePairs*c.rounds, liveEvery)
		tables = append(tables, raceTable(title, note, all, []string{nameAlone}, []goal{
			{nameLive, nameAlone, times, 1.02},
			{nameLive, "", allocsEach, 0},
		}))
	}
	return tables, nil
}

// livePair takes the samples. The first of a pair is the second in the next.
func livePair(c config, t traffic, workers int) ([]series, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(workers))
	pool := quotient.Pool{Replicas: 1}
	limit := quotient.Rates(quotient.Rate{Events: 1, Per: generous.per, Burst: generous.burst})
	l, err := quotient.New(limit, quotient.StartPool(pool))
	if err != nil {
		return nil, err
	}
	vs := t.visitors(workers)
	who := contender{name: nameQuotient, run: func(w, n int) int { return vs[w].run(l.Allow, n) }}
	spread(who, workers, len(t.order)) // all keys are there
	n := calibrate(who, workers, c.slice/liveParts)
	sides := []func() (sample, error){
		func() (sample, error) { return measure(who, workers, n) },
		func() (sample, error) { return measureFollowing(l, pool, who, workers, n) },
	}
	out := []series{{name: nameAlone}, {name: nameLive}}
	for i := range livePairs * c.rounds {
		for j := range sides {
			side := (i + j) % len(sides)
			s, err := sides[side]()
			if err != nil {
				return nil, err
			}
			out[side].samples = append(out[side].samples, s)
		}
	}
	return out, spoke(l, out[1], n)
}

// spoke fails unless the source reported before each sample of n operations and now and then within.
func spoke(l *quotient.Limiter, with series, n int) error {
	want := uint64(len(with.samples))
	for _, s := range with.samples { // a short one may end before the source speaks again
		want += uint64(time.Duration(s.ns*float64(n)) / (8 * liveEvery))
	}
	if got := l.Stats().Pool.Reports; got < want {
		return fmt.Errorf("%s: %d reports in %d samples, want at least %d", nameLive, got, len(with.samples), want)
	}
	return nil
}

// measureFollowing measures while the limiter follows a source, which has reported before and has ended
// afterwards.
func measureFollowing(l *quotient.Limiter, pool quotient.Pool, who contender, workers, n int) (sample, error) {
	ctx, stop := context.WithCancel(context.Background())
	var following sync.WaitGroup
	src := everyTick{pool, make(chan struct{}, 1)}
	following.Go(func() { _ = l.Follow(ctx, src) })
	<-src.heard
	s, err := measure(who, workers, n)
	stop()
	following.Wait()
	return s, err
}
