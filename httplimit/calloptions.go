package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/quotient-go/quotient"
)

// mostPerCall is the largest weight, and the largest cost, that a limiter accepts.
const mostPerCall = 1 << 40

// PriorityBy gives each request the priority that f returns for it; without it all are
// quotient.PriorityNormal. f is called once a request, from many goroutines at a time, and must not change
// the request. Values beyond the classes count as the nearest one.
//
// Whom to believe is f's decision. A header that a client has written is no more than its wish: a function
// that believes a client lets every client be the first. Take what a proxy of yours has set, or what a login
// has shown. PriorityBy panics if f is nil.
func PriorityBy(f func(*http.Request) quotient.Priority) Option {
	if f == nil {
		panic("httplimit: PriorityBy: the function is nil")
	}
	return perCall("priority", func(r *http.Request) quotient.CallOption {
		return min(max(f(r), quotient.PriorityLow), quotient.PriorityCritical).Option()
	})
}

// WeightBy makes each request count as so many requests, and take so many slots, as f returns for it;
// without it each counts as one. Values below 1 count as 1. f is called as that of PriorityBy is.
//
// A request of a weight that the limit never allows is answered with 413 and without Retry-After. So bound
// what a client may choose, and what it must not choose, as for PriorityBy. WeightBy panics if f is nil.
func WeightBy(f func(*http.Request) int) Option {
	if f == nil {
		panic("httplimit: WeightBy: the function is nil")
	}
	return perCall("weight", func(r *http.Request) quotient.CallOption {
		return quotient.Weight(min(max(f(r), 1), mostPerCall))
	})
}

// CostBy makes each request cost so many events of a unit as f returns for it, of the rates that count the
// unit: tokens, bytes, rows. Values below 0 count as 0. Several options name several units. f is called as
// that of PriorityBy is. A request that costs more than the limit ever allows is answered as one of such a
// weight.
//
// The cost may be an estimate. A handler that knows better puts it right with the Correct of PermitFrom,
// before it returns.
//
// CostBy panics if unit is empty or f is nil, and Middleware if no rate of the limiter has counted the unit
// until then: each request would be a mistake.
func CostBy(unit string, f func(*http.Request) int) Option {
	if unit == "" {
		panic("httplimit: CostBy: the unit is empty: use WeightBy for requests")
	}
	if f == nil {
		panic(fmt.Sprintf("httplimit: CostBy(%q): the function is nil", unit))
	}
	return func(m *middleware) {
		m.priced = true
		perCall("cost of "+unit, func(r *http.Request) quotient.CallOption {
			return quotient.Cost(unit, min(max(f(r), 0), mostPerCall))
		})(m)
		if d := m.limiter.Check("", quotient.Cost(unit, 0)); d.Reason == quotient.ReasonBadRequest {
			panic(fmt.Sprintf("httplimit: CostBy(%q): %v", unit, d))
		}
	}
}

// PlanBy makes each request one of the plan that f names (quotient.Limiter.SetPlan), for classes of keys:
// free, paid. "" is the limiter's own limit. f is called as that of PriorityBy is; whom to believe is the
// same question. SendFields reports the numbers of the plan, and a key with a limit of its own (Override) is
// in none.
//
// A request of a plan that the limiter does not have, or has no more, comes under the limiter's own limit: it
// is neither lost nor without a limit. Stats counts it among Refused too, with quotient.ReasonBadRequest, once
// or twice. So let the limiter's own limit be the one for strangers. PlanBy panics if f is nil.
func PlanBy(f func(*http.Request) string) Option {
	if f == nil {
		panic("httplimit: PlanBy: the function is nil")
	}
	return func(m *middleware) { m.plan = f }
}

// unplan takes an unknown plan off opts, and reports whether there was one.
func (m *middleware) unplan(opts []quotient.CallOption) bool {
	last := len(opts) - 1 // see limitCall
	if m.plan == nil || opts[last] == (quotient.CallOption{}) {
		return false
	}
	opts[last] = quotient.CallOption{}
	return true
}

// check is Limiter.Check, for calls of any plan.
func (m *middleware) check(key string, opts []quotient.CallOption) quotient.Decision {
	d := m.limiter.Check(key, opts...)
	if d.Reason != quotient.ReasonBadRequest || m.plan == nil {
		return d
	}
	plan := &opts[len(opts)-1]
	unknown := *plan
	defer func() { *plan = unknown }() // for the call itself, which counts
	*plan = quotient.CallOption{}
	return m.limiter.Check(key, opts...)
}

// acquire is Limiter.Acquire, for calls of any plan.
func (m *middleware) acquire(
	ctx context.Context, key string, opts []quotient.CallOption,
) (quotient.Permit, error) {
	permit, err := m.limiter.Acquire(ctx, key, opts...)
	if err != nil && m.plan != nil && !errors.Is(err, quotient.ErrLimited) && ctx.Err() == nil && m.unplan(opts) {
		return m.limiter.Acquire(ctx, key, opts...)
	}
	return permit, err
}

// callOption makes one option of a limiter call from the request.
type callOption struct {
	what string // of two that are the same the last one counts
	of   func(*http.Request) quotient.CallOption
}

func perCall(what string, of func(*http.Request) quotient.CallOption) Option {
	return func(m *middleware) {
		m.perCall = slices.DeleteFunc(m.perCall, func(a callOption) bool { return a.what == what })
		m.perCall = append(m.perCall, callOption{what, of})
	}
}

// mostOptions is how many there are at most: a class, a weight, the costs of three units, a plan, and a look at
// the key.
const mostOptions = 7

type permitKey struct{}

// PermitFrom returns the permit of a request that a Middleware with CostBy has admitted, to call Correct.
// ctx is the context of the handler's request. Without CostBy there is no permit. If several such
// Middlewares are nested, it is the innermost one's. The Middleware releases it.
func PermitFrom(ctx context.Context) (quotient.Permit, bool) {
	p, ok := ctx.Value(permitKey{}).(quotient.Permit)
	return p, ok
}

// withPermit is the request that the handler gets.
func withPermit(r *http.Request, p quotient.Permit) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), permitKey{}, p))
}
