package main

import (
	"fmt"
	"slices"
	"time"
)

// A verdict is what became of one run.
type verdict struct {
	Paths     [sources]pathVerdict
	Rows      []row
	Gossip    gossipVerdict
	Ended     int // processes that ended in order
	Leaks     int // of them, those that left something behind
	Failed    int // requests of theirs that got no answer
	LastError string
	Stall     time.Duration // the longest time that a process stood still by itself
	Broken    []string      // what did not hold; empty: everything did
}

// A pathVerdict is how well the replicas of one path kept together.
type pathVerdict struct {
	Requests int
	Used     float64 // of the limit
	Fleet    window  // the worst one; in flight the most at one instant; of aligned windows the fullest that is exact
	Replica  window  // the worst one of any replica
	Growths  int
	Exact    int           // aligned windows whose total must be exact
	Silent   int           // silences longer than hints count for
	Gap      time.Duration // the longest that a replica got nothing; of paths whose clocks are stepped
	Wrong    time.Duration // for how long a replica was wrong, in all
}

// A row is what followed on one kind of event for one source.
type row struct {
	Kind       string
	Source     source
	Count      int
	Superseded int             // something else came before all agreed
	Took       []time.Duration // until all agreed, of the others
	Over       float64         // the most that was let through beyond R w + max(B, N)
	Bound3     float64         // what bound 3 allows beyond it there
}

// A fleet has to do more than hold its bounds: a fleet that sends nothing exceeds nothing.
const (
	leastUsed  = 0.5  // of the limit, by each path; what faults take from a healthy fleet is some percent
	mostFailed = 0.01 // of all requests
)

// judge judges a run.
func judge(r record) verdict {
	var v verdict
	for s := range sources {
		if r.has(s) {
			v.path(r, s)
		}
	}
	v.serves(r)
	if r.Gossip {
		v.gossip(r)
	}
	for i := range r.Lives {
		l := &r.Lives[i]
		for _, stall := range l.Stalls {
			v.Stall = max(v.Stall, l.own(stall))
		}
		switch {
		case l.End != nil:
			v.ended(l)
		case l.Died == never: // else it was killed, and cannot say
			v.broken("replica %d did not say how it ended", l.ID)
		}
	}
	all := 0
	for s := range sources {
		all += v.Paths[s].Requests
	}
	if float64(v.Failed) > mostFailed*float64(all) {
		v.broken("%d requests of %d got no answer: %s", v.Failed, all, v.LastError)
	}
	return v
}

// serves judges whether the fleet has done what it is for.
func (v *verdict) serves(r record) {
	known := map[int]bool{}
	for i := range r.Lives {
		known[r.Lives[i].ID] = true
	}
	for s := range sources {
		if !r.has(s) {
			continue
		}
		if s.gossips() {
			continue // not all ask all the time: see calms
		}
		if used := v.Paths[s].Used; used < leastUsed {
			v.broken("%s: %.1f %% of the limit was used, and it takes %.0f", s, 100*used, 100*leastUsed)
		}
		if i := slices.IndexFunc(r.Logs[s], func(e entry) bool { return !known[int(e.Replica)] }); i >= 0 {
			v.broken("%s: a request of replica %d, which there is not", s, r.Logs[s][i].Replica)
		}
	}
}

// ended takes in a process's last words.
func (v *verdict) ended(l *life) {
	v.Ended++
	v.Failed += l.End.Failed
	if l.End.Failed > 0 {
		v.LastError = l.End.LastError
	}
	if l.End.Leak != "" {
		v.Leaks++
		v.broken("replica %d leaks: %s", l.ID, l.End.Leak)
	}
}

func (v *verdict) broken(format string, args ...any) {
	v.Broken = append(v.Broken, fmt.Sprintf(format, args...))
}

// path judges one path.
func (v *verdict) path(r record, s source) {
	states := r.states(s)
	switch s {
	case onSlots:
		v.slots(r, states)
		v.aged(r)
	case onWindows:
		v.windows(r)
	case onLent:
		v.lent(r, states)
	case onLentSlots:
		v.lentSlots(r)
	case onCounted:
		v.counted(r, states)
	default:
		v.rates(r, s, states)
	}
	if s == onWindows || s == onTurns {
		v.goesOn(r, s)
	}
	if !s.gossips() {
		v.beliefs(s, states)
	}
	v.rows(r, s, states)
}

// rates judges a path that has a bucket.
func (v *verdict) rates(r record, s source, states []state) {
	p, rate := &v.Paths[s], r.ctrl(s).rate
	sent, growths := r.departures(s), r.growths(s, states)
	fleet := newBudget([]pace{{rate: rate, burst: r.fleetBurst(s, states)}}, growths)
	p.Requests, p.Growths = len(sent), len(growths)
	p.Used = float64(len(sent)) / (rate * r.Length.Seconds())
	if p.Fleet = fleet.worst(sent); p.Fleet.broken() {
		v.broken("bounds 2 and 3, %s: %s", s, p.Fleet)
	}
	p.Replica = window{Allowed: 1}
	for i := range r.Lives {
		l := &r.Lives[i]
		w := r.share(l, s).worst(l.after(s, of(sent, l.ID)))
		if w.broken() {
			v.broken("bound 1, %s, replica %d: %s", s, l.ID, w)
		}
		if w.excess() > p.Replica.excess() {
			p.Replica = w
		}
	}
}

