package quotient

import (
	"testing"
	"time"
)

// TestBatchGivesBack checks that what a reader of batches did not need comes back at once, to each kind of
// rule.
func TestBatchGivesBack(t *testing.T) {
	second := PerSecond(10)
	aligned := Rate{Events: 10, Per: time.Second, Aligned: true}
	for name, limit := range map[string]Limit{
		"bucket": {Rates: []Rate{second}}, "window": {Rates: []Rate{aligned}}, "slots": {InFlight: 10},
		"all": {Rates: []Rate{second, aligned}, InFlight: 10},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T) {
				l := limiterOf(t, limit)
				time.Sleep(time.Second)
				p := upTo(t, l, "k", 20, 10)
				upTo(t, l, "k", 1, 0)
				correct(t, p, 4)
				q := upTo(t, l, "k", 20, 6)
				correct(t, q, 5)
				correct(t, q, 2) // the rest of it, later
				if got := l.Stats().InFlight; got != 6 {
					t.Errorf("%d in flight, want 6", got)
				}
				p.Release()
				q.Release()
				if got := l.Stats(); got.InFlight != 0 || got.DoubleReleases != 0 {
					t.Errorf("%d in flight, %d double releases", got.InFlight, got.DoubleReleases)
				}
			})
		})
	}
}

// TestBatchGivesBackToWaiters checks that those who wait get what comes back.
func TestBatchGivesBackToWaiters(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Rates(Every(time.Hour)))
		p := upTo(t, l, "k", 1, 1)
		c := asking(t, l, "k")
		correct(t, p, 0)
		c.admittedAfter(t, 0)
	})
}

// TestBatchGivesBackRefuses checks that nothing comes back that was not taken, or has come back already.
func TestBatchGivesBackRefuses(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Rates(PerSecond(10)))
		p := upTo(t, l, "k", 10, 10)
		says(t, p.Correct("", 11), "Correct", "11", "10 requests")
		says(t, p.Correct("", -1), "Correct", "-1")
		time.Sleep(600 * time.Millisecond) // six have come back by themselves
		correct(t, p, 0)
		has(t, l, "k", 10)
		says(t, p.Correct("", 1), "Correct", "1 is above the 0 requests")
		p.Release()
		says(t, p.Correct("", 0), "Correct", "released")

		p = upTo(t, l, "k", 4, 4)
		time.Sleep(200 * time.Millisecond) // two have come back by themselves
		upTo(t, l, "k", 6, 6).Release()
		has(t, l, "k", 2)
		correct(t, p, 0)
		has(t, l, "k", 4) // as if the four had not been taken: the bucket was full
		time.Sleep(time.Second)

		q := upTo(t, l, "k", 10, 10)
		if err := l.SetLimit(Rates(PerSecond(9))); err != nil {
			t.Fatal(err)
		}
		correct(t, q, 0)
		has(t, l, "k", 0) // it was taken under another limit
		says(t, Permit{}.Correct("", 0), "Correct", "cannot be corrected")
	})
}

// More than an int32 of requests may be given back.
func TestGiveBackOfBillions(t *testing.T) {
	for _, n := range []int{1 << 31, 3e9} {
		l := limiterOf(t, Rates(Rate{Events: 1e10, Per: time.Second, Burst: 1e10}))
		correct(t, upTo(t, l, "k", n, n), 0)
		setLimit(t, l, Limit{InFlight: 5})
		for range 5 {
			took(t, l, "k")
		}
		if _, d := l.TryAcquire("k"); d.OK {
			t.Errorf("%d: a sixth of five slots", n)
		}
	}
}

// Any permit under an in-flight limit gives back to the rates too.
func TestPlainPermitGivesBackToRates(t *testing.T) {
	for name, rate := range map[string]Rate{
		"bucket": PerSecond(10),
		"window": {Events: 10, Per: time.Second, Aligned: true},
	} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, Limit{Rates: []Rate{rate}, InFlight: 20})
			time.Sleep(10 * time.Second)
			took(t, l, "k").Release()
			correct(t, took(t, l, "k", Weight(9)), 4)
			has(t, l, "k", 5)
		})
	}
}
