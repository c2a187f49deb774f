package quotient

import "fmt"

// Ask changes what a call asks for. The zero value asks for nothing more. An ask is a plain
// value: passing one allocates nothing.
type Ask struct {
	unit string
	n    int
	kind askKind
}

// askKind tells what an Ask changes.
type askKind uint8

const (
	askNothing askKind = iota
	askEvents
	askClass
)

// Weight asks for n requests at once, and for n slots in flight: 1 (the default) to 1<<40.
// The last Weight of a call counts.
func Weight(n int) Ask { return Ask{n: n, kind: askEvents} }

// Cost asks for n events, 0 or more, of the rates that count unit: tokens, bytes, rows. It may
// be an estimate; Permit.Correct puts it right. Costs of the same unit add up. Cost("", n) is Weight(n). A unit that no
// rate of the limiter has ever counted is an error.
func Cost(unit string, n int) Ask { return Ask{unit: unit, n: n, kind: askEvents} }

// maxAsk bounds one ask so that its thousandths stay far from the edge of an int64.
const maxAsk = 1 << 40

// demand is what one call asks for: requests, and events of each unit the limiter knows,
// in the order of setting.units. It holds no pointer, so that waiters and permits stay small.
type demand struct {
	weight int
	costs  [maxUnits]int
	priced bool // there is a cost, if only of nothing, that may be corrected later
	kept   bool // of its requests some may be given back
	class  Priority
}

var oneRequest = demand{weight: 1}

// newDemand adds up the asks of a call.
func newDemand(asks []Ask, units []string) (demand, error) {
	d := oneRequest
	for _, a := range asks {
		switch {
		case a.kind == askNothing:
		case a.kind == askClass:
			if d.class = Priority(a.n); !d.class.valid() {
				return d, fmt.Errorf("quotient: Priority: %d is not between %d and %d", a.n, PriorityLow, PriorityCritical)
			}
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
