package main

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/quotient-go/quotient/internal/kept"
	"github.com/quotient-go/quotient/poolsize/dns/dnstest"
	"github.com/quotient-go/quotient/poolsize/redis/redistest"
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

// A fault is a way in which the world breaks: its name, for how long, and how. It rests until it is to end, in which
// time others happen.
type fault struct {
	name        string
	least, most time.Duration
	do          func(f *fleet, until time.Duration) error
}

// A lane is a sequence of faults of which one is there at a time; its kinds take turns.
type lane struct {
	inTenMinutes int
	kinds        []fault
}

// A kill or stop is too short for the others to notice, or long enough for all of them.
var sourceLanes = []lane{
	{60, []fault{
		{"kill -9, soon replaced", 300 * ms, 2 * sec, kill(false)},
		{"kill -9, replaced late", coolDown, coolDown + sec, kill(false)},
	}},
	{60, []fault{
		{"SIGSTOP, short", 200 * ms, 400 * ms, (*fleet).freeze},
		{"SIGSTOP, long", coolDown, coolDown + sec, (*fleet).freeze},
	}},
	{20, []fault{
		dnsFails(dnstest.NXDomain), dnsFails(dnstest.ServFail), dnsFails(dnstest.ServFailAAAA),
		dnsFails(dnstest.Truncated), dnsFails(dnstest.Empty), dnsFails(dnstest.Silent), dnsFails(dnstest.Garbage),
	}},
	{20, []fault{
		fileIs("deleted", ""), fileIs("half written", `{"replicas":`), fileIs("garbage", "-1e9\x00\xff"),
		fileIs("a lie", "1"),
	}},
	{20, []fault{
		redisIs("killed, and restarted", (*redistest.Server).Kill,
			func(s *redistest.Server) error { return s.Restart(false) }),
		redisIs("stopped, and goes on", (*redistest.Server).Pause, (*redistest.Server).Resume),
		{"redis: all data lost", 0, 0, (*fleet).flush},
	}},
}

