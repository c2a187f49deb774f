// Package contenders holds what the arena compares: the controller of this library, and the ways to share a
// limit that it is measured against.
package contenders

import (
	"fmt"
	"slices"
	"time"

	"github.com/quotient-go/quotient/bench/arena/sim"
	"github.com/quotient-go/quotient/policy"
)

// Names of contenders.
const (
	Ours      = "quotient"          // the one that the goals are about
	Gossiping = "quotient + gossip" // the same with reports of the other replicas
	Stops     = "gossip that stops" // the same with reports that stop
	Before    = "eight rules"       // the best that was known before
)

// ours is the policy behind it.
var ours policy.Policy = policy.Tracking{}

// OurPolicy is the type of that policy, so that a report says what it was made with.
func OurPolicy() string { return fmt.Sprintf("%T", ours) }

// Contenders returns all contenders, best informed first:
//
//   - oracle: all replicas draw from one bucket that is filled at the upstream's limit of that instant (see
//     sim.Contender). Its losses are due to round trips and to windows that shrink.
//   - coordinated: a coordinator divides the limit that it was configured with, once a second (see WaterFill).
//   - quotient: the adaptive controller of this library, policy.Tracking.
//   - eight rules: each replica alone, the best controller that was known before (see Eight).
//   - cubic: each replica alone, growing along the curve of RFC 9438 (see Cubic).
//   - aimd: each replica alone, policy.AIMD.
//   - aws: each replica behind the client rate limiter of the AWS SDK's adaptive mode (see AWS).
//   - static: each replica at its share; at the whole limit when there is no hint.
//   - no hint static: each replica at the whole limit, as if it were alone.
func Contenders() []sim.Contender {
	return []sim.Contender{
		{Name: "oracle", Shared: true, Deaf: true},
		{Name: "coordinated", Coordinate: WaterFill, RatesOnly: true, Deaf: true},
		{Name: Ours, Policy: the(ours)},
		{Name: Before, Policy: the(Eight{})},
		{Name: "cubic", Policy: the(Cubic{}), Deaf: true},
		{Name: "aimd", Policy: the(policy.AIMD{}), Deaf: true},
		{Name: "aws", Policy: the(AWS{}), RatesOnly: true, Burst: 1, Deaf: true},
		{Name: "static", Deaf: true, Policy: func(s *sim.Scenario) policy.Policy { return Static{Whole: s.Whole()} }},
		{Name: "no hint static", Deaf: true, Policy: func(s *sim.Scenario) policy.Policy {
			return Static{Whole: s.Whole(), Blind: true}
		}},
	}
}

// Gossip returns the controller of this library alone, with reports of the other replicas, and with reports
// that stops after two minutes.
func Gossip() []sim.Contender {
	stops := sim.Gossiping()
	stops.Stops = 2 * time.Minute
	return []sim.Contender{
		{Name: Ours, Policy: the(ours)},
		{Name: Gossiping, Policy: the(ours), Gossip: sim.Gossiping()},
		{Name: Stops, Policy: the(ours), Gossip: stops},
	}
}

func the(p policy.Policy) func(*sim.Scenario) policy.Policy {
	return func(*sim.Scenario) policy.Policy { return p }
}

// Static is the policy that never learns: the share, or the whole limit where no share is known.
type Static struct {
	Whole float64 // events per second, or slots
	Blind bool    // ignore the hint
}

// New returns the controller.
func (p Static) New(uint64) policy.Controller { return p }

// Next returns the share or the whole limit, whatever the sample.
func (p Static) Next(_ policy.Sample, b policy.Bounds) policy.Pace {
	if b.Share > 0 && !p.Blind {
		return policy.Pace{Rate: min(b.Share, b.Ceiling)}
	}
	return policy.Pace{Rate: min(p.Whole, b.Ceiling)}
}

// WaterFill divides a limit in proportion to what each replica wants. Where all want more than there is, a
// want counts only up to the water level: the level at which the limit is just used up. So no client gets
// more by wanting more than that, and the others get what the modest leave.
func WaterFill(limit float64, wants, rates []float64) {
	level := level(limit, wants)
	sum := 0.0
	for _, w := range wants {
		sum += min(w, level)
	}
	for i, w := range wants {
		rates[i] = 0
		if sum > 0 {
			rates[i] = limit * min(w, level) / sum
		}
	}
}

// level is the water level: the sum of all wants, each cut to it, is the limit, or less when all are content.
func level(limit float64, wants []float64) float64 {
	sorted := slices.Sorted(slices.Values(wants))
	left := limit
	for i, w := range sorted {
		if even := left / float64(len(sorted)-i); w > even {
			return even
		}
		left -= w
	}
	return limit
}
