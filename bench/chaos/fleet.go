package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/quotient-go/quotient/bench/rig"
)

const (
	startWithin = 30 * sec // all processes of the start, also on a busy machine
	spare       = 60 * sec // that a replica lives for after all
)

// A fleet is one run. Only the goroutine of play uses it; what processes say is noted in their lives.
type fleet struct {
	record
	out     io.Writer
	clock   clock
	rng     *rand.Rand
	dir     string
	stepped string // the program whose wall clock can be stepped; "": this one
	world   *world // nil: it gossips
	mesh    *mesh  // nil: it does not
	seats   int    // of the mesh, that there were
	busy    bool   // those that are new are busy
	all     []*process
	due     []moment // what is to happen, in order
	begin   time.Duration
}

// A process is a replica, seen from its parent. All but its life is owned by the fleet.
type process struct {
	*rig.Process
	*life
	addr    netip.Addr // in DNS
	seat    *seat      // in the mesh
	busy    bool       // its callers ask
	ordered bool       // its end was ordered
	paused  bool       // by SIGSTOP
}

type moment struct {
	at time.Duration
	do func() error
}

// play runs the whole fleet through its faults. In any case no process of it is left afterwards.
func play(ctx context.Context, c config, out io.Writer) (_ record, err error) {
	f := &fleet{record: record{config: c, Struck: map[string]int{}}, out: out, rng: rand.New(rand.NewPCG(c.Seed, 2))}
	if f.dir, err = os.MkdirTemp("", "chaos"); err != nil {
		return record{}, err
	}
	if err = f.prepare(ctx); err == nil {
		err = f.run(ctx)
	}
	if err = errors.Join(err, f.stopAll(), f.close()); ctx.Err() != nil {
		err = errors.Join(errors.New("interrupted"), err)
	}
	if err != nil {
		return record{}, err
	}
	f.finish()
	return f.record, nil
}

// prepare makes the world or the mesh, and meanwhile the program with a wall clock that can be stepped.
func (f *fleet) prepare(ctx context.Context) (err error) {
	if f.Gossip {
		f.mesh, err = newMesh()
		return err
	}
	var err1, err2 error
	var both sync.WaitGroup
	both.Go(func() { f.stepped, err1 = buildStepped(ctx, f.dir) })
	both.Go(func() { f.world, err2 = newWorld(ctx, f.dir) })
	both.Wait()
	return errors.Join(err1, err2)
}

func (f *fleet) close() (err error) {
	if f.world != nil {
		err = f.world.close()
	}
	if f.mesh != nil {
		err = f.mesh.close()
	}
	return errors.Join(err, os.RemoveAll(f.dir))
}

func (f *fleet) now() time.Duration { return f.clock.now() }

func (f *fleet) run(ctx context.Context) error {
	f.Epoch = time.Now().UnixNano()
	f.clock = clockFrom(f.Epoch)
	if err := f.startAll(); err != nil {
		return err
	}
	if err := rig.Until(ctx, startWithin, f.allKnown); err != nil {
		return err
	}
	f.begin = f.now()
	for _, x := range schedule(f.config) {
		f.at(f.begin+x.at, func() error { return f.strike(x) })
	}
	if err := f.until(ctx, f.begin+f.Duration); err != nil {
		return err
	}
	f.Length = f.now()
	return nil
}

// startAll starts the processes. The file and DNS are there when they count them all.
func (f *fleet) startAll() (err error) {
	for range f.Replicas {
		err = errors.Join(err, f.startNew())
	}
	if f.Gossip {
		return err
	}
	return errors.Join(err, f.publish())
}

// startNew starts a process at an address or a seat that is new. Addresses come in any order.
func (f *fleet) startNew() error {
	if f.Gossip {
		return f.startSeat(nil)
	}
	w, n := f.world, len(f.all)
	addr := netip.AddrFrom4([4]byte{127, byte(1 + f.rng.IntN(250)), byte(n / 250), byte(1 + n%250)})
	return f.start(&process{addr: addr}, assignment{
		Address: addr.String(), File: w.pool, DNS: w.dns.Addr(), Steady: w.steady.Addr(), Cluster: w.cluster.addrs(),
	})
}

// startSeat starts a process at a seat, nil for a new one, with a file of the addresses of those that live.
func (f *fleet) startSeat(s *seat) (err error) {
	if s == nil {
		f.seats++
		if s, err = f.mesh.open(f.seats); err != nil {
			return err
		}
	}
	joins, list := filepath.Join(f.dir, "joins"), s.public.String()
	for _, p := range f.alive() {
		list += "\n" + p.seat.public.String()
	}
	if err := errors.Join(os.WriteFile(joins+".next", []byte(list), 0o600), os.Rename(joins+".next", joins)); err != nil {
		return err
	}
	return f.start(&process{seat: s, busy: f.busy}, assignment{
		Bind: s.bind.String(), Advertise: s.public.String(), JoinFile: joins, Busy: f.busy,
	})
}

// start starts a process and gives it its assignment.
func (f *fleet) start(p *process, a assignment) (err error) {
	a.config, a.ID, a.Epoch = f.config, len(f.all)+1, f.Epoch
	a.Life = f.Duration + startWithin + spare
	p.life = &life{ID: a.ID, Died: never}
	args := []string{replicaArg}
	if f.stepped != "" {
		args = append(args, f.stepped)
	}
	p.Process, err = rig.Again(func(out io.Reader) {
		for in := json.NewDecoder(out); ; {
			var n note
			if in.Decode(&n) != nil {
				return // the end, or a line cut off by it
			}
			p.take(n)
		}
	}, args...)
	if err != nil {
		return err
	}
	f.all = append(f.all, p)
	return p.Tell(a)
}

