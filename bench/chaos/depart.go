package main

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// lateness is plausible on any machine, also when nothing was seen to stand still: one thread of a process
// may wait for a processor while another one runs.
const lateness = 50 * time.Millisecond

// departures are the requests of a path in the order in which their limiters admit them, by the replica's
// clock. On a busy machine it may take long until one is on its way. None of them could have gone earlier
// than is plausible: a little, and twice the time that its process stood still by itself. A limiter that
// claims more is not believed.
//
// A process that the run has stopped is another matter. Among the requests admitted afterwards, only one may
// claim that it could have gone before: a turn that came as the process was stopped. The others could all
// claim that, and would hide a bucket that has saved up more than its burst.
func (r record) departures(s source) []departure {
	lives := map[int]*life{}
	for i := range r.Lives {
		lives[r.Lives[i].ID] = &r.Lives[i]
	}
	type excuse struct{ replica, stop int }
	used := map[excuse]bool{}
	log := slices.Clone(r.Logs[s])
	slices.SortStableFunc(log, func(a, b entry) int { return cmp.Compare(a.Admitted, b.Admitted) })
	var sent []departure
	for _, e := range log {
		l := lives[int(e.Replica)]
		if l == nil {
			l = &life{}
		}
		d := departure{may: e.Could, left: e.Admitted, replica: int(e.Replica)}
		for i, stop := range l.Stops {
			switch key := (excuse{d.replica, i}); {
			case e.Could < stop.From && e.Admitted >= stop.To && !used[key]:
				used[key] = true
				d.left = stop.From
			}
		}
		d.may = max(d.may, d.left-lateness-2*l.stood(span{d.may, d.left}))
		sent = append(sent, d)
	}
	slices.SortFunc(sent, func(a, b departure) int { return cmp.Compare(a.left, b.left) })
	return sent
}

// stood is how long the process did not get to run, in the stalls that touch a span, without what the run has ordered.
func (l *life) stood(in span) (sum time.Duration) {
	i := sort.Search(len(l.Stalls), func(i int) bool { return l.Stalls[i].To > in.From })
	for ; i < len(l.Stalls) && l.Stalls[i].From < in.To; i++ {
		sum += l.own(l.Stalls[i])
	}
	return sum
}

// own is how long a stall was without the stops in it.
func (l *life) own(s span) time.Duration {
	d := s.To - s.From
	for _, stop := range l.Stops {
		d -= s.overlap(stop)
	}
	return d
}

// of are the departures of one replica.
func of(sent []departure, replica int) []departure {
	return slices.DeleteFunc(slices.Clone(sent), func(d departure) bool { return d.replica != replica })
}

// during are the departures from one instant to another.
func during(sent []departure, in span) []departure {
	at := func(t time.Duration) int {
		return sort.Search(len(sent), func(i int) bool { return sent[i].left >= t })
	}
	return sent[at(in.From):at(in.To)]
}
