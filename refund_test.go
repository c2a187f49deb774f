package quotient

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// tokenLimit is a limit of tokens a second, with a burst.
func tokenLimit(events float64, burst int) Limit {
	return rated(Rate{Name: "tokens", Unit: "tokens", Events: events, Per: time.Second, Burst: burst})
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
			l := limiterOf(t, tokenLimit(1, 10))
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

// Each of many permits has estimated too much, and the bucket has refilled since.
func TestHeadroomOfManyPermits(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, tokenLimit(100, 1000))
		var held []Permit
		for range 200 {
			held = append(held, took(t, l, "k", Cost("tokens", 5)))
		}
		time.Sleep(9950 * time.Millisecond) // five are missing
		took(t, l, "k", Cost("tokens", 995))
		for _, p := range held {
			corrects(t, p, 0)
		}
		admitsNow(t, l, 5)
	})
}

// What was taken is refunded exactly as if it had never been taken, whatever is taken and refunded in
// between.
func TestPropertyCorrectIsReplay(t *testing.T) {
	type taking struct {
		at time.Time
		n  int
		p  Permit
	}
	property(t, func(rt *rapid.T) {
		const perSecond, burst = 1.0, 20.0
		l := mustNew(rt, tokenLimit(perSecond, burst), few)
		began, ops := time.Now(), 0
		var all []taking
		replay := func() float64 {
			left, last := burst, began
			for _, e := range all {
				left = min(burst, left+e.at.Sub(last).Seconds()*perSecond) - float64(e.n)
				last = e.at
			}
			return min(burst, left+time.Since(last).Seconds()*perSecond)
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 2).Draw(rt, "what") {
			case 0:
				time.Sleep(time.Duration(rapid.IntRange(0, 12_000).Draw(rt, "ms")) * time.Millisecond)
			case 1:
				n := rapid.IntRange(1, 9).Draw(rt, "take")
				if p, d := l.TryAcquire("k", Cost("tokens", n)); d.OK {
					all = append(all, taking{time.Now(), n, p})
				}
			default:
				if len(all) == 0 || len(all) >= mostLows {
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
			got, want := 0.0, replay()
			for _, ks := range l.Keys() {
				got = ks.Tokens[0]
			}
			if math.Abs(got-want) > 0.002*float64(ops+1) {
				rt.Fatalf("%v tokens, %v as if what came back had never been taken", got, want)
			}
		}
	})
}

// A permit whose time is over is given back before another one is taken, and takes nothing along that limits
// its refunds.
func TestReclaimKeepsWhatLimitsRefunds(t *testing.T) {
	for name, expires := range map[string]bool{"MaxHold": false, "ExpireIn": true} {
		row(t, name, func(t *testing.T) {
			opts := []Option{}
			if !expires {
				opts = append(opts, MaxHold(time.Second))
			}
			l := limiterOf(t, tokenLimit(100, 100), opts...)
			if p := took(t, l, "k", Cost("tokens", 0)); expires {
				p.ExpireIn(time.Second)
			}
			time.Sleep(time.Second)
			p := took(t, l, "k", Cost("tokens", 100))
			time.Sleep(999 * time.Millisecond) // the bucket is full but for a tenth
			took(t, l, "k", Cost("tokens", 99))
			corrects(t, p, 0)
			admitsNow(t, l, 1)
		})
	}
}

// What was added by corrections while no rule counted the unit is not given back to a rule that comes later.
func TestCorrectWhileNothingCounts(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		limit := tokenLimit(1, 100)
		l := limiterOf(t, limit)
		setLimit(t, l, Limit{InFlight: 9})
		p := took(t, l, "k")
		corrects(t, p, 100)
		setLimit(t, l, limit)
		took(t, l, "k", Cost("tokens", 100))
		corrects(t, p, 0)
		admitsNow(t, l, 0)
	})
}

// A waiter that was admitted under another limit, and is given up, brings nothing to the limit in force.
func TestCancelledUnderAnotherLimit(t *testing.T) {
	slow := rated(Rate{Name: "r", Events: 1, Per: time.Hour, Burst: 10})
	fast := rated(Rate{Name: "r", Events: 1000, Per: time.Second, Burst: 10})
	for name, c := range map[string]struct {
		before Limit
		change func(*Limiter) error
	}{
		"slots only":    {Limit{InFlight: 9}, func(l *Limiter) error { return l.SetLimit(slow) }},
		"a slower rate": {fast, func(l *Limiter) error { return l.SetLimit(slow) }},
		"an override on and off": {fast, func(l *Limiter) error {
			return errors.Join(l.Override("k", &slow), l.Override("k", nil), l.SetLimit(slow))
		}},
		"an override that stays":     {fast, func(l *Limiter) error { return l.Override("k", &slow) }},
		"an override and back to it": {slow, func(l *Limiter) error { return errors.Join(l.Override("k", &fast), l.Override("k", nil)) }},
	} {
		t.Run(name, func(t *testing.T) {
			gaveUp := 0
			for range 20 { // Acquire may come for its admission first
				inFakeTime(t, func(t *testing.T) {
					hold := make(chan struct{})
					l := limiterOf(t, c.before, OnWait(func(string, time.Duration) { <-hold }))
					defer func() { <-hold }()
					first, _ := l.TryAcquireUpTo("k", 9)
					w := asking(t, l, "k", Weight(9)) // it stands in the hook
					must(t, first.Correct("", 0))
					first.Release()
					time.Sleep(20 * time.Millisecond)
					must(t, c.change(l))
					n := 0
					for l.Allow("k") {
						n++
					}
					w.cancel()
					close(hold)
					if w.ended(); w.err == nil {
						return
					}
					gaveUp++
					for l.Allow("k") {
						n++
					}
					if n > 10 {
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
