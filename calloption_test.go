package quotient

import (
	"errors"
	"math"
	"testing"
	"time"
)

// Failure mode 31: a call that is not valid, or that can never be admitted, fails at once.
func TestBadOptionsFailAtOnce(t *testing.T) {
	limit := Limit{Rates: []Rate{perSecond(10, 5), tokensPerMinute(1000, 500)}, InFlight: 8}
	for _, c := range []struct {
		name   string
		opts   []CallOption
		reason Reason
		words  []string
	}{
		{"weight 0", []CallOption{Weight(0)}, ReasonBadRequest, []string{"Weight", "0"}},
		{"negative weight", []CallOption{Weight(-1000)}, ReasonBadRequest, []string{"Weight", "-1000"}},
		{"smallest int", []CallOption{Weight(math.MinInt)}, ReasonBadRequest,
			[]string{"Weight", "-9223372036854775808"}},
		{"largest int", []CallOption{Weight(math.MaxInt)}, ReasonBadRequest,
			[]string{"Weight", "9223372036854775807"}},
		{"weight of unit none", []CallOption{Cost("", 0)}, ReasonBadRequest, []string{"Weight", "0"}},
		{"negative cost", []CallOption{Cost("tokens", -1)}, ReasonBadRequest,
			[]string{"Cost", "tokens", "-1"}},
		{"unknown unit", []CallOption{Cost("bytes", 1)}, ReasonBadRequest, []string{"Cost", `"bytes"`}},
		{"costs that overflow", []CallOption{Cost("tokens", maxAmount), Cost("tokens", 1)}, ReasonBadRequest,
			[]string{"Cost", "tokens"}},
		{"above the burst", []CallOption{Weight(6)}, ReasonTooLarge, []string{"second", "too_large"}},
		{"above the burst of a cost", []CallOption{Cost("tokens", 501)}, ReasonTooLarge,
			[]string{"tokens", "too_large"}},
		{"above the slots", []CallOption{Weight(9)}, ReasonTooLarge, []string{"in-flight", "too_large"}},
		{"the largest weight", []CallOption{Weight(maxAmount)}, ReasonTooLarge, []string{"too_large"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T) {
				l := limiterOf(t, limit)
				says(t, refusal("k", refusedFor(t, l, c.reason, "k", c.opts...)), c.words...)
				_, err := l.Acquire(t.Context(), "k", c.opts...)
				says(t, err, c.words...)
				if got := errors.Is(err, ErrLimited); got != (c.reason != ReasonBadRequest) {
					t.Errorf("ErrLimited: %v", got)
				}
				if got := l.Stats().Refused[c.reason]; got != 2 {
					t.Errorf("counted %d refusals, want 2", got)
				}
				wants(t, l, "k", 5) // nothing was taken
			})
		})
	}
}

func TestOptionsOfACallAddUp(t *testing.T) {
	for _, c := range []struct {
		name             string
		opts             []CallOption
		requests, tokens float64 // left of 5 and 500
	}{
		{"nothing asked", nil, 4, 500},
		{"zero value", []CallOption{{}}, 4, 500},
		{"the last weight counts", []CallOption{Weight(4), Weight(2)}, 3, 500},
		{"costs add up", []CallOption{Cost("tokens", 100), Cost("tokens", 50)}, 4, 350},
		{"both", []CallOption{Cost("tokens", 100), Weight(3)}, 2, 400},
		{"a cost of nothing", []CallOption{Cost("tokens", 0)}, 4, 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T) {
				l := limiterOf(t, rated(perSecond(10, 5), tokensPerMinute(1000, 500)))
				took(t, l, "k", c.opts...)
				if got := tokensOf(t, l, "k"); got[0] != c.requests || got[1] != c.tokens {
					t.Errorf("left %v, want %v and %v", got, c.requests, c.tokens)
				}
			})
		})
	}
}

func TestUnitsOfALimiterAreFew(t *testing.T) {
	l := limiterOf(t, rated(unitRate("a"), unitRate("b")))
	setLimit(t, l, rated(unitRate("c")))
	says(t, l.SetLimit(rated(unitRate("a"), unitRate("d"))), "Rates[1].Unit", `"d"`)
	took(t, l, "k", Cost("a", 9)) // known, though nothing counts it now
	refusedFor(t, l, ReasonBadRequest, "k", Cost("d", 1))
	refusedFor(t, l, ReasonTooLarge, "k", Cost("c", 2))
}

func unitRate(unit string) Rate {
	r := perSecond(1, 1)
	r.Unit = unit
	return r
}

// A rate that is in debt holds up only those who ask for what it counts.
func TestDebtOfAnotherUnit(t *testing.T) {
	for _, r := range []Rate{
		tokensPerMinute(60, 60),
		{Name: "tokens", Unit: "tokens", Events: 60, Per: time.Minute, Aligned: true},
		{Name: "tokens", Unit: "tokens", Events: 1, Per: time.Minute, Burst: 1},
	} {
		row(t, r, func(t *testing.T) {
			l := limiterOf(t, rated(perSecond(10, 10), r))
			p := took(t, l, "k", Cost("tokens", 1))
			if err := p.Correct("tokens", 500); err != nil {
				t.Fatal(err)
			}
			p.Release()
			took(t, l, "k", Weight(2)) // by all of gate.look: more than one, and two rates
			took(t, l, "k", Cost("tokens", 0))
			refusedFor(t, l, ReasonRate, "k", Cost("tokens", 1))
			if p, n := l.TryAcquireUpTo("k", 3); n != 3 {
				t.Errorf("%d of 3 requests", n)
			} else {
				p.Release()
			}
		})
	}
}
