package quotient

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// Failure mode 31: a call that is not valid, or that can never be admitted, fails at once.
func TestBadOptionsFailAtOnce(t *testing.T) {
	limit := Limit{Rates: []Rate{perSecond(10, 5), tokensPerMinute(1000, 500)}, InFlight: 8}
	const bad, large = ReasonBadRequest, ReasonTooLarge
	for _, c := range []struct {
		name   string
		opts   []CallOption
		reason Reason
		words  string
	}{
		{"weight 0", []CallOption{Weight(0)}, bad, "Weight 0"},
		{"negative weight", []CallOption{Weight(-1000)}, bad, "Weight -1000"},
		{"smallest int", []CallOption{Weight(math.MinInt)}, bad, fmt.Sprint("Weight ", math.MinInt)},
		{"weight of unit none", []CallOption{Cost("", 0)}, bad, "Weight 0"},
		{"negative cost", []CallOption{Cost("tokens", -1)}, bad, "Cost tokens -1"},
		{"unknown unit", []CallOption{Cost("bytes", 1)}, bad, `Cost "bytes"`},
		{"an overflow", []CallOption{Cost("tokens", maxAmount), Cost("tokens", 1)}, bad, "Cost tokens"},
		{"above the burst", []CallOption{Weight(6)}, large, "second too_large"},
		{"above the burst of a cost", []CallOption{Cost("tokens", 501)}, large, "tokens too_large"},
		{"above the slots", []CallOption{Weight(9)}, large, "in-flight too_large"},
		{"the largest weight", []CallOption{Weight(maxAmount)}, large, "too_large"},
	} {
		row(t, c.name, func(t *testing.T) {
			l := mustNew(t, limit)
			words := strings.Fields(c.words)
			says(t, refusal("k", refusedFor(t, l, c.reason, "k", c.opts...)), words...)
			_, err := l.Acquire(t.Context(), "k", c.opts...)
			says(t, err, words...)
			is(t, "ErrLimited", errors.Is(err, ErrLimited), c.reason != ReasonBadRequest)
			is(t, "refusals", l.Stats().Refused[c.reason], 2)
			for _, n := range beyond {
				says(t, refusal("k", l.Check("k", Weight(n))), "Weight", fmt.Sprint(n))
			}
			wants(t, l, "k", 5) // nothing was taken
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
		row(t, c.name, func(t *testing.T) {
			l := mustNew(t, Rates(perSecond(10, 5), tokensPerMinute(1000, 500)))
			took(t, l, "k", c.opts...)
			if got := tokensOf(t, l, "k"); got[0] != c.requests || got[1] != c.tokens {
				t.Errorf("left %v, want %v and %v", got, c.requests, c.tokens)
			}
		})
	}
}

// A rate that is in debt holds up only those who ask for what it counts.
func TestDebtOfAnotherUnit(t *testing.T) {
	for _, r := range []Rate{
		tokensPerMinute(60, 60),
		{Name: "tokens", Unit: "tokens", Events: 60, Per: time.Minute, Aligned: true},
		{Name: "tokens", Unit: "tokens", Events: 1, Per: time.Minute, Burst: 1},
	} {
		row(t, r, func(t *testing.T) {
			l := mustNew(t, Rates(perSecond(10, 10), r))
			must(t, took(t, l, "k", Cost("tokens", 1)).Correct("tokens", 500))
			took(t, l, "k", Weight(2)) // by all of gate.look: more than one, and two rates
			took(t, l, "k", Cost("tokens", 0))
			refusedFor(t, l, ReasonRate, "k", Cost("tokens", 1))
			upTo(t, l, "k", 3, 3)
		})
	}
}
