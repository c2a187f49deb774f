package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	blockedKeys = 100
	mostBlocked = 40 << 10 // bytes of a blocked request
	mostMore    = 8        // goroutines that may come and go
	ofAnIdle    = 2        // goroutines of an idle connection to the upstream
)

// oneAtATime is a file in which a path has one request in flight.
const oneAtATime = endpoints + `
[[proxy.rules]]
pattern = "/"
limiter = "paths"
[limiters.paths]
in-flight = 1
`

// A gate is an upstream that holds requests while it is closed, and writes down in which order they came.
type gate struct {
	mu    sync.Mutex // guards what follows
	open  chan struct{}
	order map[string][]int // numbers, by path
	held  int
}

func newGate() *gate {
	g := &gate{order: make(map[string][]int), open: make(chan struct{})}
	close(g.open)
	return g
}

// pause lets requests wait from now on, and forgets the order.
func (g *gate) pause() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open, g.order = make(chan struct{}), make(map[string][]int)
}

// lift lets all go.
func (g *gate) lift() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

// arrive takes a request for path?number.
func (g *gate) arrive(target []byte) {
	path, number, _ := bytes.Cut(target, []byte("?"))
	n, err := strconv.Atoi(string(number))
	if err != nil {
		n = -1
	}
	g.mu.Lock()
	g.order[string(path)] = append(g.order[string(path)], n)
	g.held++
	open := g.open
	g.mu.Unlock()
	<-open
	g.mu.Lock()
	g.held--
	g.mu.Unlock()
}

func (g *gate) holds() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

// arrived is how many requests came, and for how many paths they did not come in the order of their numbers.
func (g *gate) arrived() (all, disordered int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, order := range g.order {
		all += len(order)
		if !slices.IsSorted(order) {
			disordered++
		}
	}
	return all, disordered
}

// weight is what a process holds.
type weight struct {
	resident, heap int64 // bytes
	goroutines     int
}

// held is what was seen of blocked requests.
type held struct {
	blocked             int
	before, full        weight
	after               int // goroutines, when all clients have gone
	answered            int
	arrived, disordered int // when they were let go
	waiting             int // when all clients have gone
	reached             int // requests of clients that have gone, at the upstream
}

// blockedRequests blocks requests, lets them go, blocks them again and has their clients leave.
func (b *bench) blockedRequests(ctx context.Context) (section, error) {
	r, err := b.block(ctx)
	return r.section(), err
}

func (b *bench) block(ctx context.Context) (r held, err error) {
	g := newGate()
	u, err := serveUpstream(g.arrive)
	if err != nil {
		return r, err
	}
	defer u.close()
	defer g.lift()
	s, err := b.startQuotient(ctx, "quotient proxy", oneAtATime, u)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	warm, cancel := context.WithTimeout(ctx, b.slice)
	defer cancel()
	all := paths("w", 10*blockedKeys)
	if got := (crowd{addr: s.addr, conns: blockedKeys, paths: all}).run(warm); got.lost > 0 {
		return r, got.err
	}
	holders, crowd := connect(s.addr, blockedKeys), connect(s.addr, b.blocked)
	defer leave(holders)
	defer leave(crowd)
	r.blocked = len(crowd)
	if err := r.release(ctx, s, g, holders, crowd); err != nil {
		return r, err
	}
	return r, r.abandon(ctx, s, g, holders, crowd)
}

func connect(addr string, n int) (all []*client) {
	for range n {
		all = append(all, &client{addr: addr})
	}
	return all
}

func leave(all []*client) {
	for _, c := range all {
		c.close()
	}
}

// release blocks all, weighs the process and lets them go.
func (r *held) release(ctx context.Context, s *server, g *gate, holders, crowd []*client) (err error) {
	if r.before, err = s.weigh(ctx); err != nil {
		return err
	}
	g.pause()
	if err := queue(ctx, s, g, holders, crowd); err != nil {
		return err
	}
	if r.full, err = s.weigh(ctx); err != nil {
		return err
	}
	g.lift()
	for _, c := range slices.Concat(holders, crowd) {
		status, err := c.answer()
		if err != nil {
			return fmt.Errorf("a request that was let go: %w", err)
		}
		if status == 200 {
			r.answered++
		}
	}
	r.arrived, r.disordered = g.arrived()
	return nil
}

