package main

import (
	"cmp"
	"slices"
	"time"
)

// stuckAfter is how long a replica may be admitted nothing. Each has a window or a turn of its own every two
// or four seconds at the latest, and changes meanwhile may cost it one or two.
const stuckAfter = 10 * time.Second

// windows judges bound 11 by a clock that is never stepped. A replica has its quota of each window, and one
// window more for each step of its wall clock. Where all agree and no clock was stepped, the fleet's total
// of each window is exact.
func (v *verdict) windows(r record) {
	p, sent := &v.Paths[onWindows], r.departures(onWindows)
	p.Requests = len(sent)
	p.Used = float64(len(sent)) / (r.ctrl(onWindows).rate * r.Length.Seconds())
	p.Replica = window{Allowed: 1}
	for i := range r.Lives {
		l := &r.Lives[i]
		w := r.windowShare(l).worst(of(sent, l.ID))
		if w.broken() {
			v.broken("bound 11, %s, replica %d: %s, with one window more for each of %d steps of its clock",
				onWindows, l.ID, w, l.steps(w.span))
		}
		if w.excess() > p.Replica.excess() {
			p.Replica = w
		}
	}
	v.exact(r)
}

// steps is how often the clock was stepped in a span.
func (l *life) steps(in span) (n int) {
	for _, s := range l.Steps {
		if s.To >= in.From && s.From <= in.To {
			n++
		}
	}
	return n
}

// windowShare is what a replica may do, by what it believes. Any span touches as many windows as fit in, and
// two more. The quotas of windows that follow each other are the mean, E/n, and less than one event more, in
// all. Where the sequence of windows breaks, by another pool or a step, there is one such fraction more, and
// one window, which the step has opened or which was open.
func (r record) windowShare(l *life) budget {
	events := float64(r.ctrl(onWindows).window)
	paces, breaks := []pace{{}}, []growth{}
	split := func(in span, extra float64) {
		breaks = append(breaks, growth{span: span{in.From - lateness, in.To + lateness}, extra: extra})
	}
	for i, b := range l.Beliefs[onWindows] {
		mean := events / float64(b.Replicas)
		paces = append(paces, pace{from: b.From, rate: mean / windowPer.Seconds(), burst: 2*mean + 1})
		if i > 0 {
			split(span{b.From, b.From}, mean+1)
		}
	}
	for _, p := range l.Places[onWindows] {
		split(p.span, 1)
	}
	for _, s := range l.Steps {
		if n := l.belief(onWindows, s.From); n > 0 {
			split(s.span, events/float64(n)+1)
		}
	}
	return newBudget(paces, apart(breaks))
}

// apart puts growths in order, and makes one of those that overlap.
func apart(all []growth) []growth {
	slices.SortFunc(all, func(a, b growth) int { return cmp.Compare(a.From, b.From) })
	var out []growth
	for _, g := range all {
		if n := len(out); n > 0 && g.From <= out[n-1].To {
			out[n-1].To = max(out[n-1].To, g.To)
			out[n-1].extra += g.extra
			continue
		}
		out = append(out, g)
	}
	return out
}

// exact judges the windows in which nothing has changed since the one before. Requests that left at another
// time than they were admitted do not count.
func (v *verdict) exact(r record) {
	p, most := &v.Paths[onWindows], r.ctrl(onWindows).window
	p.Fleet.Allowed = float64(most)
	log := slices.Clone(r.Logs[onWindows])
	slices.SortFunc(log, func(a, b entry) int { return cmp.Compare(a.Admitted, b.Admitted) })
	next, over := 0, 0
	for _, in := range r.calm() {
		ahead, ok := r.agreed(in.From)
		if !ok {
			continue
		}
		from := r.windowAfter(in.From+windowPer+lateness, ahead)
		for ; from+windowPer <= in.To-lateness; from += windowPer {
			w := window{span{from, from + windowPer}, 0, float64(most)}
			for ; next < len(log) && log[next].Admitted < w.To; next++ {
				if e := log[next]; e.Could >= w.From-clocksDiffer && e.Admitted >= w.From {
					w.Sent++
				}
			}
			p.Exact++
			if w.Sent > p.Fleet.Sent {
				p.Fleet = w
			}
			if w.broken() {
				over++
			}
		}
	}
	if over > 0 {
		v.broken("bound 11, %s: %s, where all agree and no clock was stepped, and too many in %d windows of %d",
			onWindows, p.Fleet, over, p.Exact)
	}
}

// clocksDiffer is by how much the clocks of processes on one machine may.
const clocksDiffer = time.Millisecond

// windowAfter is the begin of the first window not before an instant, by a wall clock that is ahead.
func (r record) windowAfter(t, ahead time.Duration) time.Duration {
	wall := time.Duration(r.Epoch) + t + ahead
	if late := wall % windowPer; late > 0 {
		return t + windowPer - late
	}
	return t
}

// calm are the times in which nothing changes for the aligned windows of any replica, in order.
func (r record) calm() []span {
	cuts := []time.Duration{0, r.Length}
	for i := range r.Lives {
		l := &r.Lives[i]
		cuts = append(cuts, l.Died)
		for _, b := range l.Beliefs[onWindows] {
			cuts = append(cuts, b.From)
		}
		for _, p := range l.Places[onWindows] {
			cuts = append(cuts, p.From, p.To)
		}
		for _, s := range l.Steps {
			cuts = append(cuts, s.From, s.To)
		}
		for _, s := range l.Stops {
			cuts = append(cuts, s.From, s.To)
		}
	}
	slices.Sort(cuts)
	var all []span
	for i, to := range cuts[1:] {
		if from := cuts[i]; from >= 0 && to <= r.Length && to-from > 2*windowPer {
			all = append(all, span{from, to})
		}
	}
	return all
}

// agreed reports whether all replicas that run believe in as many, each with an ordinal of its own. It also
// reports whether their wall clocks agree, and by how much these are ahead.
func (r record) agreed(t time.Duration) (ahead time.Duration, ok bool) {
	running, taken := 0, map[int]bool{}
	for i := range r.Lives {
		if l := &r.Lives[i]; l.belief(onWindows, t) > 0 && l.runs(t) {
			running++
		}
	}
	for i := range r.Lives {
		l := &r.Lives[i]
		n := l.belief(onWindows, t)
		if n == 0 || !l.runs(t) {
			continue
		}
		place := l.ordinal(onWindows, t)
		if n != running || place == 0 || taken[place] || len(taken) > 0 && l.ahead(t) != ahead {
			return 0, false
		}
		taken[place], ahead = true, l.ahead(t)
	}
	return ahead, running > 0
}

// goesOn judges whether windows and turns have stopped for good: each replica that runs is admitted
// something once in a while.
func (v *verdict) goesOn(r record, s source) {
	sent := r.departures(s)
	for i := range r.Lives {
		l := &r.Lives[i]
		if len(l.Beliefs[s]) == 0 {
			continue
		}
		last, end := l.Beliefs[s][0].From, min(l.Died, r.Length)
		for _, d := range append(of(sent, l.ID), departure{left: end}) {
			gap := span{last, d.left}
			last = d.left
			idle := gap.To - gap.From - l.stood(gap)
			for _, stop := range l.Stops {
				idle -= gap.overlap(stop)
			}
			v.Paths[s].Gap = max(v.Paths[s].Gap, idle)
			if idle > stuckAfter {
				v.broken("%s: replica %d got nothing from %.3f s to %.3f s, believes in %d, its clock is ahead by %v",
					s, l.ID, gap.From.Seconds(), gap.To.Seconds(), l.belief(s, gap.To-1), l.ahead(gap.To))
			}
		}
	}
}
