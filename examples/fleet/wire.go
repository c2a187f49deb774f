package main

import (
	"time"

	"github.com/quotient-go/quotient/policy"
)

// replicaArg is the only argument of a process that is a replica.
const replicaArg = "replica"

// policies are the controllers by name. The empty name is the limiter's default: the share is a bound.
var policies = map[string]policy.Policy{
	"tracking": policy.Tracking{},
	"aimd":     policy.AIMD{},
	"fixed":    policy.Fixed{},
}

// An assignment tells a replica what to do: one line of JSON on its standard input. Orders may
// follow. The input stays open for as long as the parent lives; its end is the order to stop.
type assignment struct {
	ID       int     // 1, 2, …: never used twice, so that the log can tell replicas apart
	Upstream string  // URL
	Limit    float64 // requests a second over the fleet
	Burst    int     // over the fleet
	Replicas int     // pool size
	Ordinal  int
	Join     bool          // others are using the limit already
	Pool     string        `json:",omitempty"` // one of countings: how to find out the pool size; Replicas is then the configured size
	At       string        `json:",omitempty"` // where to look for it
	Policy   string        `json:",omitempty"` // one of policies, up to the whole limit
	Want     float64       // requests a second to try to send; 0: wait for an order
	Patience time.Duration // how long a request waits for its turn before it is given up
	Life     time.Duration // ends by itself after this, whatever happens
}

// An order changes what a replica does: one line of JSON on its standard input.
type order struct {
	Want float64 // requests a second to try to send from now on
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
	Beliefs   []belief        `json:",omitempty"` // pool sizes that were put in force, of a replica that counts
}
