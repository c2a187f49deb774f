package contenders

import (
	"math"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Constants of RFC 9438, sections 4.6 and 4.1.2 ("beta_cubic SHOULD be 0.7", "C SHOULD be 0.4").
const (
	cubicBeta = 0.7
	cubicC    = 0.4 // events per second, per cubic second
)

// Cubic is the window growth of RFC 9438 applied to a rate: events per second stand for segments of the
// window. A refusal cuts to 0.7 and starts W(t) = C (t - K)^3 + Wmax with K = cbrt((Wmax - W)/C). Fast
// convergence (section 4.7) lowers Wmax further when the rate falls short of the last one. One cut for each
// round of feedback. Growth only while the pace holds requests back (section 5.8), at most by half a second.
//
// Left out is the Reno-friendly region: it counts in windows per round trip, which a rate does not
// have. It starts at the share, already past slow start; without one at 5 per second, doubling each second until
// the first refusal.
//
// The zero value is ready to use.
type Cubic struct{}

// New returns a fresh controller; the seed is not used.
func (Cubic) New(uint64) policy.Controller { return &cubic{} }

type cubic struct {
	rate  float64
	most  float64 // Wmax; 0 in slow start
	k     float64 // seconds from the cut to Wmax
	epoch float64 // seconds of growth since the cut
	last  time.Duration
	cut   time.Duration
}

// Next grows or cuts.
func (c *cubic) Next(s policy.Sample, b policy.Bounds) policy.Pace {
	if c.rate == 0 {
		c.begin(s.Now, b)
	}
	dt := min(max((s.Now-c.last).Seconds(), 0), 1)
	c.last = max(c.last, s.Now)
	switch {
	case s.Outcome == policy.Throttled && s.Sent >= c.cut:
		c.throttle(s.Now)
	case s.Outcome == policy.Success && s.Paced:
		c.grow(dt)
	}
	c.rate = min(max(c.rate, leastRate), b.Ceiling)
	return policy.Pace{Rate: c.rate}
}

const (
	leastRate = 0.02 // events per second: probing must go on
	startRate = 5.0  // events per second, without a hint; as policy.AIMD
)

func (c *cubic) begin(now time.Duration, b policy.Bounds) {
	c.rate, c.last, c.cut = startRate, now, math.MinInt64
	if b.Share > 0 {
		c.rate, c.most = b.Share, b.Share
	}
}

func (c *cubic) throttle(now time.Duration) {
	last := c.most
	c.most = c.rate
	if c.rate < last {
		c.most = c.rate * (1 + cubicBeta) / 2
	}
	c.rate *= cubicBeta
	c.k = math.Cbrt((c.most - c.rate) / cubicC)
	c.epoch, c.cut = 0, now
}

func (c *cubic) grow(dt float64) {
	if c.most == 0 {
		c.rate *= math.Exp2(dt)
		return
	}
	c.epoch += dt
	target := cubicC*math.Pow(c.epoch-c.k, 3) + c.most
	c.rate = max(c.rate, min(target, c.rate*(1+dt/2)))
}
