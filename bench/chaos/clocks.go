package main

import (
	"math"
	"time"
)

// clockKinds are the ways in which wall clocks are stepped, and stepped back.
var clockKinds = []struct {
	name    string
	all     bool
	forward bool
}{
	{"one forward", false, true}, {"one back", false, false}, {"all forward", true, true}, {"all back", true, false},
}

// mostStep is the longest step of a clock, and leastStep the shortest.
const (
	leastStep = time.Second
	mostStep  = time.Hour
)

// stepClocks steps the wall clock of one process, or of all that run, and steps it back after a while.
func (f *fleet) stepClocks(x fault) error {
	k := clockKinds[x.kind]
	list := f.running()
	if !k.all {
		list = []*process{f.victim()}
	}
	by := time.Duration(float64(leastStep) * math.Pow(float64(mostStep/leastStep), f.rng.Float64()))
	if !k.forward {
		by = -by
	}
	f.say("wall clock of %s by %v, for %.1f s", k.name, by.Round(time.Millisecond), x.lasts.Seconds())
	back := time.Duration(0)
	f.at(f.now()+x.lasts, func() error { return f.order(command{Step: &back}, list) })
	return f.order(command{Step: &by}, list)
}
