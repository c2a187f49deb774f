package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"
)

// A check is one promise, and what became of it.
type check struct {
	Of, Text string
	Held     bool
}

func promise(of, found, want string, held bool) check {
	return check{of, found + " (" + want + ")", held}
}

func held(all []check) bool { return !slices.ContainsFunc(all, func(c check) bool { return !c.Held }) }

func (f *fleet) total() (all Report) {
	for _, p := range f.all {
		all.Failed, all.LastError = all.Failed+p.state.Failed, cmp.Or(p.state.LastError, all.LastError)
		all.Stall = max(all.Stall, p.state.Stall)
	}
	return all
}

// lateness is how late a request may leave on any machine, also when nothing was seen to stand still.
const lateness = 10 * time.Millisecond

// ruling judges the division by the upstream's log, and says what is allowed. A limiter decides when requests leave,
// so the windows are between departures, not between arrivals, which the network has pushed together. A request that
// a limiter has let go may leave late: by a little, and twice the longest time that a process stood still, for the
// two wake-ups of a timer and of the request itself. So much earlier each window begins.
func (f *fleet) ruling() (allowed string, checks []check) {
	late := lateness + 2*f.total().Stall
	add := func(of, bound string, b budget, replica int) {
		if sent := departures(f.log, replica); len(sent) > 0 {
			w := b.worst(sent, late)
			checks = append(checks, check{of, bound + w.text(f.begin), !w.broken()})
		}
	}
	whole := f.budget()
	add("the fleet", "its limit    ", whole, 0)
	for _, p := range f.all {
		add(fmt.Sprintf("replica %d", p.id), "its share    ", p.steps, p.id)
	}
	allowed = fmt.Sprintf("  Allowed in the w seconds of any window between two of them: %g w + %g (the burst)",
		f.plan.Limit, whole[0].burst)
	if len(whole) > 1 {
		unknown := whole[2].from - whole[1].from
		allowed += fmt.Sprintf("\n  + %.2f (once: the new replica was unknown for %s)",
			whole[1].saved*unknown.Seconds(), short(unknown))
	}
	allowed += fmt.Sprintf(".\n  w begins %s early: so late a request may leave that is woken up late.\n", short(late))
	return allowed, checks
}

// departures are when a replica's requests in the log left it, or all of them for 0, in order.
func departures(log []arrival, replica int) (sent []time.Duration) {
	for _, a := range log {
		if replica == 0 || a.Replica == replica {
			sent = append(sent, a.Sent)
		}
	}
	slices.Sort(sent)
	return sent
}

// A budget limits how many requests may leave in any window from one instant to another: the area under the rate in
// it, plus the burst at its start.
type budget []step // ordered; the first one holds from the beginning of time

// A step is a rate, in requests a second, and a burst that hold from an instant on. Of the rate, saved is what a window
// that begins within the step may make up for: it was not used, and is in the buckets.
type step struct {
	from               time.Duration
	rate, burst, saved float64
}

// budget is what the fleet may do: the limit, and no bucket smaller than one request (bound 2).
func (f *fleet) budget() budget {
	b := budget{{rate: f.plan.Limit, burst: float64(f.plan.Burst)}}
	for _, ph := range f.phases {
		b[0].burst = max(b[0].burst, float64(len(ph.Alive)))
	}
	for _, ph := range f.phases {
		if ph.Unknown > 0 {
			b = b.grow(ph.From, ph.Unknown, len(ph.Alive))
		}
	}
	return b
}

// grow adds what it may cost that the last of n replicas knew of a new one only a time after it was born (bound 3):
// until then all of them may send as if they were one less, once.
func (b budget) grow(born, late time.Duration, n int) budget {
	more := b[0].rate / float64(n-1)
	return append(b, step{born, b[0].rate + more, b[0].burst, more}, step{born + late, b[0].rate, b[0].burst, 0})
}

// at is the step that holds at t, and what the rate alone allows from instant 0 to t; negative for a t before.
func (b budget) at(t time.Duration) (now step, area float64) {
	now = b[0]
	area = t.Seconds() * now.rate
	for _, s := range b[1:] {
		if s.from <= t {
			area += (t - s.from).Seconds() * (s.rate - now.rate)
			now = s
		}
	}
	return now, area
}

type window struct {
	From, To time.Duration
	Sent     int
	Allowed  float64
}

// broken reports whether a window holds more than is allowed. The margin absorbs the rounding of the arithmetic.
func (w window) broken() bool { return float64(w.Sent) > w.Allowed+1e-3 }

