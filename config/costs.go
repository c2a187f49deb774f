package config

import (
	"math"
	"net/http"
	"slices"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/field"
)

// maxCost bounds a cost, as the library does.
const maxCost = min(1<<40, math.MaxInt)

// Counts reports whether a rate of the limiter, of a plan or of an override counts the unit.
func (l Limiter) Counts(unit string) (counts bool) {
	l.limits("", func(_ string, limit quotient.Limit) {
		has := func(r quotient.Rate) bool { return r.Unit == unit }
		counts = counts || slices.ContainsFunc(limit.Rates, has)
	})
	return counts
}

// checkCosts notes costs of a rule that no limiter of it counts, or that cannot be.
func (f *File) checkCosts(r *report, at string, rule Rule) {
	if len(rule.Costs) > maxCosts {
		r.field(at, "%d are more than %d", len(rule.Costs), maxCosts)
	}
	for i, c := range rule.Costs {
		at := element(at, i)
		unit, most := inner(at, "unit"), inner(at, "most")
		if slices.ContainsFunc(rule.Costs[:i], func(b Cost) bool { return b.Unit == c.Unit }) {
			r.field(unit, "%s is in the list twice", clip(c.Unit))
		}
		f.checkCounted(r, at, rule, c)
		between(r, inner(at, "default"), c.Default, 1, maxCost)
		f.checkSaid(r, inner(at, "request"), c.Request)
		checkAnswered(r, inner(at, "answer"), c.Answer)
		switch said := c.Request != "" || c.Answer != ""; {
		case !said && c.Most != 0:
			r.field(most, "it is set without request or answer")
		case said && !r.places.has(most):
			r.hinted(most, "as most = 100000", "it is missing: a wrong field could use up the limit for long")
		case said:
			between(r, most, c.Most, 1, maxCost)
		}
		if c.Most > 0 && c.Default > c.Most {
			r.field(inner(at, "default"), "%d is above most, %d", c.Default, c.Most)
		}
	}
}

// checkCounted notes a cost in a unit that no limiter of the rule counts, and one for which one of them has no room.
func (f *File) checkCounted(r *report, at string, rule Rule, c Cost) {
	counted := false
	for _, one := range rule.All() {
		l, known := f.Limiters[one.Limiter]
		counted = counted || !known || l.Counts(c.Unit) // what is unknown is an error of its own
		f.checkRoom(r, inner(at, "default"), one.Limiter, c.Unit, c.Default)
	}
	if at := inner(at, "unit"); c.Unit == "" {
		r.field(at, "it is empty: weight is for requests")
	} else if !counted {
		r.field(at, "%s: no limiter of the rule has a rate of that unit", clip(c.Unit))
	}
}

// checkSaid notes a field by which no request can say what it counts as.
func (f *File) checkSaid(r *report, at string, name Header) {
	if name == "" || !checkField(r, at, string(name), `as "header:X-Items"`) {
		return
	}
	if !f.Proxy.trusts() {
		r.hinted(at, "add trusted to [proxy]",
			"a header without trusted networks: any client could say what it counts as")
	}
}

// checkAnswered notes a name that no field of an answer has.
func checkAnswered(r *report, at string, name Header) {
	switch canonical := http.CanonicalHeaderKey(string(name)); {
	case name == "":
	case len(name) > 256, !field.IsName(string(name)):
		r.hinted(at, `as "header:X-Total-Tokens"`, "%s is no name of a header field", clip(string(name)))
	case field.Apart(canonical), slices.Contains(hops, canonical):
		r.field(at, "%s is about the connection or the message", clip(string(name)))
	}
}
