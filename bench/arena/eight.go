package main

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// eightRules is the best controller known before the one of this library: eight rules, as on the page from which
// this library was designed. It is here to be compared with, constants and all. Its pace is the arena's own,
// and Retry-After counts in blackouts alone.
type eightRules struct{}

// New returns a controller that starts at the share, or at 5 events per second.
func (eightRules) New(seed uint64) policy.Controller {
	return &eight{random: rand.New(rand.NewPCG(seed, 1)), cutAt: math.MinInt64 / 2}
}

// The constants of the eight rules, in their order. Times are in seconds, rates in events per second.
const (
	eightStart, eightLeast, eightLeastPart          = 5.0, .02, .02 // the last is of the share
	eightTrusted                                    = .99           // of the share
	eightRef, eightExp, eightExpNoHint              = 10.0, .5, .25
	eightPeriod, eightShort, eightLong, eightCycles = 8.0, 2.0, 180.0, 3.0
	eightCut, eightCutMost, eightReturn             = .12, .4, .4
	eightForget, eightForgetSent                    = 2.0, 20.0 // seconds, requests
	eightPrior, eightHeavy                          = 8.0, .12
	eightBack, eightFirst, eightEager               = 2.0, 20, .1 // to the floor; successes before the first 429; a second
	eightGrowth, eightTopIn, eightDouble            = .2, .3, 2.0
	eightStep, eightIdle                            = 1.0 / 16, 30.0 // doublings a success, seconds
	eightDark, eightProbe, eightProbeMost           = .8, .5, 30.0
	eightProbeRate, eightWall, eightJitter          = .1, 2, .1 // probes before the clock's minute is looked at
	eightQuota, eightGain, eightLoss                = 5, .35, .4
	eightMargin, eightKept, eightBelieved           = .01, .8, 6.0 // the last in periods
	eightLeaky, eightOver, eightOverMost            = 3.0, 8.0, 20.0
	eightDrain, eightLeastDrain, eightRenewed       = 3.0, 1e-3, .5
)

// eight is one controller.
type eight struct {
	random *rand.Rand
	now    time.Duration
	hint   float64
	floor  float64 // trusted
	rate   float64
	top    float64 // where the last cut was
	quiet  float64 // seconds of growth since
	cutAt  time.Duration

	answers, refusals float64 // which fade
	successes         int
	refused           bool          // ever
	lastRefusal       time.Duration // when

	bad      bool // nothing but refusals since firstBad
	firstBad time.Duration
	dark     bool
	probes   int
	until    time.Duration
	ended    time.Duration // the last blackout
	served   float64       // since
	cycle    float64       // for cycleFor seconds more
	cycleFor float64

	limit, least float64 // of the quota; the least left since leastAt
	leastAt      time.Duration
	used         float64 // a second; below 0: not known
	left         float64 // when
	leftAt       time.Duration
	free         float64
	measured     bool
}

// Next implements policy.Controller.
func (l *eight) Next(s policy.Sample, b policy.Bounds) policy.Pace {
	if l.rate == 0 {
		l.begin(s.Now, b.Share)
	}
	l.follow(b.Share)
	dt := min(max((s.Now-l.now).Seconds(), 0), 1)
	l.now = max(l.now, s.Now)
	keep := math.Exp(-dt / max(eightForget, eightForgetSent/l.rate))
	l.answers, l.refusals = l.answers*keep, l.refusals*keep
	switch s.Outcome {
	case policy.Success:
		l.answers, l.served, l.successes = l.answers+1, l.served+1, l.successes+1
		l.success(&s, dt)
	case policy.Throttled:
		l.answers, l.refusals = l.answers+1, l.refusals+1
		l.throttled(&s)
	}
	l.rate = min(max(l.rate, eightLeast, eightLeastPart*l.hint), b.Ceiling)
	if l.dark {
		return policy.Pace{Rate: min(eightProbeRate, b.Ceiling), NotBefore: l.until}
	}
	return policy.Pace{Rate: l.rate}
}

func (l *eight) begin(now time.Duration, share float64) {
	l.rate, l.now, l.ended, l.lastRefusal = eightStart, now, now, now
	if share > 0 {
		l.rate = share
	}
	l.top = l.rate
}

// follow takes over a hint.
func (l *eight) follow(share float64) {
	if share == l.hint {
		return
	}
	l.floor = eightTrusted * share
	if share < l.hint && l.rate > share {
		l.top = max(share, min(l.top, l.rate))
	}
	l.hint = share
}

// reference is the rate that growth is a part of.
func (l *eight) reference() float64 {
	switch {
	case l.hint <= 0:
		return l.rate
	case l.rate > l.hint:
		return math.Sqrt(l.rate * l.hint)
	}
	return min(max(l.rate, l.floor), l.hint)
}

func (l *eight) slowness() float64 {
	e := eightExpNoHint
	if l.hint > 0 {
		e = eightExp
	}
	return math.Pow(eightRef/l.reference(), e)
}

// period is the time between two probes.
func (l *eight) period() float64 {
	k := min(max(eightPeriod*l.slowness(), eightShort), eightLong)
	if l.cycleFor > 0 {
		k = max(k, l.cycle)
	}
	return k
}

