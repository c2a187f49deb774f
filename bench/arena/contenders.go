package main

import (
	"slices"

	"github.com/quotient-go/quotient/bench/arena/sim"
	"github.com/quotient-go/quotient/policy"
)

const ours = "quotient" // the contender that the goals are about

// contenders returns all contenders, best informed first:
//
//   - oracle: all replicas draw from one bucket that is filled at the upstream's limit of that instant (see
//     sim.Contender). Its losses are due to round trips and to windows that shrink.
//   - coordinated: a coordinator divides the limit that it was configured with, once a second (see waterFill).
//   - quotient: the adaptive controller of this library, policy.Tracking.
//   - quotient + gossip: the same with reports of the other replicas.
//   - aimd: each replica alone, policy.AIMD.
//   - static: each replica at its share; at the whole limit when there is no hint.
//   - no hint static: each replica at the whole limit, as if it were alone.
func contenders() []sim.Contender {
	the := func(p policy.Policy) func(*sim.Scenario) policy.Policy {
		return func(*sim.Scenario) policy.Policy { return p }
	}
	fixed := func(blind bool) func(*sim.Scenario) policy.Policy {
		return func(s *sim.Scenario) policy.Policy { return static{s.Whole(), blind} }
	}
	return []sim.Contender{
		{Name: "oracle", Shared: true, Deaf: true},
		{Name: "coordinated", Coordinate: waterFill, Deaf: true},
		{Name: ours, Policy: the(policy.Tracking{})},
		{Name: ours + " + gossip", Policy: the(policy.Tracking{}), Gossip: true},
		{Name: "aimd", Policy: the(policy.AIMD{}), Deaf: true},
		{Name: "static", Policy: fixed(false), Deaf: true},
		{Name: "no hint static", Policy: fixed(true), Deaf: true},
	}
}

// static never learns: it is the share, or the whole limit where no share is known.
type static struct {
	whole float64 // events per second, or slots
	blind bool    // ignore the hint
}

func (p static) New(uint64) policy.Controller { return p }

func (p static) Next(_ policy.Sample, b policy.Bounds) policy.Pace {
	if b.Share > 0 && !p.blind {
		return policy.Pace{Rate: min(b.Share, b.Ceiling)}
	}
	return policy.Pace{Rate: min(p.whole, b.Ceiling)}
}

// waterFill divides a limit in proportion to what each replica wants. Where all want more than there is, a
// want counts only up to the water level: the level at which the limit is just used up. So no client gets
// more by wanting more than that, and the others get what the modest leave.
func waterFill(limit float64, wants []float64) (rates []float64) {
	level, left := limit, limit
	for i, w := range slices.Sorted(slices.Values(wants)) {
		if even := left / float64(len(wants)-i); w > even {
			level = even
			break
		}
		left -= w
	}
	sum := 0.0
	for _, w := range wants {
		sum += min(w, level)
	}
	for _, w := range wants {
		rates = append(rates, limit*min(w, level)/sum)
	}
	return rates
}
