package main

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// A run with gossip is a row of cycles. In the first part of each all kinds of faults come, and the load
// moves. In what is left nothing happens, and one replica alone is busy.
const (
	cycle    = 20 * time.Second
	storm    = 12 * time.Second // of a cycle; then all are idle
	settled  = 15 * time.Second // into a cycle: all must know each other, and one begins to be busy
	borrowed = 2 * time.Second  // from then on: it has the limit
)

// These events happen to a fleet that gossips.
const (
	strokePart   = iota // no part receives anything of the other
	strokeOneWay        // one part receives what the other sends
	strokeKill
	strokeStop
	strokeLeave // in order
	strokeLoad  // other replicas are busy
	strokeCalm  // one replica is, and nothing else happens
	strokes     // how many there are
)

// A stroke is one of them, at an instant of the run. It lasts for a while where that means anything.
type stroke struct {
	at, lasts time.Duration
	what, way int
}

// Ways of strokeKill and strokeLoad.
const (
	killAndRestart = iota // under the same name and address
	killAndReplace
	killWays
)

const (
	loadAll = iota
	loadOne
	loadTwo
	loadNone
	loadWays
)

// strokesOf are those of a run, in order. The same seed gives the same.
func strokesOf(c config) []stroke {
	rng := rand.New(rand.NewPCG(c.Seed, 3))
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rng.Int64N(int64(most-least)))
	}
	var all []stroke
	for i := range int(c.Duration / cycle) {
		begin := time.Duration(i) * cycle
		add := func(at, lasts time.Duration, what, way int) {
			all = append(all, stroke{begin + at, lasts, what, way})
		}
		part := [...]struct {
			what        int
			least, most time.Duration
		}{
			{strokePart, 7 * time.Second, 9 * time.Second}, {strokeOneWay, 400 * time.Millisecond, holdDown},
			{strokeOneWay, 7 * time.Second, 9 * time.Second}, {strokePart, 400 * time.Millisecond, holdDown},
		}[i%4]
		add(between(200*time.Millisecond, 2*time.Second), between(part.least, part.most), part.what, 0)
		for j := range 2 {
			add(between(0, 9*time.Second), between(300*time.Millisecond, 2*time.Second), strokeKill, (i+j)%killWays)
		}
		if i%2 == 0 {
			add(between(0, 6*time.Second), between(200*time.Millisecond, 400*time.Millisecond), strokeStop, 0)
		} else {
			add(between(0, 6*time.Second), between(3*time.Second, 5*time.Second), strokeStop, 0)
			add(between(0, 8*time.Second), between(300*time.Millisecond, 2*time.Second), strokeLeave, 0)
		}
		for j := range 3 {
			add(time.Duration(j)*storm/4, 0, strokeLoad, (3*i+j)%loadNone)
		}
		add(3*storm/4, 0, strokeLoad, loadNone)
		add(storm, cycle-storm, strokeCalm, 0)
	}
	slices.SortStableFunc(all, func(a, b stroke) int { return cmp.Compare(a.at, b.at) })
	return all
}

func (f *fleet) enterStrokes() {
	for _, x := range strokesOf(f.config) {
		f.at(f.begin+x.at, func() error { f.Struck[x.what]++; return f.stroke(x) })
	}
}

// stroke lets one happen, and enters its end.
func (f *fleet) stroke(x stroke) error {
	switch x.what {
	case strokePart, strokeOneWay:
		return f.part(x)
	case strokeKill:
		return f.killSeat(x)
	case strokeStop:
		return f.freeze(fault{lasts: x.lasts})
	case strokeLeave:
		return f.leave(x)
	case strokeLoad:
		return f.load(x)
	default:
		return f.calm(x)
	}
}

// part splits the mesh into two parts.
func (f *fleet) part(x stroke) error {
	list := f.alive()
	f.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	s := &split{first: map[int]bool{}, oneWay: x.what == strokeOneWay, at: f.now()}
	first := 1 + f.rng.IntN(len(list)-1)
	for _, p := range list[:first] {
		s.first[p.seat.number] = true
	}
	for i, p := range list {
		s.cuts = append(s.cuts, s.between(p.seat.number, seatsOf(list[:i]))...)
	}
	how := "do not reach each other"
	if s.oneWay {
		how = "receive nothing from the others, which receive from them"
	}
	f.say("%d replicas of %d %s, for %.1f s", first, len(list), how, x.lasts.Seconds())
	f.party.split = s
	f.party.mesh.part(s.cuts)
	f.at(f.now()+x.lasts, f.heal)
	return nil
}

func seatsOf(list []*process) (seats []int) {
	for _, p := range list {
		seats = append(seats, p.seat.number)
	}
	return seats
}

const kindHealed = "a partition that heals"

// heal makes the mesh whole.
func (f *fleet) heal() error {
	s := f.party.split
	f.party.split = nil
	f.party.mesh.heal(s.cuts)
	at := f.now()
	f.say("the partition heals")
	e := event{At: at, Kind: kindHealed}
	for path := onLent; path < sources; path++ {
		f.Faults[path] = append(f.Faults[path], span{s.at, at})
		e.On[path] = true
	}
	f.Events = append(f.Events, e)
	f.Onsets = append(f.Onsets, onset{At: at})
	return nil
}

// killSeat kills a process, and starts another after a while.
func (f *fleet) killSeat(x stroke) error {
	p := f.victim()
	if err := f.kill(p); err != nil {
		return err
	}
	how := "replaced"
	if x.way == killAndRestart {
		how = "restarted"
	}
	f.say("kill -9 of replica %d, %s after %.1f s", p.id, how, x.lasts.Seconds())
	f.at(f.now()+x.lasts, func() error {
		if x.way == killAndRestart {
			return f.startSeat(p.seat, p.name)
		}
		return f.startSeat(nil, "")
	})
	return nil
}

// leave ends a process in order, and starts another after a while.
func (f *fleet) leave(x stroke) error {
	p := f.victim()
	f.say("replica %d leaves, replaced after %.1f s", p.id, x.lasts.Seconds())
	err := p.stop()
	at := f.now()
	p.mu.Lock()
	p.life.Died = at
	p.mu.Unlock()
	f.Events = append(f.Events, event{At: at, Kind: kindLeave, On: counting})
	f.at(at+x.lasts, func() error { return f.startSeat(nil, "") })
	return err
}

const kindLeave = "one that leaves"

// load lets other replicas be busy than before.
func (f *fleet) load(x stroke) error {
	list := f.running()
	f.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	f.party.busy = x.way == loadAll
	switch x.way {
	case loadOne:
		list = list[:1]
	case loadTwo:
		list = list[:2]
	case loadNone:
		list = nil
	}
	f.say("%d replicas are busy", len(list))
	return f.setBusy(list)
}

// calm lets all be idle, and then one replica alone be busy.
func (f *fleet) calm(x stroke) error {
	p, now := f.victim(), f.now()
	f.party.busy = false
	f.say("calm")
	if f.party.split != nil || len(f.running()) != f.Replicas {
		return errors.New("a stretch without faults has one")
	}
	f.at(now+settled-storm, func() error {
		from := f.now() + borrowed
		f.Calms = append(f.Calms, stretch{span{from, now + x.lasts - gossipEvery}, p.id})
		f.say("replica %d is busy", p.id)
		return f.setBusy([]*process{p})
	})
	return f.setBusy(nil)
}
