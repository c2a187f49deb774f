package quotient

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestTryAcquireUpTo(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit Limit
		n     int
		want  int
	}{
		{"all of it", rated(perSecond(1, 10)), 7, 7},
		{"what there is", rated(perSecond(1, 10)), 70, 10},
		{"nothing asked", rated(perSecond(1, 10)), 0, 0},
		{"less than nothing", rated(perSecond(1, 10)), -5, 0},
		{"no limit", Limit{}, 99, 99},
		{"slots", Limit{InFlight: 3}, 5, 3},
		{"the tightest", Limit{Rates: []Rate{perSecond(1, 10), {Name: "b", Events: 4, Per: time.Second}},
			InFlight: 6}, 9, 4},
		{"another unit does not count", rated(perSecond(1, 10), tokensPerMinute(1, 1)), 5, 5},
		{"a window", rated(Rate{Events: 4, Per: time.Second, Aligned: true}), 9, 4},
		{"denied", Limit{Deny: true}, 5, 0},
	} {
		row(t, c.name, func(t *testing.T) {
			l := limiterOf(t, c.limit)
			p, n := l.TryAcquireUpTo("k", c.n)
			if n != c.want {
				t.Errorf("got %d, want %d", n, c.want)
			}
			if c.limit.InFlight > 0 {
				inFlight(t, l, n)
			}
			p.Release()
			inFlight(t, l, 0)
		})
	}
}

// Allow requires a free slot, and does not hold it.
func TestAllowNeedsASlot(t *testing.T) {
	l := limiterOf(t, Limit{InFlight: 1})
	for range 10 {
		if !l.Allow("k") {
			t.Error("refused while the slot is free")
		}
	}
	p := took(t, l, "k")
	if l.Allow("k") {
		t.Error("allowed while the slot is taken")
	}
	p.Release()
	if !l.Allow("k") {
		t.Error("refused after the release")
	}
}

func TestAllRatesOrNone(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{
			perSecond(1, 10),
			tokensPerMinute(60, 100),
			{Name: "w", Events: 3, Per: time.Minute, Aligned: true},
		}, InFlight: 2})
		unchanged := func(reason Reason, rule string, opts ...CallOption) {
			t.Helper()
			before, inFlight := tokensOf(t, l, "k"), l.Stats().InFlight
			if d := refusedFor(t, l, reason, "k", opts...); d.Rule != rule {
				t.Errorf("refused by %q, want %q", d.Rule, rule)
			}
			if after := tokensOf(t, l, "k"); !slices.Equal(before, after) || l.Stats().InFlight != inFlight {
				t.Errorf("a refusal took something: %v became %v", before, after)
			}
		}
		p := took(t, l, "k", Cost("tokens", 80))
		unchanged(ReasonRate, "tokens", Cost("tokens", 30))
		p2 := took(t, l, "k")
		unchanged(ReasonInFlight, "in-flight")
		p.Release()
		p2.Release()
		took(t, l, "k").Release()
		unchanged(ReasonRate, "w", Cost("tokens", 1))
	})
}

// A call above the local burst but not above the global one waits for a full bucket and then owes the rest.
func TestCallAboveTheLocalBurst(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(4, 40)), Replicas(4)) // here 1 a second, burst 10
		refusedFor(t, l, ReasonTooLarge, "k", Weight(41))
		wants(t, l, "k", 10)
		c, next := asking(t, l, "k", Weight(30)), asking(t, l, "k")
		time.Sleep(10 * time.Second)
		c.admittedAfter(t, 10*time.Second)
		has(t, l, "k", -20)
		time.Sleep(21 * time.Second)
		next.admittedAfter(t, 31*time.Second)
	})
}

