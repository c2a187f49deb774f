package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// counted judges bound 14, of windows whose limit is E. A replica that has used up its share may go on only
// while two numbers are within E together. They are what it has admitted, and what the others had by the
// time of the oldest report that counts. That is so while no replica believes in fewer than there are.
func (v *verdict) counted(r record, states []state) {
	p, most := &v.Paths[onCounted], r.ctrl(onCounted).window
	log := slices.Clone(r.Logs[onCounted])
	slices.SortFunc(log, func(a, b entry) int { return cmp.Compare(a.Admitted, b.Admitted) })
	p.Requests = len(log)
	p.Used = float64(len(log)) / (r.ctrl(onCounted).rate * r.Length.Seconds())
	for len(log) > 0 {
		in := r.countedWindow(log[0].Admitted)
		n := slices.IndexFunc(log, func(e entry) bool { return e.Admitted >= in.To })
		if n < 0 {
			n = len(log)
		}
		v.Gossip.Windows++
		v.Gossip.Worst = max(v.Gossip.Worst, n)
		until := in.To
		for _, st := range states {
			if st.overlap(in) > 0 && st.Least < st.Running {
				until = min(until, st.From-lateness)
			}
		}
		v.countedIn(r, span{in.From, max(in.From, until)}, log[:n], most)
		log = log[n:]
	}
}

// countedWindow is the window of an instant. A wall clock is never stepped here.
func (r record) countedWindow(t time.Duration) span {
	from := t - (time.Duration(r.Epoch)+t)%countedPer
	return span{from, from + countedPer}
}

// countedIn judges one window.
func (v *verdict) countedIn(r record, in span, log []entry, most int) {
	own, byTime := map[int32]int{}, map[int32][]time.Duration{}
	for _, e := range log {
		if e.Admitted < in.From+clocksDiffer || e.Admitted >= in.To-clocksDiffer {
			continue // it may be of the next window, or of the last one
		}
		known := e.Admitted - 2*newsMaxAge - gossipEvery - r.slack(onCounted, e.Admitted)
		others := 0
		for id, times := range byTime {
			if id != e.Replica && !r.forgotten(int(id), span{in.From, e.Admitted}) {
				i, _ := slices.BinarySearch(times, known)
				others += i
			}
		}
		own[e.Replica]++
		byTime[e.Replica] = append(byTime[e.Replica], e.Admitted)
		if n := own[e.Replica]; n+others > most && n > r.countedShare(int(e.Replica), in, e.Admitted) {
			v.broken("bound 14, %s: replica %d has admitted %d at %.3f s, of a window that began at %.3f s, and the others %d by %.3f s; %d allowed",
				onCounted, e.Replica, n, e.Admitted.Seconds(), in.From.Seconds(), others, known.Seconds(), most)
			return
		}
	}
}

// forgotten reports whether a replica died in a span, and another one came after it. Its admissions of the
// window before are not separated then from those of the new one.
func (r record) forgotten(id int, in span) bool {
	died := never
	for i := range r.Lives {
		if l := &r.Lives[i]; l.ID == id {
			died = l.Died
		}
	}
	if died >= in.To {
		return false
	}
	return slices.ContainsFunc(r.onsets(), func(o onset) bool { return o.At >= died && o.At < in.To })
}

// countedShare is the largest share of a window that a replica had by an instant.
func (r record) countedShare(id int, in span, t time.Duration) int {
	least := math.MaxInt
	for i := range r.Lives {
		l := &r.Lives[i]
		if l.ID != id {
			continue
		}
		if n := l.belief(onCounted, in.From); n > 0 {
			least = n
		}
		for _, b := range l.Beliefs[onCounted] {
			if b.From >= in.From && b.From <= t {
				least = min(least, b.Replicas)
			}
		}
	}
	return int(math.Ceil(float64(r.ctrl(onCounted).window) / float64(least)))
}
