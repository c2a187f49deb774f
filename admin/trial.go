package admin

import (
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/trial"
)

// The changes of a limiter, of which it may refuse some. The last argument makes a trial of each: see package
// trial.
var (
	changeLimit    = trial.Limit.(func(*quotient.Limiter, quotient.Limit, bool) (quotient.Limit, error))
	changePlan     = trial.Plan.(func(*quotient.Limiter, string, *quotient.Limit, bool) (*quotient.Limit, error))
	changeOverride = trial.Override.(func(*quotient.Limiter, string, *quotient.Limit, bool) (*quotient.Limit, error))
)

// tryLimit returns the error that SetLimit would return, and changes nothing.
func tryLimit(l *quotient.Limiter, limit quotient.Limit) error {
	_, err := changeLimit(l, limit, true)
	return err
}

// try returns the error that apply would return, and changes nothing.
func (v namedPlan) try(l *quotient.Limiter) error {
	_, err := changePlan(l, v.name, v.limit, true)
	return err
}

// try returns the error that apply would return. To find room it may evict an idle key, as apply would.
func (v override) try(l *quotient.Limiter) error {
	_, err := changeOverride(l, v.key, v.limit, true)
	return err
}
