package main

import (
	"cmp"
	"slices"
	"time"
)

// An inFlight is a permit that is issued, or released, at an instant.
type inFlight struct {
	at time.Duration
	by int
}

// slots judges bound 5. While all believe in as many as there are, or more, the permits in flight over all
// replicas never exceed the limit. Permits issued before the last change count until they are released. So a
// permit counts unless it was issued in an excuse. The permits of a process that is stopped do not count: it
// does nothing under them.
func (v *verdict) slots(r record, states []state) {
	p, most := &v.Paths[onSlots], r.ctrl(onSlots).slots
	var changes []inFlight
	var held time.Duration
	excuses, stops := r.slotExcuses(states), map[int][]span{}
	for _, l := range r.Lives {
		stops[l.ID] = l.Stops
	}
	for _, e := range r.Logs[onSlots] {
		in := span{e.Admitted, e.Sent}
		held += in.To - in.From
		for _, stop := range stops[int(e.Replica)] {
			if in.overlap(stop) > 0 {
				in.To = max(in.From, stop.From)
			}
		}
		if in.To > in.From && !within(excuses, in.From) {
			changes = append(changes, inFlight{in.From, 1}, inFlight{in.To, -1})
		}
	}
	p.Requests, p.Growths = len(r.Logs[onSlots]), len(excuses)
	p.Used = held.Seconds() / (float64(most) * r.Length.Seconds())
	v.mostInFlight(onSlots, changes, most)
}

// mostInFlight judges the most in flight at one instant.
func (v *verdict) mostInFlight(s source, changes []inFlight, most int) {
	at, n, over := countInFlight(changes, most)
	worst := window{span{at, at}, n, float64(most)}
	v.Paths[s].Fleet = worst
	if worst.broken() {
		v.broken("bound 5, %s: %d in flight at %.3f s, %d allowed, and too many for %.3f s in all",
			s, worst.Sent, worst.From.Seconds(), most, over.Seconds())
	}
}

// countInFlight finds the most in flight at one instant, and for how long the limit was exceeded.
func countInFlight(changes []inFlight, most int) (at time.Duration, worst int, over time.Duration) {
	slices.SortFunc(changes, func(a, b inFlight) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by))
	})
	n := 0
	for i, c := range changes {
		if n > most {
			over += c.at - changes[i-1].at
		}
		if n += c.by; n > worst {
			worst, at = n, c.at
		}
	}
	return at, worst, over
}

// slotExcuses are the times whose permits do not count for bound 5. A replica may believe in fewer than
// there are. For a hold-down after each change, one replica's ordinal may end as another one's begins. A
// process that was stopped may take as long to learn that its ordinal is another's.
func (r record) slotExcuses(states []state) []span {
	var all []span
	for _, st := range states {
		if st.Running > st.Least && st.Excused {
			all = append(all, span{st.From - lateness, st.To + r.slack(onSlots, st.To)})
		}
	}
	for _, e := range r.Events {
		switch {
		case !e.On[onSlots] || e.Mend || e.Kind == kindAge:
		case e.Slept > 0:
			all = append(all, span{e.At - lateness, e.At + 2*periods[onSlots] + r.slack(onSlots, e.At)})
		default:
			at := e.At + holdDown
			all = append(all, span{at - lateness, at + r.slack(onSlots, at)})
		}
	}
	return all
}

// aged judges whether a silence longer than HintMaxAge has ended what was learned before it.
func (v *verdict) aged(r record) {
	for i := range r.Lives {
		l := &r.Lives[i]
		for _, m := range l.Mutes[onSlots] {
			at := m.From + hintAge + r.slack(onSlots, m.From+hintAge)
			stopped := slices.ContainsFunc(l.Stops, func(s span) bool { return s.overlap(span{m.From, at}) > 0 })
			n := l.belief(onSlots, at)
			if at >= min(m.To, r.Length) || stopped || n == 0 {
				continue
			}
			v.Paths[onSlots].Silent++
			if want := r.fallback(onSlots); n != want {
				v.broken("%s: replica %d believes in %d at %.3f s: silent for longer than %v, when %d count",
					onSlots, l.ID, n, at.Seconds(), hintAge, want)
			}
		}
	}
}
