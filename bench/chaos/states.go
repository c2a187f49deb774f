package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	// machineSlack is what any change may take besides: a look of a replica, a goroutine that has to be woken up.
	machineSlack = 150 * time.Millisecond
	// saidAgain is how often gossip reports its pool, if nothing changes. A hold-down begins at a report.
	saidAgain = time.Second
	// healWithin is when all must believe in as many as there are, or more, after a partition, a start or a stop.
	healWithin = 3 * time.Second
	// pieceOf is how long a growth lasts at most, so that a window has no more of it than it touches.
	pieceOf = 250 * time.Millisecond
)

// A state holds for one path from one instant to another.
type state struct {
	span
	Running int     // replicas that have a share and are not stopped
	Least   int     // the smallest pool that one of them believes in; 0: none runs
	Right   bool    // all of them believe the truth
	Excused bool    // they need not
	Shares  float64 // the sum of 1/n over all of them, as each believes
	Buckets float64 // the sum of their buckets
	Back    float64 // of it, of those that were stopped until then
}

// states are the states of a path, in order and without gaps, from the start to the end of the run.
func (r record) states(p path) (all []state) {
	excuses, facts, cuts := r.excuses(p), r.Truth[p], []time.Duration{0, r.Length}
	for _, e := range excuses {
		cuts = append(cuts, e.From, e.To)
	}
	for _, l := range r.Lives {
		for _, s := range l.Stops {
			cuts = append(cuts, s.From, s.To)
		}
		cuts = append(cuts, l.Died)
		facts = slices.Concat(facts, l.Pools[p], l.Places[p])
	}
	for _, f := range facts {
		cuts = append(cuts, f.From, f.To)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	for i, to := range cuts[1:] {
		if cuts[i] >= 0 && to <= r.Length {
			st := r.state(p, span{cuts[i], to})
			st.Excused = slices.ContainsFunc(excuses, func(e excuse) bool {
				return e.holds(st.From) && st.Least >= r.least(p, span{e.since, st.From})
			})
			all = append(all, st)
		}
	}
	return all
}

// state is the state of a span in which nothing changes.
func (r record) state(p path, in span) state {
	st := state{span: in, Right: true}
	truth := at(r.Truth[p], in.From)
	for _, l := range r.Lives {
		if !l.runs(p, in.From) {
			continue
		}
		n := l.pool(p, in.From)
		st.Running++
		st.Right = st.Right && n == truth
		st.Least = min(cmp.Or(st.Least, n), n)
		b := r.bucket(p, n)
		st.Shares += 1 / float64(n)
		st.Buckets += b
		if slices.ContainsFunc(l.Stops, func(stop span) bool { return stop.To == in.From }) {
			st.Back += b
		}
	}
	return st
}

// An excuse is a span in which replicas may be wrong, but not believe in fewer than there ever were since an instant.
type excuse struct {
	span
	since time.Duration // ever: in one
}

const ever = -never

// least is the smallest pool that there was in a span, and a moment before it.
func (r record) least(p path, in span) int {
	if in.From == ever {
		return 1
	}
	n := cmp.Or(at(r.Truth[p], in.From-1), math.MaxInt)
	for _, t := range r.Truth[p] {
		if t.From >= in.From && t.From <= in.To {
			n = min(n, t.N)
		}
	}
	return n
}

// excuse is a span that ends so much after an instant, and what the machine may add.
func (r record) excuse(p path, from, to, more, since time.Duration) excuse {
	return excuse{span{from, to + more + r.slack(p, to)}, since}
}

// excuses are the spans in which a path's replicas may be wrong: as long as is allowed after each change. A source
// that breaks before reports it later, and it takes as long once more. One that breaks and mends without a change
// excuses nothing: the last good size stays.
//
// Replicas that gossip may believe in one, those of their part, while there is a partition, but not before the
// hold-down is over: that is bound 4. They also may for a while after one, or after a start or a stop.
func (r record) excuses(p path) (all []excuse) {
	for _, c := range r.Changes[p] {
		since := c.At
		if c.Slept > 0 { // a stopped process knows what was true then, or need not have known it yet
			since -= c.Slept + p.allowed()
		}
		all = append(all, r.excuse(p, c.At, c.At, p.allowed(), since))
		for _, f := range r.Faults[p] {
			if may := &all[len(all)-1]; may.overlap(f) > 0 {
				may.To = f.To + p.allowed() + r.slack(p, f.To)
			}
		}
	}
	apart := func(from, to time.Duration) {
		if p.gossips() && from < to+healWithin {
			all = append(all, r.excuse(p, from-lateness, to, healWithin, ever))
		}
	}
	for _, f := range r.Faults[p] {
		apart(f.From+holdDown-saidAgain, f.To)
		for _, l := range r.Lives { // a lie counts at once where it comes first, and where a process is stopped with it
			if first := l.first(p); f.holds(first) {
				all = append(all, r.excuse(p, first, f.To, p.looks(), ever))
			}
			for _, stop := range l.Stops {
				if f.From <= stop.From && stop.From < f.To+p.looks() {
					all = append(all, r.excuse(p, stop.From-lateness, stop.To, p.looks(), ever))
				}
			}
		}
	}
	for _, l := range r.Lives {
		if l.Born > 0 {
			apart(l.Born, min(l.first(p), r.Length))
		}
		for _, stop := range l.Stops {
			apart(stop.To, stop.To)
		}
	}
	return all
}

// slack is what the machine may add to the time after a change: twice the longest time that a process stood still, be
// it a replica or the run.
func (r record) slack(p path, at time.Duration) time.Duration {
	longest, in := time.Duration(0), span{at, at + p.allowed()}
	for _, l := range slices.Concat(r.Lives, []*life{{Stalls: r.Stalls}}) {
		for _, stall := range l.Stalls {
			if stall.overlap(in) > 0 {
				longest = max(longest, l.own(stall))
			}
		}
	}
	return machineSlack + 2*longest
}

// onsets are when a replica may begin to use its share: callers ask, or it is new, or goes on.
func (r record) onsets() []onset {
	all := slices.Clone(r.Onsets)
	for _, l := range r.Lives {
		if first := l.first(onLent); first < never {
			all = append(all, onset{At: first})
		}
		for _, stop := range l.Stops {
			all = append(all, onset{At: stop.To})
		}
	}
	return all
}

// growths are the times in which more may leave than R w + max(B, N). Those that believe in fewer than there are have
// more than their shares, and a bucket that is larger, or was not counted: bounds 3 and 4. Only what is excused may
// cost anything. When one begins to use its own share, what others have borrowed of it is theirs for as long as
// reports count: bound 10. When many meet again, it is all.
func (r record) growths(p path, states []state, burst float64) (all []growth) {
	rate, open, most := r.limits[p].rate, -1, 0.
	for _, st := range states {
		if st.Shares < 1+1e-9 || !st.Excused {
			open = -1
			continue
		}
		if open < 0 {
			open, most = len(all), 0
			all = append(all, growth{span: st.span})
		}
		all[open].To = st.To
		all[open].extra += st.Back + max(0, st.Buckets-burst-most)
		most = max(most, st.Buckets-burst)
		for from := st.From; from < st.To; from += pieceOf {
			in := span{from, min(from+pieceOf, st.To)}
			all = append(all, growth{span: in, extra: rate * in.length().Seconds() * (st.Shares - 1)})
		}
	}
	if !p.gossips() {
		return all
	}
	for _, o := range r.onsets() {
		n := 0.
		for _, l := range r.Lives {
			if l.runs(p, o.At) {
				n++
			}
		}
		part := 1 / max(1, n)
		if o.All {
			part = 1 - part
		}
		in := span{o.At - lateness, o.At + newsCount + r.slack(p, o.At)}
		all = append(all, growth{span: in, extra: rate * in.length().Seconds() * part})
	}
	return all
}
