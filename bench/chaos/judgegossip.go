package main

import (
	"slices"
	"time"
)

// A gossipVerdict is what became of a fleet that gossips.
type gossipVerdict struct {
	Over     float64         // the most that left in any window beyond R w + max(B, N)
	OverAt   window          // where
	Calms    []float64       // of the limit used by the one that was busy, in each stretch without faults
	Parts    []float64       // the least part of the rate that it had in each
	Slots    []float64       // the same, of the slots
	Checked  time.Duration   // in which permits in flight were judged
	Most     int             // in flight at any time
	Healed   []time.Duration // from the end of a partition until all agreed again
	Unhealed int             // of them, those in which something else came before
	Counted  int             // events of the fleet's counter
	Agreed   int             // replicas that report this number
	Keys     int
	Lost     int64   // events of those that were killed, which no living replica has received
	Windows  int     // counted ones
	Worst    int     // the most in one of them
	Bytes    float64 // a second, sent by one replica
}

// These numbers are what one busy replica has of a limit that lost nothing to faults. They are its
// allowance, and its use, where the machine may be late.
const (
	leastPart = .97
	leastCalm = .8
)

// pieceOf is how long a growth lasts at most, so that a window has no more of it than it touches.
const pieceOf = 250 * time.Millisecond

// gossip judges what only a fleet that gossips does.
func (v *verdict) gossip(r record) {
	v.calms(r)
	v.healed(r)
	v.counters(r)
	v.tooFew(r)
}

// lent judges bounds 2, 3, 4 and 10.
func (v *verdict) lent(r record, states []state) {
	p, sent := &v.Paths[onLent], r.departures(onLent)
	ctrl, growths := r.ctrl(onLent), r.lentGrowths(states)
	burst := r.fleetBurst(onLent, states)
	p.Requests, p.Growths = len(sent), len(growths)
	p.Used = float64(len(sent)) / (ctrl.rate * r.Length.Seconds())
	fleet := newBudget([]pace{{rate: ctrl.rate, burst: burst}}, growths)
	if p.Fleet = fleet.worst(sent); p.Fleet.broken() {
		v.broken("bounds 2, 3, 4 and 10, %s: %s", onLent, p.Fleet)
	}
	v.Gossip.OverAt = newBudget([]pace{{rate: ctrl.rate, burst: burst}}, nil).worst(sent)
	v.Gossip.Over = max(0, v.Gossip.OverAt.excess())
	p.Replica = window{Allowed: 1}
	for i := range r.Lives {
		l := &r.Lives[i]
		one := newBudget([]pace{{}, {from: l.first(onLent), rate: ctrl.rate, burst: float64(ctrl.burst)}}, nil)
		w := one.worst(l.after(onLent, of(sent, l.ID)))
		if w.broken() {
			v.broken("bound 1, %s, replica %d, all that there is: %s", onLent, l.ID, w)
		}
		if w.excess() > p.Replica.excess() {
			p.Replica = w
		}
	}
}

// first is when a replica had a share at first; never: it had none.
func (l *life) first(s source) time.Duration {
	if len(l.Beliefs[s]) == 0 {
		return never
	}
	return l.Beliefs[s][0].From
}

