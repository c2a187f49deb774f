package main

import (
	"math"
	"slices"
	"time"
)

// machineSlack is what any change may take besides: a look of a replica, a message to its parent, a goroutine that has to
// be woken up.
const machineSlack = 150 * time.Millisecond

// A state holds for one path from one instant to another.
type state struct {
	span
	Running int     // replicas that have a share and are not stopped
	Least   int     // the smallest pool that one of them believes in; 0: none runs
	Right   bool    // all of them believe the truth
	Down    bool    // the source is broken
	Excused bool    // something has changed that need not be known yet, and no replica believes in fewer than there were before
	Back    float64 // tokens that replicas bring which were stopped until then
}

// states are the states of a path, in order and without gaps, from the start to the end of the run.
func (r record) states(s source) []state {
	excused := r.excused(s, r.cut(s, nil))
	var more []span
	for _, e := range excused {
		more = append(more, e.span)
	}
	all := r.cut(s, more)
	for i := range all {
		all[i].Excused = all[i].Least >= r.low(s, excused, all[i].From)
	}
	return all
}

// cut cuts the run wherever anything changes, spans that begin or end among it. Nothing is excused yet.
func (r record) cut(s source, more []span) []state {
	cuts := []time.Duration{0, r.Length}
	for _, t := range r.Truth[s] {
		cuts = append(cuts, t.At)
	}
	for _, e := range slices.Concat(more, r.Faults[s]) {
		cuts = append(cuts, e.From, e.To)
	}
	for _, l := range r.Lives {
		cuts = append(cuts, l.Died)
		for _, b := range l.Beliefs[s] {
			cuts = append(cuts, b.From)
		}
		for _, stop := range l.Stops {
			cuts = append(cuts, stop.From, stop.To)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	var all []state
	for i, to := range cuts[1:] {
		if cuts[i] >= 0 && to <= r.Length {
			st := r.state(s, cuts[i])
			st.span = span{cuts[i], to}
			all = append(all, st)
		}
	}
	return all
}

// state is the state at an instant.
func (r record) state(s source, t time.Duration) state {
	st := state{Right: true, Down: within(r.Faults[s], t)}
	truth := r.truth(s, t)
	for i := range r.Lives {
		l := &r.Lives[i]
		n := l.belief(s, t)
		if n == 0 || !l.runs(t) {
			continue
		}
		st.Running++
		st.Right = st.Right && n == truth
		if st.Least == 0 || n < st.Least {
			st.Least = n
		}
		if slices.ContainsFunc(l.Stops, func(stop span) bool { return stop.To == t }) {
			st.Back += r.ctrl(s).share(s, n)
		}
	}
	return st
}

// truth is what a source should say at an instant.
func (r record) truth(s source, t time.Duration) (n int) {
	for _, turn := range r.Truth[s] {
		if turn.At > t {
			break
		}
		n = turn.Replicas
	}
	return n
}

// within reports whether an instant lies in one of the spans.
func within(spans []span, t time.Duration) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.holds(t) })
}

// low is the smallest pool that a replica may believe in at an instant: the smallest that there was since
// the first change that is not learned yet. Without one nothing is small enough.
func (r record) low(s source, excused []excuse, t time.Duration) int {
	first := never
	for _, e := range excused {
		if e.holds(t) {
			first = min(first, e.since)
		}
	}
	if first == never {
		return math.MaxInt
	}
	n := math.MaxInt
	if before := r.truth(s, first-1); before > 0 {
		n = before
	}
	for _, turn := range r.Truth[s] {
		if turn.At >= first && turn.At <= t {
			n = min(n, turn.Replicas)
		}
	}
	return n
}

// An excuse is a span in which replicas may be wrong, but not believe in fewer than there ever were since an instant.
type excuse struct {
	span
	since time.Duration
}

// excused are the spans in which a path's replicas may be wrong. A span follows each change until all are
// right, once all can know of it, and not for longer than is allowed. A source that breaks and mends without
// a change excuses nothing: the last good size stays.
func (r record) excused(s source, states []state) []excuse {
	var all []excuse
	for _, e := range r.Events {
		if !e.On[s] || e.Mend {
			continue
		}
		heard, latest := r.learned(s, e.At, 2*periods[s]), r.learned(s, e.At, s.allowed())
		for _, st := range states {
			if st.Right && st.To > heard {
				latest = min(latest, max(heard, st.From))
				break
			}
		}
		since := e.At
		if e.Slept > 0 { // a stopped process knows what was true then, or need not have known it yet
			since -= e.Slept + s.allowed()
		}
		all = append(all, excuse{span{e.At, latest}, since})
	}
	return all
}

// learned is when a change at an instant has been learned, if that takes so long at most. A source that
// breaks before reports it later, and it takes as long once more.
func (r record) learned(s source, at, takes time.Duration) time.Duration {
	may := span{at, at + takes + r.slack(s, at)}
	for _, f := range r.Faults[s] {
		if may.overlap(f) > 0 {
			may.To = f.To + takes + r.slack(s, f.To)
		}
	}
	return may.To
}

// slack is what the machine may add to the time after a change: twice the longest time that a process stood still.
func (r record) slack(s source, at time.Duration) time.Duration {
	longest, in := time.Duration(0), span{at, at + s.allowed()}
	for i := range r.Lives {
		l := &r.Lives[i]
		for _, stall := range l.Stalls {
			if stall.overlap(in) > 0 {
				longest = max(longest, l.own(stall))
			}
		}
	}
	return machineSlack + 2*longest
}

// growths are the times in which a replica that ran believed in fewer than there were. Only what is excused may cost
// anything.
func (r record) growths(s source, states []state) []growth {
	rate := r.ctrl(s).rate
	var all []growth
	var open *growth
	var least, most int
	for _, st := range states {
		if st.Running <= st.Least || !st.Excused {
			open = nil
			continue
		}
		if open == nil {
			all = append(all, growth{span: st.span})
			open = &all[len(all)-1]
			least, most = st.Least, st.Running
		}
		d := (st.To - st.From).Seconds()
		open.To = st.To
		open.extra += rate*d*(float64(st.Running)/float64(st.Least)-1) + st.Back
		least, most = min(least, st.Least), max(most, st.Running)
		open.bound3 = rate * (open.To - open.From).Seconds() * (float64(most)/float64(least) - 1)
	}
	return all
}
