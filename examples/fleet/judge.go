package main

import (
	"cmp"
	"context"
	"errors"
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
	info     bool // printed for information, no promise
}

func promise(of, found, want string, held bool) check {
	return check{Of: of, Text: found + " (" + want + ")", Held: held}
}

func held(all []check) bool { return !slices.ContainsFunc(all, func(c check) bool { return !c.Held }) }

// A ruling is all verdicts, and what they rest on.
type ruling struct {
	Checks   []check // of windows, and of each change of a pool that is counted
	Requests int
	Late     time.Duration // the longest that a request left after it might have, as far as believed
	Stall    time.Duration // the longest that a replica did not get to run
	Fleet    budget
}

func (f *fleet) total() (all message) {
	for _, p := range f.all {
		m := p.reported()
		all.Failed, all.LastError = all.Failed+m.Failed, cmp.Or(m.LastError, all.LastError)
		all.Stall = max(all.Stall, m.Stall)
	}
	return all
}

// ruling judges a run that is over by the upstream's log. A limiter decides when requests leave, so the judged
// windows are between departures; those between arrivals, which the network has pushed together, are for comparison.
func (f *fleet) ruling() ruling {
	if f.platform != nil {
		f.settle()
	}
	log := f.believe(f.up.logged())
	r := ruling{Requests: len(log), Stall: f.total().Stall}
	r.Fleet = budget{[]step{{rate: f.plan.Limit, burst: float64(max(f.plan.Burst, f.most))}}, f.growth}
	add := func(of, bound string, b budget, replica int, info bool) {
		if sent := departures(log, replica); len(sent) > 0 {
			w := b.worst(sent)
			r.Checks = append(r.Checks, check{of, bound + w.text(f.begin), info || !w.broken(), info})
		}
	}
	add("the fleet", "bound 2, 3  ", r.Fleet, 0, false)
	for _, p := range f.all {
		add(fmt.Sprintf("replica %d", p.id), "bound 1     ", budget{steps: p.steps}, p.id, false)
	}
	for i, a := range log {
		r.Late = max(r.Late, a.Late)
		log[i].Sent, log[i].Late = a.Arrived, 0
	}
	add("on arrival", "not judged  ", r.Fleet, 0, true)
	r.Checks = append(r.Checks, f.lateness(max(r.Stall, f.stood))...)
	return r
}

// lateness is plausible on any machine, also when nothing was seen to stand still.
const lateness = 10 * time.Millisecond

// believe is the log with no entry later than is plausible: a little, and twice the longest time that the replica's
// process stood still, for the two wake-ups of a timer and of the request itself. A limiter that claims more is not
// believed.
func (f *fleet) believe(log []arrival) []arrival {
	log = slices.Clone(log)
	for i, a := range log {
		log[i].Late = max(0, min(a.Late, lateness+2*f.all[a.Replica-1].reported().Stall))
	}
	return log
}

// A departure is a request that left a replica, and when it, or one that left later, might have left, but for a
// goroutine that had to wake up.
type departure struct{ may, left time.Duration }

// departures are a replica's requests in the log, or all of them for 0, in the order in which they left.
func departures(log []arrival, replica int) (sent []departure) {
	for _, a := range log {
		if replica == 0 || a.Replica == replica {
			sent = append(sent, departure{may: a.Sent - a.Late, left: a.Sent})
		}
	}
	return ordered(sent)
}

