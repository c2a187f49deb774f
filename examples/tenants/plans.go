package main

import "github.com/quotient-go/quotient"

// The plans that a tenant may be in.
const (
	free     = "free"
	paid     = "paid"
	internal = "internal" // jobs of our own
)

// Each tenant may do this much over the fleet: requests at once, and then in an hour; internal ones, in
// flight.
const (
	freeAtOnce       = 10
	paidAtOnce       = 100
	internalInFlight = 25
	bigAtOnce        = 300 // one customer has more than its plan
)

// planOf is the plan of a tenant. A program asks its database, or what a login has shown: never a field that
// clients write.
func planOf(tenant string) string {
	switch tenant {
	case "shop.example", "big.example", "abuser.example":
		return paid
	case "reports":
		return internal
	}
	return free
}

// request asks for one request of a tenant.
func request(l *quotient.Limiter, tenant string) (quotient.Permit, quotient.Decision) {
	return l.TryAcquire(tenant, quotient.Plan(planOf(tenant)))
}

// newTenants makes the limiter of all tenants. A call that names no plan is refused. Plans and overrides are
// set in every replica, from the same configuration.
func newTenants() (*quotient.Limiter, error) {
	l, err := quotient.New(quotient.Limit{Deny: true}, quotient.Plans(map[string]quotient.Limit{
		free: perHour(freeAtOnce), paid: perHour(paidAtOnce), internal: {InFlight: internalInFlight},
	}))
	if err != nil {
		return nil, err
	}
	big, none := perHour(bigAtOnce), quotient.Limit{Deny: true}
	if err := l.Override("big.example", &big); err != nil {
		return nil, err
	}
	return l, l.Override("abuser.example", &none)
}

// perHour is a limit of n an hour, all at once if need be.
func perHour(n int) quotient.Limit { return quotient.Rates(quotient.PerHour(float64(n))) }

// priority is the class of a plan where tenants wait for the same backend.
func priority(plan string) quotient.Priority {
	switch plan {
	case paid:
		return quotient.PriorityHigh
	case internal:
		return quotient.PriorityLow
	}
	return quotient.PriorityNormal
}