// after are departures of a replica, none of which might have left before there was a share: the process
// notes a request a moment before it calls its limiter.
func (l *life) after(s source, sent []departure) []departure {
	if len(l.Beliefs[s]) == 0 {
		return sent
	}
	for i := range sent {
		sent[i].may = max(sent[i].may, l.Beliefs[s][0].From)
	}
	return sent
}

// fleetBurst is max(B, N) for the largest N that was.
func (r record) fleetBurst(s source, states []state) float64 {
	most := r.ctrl(s).burst
	for _, st := range states {
		most = max(most, st.Running)
	}
	return float64(most)
}

// share is what a replica may do by what it believes: nothing before it knows.
func (r record) share(l *life, s source) budget {
	paces := []pace{{}}
	ctrl := r.ctrl(s)
	for _, b := range l.Beliefs[s] {
		n := float64(b.Replicas)
		paces = append(paces, pace{from: b.From, rate: ctrl.rate / n, burst: ctrl.share(s, b.Replicas)})
	}
	return newBudget(paces, nil)
}

// beliefs judges whether a replica was wrong for longer than is allowed.
func (v *verdict) beliefs(s source, states []state) {
	var open *state // what is wrong without an excuse
	for _, st := range states {
		if !st.Right {
			v.Paths[s].Wrong += st.To - st.From
		}
		switch bad := !st.Right && !st.Excused; {
		case bad && open == nil:
			open = &st
		case bad:
			open.To, open.Least = st.To, min(open.Least, st.Least)
		case open != nil:
			v.wrong(s, *open)
			open = nil
		}
	}
	if open != nil {
		v.wrong(s, *open)
	}
}

// wrong notes a time in which a replica was wrong without an excuse.
func (v *verdict) wrong(s source, st state) {
	v.broken("%s: from %.3f s to %.3f s not all of %d replicas agree with the truth, one believes in %d, and no change of the last %v excuses that",
		s, st.From.Seconds(), st.To.Seconds(), st.Running, st.Least, s.allowed())
}

// rows measures what followed on each event.
func (v *verdict) rows(r record, s source, states []state) {
	events := slices.DeleteFunc(slices.Clone(r.Events), func(e event) bool { return !e.On[s] || e.Kind == kindAge })
	for i, e := range events {
		next := r.Length
		for _, later := range slices.Backward(events[i+1:]) {
			if !later.Mend {
				next = later.At
			}
		}
		row := v.row(e.Kind, s)
		row.Count++
		if took, ok := rightAfter(states, e.At, next); ok {
			row.Took = append(row.Took, took)
		} else {
			row.Superseded++
		}
	}
	if s == onSlots || s == onWindows || s.gossips() {
		return // their bounds are not of this form
	}
	sent := r.departures(s)
	plain := newBudget([]pace{{rate: r.ctrl(s).rate, burst: r.fleetBurst(s, states)}}, nil)
	for _, g := range r.growths(s, states) {
		row := v.row(before(events, g.From), s)
		w := plain.worst(during(sent, span{g.From - time.Second, g.To + time.Second}))
		if over := max(0, w.excess()); over > row.Over || row.Bound3 == 0 {
			row.Over, row.Bound3 = over, max(g.bound3, g.extra)
		}
	}
}

// before is the kind of the last event up to an instant.
func before(events []event, t time.Duration) string {
	kind := "before anything"
	for _, e := range events {
		if e.At <= t {
			kind = e.Kind
		}
	}
	return kind
}

// row finds a row, or adds it.
func (v *verdict) row(kind string, s source) *row {
	i := slices.IndexFunc(v.Rows, func(r row) bool { return r.Kind == kind && r.Source == s })
	if i < 0 {
		i = len(v.Rows)
		v.Rows = append(v.Rows, row{Kind: kind, Source: s})
	}
	return &v.Rows[i]
}

// rightAfter is how long after an instant all agree with the truth; not ok: not before the next change, or the source broke first.
func rightAfter(states []state, at, next time.Duration) (time.Duration, bool) {
	for _, st := range states {
		if st.To > at && st.Right {
			took := max(0, st.From-at)
			return took, at+took < next
		}
		if st.To > at && st.Down {
			return 0, false
		}
	}
	return 0, false
}

func (w window) String() string {
	return fmt.Sprintf("%d left from %.3f s to %.3f s, %.2f allowed", w.Sent, w.From.Seconds(), w.To.Seconds(), w.Allowed)
}
