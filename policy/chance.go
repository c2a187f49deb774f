package policy

import "time"

const (
	// chanceOver is the length, in seconds, of the times that are compared.
	chanceOver = 7.0
	// chanceLeast and chanceMost bound the part that is refused by chance. Less does no harm; more is for
	// each controller to judge.
	chanceLeast, chanceMost = 0.008, 0.05
	// chanceBelow is the part of the highest sum below which refusals that follow the rate would have ended.
	chanceBelow = 0.95
	// topKept is what stays of the highest sum from one time to the next.
	topKept = 0.97
	// chanceAlike bounds how unlike two parts in a row may be.
	chanceAlike = 2.0
	// chanceFor is how long it holds.
	chanceFor = 5 * time.Minute
)

// chance finds out whether refusals in the fleet follow its rate. Where they stay when all have become slower
// they have another cause, and say nothing about the limit.
type chance struct {
	seconds, events, refused float64 // of the time that runs
	top                      float64 // the highest sum of rates lately
	before                   float64 // the part that was refused in the time before, if that was a slow one; else 0
	part                     float64 // that is refused by chance; 0: none is known
	until                    time.Duration
}

// holds reports whether refusals are by chance.
func (c *chance) holds(now time.Duration) bool { return c.part > 0 && now < c.until }

// count takes in dt seconds of the fleet, and reports whether that has shown that refusals are by chance.
func (c *chance) count(part, sum, dt float64, now time.Duration) bool {
	c.seconds += dt
	c.events += sum * dt
	c.refused += part * sum * dt
	if c.seconds < chanceOver {
		return false
	}
	part, sum = c.refused/max(c.events, leastShare), c.events/c.seconds
	c.seconds, c.events, c.refused = 0, 0, 0
	slow := sum < chanceBelow*c.top
	c.top *= topKept
	if part <= chanceMost {
		c.top = max(c.top, sum)
	}
	return c.judge(part, slow, now)
}

// judge compares a time with the one before.
func (c *chance) judge(part float64, slow bool, now time.Duration) (found bool) {
	before := c.before
	c.before = 0
	switch {
	case part < chanceLeast || part > chanceMost:
		if part < c.part/chanceAlike {
			c.part = 0
		}
	case slow:
		c.before = part
		if before > part/chanceAlike && before < part*chanceAlike {
			found = !c.holds(now)
			c.part, c.until = (part+before)/2, now+chanceFor
		}
	}
	return found
}

// watch finds out whether the fleet is at its limit, by the part that is refused of a sum of rates. When
// refusals turn out to be by chance the rate returns to where the fleet was.
func (t *tracking) watch(sum float64, now time.Duration, elapsed float64) {
	c := &t.company
	if !(sum > 0) {
		c.crowd = false
		return
	}
	part := (c.refused + c.mineThen(now)/lately*t.cost) / sum
	if c.chance.count(part, sum, min(elapsed, longestStep), now) {
		t.plateau.top = max(t.plateau.top, t.rate*min(c.chance.top/sum, 1/chanceBelow/chanceBelow))
	}
	c.crowd = !c.chance.holds(now) && part > crowdPart+t.cost/(sum*lately)
}