// lentGrowths are the times in which more may leave than R w + max(B, N). Those that believe in fewer than
// there are have more than their shares: bounds 3 and 4. When one begins to use its own share, what others
// have borrowed of it is theirs for as long as reports count: bound 10. When many meet again, it is all.
func (r record) lentGrowths(states []state) []growth {
	ctrl := r.ctrl(onLent)
	var all []growth
	var burst *growth
	most := r.fleetBurst(onLent, states)
	for _, st := range states {
		shares, buckets := r.shares(st.From)
		over := shares - 1
		if over < 1e-9 {
			burst = nil
			continue
		}
		if burst == nil {
			all = append(all, growth{span: st.span})
			burst = &all[len(all)-1]
		}
		burst.To, burst.extra = st.To, max(burst.extra, buckets-most)
	}
	for _, st := range states {
		shares, _ := r.shares(st.From)
		for from := st.From; shares > 1+1e-9 && from < st.To; from += pieceOf {
			in := span{from, min(from+pieceOf, st.To)}
			all = append(all, growth{span: in, extra: ctrl.rate * in.length().Seconds() * (shares - 1)})
		}
	}
	lasts := newsMaxAge + gossipEvery
	for _, o := range r.onsets() {
		n := float64(max(1, r.running(o.At)))
		part := 1 / n
		if o.Who == 0 {
			part = 1 - 1/n
		}
		in := span{o.At - lateness, o.At + lasts + r.slack(onLent, o.At)}
		all = append(all, growth{span: in, extra: ctrl.rate * in.length().Seconds() * part})
	}
	return all
}

// shares is the sum of all even shares at an instant, as each believes, and of all buckets.
func (r record) shares(t time.Duration) (sum, buckets float64) {
	for i := range r.Lives {
		l := &r.Lives[i]
		if n := l.belief(onLent, t); n > 0 && l.runs(t) {
			sum += 1 / float64(n)
			buckets += r.ctrl(onLent).share(onLent, n)
		}
	}
	return sum, buckets
}

// running is how many have a share at an instant, and are not stopped.
func (r record) running(t time.Duration) (n int) {
	for i := range r.Lives {
		if l := &r.Lives[i]; l.belief(onLent, t) > 0 && l.runs(t) {
			n++
		}
	}
	return n
}

// onsets are when a replica may begin to use its share: callers ask, or it is new, or goes on.
func (r record) onsets() []onset {
	all := slices.Clone(r.Onsets)
	for i := range r.Lives {
		l := &r.Lives[i]
		if first := l.first(onLent); first < never {
			all = append(all, onset{first, l.ID})
		}
		for _, stop := range l.Stops {
			all = append(all, onset{stop.To, l.ID})
		}
	}
	return all
}

// lentSlots judges bounds 5 and 10: permits that are issued while nothing has changed for as long as reports
// counts never exceed the limit.
func (v *verdict) lentSlots(r record) {
	p, most := &v.Paths[onLentSlots], r.ctrl(onLentSlots).slots
	excuses := r.unsettled()
	stops := map[int][]span{}
	for _, l := range r.Lives {
		stops[l.ID] = l.Stops
	}
	var changes, all []inFlight
	var held time.Duration
	for _, e := range r.Logs[onLentSlots] {
		in := span{e.Admitted, e.Sent}
		held += in.length()
		for _, stop := range stops[int(e.Replica)] {
			if in.overlap(stop) > 0 {
				in.To = max(in.From, stop.From)
			}
		}
		if in.To <= in.From {
			continue
		}
		all = append(all, inFlight{in.From, 1}, inFlight{in.To, -1})
		if !within(excuses, in.From) {
			changes = append(changes, inFlight{in.From, 1}, inFlight{in.To, -1})
		}
	}
	p.Requests, p.Growths = len(r.Logs[onLentSlots]), len(excuses)
	p.Used = held.Seconds() / (float64(most) * r.Length.Seconds())
	v.mostInFlight(onLentSlots, changes, most)
	_, v.Gossip.Most, _ = countInFlight(all, len(all))
	v.Gossip.Checked = r.Length
	for _, e := range excuses {
		v.Gossip.Checked -= e.overlap(span{0, r.Length})
	}
}

