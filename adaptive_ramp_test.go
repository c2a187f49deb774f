package quotient

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// rampVector is a row of policy/testdata/ramp-vectors.json: what a pool of one-second windows of whole tokens
// grants to one pod. policy/ramp_vectors_test.go plays the rows on such a pool.
type rampVector struct {
	Test     string
	Max, Min float64
	Ramp     float64 `json:"ramp_s"`
	Pods     int
	Mode     []any     // its name and its parameters
	Ask      [][2]*int // how many (null: all there are), and the seconds that pass afterwards
	Deposit  []int     // given back right after each call
	Want     []int
}

func (v *rampVector) policy() policy.Ramp {
	r := policy.Ramp{Start: v.Min / v.Max, Over: time.Duration(v.Ramp) * time.Second}
	percent := func(i int) float64 { return v.Mode[i].(float64) / 100 }
	switch v.Mode[0] {
	case "relaxed":
		r.Mode = policy.RampRelaxed
	case "only_if_used":
		r.Mode, r.Threshold = policy.RampOnlyIfUsed, percent(1)
	case "go_back_n":
		r.Mode, r.Threshold, r.Back = policy.RampGoBack, percent(3), percent(2)
		r.CoolDown = time.Duration(v.Mode[1].(float64)) * time.Second
	}
	return r
}

// play plays a row on a limiter, in fake time.
func (v *rampVector) play(t *testing.T, rate Rate) (got []int) {
	rate.Events, rate.Per = v.Max, time.Second
	pool := StartPool(Pool{Replicas: v.Pods, Ordinal: 1, Fixed: true})
	l := limiterOf(t, Rates(rate), pool, Policy(v.policy()))
	for i, ask := range v.Ask {
		n := 1000
		if ask[0] != nil {
			n = *ask[0]
		}
		p, took := l.TryAcquireUpTo("k", n)
		if got = append(got, took); v.Deposit[i] > 0 {
			correct(t, p, max(0, took-v.Deposit[i])) // a deposit is never more than was granted
		}
		p.Release()
		time.Sleep(time.Duration(*ask[1]) * time.Second)
	}
	return got
}

// wants is what a limiter grants: the row's own, but where a pod's part is less than a token a second, which
// the original loses for ever. Fractions carry here, and it is one token every other second, even before it
// has risen.
func (v *rampVector) wants() []int {
	if v.Min >= float64(v.Pods) {
		return v.Want
	}
	want := make([]int, len(v.Want))
	for i := range want {
		want[i] = (i + 1) % 2
	}
	return want
}

// TestRampVectorsOnALimiter checks that the recorded rows come out of the real buckets too, on a rate that
// saves up as on one of aligned windows.
func TestRampVectorsOnALimiter(t *testing.T) {
	var rows []rampVector
	data, err := os.ReadFile("policy/testdata/ramp-vectors.json")
	if err == nil {
		err = json.Unmarshal(data, &rows)
	}
	if err != nil || len(rows) != 51 {
		t.Fatalf("%d rows of 51: %v", len(rows), err)
	}
	differ := 0
	for i, v := range rows {
		inFakeTime(t, func(t *testing.T) {
			for _, r := range []Rate{{}, {Aligned: true}} {
				if got := v.play(t, r); !slices.Equal(got, v.wants()) {
					t.Errorf("row %d, %s, %v, %v to %v by %d, aligned %v:\ngot  %v\nwant %v",
						i, v.Test, v.Mode, v.Min, v.Max, v.Pods, r.Aligned, got, v.wants())
				}
			}
		})
		if !slices.Equal(v.Want, v.wants()) {
			differ++
		}
	}
	if t.Logf("%d rows differ: the remainder is not lost", differ); differ != 6 {
		t.Errorf("%d rows differ, want 6", differ)
	}
}

// rampFleet is a limit of ten a second for one replica, under a ramp from a tenth of it.
func rampFleet(t *testing.T, r policy.Ramp, opts ...Option) *Limiter {
	r.Start = 0.1
	return limiterOf(t, Rates(PerSecond(10)), append(opts, Policy(r))...)
}

