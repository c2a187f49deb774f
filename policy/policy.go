package policy

import (
	"math"
	"time"
)

// Outcome is what became of one admitted request.
type Outcome uint8

// The outcomes. The zero value means that no answer came.
const (
	// Unknown is no answer of the upstream: only the time or the bounds have changed.
	Unknown Outcome = iota
	// Success is any answer that does not complain about the rate.
	Success
	// Throttled is a refusal for the rate: HTTP 429, RESOURCE_EXHAUSTED.
	Throttled
	// Unavailable is an upstream that cannot serve now: HTTP 503. It proves nothing about the limit.
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

// Quota is an upstream's report on one of its quotas, in RateLimit fields or the like. The zero value means
// no report.
type Quota struct {
	// Unit is what is counted: "" for requests, or the Unit of a rate, such as "tokens".
	Unit string
	// Limit is the whole quota, in units; 0 or less when it was not given.
	Limit float64
	// Remaining is what is left of it, in units, 0 or more.
	Remaining float64
	// Reset is how long it takes until the quota is renewed, or full again; 0 when it was not given.
	Reset time.Duration
}

// Known reports whether the quota can be used: it has a positive limit, and what is left of it.
func (q Quota) Known() bool {
	return q.Limit > 0 && q.Limit <= math.MaxFloat64 && q.Remaining >= 0 && q.Remaining <= math.MaxFloat64
}

// MaxQuotas is how many quotas one piece of feedback holds: requests and tokens, in and out, are four.
const MaxQuotas = 4

// Feedback is the upstream's answer to one admitted request, as far as it concerns limits. The zero value
// means no answer.
type Feedback struct {
	Outcome Outcome
	// RetryAfter is the wait that the upstream demands; 0 if it gave none.
	RetryAfter time.Duration
	// Quotas are its reported quotas, at most one for each unit; those that are not Known are ignored.
	Quotas [MaxQuotas]Quota
}

// Sample is one piece of feedback as a controller sees it. A controller governs one resource: the events of
// one unit, or the slots in flight.
type Sample struct {
	Outcome Outcome
	// RetryAfter is the wait that the upstream demands. With the outcome Unknown it comes from a refusal that
	// another controller of the key answers for.
	RetryAfter time.Duration
	// Quota is what the answer reported about the unit that the controller governs.
	Quota Quota
	// Now and Sent are the instants of the answer and of the admission, on a monotonic clock with any
	// origin. From a Limiter, Now never goes back for a controller. It is read from the clock, unless the answer is a
	// mere Success, no controller governs slots and no pace expires (Pace.Until): to save a reading of the clock, such
	// an answer has the instant of the key's latest admission or feedback.
	Now, Sent time.Duration
	// Cost is what the request took of what the controller governs: events, of which a request of weight 1 is one, or
	// for slots in flight the seconds that it held them. A rate divided by the cost is requests per second.
	// 0 or less means that it is not known, as for slots when the request did not succeed.
	Cost float64
	// Taken is what was admitted of what the controller governs, less what was given back unused, since the
	// controller got its last sample. It counts events; for slots in flight, the slot-seconds of the request
	// that this sample is of.
	Taken float64
	// Paced reports whether the controller's own pace held requests back since the last sample. A controller
	// should only grow when it did: an unused rate proves nothing.
	Paced bool
}

// Bounds are what division allows, in events per second, or in slots.
type Bounds struct {
	// Share is this replica's part of the global limit; 0 when the limit or the pool is not known.
	Share float64
	// Ceiling is how far a controller may go; +Inf when no limit is known.
	Ceiling float64
	// Fleet is the sum of the replicas' reports; nil without them. A Fleet never changes: a new report is a new
	// Fleet. A controller may ignore it.
	Fleet *Fleet
}

// leastShare, one event in thirty years, is the smallest share that is told from none.
const leastShare = 1e-9

// known tells a usable share from none.
func known(share float64) bool { return share >= leastShare && !math.IsInf(share, 1) }

// Pace is what a controller allows from now on.
type Pace struct {
	// Rate is in events per second, or in slots: finite, positive, and at most Bounds.Ceiling. Behind NotBefore and
	// probes it is what the controller expects to allow. The turns of callers that wait are computed by it.
	Rate float64
	// NotBefore is the instant before which nothing is admitted, on the clock of Sample.Now. At it the bucket holds
	// one event, so one request for one event passes, and further ones follow at Rate, or as probes. A controller of
	// slots has no rate of events: there they follow at Rate divided by the seconds for which requests that succeeded
	// held a slot, or all at once while none has succeeded or Rate is all of the slots. An instant that has passed
	// means now, and one more than an hour ahead means an hour.
	NotBefore time.Duration
	// Until is the instant from which on the pace is out of date, on the clock of Sample.Now. The first call
	// at it or later makes the limiter call Next with the outcome Unknown. 0 means that only feedback
	// changes the pace. A controller that gives Until at its start is also started by the first call of its
	// key, and not by the first feedback.
	Until time.Duration
	// Saved is the time whose events may be saved up while no request comes: the bucket holds Rate times
	// Saved, at least one event. 0 means a tenth of a second. Below 0 the controller probes: see Probing.
	Saved time.Duration
}

// Probing returns the pace of a controller that has to see an answer before it allows Rate. From NotBefore
// on single requests pass, one in each period of every, whatever they cost, until the controller gives
// another pace. 0 or less means no probes, and more than an hour an hour. It takes the place of Saved. No
// caller is refused because of the time between probes: when one is answered is not known.
func (p Pace) Probing(every time.Duration) Pace {
	p.Saved = -max(0, every)
	return p
}

// Probe returns the time between two probes of a pace that is Probing, and 0 for any other.
func (p Pace) Probe() time.Duration { return max(0, -p.Saved) }

// Controller is the state of one key under a policy, for the events of one unit or for slots in flight.
//
// Next takes one sample and returns the pace from now on. The first call has the outcome Unknown and returns
// the pace to start at. A controller is called by one goroutine at a time.
type Controller interface {
	Next(s Sample, b Bounds) Pace
}

// Policy makes the controllers of the keys.
type Policy interface {
	// New returns a fresh controller, or nil when every key runs at its share and nothing is to be learned;
	// keys then carry no state for it. All that a controller does at random follows from the seed.
	New(seed uint64) Controller
}

// Fixed is the policy that never learns: every key runs at its share. The zero value is ready.
type Fixed struct{}

// New returns nil: every key runs at its share.
func (Fixed) New(uint64) Controller { return nil }

// Fleet is the sum of the reports of all replicas, this one included, about what a controller governs. The zero
// value means no report; a controller then uses its own answers alone. A controller gets a Fleet only while it
// is complete and at most a few seconds old.
//
// Weights are in units of this replica's own: each of equal replicas counts 1. Rates are in the units of Pace.Rate:
// events per second, or slots. They are plain sums over the replicas. A controller survives any reports, true or not.
type Fleet struct {
	// Weight is of all known replicas, this one included: 1 or more, or 0 when there is no report.
	Weight float64
	// Limit is what Bounds.Share is a part of, in events per second or slots. It is the share times the number of
	// parts that it was computed with, which may differ from Weight for a while, and 0 when the share is.
	Limit float64
	// Wanting is the weight of the replicas that want more than they have (Report.Wanting), at most Weight.
	Wanting float64
	// Rate is the sum of what those allow themselves.
	Rate float64
	// Used is the sum of what the others use.
	Used float64
	// Refused is the sum of what all are refused, in the units of Rate.
	Refused float64
}

// known reports whether there is a report. The figures of a known report may still be anything.
func (f *Fleet) known() bool { return f != nil && f.Weight >= 1 && f.Weight <= math.MaxFloat64 }

// sound reports whether there is a report that can be computed with.
func (f *Fleet) sound() bool {
	return f.known() && f.Weight <= greatestRate && f.Wanting >= 0 && f.Rate >= 0 && f.Used >= 0 && f.Refused >= 0 &&
		f.Rate+f.Used+f.Refused <= greatestRate
}

// Report is what a controller lets its replica send to the fleet. The sum of all reports is a Fleet. The
// zero value reports no use.
type Report struct {
	// Wanting reports whether the pace holds requests back, or the replica uses more than the replicas that
	// want more may use.
	Wanting bool
	// Rate is what the replica allows itself if it is Wanting, else what it uses, in the units of Pace.Rate: finite, 0
	// or more.
	Rate float64
	// Refused is how much of what it sends is refused, in the units of Rate: finite, 0 or more.
	Refused float64
}

// Reporter is a Controller that uses reports of the fleet; others get none. A limiter passes its Report on
// to the other replicas about as often as its source exchanges numbers. When their reports have come it calls Next with
// the outcome Unknown and the new Bounds.
type Reporter interface {
	Controller
	// Report returns what the replica is to pass on at an instant, on the clock of Sample.Now. It changes
	// nothing, and is called as Next is: by one goroutine at a time. The use fades while no feedback comes.
	Report(now time.Duration) Report
}