// unsettled are the times, apart and in order, in which something may be known to some and not to others.
func (r record) unsettled() []span {
	var cuts []time.Duration
	for i := range r.Lives {
		l := &r.Lives[i]
		cuts = append(cuts, l.Died)
		for _, b := range l.Beliefs[onLentSlots] {
			cuts = append(cuts, b.From)
		}
		for _, p := range l.Places[onLentSlots] {
			cuts = append(cuts, p.From, p.To)
		}
		for _, s := range l.Stops {
			cuts = append(cuts, s.From)
		}
	}
	for _, o := range r.onsets() {
		cuts = append(cuts, o.At)
	}
	var around []growth
	for _, at := range cuts {
		if at < r.Length {
			until := at + newsMaxAge + gossipEvery + r.slack(onLentSlots, at)
			around = append(around, growth{span: span{at - lateness, until}})
		}
	}
	for _, st := range r.states(onLentSlots) {
		if st.Least < st.Running {
			around = append(around, growth{span: span{st.From - lateness, st.To}})
		}
	}
	var all []span
	for _, g := range apart(around) {
		all = append(all, g.span)
	}
	return all
}

// calms judges the stretches without faults. All agree with the truth, and the one that is busy has all.
func (v *verdict) calms(r record) {
	states := r.states(onLent)
	for _, c := range r.Calms {
		for _, st := range states {
			if st.overlap(c.span) > 0 && !st.Right {
				v.broken("%s: in the stretch without faults from %.3f s not all of %d agree, one believes in %d",
					onLent, c.From.Seconds(), st.Running, st.Least)
				break
			}
		}
		v.useOf(r, c)
	}
	g := &v.Gossip
	for _, use := range []struct {
		what  string
		list  []float64
		least float64
	}{
		{"may use %.1f %% of the rate", g.Parts, leastPart}, {"uses %.1f %% of the rate", g.Calms, leastCalm},
		{"uses %.1f %% of the slots", g.Slots, leastCalm},
	} {
		if len(use.list) > 0 && middle(use.list) < use.least {
			v.broken("one busy replica "+use.what+" in the median of %d stretches without faults",
				100*middle(use.list), len(use.list))
		}
	}
}

// useOf measures what the one that is busy has in a stretch.
func (v *verdict) useOf(r record, c stretch) {
	least := 1.
	for i := range r.Lives {
		for t := c.From; t < c.To && r.Lives[i].ID == c.Busy; t += 10 * time.Millisecond {
			least = min(least, r.Lives[i].part(onLent, t))
		}
	}
	var held time.Duration
	for _, e := range r.Logs[onLentSlots] {
		if int(e.Replica) == c.Busy {
			held += c.overlap(span{e.Admitted, e.Sent})
		}
	}
	got := float64(len(of(during(r.departures(onLent), c.span), c.Busy)))
	long, g := c.length().Seconds(), &v.Gossip
	g.Parts = append(g.Parts, least)
	g.Calms = append(g.Calms, got/(r.ctrl(onLent).rate*long))
	g.Slots = append(g.Slots, held.Seconds()/(float64(r.ctrl(onLentSlots).slots)*long))
}

