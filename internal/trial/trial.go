// Package trial is how package admin learns which error a change of a limiter would return, without the change.
// It has no name in the limiter's API. Package quotient sets the variables when it is initialized; nothing
// changes them later.
//
// The functions are SetLimit, SetPlan and Override. Their last argument is true for a trial: the function then
// returns the error that the method would return now. Limits, units and plans stay as they are. To find out
// whether there is room for a key, Override may evict an idle one, as the method would.
package trial

// The changes that a limiter may refuse.
var (
	Limit    any // func(*quotient.Limiter, quotient.Limit, bool) (quotient.Limit, error)
	Plan     any // func(*quotient.Limiter, string, *quotient.Limit, bool) (*quotient.Limit, error)
	Override any // func(*quotient.Limiter, string, *quotient.Limit, bool) (*quotient.Limit, error)
)
