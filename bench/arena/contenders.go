package main

import (
	"github.com/quotient-go/quotient/bench/arena/sim"
	"github.com/quotient-go/quotient/policy"
)

const ours, gossips, tests = "quotient", "quotient + gossip", "quotient + tests" // which the goals are about

// contenders returns all contenders, best informed first:
//
//   - oracle: no controller (see sim.Contender). Its losses are due to round trips and to windows that shrink.
//   - quotient: the adaptive controller of this library, policy.Tracking.
//   - quotient + tests: the same, but it tests announced pauses before anything has shown them wrong.
//   - quotient + gossip: the first with reports of the other replicas.
//   - aimd: each replica alone, policy.AIMD.
//   - static: each replica at its share; at the whole limit when there is no hint.
func contenders() []sim.Contender {
	the := func(p policy.Policy) func(*sim.Scenario) policy.Policy {
		return func(*sim.Scenario) policy.Policy { return p }
	}
	return []sim.Contender{
		{Name: "oracle", Shared: true, Deaf: true},
		{Name: ours, Policy: the(policy.Tracking{})},
		{Name: gossips, Policy: the(policy.Tracking{}), Gossip: true},
		{Name: "aimd", Policy: the(policy.AIMD{}), Deaf: true},
		{Name: "static", Policy: func(s *sim.Scenario) policy.Policy { return static(s.Whole()) }, Deaf: true},
	}
}

// static never learns: it is the share, or the whole limit, in events per second or slots, where no share is known.
type static float64

func (p static) New(uint64) policy.Controller { return p }

func (p static) Next(_ policy.Sample, b policy.Bounds) policy.Pace {
	if b.Share > 0 {
		return policy.Pace{Rate: min(b.Share, b.Ceiling)}
	}
	return policy.Pace{Rate: min(float64(p), b.Ceiling)}
}
