package proxy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/httplimit"
)

// maxWeight bounds a weight, as the file does.
const maxWeight = 1 << 30

// taken is what a request has from a limiter, and in which units it costs anything there.
type taken struct {
	permit quotient.Permit
	costs  []config.Cost
}

// canonical is the name of a field as net/http keeps it.
func canonical(name config.Header) string { return http.CanonicalHeaderKey(string(name)) }

// costsIn are the costs in units that a limiter counts.
func costsIn(l config.Limiter, all []config.Cost) (costs []config.Cost) {
	for _, c := range all {
		if l.Counts(c.Unit) {
			c.Request, c.Answer = config.Header(canonical(c.Request)), config.Header(canonical(c.Answer))
			costs = append(costs, c)
		}
	}
	return costs
}

// numbersOf are the fields that say what a request of a rule counts as.
func numbersOf(rule config.Rule) (names []string) {
	add := func(name config.Header) {
		if is := canonical(name); is != "" && !slices.Contains(names, is) {
			names = append(names, is)
		}
	}
	add(rule.WeightBy)
	for _, c := range rule.Costs {
		add(c.Request)
	}
	return names
}

// weightOf reads the weight of a request; nil: it is 1.
func weightOf(rule config.Rule) func(*http.Request) int {
	name := canonical(rule.WeightBy)
	if name == "" && rule.Weight <= 1 {
		return nil
	}
	return func(q *http.Request) int {
		if n, ok := said(q, name, maxWeight); ok {
			return n // 0 counts as 1
		}
		return rule.Weight
	}
}

// costing has each request cost what it says, or else the default, in units that the limiter knows. An operator may
// have put others in their places.
func costing(l *quotient.Limiter, costs []config.Cost) (opts []httplimit.Option) {
	for _, c := range costs {
		if d := l.Check("", quotient.Cost(c.Unit, 0)); d.Reason == quotient.ReasonBadRequest {
			continue
		}
		opts = append(opts, httplimit.CostBy(c.Unit, func(q *http.Request) int {
			if n, ok := said(q, string(c.Request), c.Most); ok {
				return n
			}
			return c.Default
		}))
	}
	return opts
}

// said is the number in a field of a request, which counts from a trusted peer alone.
func said(q *http.Request, name string, most int) (n int, ok bool) {
	if f := flightOf(q); name == "" || f == nil || !f.trusted {
		return 0, false
	}
	return number(q.Header[name], most)
}

// number is the whole number in the one line of a field, or most if it is more.
func number(lines []string, most int) (n int, ok bool) {
	if len(lines) != 1 || !isNumber(lines[0]) {
		return 0, false
	}
	sum := int64(0) // int has no room for ten times most everywhere
	for _, c := range []byte(lines[0]) {
		sum = min(sum*10+int64(c-'0'), int64(most))
	}
	return int(sum), true
}

// isNumber reports whether a text is nothing but digits.
func isNumber(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c < '0' || c > '9' })
}

// settle corrects what the request has taken by the head of its answer, which may not count at all. What no
// upstream can have got costs nothing. Other requests cost what they have taken where no answer says more.
func (f *flight) settle(res *http.Response, err error) {
	switch {
	case err != nil && f.connected:
	case err != nil:
		f.correct(nothing)
	case !f.route.spec.rule.Counts(res.StatusCode):
		f.refund()
	default:
		f.correct(func(c config.Cost) (int, bool) { return number(res.Header[string(c.Answer)], c.Most) })
	}
}

// nothing is what a request costs that does not count.
func nothing(config.Cost) (n int, ok bool) { return 0, true }

// correct has the request cost what is used of each unit, where that is known.
func (f *flight) correct(used func(config.Cost) (n int, ok bool)) {
	for _, t := range f.taken {
		for _, c := range t.costs {
			if n, ok := used(c); ok {
				_ = t.permit.Correct(c.Unit, n) // a limit that has changed meanwhile may not count it
			}
		}
	}
}
