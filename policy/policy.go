// Package policy holds pure control laws: feedback in, rate out.
//
// A law has no clock, no lock and no goroutine. Time is an argument, so a law can be
// tested, simulated and replayed at any speed. The limiter joins a law to a key's pacing
// bucket (see adaptive.go in the root package) and calls it with the key's lock held.
package policy

import "time"

// Outcome is what became of one admitted request.
type Outcome uint8

// The outcomes. The zero value says that nothing was heard.
const (
	// Unknown says nothing about the upstream: only the time or the bounds have changed.
	Unknown Outcome = iota
	// Success is any answer that does not complain about the rate.
	Success
	// Throttled is a refusal for the rate: HTTP 429, RESOURCE_EXHAUSTED.
	Throttled
	// Unavailable is an upstream that cannot serve now: HTTP 503. It says nothing about the limit.
	Unavailable
	// Failed is a request without an answer: a broken connection, a time-out, a cancelled context.
	Failed
)

// String returns the outcome's name in lower case.
func (o Outcome) String() string {
	names := [...]string{"unknown", "success", "throttled", "unavailable", "failed"}
	if int(o) < len(names) {
		return names[o]
	}
	return "invalid"
}

// Feedback is what the upstream said about one admitted request. The zero value says nothing.
type Feedback struct {
	Outcome Outcome
	// RetryAfter is how long the upstream asked to wait; 0 when it did not say.
	RetryAfter time.Duration
}

// Sample is one piece of feedback with its times.
type Sample struct {
	Feedback
	// Now and Sent are the instants of the answer and of the admission, counted from one
	// arbitrary origin that never changes while a law lives.
	Now, Sent time.Duration
	// Paced tells that the law's own rate held requests back since the last sample.
	// A law should only grow when it did: an unused rate proves nothing.
	Paced bool
}

// Bounds are what division allows, in events per second.
type Bounds struct {
	// Share is this replica's part of the global limit; 0 when no limit is known.
	Share float64
	// Ceiling is how far a law may go; +Inf when no limit is known.
	Ceiling float64
}

// Law is the state of one key under a policy.
//
// Next takes one sample and returns the rate that is allowed from now on, in events per
// second: finite, positive, and not above b.Ceiling. The first call has the outcome
// Unknown and returns the rate to start at. A law is called by one goroutine at a time.
type Law interface {
	Next(s Sample, b Bounds) float64
}

// Policy makes the laws of the keys.
type Policy interface {
	// New returns a fresh law, or nil when the share itself is the law and nothing is
	// to be learned; keys then carry no state for it.
	New() Law
}

// Fixed is the policy that never learns: every key runs at its share. The zero value is ready.
type Fixed struct{}

// New returns nil: the share is the law.
func (Fixed) New() Law { return nil }
