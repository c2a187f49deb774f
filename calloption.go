package quotient

import (
	"fmt"
	"math"
	"slices"
)

// CallOption changes what one call requests: its weight, its costs, its plan or its priority. It is a plain
// value, and passing it allocates nothing. The zero value changes nothing.
type CallOption struct {
	unit string
	n    int
	kind optionKind
	into *[]RuleState
}

// optionKind is what a CallOption changes.
type optionKind uint8

const (
	optionNone optionKind = iota
	optionEvents
	optionClass
	optionPlan
	optionState
)

// Weight makes a call count as n requests and take n slots: 1 (the default) to 1<<40, or the largest int where
// that has 32 bits. The last Weight of a call counts.
func Weight(n int) CallOption { return CallOption{n: n, kind: optionEvents} }

// Cost makes a call take n events, 0 to the most of Weight, from the rates that count unit: tokens, bytes,
// rows. n may be an estimate; Permit.Correct puts it right. Costs of the same unit add up; Cost("", n) is
// Weight(n). A unit that no rate of the limiter has ever counted is an error, and so is one that none counts any
// more if another has its place since: a limiter has three.
func Cost(unit string, n int) CallOption { return CallOption{unit: unit, n: n, kind: optionEvents} }

// Plan puts a call under the plan of that name: see Limiter.SetPlan. "", the default, is the limiter's own
// limit. The last Plan of a call counts. A plan that the limiter does not have is an error. It is also logged
// as a warning, at most once a second.
func Plan(name string) CallOption { return CallOption{unit: name, kind: optionPlan} }

// maxAmount bounds one weight, cost or burst so that its thousandths stay far from the edge of an int64.
const maxAmount = min(1<<40, math.MaxInt)

// demand is what one call takes: requests, and events of each unit the limiter knows, in the order of
// setting.units. It holds no pointer, so that waiters and permits stay small.
type demand struct {
	weight int
	costs  [maxUnits]int
	priced bool // there is a cost, if only of nothing, that may be corrected later
	kept   bool // of its requests some may be given back
	class  Priority
	plan   planID
}

var oneRequest = demand{weight: 1}

// more reports whether opts may change a call of one request.
func more(opts []CallOption) bool {
	return len(opts) > 1 || len(opts) == 1 && opts[0].kind != optionState
}

// newDemand adds up the options of a call.
func newDemand(opts []CallOption, units []string, plans plans) (demand, error) {
	d := oneRequest
	for i := range opts {
		a := &opts[i]
		switch {
		case a.kind == optionNone || a.kind == optionState:
		case a.kind == optionClass:
			if d.class = Priority(a.n); !d.class.valid() {
				return d, fmt.Errorf("quotient: Priority: %d is not between %d and %d",
					a.n, PriorityLow, PriorityCritical)
			}
		case a.kind == optionPlan:
			var ok bool
			if d.plan, ok = plans.named(a.unit); !ok {
				return d, unknownPlan(clip(a.unit))
			}
		case a.unit == "":
			if a.n < 1 || a.n > maxAmount {
				return d, fmt.Errorf("quotient: Weight: %d is not between 1 and %d", a.n, maxAmount)
			}
			d.weight = a.n
		default:
			i := slices.Index(units, a.unit)
			if i < 0 {
				return d, fmt.Errorf("quotient: Cost: unit: no rate of the limiter has counted %q", a.unit)
			}
			if a.n < 0 || a.n > maxAmount-d.costs[i] {
				return d, fmt.Errorf("quotient: Cost(%q): %d is not between 0 and %d", a.unit, a.n, maxAmount)
			}
			d.costs[i] += a.n
			d.priced = true
		}
	}
	return d, nil
}

// unknownPlan is the error of a call that names a plan which the limiter does not have.
type unknownPlan string

// Error names the plan.
func (p unknownPlan) Error() string {
	return fmt.Sprintf("quotient: Plan: the limiter has no plan %q", string(p))
}

// of returns the events that d takes from a rate that counts the unit (0: requests).
func (d *demand) of(unit int) int {
	switch {
	case unit == 0:
		return d.weight
	case unit == noUnit:
		return 0
	}
	return d.costs[unit-1]
}

// Priority is the class of a call. It matters where callers wait: Acquire's queues serve higher classes
// first, and first in, first out within a class. The zero value, PriorityNormal, is the default.
//
// No waiter starves. At least one of any eight admissions of a key while callers wait goes to the oldest
// waiter, and all others wait behind it until there is room for it. In a full queue (MaxWaiting) a call
// takes the place of the youngest waiter of the lowest class, if that is lower. That waiter is refused with
// ReasonQueue. A call of a higher class than all waiters is admitted at once where there is room for it.
type Priority int8

// The classes, lowest first.
const (
	PriorityLow      Priority = iota - 1 // work that can wait: batches, prefetching
	PriorityNormal                       // the default
	PriorityHigh                         // a person looks at a screen and waits
	PriorityCritical                     // health checks, and what keeps the rest going
)

const numClasses = int(PriorityCritical-PriorityLow) + 1

var priorityNames = [numClasses]string{"low", "normal", "high", "critical"}

func (p Priority) valid() bool { return p >= PriorityLow && p <= PriorityCritical }

// Option gives a call this class. The last class of a call counts. A value that is none of the four is an
// error.
func (p Priority) Option() CallOption { return CallOption{n: int(p), kind: optionClass} }

// String returns low, normal, high or critical; invalid for anything else.
func (p Priority) String() string {
	if !p.valid() {
		return "invalid"
	}
	return priorityNames[p-PriorityLow]
}
