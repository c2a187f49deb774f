package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/quotient-go/quotient/examples/fleet/upstream"
)

const (
	startWithin = 30 * time.Second // all processes of the start, also on a busy machine
	overLog     = 4                // what the log has room for, as a multiple of what the limit lets through
)

// A fleet is one run. Only the goroutine of play uses it; processes and recorder have locks of their own.
type fleet struct {
	record
	out   io.Writer
	party *party // nil: it does not gossip
	clock upstream.Clock
	up    *recorder
	url   string
	world *world
	rng   *rand.Rand
	exe   string     // what replicas run
	all   []*process // every process that ever was
	due   []moment   // what is to happen, in order
	begin time.Duration
}

// A moment is an instant of a run and what happens at it.
type moment struct {
	at time.Duration
	do func() error
}

// play runs the whole fleet through its faults. In any case no process of it is left afterwards.
func play(ctx context.Context, c config, out io.Writer) (_ record, err error) {
	f := &fleet{record: record{config: c}, out: out, clock: upstream.NewClock(), rng: rand.New(rand.NewPCG(c.Seed, 2))}
	life := c.Duration + startWithin + coolDown
	prepare := f.prepare
	if c.Gossip {
		prepare, life = f.prepareGossip, life+quietFor+countWithin
	}
	if err := prepare(ctx); err != nil {
		return record{}, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	f.up = &recorder{start: f.clock.Now(), most: int(overLog*(c.Limit+100)*life.Seconds()) + c.Burst}
	f.Epoch = f.up.start
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return record{}, err
	}
	f.url = "http://" + listener.Addr().String()
	srv := &http.Server{Handler: f.up, ReadHeaderTimeout: 5 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(listener) }) // it ends with ErrServerClosed, below
	defer func() {
		err = errors.Join(err, srv.Close())
		serving.Wait()
	}()
	err = f.run(ctx)
	if err = errors.Join(err, f.stopAll(), f.up.err); err != nil {
		return record{}, err
	}
	return f.finish(), nil
}

// prepare makes the world, and meanwhile the program with a wall clock that can be stepped. Parts that this
// machine cannot run are left out.
func (f *fleet) prepare(ctx context.Context) (err error) {
	if f.exe, err = os.Executable(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "chaos")
	if err != nil {
		return err
	}
	var stepped string
	var noStep, noWorld error
	var both sync.WaitGroup
	both.Go(func() { stepped, noStep = buildStepped(ctx, dir) })
	both.Go(func() { f.world, noWorld = newWorld(ctx, dir) })
	both.Wait()
	switch {
	case noStep == nil:
		f.exe = stepped
	case errors.Is(noStep, errNoBuild):
		f.Skip[laneClock], noStep = noStep.Error(), nil
	}
	if ctx.Err() != nil {
		noStep = errors.New("interrupted")
	}
	if f.world == nil {
		return errors.Join(noStep, noWorld, os.RemoveAll(dir))
	}
	if noStep != nil {
		return errors.Join(noStep, f.world.close())
	}
	if f.Redis = f.world.store(); f.world.cluster == nil {
		f.Skip[laneCluster] = "it takes redis-server on the PATH"
		f.Absent[fromCluster] = f.Skip[laneCluster]
	}
	return nil
}

func (f *fleet) now() time.Duration { return time.Duration(f.clock.Now() - f.up.start) }

func (f *fleet) since(clock int64) time.Duration { return time.Duration(clock - f.up.start) }

// close ends what the replicas learn from.
func (f *fleet) close() error {
	if f.party != nil {
		return f.party.close()
	}
	return f.world.close()
}

// run starts the processes, and goes through what is due.
func (f *fleet) run(ctx context.Context) error {
	begin, enter := f.startAll, f.enterFaults
	if f.party != nil {
		begin, enter = f.seatAll, f.enterStrokes
	}
	if err := begin(); err != nil {
		return err
	}
	if err := f.allKnown(ctx); err != nil {
		return err
	}
	f.begin = f.now()
	over := false
	enter()
	f.at(f.begin+f.Duration, func() error { over = true; return nil })
	for !over {
		if err := f.next(ctx); err != nil {
			return err
		}
	}
	if f.party != nil {
		if err := f.countAll(ctx); err != nil {
			return err
		}
	}
	f.Length = f.now()
	return nil
}

// startAll starts the processes. The file and DNS count them all from the start.
func (f *fleet) startAll() error {
	var addrs []netip.Addr
	for range f.Replicas {
		addrs = append(addrs, f.world.address(true))
	}
	err := f.publish(kindStart, addrs)
	for _, addr := range addrs {
		err = errors.Join(err, f.startOne(addr))
	}
	return err
}

// enterFaults enters what is to happen.
func (f *fleet) enterFaults() {
	for _, x := range schedule(f.config) {
		if f.Skip[x.lane] != "" {
			continue
		}
		f.at(f.begin+x.at, func() error { return f.strike(x) })
	}
}

// allKnown waits until every process has a share of every path.
func (f *fleet) allKnown(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for slices.ContainsFunc(f.all, func(p *process) bool { return !p.known() }) {
		select {
		case <-ctx.Done():
			return errors.New("interrupted")
		case <-tick.C:
		}
		if err := f.check(); err != nil {
			return err
		}
		if f.now() > startWithin {
			return fmt.Errorf("not all processes know their pools after %v", startWithin)
		}
	}
	return nil
}

// at enters a moment.
func (f *fleet) at(t time.Duration, do func() error) {
	i, _ := slices.BinarySearchFunc(f.due, t, func(m moment, t time.Duration) int {
		return cmp.Or(cmp.Compare(m.at, t), -1) // after those of the same instant
	})
	f.due = slices.Insert(f.due, i, moment{t, do})
}

// next waits for the next moment and lets it happen.
func (f *fleet) next(ctx context.Context) error {
	m := f.due[0]
	f.due = f.due[1:]
	timer := time.NewTimer(m.at - f.now())
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return errors.New("interrupted")
	case <-timer.C:
	}
	return errors.Join(f.check(), m.do())
}

// check is an error when a replica ended that should be alive, or a request could not be written down.
func (f *fleet) check() error {
	for _, p := range f.all {
		if err := p.ended(); err != nil {
			return err
		}
	}
	f.up.mu.Lock()
	defer f.up.mu.Unlock()
	return f.up.err
}

// stopAll ends all processes that are still there, all at the same time.
func (f *fleet) stopAll() error {
	errs := make([]error, len(f.all))
	var stopping sync.WaitGroup
	for i, p := range f.alive() {
		if p.stopped {
			errs[i] = p.resume()
		}
		stopping.Go(func() { errs[i] = errors.Join(errs[i], p.stop()) })
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// alive are the processes whose end was not ordered.
func (f *fleet) alive() []*process {
	return slices.DeleteFunc(slices.Clone(f.all), func(p *process) bool { return p.ordered })
}

// finish completes the record.
func (f *fleet) finish() record {
	for _, p := range f.all {
		f.Lives = append(f.Lives, p.lived())
	}
	f.countSilences()
	for s := range sources {
		slices.SortFunc(f.Faults[s], func(a, b span) int { return cmp.Compare(a.To, b.To) })
	}
	f.up.mu.Lock()
	f.Logs = f.up.logs
	f.up.mu.Unlock()
	f.countRedis()
	slices.SortStableFunc(f.Events, func(a, b event) int { return cmp.Compare(a.At, b.At) })
	return f.record
}
