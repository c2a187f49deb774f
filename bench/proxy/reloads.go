package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	steadyLimit = 50 // of each of two paths in each second, on which clients wait
	movingMost  = 60 // of a path in each second, in turn with 40; more is refused
	onceLimit   = 50 // of a path, and one more a day
)

// moving is a file of three limiters, of which a reload changes one.
const moving = endpoints + `
[[proxy.rules]]
pattern = "/s/"
limiter = "steady"
[[proxy.rules]]
pattern = "/m/"
limiter = "moving"
[[proxy.rules]]
pattern = "/"
limiter = "once"
[limiters.steady]
rates = [{ events = 50, per = "1s", aligned = true }]
[limiters.moving]
mode = "refuse"
rates = [{ events = MOVING, per = "1s", aligned = true }]
[limiters.once]
mode = "refuse"
rates = [{ events = 1, per = "24h", burst = 50 }]
`

// broken is what breaks the file.
const broken = "\n[limiters.moving\nevents = many\n"

// reloaded is what was seen of many reloads.
type reloaded struct {
	asked, good, broken int // reloads
	applied, failed     int // by the proxy's own count
	steady, moved, once seen
	steadyPace          float64 // requests of a path since the start, beside its limit in each second
	movedPace           float64
	onceAll             int
	weights             []weight // one after each tenth reload
	took                time.Duration
}

// manyReloads writes the file again and again under load; every tenth time it is broken.
func (b *bench) manyReloads(ctx context.Context) (section, error) {
	r, err := b.reload(ctx)
	return r.section(), err
}

func (b *bench) reload(ctx context.Context) (r reloaded, err error) {
	book := newLedger(time.Second)
	u, err := serveUpstream(book.arrive)
	if err != nil {
		return r, err
	}
	defer u.close()
	s, err := b.startQuotient(ctx, "quotient proxy", strings.ReplaceAll(moving, "MOVING",
		fmt.Sprint(movingMost)), u)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	loaded, cancel := context.WithCancel(ctx)
	var load sync.WaitGroup
	steady, first := paths("s", 2), book.index(time.Now())
	for _, l := range []struct {
		into *seen
		crowd
	}{
		{&r.steady, crowd{addr: s.addr, conns: 4 * steadyLimit, paths: steady}},
		{&r.moved, crowd{addr: s.addr, conns: 4, paths: []string{"/m/1"}, pace: 20 * time.Millisecond}},
		{&r.once, crowd{addr: s.addr, conns: 2, paths: []string{"/o/1"}, pace: 20 * time.Millisecond}},
	} {
		load.Go(func() { *l.into = l.run(loaded) })
	}
	err = r.changes(ctx, s, b.reloads)
	cancel()
	load.Wait()
	r.steadyPace = max(book.pace(steady[0], steadyLimit, first), book.pace(steady[1], steadyLimit, first))
	r.movedPace, r.onceAll = book.pace("/m/1", movingMost, first), book.total("/o/1")
	return r, err
}

// changes writes the file n times, and waits each time until the proxy has read it.
func (r *reloaded) changes(ctx context.Context, s *server, n int) error {
	text, err := os.ReadFile(s.file)
	if err != nil {
		return err
	}
	began := time.Now()
	from := fmt.Sprintf("events = %d, per", movingMost)
	for i := range n {
		r.asked++
		change := func() error {
			return r.better(ctx, s, strings.Replace(string(text), from,
				fmt.Sprintf("events = %d, per", eventsOf(i)), 1), eventsOf(i))
		}
		if i%10 == 9 {
			change = func() error { return r.worse(ctx, s, string(text)+broken) }
		}
		if err := change(); err != nil {
			return fmt.Errorf("reload %d: %w", i+1, err)
		}
		if i%10 == 9 || i < 5 {
			w, err := s.weigh(ctx)
			if err != nil {
				return err
			}
			r.weights = append(r.weights, w)
		}
	}
	r.took = time.Since(began)
	state, err := s.admin.State(ctx)
	if err != nil || state.File == nil {
		return errors.Join(errors.New("the state shows no file"), err)
	}
	r.applied, r.failed = int(state.File.Reloads), int(state.File.Failures)
	return nil
}

// eventsOf is what a reload sets the moving limit to: always something else than the one before.
func eventsOf(i int) int {
	if i%10 == 9 {
		i-- // broken: it changes nothing
	}
	return movingMost - 20*((i+i/10+1)%2)
}

