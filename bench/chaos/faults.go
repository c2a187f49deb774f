package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/quotient-go/quotient/poolsize/dns/dnstest"
)

const (
	// Faults of the fleet with sources begin after warmUp and end before coolDown, so that what follows the last
	// one can be seen. Where there are more kinds than the duration asks for, leastGap is between two of a lane.
	warmUp   = sec
	coolDown = holdDown + 3*redisPeriod + redisExpiry + sec
	leastGap = 3 * sec

	// A run with gossip is a row of cycles: first all kinds of faults, then nothing but one busy replica.
	cycle    = 20 * sec
	storm    = 11 * sec // of a cycle
	idle     = 12 * sec // into a cycle: all are
	settled  = 15 * sec // into a cycle: all must know each other, and one begins to be busy
	borrowed = 2 * sec  // from then on: it has the limit
)

// A fault is a way in which the world breaks: its name, for how long, how, and how that ends (nil: by itself).
type fault struct {
	name        string
	least, most time.Duration
	do          func(f *fleet, lasts time.Duration) (undo func() error, err error)
}

// A lane is a sequence of faults of which one is there at a time; its kinds take turns.
type lane struct {
	inTenMinutes int
	kinds        []fault
}

// A kill or stop is too short for the others to notice, or long enough for all of them.
var sourceLanes = []lane{
	{60, []fault{
		{"kill -9, soon replaced", 300 * ms, 2 * sec, ends(kill, false)},
		{"kill -9, replaced late", coolDown, coolDown + sec, ends(kill, false)},
	}},
	{60, []fault{
		{"SIGSTOP, short", 200 * ms, 400 * ms, (*fleet).freeze},
		{"SIGSTOP, long", coolDown, coolDown + sec, (*fleet).freeze},
	}},
	{20, []fault{
		dnsFails(dnstest.NXDomain), dnsFails(dnstest.ServFail), dnsFails(dnstest.ServFailAAAA), dnsFails(dnstest.Truncated),
		dnsFails(dnstest.Empty), dnsFails(dnstest.Silent), dnsFails(dnstest.Garbage),
	}},
	{20, []fault{
		fileIs("deleted", ""), fileIs("half written", `{"replicas":`), fileIs("garbage", "-1e9\x00\xff"),
		fileIs("a lie", "1"),
	}},
	{20, []fault{{"redis: kill -9 of the master", 3 * sec, 5 * sec, (*fleet).failover}, {"redis: all data lost", 0, 0, (*fleet).flush}}},
	{20, []fault{
		steps("wall clock of one forward", false, 1), steps("wall clock of one back", false, -1),
		steps("wall clock of all forward", true, 1), steps("wall clock of all back", true, -1),
	}},
}

// Each of these divides a storm: ten minutes are thirty.
var gossipLanes = []lane{
	{30, []fault{
		{"a partition past the hold-down", 7 * sec, 9 * sec, split(false)}, {"a short one-way partition", 400 * ms, holdDown, split(true)},
		{"a one-way partition past the hold-down", 7 * sec, 9 * sec, split(true)}, {"a short partition", 400 * ms, holdDown, split(false)},
	}},
	{60, []fault{
		{"kill -9, restarted under its name", 300 * ms, 2 * sec, ends(kill, true)},
		{"kill -9, replaced", 2 * sec, 3 * sec, ends(kill, false)},
	}},
	{30, []fault{{"SIGSTOP, short", 200 * ms, 400 * ms, (*fleet).freeze}, {"SIGSTOP, long", 3 * sec, 5 * sec, (*fleet).freeze}}},
	{30, []fault{{"one leaves in order", 300 * ms, 2 * sec, ends(func(p *process) error { return p.Stop() }, false)}}},
	{120, []fault{
		{"all are busy", 0, 0, load(math.MaxInt)}, {"one is busy", 0, 0, load(1)},
		{"two are busy", 0, 0, load(2)}, {"none is busy", 0, 0, load(0)},
	}},
}