// allKnown is an error until every process has a share of every path.
func (f *fleet) allKnown() error {
	for _, p := range f.all {
		p.mu.Lock()
		missing := slices.ContainsFunc(f.paths(), func(path path) bool { return len(p.Pools[path]) == 0 })
		p.mu.Unlock()
		if missing {
			return fmt.Errorf("replica %d does not know its pools: %s", p.ID, p.Said())
		}
	}
	return nil
}

func (f *fleet) say(format string, args ...any) {
	fmt.Fprintf(f.out, "%7.2f s  %s\n", (f.now() - f.begin).Seconds(), fmt.Sprintf(format, args...))
}

// at enters a moment, after those of the same instant.
func (f *fleet) at(t time.Duration, do func() error) {
	i, _ := slices.BinarySearchFunc(f.due, t, func(m moment, t time.Duration) int {
		return cmp.Or(cmp.Compare(m.at, t), -1)
	})
	f.due = slices.Insert(f.due, i, moment{t, do})
}

// until lets happen what is due, up to an instant.
func (f *fleet) until(ctx context.Context, end time.Duration) error {
	over := false
	f.at(end, func() error { over = true; return nil })
	for !over {
		m := f.due[0]
		f.due = f.due[1:]
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(m.at - f.now()):
		}
		for _, p := range f.alive() {
			select {
			case <-p.Done():
				return fmt.Errorf("replica %d ended by itself: %s", p.ID, p.Said())
			default:
			}
		}
		if err := m.do(); err != nil {
			return err
		}
	}
	return nil
}

// stopAll ends all processes that are still there, all at the same time.
func (f *fleet) stopAll() error {
	errs := make([]error, len(f.all))
	var stopping sync.WaitGroup
	for i, p := range f.alive() {
		if p.paused {
			errs[i] = f.goOn(p)
		}
		stopping.Go(func() { errs[i] = errors.Join(errs[i], p.Stop()) })
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// alive are the processes whose end was not ordered.
func (f *fleet) alive() []*process {
	return slices.DeleteFunc(slices.Clone(f.all), func(p *process) bool { return p.ordered })
}

// running are those that live and are not paused.
func (f *fleet) running() []*process {
	return slices.DeleteFunc(f.alive(), func(p *process) bool { return p.paused })
}

func (f *fleet) victim() *process {
	list := f.running()
	return list[f.rng.IntN(len(list))]
}

// order gives an order to those who live. A process that is paused follows it when it goes on.
func (f *fleet) order(o order, list []*process) error {
	for _, p := range list {
		if p.ordered {
			continue
		}
		if err := p.Tell(o); err != nil {
			return fmt.Errorf("an order to replica %d: %w", p.ID, err)
		}
	}
	return nil
}

// setBusy lets the callers of some processes ask, and no others.
func (f *fleet) setBusy(list []*process) error {
	for _, p := range f.alive() {
		busy := slices.Contains(list, p)
		if busy == p.busy {
			continue
		}
		if p.busy = busy; busy {
			f.Onsets = append(f.Onsets, onset{At: f.now()})
		}
		if err := f.order(order{Busy: &busy}, []*process{p}); err != nil {
			return err
		}
	}
	return nil
}

// publish tells the file and DNS who lives, and notes the change before any replica can see it.
func (f *fleet) publish() error {
	var addrs []netip.Addr
	for _, p := range f.alive() {
		addrs = append(addrs, p.addr)
	}
	now := f.now()
	for _, p := range f.paths() {
		if !p.counts() {
			f.Truth[p] = append(f.Truth[p], fact{span{now, now}, len(addrs)})
			f.Changes[p] = append(f.Changes[p], change{At: now})
		}
	}
	if f.Believe > 0 {
		addrs = addrs[:min(f.Believe, len(addrs))]
	}
	return f.world.publish(addrs)
}

// finish completes the record by what follows from the lives.
func (f *fleet) finish() {
	for _, p := range f.all {
		f.Lives = append(f.Lives, p.life)
	}
	for _, p := range f.paths() {
		if p.counts() {
			f.counted(p)
		}
		slices.SortFunc(f.Faults[p], func(a, b span) int { return cmp.Compare(a.To, b.To) })
		slices.SortStableFunc(f.Changes[p], func(a, b change) int { return cmp.Compare(a.At, b.At) })
	}
}

// counted works out how many should count themselves, and when: those that have reported themselves, without
// those that were killed or stopped for longer than the expiry. These may be dropped that much later.
func (r *record) counted(p path) {
	var steps []fact
	step := func(at time.Duration, by int) {
		if at < never {
			steps = append(steps, fact{span{at, at}, by})
			r.Changes[p] = append(r.Changes[p], change{At: at})
		}
	}
	for _, l := range r.Lives {
		if l.Born == 0 {
			continue // killed before it reported itself
		}
		step(l.Born, 1)
		step(l.Died, -1)
		for _, s := range l.Stops {
			if s.length() > redisExpiry {
				step(s.From, -1)
				steps = append(steps, fact{span{s.To, s.To}, 1}) // goOn has noted the change
			}
		}
	}
	slices.SortStableFunc(steps, func(a, b fact) int { return cmp.Compare(a.From, b.From) })
	n := 0
	for _, s := range steps {
		n += s.N
		r.Truth[p] = append(r.Truth[p], fact{s.span, n})
	}
}