// middle is the median; 0 of none.
func middle(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// saidAgain is how often the source reports its pool, if nothing changes. A hold-down begins at a report.
const saidAgain = time.Second

// healWithin is when all must believe in as many as there are, or more, after a partition, a start or a stop.
const healWithin = 3 * time.Second

// healed measures how soon after a partition all have one list of members again.
func (v *verdict) healed(r record) {
	for _, e := range r.Events {
		if e.Kind != kindHealed {
			continue
		}
		next := r.Length
		for _, o := range r.Events {
			if o.At > e.At && !o.Mend && o.At < next && o.On[onLent] {
				next = o.At
			}
		}
		t := e.At
		for t < next && !r.listed(t) {
			t += 10 * time.Millisecond
		}
		if t >= next {
			v.Gossip.Unhealed++
			continue
		}
		v.Gossip.Healed = append(v.Gossip.Healed, t-e.At)
	}
}

// listed reports whether all that live know of as many members as there are at an instant.
func (r record) listed(t time.Duration) bool {
	truth := r.truth(onLent, t)
	for i := range r.Lives {
		l := &r.Lives[i]
		if l.Born == 0 || t < l.Born || t >= l.Died || !l.runs(t) {
			continue
		}
		n := 0
		for _, known := range l.Listed {
			if known.At <= t {
				n = known.Replicas
			}
		}
		if n != truth {
			return false
		}
	}
	return true
}

// tooFew judges bound 4's other half. No replica believes in fewer than there are, but in a partition, and
// for a while after one, or after a start or a stop. In a partition it does not before the hold-down is over.
func (v *verdict) tooFew(r record) {
	var excuses []span
	add := func(from, to time.Duration) {
		excuses = append(excuses, span{from - lateness, to + healWithin + r.slack(onLent, to)})
	}
	for _, part := range r.Faults[onLent] {
		add(part.From+holdDown-saidAgain, part.To)
	}
	for i := range r.Lives {
		l := &r.Lives[i]
		add(l.Born, l.first(onLent))
		for _, stop := range l.Stops {
			add(stop.To, stop.To)
		}
	}
	for _, st := range r.states(onLent) {
		for t := st.From; t < st.To && st.Least < st.Running; t += pieceOf {
			if !within(excuses, t) {
				v.broken("%s: from %.3f s to %.3f s one of %d believes in %d, and nothing excuses that",
					onLent, t.Seconds(), st.To.Seconds(), st.Running, st.Least)
				break
			}
		}
	}
}

// counters judges the fleet's counters after the quiet. All know the same of each. Those that live count by
// their sums.
func (v *verdict) counters(r record) {
	g := &v.Gossip
	var one *counts
	alive := 0
	for i := range r.Lives {
		l := &r.Lives[i]
		if l.Died < never {
			continue
		}
		alive++
		if l.Counts == nil {
			v.broken("replica %d did not say what it knows of the counters", l.ID)
			continue
		}
		if one == nil {
			one = l.Counts
			g.Keys, g.Counted = len(one.Sums), int(one.Sums[toAll])
		}
		g.Agreed++
		g.Bytes += float64(l.Counts.Sent) / (r.Length - l.Born).Seconds()
		v.oneCounts(l, one)
	}
	if g.Bytes /= float64(max(1, g.Agreed)); alive != r.Replicas {
		v.broken("%d replicas are there in the end, not %d", alive, r.Replicas)
	}
	if one != nil {
		v.own(r, one, int64(len(r.Lives)-alive))
	}
}

// own compares what all know of each replica with what it has added, or sent before it died.
func (v *verdict) own(r record, one *counts, dead int64) {
	var sum int64
	departures := r.departures(onLent)
	for i := range r.Lives {
		l := &r.Lives[i]
		n, sent := one.Sums[counterOf(l.ID)], int64(len(of(departures, l.ID)))
		sum += n
		switch {
		case l.Counts != nil && n != l.Counts.Added:
			v.broken("counters: all say that replica %d has added %d, and it says %d", l.ID, n, l.Counts.Added)
		case l.Counts == nil && n > sent+unsent:
			v.broken("counters: all say that replica %d has added %d, and it has sent %d", l.ID, n, sent)
		case l.Counts == nil:
			v.Gossip.Lost += max(0, sent-n)
		}
	}
	// The last packet of those that died may have one count and not the other.
	if torn := one.Sums[toAll] - sum; max(torn, -torn) > dead*unsent {
		v.broken("counters: all together have added %d, and the counter of all says %d", sum, one.Sums[toAll])
	}
}

// unsent are the requests that a replica may have counted as it was killed, and not sent.
const unsent = 16

// oneCounts compares what two replicas know.
func (v *verdict) oneCounts(l *life, one *counts) {
	c := l.Counts
	if c.Age > newsMaxAge {
		v.broken("counters: the oldest sum of replica %d is %v old after the quiet", l.ID, c.Age)
	}
	for key, n := range one.Sums {
		if c.Sums[key] != n {
			v.broken("counters: replica %d says %d of %q, another one %d", l.ID, c.Sums[key], key, n)
		}
	}
	if len(c.Sums) != len(one.Sums) {
		v.broken("counters: replica %d knows %d, another one %d", l.ID, len(c.Sums), len(one.Sums))
	}
}