// text is to the millisecond, and without a negative zero.
func (w window) text(begin time.Duration) string {
	seconds := func(d time.Duration) float64 { return (d - begin).Round(time.Millisecond).Seconds() }
	return fmt.Sprintf("worst window %7.3f – %7.3f s: %4d sent, %.1f allowed",
		seconds(w.From), seconds(w.To), w.Sent, w.Allowed)
}

// worst finds, among all windows between two of the departures, which are in order and of which there must be one,
// the window that comes closest to its budget or exceeds it the most. A window begins a time before the first one.
//
// A window from i to j holds j-i+1 requests, so its excess is a term of j less a term of i. The best i for every j
// is a running minimum: one pass finds the worst of all n(n+1)/2 windows.
func (b budget) worst(sent []time.Duration, late time.Duration) (worst window) {
	cost, first, most := math.Inf(1), 0, math.Inf(-1)
	for j, left := range sent {
		before, opened := b.at(left - late)
		opened -= before.saved * (left - late - before.from).Seconds()
		now, area := b.at(left)
		if c := float64(j) - opened + max(before.burst, now.burst); c < cost {
			cost, first = c, j
		}
		if excess := float64(j+1) - area - cost; excess > most {
			most, worst = excess, window{From: sent[first] - late, To: left, Sent: j - first + 1}
			worst.Allowed = float64(worst.Sent) - excess
		}
	}
	return worst
}

// A result is how good a phase was. Shares are of what the limit allows in its time.
type result struct {
	Used, Goodput float64 // what arrived, and what was accepted, as a share
	Rejected      float64 // answered 429, as a share of what arrived
	Fairness      float64
}

func measure(log []arrival, ph phase) result {
	var all second
	var got []float64
	by := count(log, ph.From, ph.To)
	for _, id := range ph.Alive {
		got = append(got, float64(by[id].Sent-by[id].Rejected))
	}
	for _, s := range by {
		all.Sent, all.Rejected = all.Sent+s.Sent, all.Rejected+s.Rejected
	}
	return result{
		Used:     float64(all.Sent) / ph.allows(),
		Goodput:  float64(all.Sent-all.Rejected) / ph.allows(),
		Rejected: float64(all.Rejected) / max(1, float64(all.Sent)),
		Fairness: jain(got),
	}
}

func (ph phase) allows() float64 { return ph.Limit * (ph.To - ph.From).Seconds() }

// used is what arrived in a part of a phase.
func (ph phase) used(log []arrival, from, length time.Duration) float64 {
	ph.From, ph.To = from, from+length
	return measure(log, ph).Used
}

// since is the index of the first in a log, which is in order, that arrived at an instant or later.
func since(log []arrival, at time.Duration) int {
	return sort.Search(len(log), func(i int) bool { return log[i].Arrived >= at })
}

// A second is one replica's part of one line of the output.
type second struct{ Sent, Rejected int }

func count(log []arrival, from, to time.Duration) map[int]second {
	by := make(map[int]second)
	for _, a := range log[since(log, from):since(log, to)] {
		s := by[a.Replica]
		if s.Sent++; !a.Accepted {
			s.Rejected++
		}
		by[a.Replica] = s
	}
	return by
}

// jain is Jain's fairness index: 1 when all got the same, or nothing, 1/n when one got everything.
func jain(got []float64) float64 {
	var sum, squares float64
	for _, x := range got {
		sum, squares = sum+x, squares+x*x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(got)) * squares)
}

// A scene is a part of the adaptive act: what the upstream takes, and what the replicas want.
type scene struct {
	Title  string
	Length time.Duration
	Factor float64       // of -limit
	Within time.Duration // in which the fleet must follow, generous for a busy machine; 0 is not judged
	Busy   bool          // the first replica wants more than the whole limit and the others next to nothing
}

// The scenes whose figures are judged by themselves.
const sceneHalf, sceneBack, sceneBusy = 1, 2, 3

// scenes are those of the adaptive act.
var scenes = []scene{
	{"all want more than there is", 4 * time.Second, 1, 0, false},
	{"the limit halves", 6 * time.Second, 0.5, 3 * time.Second, false},
	{"the limit is back", 9 * time.Second, 1, 6 * time.Second, false},
	{"replica 1 is busy, the others idle", 8 * time.Second, 1, 0, true},
	{"all want the same again", 3 * time.Second, 1, 0, false},
}