type strike struct {
	fault
	at, lasts time.Duration
}

// schedule is what happens in a run, in order. The same seed gives the same.
func schedule(c config) (all []strike) {
	rng := rand.New(rand.NewPCG(c.Seed, 1))
	lanes, usable := sourceLanes, c.Duration-warmUp-coolDown
	cycles := int(c.Duration / cycle)
	if c.Gossip {
		lanes, usable = gossipLanes, time.Duration(cycles)*storm
	}
	for _, l := range lanes {
		n := int(float64(l.inTenMinutes)*c.Duration.Minutes()/10 + .5)
		if c.Gossip {
			n = l.inTenMinutes * cycles / 30
		} else {
			n = max(1, n, min(len(l.kinds), int(usable/leastGap)))
		}
		slot, first := usable/time.Duration(n), rng.IntN(len(l.kinds))
		for i := range n {
			x := strike{fault: l.kinds[(first+i)%len(l.kinds)]}
			if x.least > slot {
				x.fault = l.kinds[0]
			}
			x.lasts = min(x.least+time.Duration(rng.Int64N(int64(x.most-x.least+1))), slot)
			x.at = time.Duration(i)*slot + time.Duration(rng.Float64()*float64(slot-x.lasts))
			if c.Gossip {
				x.at = x.at/storm*cycle + x.at%storm
			} else {
				x.at += warmUp
			}
			all = append(all, x)
		}
	}
	for i := range cycles {
		if c.Gossip {
			all = append(all, strike{fault{"a calm", 0, 0, (*fleet).calm}, time.Duration(i)*cycle + idle, cycle - idle})
		}
	}
	slices.SortStableFunc(all, func(a, b strike) int { return cmp.Compare(a.at, b.at) })
	return all
}

// strike lets a fault happen, and enters its end.
func (f *fleet) strike(x strike) error {
	f.Struck[x.name]++
	f.say("%s, for %.1f s", x.name, x.lasts.Seconds())
	at := f.now()
	undo, err := x.do(f, x.lasts)
	if err != nil {
		return fmt.Errorf("%s: %w", x.name, err)
	}
	if undo != nil {
		f.at(at+x.lasts, undo)
	}
	return nil
}

// ends lets a process end, as in a crash or in order, and starts another after a while: with gossip at its seat or a
// new one. Those who count themselves may notice. The others have to be informed.
func ends(how func(*process) error, again bool) func(*fleet, time.Duration) (func() error, error) {
	return func(f *fleet, _ time.Duration) (func() error, error) {
		p := f.victim()
		f.say("replica %d ends", p.ID)
		p.ordered = true
		err := how(p)
		p.mu.Lock()
		p.Died = f.now()
		p.mu.Unlock()
		switch {
		case !f.Gossip:
			return func() error { return errors.Join(f.startNew(), f.publish()) }, errors.Join(err, f.publish())
		case again:
			return func() error { return f.startSeat(p.seat) }, err
		default:
			return f.startNew, err
		}
	}
}

func kill(p *process) error { return p.Kill() }

// freeze stops a process, and lets it go on after a while: it does not know, and keeps its connections.
func (f *fleet) freeze(time.Duration) (func() error, error) {
	p := f.victim()
	p.paused = true
	err := p.Signal(syscall.SIGSTOP)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Stops = append(p.Stops, span{f.now(), never})
	return func() error { return f.goOn(p) }, err
}

func (f *fleet) goOn(p *process) error {
	p.paused = false
	p.mu.Lock()
	stop := &p.Stops[len(p.Stops)-1]
	stop.To = f.now()
	c := change{At: stop.To, Slept: stop.length()}
	p.mu.Unlock()
	for _, path := range f.paths() {
		f.Changes[path] = append(f.Changes[path], c)
	}
	return p.Signal(syscall.SIGCONT)
}

