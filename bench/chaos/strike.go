package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// say prints what happens.
func (f *fleet) say(format string, args ...any) {
	fmt.Fprintf(f.out, "%7.2f s  %s\n", (f.now() - f.begin).Seconds(), fmt.Sprintf(format, args...))
}

// startOne starts one more process. Redis counts it when it has reported itself.
func (f *fleet) startOne() error {
	id := len(f.all) + 1
	p, err := start(assignment{
		ID: id, URL: f.url, File: f.world.pool, DNS: f.world.dns.Addr(), Redis: f.world.redis.Addr(),
		Limit: f.Limit, Burst: f.Burst, Believe: f.Believe,
		Life: f.Duration + startWithin + coolDown + stopWithin,
	}, f.since)
	if err != nil {
		return err
	}
	f.all = append(f.all, p)
	return nil
}

// replace starts a process, which the file and DNS count at once.
func (f *fleet) replace() error {
	return errors.Join(f.startOne(), f.publish(kindJoin, f.ids()))
}

// ids are the numbers of the processes that live.
func (f *fleet) ids() (ids []int) {
	for _, p := range f.alive() {
		ids = append(ids, p.id)
	}
	return ids
}

// publish tells the file and DNS who is there, and takes note of the change.
func (f *fleet) publish(kind string, ids []int) error {
	at := f.now() // before anybody can see it
	for _, s := range []source{fromFile, fromDNS} {
		f.Truth[s] = append(f.Truth[s], turn{at, len(ids)})
	}
	f.Events = append(f.Events, event{At: at, Kind: kind, On: [sources]bool{fromFile: true, fromDNS: true}})
	return f.world.publish(ids)
}

// strike lets a fault happen, and enters its end.
func (f *fleet) strike(x fault) error {
	switch x.lane {
	case laneKill:
		return f.strikeDead(x)
	case laneStop:
		return f.freeze(x)
	}
	b := f.world.breakage(x)
	at := f.now()
	if err := b.begin(); err != nil {
		return fmt.Errorf("%s: %w", b.name, err)
	}
	f.say("%s, for %.1f s", b.name, x.lasts.Seconds())
	f.at(at+x.lasts, func() error {
		if err := b.mend(); err != nil {
			return fmt.Errorf("mending %s: %w", b.name, err)
		}
		if !b.fine {
			f.Faults[b.source] = append(f.Faults[b.source], span{at, f.now()})
		}
		e := event{At: f.now(), Kind: b.name, Mend: true}
		e.On[b.source] = true
		f.Events = append(f.Events, e)
		return nil
	})
	return nil
}

// victim is one of those that live and run.
func (f *fleet) victim() *process {
	list := slices.DeleteFunc(f.alive(), func(p *process) bool { return p.stopped })
	return list[f.rng.IntN(len(list))]
}

const (
	kindStart  = "start"
	kindKill   = "kill -9"
	kindJoin   = "a new process"
	kindStop   = "SIGSTOP past the expiry"
	kindResume = "SIGCONT"
)

// strikeDead kills a process, and starts another after a while.
func (f *fleet) strikeDead(x fault) error {
	p := f.victim()
	if err := p.kill(); err != nil {
		return err
	}
	at := f.now()
	p.mu.Lock()
	p.life.Died = at
	p.mu.Unlock()
	f.say("kill -9 of replica %d, replaced after %.1f s", p.id, x.lasts.Seconds())
	f.Events = append(f.Events, event{At: at, Kind: kindKill, On: [sources]bool{fromRedis: true}})
	f.at(at+x.lasts, f.replace)
	return f.publish(kindKill, f.ids())
}

// freeze stops a process, and lets it go on after a while.
func (f *fleet) freeze(x fault) error {
	p := f.victim()
	if err := p.pause(); err != nil {
		return err
	}
	at := f.now()
	f.say("SIGSTOP of replica %d, for %.1f s", p.id, x.lasts.Seconds())
	f.at(at+x.lasts, func() error {
		to := f.now()
		p.mu.Lock()
		p.life.Stops = append(p.life.Stops, span{at, to})
		p.mu.Unlock()
		f.Events = append(f.Events, event{At: to, Kind: kindResume, On: [sources]bool{true, true, true}, Slept: to - at})
		return p.resume()
	})
	return nil
}

// countRedis works out what Redis should have said, and when: those that have reported themselves, without those that
// were killed or stopped for longer than the expiry. These it may drop that much later.
func (f *fleet) countRedis() {
	type change struct {
		at time.Duration
		by int
	}
	var changes []change
	for _, l := range f.Lives {
		if l.Born == 0 {
			continue // killed before it reported itself
		}
		changes = append(changes, change{l.Born, 1}, change{l.Died, -1})
		kind := kindJoin
		if l.Born < f.begin {
			kind = kindStart
		}
		f.Events = append(f.Events, event{At: l.Born, Kind: kind, On: [sources]bool{fromRedis: true}})
		for _, s := range l.Stops {
			if s.To-s.From > redisExpiry {
				changes = append(changes, change{s.From, -1}, change{s.To, 1})
				f.Events = append(f.Events, event{At: s.From, Kind: kindStop, On: [sources]bool{fromRedis: true}})
			}
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	n := 0
	for _, c := range changes {
		n += c.by
		if c.at < never {
			f.Truth[fromRedis] = append(f.Truth[fromRedis], turn{c.at, n})
		}
	}
}
