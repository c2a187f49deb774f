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
	unit    string        // of the limit of 300
	window  time.Duration // of the clock; with a longer unit there is one
	windows int           // that are judged
	warm    time.Duration // before them, at least
	every   time.Duration // between two questions of a part
}

// minutes ask twice as often as the limit allows.
var minutes = fleetLoad{unit: "minute", window: time.Minute, windows: 3, warm: 10 * time.Second, every: time.Second}

// parts are how uneven the load is.
var parts = []int{8, 1, 1}

const (
	limit    = 300
	maxAge   = 2 * time.Second        // of reports: that of rate limits of the kind counted-window
	edge     = 100 * time.Millisecond // about the edge of a window nobody asks
	disagree = .02                    // of the limit
)

// admissions are the times of each replica since the start of the first window.
type admissions [][]time.Duration

// share is one limit, counted by a fleet.
func (b *bench) share(ctx context.Context) (s rig.Section, err error) {
	if err := b.build(ctx); err != nil {
		return s, err
	}
	var all []*server
	defer func() { err = errors.Join(err, end(all...)) }()
	ports := [3]int{}
	for i := range ports {
		ports[i], err = rig.FreePort()
		if err != nil {
			return s, err
		}
	}
	for _, port := range ports {
		pool := fmt.Sprintf("[pool]\nsource = 'gossip:%s?join=%s,%s,%s'", rig.At(port),
			rig.At(ports[0]), rig.At(ports[1]), rig.At(ports[2]))
		one, err := b.decide(ctx, true, "POOL", pool, "KIND", "counted-window", "UNIT", b.fleet.unit)
		if all = append(all, one); err != nil {
			return s, err
		}
	}
	if err := rig.Until(ctx, time.Minute, func() error { return together(ctx, all) }); err != nil {
		return s, err
	}
	times, err := b.fleet.play(ctx, all)
	if err != nil {
		return s, err
	}
	return b.fleet.report(times), nil
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

// play has clients ask until the windows are over.
func (f fleetLoad) play(ctx context.Context, all []*server) (times admissions, err error) {
	first := time.Now().Add(f.warm).Truncate(f.window).Add(f.window)
	times = make(admissions, len(all))
	errs := make([]error, len(all))
	var wait sync.WaitGroup
	for i, one := range all {
		wait.Go(func() { times[i], errs[i] = f.ask(ctx, one, f.every/time.Duration(parts[i]), first) })
	}
	wait.Wait()
	return times, errors.Join(append(errs, ctx.Err())...)
}

// ask asks one replica at steady times, however long its answers take.
func (f fleetLoad) ask(ctx context.Context, s *server, every time.Duration, first time.Time) ([]time.Duration, error) {
	open := rls(s.grpc, []*ratelimit.RateLimitRequest{about("fleet", "all")})
	a, conn, err := open()
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // all has been answered
	next, last := time.Now(), first.Add(time.Duration(f.windows)*f.window)
	if f.warm == 0 {
		next = first
	}
	var times []time.Duration
	for ; next.Before(last) && rest.For(ctx, time.Until(next)); next = next.Add(every) {
		at := time.Now()
		if into := at.Sub(at.Truncate(f.window)); into < edge || into > f.window-edge {
			continue
		}
		over, err := a(ctx, 0)
		if err != nil {
			return nil, err
		}
		if since := at.Sub(first); !over && since >= 0 {
			times = append(times, since)
		}
	}
	return times, nil
}

// within are the admissions of a window.
func (a admissions) within(from, to time.Duration) admissions {
	in := make(admissions, len(a))
	for i, times := range a {
		for _, at := range times {
			if from <= at && at < to {
				in[i] = append(in[i], at)
			}
		}
	}
	return in
}

func (a admissions) sum() (n int) {
	for _, times := range a {
		n += len(times)
	}
	return n
}

// bound is bound 14: the limit and what the others of a replica have admitted within twice maxAge.
func (a admissions) bound() int {
	most := 0
	for i := range a {
		others := append(append(admissions{}, a[:i]...), a[i+1:]...)
		for _, times := range others {
			for _, at := range times {
				most = max(most, others.within(at, at+2*maxAge).sum())
			}
		}
	}
	return limit + most
}

func (f fleetLoad) report(times admissions) rig.Section {
	s := rig.Section{Title: "A fleet that shares a limit", Note: fmt.Sprintf(`
Three processes quotient decide share a limit of %d a %s by gossip, with ratelimit-kind = "counted-window". They are
asked about one key at steady times, %v times in %v, which is more often than the limit allows. Bound 14 is the limit
and what the others of any replica were seen to admit within twice %v.`, limit, f.unit, parts, f.every, maxAge)}
	s.Header = []string{"window", "replica 1", "replica 2", "replica 3", "admitted", "bound 14"}
	broken, least, most := 0, 1<<30, 0
	for i := range f.windows {
		in := times.within(time.Duration(i)*f.window, time.Duration(i+1)*f.window)
		sum, bound := in.sum(), in.bound()
		s.Add(i+1, len(in[0]), len(in[1]), len(in[2]), sum, bound)
		if least, most = min(least, sum), max(most, sum); sum > bound {
			broken++
		}
	}
	s.Verdicts = []rig.Verdict{
		rig.AtLeast("admitted in the window with the fewest", float64(least), limit*(1-disagree), ""),
		rig.AtMost("admitted in the window with the most", float64(most), limit*(1+disagree), ""),
		rig.Exactly("windows beyond bound 14", broken, 0),
	}
	return s
}
