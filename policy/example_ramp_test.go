package policy_test

import (
	"fmt"
	"time"

	"github.com/quotient-go/quotient/policy"
)

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
