package main

import (
	"time"

	"github.com/quotient-go/quotient"
)

// A plan is what a tenant has paid for.
type plan int

const (
	free plan = iota
	paid
)

func (p plan) name() string {
	if p == paid {
		return "paid"
	}
	return "free"
}

// priority is the plan's class where tenants wait for the same thing.
func (p plan) priority() quotient.Priority {
	if p == paid {
		return quotient.PriorityHigh
	}
	return quotient.PriorityNormal
}

// What tenants may do over the fleet: at once, and then in an hour.
const (
	freeAtOnce = 10
	bigAtOnce  = 100
)

// newTenants makes the limiter of all tenants. Overrides are set in every replica, from the same configuration.
func newTenants() (*quotient.Limiter, error) {
	l, err := quotient.New(perHour("free", freeAtOnce))
	if err != nil {
		return nil, err
	}
	big, none := perHour("big", bigAtOnce), quotient.Limit{Deny: true}
	if err := l.Override("big.example", &big); err != nil {
		return nil, err
	}
	return l, l.Override("abuser.example", &none)
}

// perHour is a limit of n an hour, all at once if need be. A rate keeps its state by its name: under the name of the free plan a larger
// burst would bring no events at once. A new rate starts full where the old one was.
func perHour(plan string, n int) quotient.Limit {
	return quotient.Rates(quotient.Rate{Name: plan, Events: float64(n), Per: time.Hour, Burst: n})
}
