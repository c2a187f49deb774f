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

// conns is how many connections each contender has.
const conns = 8

// contender is one server of a round.
type contender struct {
	name, addr string
	grants     bool     // it grants locks, to peers that it knows
	refused    bool     // the requests go to /health, which refuses their methods
	peers      []uint64 // one for each connection
	rates      []float64
	done, warm int    // acquires and releases, and those of the first round
	first      uint64 // token
}

// throughput compares uncontended acquires and releases with a handler that does nothing.
func (b *bench) throughput(ctx context.Context) (section, error) {
	p, err := servePair(lease.Config{Semaphores: map[string]lease.Semaphore{"free": {Max: conns}}})
	if err != nil {
		return section{}, err
	}
	port, err := freePort()
	if err != nil {
		return section{}, errors.Join(err, p.stop())
	}
	program, err := b.leases(ctx, port, "-s", fmt.Sprintf("free=%d", conns))
	if err != nil {
		return section{}, errors.Join(err, p.stop())
	}
	all := []*contender{
		{name: "lease.Server", addr: p.Leases, grants: true},
		{name: "a handler that does nothing", addr: p.Nothing},
		{name: "quotient leases", addr: at(port), grants: true},
		{name: "quotient leases, for a method that it refuses at once", addr: at(port), refused: true},
	}
	granted := uint64(0)
	if err = b.race(ctx, all); err == nil {
		granted, err = all[0].granted()
	}
	if err := errors.Join(err, p.stop(), program.stop()); err != nil {
		return section{}, err
	}
	s := throughputSection(all, b.rounds, b.slice)
	s.verdicts = append(s.verdicts, exactly("locks that were granted, as their tokens count", int(granted),
		all[0].done+all[0].warm))
	return s, nil
}

// granted is how many tokens the server has given before this one: they are consecutive, and start at first.
func (c *contender) granted() (n uint64, err error) {
	w := &wire{addr: c.addr}
	defer w.close()
	a, err := w.want(200, "PUT", fmt.Sprintf("/peers/%d/free", c.peers[0]), "1")
	return a.token - c.first, err
}

func (b *bench) race(ctx context.Context, all []*contender) error {
	for _, c := range all {
		w := &wire{addr: c.addr}
		for range conns {
			id := uint64(0)
			if c.grants {
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
			if round == 0 {
				c.warm = n
				continue
			}
			c.rates = append(c.rates, float64(n)/took.Seconds())
			c.done += n
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
			mine, first, failed := c.acquireAndRelease(ctx, id, began.Add(slice))
			mu.Lock()
			defer mu.Unlock()
			if c.first == 0 || first != 0 && first < c.first {
				c.first = first
			}
			n, err = n+mine, errors.Join(err, failed)
		})
	}
	wg.Wait()
	return n, time.Since(began), err
}

func (c *contender) acquireAndRelease(
	ctx context.Context, id uint64, until time.Time,
) (n int, first uint64, err error) {
	w := &wire{addr: c.addr, ctx: ctx}
	defer w.close()
	lock, status := fmt.Sprintf("/peers/%d/free", id), 200
	if c.refused {
		lock, status = "/health", 405
	}
	take := lock + "?block_for=5000ms&expires_in=60000ms"
	last := uint64(0)
	for time.Now().Before(until) {
		a, err := w.want(status, "PUT", take, "1")
		switch {
		case err != nil:
			return n, first, err
		case a.token <= last && c.grants:
			return n, first, fmt.Errorf("token %d after %d", a.token, last)
		}
		last = a.token
		if first == 0 {
			first = last
		}
		if _, err = w.want(status, "DELETE", lock, ""); err != nil {
			return n, first, err
		}
		n++
	}
	return n, first, nil
}

func throughputSection(all []*contender, rounds int, slice time.Duration) section {
	s := section{title: "Throughput",
		note: fmt.Sprintf("%d connections, each of a peer of its own that acquires a free lock and releases "+
			"it, again and again. %d rounds of %v, in which the servers take turns. The first two are in one "+
			"process, in HTTP servers of the same settings; the others are the whole program, which bounds slow "+
			"clients besides. All get the same requests, the last one with a path that has no such methods. Each "+
			"ratio is that of one round.", conns, rounds, slice),
		header: []string{"server", "acquires and releases a second", "least to most", "locks taken"}}
	for _, c := range all {
		s.rows = append(s.rows, []string{c.name, number(median(c.rates)),
			fmt.Sprintf("%.0f to %.0f", slices.Min(c.rates), slices.Max(c.rates)), strconv.Itoa(c.done)})
	}
	for i, what := range []string{"a handler that does nothing", "what it refuses at once"} {
		ours, bare := all[2*i], all[2*i+1]
		var ratios []float64
		for k, rate := range ours.rates {
			ratios = append(ratios, rate/bare.rates[k])
		}
		ratio := median(ratios)
		s.verdicts = append(s.verdicts, verdict{
			ours.name + ": uncontended acquire and release, at least 0.8 of " + what,
			fmt.Sprintf("%.3f (%.3f to %.3f)", ratio, slices.Min(ratios), slices.Max(ratios)), ratio >= .8})
	}
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
