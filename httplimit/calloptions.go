package httplimit

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"

	"github.com/quotient-go/quotient"
)

// mostPerCall is the largest weight, and the largest cost, that a limiter accepts.
const mostPerCall = min(1<<40, math.MaxInt)

// PriorityBy gives each request the priority that f returns for it; without it all are
// quotient.PriorityNormal. f is called once a request, from many goroutines at a time, and must not change
// the request. Values out of range count as the nearest priority.
//
// f must not trust clients. If it returns what a client writes into a header, every client can be first.
// Use a header that your own proxy sets, or the result of a login. PriorityBy panics if f is nil.
func PriorityBy(f func(*http.Request) quotient.Priority) Option {
	mustBe(f != nil, "PriorityBy: the function is nil")
	return perCall("priority", func(r *http.Request) quotient.CallOption {
		return min(max(f(r), quotient.PriorityLow), quotient.PriorityCritical).Option()
	})
}

// WeightBy makes each request count as several requests and take as many slots: the number that f returns
// for it. Without it each counts as one. Values below 1 count as 1. f is called as that of PriorityBy is.
//
// A request whose weight the limit never allows is answered with 413 and without Retry-After. So f must
// bound a weight that a client may choose. WeightBy panics if f is nil.
func WeightBy(f func(*http.Request) int) Option {
	mustBe(f != nil, "WeightBy: the function is nil")
	return perCall("weight", func(r *http.Request) quotient.CallOption { return weight(f(r)) })
}

func weight(n int) quotient.CallOption { return quotient.Weight(min(max(n, 1), mostPerCall)) }

func costIn(unit string, n int) quotient.CallOption {
	return quotient.Cost(unit, min(max(n, 0), mostPerCall))
}

// CostBy makes each request cost the number of events that f returns for it, in all rates that count the unit:
// tokens, bytes, rows. Values below 0 count as 0. Several options may name several units. f is called as that of
// PriorityBy is. A request that costs more than the limit ever allows is answered with 413, as with WeightBy.
//
// The cost may be an estimate. A handler that learns the real cost calls Correct on the permit of
// PermitFrom, before it returns.
//
// CostBy panics if unit is empty or f is nil. Middleware panics if no rate of the limiter has counted the
// unit until then, since every request would be an error.
func CostBy(unit string, f func(*http.Request) int) Option {
	mustBe(unit != "", "CostBy: the unit is empty: use WeightBy for requests")
	mustBe(f != nil, "CostBy(%q): the function is nil", unit)
	return func(m *middleware) {
		m.priced = true
		perCall("cost of "+unit, func(r *http.Request) quotient.CallOption {
			return costIn(unit, f(r))
		})(m)
		d := m.limiter.Check("", quotient.Cost(unit, 0))
		mustBe(d.Reason != quotient.ReasonBadRequest, "CostBy(%q): %v", unit, d)
	}
}

// Refundable lets the handler give back what a request has taken from rates of requests, should it not count:
// PermitFrom returns its permit, for Refund. Until then the request counts, also in what SendFields
// sends.
func Refundable() Option {
	return func(m *middleware) {
		m.priced = true
		perCall("refund", func(*http.Request) quotient.CallOption { return quotient.Refundable() })(m)
	}
}

// PlanBy puts each request into the plan that f names (quotient.Limiter.SetPlan), for classes of keys such as free
// and paid. "" means the limiter's own limit. f is called as that of PriorityBy is, and must not trust clients
// either. SendFields reports the numbers of the plan. A key with a limit of its own (Override) is in no plan.
//
// A request of a plan that the limiter does not have, or no longer has, comes under the limiter's own
// limit. Stats also counts it among Refused, with quotient.ReasonBadRequest, once or twice. So make the
// limiter's own limit the one for unknown clients. PlanBy panics if f is nil.
func PlanBy(f func(*http.Request) string) Option {
	mustBe(f != nil, "PlanBy: the function is nil")
	return func(m *middleware) { m.plan = f }
}

// planless is opts without the plan, which is the last, for one that the limiter does not have.
func planless(opts []quotient.CallOption) []quotient.CallOption { return opts[:len(opts)-1] }

// check is Limiter.Check, for calls of any plan.
func (m *middleware) check(key string, opts []quotient.CallOption) quotient.Decision {
	d := m.limiter.Check(key, opts...)
	if d.Reason == quotient.ReasonBadRequest && m.plan != nil {
		return m.limiter.Check(key, planless(opts)...)
	}
	return d
}

// acquire is Limiter.Acquire, for calls of any plan if the last of opts is one.
func acquire(
	ctx context.Context, l *quotient.Limiter, key string, opts []quotient.CallOption, planned bool,
) (quotient.Permit, error) {
	permit, err := l.Acquire(ctx, key, opts...)
	if err != nil && planned && !errors.Is(err, quotient.ErrLimited) && ctx.Err() == nil {
		return l.Acquire(ctx, key, planless(opts)...)
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

// mostOptions is how many there are at most: a class, a weight, the costs of three units, a refund, a plan, and a look
// at the key.
const mostOptions = 8

type permitKey struct{}

// PermitFrom returns the permit of a request that a Middleware with CostBy or Refundable has admitted, to call Correct
// or Refund. ctx is the context of the handler's request. Without these options there is no permit. If several such
// Middlewares are nested, it is the innermost one's. The Middleware releases it.
func PermitFrom(ctx context.Context) (quotient.Permit, bool) {
	p, ok := ctx.Value(permitKey{}).(quotient.Permit)
	return p, ok
}
