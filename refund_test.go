package quotient

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// tokenLimit is a limit of tokens a second, with a burst.
func tokenLimit(events float64, burst int) Limit {
	return Rates(Rate{Name: "tokens", Unit: "tokens", Events: events, Per: time.Second, Burst: burst})
}

// corrects tells the true cost of a permit in tokens.
func corrects(t *testing.T, p Permit, used int) {
	t.Helper()
	if err := p.Correct("tokens", used); err != nil {
		t.Errorf("Correct: %v", err)
	}
}

// admitsNow fails when more tokens than that are admitted at this instant, one by one.
func admitsNow(t *testing.T, l *Limiter, most int) {
	t.Helper()
	for n := 0; ; n++ {
		if _, d := l.TryAcquire("k", Cost("tokens", 1)); !d.OK {
			return
		}
		if n == most {
			t.Fatalf("more than %d tokens are admitted", most)
		}
	}
}

// The bucket was full but for one token when the first nine would have been given back: one comes back, in
// however many calls.
func TestHeadroomComesBackOnce(t *testing.T) {
	for _, calls := range []int{1, 3, 9} {
		row(t, calls, func(t *testing.T) {
			l := mustNew(t, tokenLimit(1, 10))
			first := took(t, l, "k", Cost("tokens", 9))
			time.Sleep(8 * time.Second)
			second := took(t, l, "k", Cost("tokens", 9))
			for i := range calls {
				corrects(t, first, 9-9*(i+1)/calls)
			}
			has(t, l, "k", 1)
			corrects(t, second, 0) // these nine have never been taken
			has(t, l, "k", 10)
			admitsNow(t, l, 10)
		})
	}
}

// A permit whose time is over is given back before another one is taken, and takes nothing along that limits
// its refunds.
func TestReclaimKeepsWhatLimitsRefunds(t *testing.T) {
	for _, maxHold := range []time.Duration{time.Second, 0} {
		row(t, maxHold, func(t *testing.T) {
			l := mustNew(t, tokenLimit(100, 100), MaxHold(maxHold))
			if p := took(t, l, "k", Cost("tokens", 0)); maxHold == 0 {
				p.ExpireIn(time.Second)
			}
			time.Sleep(time.Second)
			p := took(t, l, "k", Cost("tokens", 100))
			time.Sleep(999 * ms) // the bucket is full but for a tenth
			took(t, l, "k", Cost("tokens", 99))
			corrects(t, p, 0)
			admitsNow(t, l, 1)
		})
	}
}

// A waiter that was admitted under another limit, and is given up, brings nothing to the limit in force. So
// does one of a bucket that has refilled since.
func TestCancelledUnderAnotherLimit(t *testing.T) {
	slow := Rates(Rate{Name: "r", Events: 1, Per: time.Hour, Burst: 10})
	fast := Rates(Rate{Name: "r", Events: 1000, Per: time.Second, Burst: 10})
	for name, c := range map[string]struct {
		before Limit
		change func(*Limiter) error
	}{
		"refilled":      {fast, func(*Limiter) error { return nil }},
		"slots only":    {Limit{InFlight: 9}, func(l *Limiter) error { return l.SetLimit(slow) }},
		"a slower rate": {fast, func(l *Limiter) error { return l.SetLimit(slow) }},
		"an override on and off": {fast, func(l *Limiter) error {
			return errors.Join(l.Override("k", &slow), l.Override("k", nil), l.SetLimit(slow))
		}},
		"an override that stays": {fast, func(l *Limiter) error { return l.Override("k", &slow) }},
		"an override and back to it": {slow, func(l *Limiter) error {
			return errors.Join(l.Override("k", &fast), l.Override("k", nil))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			gaveUp := 0
			for range 20 { // Acquire may come for its admission first
				inFakeTime(t, func(t *testing.T) {
					hold := make(chan struct{})
					l := mustNew(t, c.before)
					first, _ := l.TryAcquireUpTo("k", 9)
					w := hooking(t, l, func() { <-hold }, Weight(9))
					must(t, first.Correct("", 0))
					first.Release()
					time.Sleep(20 * ms)
					must(t, c.change(l))
					n := l.admitAll(99)
					w.cancel()
					close(hold)
					if w.ended(); w.err == nil {
						return
					}
					gaveUp++
					if n += l.admitAll(99); n > 10 {
						t.Errorf("%d admitted at one instant, burst 10", n)
					}
				})
			}
			if gaveUp == 0 {
				t.Error("no waiter was given up")
			}
		})
	}
}

