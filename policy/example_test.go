package policy_test

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/quotient-go/quotient/policy"
)

type obedient struct{}

func (obedient) New(uint64) policy.Controller { return new(obeying) }

type obeying struct{ until time.Duration }

func (c *obeying) Next(s policy.Sample, b policy.Bounds) policy.Pace {
	if s.Outcome == policy.Throttled {
		c.until = max(c.until, s.Now+s.RetryAfter)
	}
	return policy.Pace{Rate: cmp.Or(b.Share, 1), NotBefore: c.until} // the share is 0 where it is not known
}

// A policy of one's own: what it does is tested without a clock.
func ExamplePolicy() {
	controller, bounds := obedient{}.New(1), policy.Bounds{Share: 10, Ceiling: 10}
	refused := policy.Sample{Outcome: policy.Throttled, RetryAfter: time.Minute, Now: 5 * time.Second}
	pace := controller.Next(refused, bounds)
	fmt.Println(pace.Rate, "a second, not before", pace.NotBefore)
	// Output: 10 a second, not before 1m5s
}

// A controller joined by hand to another program's client: ten requests a second, answered after 40 ms, at a
// share of ten. For two seconds everything is refused.
func ExampleTracking() {
	ctrl := policy.Tracking{}.New(1)
	bounds := policy.Bounds{Share: 10, Ceiling: 100}
	pace := ctrl.Next(policy.Sample{}, bounds) // where it starts
	const interval = 100 * time.Millisecond
	for now := interval; now <= 24*time.Second; now = max(now+interval,
		pace.NotBefore.Truncate(interval)+interval) {
		o := policy.Success
		if now >= 16*time.Second && now < 18*time.Second {
			o = policy.Throttled
		}
		pace = ctrl.Next(policy.Sample{Outcome: o, Now: now, Sent: now - 40*time.Millisecond, Cost: 1,
			Paced: true}, bounds)
		switch wait := pace.NotBefore - now; {
		case wait > 0:
			fmt.Printf("%5v  %-9v  one request in %v\n", now, o, wait.Round(interval))
		case now%(4*time.Second) == 0:
			fmt.Printf("%5v  %-9v  %.1f requests a second\n", now, o, pace.Rate)
		}
	}
	// Output:
	//    4s  success    10.0 requests a second
	//    8s  success    10.5 requests a second
	//   12s  success    12.7 requests a second
	//   16s  throttled  16.7 requests a second
	// 16.5s  throttled  one request in 600ms
	// 17.2s  throttled  one request in 1.1s
	//   20s  success    9.8 requests a second
	//   24s  success    9.9 requests a second
}

// Without a limit or a hint a controller finds the rate by itself.
func ExampleTracking_New() {
	ctrl := policy.Tracking{}.New(1)
	anything := policy.Bounds{Ceiling: math.Inf(1)}
	fmt.Println(ctrl.Next(policy.Sample{}, anything).Rate)
	// Output: 5
}

// A controller joined by hand to a reader of batches: from 10 a second to 50 in eight seconds, as long as at
// least half is used. It is given up slowly when there are no reads.
func ExampleRamp() {
	ramp := policy.Ramp{Mode: policy.RampGoBack, Start: 0.2, Over: 8 * time.Second, CoolDown: 2 * time.Second}
	if err := ramp.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	ctrl, bounds := ramp.New(1), policy.Bounds{Ceiling: 50}
	pace := ctrl.Next(policy.Sample{}, bounds) // where it starts
	for second, read := range []float64{10, 15, 20, 25, 3, 0, 0, 0, 0} {
		fmt.Printf("%ds: %2.0f of %.3g\n", second, read, pace.Rate)
		pace = ctrl.Next(policy.Sample{Now: pace.Until, Taken: read}, bounds)
	}
	// Output:
	// 0s: 10 of 10
	// 1s: 15 of 15
	// 2s: 20 of 20
	// 3s: 25 of 25
	// 4s:  3 of 30
	// 5s:  0 of 25
	// 6s:  0 of 25
	// 7s:  0 of 22.5
	// 8s:  0 of 20
}
