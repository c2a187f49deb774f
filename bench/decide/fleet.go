package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/quotient-go/quotient/bench/rig"
	"github.com/quotient-go/quotient/internal/rest"
)

// fleetLoad is what the clients of a fleet do.
type fleetLoad struct {
	unit    string        // of the limit
	window  time.Duration // of the clock
	windows int           // that are judged
	warm    time.Duration // before them, at least
	every   time.Duration // in which the replicas are asked as often as parts says
}

// minutes ask twice as often as the limit allows.
var minutes = fleetLoad{unit: "minute", window: time.Minute, windows: 2, warm: 10 * time.Second, every: time.Second}

// parts are how uneven the load is.
var parts = []int{8, 1, 1}

const (
	limit  = 300
	maxAge = 2 * time.Second        // of reports: that of rate limits of the kind counted-window
	edge   = 100 * time.Millisecond // no question is sent so close to the edge of a window
)

// share is one limit that a fleet counts together.
func (b *bench) share(ctx context.Context) (s rig.Section, err error) {
	if err := b.build(ctx); err != nil {
		return s, err
	}
	var all []*server
	defer func() {
		for _, one := range all {
			err = errors.Join(err, one.end())
		}
	}()
	first, err := rig.FreePort()
	bind := rig.At(first)
	for i := range parts {
		port, err2 := rig.FreePort()
		if i > 0 {
			bind = rig.At(port)
		}
		pool := fmt.Sprintf("[pool]\nsource = 'gossip:%s?join=%s'", bind, rig.At(first))
		one, err3 := b.decide(ctx, true, "POOL", pool, "KIND", "counted-window", "UNIT", b.fleet.unit)
		if all = append(all, one); errors.Join(err, err2, err3) != nil {
			return s, errors.Join(err, err2, err3)
		}
	}
	if err := rig.Until(ctx, time.Minute, func() error { return together(ctx, all) }); err != nil {
		return s, err
	}
	admitted, err := b.fleet.play(ctx, all)
	if err != nil {
		return s, err
	}
	return b.fleet.report(admitted), nil
}

// together reports an error until all replicas know each other.
func together(ctx context.Context, all []*server) error {
	for i, one := range all {
		l, err := one.limiter(ctx, "bench.fleet")
		if err != nil {
			return err
		}
		if l.Pool.Replicas != len(all) {
			return fmt.Errorf("replica %d counts %d replicas", i, l.Pool.Replicas)
		}
	}
	return nil
}

// play has clients ask until the windows are over. It returns what was admitted, by replica and window.
func (f fleetLoad) play(ctx context.Context, all []*server) (admitted [][]int, err error) {
	first := time.Now().Add(f.warm).Truncate(f.window).Add(f.window)
	admitted = make([][]int, len(all))
	errs := make([]error, len(all))
	var wait sync.WaitGroup
	for i, one := range all {
		wait.Go(func() { admitted[i], errs[i] = f.ask(ctx, one, f.every/time.Duration(parts[i]), first) })
	}
	wait.Wait()
	return admitted, errors.Join(append(errs, ctx.Err())...)
}

// ask asks one replica at steady times, however long its answers take, and counts for the window of the question.
func (f fleetLoad) ask(ctx context.Context, s *server, every time.Duration, first time.Time) ([]int, error) {
	ask, end, err := rls(s.grpc, []*ratelimit.RateLimitRequest{about("fleet", "all")})()
	if err != nil {
		return nil, err
	}
	defer end()
	admitted := make([]int, f.windows)
	last := first.Add(time.Duration(f.windows) * f.window)
	for next := first.Add(-f.warm); next.Before(last) && rest.For(ctx, time.Until(next)); next = next.Add(every) {
		at := time.Now()
		if into := at.Sub(at.Truncate(f.window)); into < edge || into > f.window-edge {
			continue
		}
		over, err := ask(ctx, 0)
		if err != nil {
			return nil, err
		}
		if i := at.Sub(first); !over && 0 <= i && i < last.Sub(first) {
			admitted[i/f.window]++
		}
	}
	return admitted, nil
}

func (f fleetLoad) report(admitted [][]int) rig.Section {
	most := 0 // that the others of a replica are asked
	for i := range parts {
		most = max(most, parts[0]+parts[1]+parts[2]-parts[i])
	}
	bound := limit + most*int(2*maxAge/f.every)
	s := rig.Section{Title: "A fleet that shares a limit", Note: fmt.Sprintf(`
Three processes quotient decide share a limit of %d a %s by gossip, with ratelimit-kind = "counted-window". They are
asked about one key at steady times, %v times in %v. Bound 14 is the limit and what the others of a replica are asked in
twice %v.`, limit, f.unit, parts, f.every, maxAge)}
	s.Header = []string{"window", "replica 1", "replica 2", "replica 3", "admitted", "bound 14"}
	for i := range f.windows {
		sum := admitted[0][i] + admitted[1][i] + admitted[2][i]
		s.Add(i+1, admitted[0][i], admitted[1][i], admitted[2][i], sum, bound)
		name := fmt.Sprintf("admitted in window %d", i+1)
		s.Verdicts = append(s.Verdicts, rig.AtLeast(name, float64(sum), .98*limit, ""),
			rig.AtMost(name, float64(sum), min(1.02*limit, float64(bound)), ""))
	}
	return s
}
