package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"
)

// A budget limits how many requests may leave in any window from one instant to another. It is the area
// under the rate in it, plus the burst at its start, plus the extra of each growth that it touches.
type budget struct {
	paces   []pace // in order, the first one from 0 on
	growths []growth
}

// A pace is a rate and a burst that hold from an instant on.
type pace struct {
	from        time.Duration
	rate, burst float64
}

// A growth is a time in which more may leave than at other times, and how much more.
type growth struct {
	span
	extra float64
}

// at is the rate's area up to t, and the burst at t.
func (b budget) at(t time.Duration) (area, burst float64) {
	rate := 0.
	for _, p := range b.paces {
		if p.from <= t {
			area += (t - p.from).Seconds() * (p.rate - rate)
			rate, burst = p.rate, p.burst
		}
	}
	return area, burst
}

// opens and closes split what a window may hold into a term of each end: it is closes(to) - opens(from).
func (b budget) opens(from time.Duration) float64 {
	area, burst := b.at(from)
	n := area - burst
	for _, g := range b.growths {
		if g.To < from {
			n += g.extra
		}
	}
	return n
}

func (b budget) closes(to time.Duration) float64 {
	n, _ := b.at(to)
	for _, g := range b.growths {
		if g.From <= to {
			n += g.extra
		}
	}
	return n
}

// A window begins when the first of its requests might have left and ends when the last one did.
type window struct {
	span
	Sent    int
	Allowed float64
}

// excess is how much more left than is allowed; negative when there was room.
func (w window) excess() float64 { return float64(w.Sent) - w.Allowed }

// broken leaves a hundredth of a request for the rounding of the arithmetic: buckets count in thousandths.
func (w window) broken() bool { return w.excess() > 1e-2 }

func (w window) texts() (bound, seen string) {
	return fmt.Sprintf("%.2f", w.Allowed), fmt.Sprintf("%d in %.3f s", w.Sent, w.length().Seconds())
}

func (w window) String() string {
	return fmt.Sprintf("%d from %.3f s to %.3f s, %.2f allowed", w.Sent, w.From.Seconds(), w.To.Seconds(), w.Allowed)
}

// worst finds, among all windows between two of the departures, the one that comes closest to its budget or exceeds it
// the most. A departure is a request, from when there was room for it to when it left. They must be in the order in
// which they left; without any the window is empty.
//
// A window from i to j holds j-i+1 requests, so its excess is a term of j less a term of i. The best i for
// every j is a running minimum: one pass finds the worst of all n(n+1)/2 windows.
func (b budget) worst(sent []span) window {
	begins := begins(sent)
	found, most := window{Allowed: 1}, math.Inf(-1)
	first, cost := 0, math.Inf(1)
	for j, d := range sent {
		if c := float64(j) - b.opens(begins[j]); c < cost {
			first, cost = j, c
		}
		closes := b.closes(d.To)
		if excess := float64(j+1) - closes - cost; excess > most {
			most = excess
			found = window{span{begins[first], d.To}, j - first + 1, closes - b.opens(begins[first])}
		}
	}
	return found
}

// begins is, for every departure, when a window that begins with it does: the earliest instant at which it, or one
// that left later, might have left.
func begins(sent []span) []time.Duration {
	all, earliest := make([]time.Duration, len(sent)), never
	for i, d := range slices.Backward(sent) {
		earliest = min(earliest, d.From, d.To)
		all[i] = earliest
	}
	return all
}

// lateness is plausible on any machine, also when nothing was seen to stand still: one thread of a process may wait
// for a processor while another one runs.
const lateness = 50 * time.Millisecond

// departures are what a limiter of a replica has admitted, in order. None could have gone earlier than is plausible:
// a little, and twice the time that its process stood still by itself. A limiter that claims more is not believed.
//
// A process that the run has stopped is another matter. Among those admitted afterwards, only one may claim that it
// could have gone before: a turn that came as the process was stopped. The others could all claim that, and would
// hide a bucket that has saved up more than its burst.
func (l *life) departures(p path) (sent []span) {
	used := map[int]bool{}
	for _, e := range inOrder(slices.Clone(l.Admitted[p])) {
		d := e
		for i, stop := range l.Stops {
			if e.From < stop.From && e.To >= stop.To && !used[i] {
				used[i], d.To = true, stop.From
			}
		}
		d.From = max(d.From, d.To-lateness-2*l.stood(d))
		if first := l.first(p); first < never { // it asks a moment before it has a share
			d.From = max(d.From, first)
		}
		sent = append(sent, d)
	}
	return inOrder(sent)
}

func (r record) departures(p path) (sent []span) {
	for _, l := range r.Lives {
		sent = append(sent, l.departures(p)...)
	}
	return inOrder(sent)
}

func inOrder(sent []span) []span {
	slices.SortStableFunc(sent, func(a, b span) int { return cmp.Compare(a.To, b.To) })
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
