package main

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/quotient-go/quotient/examples/fleet/upstream"
)

// A scene is a part of the adaptive act: what the upstream takes, and what the replicas want.
type scene struct {
	Title  string
	Length time.Duration
	Limit  float64 // a factor of -limit
	Busy   bool    // the first replica wants more than the whole limit and the others next to nothing
}

// The scenes whose figures are judged by themselves.
const (
	sceneHalf = 1
	sceneBack = 2
	sceneBusy = 3
)

var scenes = []scene{
	{Title: "all want more than there is", Length: 4 * time.Second, Limit: 1},
	sceneHalf: {Title: "the limit halves", Length: 6 * time.Second, Limit: 0.5},
	sceneBack: {Title: "the limit is back", Length: 9 * time.Second, Limit: 1},
	sceneBusy: {Title: "replica 1 is busy, the others idle", Length: 8 * time.Second, Limit: 1, Busy: true},
	{Title: "all want the same again", Length: 3 * time.Second, Limit: 1},
}

// stretch is how much longer the scenes take. To learn that there is more than before takes its time when the upstream
// does not say what is left.
func (p plan) stretch() time.Duration {
	if p.Tell == upstream.Fields {
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

// adaptation is the script of the scenes.
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
	p, now := f.plan, f.up.Now()
	f.up.SetLimit(s.Limit*p.Limit, max(1, int(s.Limit*float64(p.Burst+p.Room))))
	f.enter(now, s.Limit*p.Limit)
	f.out.print("%s\n", f.out.bold(fmt.Sprintf("── %.1f s  %s", (now-f.begin).Seconds(), s.Title)))
	for _, r := range f.all {
		want := p.Want
		if s.Busy && r.id == 1 {
			want = 1.2 * p.Limit
		} else if s.Busy {
			want = 0.02 * p.Limit
		}
		if err := r.order(order{Want: want}); err != nil {
			return err
		}
	}
	return nil
}

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
func arrived(log []upstream.Arrival, from, to time.Duration) float64 {
	before := func(t time.Duration) int {
		return sort.Search(len(log), func(i int) bool { return log[i].Arrived >= t })
	}
	return float64(before(to) - before(from))
}

// followed is how long it took the fleet after the begin of a phase to follow; not ok: longer than the phase.
func followed(log []upstream.Arrival, ph phase) (took time.Duration, ok bool) {
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

// overshoot is the most that arrived in a second of a phase, as a factor of the limit, once one second
// had passed.
func overshoot(log []upstream.Arrival, ph phase) (most float64) {
	for t := ph.From + time.Second; t+time.Second <= ph.To; t += followStep {
		most = max(most, arrived(log, t, t+time.Second))
	}
	return most / ph.Limit
}

// A followUp is how well the fleet followed in one scene.
type followUp struct {
	scene
	phase
	result
	Took      time.Duration
	Followed  bool
	Overshoot float64
}

// judgeLearning judges the adaptive act by the upstream's log, and prints what became of it.
func (f *fleet) judgeLearning() bool {
	all, checks := judge(f.up.Log(), f.phases[len(f.phases)-len(scenes):], f.plan.stretch())
	f.out.outcome(all, checks, f.total())
	return held(checks)
}

// judge measures every scene and checks the promises.
func judge(log []upstream.Arrival, phases []phase, stretch time.Duration) (all []followUp, checks []check) {
	var useful, accepted float64
	for i, ph := range phases {
		u := followUp{scene: scenes[i], phase: ph, result: measure(log, ph), Overshoot: overshoot(log, ph)}
		u.Took, u.Followed = followed(log, ph)
		all = append(all, u)
		most := ph.Limit * (ph.To - ph.From).Seconds()
		useful, accepted = useful+most, accepted+u.Goodput*most
	}
	sent := arrived(log, phases[0].From, phases[len(phases)-1].To)
	goodput, rejected := accepted/useful, (sent-accepted)/max(1, sent)
	half := all[sceneHalf]
	busy := last(log, phases[sceneBusy], 1)
	percent := func(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
	return all, []check{
		half.follows(stretch * mostAfterHalving),
		all[sceneBack].follows(stretch * mostAfterReturn),
		promise("the busy one", percent(busy)+" of the limit", "at least "+percent(leastBusy), busy >= leastBusy),
		promise("fairness", fmt.Sprintf("%.3f under half the limit", half.Fairness), fmt.Sprint("at least ", leastFair), half.Fairness >= leastFair),
		promise("overshoot", fmt.Sprintf("%.2f x half the limit", half.Overshoot), fmt.Sprint("at most ", mostOvershoot), half.Overshoot <= mostOvershoot),
		promise("goodput", percent(goodput), "at least "+percent(leastGoodput), goodput >= leastGoodput),
		promise("429s", percent(rejected), "at most "+percent(mostRejected), rejected <= mostRejected),
	}
}

func promise(of, found, want string, held bool) check {
	return check{Of: of, Text: found + " (" + want + ")", Held: held}
}

// last is what was accepted of a replica in the last seconds of a phase, as a share of the limit.
func last(log []upstream.Arrival, ph phase, replica int) float64 {
	own := slices.DeleteFunc(slices.Clone(log), func(a upstream.Arrival) bool { return a.Replica != replica })
	ph.From = max(ph.From, ph.To-followWindow)
	return measure(own, ph).Goodput
}

// follows checks that the fleet followed in time.
func (u followUp) follows(most time.Duration) check {
	return promise(u.Title, "followed: "+u.took(), fmt.Sprintf("at most %.0f s", most.Seconds()), u.Followed && u.Took <= most)
}

func (u followUp) took() string {
	if !u.Followed {
		return fmt.Sprintf("not in %.0f s", (u.To - u.From).Seconds())
	}
	return fmt.Sprintf("%.1f s", u.Took.Seconds())
}