// abandon blocks all again and has them leave.
func (r *held) abandon(ctx context.Context, s *server, g *gate, holders, crowd []*client) error {
	g.pause()
	if err := queue(ctx, s, g, holders, crowd); err != nil {
		return err
	}
	leave(crowd)
	gone := func() error {
		state, err := s.admin.Limiter(ctx, "paths")
		if err != nil {
			return final{err}
		}
		w, err := s.weigh(ctx)
		if err != nil {
			return final{err}
		}
		r.waiting, r.after = state.Waiting, w.goroutines
		if r.waiting > 0 || r.after > r.before.goroutines+2*ofAnIdle*blockedKeys+mostMore {
			return errors.New("waiting still")
		}
		return nil
	}
	_ = until(ctx, time.Minute, gone) // the verdict judges what is left
	all, _ := g.arrived()
	r.reached = all - len(holders)
	g.lift()
	for _, c := range holders {
		if _, err := c.answer(); err != nil {
			return fmt.Errorf("a request at the upstream: %w", err)
		}
	}
	leave(holders)
	_ = until(ctx, time.Minute, func() error {
		w, err := s.weigh(ctx)
		if r.after = w.goroutines; err == nil && r.after > r.mostAfter() {
			err = errors.New("goroutines are left")
		}
		return err
	})
	return ctx.Err()
}

// mostAfter is how many goroutines may be left: those of before, and of idle connections to the upstream.
func (r *held) mostAfter() int { return r.before.goroutines + ofAnIdle*blockedKeys + mostMore }

// queue sends one request of a holder for each path, and then those of the crowd: as many at once as there
// are paths, the next when these are waiting. So their order is known.
func queue(ctx context.Context, s *server, g *gate, holders, crowd []*client) error {
	all := paths("b", len(holders))
	for i, c := range holders {
		if err := c.send(all[i] + "?0"); err != nil {
			return err
		}
	}
	err := until(ctx, patience, func() error {
		if n := g.holds(); n < len(holders) {
			return fmt.Errorf("%d requests of %d are at the upstream", n, len(holders))
		}
		return nil
	})
	for wave := 0; wave*len(all) < len(crowd) && err == nil; wave++ {
		end := min(len(crowd), (wave+1)*len(all))
		for i := wave * len(all); i < end; i++ {
			if err := crowd[i].send(fmt.Sprintf("%s?%d", all[i%len(all)], wave+1)); err != nil {
				return err
			}
		}
		err = s.waits(ctx, end)
	}
	return err
}

// waits returns when so many requests are waiting.
func (s *server) waits(ctx context.Context, n int) error {
	return until(ctx, patience, func() error {
		state, err := s.admin.Limiter(ctx, "paths")
		if err != nil {
			return final{err}
		}
		if state.Waiting != n {
			return fmt.Errorf("%d requests are waiting, not %d", state.Waiting, n)
		}
		return nil
	})
}

func (r held) section() section {
	each := func(full, before int64) float64 {
		return float64(full-before) / float64(max(1, r.blocked)) / (1 << 10)
	}
	row := func(name string, w weight) []string {
		return []string{name, number(mib(w.resident)), number(mib(w.heap)), fmt.Sprint(w.goroutines)}
	}
	s := section{
		title: fmt.Sprintf("%d blocked requests", r.blocked),
		note: fmt.Sprintf(
			"Over as many connections with HTTP/1.1, for %d paths of which each has one request at the "+
				"upstream. The heap is its goal for the next collection, less than twice what is alive: %s "+
				"KiB a blocked request.",
			blockedKeys, number(each(r.full.heap, r.before.heap))),
		header: []string{"quotient proxy", "resident, MiB", "heap, MiB", "goroutines"},
		rows:   [][]string{row("before", r.before), row("all blocked", r.full)},
	}
	return s.judge(
		atMost("resident memory of a blocked request", each(r.full.resident, r.before.resident),
			mostBlocked>>10, " KiB"),
		exactly("answered with 200 when they were let go", r.answered, r.blocked+blockedKeys),
		exactly("at the upstream then", r.arrived, r.blocked+blockedKeys),
		exactly("paths whose requests did not come in the order of their arrival", r.disordered, 0),
		exactly("waiting when the clients had gone", r.waiting, 0),
		exactly("at the upstream of those whose clients had gone", r.reached, 0),
		atMost("goroutines then", float64(r.after), float64(r.mostAfter()), ""),
	)
}
