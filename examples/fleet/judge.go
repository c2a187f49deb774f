package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quotient-go/quotient/examples/fleet/upstream"
)

// A check is one promise, and what became of it.
type check struct {
	Of, Text string
	Held     bool
	info     bool // printed for information, no promise
}

func held(all []check) bool { return !slices.ContainsFunc(all, func(c check) bool { return !c.Held }) }

// A ruling is all verdicts, and what they rest on.
type ruling struct {
	Windows  []check
	Lateness []check // of each change of a pool that is counted
	Requests int
	Late     time.Duration // the longest that a request left after it might have, as far as believed
	Stall    time.Duration // the longest that a replica did not get to run
	Fleet    budget
}

func (r ruling) held() bool { return held(r.Windows) && held(r.Lateness) }

// judgeDivision prints how good the run was, and whether it kept its promises.
func (f *fleet) judgeDivision() (held bool, err error) {
	if len(f.up.Log()) == 0 {
		return false, errors.New("no request reached the upstream: there is nothing to judge")
	}
	f.out.summary(f)
	r := f.ruling()
	f.out.ruling(r)
	return r.held(), nil
}

// total is all that the replicas have reported.
func (f *fleet) total() (all message) {
	for _, p := range f.all {
		all.add(p.reported())
	}
	return all
}

// ruling judges a run that is over by the upstream's log. A limiter decides when requests leave, not when they
// arrive, so the judged windows are between departures; those between arrivals, which the network
// has pushed together, are shown for comparison.
func (f *fleet) ruling() ruling {
	if f.platform != nil {
		f.settle()
	}
	log := f.believe(f.up.Log())
	r := ruling{Requests: len(log), Stall: f.total().Stall}
	r.Fleet = budget{[]step{{rate: f.plan.Limit, burst: float64(max(f.plan.Burst, f.most))}}, f.growth}
	for _, a := range log {
		r.Late = max(r.Late, a.Late)
	}
	add := func(of, bound string, b budget, sent []departure, info bool) {
		if len(sent) > 0 {
			w := b.worst(sent)
			r.Windows = append(r.Windows, check{of, bound + w.text(f.begin), info || !w.broken(), info})
		}
	}
	add("the fleet", "bound 2, 3  ", r.Fleet, departures(log, 0), false)
	for _, p := range f.all {
		add(fmt.Sprintf("replica %d", p.id), "bound 1     ", budget{steps: p.steps}, departures(log, p.id), false)
	}
	for i, a := range log {
		log[i].Sent, log[i].Late = a.Arrived, 0
	}
	add("on arrival", "not judged  ", r.Fleet, departures(log, 0), true)
	r.Lateness = f.lateness(max(r.Stall, time.Duration(f.stood.Load())))
	return r
}

// lateness is plausible on any machine, also when nothing was seen to stand still.
const lateness = 10 * time.Millisecond

// believe is the log with no entry later than is plausible. That is a little, and twice the longest time
// that the replica's process stood still. Two wake-ups lie between a request and its departure: one of a
// timer and one of the request itself. A limiter that claims more is not believed.
func (f *fleet) believe(log []upstream.Arrival) []upstream.Arrival {
	log = slices.Clone(log)
	for i, a := range log {
		stall := time.Duration(0)
		if a.Replica <= len(f.all) {
			stall = f.all[a.Replica-1].reported().Stall
		}
		log[i].Late = max(0, min(a.Late, lateness+2*stall))
	}
	return log
}

// A departure is a request that left a replica, and when it might have left: as soon as the limiter
// had room for it. In between a goroutine was woken up, which is the machine's doing.
type departure struct{ may, left time.Duration }

// departures are a replica's requests in the log, or all of them for 0, in the order in which they left.
func departures(log []upstream.Arrival, replica int) []departure {
	var sent []departure
	for _, a := range log {
		if replica == 0 || a.Replica == replica {
			sent = append(sent, departure{may: a.Sent - a.Late, left: a.Sent})
		}
	}
	slices.SortFunc(sent, func(a, b departure) int { return cmp.Compare(a.left, b.left) })
	return sent
}

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

// at is the step that holds at t, and what the rate alone allows from instant 0 to t; negative for a t before.
func (b budget) at(t time.Duration) (now step, area float64) {
	now = b.steps[0]
	area = t.Seconds() * now.rate
	for _, s := range b.steps[1:] {
		if s.from <= t {
			area += (t - s.from).Seconds() * (s.rate - now.rate)
			now = s
		}
	}
	return now, area
}