// adaptation is the script that changes from one scene to the next.
func (f *fleet) adaptation() (script []moment) {
	for i, s := range scenes[1:] {
		script = append(script, moment{scenes[i].Length, func(context.Context) error { return f.change(s) }})
	}
	return append(script, moment{scenes[len(scenes)-1].Length, f.finish})
}

// change begins a scene. The replicas get their demand, but neither the limit nor how many they are.
func (f *fleet) change(s scene) error {
	p, now := f.plan, f.up.now()
	f.up.set(s.Factor*p.Limit, max(1, int(s.Factor*float64(p.Burst+room))))
	f.enter(now, s.Title, s)
	return each(f.all, func(r *process) error {
		switch {
		case !s.Busy:
			return r.order(p.Want)
		case r.id == 1:
			return r.order(1.2 * p.Limit)
		}
		return r.order(0.02 * p.Limit)
	})
}

// A fleet has followed when what it sends, over followWindow, is near the limit, and still is a second later.
const (
	followWindow = 2 * time.Second
	followNear   = 0.15
	followStep   = 50 * time.Millisecond // of the search
)

// The bounds of the adaptive act, beside those in scenes and as generous.
const (
	leastGoodput  = 0.65 // over all scenes: half of the time the fleet climbs
	mostRejected  = 0.08
	leastBusy     = 0.45 // of the limit, by the busy replica in its last seconds: a third is its part
	leastFair     = 0.7  // Jain's index, after the limit is back: two of three with nothing for the third is .67
	mostOvershoot = 1.5  // times half the limit, from one second after it was halved
)

// followed is how long it took the fleet after the begin of a phase to follow; not ok: longer than the phase.
func followed(log []arrival, ph phase) (took time.Duration, ok bool) {
	near := func(t time.Duration) bool { return math.Abs(ph.used(log, t, followWindow)-1) <= followNear }
	for t := ph.From; t+time.Second+followWindow <= ph.To; t += followStep {
		if near(t) && near(t+time.Second) {
			return t - ph.From, true
		}
	}
	return 0, false
}

// overshoot is the most that arrived in a second of a phase after its first, as a factor of the limit.
func overshoot(log []arrival, ph phase) (most float64) {
	for t := ph.From + time.Second; t+time.Second <= ph.To; t += followStep {
		most = max(most, ph.used(log, t, time.Second))
	}
	return most
}

// overall is what was accepted in all phases, as a share of what their limits allow, and the share of 429s.
func overall(log []arrival, phases []phase) (goodput, rejected float64) {
	var allowed, accepted, sent float64
	for _, ph := range phases {
		r := measure(log, ph)
		allowed, accepted, sent = allowed+ph.allows(), accepted+r.Goodput*ph.allows(), sent+r.Used*ph.allows()
	}
	return accepted / allowed, (sent - accepted) / max(1, sent)
}

// judge judges the adaptive act by the upstream's log.
func judge(log []arrival, phases []phase) (checks []check) {
	for _, ph := range phases {
		if took, ok := followed(log, ph); ph.Within > 0 {
			said := "not followed"
			if ok {
				said = fmt.Sprintf("followed after %.1f s", took.Seconds())
			}
			want := fmt.Sprint("at most ", ph.Within)
			checks = append(checks, promise(ph.Title, said, want, ok && took <= ph.Within))
		}
	}
	goodput, rejected := overall(log, phases)
	half, end := phases[sceneHalf], phases[sceneBusy]
	end.From = max(end.From, end.To-followWindow)
	one := count(log, end.From, end.To)[1]
	busy, over := float64(one.Sent-one.Rejected)/end.allows(), overshoot(log, half)
	fair := measure(log, phases[sceneBack]).Fairness // by then what chance made of the cuts has been made up for
	percent := func(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
	return append(checks,
		promise("the busy one", percent(busy)+" of the limit", "at least "+percent(leastBusy), busy >= leastBusy),
		promise("fairness", fmt.Sprintf("%.3f after the limit is back", fair),
			fmt.Sprint("at least ", leastFair), fair >= leastFair),
		promise("overshoot", fmt.Sprintf("%.2f x half the limit", over),
			fmt.Sprint("at most ", mostOvershoot), over <= mostOvershoot),
		promise("goodput", percent(goodput), "at least "+percent(leastGoodput), goodput >= leastGoodput),
		promise("429s", percent(rejected), "at most "+percent(mostRejected), rejected <= mostRejected))
}
