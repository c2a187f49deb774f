package quotient

import "fmt"

// Ask changes what a call asks for. It is a plain value: passing one allocates nothing. The zero value asks
// for nothing more.
type Ask struct {
	unit string
	n    int
	kind askKind
	into *[]RuleState //floor: an ask carries where a look at the key is written to
}

// askKind is what an Ask changes.
type askKind uint8

const (
	askNothing askKind = iota
	askEvents
	askClass
	askPlan
	askState
)

// Weight asks for n requests at once, and for n slots in flight: 1 (the default) to 1<<40. The last Weight of
// a call counts.
func Weight(n int) Ask { return Ask{n: n, kind: askEvents} }

// Cost asks for n events, 0 or more, of the rates that count unit: tokens, bytes, rows. It may be an
// estimate; Permit.Correct puts it right. Costs of the same unit add up; Cost("", n) is Weight(n). A unit
// that no rate of the limiter has ever counted is an error.
func Cost(unit string, n int) Ask { return Ask{unit: unit, n: n, kind: askEvents} }

// Plan makes a call of the plan of that name: see Limiter.SetPlan. "", the default, is the limiter's own
// limit. The last Plan of a call counts. One that the limiter does not have is an error, and the log has a
// warning of it, once a second at most.
func Plan(name string) Ask { return Ask{unit: name, kind: askPlan} }

// maxAsk bounds one ask so that its thousandths stay far from the edge of an int64.
const maxAsk = 1 << 40

// demand is what one call asks for: requests, and events of each unit the limiter knows, in the order of
// setting.units. It holds no pointer, so that waiters and permits stay small.
type demand struct {
	weight int
	costs  [maxUnits]int
	priced bool // there is a cost, if only of nothing, that may be corrected later
	kept   bool // of its requests some may be given back
	class  Priority
	plan   uint8 // counts the plans from 1; 0: the limiter's own limit
}

var oneRequest = demand{weight: 1}

// more reports whether asks may be for more than one request.
func more(asks []Ask) bool { return len(asks) > 1 || len(asks) == 1 && asks[0].kind != askState }

// newDemand adds up the asks of a call.
func newDemand(asks []Ask, units, plans []string) (demand, error) {
	d := oneRequest
	for i := range asks {
		a := &asks[i]
		switch {
		case a.kind == askNothing || a.kind == askState:
		case a.kind == askClass:
			if d.class = Priority(a.n); !d.class.valid() {
				return d, fmt.Errorf("quotient: Priority: %d is not between %d and %d",
					a.n, PriorityLow, PriorityCritical)
			}
		case a.kind == askPlan:
			i := indexOf(plans, a.unit)
			if i < 0 && a.unit != "" {
				return d, unknownPlan(clip(a.unit))
			}
			d.plan = uint8(i + 1)
		case a.unit == "":
			if a.n < 1 || a.n > maxAsk {
				return d, fmt.Errorf("quotient: Weight: %d is not between 1 and %d", a.n, maxAsk)
			}
			d.weight = a.n
		default:
			i := indexOf(units, a.unit)
			if i < 0 {
				return d, fmt.Errorf("quotient: Cost unit: no rate has ever counted %q here", a.unit)
			}
			if a.n < 0 || a.n > maxAsk-d.costs[i] {
				return d, fmt.Errorf("quotient: Cost(%q): %d is not between 0 and %d", a.unit, a.n, maxAsk)
			}
			d.costs[i] += a.n
			d.priced = true
		}
	}
	return d, nil
}

// unknownPlan is why an ask of a plan that the limiter does not have is not valid.
type unknownPlan string

// Error names the plan.
func (p unknownPlan) Error() string {
	return fmt.Sprintf("quotient: Plan: the limiter has no plan %q", string(p))
}

// of returns the events that d takes from a rate that counts the unit (0: requests).
func (d *demand) of(unit int) int {
	if unit == 0 {
		return d.weight
	}
	return d.costs[unit-1]
}

func indexOf(list []string, s string) int {
	for i, v := range list {
		if v == s {
			return i
		}
	}
	return -1
}

// Priority is the class of an ask. It matters where callers wait: Acquire's queues serve higher classes
// first, and first in, first out within a class. An ask without one is PriorityNormal, the zero value.
//
// No waiter starves. Of any eight admissions of a key while callers wait, at least one goes to the oldest
// waiter, and all others wait behind it until there is room for it. In a full queue (MaxWaiting) an ask takes
// the place of the youngest waiter of the lowest class, if that is lower. That waiter is refused with
// ReasonQueue. An ask of a higher class than all waiters is admitted at once where there is room for it.
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

// Ask makes a call of this class. The last one of a call counts; one that is none of the four is not valid.
func (p Priority) Ask() Ask { return Ask{n: int(p), kind: askClass} }

// String returns low, normal, high or critical; invalid for anything else.
func (p Priority) String() string {
	if !p.valid() {
		return "invalid"
	}
	return priorityNames[p-PriorityLow]
}
