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
	all    []*process // every replica that ever was
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
	f := &fleet{plan: p, out: out, up: upstream.New(p.Limit, p.Burst+p.Room, p.Tell), most: p.Replicas, urgent: make(chan struct{}, 1)}
	if how, counts := countings[p.Pool]; counts {
		if f.platform, err = how.start(); err != nil {
			return nil, fmt.Errorf("-pool %s: %w", p.Pool, err)
		}
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
	serving.Go(func() {
		watchStalls(watched, func(stall time.Duration) { f.stood.Store(max(f.stood.Load(), int64(stall))) })
	})
	defer func() {
		unwatch()
		err = errors.Join(err, each(f.alive(), func(_ int, p *process) error { return p.stop() }), srv.Close())
		serving.Wait()
	}()
	if err := f.startAll(ctx); err != nil {
		return nil, err
	}
	return f, f.play(ctx, script(f))
}

// each does something to all processes at the same time.
func each(all []*process, do func(i int, p *process) error) error {
	errs := make([]error, len(all))
	var doing sync.WaitGroup
	for i, p := range all {
		doing.Go(func() { errs[i] = do(i, p) })
	}
	doing.Wait()
	return errors.Join(errs...)
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
				f.end()
				return f.check()
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
func (f *fleet) end() {
	now := f.up.Now()
	f.phases[len(f.phases)-1].To = now
	if n := len(f.changes); n > 0 {
		f.changes[n-1].until = now
	}
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
	for ordinal := range f.plan.Replicas {
		if _, err := f.startOne(f.plan.Replicas, ordinal+1, false); err != nil {
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
	f.enter(f.begin, f.plan.Limit)
	return nil
}

// startOne starts the next replica as one of n. One that counts gets a configured size which is the same for all
// and counts only if the platform falls silent: as many as there will ever be.
func (f *fleet) startOne(n, ordinal int, join bool) (*process, error) {
	told := f.announced(n)
	a := assignment{
		ID: len(f.all) + 1, Upstream: f.url, Start: f.up.Start,
		Limit: f.plan.Limit, Burst: f.plan.Burst, Replicas: told, Ordinal: min(ordinal, told), Join: join, Policy: f.plan.ctrl,
		Want: f.plan.Want, Patience: patience, Life: f.plan.Duration + 2*startWithin + 5*time.Second,
	}
	if f.platform != nil {
		a.Pool, a.At, a.Replicas, a.Ordinal = f.plan.Pool, f.platform.at, f.plan.Replicas+1, 0
		if !join {
			a.Want = 0
		}
	}
	p, err := start(a, f.urgent)
	if err != nil {
		return nil, err
	}
	p.steps = []step{f.share(0, n)}
	f.all = append(f.all, p)
	return p, nil
}

// announced is the pool size that replicas get when there are n.
func (f *fleet) announced(n int) int {
	if f.plan.Believe > 0 {
		return f.plan.Believe
	}
	return n
}

// share is what one of n replicas may do from an instant on: the quotient, and no bucket smaller
// than one request.
func (f *fleet) share(from time.Duration, n int) step {
	return step{from: from, rate: f.plan.Limit / float64(n), burst: max(1, float64(f.plan.Burst)/float64(n))}
}

// changed is the step of a replica that was not yet one of n at one instant, and was at another. In between it is not
// known from outside, so the larger share counts.
func (f *fleet) changed(steps []step, n int, after, by time.Duration) step {
	next := f.share(by, n)
	if next.rate > steps[len(steps)-1].rate {
		next.from = after
	}
	return next
}

// alive are the replicas whose end was not ordered.
func (f *fleet) alive() []*process {
	return slices.DeleteFunc(slices.Clone(f.all), func(p *process) bool { return p.ending })
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

// enter ends the current phase and begins the next with those that are alive.
func (f *fleet) enter(at time.Duration, limit float64) {
	if len(f.phases) > 0 {
		f.phases[len(f.phases)-1].To = at
	}
	next := phase{From: at, Limit: limit}
	for _, p := range f.alive() {
		next.Alive = append(next.Alive, p.id)
	}
	f.phases = append(f.phases, next)
}

// division is the script in which one replica joins and one is killed.
func division(f *fleet) []moment {
	script := []moment{{f.plan.Join, f.join}, {f.plan.Kill, f.killOne}, {f.plan.Duration, nil}}
	return slices.DeleteFunc(script, func(m moment) bool { return m.at == 0 })
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
	f.most = max(f.most, n)
	news, err := f.happens(ctx, fmt.Sprintf("replica %d joins, its bucket empty", p.id), f.plan.Join, change{of: "join", at: hello.Born})
	if len(news.delays) > 0 {
		f.growth = f.grown(hello.Born, slices.Max(news.delays), n)
	}
	return err
}

// grown is what it may cost that the last of n replicas knew of a new replica only a time after it was born
// (bound 3).
func (f *fleet) grown(born, late time.Duration, n int) growth {
	return growth{from: born, to: born + late, extra: f.plan.Limit * late.Seconds() * (float64(n)/float64(n-1) - 1)}
}

// killOne kills the second replica, or the only one of the start, and tells the others.
func (f *fleet) killOne(ctx context.Context) error {
	victim := f.all[min(1, f.plan.Replicas-1)]
	if err := victim.kill(); err != nil {
		return err
	}
	what := fmt.Sprintf("replica %d is killed (pid %d)", victim.id, victim.cmd.Process.Pid)
	_, err := f.happens(ctx, what, f.plan.Kill, change{of: "kill", at: f.up.Now(), shrink: true})
	return err
}

// happens begins the phase after a change and shows it. It notifies the replicas; where they count, it lets the
// platform report what it reports, and what is still to come keeps its distance: a replica that starts slowly is
// noticed no sooner.
func (f *fleet) happens(ctx context.Context, what string, planned time.Duration, c change) (announcement, error) {
	f.enter(c.at, f.plan.Limit)
	if f.platform != nil {
		f.behind = max(0, c.at-f.begin-planned)
		err := f.say(c)
		f.out.happening(c.at-f.begin, what, "no replica is notified")
		return announcement{}, err
	}
	news, err := f.announce(ctx, c.at)
	if err == nil {
		f.out.event(c.at-f.begin, what, "notified", news)
	}
	return news, err
}

// An announcement is how long after a change each replica knew of it.
type announcement struct {
	ids    []int
	delays []time.Duration
	all    bool // or else some never have, and their delays last until the next change
}

// announce tells all that are alive how many they are now, all at the same time.
func (f *fleet) announce(ctx context.Context, changed time.Duration) (announcement, error) {
	alive := f.alive()
	n := len(alive)
	told := f.announced(n)
	news := announcement{ids: make([]int, n), delays: make([]time.Duration, n), all: true}
	return news, each(alive, func(i int, p *process) error {
		asked := f.up.Now()
		err := p.tell(ctx, told, min(i+1, told))
		known := f.up.Now()
		news.ids[i], news.delays[i] = p.id, known-changed
		p.steps = append(p.steps, f.changed(p.steps, n, asked, known))
		return err
	})
}
