package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient/examples/fleet/upstream"
)

// patience is how long a request waits for its turn before its replica gives it up.
const patience = 500 * time.Millisecond

// A fleet is one run: the upstream, the replicas, and what happened. Only the goroutine of
// runFleet uses it; the processes and the upstream have locks of their own.
type fleet struct {
	plan   plan
	out    *screen
	up     *upstream.Upstream
	url    string
	client *http.Client // for the admin endpoints
	all    []*process   // every replica that ever was
	phases []phase
	growth growth
	most   int // largest pool size
	begin  time.Duration
	behind time.Duration // how much later than planned all that is still to come happens

	platform *platform     // what the replicas count themselves with; nil when they get the size
	changes  []change      // of a pool that is counted, oldest first
	urgent   chan struct{} // a replica believes something new, or has ended
	stood    atomic.Int64  // the longest that this process stood still, nanoseconds
}

// A moment is an instant of a run, counted from its begin, and what happens at it.
type moment struct {
	at time.Duration
	do func(context.Context) error
}

// runFleet runs a script from start to end. In any case no process of it is left afterwards.
func runFleet(ctx context.Context, p plan, out *screen, script func(*fleet) []moment) (_ *fleet, err error) {
	up := upstream.New(upstream.NewClock(), p.Limit, p.Burst+p.Room, p.Tell)
	f := &fleet{plan: p, out: out, up: up, client: newAdminClient(), most: p.Replicas, urgent: make(chan struct{}, 1)}
	if f.platform, err = p.startPlatform(); err != nil {
		return nil, err
	}
	if f.platform != nil {
		defer func() { err = errors.Join(err, f.platform.close()) }()
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f.url = "http://" + listener.Addr().String() + "/"
	srv := &http.Server{Handler: f.up, ReadHeaderTimeout: 5 * time.Second}
	watched, unwatch := context.WithCancel(ctx)
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(listener) }) // it ends with ErrServerClosed, below
	serving.Go(func() { watchStalls(watched, f.stand) })
	defer func() {
		unwatch()
		err = errors.Join(err, f.stopAll(), srv.Close())
		serving.Wait()
	}()
	if err := f.startAll(ctx); err != nil {
		return nil, err
	}
	return f, f.play(ctx, script(f))
}

// stand notes how long this process stood still. Only one goroutine calls it.
func (f *fleet) stand(stall time.Duration) {
	f.stood.Store(max(f.stood.Load(), int64(stall)))
}

// division is the script in which one replica joins and one is killed.
func division(f *fleet) []moment {
	var script []moment
	if f.plan.Join > 0 {
		script = append(script, moment{f.plan.Join, f.join})
	}
	if f.plan.Kill > 0 {
		script = append(script, moment{f.plan.Kill, f.killOne})
	}
	return append(script, moment{f.plan.Duration, nil})
}

// play goes through a script, one line a second. The last moment is the end, at which nothing more happens.
func (f *fleet) play(ctx context.Context, script []moment) error {
	lines := time.NewTicker(time.Second)
	defer lines.Stop()
	due := time.NewTimer(f.until(script[0]))
	defer due.Stop()
	for n := 1; ; {
		select {
		case <-ctx.Done():
			return errors.New("interrupted")
		case <-lines.C:
			n = f.catchUp(n)
		case <-f.urgent:
			n = f.catchUp(n)
			f.showNotice()
		case <-due.C:
			n = f.catchUp(n) // the ticker's tick and a moment may fall together
			if len(script) == 1 {
				return f.end()
			}
			if err := script[0].do(ctx); err != nil {
				return err
			}
			script = script[1:]
			due.Reset(f.until(script[0]))
		}
		if err := f.check(); err != nil {
			return err
		}
	}
}

// end ends the last phase.
func (f *fleet) end() error {
	now := f.up.Now()
	f.phases[len(f.phases)-1].To = now
	if n := len(f.changes); n > 0 {
		f.changes[n-1].until = now
	}
	return f.check()
}

// until is how long it is until a moment.
func (f *fleet) until(m moment) time.Duration { return f.begin + f.behind + m.at - f.up.Now() }

// catchUp prints the lines from the n-th on that are due, and returns the number of the next. They may be
// more than one: a ticker drops ticks while a replica starts.
func (f *fleet) catchUp(n int) int {
	for passed := min(f.up.Now()-f.begin, f.plan.Duration+f.behind); time.Duration(n)*time.Second <= passed; n++ {
		f.line(n)
	}
	return n
}

// startAll starts the first replicas. The run begins when all of them are there.
func (f *fleet) startAll(ctx context.Context) error {
	n := f.plan.Replicas
	for ordinal := 1; ordinal <= n; ordinal++ {
		if _, err := f.startOne(n, ordinal, false); err != nil {
			return err
		}
	}
	for _, p := range f.all {
		if _, err := p.ready(ctx); err != nil {
			return err
		}
	}
	if f.platform != nil {
		if err := f.gather(ctx); err != nil {
			return err
		}
	}
	f.begin = f.up.Now()
	f.enter(f.begin)
	return nil
}

// startOne starts the next replica as one of n.
func (f *fleet) startOne(n, ordinal int, join bool) (*process, error) {
	told := f.plan.announced(n)
	a := assignment{
		ID: len(f.all) + 1, Upstream: f.url,
		Limit: f.plan.Limit, Burst: f.plan.Burst, Replicas: told, Ordinal: min(ordinal, told), Join: join, Policy: f.plan.ctrl,
		Want: f.plan.Want, Patience: patience, Life: f.plan.Duration + 2*startWithin + 5*time.Second,
	}
	if f.platform != nil {
		f.counts(&a)
	}
	p, err := start(a, f.urgent)
	if err != nil {
		return nil, err
	}
	p.steps = []step{f.share(0, n)}
	f.all = append(f.all, p)
	return p, nil
}

