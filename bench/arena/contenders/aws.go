package contenders

import (
	"math"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Constants of adaptive mode, as aws-sdk-go-v2 v1.47.7 has them in aws/retry.
const (
	awsSmooth  = 0.8 // weight of the newest half second in the measured rate
	awsBeta    = 0.7 // a throttled client falls to this part of its rate
	awsScale   = 0.4 // events per second, per cubic second
	awsMinFill = 0.5 // events per second
	awsFree    = 1e9 // events per second: no limit until the first refusal
)

// AWS is the client rate limiter of the AWS SDK for Go, adaptive retry mode. It is unlimited until the first
// refusal. Then it is a token bucket of one second whose fill rate follows a cubic curve, but never more
// than twice the measured rate of answers. The SDK's own reads the wall clock and sleeps, which cannot be
// simulated for hours, so this is a re-implementation; a test drives both through the same refusals and
// compares.
//
// It knows no hint and no Retry-After. The SDK also retries; the arena does not, for any controller. Its
// bucket is not part of the controller: play it with one second of burst (sim.Contender.Burst). That bucket
// fills slowly before the first refusal switches it on. Where it would be less than half full, the
// controller returns a NotBefore of that instant, which empties the arena's.
//
// The zero value is ready to use.
type AWS struct{}

// New returns a fresh controller; the seed is not used.
func (AWS) New(uint64) policy.Controller { return &aws{} }

type aws struct {
	started   bool
	limited   bool
	fill      float64
	measured  float64 // answers per second
	count     float64 // answers since bucket
	bucket    float64 // the half second that count is about, in seconds
	most      float64 // the rate at the last refusal
	throttled time.Duration
	spare     float64 // what the bucket would hold, until the first refusal
	last      time.Duration
}

// Next counts one answer and moves the fill rate. Anything that is not a refusal is a success, as in the SDK.
func (a *aws) Next(s policy.Sample, b policy.Bounds) policy.Pace {
	if !a.started {
		a.started, a.bucket, a.throttled, a.last = true, math.Floor(s.Now.Seconds()), s.Now, s.Now
	}
	was := a.limited
	if s.Outcome != policy.Unknown {
		a.spare += a.fill * (s.Now - a.last).Seconds()
		a.last = s.Now
		a.measure(s.Now)
		a.fill = max(min(a.curve(s), 2*a.measured), awsMinFill)
		a.spare = min(a.spare, max(a.fill, 1))
	}
	if !a.limited {
		return policy.Pace{Rate: min(awsFree, b.Ceiling)}
	}
	p := policy.Pace{Rate: min(a.fill, b.Ceiling)}
	if !was && a.spare < max(a.fill, 1)/2 {
		p.NotBefore = s.Now + 1
	}
	return p
}

// measure smooths the rate of answers, once each half second.
func (a *aws) measure(now time.Duration) {
	half := math.Floor(now.Seconds()*2) / 2
	a.count++
	if half > a.bucket {
		a.measured = a.count/(half-a.bucket)*awsSmooth + a.measured*(1-awsSmooth)
		a.count, a.bucket = 0, half
	}
}

// curve is the rate by the cubic curve alone.
func (a *aws) curve(s policy.Sample) float64 {
	if s.Outcome == policy.Throttled {
		rate := a.measured
		if a.limited {
			rate = min(rate, a.fill)
		}
		a.most, a.throttled, a.limited = rate, s.Now, true
		return rate * awsBeta
	}
	window := math.Cbrt(a.most * (1 - awsBeta) / awsScale)
	return awsScale*math.Pow((s.Now-a.throttled).Seconds()-window, 3) + a.most
}
