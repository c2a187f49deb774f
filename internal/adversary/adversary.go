// Package adversary is a policy whose controllers answer anything, for tests of what a limiter makes of it.
package adversary

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Policy is the adversary. The same seed gives the same answers.
type Policy struct {
	Seed    uint64
	Calm    bool // controllers start at 5
	Expires bool // some of their paces do
}

// New is policy.Policy's.
func (a Policy) New(seed uint64) policy.Controller {
	return &controller{rand.New(rand.NewPCG(a.Seed, seed)), a.Calm, a.Expires}
}

type controller struct {
	*rand.Rand
	calm, expires bool
}

// Next is policy.Controller's.
func (l *controller) Next(s policy.Sample, b policy.Bounds) policy.Pace {
	if l.calm {
		l.calm = false
		return policy.Pace{Rate: min(b.Ceiling, 5)}
	}
	odd := []float64{
		math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, math.MaxFloat64, math.SmallestNonzeroFloat64, 1e-9,
		b.Ceiling, b.Share, 1e6,
	}
	p := policy.Pace{Rate: odd[l.IntN(len(odd))]}
	if l.IntN(2) == 0 {
		p.Rate = b.Ceiling * math.Exp(2-6*l.Float64())
	}
	switch l.IntN(12) {
	case 0:
		p.NotBefore = s.Now + time.Duration(math.Exp(math.Log(1e10)*l.Float64())) // up to ten seconds
	case 1:
		p.NotBefore = []time.Duration{math.MinInt64, -1, s.Now, s.Now - 1, math.MaxInt64}[l.IntN(5)]
	}
	if l.expires && l.IntN(8) == 0 {
		p.Until = s.Now + time.Duration(l.IntN(3000))*time.Millisecond
	}
	switch l.IntN(6) {
	case 0:
		p = p.Probing(time.Microsecond + time.Duration(math.Exp(math.Log(1e10)*l.Float64())))
	case 1:
		p = p.Probing([]time.Duration{math.MinInt64, -1, time.Microsecond, time.Hour,
			math.MaxInt64}[l.IntN(5)])
	}
	return p
}