// broken is a source that cannot be queried, or lies, until it is mended.
func broken(p path, name string, least, most time.Duration, begin, mend func(w *world) error) fault {
	return fault{name, least, most, func(f *fleet, _ time.Duration) (func() error, error) {
		at := f.now()
		return func() error {
			err := mend(f.world)
			f.Faults[p] = append(f.Faults[p], span{at, f.now()})
			return err
		}, begin(f.world)
	}}
}

func dnsFails(mode dnstest.Mode) fault {
	return broken(fromDNS, "dns "+mode.String(), sec, 3*sec,
		func(w *world) error { w.dns.Fail(mode); return nil },
		func(w *world) error { w.dns.Fail(dnstest.Healthy); return nil })
}

// fileIs is a file without the truth. A lie is over long before the hold-down is, and must not be believed.
func fileIs(what, text string) fault {
	return broken(fromFile, "file: "+what, sec/2, holdDown/2, func(w *world) error {
		w.fileDown = true
		if text == "" {
			return os.Remove(w.pool)
		}
		return w.putPool(text)
	}, func(w *world) error { w.fileDown = false; return w.writePool() })
}

// steps steps the wall clock of one process, or of all that run, by a second to an hour, and steps it back.
func steps(name string, all bool, sign float64) fault {
	return fault{name, 9 * sec, 14 * sec, func(f *fleet, _ time.Duration) (func() error, error) {
		list := f.running()
		if !all {
			list = []*process{f.victim()}
		}
		by, back := time.Duration(sign*float64(sec)*math.Pow(float64(time.Hour/sec), f.rng.Float64())), time.Duration(0)
		return func() error { return f.order(order{Step: &back}, list) }, f.order(order{Step: &by}, list)
	}}
}

// split parts the mesh in two. Nothing comes through; oneWay: the second part receives what the first one sends. A
// replica that is new meanwhile belongs to either part.
func split(oneWay bool) func(*fleet, time.Duration) (func() error, error) {
	return func(f *fleet, _ time.Duration) (func() error, error) {
		list, at := f.alive(), f.now()
		f.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		n, known := 1+f.rng.IntN(len(list)-1), f.seats
		seats := map[int]bool{}
		for _, p := range list[:n] {
			seats[p.seat.number] = true
		}
		first := func(seat int) bool { return seats[seat] || seat > known && seat%2 == 0 }
		f.mesh.part(func(from, to int) bool { return first(from) != first(to) && (!oneWay || first(to)) })
		f.say("%d of %d are apart", n, len(list))
		return func() error { return f.heal(at) }, nil
	}
}

func (f *fleet) heal(from time.Duration) error {
	f.mesh.part(nil)
	f.say("the partition heals")
	for _, p := range f.paths() {
		f.Faults[p] = append(f.Faults[p], span{from, f.now()})
	}
	f.Onsets = append(f.Onsets, onset{At: f.now(), All: true})
	return nil
}

// load lets so many replicas be busy, others than before.
func load(n int) func(*fleet, time.Duration) (func() error, error) {
	return func(f *fleet, _ time.Duration) (func() error, error) {
		list := f.running()
		f.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		f.busy = n > len(list)
		return nil, f.setBusy(list[:min(n, len(list))])
	}
}

// calm lets all be idle, and then one replica alone be busy.
func (f *fleet) calm(lasts time.Duration) (func() error, error) {
	p, at := f.victim(), f.now()
	f.busy = false
	if len(f.running()) != f.Replicas {
		return nil, errors.New("a time without faults has one")
	}
	f.at(at+settled-idle, func() error {
		f.Calms = append(f.Calms, calm{span{f.now() + borrowed, at + lasts - gossipEvery}, p.ID})
		f.say("replica %d is busy", p.ID)
		return f.setBusy([]*process{p})
	})
	return nil, f.setBusy(nil)
}
