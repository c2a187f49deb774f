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
	"github.com/quotient-go/quotient/internal/kept"
	"github.com/quotient-go/quotient/internal/rest"
)

const (
	replicas    = 8
	startWithin = 30 * sec // all processes of the start, also on a busy machine
)

// A fleet is one run. What processes say is noted in their lives.
type fleet struct {
	record
	out   io.Writer
	start time.Time
	rng   *rand.Rand
	dir   string
	world *world // nil: it gossips
	mesh  *mesh  // nil: it does not
	seats int    // of the mesh, that there were
	busy  bool   // those that are new are busy
	all   []*process
	begin time.Duration
	ctx   context.Context // of the faults
	turn  sync.Mutex      // a fault that does something has it, and none that rests
}

// A process is a replica, seen from its parent. All but its life is owned by the fleet.
type process struct {
	*kept.Process
	*life
	addr netip.Addr // in DNS
	seat *seat      // in the mesh
	busy bool       // its callers ask
}

// play runs the whole fleet through its faults. In any case no process of it is left afterwards.
func play(ctx context.Context, c config, out io.Writer) (_ record, err error) {
	f := &fleet{out: out, rng: rand.New(rand.NewPCG(c.Seed, 2))}
	f.record = record{config: c, limits: usual, Struck: map[string]int{}}
	if f.dir, err = os.MkdirTemp("", "chaos"); err != nil {
		return record{}, err
	}
	if c.Gossip {
		f.mesh, err = newMesh()
	} else {
		f.world, err = newWorld(f.dir)
	}
	if err == nil {
		err = f.run(ctx)
	}
	if err = errors.Join(err, f.close()); ctx.Err() != nil {
		err = errors.Join(errors.New("interrupted"), err)
	}
	if err != nil {
		return record{}, err
	}
	for _, p := range f.all {
		f.Lives = append(f.Lives, p.life)
	}
	for _, p := range f.paths() {
		f.follows(p)
	}
	return f.record, nil
}

// close ends all processes that are still there, all at the same time, and then what they have used.
func (f *fleet) close() error {
	errs := make([]error, len(f.all))
	var stopping sync.WaitGroup
	for i, p := range f.alive() {
		stopping.Go(func() { errs[i] = p.Stop() })
	}
	stopping.Wait()
	if f.world != nil {
		errs = append(errs, f.world.close())
	}
	if f.mesh != nil {
		errs = append(errs, f.mesh.close())
	}
	return errors.Join(append(errs, os.RemoveAll(f.dir))...)
}

func (f *fleet) now() time.Duration { return time.Since(f.start) }

func (f *fleet) run(ctx context.Context) (err error) {
	f.Epoch = time.Now().UnixNano()
	f.start = beginOf(f.Epoch)
	for range replicas {
		err = errors.Join(err, f.add(nil))
	}
	if err = errors.Join(err, f.publish()); err != nil { // the file and DNS are there when they count them all
		return err
	}
	if err := rig.Until(ctx, startWithin, f.allKnown); err != nil {
		return err
	}
	f.begin = f.now()
	var failed context.CancelCauseFunc
	f.ctx, failed = context.WithCancelCause(ctx)
	var faults, watching sync.WaitGroup
	watching.Go(f.watch)
	defer watching.Wait()
	defer failed(nil)
	for _, x := range schedule(f.config) {
		faults.Go(func() {
			if err := f.strike(x); err != nil {
				failed(fmt.Errorf("%s: %w", x.name, err))
			}
		})
	}
	faults.Wait()
	rest.For(f.ctx, f.begin+f.Duration-f.now())
	f.Length = f.now()
	return context.Cause(f.ctx)
}

// watch notes when the run did not get to go on.
func (f *fleet) watch() {
	for last := f.now(); f.ctx.Err() == nil; rest.For(f.ctx, watchEvery) {
		now := f.now()
		if now-last > watchEvery+leastStall {
			f.Stalls = append(f.Stalls, span{last, now})
		}
		last = now
	}
}

// strike lets a fault happen when it is due.
func (f *fleet) strike(x strike) error {
	at := f.begin + x.at
	rest.For(f.ctx, at-f.now())
	f.turn.Lock()
	defer f.turn.Unlock()
	if f.ctx.Err() != nil {
		return nil
	}
	f.Struck[x.name]++
	fmt.Fprintf(f.out, "%7.2f s  %s, for %.1f s\n", f.now().Seconds(), x.name, x.lasts.Seconds())
	return x.do(f, at+x.lasts)
}

// rest lets other faults happen until an instant, or to the end of a run that fails.
func (f *fleet) rest(until time.Duration) {
	f.turn.Unlock()
	rest.For(f.ctx, until-f.now())
	f.turn.Lock()
}