func ordered(sent []departure) []departure {
	slices.SortFunc(sent, func(a, b departure) int { return cmp.Compare(a.left, b.left) })
	next := time.Duration(math.MaxInt64)
	for i, d := range slices.Backward(sent) {
		next = min(next, d.may, d.left)
		sent[i].may = next
	}
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

// A step is a rate, in requests a second, and a burst that hold from an instant on.
type step struct {
	from        time.Duration
	rate, burst float64
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

// worst finds, among all windows between two of the departures, of which there must be one, the window that comes
// closest to its budget or exceeds it the most.
//
// A window from i to j holds j-i+1 requests, so its excess is a term of j less a term of i. The best i for every j
// is a running minimum: one pass finds the worst of all n(n+1)/2 windows. Windows that open before the growth ends
// have a minimum of their own, for only they can touch it.
func (b budget) worst(sent []departure) (worst window) {
	cost, first, most := [2]float64{math.Inf(1), math.Inf(1)}, [2]int{}, math.Inf(-1)
	for j, d := range sent {
		late := 0
		if d.may > b.growth.to {
			late = 1
		}
		now, area := b.at(d.may)
		if c := float64(j) - area + now.burst; c < cost[late] {
			cost[late], first[late] = c, j
		}
		_, area = b.at(d.left)
		for late, i := range first {
			excess := float64(j+1) - area - cost[late]
			if late == 0 && d.left >= b.growth.from {
				excess -= b.growth.extra
			}
			if excess > most {
				most = excess
				worst = window{From: sent[i].may, To: d.left, Sent: j - i + 1, Allowed: float64(j-i+1) - excess}
			}
		}
	}
	return worst
}

type result struct {
	Goodput  float64 // accepted, as a share of the limit
	Rejected float64 // answered 429, as a share of what arrived
	Fairness float64
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
		Goodput:  float64(all.Sent-all.Rejected) / (ph.Limit * (ph.To - ph.From).Seconds()),
		Rejected: float64(all.Rejected) / max(1, float64(all.Sent)),
		Fairness: jain(got),
	}
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

// quantile is the smallest value that a share q of all, which it sorts, does not exceed; 0 without values.
func quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	i := int(math.Ceil(q*float64(len(values)))) - 1
	return values[min(max(i, 0), len(values)-1)]
}

// A scene is a part of the adaptive act: what the upstream takes, and what the replicas want.
type scene struct {
	Title  string
	Length time.Duration
	Limit  float64       // a factor of -limit
	Within time.Duration // in which the fleet must follow, generous for a busy machine; 0 is not judged
	Busy   bool          // the first replica wants more than the whole limit and the others next to nothing
}

// The scenes whose figures are judged by themselves.
const sceneHalf, sceneBusy = 1, 3

var scenes = []scene{
	{Title: "all want more than there is", Length: 4 * time.Second, Limit: 1},
	sceneHalf: {Title: "the limit halves", Length: 6 * time.Second, Limit: 0.5, Within: 3 * time.Second},
	{Title: "the limit is back", Length: 9 * time.Second, Limit: 1, Within: 6 * time.Second},
	sceneBusy: {Title: "replica 1 is busy, the others idle", Length: 8 * time.Second, Limit: 1, Busy: true},
	{Title: "all want the same again", Length: 3 * time.Second, Limit: 1},
}

// stretch is how much longer the scenes take where the upstream does not say what is left.
func (p plan) stretch() time.Duration {
	if p.Tell == tellFields {
		return 1
	}
	return 2
}

// of is the plan of one act. In the adaptive one no replica joins, none is killed, all follow a policy.
func (p plan) of(act string) plan {
	if act == "adaptive" {
		p.Join, p.Kill, p.Duration, p.ctrl, p.Pool = 0, 0, 0, p.Policy, "static"
		for _, s := range scenes {
			p.Duration += p.stretch() * s.Length
		}
	}
	return p
}

func adaptation(f *fleet) (script []moment) {
	at := time.Duration(0)
	for _, s := range scenes {
		script = append(script, moment{at, func(context.Context) error { return f.change(s) }})
		at += f.plan.stretch() * s.Length
	}
	return append(script, moment{at, nil})
}

// change begins a scene. The replicas get their demand, but neither the limit nor how many they are.
func (f *fleet) change(s scene) error {
	p, now := f.plan, f.up.now()
	f.up.set(s.Limit*p.Limit, max(1, int(s.Limit*float64(p.Burst+p.Room))))
	err := f.enter("", now, s.Limit*p.Limit)
	f.out.happening(now-f.begin, s.Title, "")
	return errors.Join(err, each(f.all, func(i int, r *process) error {
		switch {
		case !s.Busy:
			return r.order(p.Want)
		case i == 0:
			return r.order(1.2 * p.Limit)
		}
		return r.order(0.02 * p.Limit)
	}))
}

// A fleet has followed when what it sends, over followWindow, is near the limit, and still is a second later.
const (
	followWindow = 2 * time.Second
	followNear   = 0.1
	followStep   = 50 * time.Millisecond // of the search
)

// The bounds of the adaptive act, beside those in scenes and as generous.
const (
	leastGoodput  = 0.65 // over all scenes: half of the time the fleet climbs
	mostRejected  = 0.08
	leastBusy     = 0.45 // of the limit, by the busy replica in its last seconds: a third is its part
	leastFair     = 0.78 // Jain's index, under half the limit: three of four with nothing for the fourth is .75
	mostOvershoot = 1.5  // times half the limit, from one second after it was halved
)

func arrived(log []arrival, from, to time.Duration) float64 {
	return float64(since(log, to) - since(log, from))
}

// followed is how long it took the fleet after the begin of a phase to follow; not ok: longer than the phase.
func followed(log []arrival, ph phase) (took time.Duration, ok bool) {
	near := func(t time.Duration) bool {
		used := arrived(log, t, t+followWindow) / (ph.Limit * followWindow.Seconds())
		return used >= 1-followNear && used <= 1+followNear
	}
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
		most = max(most, arrived(log, t, t+time.Second))
	}
	return most / ph.Limit
}

