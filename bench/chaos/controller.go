package main

import (
	"time"

	"github.com/quotient-go/quotient"
)

const (
	windowPer = 250 * time.Millisecond // of the aligned rate
	turnEvery = 100 * time.Millisecond // from one turn to the next, over the fleet
	// hintAge is the HintMaxAge of the path of slots: a silence may last for longer. The others keep what
	// they have learned.
	hintAge   = 5 * time.Second
	leastHold = 60 * time.Millisecond // a permit is held for, and
	mostHold  = 140 * time.Millisecond
	// slotCallers are those of one replica that want a permit, more than it has.
	slotCallers = 6
	pollEvery   = 10 * time.Millisecond // of callers that do not wait

	countedPer  = 10 * time.Second // of the rate that the fleet's count decides
	countedEach = 30               // events of a window, for each replica; one that is busy asks for all
	sipEvery    = countedPer / (countedEach * 16)
)

// A controller is what the fleet may do on one path.
type ctrl struct {
	rate   float64 // events a second; 0: there is no such limit
	burst  int
	window int // events of each aligned window; 0: it is a bucket
	slots  int // in flight; 0: there is no such limit

	counted bool // the fleet's count decides
}

// ctrl is what the fleet may do on a path. Slots leave a remainder when they are divided. A replica
// has one of some eight windows for itself, so that a replica that opens the same window again and again has
// far too much, or nothing.
func (c config) ctrl(s source) ctrl {
	switch s {
	case onSlots, onLentSlots:
		return ctrl{slots: c.Replicas + c.Replicas/2 + 1}
	case onWindows:
		events := max(1, c.Replicas/8)
		return ctrl{rate: float64(events) / windowPer.Seconds(), window: events}
	case onTurns:
		return ctrl{rate: 1 / turnEvery.Seconds(), burst: 1}
	case onCounted:
		events := c.Replicas * countedEach
		return ctrl{rate: float64(events) / countedPer.Seconds(), window: events, counted: true}
	case onLent: // a burst of some ten milliseconds for each, so that one that is busy can be late a little
		return ctrl{rate: c.Limit / 2, burst: 4 * c.Burst}
	default:
		return ctrl{rate: c.Limit, burst: c.Burst}
	}
}

// fallback is the pool that counts on a path when its hints are too old. On the path of slots it is more
// than there ever are. On the others it is so many that next to nothing is admitted, which would be seen.
func (c config) fallback(s source) int {
	if s == onSlots || s == onLentSlots {
		return c.Replicas + 2
	}
	return 1000
}

// limit is the controller as a limiter takes it.
func (w ctrl) limit() quotient.Limit {
	switch {
	case w.counted:
		rate := quotient.Rate{
			Name: "counted", Events: float64(w.window), Per: countedPer, Aligned: true, Counted: true,
		}
		return quotient.Rates(rate)
	case w.slots > 0:
		return quotient.Limit{InFlight: w.slots}
	case w.window > 0:
		rate := quotient.Rate{Name: "window", Events: float64(w.window), Per: windowPer, Aligned: true}
		return quotient.Rates(rate)
	}
	rate := quotient.PerSecond(w.rate)
	rate.Burst = w.burst
	return quotient.Rates(rate)
}

// share is a replica's part of the burst as one of n: no bucket is smaller than one event. Turns take a tenth
// of an event besides: see docs/bounds.md.
func (w ctrl) share(s source, n int) float64 {
	b := max(1, float64(w.burst)/float64(n))
	if s == onTurns {
		b += .1
	}
	return b
}
