package quotient

import (
	"math"
	"testing"
)

// What is left of a division goes to the lowest fixed ordinals, one each.
func TestSlotsAreDivided(t *testing.T) {
	for _, c := range []struct {
		global int
		pool   Pool
		strict int // slots of this replica
		least  int // with AtLeastOne
	}{
		{10, Pool{Replicas: 1}, 10, 10},
		{10, Pool{Replicas: 4}, 2, 2},
		{10, Pool{Replicas: 4, Ordinal: 1}, 2, 2}, // not fixed
		{10, Pool{Replicas: 4, Ordinal: 1, Fixed: true}, 3, 3},
		{10, Pool{Replicas: 4, Ordinal: 2, Fixed: true}, 3, 3},
		{10, Pool{Replicas: 4, Ordinal: 3, Fixed: true}, 2, 2},
		{10, Pool{Replicas: 4, Fixed: true}, 2, 2}, // fixed, and not known
		{3, Pool{Replicas: 4}, 0, 1},
		{3, Pool{Replicas: 4, Ordinal: 3, Fixed: true}, 1, 1},
		{3, Pool{Replicas: 4, Ordinal: 4, Fixed: true}, 0, 1},
		{maxInFlight, Pool{Replicas: 1}, maxInFlight, maxInFlight},
	} {
		l := mustNew(t, Limit{InFlight: c.global}, StartPool(c.pool))
		upTo(t, l, "k", math.MaxInt, c.strict)
		if c.strict == 0 {
			refusedFor(t, l, ReasonShare, "k")
		}
		upTo(t, mustNew(t, Limit{InFlight: c.global}, StartPool(c.pool), AtLeastOne()), "k", math.MaxInt,
			c.least)
	}
}
