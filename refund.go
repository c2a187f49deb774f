package quotient

import "time"

// charged is what a permit has taken and may still give back: requests, and events of each unit. The call
// takes when it is admitted, and a correction when it comes.
type charged struct {
	epoch        uint16 // of the gate: what was taken under another limit or pool stays taken
	asked, added [1 + maxUnits]int
	addedAt      time.Duration // when the first of added was
}

// sync forgets what was taken under another limit or pool.
func (c *charged) sync(g *gate) {
	if c.epoch != g.epoch {
		*c = charged{epoch: g.epoch}
	}
}

// charge takes n more events of a unit, whether they are there or not.
func (g *gate) charge(t instant, c *charged, unit, n int) {
	counted := false
	for _, r := range g.setting.order {
		if r.unitID == unit {
			counted = true
			g.resource(r).take(t, r, float64(n))
		}
	}
	if p := g.tally(); p != nil {
		p.taken[unit] += float64(n)
	}
	if counted {
		if c.added == [1 + maxUnits]int{} {
			c.addedAt = t.at
		}
		c.added[unit] += n
	}
}

// discharge gives back n events of a unit that were asked for at an instant. It gives back no more than was
// taken under the present limit and pool, and has not come back by itself. The latest takes go back first.
func (g *gate) discharge(t instant, since time.Duration, c *charged, unit, n int) {
	late := min(n, c.added[unit])
	early := min(n-late, c.asked[unit])
	c.added[unit] -= late
	c.asked[unit] -= early
	if p := g.tally(); p != nil {
		p.taken[unit] -= float64(late + early)
	}
	for _, r := range g.setting.order {
		if r.unitID == unit && r.timed {
			g.resource(r).refund(t, c.addedAt, r, float64(late))
			g.resource(r).refund(t, since, r, float64(early))
		}
	}
}