// rewrite writes the file and asks the proxy to read it.
func (s *server) rewrite(text string) error {
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		return err
	}
	return s.signal(syscall.SIGHUP)
}

// better writes a file that is in order, and returns when it is in force.
func (r *reloaded) better(ctx context.Context, s *server, text string, events int) error {
	if err := s.rewrite(text); err != nil {
		return err
	}
	r.good++
	return until(ctx, time.Minute, func() error {
		state, err := s.admin.State(ctx)
		if err != nil || state.File == nil {
			return final{errors.Join(errors.New("the state shows no file"), err)}
		}
		is := state.Limiters["moving"].Limit.Rates
		if len(is) != 1 || int(is[0].Events) != events || state.File.Error != "" {
			return fmt.Errorf("the limit is %v, not %d; %s", is, events, state.File.Error)
		}
		return nil
	})
}

// worse writes a broken file, and returns when the proxy has refused it.
func (r *reloaded) worse(ctx context.Context, s *server, text string) error {
	if err := s.rewrite(text); err != nil {
		return err
	}
	r.broken++
	return until(ctx, time.Minute, func() error {
		state, err := s.admin.State(ctx)
		if err != nil || state.File == nil {
			return final{errors.Join(errors.New("the state shows no file"), err)}
		}
		if state.File.Error == "" {
			return errors.New("a broken file is no error")
		}
		return nil
	})
}

func (r reloaded) section() section {
	s := section{
		title: fmt.Sprintf("%d reloads", r.asked),
		note: fmt.Sprintf(
			"Under load, each after the one before was answered for, with SIGHUP; every tenth file is "+
				"broken. %s s. The proxy counts %d reloads that were applied and %d that failed. Three "+
				"limiters: steady has %d a second for each of two paths, and its clients wait; moving has "+
				"40 and %d in turn and refuses; once has %d, and refuses. Memory is a median of looks.",
			number(r.took.Seconds()), r.applied, r.failed, steadyLimit, movingMost, onceLimit),
		header: []string{"fifth of the reloads", "resident, MiB", "heap, MiB", "goroutines"},
	}
	var resident, heap, goroutines [5]float64
	for i := range 5 {
		w := r.weights[i*len(r.weights)/5 : (i+1)*len(r.weights)/5]
		resident[i] = middle(w, func(w weight) float64 { return mib(w.resident) })
		heap[i] = middle(w, func(w weight) float64 { return mib(w.heap) })
		goroutines[i] = middle(w, func(w weight) float64 { return float64(w.goroutines) })
		s.rows = append(s.rows, []string{fmt.Sprint(i + 1), number(resident[i]), number(heap[i]),
			number(goroutines[i])})
	}
	return s.judge(
		verdict{"every good file was put in force, every broken one refused",
			fmt.Sprintf("%d and %d of %d", r.good, r.broken, r.asked),
			r.asked > 0 && r.good+r.broken == r.asked && r.applied >= r.good && r.failed >= r.broken},
		answered("steady", r.steady, 200),
		answered("moving", r.moved, 200, 429),
		answered("once", r.once, 200, 429),
		paced("steady", r.steadyPace, steadyLimit),
		paced("moving", r.movedPace, movingMost),
		exactly("once: requests in all", r.onceAll, onceLimit),
		atMost("resident memory of the last fifth, beside the second", resident[4]/max(1, resident[1]), 1.1,
			" x"),
		atMost("heap of the last fifth, beside the second", heap[4]/max(1, heap[1]), 1.1, " x"),
		atMost("goroutines of the last fifth", goroutines[4], goroutines[1]+mostMore, ""),
	)
}

// paced is the goal that no path got more since the start than so many in each second.
func paced(name string, pace float64, limit int) verdict {
	goal := fmt.Sprintf("%s: requests for a path since the start, beside %d in each second", name, limit)
	return atMost(goal, pace, 1, " x")
}

func middle(ws []weight, of func(weight) float64) float64 {
	var vs []float64
	for _, w := range ws {
		vs = append(vs, of(w))
	}
	return spreadOf(vs).middle
}

// answered is the goal that each request was answered, with one of these.
func answered(name string, s seen, statuses ...int) verdict {
	n := 0
	for _, status := range statuses {
		n += s.statuses[status]
	}
	return verdict{fmt.Sprintf("%s: every request was answered with one of %v", name, statuses),
		fmt.Sprintf("%v of %d, %d lost", s.statuses, s.asked, s.lost), s.asked > 0 && n == s.asked}
}
