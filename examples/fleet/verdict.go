package main

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/quotient-go/quotient/examples/fleet/upstream"
)

// A budget limits how many requests may leave in any window from one instant to another:
//
//	the area under the rate in it, plus the burst at its start,
//	plus the extra once if it touches the growth of the pool.
type budget struct {
	steps  []step // ordered; the first one holds from the beginning of time
	growth growth
}

// A step is a rate and a burst that hold from an instant on.
type step struct {
	from  time.Duration
	rate  float64 // requests a second
	burst float64
}

// A growth is the time in which some replicas knew of a new replica and some did not, and what that may cost
// once (bound 3). The zero growth costs nothing.
type growth struct {
	from, to time.Duration
	extra    float64
}

// A departure is a request that left a replica, and when it might have left: as soon as the limiter
// had room for it. In between a goroutine was woken up, which is the machine's doing.
type departure struct{ may, left time.Duration }

// A window begins when the first of its requests might have left and ends when the last one did.
type window struct {
	From, To time.Duration
	Sent     int
	Allowed  float64
}

// broken reports whether a window holds more than is allowed. The margin is a thousandth of one
// request: it only absorbs the rounding of the arithmetic.
func (w window) broken() bool { return float64(w.Sent) > w.Allowed+1e-3 }

// at is the step that holds at t.
func (b budget) at(t time.Duration) step {
	found := b.steps[0]
	for _, s := range b.steps[1:] {
		if s.from <= t {
			found = s
		}
	}
	return found
}

// area is what the rate alone allows from instant 0 to t; negative for a t before.
func (b budget) area(t time.Duration) float64 {
	total, from := 0.0, time.Duration(0)
	for i, s := range b.steps {
		to := t
		if i+1 < len(b.steps) {
			to = min(t, b.steps[i+1].from)
		}
		if i > 0 {
			from = s.from
		}
		if to > from || i == 0 {
			total += (to - from).Seconds() * s.rate
		}
	}
	return total
}

// allowed is what may leave from one instant to another, both included.
func (b budget) allowed(from, to time.Duration) float64 {
	n := b.area(to) - b.area(from) + b.at(from).burst
	if from <= b.growth.to && to >= b.growth.from {
		n += b.growth.extra
	}
	return n
}

// worst finds, among all windows between two of the departures, the one that comes closest to its
// budget or exceeds it the most. The departures must be in order of left, and at least one.
//
// A window from i to j holds j-i+1 requests, so its excess is a term of j less a term of i. The best i for
// every j is a running minimum: one pass finds the worst of all n(n+1)/2 windows. Windows that open before
// the growth ends have a minimum of their own, for only they can touch it.
func (b budget) worst(sent []departure) window {
	type opening struct {
		i    int
		cost float64
	}
	opens := openings(sent)
	early, late := opening{-1, math.Inf(1)}, opening{-1, math.Inf(1)}
	found, most := [2]int{}, math.Inf(-1)
	for j, d := range sent {
		o := opening{j, float64(j) - b.area(opens[j]) + b.at(opens[j]).burst}
		if opens[j] <= b.growth.to && o.cost < early.cost {
			early = o
		}
		if opens[j] > b.growth.to && o.cost < late.cost {
			late = o
		}
		end := float64(j+1) - b.area(d.left)
		touching := end
		if d.left >= b.growth.from {
			touching -= b.growth.extra
		}
		if excess := touching - early.cost; excess > most {
			found, most = [2]int{early.i, j}, excess
		}
		if excess := end - late.cost; excess > most {
			found, most = [2]int{late.i, j}, excess
		}
	}
	from, to := opens[found[0]], sent[found[1]].left
	return window{From: from, To: to, Sent: found[1] - found[0] + 1, Allowed: b.allowed(from, to)}
}

// openings is, for every departure, when a window that begins with it opens: the earliest instant
// at which it, or one that left later, might have left.
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

// believe is the log with no entry later than is plausible. That is a little, and twice the longest time
// that the replica's process stood still. Two wake-ups lie between a request and its departure: one of a
// timer and one of the request itself. A limiter that claims more is not believed.
func believe(log []upstream.Arrival, stalls map[int]time.Duration) []upstream.Arrival {
	log = slices.Clone(log)
	for i, a := range log {
		log[i].Late = max(0, min(a.Late, lateness+2*stalls[a.Replica]))
	}
	return log
}

// lateness is plausible on any machine, also when nothing was seen to stand still.
const lateness = 10 * time.Millisecond

// departures are the requests in the log that keep says, in the order in which they left.
func departures(log []upstream.Arrival, keep func(upstream.Arrival) bool) []departure {
	var sent []departure
	for _, a := range log {
		if keep(a) {
			sent = append(sent, departure{may: a.Sent - a.Late, left: a.Sent})
		}
	}
	slices.SortFunc(sent, func(a, b departure) int { return cmp.Compare(a.left, b.left) })
	return sent
}

// onArrival are the requests in the log as if they had left when they arrived.
func onArrival(log []upstream.Arrival) []departure {
	var sent []departure
	for _, a := range log {
		sent = append(sent, departure{may: a.Arrived, left: a.Arrived})
	}
	return sent
}

func anyone(upstream.Arrival) bool { return true }

func from(replica int) func(upstream.Arrival) bool {
	return func(a upstream.Arrival) bool { return a.Replica == replica }
}

// A verdict is what became of one promise.
type verdict struct {
	Of     string // the fleet, or a replica
	Bound  string // the number of the bound in the design
	Worst  window
	Judged bool // false: printed for information, no promise
}

// broken reports whether any promise was broken.
func broken(all []verdict) bool {
	return slices.ContainsFunc(all, func(v verdict) bool { return v.Judged && v.Worst.broken() })
}
