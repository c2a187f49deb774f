package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// say prints what happens.
func (f *fleet) say(format string, args ...any) {
	fmt.Fprintf(f.out, "%7.2f s  %s\n", (f.now() - f.begin).Seconds(), fmt.Sprintf(format, args...))
}

// startOne starts one more process. Redis counts it when it has reported itself.
func (f *fleet) startOne(addr netip.Addr) error {
	w := f.world
	p, err := start(f.exe, assignment{
		config: f.config, ID: len(f.all) + 1, Address: addr.String(), URL: f.url, File: w.pool,
		DNS: w.dns.Addr(), Steady: w.steady.Addr(), Redis: w.redis.Addr(), Cluster: w.cluster.addrs(),
		Life: f.Duration + startWithin + coolDown + stopWithin,
	}, f.since)
	if err != nil {
		return err
	}
	p.addr = addr
	f.all = append(f.all, p)
	return nil
}

// replace starts a process, which the file and DNS count at once. It may be the last one in the order of
// addresses, or the first.
func (f *fleet) replace() error {
	return errors.Join(f.startOne(f.world.address(f.rng.IntN(2) == 0)), f.publish(kindJoin, f.addrs()))
}

// addrs are the addresses of the processes that the file and DNS count.
func (f *fleet) addrs() (addrs []netip.Addr) {
	for _, p := range f.alive() {
		if !p.unlisted {
			addrs = append(addrs, p.addr)
		}
	}
	return addrs
}

// publish tells the file and DNS who is there, and takes note of the change.
func (f *fleet) publish(kind string, addrs []netip.Addr) error {
	e := event{At: f.now(), Kind: kind} // before any replica can see it
	for s := range sources {
		if !s.counted() {
			f.Truth[s] = append(f.Truth[s], turn{e.At, len(addrs)})
			e.On[s] = true
		}
	}
	f.Events = append(f.Events, e)
	return f.world.publish(addrs)
}

// strike lets a fault happen, and enters its end.
func (f *fleet) strike(x fault) error {
	switch x.lane {
	case laneKill:
		return f.strikeDead(x)
	case laneStop:
		return f.freeze(x)
	case laneCluster:
		return f.failover(x)
	case laneSilence:
		return f.hush(x)
	case laneClock:
		return f.stepClocks(x)
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
	list := f.running()
	return list[f.rng.IntN(len(list))]
}

// running are the processes that live and are not stopped.
func (f *fleet) running() []*process {
	return slices.DeleteFunc(f.alive(), func(p *process) bool { return p.stopped })
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
	if err := f.kill(p); err != nil {
		return err
	}
	f.say("kill -9 of replica %d, replaced after %.1f s", p.id, x.lasts.Seconds())
	f.at(f.now()+x.lasts, f.replace)
	return f.publish(kindKill, f.addrs())
}

// kill kills a process, which those who count themselves may notice. The others have to be informed.
func (f *fleet) kill(p *process) error {
	if err := p.kill(); err != nil {
		return err
	}
	at := f.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life.Died = at
	f.Events = append(f.Events, event{At: at, Kind: kindKill, On: counting})
	return nil
}

// counting are the paths whose replicas count themselves.
var counting = [sources]bool{fromRedis: true, fromCluster: true, onLent: true, onLentSlots: true, onCounted: true}

// freeze stops a process, and lets it go on after a while.
func (f *fleet) freeze(x fault) error {
	p := f.victim()
	if err := p.pause(); err != nil {
		return err
	}
	at := f.now()
	f.say("SIGSTOP of replica %d, for %.1f s", p.id, x.lasts.Seconds())
	f.at(at+x.lasts, func() error { return f.goOn(p, at) })
	return nil
}

// goOn lets a process go on that was stopped at an instant.
func (f *fleet) goOn(p *process, at time.Duration) error {
	to := f.now()
	p.mu.Lock()
	p.life.Stops = append(p.life.Stops, span{at, to})
	p.mu.Unlock()
	e := event{At: to, Kind: kindResume, Slept: to - at}
	for s := range sources {
		e.On[s] = true
	}
	f.Events = append(f.Events, e)
	return p.resume()
}

// countRedis works out what Redis and the Cluster should have said, and when: those that have reported
// themselves, without those that were killed or stopped for longer than the expiry. These it may drop that
// much later.
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
		f.Events = append(f.Events, event{At: l.Born, Kind: kind, On: counting})
		for _, s := range l.Stops {
			if s.To-s.From > redisExpiry {
				changes = append(changes, change{s.From, -1}, change{s.To, 1})
				f.Events = append(f.Events, event{At: s.From, Kind: kindStop, On: counting})
			}
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	n := 0
	for _, c := range changes {
		n += c.by
		for s := range sources {
			if c.at < never && counting[s] {
				f.Truth[s] = append(f.Truth[s], turn{c.at, n})
			}
		}
	}
}