type followUp struct {
	scene
	phase
	result
	Took      string // to follow
	Overshoot float64
}

func judge(log []arrival, phases []phase, stretch time.Duration) (all []followUp, checks []check) {
	var useful, accepted float64
	for i, ph := range phases {
		s, r := scenes[i], measure(log, ph)
		took, ok := followed(log, ph)
		said := fmt.Sprintf("%.1f s", took.Seconds())
		if !ok {
			said = fmt.Sprintf("not in %.0f s", (ph.To - ph.From).Seconds())
		}
		all = append(all, followUp{s, ph, r, said, overshoot(log, ph)})
		if within := stretch * s.Within; within > 0 {
			want := fmt.Sprintf("at most %.0f s", within.Seconds())
			checks = append(checks, promise(s.Title, "followed: "+said, want, ok && took <= within))
		}
		most := ph.Limit * (ph.To - ph.From).Seconds()
		useful, accepted = useful+most, accepted+r.Goodput*most
	}
	sent := arrived(log, phases[0].From, phases[len(phases)-1].To)
	goodput, rejected, half, end := accepted/useful, (sent-accepted)/max(1, sent), all[sceneHalf], phases[sceneBusy]
	end.From = max(end.From, end.To-followWindow)
	one := count(log, end.From, end.To)[1]
	busy := float64(one.Sent-one.Rejected) / (end.Limit * (end.To - end.From).Seconds())
	percent := func(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
	return all, append(checks,
		promise("the busy one", percent(busy)+" of the limit", "at least "+percent(leastBusy), busy >= leastBusy),
		promise("fairness", fmt.Sprintf("%.3f under half the limit", half.Fairness),
			fmt.Sprint("at least ", leastFair), half.Fairness >= leastFair),
		promise("overshoot", fmt.Sprintf("%.2f x half the limit", half.Overshoot),
			fmt.Sprint("at most ", mostOvershoot), half.Overshoot <= mostOvershoot),
		promise("goodput", percent(goodput), "at least "+percent(leastGoodput), goodput >= leastGoodput),
		promise("429s", percent(rejected), "at most "+percent(mostRejected), rejected <= mostRejected))
}