func TestCorrect(t *testing.T) {
	for _, c := range []struct {
		name      string
		estimate  int
		corrected []int
		left      float64 // of 100
	}{
		{"less is given back", 60, []int{20}, 80},
		{"nothing was used", 60, []int{0}, 100},
		{"more is taken", 60, []int{90}, 10},
		{"more than there is is owed", 60, []int{250}, -150},
		{"as estimated", 60, []int{60}, 40},
		{"each time the whole cost", 60, []int{90, 10, 70}, 30},
		{"a debt is taken back", 60, []int{1000, 60}, 40},
		{"an estimate of nothing", 0, []int{30}, 70},
	} {
		row(t, c.name, func(t *testing.T) {
			l := mustNew(t, Rates(tokensPerMinute(60, 100)))
			p := took(t, l, "k", Cost("tokens", c.estimate))
			for _, used := range c.corrected {
				corrects(t, p, used)
			}
			has(t, l, "k", c.left)
			p.Release()
			has(t, l, "k", c.left)
		})
	}
}

func TestRefund(t *testing.T) {
	// Or forgetting it would show: the size was lowered meanwhile.
	row(t, "leaves no key better off than one that was never used", func(t *testing.T) {
		l := mustNew(t, Rates(tokensPerMinute(60, 10)))
		p := took(t, l, "k", Cost("tokens", 4))
		setReplicas(t, l, 5)
		setReplicas(t, l, 1)
		corrects(t, p, 0)
		has(t, l, "k", 2)
	})
	row(t, "is dated also if the take was at the limiter's first instant", func(t *testing.T) {
		l := mustNew(t, Limit{Rates: tokenLimit(1, 10).Rates, InFlight: 9})
		p := took(t, l, "k")
		corrects(t, p, 3)
		time.Sleep(10 * time.Second)
		took(t, l, "k", Cost("tokens", 6))
		corrects(t, p, 4)
		corrects(t, p, 0)
		admitsNow(t, l, 4)
	})
}

func TestCorrectRefuses(t *testing.T) {
	row(t, "correct refuses", func(t *testing.T) {
		l := mustNew(t, Rates(tokensPerMinute(60, 100)))
		p := took(t, l, "k", Cost("tokens", 60))
		says(t, p.Correct("tokens", -1), "Correct", `"tokens"`, "-1")
		for _, n := range beyond {
			says(t, p.Correct("tokens", n), "Correct", fmt.Sprint(n))
		}
		says(t, p.Correct("bytes", 1), "Correct", `"bytes"`)
		says(t, p.Correct("", 2), "Correct", "2 is above the 1 requests")
		says(t, Permit{}.Correct("", 0), "Correct", "cannot be corrected")
		has(t, l, "k", 40)
		p.Release()
		says(t, p.Correct("tokens", 1), "Correct", "released")
		has(t, l, "k", 40)
	})
	// Nothing comes back that was not taken, or has come back already.
	row(t, "batch gives back refuses", func(t *testing.T) {
		l := mustNew(t, Rates(PerSecond(10)))
		p := upTo(t, l, "k", 10, 10)
		says(t, p.Correct("", 11), "Correct", "11", "10 requests")
		says(t, p.Correct("", -1), "Correct", "-1")
		time.Sleep(600 * ms) // six have come back by themselves
		correct(t, p, 0)
		has(t, l, "k", 10)
		says(t, p.Correct("", 1), "Correct", "1 is above the 0 requests")
		p.Release()
		says(t, p.Correct("", 0), "Correct", "released")

		p = upTo(t, l, "k", 4, 4)
		time.Sleep(200 * ms) // two have come back by themselves
		upTo(t, l, "k", 6, 6).Release()
		has(t, l, "k", 2)
		correct(t, p, 0)
		has(t, l, "k", 4) // as if the four had not been taken: the bucket was full
		time.Sleep(time.Second)

		q := upTo(t, l, "k", 10, 10)
		setLimit(t, l, Rates(PerSecond(9)))
		correct(t, q, 0)
		has(t, l, "k", 0) // it was taken under another limit
	})
}