// counts turns the assignment of a replica that gets the size into that of one that counts. The configured
// size is the same for all and counts only if the platform falls silent: as many as there will ever be.
func (f *fleet) counts(a *assignment) {
	a.Pool, a.At = f.plan.Pool, f.platform.at
	a.Replicas, a.Ordinal = f.plan.Replicas+1, 0
	if !a.Join {
		a.Want = 0
	}
}

// share is what one of n replicas may do from an instant on: the quotient, and no bucket smaller
// than one request.
func (f *fleet) share(from time.Duration, n int) step {
	return step{from: from, rate: f.plan.Limit / float64(n), burst: max(1, float64(f.plan.Burst)/float64(n))}
}

// alive are the replicas whose end was not ordered.
func (f *fleet) alive() []*process {
	return slices.DeleteFunc(slices.Clone(f.all), func(p *process) bool { return p.ending })
}

// enter ends the current phase and begins the next with those that are alive.
func (f *fleet) enter(at time.Duration) {
	if len(f.phases) > 0 {
		f.phases[len(f.phases)-1].To = at
	}
	next := phase{From: at, Limit: f.plan.Limit}
	for _, p := range f.alive() {
		next.Alive = append(next.Alive, p.id)
	}
	f.phases = append(f.phases, next)
}

// join starts one more replica, with an empty bucket, and tells the others when it is there. It
// sends requests while they do not know of it yet: that is the growth that bound 3 allows for.
func (f *fleet) join(ctx context.Context) error {
	n := len(f.alive()) + 1
	p, err := f.startOne(n, n, true)
	if err != nil {
		return err
	}
	hello, err := p.ready(ctx)
	if err != nil {
		return err
	}
	born := f.up.Since(hello.Born)
	f.enter(born)
	f.most = max(f.most, n)
	what := fmt.Sprintf("replica %d joins, its bucket empty", p.id)
	if f.platform != nil {
		f.behind = max(0, born-f.begin-f.plan.Join) // a replica that starts slowly is noticed no sooner
		return f.happens(what, change{of: "join", at: born})
	}
	news, err := f.announce(ctx, born)
	if err != nil {
		return err
	}
	f.growth = f.grown(born, slices.Max(news.delays), n)
	f.out.event(born-f.begin, what, "notified", news)
	return nil
}

// grown is what it may cost that the last of n replicas knew of a new replica only a time after it was born
// (bound 3).
func (f *fleet) grown(born, late time.Duration, n int) growth {
	return growth{from: born, to: born + late, extra: f.plan.Limit * late.Seconds() * (float64(n)/float64(n-1) - 1)}
}

// killOne kills the second replica, or the only one of the start, and tells the others.
func (f *fleet) killOne(ctx context.Context) error {
	victim := f.all[min(1, f.plan.Replicas-1)]
	pid := victim.cmd.Process.Pid
	if err := victim.kill(); err != nil {
		return err
	}
	at := f.up.Now()
	f.enter(at)
	what := fmt.Sprintf("replica %d is killed (pid %d)", victim.id, pid)
	if f.platform != nil {
		f.behind = max(0, at-f.begin-f.plan.Kill)
		return f.happens(what, change{of: "kill", at: at, shrink: true})
	}
	news, err := f.announce(ctx, at)
	if err != nil {
		return err
	}
	f.out.event(at-f.begin, what, "notified", news)
	return nil
}

// An announcement is how long after a change each replica knew of it.
type announcement struct {
	ids    []int
	delays []time.Duration
}

// announce tells all that are alive how many they are now, all at the same time.
func (f *fleet) announce(ctx context.Context, changed time.Duration) (announcement, error) {
	alive := f.alive()
	n := len(alive)
	told := f.plan.announced(n)
	news := announcement{ids: make([]int, n), delays: make([]time.Duration, n)}
	errs := make([]error, n)
	var telling sync.WaitGroup
	for i, p := range alive {
		telling.Go(func() {
			asked := f.up.Now()
			errs[i] = p.tell(ctx, f.client, told, min(i+1, told))
			known := f.up.Now()
			news.ids[i], news.delays[i] = p.id, known-changed
			p.steps = append(p.steps, f.changed(p, n, asked, known))
		})
	}
	telling.Wait()
	return news, errors.Join(errs...)
}

// changed is the step of a replica that was ordered at one instant to be one of n, and had done so at
// another. In between it is not known from outside, so the larger share counts.
func (f *fleet) changed(p *process, n int, asked, known time.Duration) step {
	next := f.share(known, n)
	if next.rate > p.steps[len(p.steps)-1].rate {
		next.from = asked
	}
	return next
}

// check is an error when a replica ended that should be alive.
func (f *fleet) check() error {
	for _, p := range f.alive() {
		if err := p.ended(); err != nil {
			return err
		}
	}
	return nil
}

// stopAll ends all processes that are still there, all at the same time.
func (f *fleet) stopAll() error {
	alive := f.alive()
	errs := make([]error, len(alive))
	var stopping sync.WaitGroup
	for i, p := range alive {
		stopping.Go(func() { errs[i] = p.stop() })
	}
	stopping.Wait()
	return errors.Join(errs...)
}