// Each of these divides a storm: ten minutes are thirty.
var gossipLanes = []lane{
	{30, []fault{
		{"a partition past the hold-down", 7 * sec, 9 * sec, split(false)},
		{"a short one-way partition", 400 * ms, holdDown, split(true)},
		{"a one-way partition past the hold-down", 7 * sec, 9 * sec, split(true)},
		{"a short partition", 400 * ms, holdDown, split(false)},
	}},
	{60, []fault{
		{"kill -9, restarted under its name", 300 * ms, 2 * sec, kill(true)},
		{"kill -9, replaced", 2 * sec, 3 * sec, kill(false)},
	}},
	{30, []fault{
		{"SIGSTOP, short", 200 * ms, 400 * ms, (*fleet).freeze},
		{"SIGSTOP, long", 3 * sec, 5 * sec, (*fleet).freeze},
	}},
	{30, []fault{{"one leaves in order", 300 * ms, 2 * sec, ends((*kept.Process).Stop, false)}}},
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
	lanes, usable, cycles := sourceLanes, c.Duration-warmUp-coolDown, int(c.Duration/cycle)
	if c.Gossip {
		lanes, usable = gossipLanes, time.Duration(cycles)*storm
	}
	for _, l := range lanes {
		n := l.inTenMinutes * cycles / 30
		if !c.Gossip {
			n = max(1, int(float64(l.inTenMinutes)*c.Duration.Minutes()/10+.5), min(len(l.kinds), int(usable/leastGap)))
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
	for i := 0; c.Gossip && i < cycles; i++ {
		all = append(all, strike{fault{"a calm", 0, 0, (*fleet).calm}, time.Duration(i)*cycle + idle, cycle - idle})
	}
	slices.SortStableFunc(all, func(a, b strike) int { return cmp.Compare(a.at, b.at) })
	return all
}

// ends lets a process end, as in a crash or in order, and starts another after a while: with gossip at its seat or a
// new one. Those who count themselves may notice. The others have to be informed.
func ends(how func(*kept.Process) error, again bool) func(*fleet, time.Duration) error {
	return func(f *fleet, until time.Duration) error {
		p := f.victim()
		err := how(p.Process)
		p.Died = f.now()
		err = errors.Join(err, f.publish())
		f.rest(until)
		seat := p.seat
		if !again {
			seat = nil
		}
		return errors.Join(err, f.add(seat), f.publish())
	}
}

func kill(again bool) func(*fleet, time.Duration) error { return ends((*kept.Process).Kill, again) }

// freeze stops a process, and lets it go on after a while: it does not know, and keeps its connections.
func (f *fleet) freeze(until time.Duration) error {
	p := f.victim()
	err := p.Signal(syscall.SIGSTOP)
	p.Stops = append(p.Stops, span{f.now(), never})
	f.rest(until)
	p.Stops[len(p.Stops)-1].To = f.now()
	return errors.Join(err, p.Signal(syscall.SIGCONT))
}

// broken is a source that cannot be queried, or lies, until it is mended, and for so long afterwards.
func broken(p path, name string, least, most, back time.Duration, begin, mend func(w *world) error) fault {
	return fault{name, least, most, func(f *fleet, until time.Duration) error {
		at, err := f.now(), begin(f.world)
		f.rest(until)
		err = errors.Join(err, mend(f.world))
		f.Faults[p] = append(f.Faults[p], span{at, f.now() + back})
		return err
	}}
}

func dnsFails(mode dnstest.Mode) fault {
	return broken(fromDNS, "dns "+mode.String(), sec, 3*sec, 0,
		func(w *world) error { w.dns.Fail(mode); return nil },
		func(w *world) error { w.dns.Fail(dnstest.Healthy); return nil })
}

// fileIs is a file without the truth. A lie is over long before the hold-down is, and must not be believed.
func fileIs(what, text string) fault {
	return broken(fromFile, "file: "+what, sec/2, holdDown/2, 0, func(w *world) error {
		w.fileDown = true
		if text == "" {
			return os.Remove(w.pool)
		}
		return replace(w.pool, text)
	}, func(w *world) error { w.fileDown = false; return w.writePool() })
}

// redisIs is a server that is away for longer than those that count there need report themselves. After as many
// failures as it may have connections, a client dials once a second; then its replica looks again.
func redisIs(what string, begin, mend func(*redistest.Server) error) fault {
	return broken(fromRedis, "redis: "+what, 3*sec, 5*sec, sec+fromRedis.looks(),
		func(w *world) error { return begin(w.redis) }, func(w *world) error { return mend(w.redis) })
}

// flush takes all data away. Each replica reports itself again within a period.
func (f *fleet) flush(time.Duration) error {
	f.Faults[fromRedis] = append(f.Faults[fromRedis], span{f.now(), f.now() + fromRedis.looks()})
	client := goredis.NewClient(&goredis.Options{Addr: f.world.redis.Addr()})
	return errors.Join(client.FlushAll(f.ctx).Err(), client.Close())
}

// split parts the mesh in two. Nothing comes through; oneWay: the second part receives what the first one sends. A
// replica that is new meanwhile belongs to either part.
func split(oneWay bool) func(*fleet, time.Duration) error {
	return func(f *fleet, until time.Duration) error {
		list, at, seats := f.shuffled(f.alive()), f.now(), map[int]bool{}
		for _, p := range list[:1+f.rng.IntN(len(list)-1)] {
			seats[p.seat.number] = true
		}
		known := f.seats
		first := func(seat int) bool { return seats[seat] || seat > known && seat%2 == 0 }
		f.mesh.part(func(from, to int) bool { return first(from) != first(to) && (!oneWay || first(to)) })
		f.rest(until)
		f.mesh.part(nil)
		for _, p := range f.paths() {
			f.Faults[p] = append(f.Faults[p], span{at, f.now()})
		}
		f.Onsets = append(f.Onsets, onset{At: f.now(), All: true})
		return nil
	}
}

// load lets so many replicas be busy, others than before.
func load(n int) func(*fleet, time.Duration) error {
	return func(f *fleet, _ time.Duration) error {
		list := f.shuffled(f.running())
		f.busy = n > len(list)
		return f.setBusy(list[:min(n, len(list))])
	}
}

// calm lets all be idle, and then one replica alone be busy.
func (f *fleet) calm(until time.Duration) error {
	p := f.victim()
	f.busy = false
	if len(f.running()) != replicas {
		return errors.New("a time without faults has one")
	}
	err := f.setBusy(nil)
	f.rest(until - cycle + settled)
	f.Calms = append(f.Calms, fact{span{f.now() + borrowed, until - gossipEvery}, p.ID})
	return errors.Join(err, f.setBusy([]*process{p}))
}
