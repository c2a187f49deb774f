package main

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/quotient-go/quotient/examples/fleet/upstream"
)

// A fleet has followed when what it sends, over followWindow, is within followNear of the limit, and still is
// a second later.
const (
	followWindow = 2 * time.Second
	followNear   = 0.1
	followStep   = 50 * time.Millisecond // of the search
)

// The bounds of the adaptive act. They are generous: a machine that runs other programs too stands still now
// and then.
const (
	mostAfterHalving = 3 * time.Second // as both that follow times stretch, and the most that the scene can show
	mostAfterReturn  = 6 * time.Second
	leastGoodput     = 0.65 // over all scenes: half of the time the fleet climbs
	mostRejected     = 0.08
	leastBusy        = 0.45 // of the limit, by the busy replica in its last seconds: a third is its part
	leastFair        = 0.78 // Jain's index, under half the limit: three of four with nothing for the fourth is .75
	mostOvershoot    = 1.5  // times half the limit, from one second after it was halved
)

// arrived counts what arrived from one instant to another. The log is in order of arrival.
func arrived(log []upstream.Arrival, from, to time.Duration) int {
	before := func(t time.Duration) int {
		return sort.Search(len(log), func(i int) bool { return log[i].Arrived >= t })
	}
	return before(to) - before(from)
}

// near reports whether as much arrived in the window that begins at t as the limit is, give or take.
func near(log []upstream.Arrival, t time.Duration, limit float64) bool {
	used := float64(arrived(log, t, t+followWindow)) / (limit * followWindow.Seconds())
	return used >= 1-followNear && used <= 1+followNear
}

// followed is how long it took the fleet after the begin of a phase to follow; not ok: longer than the phase.
func followed(log []upstream.Arrival, ph phase) (took time.Duration, ok bool) {
	for t := ph.From; t+time.Second+followWindow <= ph.To; t += followStep {
		if near(log, t, ph.Limit) && near(log, t+time.Second, ph.Limit) {
			return t - ph.From, true
		}
	}
	return 0, false
}

// overshoot is the most that arrived in a second of a phase, as a factor of the limit, once one second
// had passed.
func overshoot(log []upstream.Arrival, ph phase) float64 {
	most := 0
	for t := ph.From + time.Second; t+time.Second <= ph.To; t += followStep {
		most = max(most, arrived(log, t, t+time.Second))
	}
	return float64(most) / ph.Limit
}

// A followUp is how well the fleet followed in one scene.
type followUp struct {
	scene
	result
	Took      time.Duration
	Followed  bool
	Overshoot float64
	First     float64 // accepted of the first replica in the last seconds, as a share of the limit
}

// A check is one promise that is not about windows, and what became of it.
type check struct {
	Of, Found, Want string
	Held            bool
}

// An outcome is the adaptive act's result: scene by scene, in all, and judged.
type outcome struct {
	Scenes            []followUp
	Goodput, Rejected float64
	Checks            []check
	Stall             time.Duration // the longest that a replica did not get to run
}

func (o outcome) held() bool {
	return !slices.ContainsFunc(o.Checks, func(c check) bool { return !c.Held })
}

// outcome is what became of the adaptive act, by the upstream's log.
func (f *fleet) outcome() outcome {
	phases := f.phases[len(f.phases)-len(scenes):]
	o := judge(f.up.Log(), phases, f.plan.stretch())
	for _, stall := range f.stalls() {
		o.Stall = max(o.Stall, stall)
	}
	return o
}

// judge measures every scene and checks the promises.
func judge(log []upstream.Arrival, phases []phase, stretch time.Duration) outcome {
	var o outcome
	useful, accepted, all := 0.0, 0.0, 0.0
	for i, ph := range phases {
		u := followUp{scene: scenes[i], result: measure(log, ph), Overshoot: overshoot(log, ph), First: last(log, ph, 1)}
		u.Took, u.Followed = followed(log, ph)
		most := ph.Limit * (ph.To - ph.From).Seconds()
		useful += most
		accepted += u.Goodput * most
		all += float64(arrived(log, ph.From, ph.To))
		o.Scenes = append(o.Scenes, u)
	}
	o.Goodput, o.Rejected = accepted/useful, (all-accepted)/max(1, all)
	o.Checks = o.checks(stretch)
	return o
}

// last is what was accepted of a replica in the last seconds of a phase, as a share of the limit.
func last(log []upstream.Arrival, ph phase, replica int) float64 {
	own := slices.DeleteFunc(slices.Clone(log), func(a upstream.Arrival) bool { return a.Replica != replica })
	ph.From = max(ph.From, ph.To-followWindow)
	return measure(own, ph).Goodput
}

// checks holds the result against the bounds.
func (o outcome) checks(stretch time.Duration) []check {
	percent := func(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
	busy, fair, over := o.Scenes[sceneBusy].First, o.Scenes[sceneHalf].Fairness, o.Scenes[sceneHalf].Overshoot
	return []check{
		o.Scenes[sceneHalf].follows(stretch * mostAfterHalving),
		o.Scenes[sceneBack].follows(stretch * mostAfterReturn),
		{"the busy one", percent(busy) + " of the limit", "at least " + percent(leastBusy), busy >= leastBusy},
		{"fairness", fmt.Sprintf("%.3f under half the limit", fair), fmt.Sprint("at least ", leastFair), fair >= leastFair},
		{"overshoot", fmt.Sprintf("%.2f x half the limit", over), fmt.Sprint("at most ", mostOvershoot), over <= mostOvershoot},
		{"goodput", percent(o.Goodput), "at least " + percent(leastGoodput), o.Goodput >= leastGoodput},
		{"429s", percent(o.Rejected), "at most " + percent(mostRejected), o.Rejected <= mostRejected},
	}
}

// follows checks that the fleet followed in time.
func (u followUp) follows(most time.Duration) check {
	return check{u.Title, "followed: " + u.took(), fmt.Sprintf("at most %.0f s", most.Seconds()), u.Followed && u.Took <= most}
}

func (u followUp) took() string {
	if !u.Followed {
		return fmt.Sprintf("not in %.0f s", (u.To - u.From).Seconds())
	}
	return fmt.Sprintf("%.1f s", u.Took.Seconds())
}
