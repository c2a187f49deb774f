package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// A crowd is clients that each send the next request as soon as they were answered.
type crowd struct {
	addr    string
	conns   int
	paths   []string
	pace    time.Duration // between an answer and the next request
	abandon bool          // requests without an answer when the context ends; else they are waited for
}

// seen is what clients were answered.
type seen struct {
	asked    int
	statuses map[int]int
	lost     int   // requests without an answer
	err      error // of the first of them
	took     []time.Duration
	keys     int // distinct paths
	during   time.Duration
}

func (s *seen) add(o seen) {
	s.asked, s.lost = s.asked+o.asked, s.lost+o.lost
	if s.statuses == nil {
		s.statuses = make(map[int]int)
	}
	for status, n := range o.statuses {
		s.statuses[status] += n
	}
	if s.err == nil {
		s.err = o.err
	}
	s.took = append(s.took, o.took...)
}

// rate is how many requests were answered in a second.
func (s *seen) rate() float64 { return float64(s.asked-s.lost) / s.during.Seconds() }

// all reports an error unless each request was answered with this status.
func (s *seen) all(status int) error {
	if s.asked == 0 || s.statuses[status] != s.asked {
		return fmt.Errorf("%d requests, answered with %v, %d lost: %w", s.asked, s.statuses, s.lost,
			errors.Join(s.err))
	}
	return nil
}

// run lets the crowd ask until the context ends.
func (c crowd) run(ctx context.Context) seen {
	var mu sync.Mutex
	var sum seen
	asked := make([]bool, len(c.paths))
	var all sync.WaitGroup
	began := time.Now()
	for i := range c.conns {
		all.Go(func() {
			s, mine := c.one(ctx, i)
			mu.Lock()
			defer mu.Unlock()
			sum.add(s)
			for k, was := range mine {
				asked[k] = asked[k] || was
			}
		})
	}
	all.Wait()
	sum.during = time.Since(began)
	for _, was := range asked {
		if was {
			sum.keys++
		}
	}
	return sum
}

// one is one client of the crowd. A request that is on its way when the context ends is waited for.
func (c crowd) one(ctx context.Context, i int) (s seen, asked []bool) {
	s.statuses, asked = make(map[int]int), make([]bool, len(c.paths))
	order := rand.New(rand.NewPCG(uint64(i), 1)).Perm(len(c.paths)) // each client has its own
	conn := client{addr: c.addr}
	if c.abandon {
		conn.ctx = ctx
	}
	defer conn.close()
	for ctx.Err() == nil {
		k := order[s.asked%len(order)]
		began := time.Now()
		status, err := conn.ask(c.paths[k])
		if err != nil && c.abandon && ctx.Err() != nil {
			return s, asked
		}
		s.asked++
		if err != nil {
			s.lost++
			s.err = errors.Join(s.err, err)
			if s.lost >= mostLost {
				return s, asked
			}
			continue
		}
		s.took = append(s.took, time.Since(began))
		s.statuses[status]++
		asked[k] = true
		if c.pace > 0 && sleepUntil(ctx, time.Now().Add(c.pace)) != nil {
			break
		}
	}
	return s, asked
}

// mostLost is after how many lost requests a client gives up.
const mostLost = 100

// paths makes n distinct paths.
func paths(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("/%s/%06d", prefix, i))
	}
	return all
}

// quantile of durations that are sorted; 0 when there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// spread is the least, the median and the greatest of some figures.
type spread struct{ least, middle, most float64 }

func spreadOf(vs []float64) spread {
	if len(vs) == 0 {
		return spread{}
	}
	vs = slices.Sorted(slices.Values(vs))
	n := len(vs)
	return spread{vs[0], (vs[n/2] + vs[(n-1)/2]) / 2, vs[n-1]}
}