func (l *eight) throttled(s *policy.Sample) {
	if l.lastRefusal = s.Now; !l.bad {
		l.bad, l.firstBad = true, s.Now
	}
	switch {
	case l.dark:
		if s.Sent >= l.until {
			l.wait(s)
		}
	case (s.Now-l.firstBad).Seconds() > max(eightDark, 1/l.rate) && s.Sent >= l.firstBad:
		l.dark, l.probes = true, 0
		l.wait(s)
	default:
		l.refused = true
		if s.Sent >= l.cutAt {
			l.cut(s.Now)
		}
	}
}

func (l *eight) cut(now time.Duration) {
	x := l.rate * (1 - min(eightCutMost, eightCut*l.slowness()))
	switch {
	case l.floor <= 0:
	case l.refusals/(l.answers+eightPrior) < eightHeavy:
		x = max(x, min(l.rate, l.floor))
	default:
		l.floor = min(l.floor, x)
	}
	l.top = l.rate - eightReturn*(l.rate-x)
	l.rate, l.quiet, l.cutAt = x, 0, now
}

// wait sets when the next probe of a blackout may go.
func (l *eight) wait(s *policy.Sample) {
	d := min(max(eightProbe, 1/l.rate)*math.Pow(2, float64(l.probes))*(.5+l.random.Float64()), eightProbeMost)
	switch told := s.RetryAfter.Seconds(); {
	case told > 0:
		d = told * (1 + eightJitter*l.random.Float64())
	case l.probes >= eightWall:
		edge := (s.Now/time.Minute + 1) * time.Minute
		d = min(d, (edge-s.Now).Seconds()+.5+l.random.Float64())
	}
	l.probes = min(l.probes+1, 10)
	l.until = s.Now + time.Duration(d*1e9)
}

func (l *eight) success(s *policy.Sample, dt float64) {
	l.bad = false
	if l.dark {
		l.light(s.Now)
		return
	}
	l.cycleFor = max(0, l.cycleFor-dt)
	if q := s.Quota; q.Known() && q.Limit >= eightQuota && q.Reset <= 24*time.Hour && l.steers(s, dt) {
		return
	}
	switch {
	case s.Paced:
		l.grow(dt)
	case l.hint > 0 && l.rate > l.hint:
		l.rate = l.hint + (l.rate-l.hint)*math.Exp(-dt/eightIdle)
	}
}

// light ends a blackout: what was served since the last one is the rate.
func (l *eight) light(now time.Duration) {
	took := (now - l.ended).Seconds()
	l.rate = max(1, l.served) / max(took, .1)
	l.quiet, l.cycle, l.cycleFor = 0, took, eightCycles*took
	l.dark, l.until, l.ended, l.served, l.cutAt = false, 0, now, 0, now
	l.floor = min(l.floor, l.rate)
	l.top = l.rate
}

func (l *eight) grow(dt float64) {
	x := l.rate
	switch {
	case x < l.floor:
		x = min(x+l.floor*dt/eightBack, l.floor)
	case l.hint > 0 && !l.refused && l.successes > eightFirst:
		x += x * eightEager * dt
	default:
		l.quiet += dt
		k := l.period()
		phase := l.quiet / k
		x += l.reference() * eightGrowth * phase * phase * phase * dt / k
		if x < l.top {
			x += (l.top - x) * dt / (eightTopIn * k)
		}
	}
	l.rise(x, dt)
}

func (l *eight) rise(x, dt float64) {
	l.rate = max(l.rate, min(x, l.rate*math.Pow(2, dt/eightDouble), l.rate*math.Pow(2, eightStep)))
}

// steers sets the rate by the fields, and reports whether it did.
func (l *eight) steers(s *policy.Sample, dt float64) bool {
	q := s.Quota
	if l.limit != q.Limit {
		l.limit, l.measured, l.used = q.Limit, false, -1
		l.least, l.leastAt, l.left, l.leftAt = q.Remaining, s.Now, q.Remaining, s.Now
	}
	if l.measured && l.free <= 0 && (s.Now-l.lastRefusal).Seconds() > eightBelieved*l.period() {
		return false
	}
	known := true
	if q.Reset.Seconds() <= eightLeaky {
		l.lowest(q, s.Now)
	} else {
		known = l.drain(q, s.Now)
	}
	switch {
	case !known || !l.measured:
	case l.free <= 0:
		l.rate = max(l.rate*(1+eightLoss*l.free*dt), min(l.rate, eightKept*l.top))
	case s.Paced:
		l.rise(l.rate+l.reference()*eightGain*l.free*dt, dt)
	}
	return true
}

// lowest judges by the least that was left.
func (l *eight) lowest(q policy.Quota, now time.Duration) {
	l.least = min(l.least, q.Remaining)
	if (now - l.leastAt).Seconds() >= min(max(eightOver/l.rate, 1), eightOverMost) {
		l.free, l.measured = l.least/q.Limit-eightMargin, true
		l.least, l.leastAt = q.Remaining, now
	} else if left := q.Remaining/q.Limit - eightMargin; left < l.free {
		l.free = left
	}
}

// drain judges by how fast all together use the quota up, and reports whether that is known.
func (l *eight) drain(q policy.Quota, now time.Duration) bool {
	switch took := (now - l.leftAt).Seconds(); {
	case q.Remaining > l.left+eightRenewed:
		l.left, l.leftAt = q.Remaining, now
	case took >= max(eightDrain, eightDrain/l.rate):
		l.used = (l.left - q.Remaining) / took
		l.left, l.leftAt = q.Remaining, now
	}
	if l.used < 0 {
		return false
	}
	l.measured = true
	l.free = min(1, (q.Remaining-1)/q.Reset.Seconds()/max(l.used, eightLeastDrain)-1)
	return true
}