// allowed is what may leave from one instant to another, both included.
func (b budget) allowed(from, to time.Duration) float64 {
	first, before := b.at(from)
	_, after := b.at(to)
	n := after - before + first.burst
	if from <= b.growth.to && to >= b.growth.from {
		n += b.growth.extra
	}
	return n
}

// A window begins when the first of its requests might have left and ends when the last one did.
type window struct {
	From, To time.Duration
	Sent     int
	Allowed  float64
}

// broken reports whether a window holds more than is allowed. The margin is a thousandth of one
// request: it only absorbs the rounding of the arithmetic.
func (w window) broken() bool { return float64(w.Sent) > w.Allowed+1e-3 }

// text is for the reader, to the millisecond and without a negative zero.
func (w window) text(begin time.Duration) string {
	seconds := func(d time.Duration) float64 { return (d - begin).Round(time.Millisecond).Seconds() }
	return fmt.Sprintf("worst window %7.3f – %7.3f s: %4d sent, %.1f allowed", seconds(w.From), seconds(w.To), w.Sent, w.Allowed)
}

// worst finds, among all windows between two of the departures, the one that comes closest to its
// budget or exceeds it the most. The departures must be in order of left, and at least one.
//
// A window from i to j holds j-i+1 requests, so its excess is a term of j less a term of i. The best i for
// every j is a running minimum: one pass finds the worst of all n(n+1)/2 windows. Windows that open before
// the growth ends have a minimum of their own, for only they can touch it.
func (b budget) worst(sent []departure) window {
	opens := openings(sent)
	cost, first := [2]float64{math.Inf(1), math.Inf(1)}, [2]int{}
	found, most := [2]int{}, math.Inf(-1)
	for j, d := range sent {
		late := 0
		if opens[j] > b.growth.to {
			late = 1
		}
		now, area := b.at(opens[j])
		if c := float64(j) - area + now.burst; c < cost[late] {
			cost[late], first[late] = c, j
		}
		_, area = b.at(d.left)
		for late := range cost {
			excess := float64(j+1) - area - cost[late]
			if late == 0 && d.left >= b.growth.from {
				excess -= b.growth.extra
			}
			if excess > most {
				found, most = [2]int{first[late], j}, excess
			}
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

// A phase is a time in which the same replicas lived, under the same limit.
type phase struct {
	From, To time.Duration // by the upstream's clock
	Limit    float64       // requests a second
	Alive    []int
}

// A result is what the upstream saw in one phase.
type result struct {
	Goodput  float64 // accepted, as a share of the limit
	Rejected float64 // answered 429, as a share of what arrived
	Fairness float64
}

// measure counts what arrived in a phase.
func measure(log []upstream.Arrival, ph phase) result {
	var all second
	got := make([]float64, len(ph.Alive))
	by := count(log, ph.From, ph.To)
	for i, id := range ph.Alive {
		got[i] = float64(by[id].Sent - by[id].Rejected)
	}
	for _, s := range by {
		all.Sent, all.Rejected = all.Sent+s.Sent, all.Rejected+s.Rejected
	}
	return result{
		Goodput:  float64(all.Sent-all.Rejected) / (ph.Limit * (ph.To - ph.From).Seconds()),
		Rejected: float64(all.Rejected) / max(1, float64(all.Sent)),
		Fairness: jain(got),
	}
}

// A second is one replica's part of one line of the output.
type second struct{ Sent, Rejected int }

// count adds up what arrived from one instant to another, by replica.
func count(log []upstream.Arrival, from, to time.Duration) map[int]second {
	by := make(map[int]second)
	for _, a := range log {
		if a.Arrived < from || a.Arrived >= to {
			continue
		}
		s := by[a.Replica]
		s.Sent++
		if !a.Accepted {
			s.Rejected++
		}
		by[a.Replica] = s
	}
	return by
}

// jain is Jain's fairness index of what each one got: 1 when all got the same, 1/n when one got everything.
// It is 1 for no clients, and when no client got anything.
func jain(got []float64) float64 {
	var sum, squares float64
	for _, x := range got {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(got)) * squares)
}

// quantile is the smallest value that a share q of all values does not exceed; 0 without values.
// It orders values in place.
func quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	i := int(math.Ceil(q*float64(len(values)))) - 1
	return values[min(max(i, 0), len(values)-1)]
}
