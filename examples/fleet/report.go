package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A cell is one replica's part of one line.
type cell struct {
	second
	Waiting int
	Alive   bool
}

// line prints what happened in the n-th second of the run.
func (f *fleet) line(n int) {
	to := f.begin + time.Duration(n)*time.Second
	by := count(f.up.Log(), to-time.Second, to)
	cells := make([]cell, len(f.all))
	for i, p := range f.all {
		p.mu.Lock()
		cells[i] = cell{second: by[p.id], Alive: !p.ending}
		if cells[i].Alive {
			cells[i].Waiting = p.waiting
		}
		p.mu.Unlock()
	}
	f.out.line(n, cells, f.phases[len(f.phases)-1].Limit)
}

// A summary is what the run was like: how good, not whether it kept its promises.
type summary struct {
	Phases    []result
	Overheads []time.Duration
	Network   []time.Duration // from leaving a replica to reaching the upstream
	GaveUp    int
	Failed    int
	LastError string
}

func (f *fleet) summary() summary {
	log := f.up.Log()
	var s summary
	for _, ph := range f.phases {
		r := measure(log, ph)
		r.From, r.To = ph.From-f.begin, ph.To-f.begin
		s.Phases = append(s.Phases, r)
	}
	for _, a := range log {
		s.Network = append(s.Network, a.Arrived-a.Sent)
	}
	for _, p := range f.all {
		p.mu.Lock()
		s.Overheads = append(s.Overheads, p.overheads...)
		s.GaveUp += p.gaveUp
		s.Failed += p.failed
		s.LastError = cmp.Or(p.lastError, s.LastError)
		p.mu.Unlock()
	}
	return s
}

// A ruling is all verdicts, and what they rest on.
type ruling struct {
	Verdicts []verdict
	Requests int
	Late     time.Duration // the longest that a request left after it might have, as far as believed
	Stall    time.Duration // the longest that a replica did not get to run
	Fleet    budget
	Begin    time.Duration
	Lateness []timeliness // of each change of a pool that is counted
}

// broken reports whether any promise was broken.
func (r ruling) broken() bool {
	return broken(r.Verdicts) || slices.ContainsFunc(r.Lateness, func(l timeliness) bool { return !l.Held })
}

// ruling judges a run that is over by the upstream's log. A limiter decides when requests leave, not when they
// arrive, so the judged windows are between departures; those between arrivals, which the network
// has pushed together, are shown for comparison.
func (f *fleet) ruling() ruling {
	if f.platform != nil {
		f.settle()
	}
	stalls := f.stalls()
	log := believe(f.up.Log(), stalls)
	r := ruling{Requests: len(log), Begin: f.begin, Fleet: f.budget()}
	if len(log) == 0 {
		return r
	}
	for _, a := range log {
		r.Late = max(r.Late, a.Late)
		r.Stall = max(r.Stall, stalls[a.Replica])
	}
	add := func(v verdict) { r.Verdicts = append(r.Verdicts, v) }
	add(verdict{Of: "the fleet", Bound: "2, 3", Worst: r.Fleet.worst(departures(log, anyone)), Judged: true})
	for _, p := range f.all {
		if sent := departures(log, from(p.id)); len(sent) > 0 {
			own := budget{steps: p.steps}
			add(verdict{Of: fmt.Sprintf("replica %d", p.id), Bound: "1", Worst: own.worst(sent), Judged: true})
		}
	}
	add(verdict{Of: "on arrival", Worst: r.Fleet.worst(onArrival(log))})
	r.Lateness = f.lateness(max(r.Stall, time.Duration(f.stood.Load())))
	return r
}

// stalls is the longest time that each replica did not get to run.
func (f *fleet) stalls() map[int]time.Duration {
	stalls := make(map[int]time.Duration, len(f.all))
	for _, p := range f.all {
		p.mu.Lock()
		stalls[p.id] = p.stall
		p.mu.Unlock()
	}
	return stalls
}

// budget is what the whole fleet may do: its rate, its burst with no bucket below one request, and
// what the growth of the pool may have cost.
func (f *fleet) budget() budget {
	return budget{
		steps:  []step{{rate: f.plan.Limit, burst: float64(max(f.plan.Burst, f.most))}},
		growth: f.growth,
	}
}