// Correct gives nothing back that a rate never took: at the taking, or later, no rate counted the unit.
func TestCorrectToAnotherRate(t *testing.T) {
	for _, late := range []bool{false, true} {
		row(t, late, func(t *testing.T) {
			r := Rate{Name: "tokens", Unit: "tokens", Events: 1, Per: time.Hour, Burst: 1000}
			l := mustNew(t, Rates(r))
			setLimit(t, l, Limit{InFlight: 9})
			var p Permit
			if late {
				p = took(t, l, "k")
				corrects(t, p, 1000)
			} else {
				p = took(t, l, "k", Cost("tokens", 1000))
			}
			setLimit(t, l, Rates(r))
			took(t, l, "k", Cost("tokens", 1000))
			_ = p.Correct("tokens", 0)
			admitsNow(t, l, 0)
		})
	}
}

// More than an int32 of requests may be given back.
func TestGiveBackOfBillions(t *testing.T) {
	for _, n := range []int{1 << 30, min(1<<31, math.MaxInt), min(3_000_000_000, math.MaxInt)} {
		l := mustNew(t, Rates(Rate{Events: 1e10, Per: time.Second}))
		correct(t, upTo(t, l, "k", n, n), 0)
		setLimit(t, l, Limit{InFlight: 5})
		upTo(t, l, "k", 9, 5)
		refuses(t, l, "k")
	}
}

// A take is refunded exactly as if it had never been made, whatever is taken and refunded in between.
func TestPropertyCorrectIsReplay(t *testing.T) {
	type taking struct {
		at time.Time
		n  int
		p  Permit
	}
	property(t, func(rt *rapid.T) {
		const perSecond, burst = 1.0, 20
		l := mustNew(rt, tokenLimit(perSecond, burst))
		began, ops := time.Now(), 0
		var all []taking
		replay := func() float64 {
			left, last := float64(burst), began
			for _, e := range all {
				left = min(burst, left+e.at.Sub(last).Seconds()*perSecond) - float64(e.n)
				last = e.at
			}
			return min(burst, left+time.Since(last).Seconds()*perSecond)
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 2).Draw(rt, "what") {
			case 0:
				time.Sleep(time.Duration(rapid.IntRange(0, 12_000).Draw(rt, "ms")) * ms)
			case 1:
				n := rapid.IntRange(1, 9).Draw(rt, "take")
				if p, d := l.TryAcquire("k", Cost("tokens", n)); d.OK {
					all = append(all, taking{time.Now(), n, p})
				}
			default:
				if len(all) == 0 || len(all) >= maxMinima {
					continue
				}
				e := &all[rapid.IntRange(0, len(all)-1).Draw(rt, "which")]
				e.n = rapid.IntRange(0, e.n).Draw(rt, "used")
				must(rt, e.p.Correct("tokens", e.n))
				ops++
			}
			if len(all) == 0 {
				continue
			}
			got, want := l.Explain("k").Rules[0].Left, replay()
			if math.Abs(got-want) > 0.002*float64(ops+1) {
				rt.Fatalf("%v tokens, %v as if what came back had never been taken", got, want)
			}
		}
	})
}