// add starts a process and gives it its assignment, with gossip at a seat: nil for a new one.
func (f *fleet) add(s *seat) (err error) {
	n := len(f.all) + 1
	p := &process{life: &life{ID: n, Died: never}, seat: s, busy: f.busy}
	a := assignment{config: f.config, ID: n, Epoch: f.Epoch, Busy: f.busy || !f.Gossip}
	if f.Gossip {
		if err = f.sit(p, &a); err != nil {
			return err
		}
	} else { // addresses come in any order
		w := f.world
		p.addr = netip.AddrFrom4([4]byte{127, byte(1 + f.rng.IntN(250)), byte(n / 250), byte(1 + n%250)})
		a.Address, a.File, a.DNS, a.Steady, a.Redis = p.addr, w.pool, w.dns.Addr(), w.steady.Addr(), w.redis.Addr()
	}
	p.Process, err = kept.Again(func(out io.Reader) {
		for in := json.NewDecoder(out); ; {
			var n note
			if in.Decode(&n) != nil {
				return // the end, or a line cut off by it
			}
			p.take(n)
		}
	}, replicaArg)
	if err != nil {
		return err
	}
	f.all = append(f.all, p)
	return p.Tell(a)
}

// sit gives a process a seat, and a file of the addresses of those that live.
func (f *fleet) sit(p *process, a *assignment) (err error) {
	if p.seat == nil {
		f.seats++
		if p.seat, err = f.mesh.open(f.seats); err != nil {
			return err
		}
	}
	a.Bind, a.Advertise, a.JoinFile = p.seat.bind.String(), p.seat.public.String(), filepath.Join(f.dir, "joins")
	list := a.Advertise
	for _, other := range f.alive() {
		list += "\n" + other.seat.public.String()
	}
	return replace(a.JoinFile, list)
}

// allKnown is an error until every process has a share of every path.
func (f *fleet) allKnown() error {
	for _, p := range f.all {
		if !p.knows(f.paths()) {
			return fmt.Errorf("replica %d does not know its pools: %s", p.ID, p.Said())
		}
	}
	return nil
}

func (f *fleet) alive() []*process {
	return slices.DeleteFunc(slices.Clone(f.all), func(p *process) bool { return p.Died < never })
}

// running are those that live and are not stopped.
func (f *fleet) running() []*process {
	now := f.now()
	return slices.DeleteFunc(f.alive(), func(p *process) bool { return within(p.Stops, now) })
}

func (f *fleet) shuffled(list []*process) []*process {
	f.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func (f *fleet) victim() *process {
	p := f.shuffled(f.running())[0]
	fmt.Fprintf(f.out, "%7.2f s  this hits replica %d\n", f.now().Seconds(), p.ID)
	return p
}

// setBusy lets the callers of some processes ask, and no others. One that is stopped obeys when it goes on.
func (f *fleet) setBusy(list []*process) (err error) {
	for _, p := range f.alive() {
		busy := slices.Contains(list, p)
		if busy == p.busy {
			continue
		}
		if p.busy = busy; busy {
			f.Onsets = append(f.Onsets, onset{At: f.now()})
		}
		err = errors.Join(err, p.Tell(busy))
	}
	return err
}

// publish tells the file and DNS who lives, and notes it before any replica can see it.
func (f *fleet) publish() error {
	if f.world == nil {
		return nil
	}
	var addrs []netip.Addr
	now := f.now()
	for _, p := range f.alive() {
		addrs = append(addrs, p.addr)
		p.Listed = cmp.Or(p.Listed, now)
	}
	if f.Believe > 0 {
		addrs = addrs[:min(f.Believe, len(addrs))]
	}
	return f.world.publish(addrs)
}

// follows works out what follows from the lives for a path: how many count, since when. Where replicas count
// themselves, these are those that have reported themselves, without those that were killed or stopped for longer than
// the expiry. These may be dropped that much later.
func (r *record) follows(p path) {
	var steps []fact
	step := func(at time.Duration, by int) {
		if at > 0 && at < never {
			steps = append(steps, fact{span{at, at}, by})
			r.Changes[p] = append(r.Changes[p], change{At: at})
		}
	}
	for _, l := range r.Lives {
		known := l.Listed
		if p.counts() {
			known = l.Born
		}
		if step(known, 1); known > 0 { // not killed before
			step(l.Died, -1)
		}
		for _, s := range l.Stops {
			if known > 0 && p.counts() && s.length() > redisExpiry {
				step(s.From, -1)
				steps = append(steps, fact{span{s.To, s.To}, 1})
			}
			r.Changes[p] = append(r.Changes[p], change{At: s.To, Slept: s.length()})
		}
	}
	slices.SortStableFunc(steps, func(a, b fact) int { return cmp.Compare(a.From, b.From) })
	n := 0
	for i, s := range steps {
		if n += s.N; i+1 == len(steps) || steps[i+1].From > s.From {
			r.Truth[p] = append(r.Truth[p], fact{s.span, n})
		}
	}
	slices.SortFunc(r.Faults[p], func(a, b span) int { return cmp.Compare(a.To, b.To) })
	slices.SortStableFunc(r.Changes[p], func(a, b change) int { return cmp.Compare(a.At, b.At) })
}
