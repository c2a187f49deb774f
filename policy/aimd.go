package policy

import (
	"math"
	"time"
)

// Defaults of AIMD. The factors are those that TCP Reno made common: halve, then climb linearly. The step of
// a twentieth of the share a second brings a halved rate back in ten seconds.
const (
	defaultDecrease = 0.5
	defaultStep     = 1.0 / 20
	startUnknown    = 5.0 // events per second to start at when no share is known
	// A rate never falls below this part of the share, since probes must go on, nor stays above floorMost events
	// a second for it: a share may be far too high.
	floorShare, floorMost = 0.02, 0.1
)

// AIMD grows by a constant number of events per second each second and is cut by a factor when the upstream
// refuses. It is the plain textbook controller, here for teaching and for comparison. A pause that is announced
// is waited out, up to ten minutes.
//
// The zero value is ready to use.
type AIMD struct {
	// Increase is the growth in events per second, per second. 0 or less, and anything not
	// finite, means a twentieth of the share, or 1 when no share is known.
	Increase float64
	// Decrease is the factor of a cut, between 0 and 1 (both excluded). Anything else means 0.5.
	Decrease float64
}

// New returns a controller that starts at the share, or at 5 events per second when none is known.
func (p AIMD) New(uint64) Controller {
	if !(p.Decrease > 0 && p.Decrease < 1) {
		p.Decrease = defaultDecrease
	}
	if !(p.Increase > 0) || math.IsInf(p.Increase, 1) {
		p.Increase = 0
	}
	return &aimd{AIMD: p, cut: math.MinInt64, end: math.MinInt64}
}

type aimd struct {
	AIMD
	rate float64
	last time.Duration // of the last sample
	cut  time.Duration // of the last cut
	end  time.Duration // of the pauses that were announced
}

// Next cuts at most once for each round of feedback: a refusal of a request that was sent
// before the last cut says nothing new.
func (a *aimd) Next(s Sample, b Bounds) Pace {
	if a.rate == 0 {
		if a.rate, a.last = clamp(startUnknown, b), s.Now; known(b.Share) {
			a.rate = b.Share
		}
	}
	dt := min(max((s.Now-a.last).Seconds(), 0), longestStep)
	if s.Now < a.last { // the clock has gone back, and the last cut with it
		a.cut, a.end = min(a.cut, s.Now), s.Now
	}
	a.last = s.Now
	switch s.Outcome {
	case Throttled:
		if s.Sent >= a.cut {
			a.rate *= a.Decrease
			a.cut = s.Now
		}
	case Success:
		if s.Paced && s.Sent >= a.cut { // an answer from before the cut says nothing about the rate since
			a.rate += dt * a.step(b)
		}
	}
	if s.RetryAfter > 0 && s.Outcome != Success {
		a.end = max(a.end, min(s.Now, farAway)+min(s.RetryAfter, longestPause))
	}
	a.rate = clamp(a.rate, b)
	p := Pace{Rate: a.rate}
	if a.end > s.Now {
		p.NotBefore = a.end
	}
	return p
}

func (a *aimd) step(b Bounds) float64 {
	switch {
	case a.Increase > 0:
		return a.Increase
	case known(b.Share):
		return b.Share * defaultStep
	}
	return 1
}

// clamp keeps a rate finite, above the floor and at most at the ceiling.
func clamp(rate float64, b Bounds) float64 {
	floor := floorMost
	if known(b.Share) {
		floor = min(floor, floorShare*b.Share)
	}
	if math.IsNaN(rate) {
		rate = floor
	}
	rate = min(max(rate, floor), math.MaxFloat64)
	if b.Ceiling > 0 {
		rate = min(rate, b.Ceiling)
	}
	return rate
}