// TestRampKeepsFractions checks that what two replicas cannot share in whole tokens is not lost. Under the
// start of one a second each replica admits one every other second, and a few more as the pace rises.
func TestRampKeepsFractions(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		pool := Replicas(2)
		ramp := policy.Ramp{Mode: policy.RampScheduled, Over: time.Hour}
		a, b := rampFleet(t, ramp, pool), rampFleet(t, ramp, pool)
		got := 0
		for range 21 {
			_, n := a.TryAcquireUpTo("k", 10)
			_, m := b.TryAcquireUpTo("k", 10)
			got += n + m
			time.Sleep(time.Second)
		}
		if got != 22 { // one a second, and one that each may start with
			t.Errorf("%d of 22 in 21 seconds", got)
		}
	})
}

// TestRampFollowsThePool checks that a change of the pool moves the rate at once, and leaves the ramp where
// it stands.
func TestRampFollowsThePool(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := rampFleet(t, policy.Ramp{Mode: policy.RampRelaxed, Over: 9 * time.Second})
		for n := range 5 {
			upTo(t, l, "k", 100, n+1)
			time.Sleep(time.Second)
		}
		if err := l.SetPool(Pool{Replicas: 2}, 0); err != nil {
			t.Fatal(err)
		}
		upTo(t, l, "k", 100, 3) // six tenths of five
		if err := l.SetPool(Pool{Replicas: 1}, 0); err != nil {
			t.Fatal(err)
		}
		upTo(t, l, "k", 100, 0) // a raise brings nothing to a bucket that is not full
		time.Sleep(time.Second)
		upTo(t, l, "k", 100, 7) // one that was is filled up
		time.Sleep(time.Second)
		upTo(t, l, "k", 100, 8)
	})
}

// TestRampGoBackClimbsSteeply checks that a reader who takes everything once a second leaves nothing over by
// the controller's count, although the pace has risen meanwhile.
func TestRampGoBackClimbsSteeply(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := rampFleet(t, policy.Ramp{Mode: policy.RampGoBack, Over: 2 * time.Second})
		for _, want := range []int{1, 5, 10, 10} {
			upTo(t, l, "k", 100, want)
			time.Sleep(time.Second)
		}
	})
}

// TestRampWakesWaiters checks that a waiter need not wait as long as the first pace would have it.
func TestRampWakesWaiters(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := rampFleet(t, policy.Ramp{Mode: policy.RampScheduled, Over: 9 * time.Second})
		upTo(t, l, "k", 1, 1)
		calls := []*call{asking(t, l, "k"), asking(t, l, "k"), asking(t, l, "k"), asking(t, l, "k")}
		time.Sleep(10 * time.Second)
		for i, after := range []time.Duration{1000, 1000, 1500, 2000} {
			calls[i].admittedAfter(t, after*time.Millisecond)
		}
	})
}

// TestRampIsForgottenWithItsKey checks that a key in use stays where its ramp stands, even without feedback.
// A key that was idle for long starts again.
func TestRampIsForgottenWithItsKey(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := rampFleet(t, policy.Ramp{Mode: policy.RampRelaxed, Over: time.Second})
		upTo(t, l, "k", 100, 1)
		for range 3 {
			time.Sleep(forgetAfter - time.Second)
			upTo(t, l, "k", 100, 10)
		}
		time.Sleep(forgetAfter)
		upTo(t, l, "k", 100, 1)
	})
}

// TestRampIsValidated checks that a ramp that makes no sense makes no limiter.
func TestRampIsValidated(t *testing.T) {
	_, err := New(Rates(PerSecond(1)), Policy(policy.Ramp{Start: 2}))
	says(t, err, "Policy", "Ramp.Start", "2")
}

// A reader that takes all there is once a second gets the pace of each second that begins. That holds for
// every pace: a bucket that is full but for rounding is full.
func TestRampOfAReaderOnceASecond(t *testing.T) {
	for per := 1; per <= 400; per++ {
		inFakeTime(t, func(t *testing.T) {
			rate := Rate{Events: float64(per), Per: time.Second, Burst: 100 * per}
			ramp := policy.Ramp{Mode: policy.RampRelaxed, Start: .2, Over: 5 * time.Second}
			l := limiterOf(t, Rates(rate), Policy(ramp))
			got, want := 0, 0.0
			for i := range 6 {
				_, n := l.TryAcquireUpTo("k", 1000)
				got += n
				want += max(1, float64(per)*min(1, .2+.8*float64(i)/5))
				time.Sleep(time.Second)
			}
			if float64(got) < want-6 {
				t.Errorf("%d a second: %d events in six seconds, want %.0f", per, got, want)
			}
		})
	}
}
