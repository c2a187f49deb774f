package main

import "time"

// replicaArg is the only argument of a process that is a replica.
const replicaArg = "replica"

// Header fields of a request from a replica to the upstream.
const (
	headerReplica = "Fleet-Replica" // number of the sender
	headerSent    = "Fleet-Sent"    // its clock when the request left, nanoseconds since 1970
	headerLate    = "Fleet-Late"    // how much earlier the limiter would have let it go, nanoseconds
)

// An assignment tells a replica what to do: one line of JSON on its standard input. The input
// stays open for as long as the parent lives; its end is the order to stop.
type assignment struct {
	ID       int     // 1, 2, …: never used twice, so that the log can tell replicas apart
	Upstream string  // URL
	Limit    float64 // requests a second over the fleet
	Burst    int     // over the fleet
	Replicas int     // pool size
	Ordinal  int
	Join     bool          // others are using the limit already
	Want     float64       // requests a second to try to send
	Patience time.Duration // how long a request waits for its turn before it is given up
	Life     time.Duration // ends by itself after this, whatever happens
}

// A message is one line of JSON on a replica's standard output. The first has Admin and Born set,
// and nothing else; the others are reports of what is new since the one before.
type message struct {
	Admin string `json:",omitempty"` // URL of the admin endpoint
	Born  int64  `json:",omitempty"` // the replica's clock just before its limiter was made

	Waiting   int             `json:",omitempty"` // requests that wait now
	GaveUp    int             `json:",omitempty"` // requests that were given up
	Failed    int             `json:",omitempty"` // requests that got no answer
	LastError string          `json:",omitempty"` // of the last one
	Overheads []time.Duration `json:",omitempty"` // of the limiter, one for each admitted request
	Stall     time.Duration   `json:",omitempty"` // longest time in which the process did not get to run
}

// A clock tells the wall time that all processes on one machine share, and never jumps: it reads
// the wall clock once and counts on from there with the monotonic clock.
type clock struct{ base time.Time }

func newClock() clock { return clock{base: time.Now()} }

// now is in nanoseconds since 1970.
func (c clock) now() int64 { return c.base.UnixNano() + int64(time.Since(c.base)) }
