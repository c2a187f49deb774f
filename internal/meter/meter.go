// Package meter counts what a key has left of one rule of its limit: in a token bucket, in the windows of a clock, or
// in turns that replicas take. Each meter is a pure function of its state, of a rule, and of an instant. None reads a
// clock, holds a lock, or knows about keys: who calls sees to it that instants never go back, and that no two calls
// overlap.
//
// Amounts are events of the rule's unit. A Bucket, a CostBucket and a TurnBucket count fractions of events as float64,
// since shares of a limit are seldom whole; a Window counts whole events, of quotas that are exact in thousandths.
// Times are nanoseconds: a time.Duration since the limiter was made, by the monotonic clock, and where replicas have to
// agree an int64 since the Unix epoch, by the wall clock.
//
//   - A Bucket is a token bucket (bucket.go). Its arithmetic is that of golang.org/x/time/rate, in events, and
//     TestPropertyBucketIsThatOfRate holds both side by side. It fills by one event each Fill.Interval, up to
//     Fill.Size.
//   - A CostBucket is one whose takes are corrected later. What comes back is the least headroom since: the reflection
//     principle of a process with a barrier.
//   - A Window counts the events of one period of the clock. Replicas divide the fleet's total of each exactly, by
//     Hermite's identity (window.go), or count together what is left of it (counted.go).
//   - A TurnBucket admits an event only while its replica's turn is open, so that the events of a fleet are evenly
//     spaced (turn.go).
package meter

import (
	"math"
	"time"
)

// Instant is a moment by both clocks.
type Instant struct {
	At   time.Duration // since the limiter was made, by the monotonic clock; it never goes back
	Wall int64         // nanoseconds since the Unix epoch, by the wall clock; it may step
}

// Rule is what a meter has to know of a rule.
type Rule struct {
	Fill               // of the bucket, if it has one; for slots the size is how many there are here
	Fastest  float64   // interval if all were lent, of a key that is named; 0 else
	Schedule *Schedule // of a window
	Counted  bool      // the fleet's count decides on the window, and not the share alone
	Turn     *Turn     // of a paced rate whose replicas take turns
}

// Part is which part of a limit a replica has.
type Part struct {
	Replicas int // of the pool
	Ordinal  int // 1..replicas: the first of its own; 0 unknown
	Weight   int // how many ordinals are its own, one or more
}

// Meter is what a key has left of one rule. The rule comes with each call, so that the state stays small: a million
// keys share one rule.
type Meter interface {
	// Until returns how long it takes until there is room for n behind ahead others, if nothing else is
	// taken. It counts from the instant t, and is no less than from. It is 0 for now, and never where waiting
	// alone does not help. More than fits at all waits until everything is there, and then owes the rest.
	Until(t Instant, r *Rule, from time.Duration, ahead, n float64) time.Duration
	// Take takes n, there or not.
	Take(t Instant, r *Rule, n float64)
	// Refund gives back n that were taken at an instant, as far as they cannot have come back by themselves.
	Refund(t Instant, taken time.Duration, r *Rule, n float64)
	// UpTo returns how many of n may be taken now, one by one.
	UpTo(t Instant, r *Rule, n int) int
	// Left returns what is there, negative when it is owed, of how much, and the time until all is there.
	Left(t Instant, r *Rule) (events, of float64, full time.Duration)
	// Age returns for how long what was just taken had been there, as far as nothing was lost meanwhile.
	Age(t Instant, r *Rule) time.Duration
	// State returns what two meters of a rule differ in at an instant.
	State(t Instant, r *Rule) State
}

// Stored is a resource that a gate keeps behind a pointer.
type Stored interface {
	Meter
	// Follow brings it from the rule old, which held until t, under r.
	Follow(t Instant, old, r *Rule)
	Clone() Stored
}

// State is a meter's state at an instant, to be compared.
type State struct {
	Has         float64
	index, Used int64
}

// Never is a wait that does not end by itself.
const Never = time.Duration(math.MaxInt64)

// LongWait bounds what is calculated on: sums of a few waits below it are far from the 292 years at which a
// Duration ends.
const LongWait = 30 * 365 * 24 * time.Hour

// Saturated converts nanoseconds: those below 0 count as none, and those beyond every Duration as half of
// the longest. A controller may answer a rate so slow that an event is infinitely far away. Then 0 of it is
// a NaN, and counts as none.
func Saturated(ns float64) time.Duration {
	if !(ns > 0) {
		return 0
	}
	return time.Duration(min(ns, float64(Never/2)))
}

// After returns t + d without overflow.
func After(t, d time.Duration) time.Duration { return t + min(d, Never-t) }
