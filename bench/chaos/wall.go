package main

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// WallStep is by how many nanoseconds wall clocks are ahead of what they show, or behind.
//
// This file is also put into the root package, under another package clause, of a replica whose wall clock
// can be stepped: see overlay.go.
var WallStep atomic.Int64

// stepped is t with its wall reading stepped. The monotonic one stays: a clock that is set does just this.
func stepped(t time.Time) time.Time {
	by := WallStep.Load()
	wall := (*uint64)(unsafe.Pointer(&t)) // the first word of a Time, see its source
	const (
		monotonic = 1 << 63 // there is such a reading; then 33 bits of seconds since 1885, and 30 of nanoseconds
		fraction  = 1<<30 - 1
	)
	switch {
	case by == 0:
		return t
	case *wall&monotonic == 0:
		return t.Add(time.Duration(by))
	}
	at := int64(*wall&^monotonic>>30)*int64(time.Second) + int64(*wall&fraction) + by
	*wall = monotonic | uint64(at/int64(time.Second))<<30 | uint64(at%int64(time.Second))
	return t
}
