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
	paces   []pace
	growths []growth // by their begins
	ends    []growth // the same, by their ends
}

// A pace is a rate and a burst that hold from an instant on; area is what the rates before have allowed by
// then.
type pace struct {
	from        time.Duration
	rate, burst float64
	area        float64
}

// A growth is a time in which more may leave than at other times, and how much more.
type growth struct {
	span
	extra  float64
	before float64 // the extras of all before it in its order
}

// newBudget adds up what the paces and growths have allowed.
func newBudget(paces []pace, growths []growth) budget {
	for i := range paces[1:] {
		paces[i+1].area = paces[i].area + (paces[i+1].from-paces[i].from).Seconds()*paces[i].rate
	}
	growths = slices.Clone(growths)
	slices.SortStableFunc(growths, func(a, b growth) int { return cmp.Compare(a.From, b.From) })
	ends := slices.Clone(growths)
	slices.SortStableFunc(ends, func(a, b growth) int { return cmp.Compare(a.To, b.To) })
	for _, list := range [][]growth{growths, ends} {
		for i := range list {
			list[i].before = extras(list, i)
		}
	}
	return budget{paces, growths, ends}
}

// at is the pace that holds at t; the first one also before.
func (b budget) at(t time.Duration) pace {
	i := sort.Search(len(b.paces), func(i int) bool { return b.paces[i].from > t })
	return b.paces[max(0, i-1)]
}

// area is what the rate alone allows from the first pace to t; negative for a t before.
func (b budget) area(t time.Duration) float64 {
	s := b.at(t)
	return s.area + (t-s.from).Seconds()*s.rate
}

// begun is the extra of all growths that began by t, and over that of those that had ended before t.
func (b budget) begun(t time.Duration) float64 {
	return extras(b.growths, sort.Search(len(b.growths), func(i int) bool { return b.growths[i].From > t }))
}

func (b budget) over(t time.Duration) float64 {
	return extras(b.ends, sort.Search(len(b.ends), func(i int) bool { return b.ends[i].To >= t }))
}

// extras is the sum of the first n, where the one before is known.
func extras(list []growth, n int) float64 {
	if n == 0 {
		return 0
	}
	return list[n-1].before + list[n-1].extra
}

// allowed is what may leave from one instant to another, both included.
func (b budget) allowed(from, to time.Duration) float64 {
	return b.area(to) - b.area(from) + b.at(from).burst + b.begun(to) - b.over(from)
}

// A departure is a request that left, and when it might have left: as soon as there was room for it.
type departure struct{ may, left time.Duration }

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
// the most. The departures must be in order of left; without any the window is empty.
//
// A window from i to j holds j-i+1 requests, so its excess is a term of j less a term of i. The best i for
// every j is a running minimum: one pass finds the worst of all n(n+1)/2 windows.
func (b budget) worst(sent []departure) window {
	opens := openings(sent)
	found, most := window{Allowed: 1}, math.Inf(-1)
	open, cost := 0, math.Inf(1)
	for j, d := range sent {
		if c := float64(j) - b.area(opens[j]) + b.at(opens[j]).burst - b.over(opens[j]); c < cost {
			open, cost = j, c
		}
		if excess := float64(j+1) - b.area(d.left) - b.begun(d.left) - cost; excess > most {
			most = excess
			found = window{span{opens[open], d.left}, j - open + 1, b.allowed(opens[open], d.left)}
		}
	}
	return found
}

// openings is, for every departure, when a window that begins with it opens: the earliest instant at which it, or one
// that left later, might have left.
func openings(sent []departure) []time.Duration {
	opens := make([]time.Duration, len(sent))
	for i := len(sent) - 1; i >= 0; i-- {
		opens[i] = min(sent[i].may, sent[i].left)
		if i+1 < len(sent) {
			opens[i] = min(opens[i], opens[i+1])
		}
	}
	return opens
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
func (l *life) departures(p path) (sent []departure) {
	log := slices.Clone(l.Admitted[p])
	slices.SortStableFunc(log, func(a, b span) int { return cmp.Compare(a.To, b.To) })
	used := map[int]bool{}
	for _, e := range log {
		d := departure{may: e.From, left: e.To}
		for i, stop := range l.Stops {
			if e.From < stop.From && e.To >= stop.To && !used[i] {
				used[i], d.left = true, stop.From
			}
		}
		d.may = max(d.may, d.left-lateness-2*l.stood(span{d.may, d.left}))
		if first := l.first(p); first < never { // it asks a moment before it has a share
			d.may = max(d.may, first)
		}
		sent = append(sent, d)
	}
	slices.SortFunc(sent, byLeft)
	return sent
}

func byLeft(a, b departure) int { return cmp.Compare(a.left, b.left) }

func (r record) departures(p path) (sent []departure) {
	for _, l := range r.Lives {
		sent = append(sent, l.departures(p)...)
	}
	slices.SortFunc(sent, byLeft)
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
