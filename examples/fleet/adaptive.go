package main

import (
	"context"
	"fmt"
	"io"
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

// Demand in a busy scene, as a factor of the limit.
const (
	busyWant = 1.2
	idleWant = 0.02
)

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

// adaptive is the plan of the adaptive act: no replica joins, none is killed, all follow a policy.
func (p plan) adaptive() plan {
	p.Join, p.Kill, p.Duration, p.ctrl, p.Pool = 0, 0, 0, p.Policy, "static"
	for _, s := range scenes {
		p.Duration += p.stretch() * s.Length
	}
	return p
}

// adapt plays the adaptive act and judges it. It returns the exit status.
func adapt(ctx context.Context, p plan, stdout, stderr io.Writer) int {
	p = p.adaptive()
	out := newScreen(stdout, p)
	out.adaptiveHead()
	f, err := runFleet(ctx, p, out, adaptation)
	if err != nil {
		fmt.Fprintln(stderr, "fleet:", err)
		return exitFailed
	}
	o := f.outcome()
	out.outcome(o)
	out.failures(f.summary())
	if !o.held() {
		return exitBroken
	}
	return exitHeld
}

// adaptation is the script of the scenes.
func adaptation(f *fleet) []moment {
	var script []moment
	at := time.Duration(0)
	for _, s := range scenes {
		script = append(script, moment{at, func(context.Context) error { return f.change(s) }})
		at += f.plan.stretch() * s.Length
	}
	return append(script, moment{at, nil})
}

// change begins a scene. The replicas get their demand, but neither the limit nor how many they are.
func (f *fleet) change(s scene) error {
	limit := s.Limit * f.plan.Limit
	now := f.up.Now()
	f.up.SetLimit(limit, max(1, int(s.Limit*float64(f.plan.Burst+f.plan.Room))))
	f.enter(now)
	f.phases[len(f.phases)-1].Limit = limit
	f.out.print("%s\n", f.out.bold(fmt.Sprintf("── %.1f s  %s", (now-f.begin).Seconds(), s.Title)))
	for _, p := range f.all {
		if err := p.order(order{Want: s.want(p.id, f.plan)}); err != nil {
			return err
		}
	}
	return nil
}

// want is what a replica wants in a scene, in requests a second.
func (s scene) want(id int, p plan) float64 {
	switch {
	case !s.Busy:
		return p.Want
	case id == 1:
		return busyWant * p.Limit
	}
	return idleWant * p.Limit
}