func TestWeightAboveTheSlotsOfThisReplica(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 8}, Replicas(2))
		d := refusedFor(t, l, ReasonShare, "k", Weight(5))
		if d.Rule != "in-flight" || d.Limit != 8 || d.Share != 4 {
			t.Errorf("got %+v", d)
		}
		asking(t, l, "k", Weight(5)).refusedAfter(t, 0, ReasonShare)
		refusedFor(t, l, ReasonTooLarge, "k", Weight(9))
	})
}

func TestCostsAreOfTheirOwn(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(tokensPerMinute(60, 100)))
		for range 1000 { // requests are not limited
			took(t, l, "k")
		}
		took(t, l, "k", Cost("tokens", 100))
		c := asking(t, l, "k", Cost("tokens", 5))
		free := asking(t, l, "k") // costs nothing, but stands behind one who waits
		time.Sleep(5 * time.Second)
		c.admittedAfter(t, 5*time.Second)
		free.admittedAfter(t, 5*time.Second)
	})
}

// Check answers what TryAcquire does, and takes nothing.
func TestCheckAnswersAsTryAcquire(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit Limit
		setUp func(*testing.T, *Limiter)
		opts  []CallOption
	}{
		{"room", rated(perSecond(1, 5)), nil, nil},
		{"no room", rated(perSecond(1, 5)), func(t *testing.T, l *Limiter) { took(t, l, "k", Weight(5)) },
			[]CallOption{Weight(2)}},
		{"too large", rated(perSecond(1, 5)), nil, []CallOption{Weight(6)}},
		{"not valid", rated(perSecond(1, 5)), nil, []CallOption{Weight(-6)}},
		{"denied", Limit{Deny: true}, nil, nil},
		{"no slot", Limit{InFlight: 1}, func(t *testing.T, l *Limiter) { took(t, l, "k") }, nil},
		{"a slot that has come free by time", Limit{InFlight: 1}, func(t *testing.T, l *Limiter) {
			took(t, l, "k").ExpireIn(time.Second)
			time.Sleep(time.Minute)
		}, nil},
		{"behind a queue", rated(perSecond(1, 5)), func(t *testing.T, l *Limiter) {
			took(t, l, "k", Weight(5))
			asking(t, l, "k", Weight(3))
		}, nil},
		{"room, behind a queue", rated(perSecond(1, 5)), func(t *testing.T, l *Limiter) {
			took(t, l, "k", Weight(4))
			asking(t, l, "k", Weight(3))
		}, nil},
		{"too many keys", Limit{InFlight: 1}, func(t *testing.T, l *Limiter) {
			took(t, l, "busy")
			took(t, l, "late")
		}, nil},
	} {
		row(t, c.name, func(t *testing.T) {
			l := limiterOf(t, c.limit, MaxKeys(1))
			if c.setUp != nil {
				c.setUp(t, l)
			}
			before := l.Stats()
			first, second := l.Check("k", c.opts...), l.Check("k", c.opts...)
			if after := l.Stats(); after.Admitted != before.Admitted || after.InFlight != before.InFlight ||
				len(after.Refused) != len(before.Refused) {
				t.Errorf("Check counted or took something: %+v became %+v", before, after)
			}
			_, answer := l.TryAcquire("k", c.opts...)
			for _, got := range []Decision{first, second} {
				want := answer
				sameText := fmt.Sprint(got.bad) == fmt.Sprint(want.bad)
				if got.bad, want.bad = nil, nil; got != want || !sameText {
					t.Errorf("Check says  %+v\nTryAcquire %+v", got, want)
				}
			}
		})
	}
}

// Check must answer what TryAcquire would.
func TestCheckWithOverflow(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 1}, MaxKeys(1))
		a := took(t, l, "a")
		b := took(t, l, "b") // through the overflow gate
		a.Release()          // a is idle: there is room for c
		check := l.Check("c")
		p, d := l.TryAcquire("c")
		if check.OK != d.OK {
			t.Errorf("Check says %+v, TryAcquire %+v", check, d)
		}
		p.Release()
		b.Release()
	})
}
