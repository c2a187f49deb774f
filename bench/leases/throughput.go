package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/quotient-go/quotient/lease"
)

// sliceOf is how long each contender works in a round, and conns how many connections it has.
const conns = 8

// contender is one server of a round.
type contender struct {
	name, addr string
	peers      []uint64 // one for each connection
	rates      []float64
	done       int // acquires and releases
}

// throughput compares uncontended acquires and releases with a handler that does nothing.
func (b *bench) throughput(ctx context.Context) (section, error) {
	p, err := servePair(lease.Config{Semaphores: map[string]lease.Semaphore{"free": {Max: conns}}})
	if err != nil {
		return section{}, err
	}
	all := []*contender{{name: "lease.Server", addr: p.Leases}, {name: "a handler that does nothing", addr: p.Nothing}}
	err = b.race(ctx, all)
	if err := errors.Join(err, p.stop()); err != nil {
		return section{}, err
	}
	return throughputSection(all, b.rounds, b.slice), nil
}

func (b *bench) race(ctx context.Context, all []*contender) error {
	for _, c := range all {
		w := &wire{addr: c.addr}
		for range conns {
			id := uint64(0)
			if c == all[0] {
				var err error
				if id, err = w.create(time.Hour); err != nil {
					return err
				}
			} else {
				id = all[0].peers[len(c.peers)]
			}
			c.peers = append(c.peers, id)
		}
		w.close()
	}
	for round := range b.rounds + 1 { // the first is to warm up
		for i := range all {
			c := all[(i+round)%len(all)]
			n, took, err := c.work(ctx, b.slice)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if round > 0 {
				c.rates = append(c.rates, float64(n)/took.Seconds())
				c.done += n
			}
		}
	}
	return nil
}

// work acquires and releases on all connections for a while, and returns how often.
func (c *contender) work(ctx context.Context, slice time.Duration) (n int, took time.Duration, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	began := time.Now()
	for _, id := range c.peers {
		wg.Go(func() {
			mine, failed := acquireAndRelease(ctx, c.addr, id, began.Add(slice))
			mu.Lock()
			defer mu.Unlock()
			n, err = n+mine, errors.Join(err, failed)
		})
	}
	wg.Wait()
	return n, time.Since(began), err
}

func acquireAndRelease(ctx context.Context, addr string, id uint64, until time.Time) (n int, err error) {
	w := &wire{addr: addr, ctx: ctx}
	defer w.close()
	lock := fmt.Sprintf("/peers/%d/free", id)
	take := lock + "?block_for=5000ms&expires_in=60000ms"
	last := uint64(0)
	for time.Now().Before(until) {
		a, err := w.want(200, "PUT", take, "1")
		switch {
		case err != nil:
			return n, err
		case a.token == 0 || a.token <= last && id != 0 && a.token != 1800000000000000000:
			return n, fmt.Errorf("token %d after %d", a.token, last)
		}
		last = a.token
		if _, err = w.want(200, "DELETE", lock, ""); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func throughputSection(all []*contender, rounds int, slice time.Duration) section {
	s := section{title: "Throughput",
		note: fmt.Sprintf("%d connections, each of a peer of its own that acquires a free lock and releases it, again "+
			"and again. %d rounds of %v, in which both servers take turns. Both are in one process, in HTTP servers of "+
			"the same settings, and get the same requests. Each ratio is that of one round.", conns, rounds, slice),
		header: []string{"server", "acquires and releases a second", "least to most", "locks taken"}}
	for _, c := range all {
		s.rows = append(s.rows, []string{c.name, number(median(c.rates)),
			fmt.Sprintf("%.0f to %.0f", slices.Min(c.rates), slices.Max(c.rates)), strconv.Itoa(c.done)})
	}
	var ratios []float64
	for i, rate := range all[0].rates {
		ratios = append(ratios, rate/all[1].rates[i])
	}
	ratio := median(ratios)
	s.verdicts = []verdict{{"uncontended acquire and release, at least 0.8 of a handler that does nothing",
		fmt.Sprintf("%.3f (%.3f to %.3f)", ratio, slices.Min(ratios), slices.Max(ratios)), ratio >= .8}}
	return s
}

// median of at least one value.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[n/2] + sorted[(n-1)/2]) / 2
}

// quantile of at least one value.
func quantile(took []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
