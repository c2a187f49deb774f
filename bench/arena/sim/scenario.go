package sim

import (
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Scenario defines how much each client wants and when, and what the upstream allows. Rates are in events
// per second, times count from the start of the run.
type Scenario struct {
	Name, Title string
	Replicas    int
	Length      time.Duration
	// Limit is the upstream's at the start; Limits are its changes, which are not announced.
	Limit  float64
	Limits []Change
	// Demand is what replica i wants at time t, and never more than Most.
	Demand func(i int, t time.Duration) float64
	Most   func(i int) float64
	// Joins and Leaves tell when replica i lives; nil: always.
	Joins, Leaves func(i int) time.Duration
	// Hints are the shares that replicas get, from an instant on; none: no hint.
	Hints []Change
	// Start is a share that replica i gets when it joins, and that is taken back at once: where it comes
	// from; nil: nothing.
	Start func(i int) float64
	// Noise is the part of the answers that are 429 for no reason.
	Noise float64
	// Stranger takes that much of the limit for a time.
	Stranger float64
	Strange  Span
	// RTT returns the least and the greatest round trip of replica i; nil: 20 to 80 ms.
	RTT func(i int) (least, most time.Duration)
	// Lie falsifies what the answers report; nil: they report the truth.
	Lie func(t time.Duration, a *policy.Feedback)
	// Outage is a time in which all is refused, whatever the limit is.
	Outage Span
	// Changes are the instants after which convergence is measured, in seconds.
	Changes []time.Duration
	// Group names the replicas whose fairness is measured; nil: all.
	Group func(i int) bool
	// Kinds are the upstreams that the scenario is played against; nil: all but Concurrency.
	Kinds []Kind
}

// Change is a new value from an instant on.
type Change struct {
	At    time.Duration
	Value float64
}

// Span is a time; its end is not a part of it.
type Span struct{ From, To time.Duration }

// Has reports whether an instant is in it.
func (s Span) Has(t time.Duration) bool { return s.From <= t && t < s.To }

const (
	rate100 = 100.0
	share10 = rate100 / 10 // of ten replicas
	minutes = time.Minute
)

// at is the value in force at t; before the first change: first.
func at(first float64, list []Change, t time.Duration) float64 {
	for _, c := range list {
		if c.At > t {
			break
		}
		first = c.Value
	}
	return first
}

func always(share float64) []Change { return []Change{{0, share}} }

// equal is a scenario in which n replicas want d each.
func equal(name, title string, limit float64, n int, d float64, hints []Change) Scenario {
	s := Scenario{Name: name, Title: title, Limit: limit, Replicas: n, Length: 4 * minutes, Hints: hints}
	s.Demand, s.Most = func(int, time.Duration) float64 { return d }, func(int) float64 { return d }
	return s
}

// ten is ten replicas that want twice the limit of a hundred together.
func ten(name, title string, hints []Change) Scenario {
	return equal(name, title, rate100, 10, 2*share10, hints)
}

func (s Scenario) and(change func(s *Scenario)) Scenario {
	change(&s)
	return s
}

// after has convergence measured after these instants.
func (s Scenario) after(changes ...time.Duration) Scenario {
	s.Changes = changes
	return s
}

func (s Scenario) against(kind Kind) Scenario {
	s.Kinds = []Kind{kind}
	return s
}

// Given are the scenarios S1 to S15 and N1.
func Given() []Scenario {
	const r, share, late = rate100, share10, 90 * time.Second
	noise := func(s *Scenario) { s.Noise = .02 }
	return []Scenario{
		ten("S1", "equal demand, right hint", always(share)).after(0),
		ten("S2", "one replica wants 0.9 of the limit", always(share)).after(0).and(skew),
		equal("S3", "5 -> 20 join at 60 s, hint 30 s late", r, 20, 2*r/5, []Change{{0, r / 5}, {late, r / 20}}).and(join),
		equal("S4", "20 -> 5 leave at 60 s, hint 30 s late", r, 20, 2*r/5, []Change{{0, r / 20}, {late, r / 5}}).and(leave),
		ten("S5", "the limit halves at 60 s, doubles at 180 s", always(share)).after(minutes, 3*minutes).
			and(func(s *Scenario) { s.Limits = []Change{{minutes, r / 2}, {3 * minutes, r}} }),
		equal("S6", "50 replicas, no hint", r, 50, 2*r/50, nil).after(0),
		equal("S7", "on and off: 10 s of each 40", r, 10, 4*share, always(share)).and(onOff),
		ten("S8", "a stranger takes 0.4 of the limit for two minutes", always(share)).after(minutes, 3*minutes).
			and(func(s *Scenario) { s.Stranger, s.Strange = .4*r, Span{minutes, 3 * minutes} }),
		ten("S9a", "hint wrong: 4x too high", always(4*share)),
		ten("S9b", "hint wrong: 4x too low", always(share/4)),
		equal("S10", "1000 replicas, 500/s", 500, 1000, 1, always(.5)).after(0),
		equal("S11", "600 a minute in fixed windows", 10, 10, 2, always(1)).against(Window60),
		ten("S12a", "2 % of answers are 429, hint", always(share)).and(noise),
		ten("S12b", "2 % of answers are 429, no hint", nil).and(noise),
		equal("S13", "5 run, 5 more join, no hint", r, 10, 2*r/5, nil).and(join),
		equal("S14", "demand 0.7 of the limit", r, 10, .7*share, always(share)),
		ten("S15", "concurrency limit, right hint", always(slotsShare*share)).against(Concurrency),
		equal("N1a", "one client alone, hint", r, 1, 2*r, always(r)),
		equal("N1b", "one client alone, no hint", r, 1, 2*r, nil),
	}
}

func skew(s *Scenario) {
	most := func(i int) float64 { return map[bool]float64{true: .9 * rate100, false: .005 * rate100}[i == 0] }
	s.Most, s.Demand = most, func(i int, _ time.Duration) float64 { return most(i) }
	s.Group = func(i int) bool { return i > 0 }
}

// join lets all but five replicas join after a minute.
func join(s *Scenario) {
	s.Joins = func(i int) time.Duration { return min(time.Duration(i/5), 1) * minutes }
	s.Changes = []time.Duration{minutes}
}

// leave lets all but five replicas leave after a minute.
func leave(s *Scenario) {
	length := s.Length
	s.Leaves = func(i int) time.Duration { return length - min(time.Duration(i/5), 1)*(length-minutes) }
	s.Changes = []time.Duration{minutes}
}

// onOff lets every replica want four times its share for 10 s of each 40, at times of its own.
func onOff(s *Scenario) {
	s.Demand = func(i int, t time.Duration) float64 {
		if (t+time.Duration(i)*4*time.Second)%(40*time.Second) < 10*time.Second {
			return 4 * share10
		}
		return 0
	}
}

func (s *Scenario) life(i int) Span {
	life := Span{0, s.Length}
	if s.Joins != nil {
		life.From = s.Joins(i)
	}
	if s.Leaves != nil {
		life.To = min(life.To, s.Leaves(i))
	}
	return life
}

// Live reports whether replica i runs at t.
func (s *Scenario) Live(i int, t time.Duration) bool { return s.life(i).Has(t) }

// demandAt is what all replicas want together at t.
func (s *Scenario) demandAt(t time.Duration) float64 {
	sum := 0.0
	for i := range s.Replicas {
		if s.Live(i, t) {
			sum += s.Demand(i, t)
		}
	}
	return sum
}

// limitAt is what the upstream leaves to the replicas at t.
func (s *Scenario) limitAt(t time.Duration) float64 {
	l := at(s.Limit, s.Limits, t)
	if s.Outage.Has(t) {
		return 0
	}
	if s.Strange.Has(t) {
		l -= s.Stranger
	}
	return max(l, 0)
}

// Whole is the upstream's limit at the start in the unit that a contender governs: events per second, or slots
// where the only upstream of the scenario limits those.
func (s *Scenario) Whole() float64 {
	if len(s.Kinds) == 1 && s.Kinds[0] == Concurrency {
		return s.Limit * slotsShare
	}
	return s.Limit
}

// AllKinds are the upstreams that the scenario is played against.
func (s *Scenario) AllKinds() []Kind {
	if s.Kinds != nil {
		return s.Kinds
	}
	return []Kind{TokenBucket, GCRA, Window1, Window60, SlidingLog}
}

// shareAt is the hint in force at t, 0 for none.
func (s *Scenario) shareAt(t time.Duration) float64 { return at(0, s.Hints, t) }
