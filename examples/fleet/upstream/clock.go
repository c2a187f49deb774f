package upstream

import "time"

// A Clock returns the wall time that all processes on one machine share, and never jumps. It reads the wall
// clock once and counts on from there with the monotonic clock. It is safe for use by many goroutines; make
// one with NewClock.
type Clock struct{ base time.Time }

// NewClock returns a clock that agrees with the wall clock now.
func NewClock() Clock { return Clock{base: time.Now()} }

// Now is in nanoseconds since 1970.
func (c Clock) Now() int64 { return c.base.UnixNano() + int64(time.Since(c.base)) }
