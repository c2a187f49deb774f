package quotient

import "time"

// instant is a moment under a shard's lock. It never goes back.
type instant struct {
	at   time.Duration // since the limiter was made, by the monotonic clock
	wall int64         // nanoseconds since the Unix epoch, by the wall clock; it may step
}

// The clocks that calls read. Without an aligned rate the monotonic clock is enough, at little more than half
// the price of both. Slots alone need no clock at all unless a caller has to wait.
const (
	clockMonotonic uint32 = iota
	clockWall
	clockNone
)

// resource is what a key has left of one rule: a token bucket, a window, slots, or what a controller
// governs. A gate has one for each rule of its setting. The rule comes with each call, so that the state
// stays small. Amounts are events of the rule's unit, or slots.
type resource interface {
	// until returns how long it takes until there is room for n behind ahead others, if nothing else is
	// taken. It counts from the instant t, and is no less than from. It is 0 for now, and never where waiting
	// alone does not help. More than fits at all waits until everything is there, and then owes the rest.
	until(t instant, r *rule, from time.Duration, ahead, n float64) time.Duration
	// take takes n, there or not.
	take(t instant, r *rule, n float64)
	// refund gives back n that were taken at an instant, as far as they cannot have come back by themselves.
	refund(t instant, taken time.Duration, r *rule, n float64)
	// upTo returns how many of n may be taken now, one by one.
	upTo(t instant, r *rule, n int) int
	// left returns what is there, negative when it is owed, of how much, and the time until all is there.
	left(t instant, r *rule) (events, of float64, full time.Duration)
	// age returns for how long what was just taken had been there, as far as nothing was lost meanwhile.
	age(t instant, r *rule) time.Duration
	// state returns what two resources of a rule differ in at an instant.
	state(t instant, r *rule) state
	// follow brings the resource from the rule old, which held until t, under r.
	follow(t instant, old, r *rule)
}

// stored is a resource that a gate keeps behind a pointer.
type stored interface {
	resource
	clone() stored
}

// state is a resource's state at an instant, to be compared.
type state struct {
	has         float64
	index, used int64
}

// longWait bounds what is calculated on: sums of a few waits below it are far from the 292 years at which a
// Duration ends.
const longWait = 30 * 365 * 24 * time.Hour

// saturated converts nanoseconds: those below 0 count as none, and those beyond every Duration as half of
// the longest. A controller may answer a rate so slow that an event is infinitely far away. Then 0 of it is
// a NaN, and counts as none.
func saturated(ns float64) time.Duration {
	if !(ns > 0) {
		return 0
	}
	return time.Duration(min(ns, float64(never/2)))
}

// after returns t + d without overflow.
func after(t, d time.Duration) time.Duration { return t + min(d, never-t) }
