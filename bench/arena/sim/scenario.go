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
	// Stranger takes that much of the limit from the first instant to the second.
	Stranger         float64
	StrangerFrom, To time.Duration
	// RTT returns the least and the greatest round trip of replica i; nil: 20 to 80 ms.
	RTT func(i int) (least, most time.Duration)
	// Lie returns, for one run, what falsifies that which the answers report; nil: they report the truth.
	Lie func() func(t time.Duration, a *Answer)
	// Faults are times in which requests fail whatever the limit is.
	Faults []Fault
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

// Fault is a time in which requests fail whatever the limit is.
type Fault struct {
	From, To time.Duration
	// Part of the requests fail, drawn at random.
	Part float64
	// Except lets one request in so long a time pass; 0: none.
	Except time.Duration
	// Outcome is what becomes of the others: Throttled is a refusal.
	Outcome policy.Outcome
	// After is how much later than its round trip an answer comes, as after a time-out.
	After time.Duration
}

// outage is a fault that spares nothing.
func (f Fault) outage() bool { return f.Part >= 1 && f.Except == 0 }

const (
	rate100 = 100.0
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

func constant(d float64) (func(int, time.Duration) float64, func(int) float64) {
	return func(int, time.Duration) float64 { return d }, func(int) float64 { return d }
}

func always(share float64) []Change { return []Change{{0, share}} }

// equal is a scenario in which n replicas want d each.
func equal(name, title string, limit float64, n int, d float64, hints []Change) Scenario {
	s := Scenario{Name: name, Title: title, Limit: limit, Replicas: n, Length: 4 * minutes, Hints: hints}
	s.Demand, s.Most = constant(d)
	return s
}

// fromStart has convergence measured from the start of the run.
func fromStart(s Scenario) Scenario {
	s.Changes = []time.Duration{0}
	return s
}

// solo is one client alone, with or without a hint.
func solo(name, title string, hints []Change) Scenario {
	s := equal(name, title, rate100, 1, 2*rate100, hints)
	s.Kinds = []Kind{TokenBucket, GCRA, Window1, Window60, SlidingLog}
	return s
}

// Given are the scenarios S1 to S15 and N1.
func Given() []Scenario {
	const r, n = rate100, 10
	list := []Scenario{
		fromStart(equal("S1", "equal demand, right hint", r, n, 2*r/n, always(r/n))),
		skewed(),
		joining("S3", "5 -> 20 join at 60 s, hint 30 s late", 5, 20, []Change{{0, r / 5}, {90 * time.Second, r / 20}}),
		leaving(),
		halving(),
		fromStart(equal("S6", "50 replicas, no hint", r, 50, 2*r/50, nil)),
		onOff(),
		stranger(),
		equal("S9a", "hint wrong: 4x too high", r, n, 2*r/n, always(4*r/n)),
		equal("S9b", "hint wrong: 4x too low", r, n, 2*r/n, always(r/n/4)),
		fromStart(equal("S10", "1000 replicas, 500/s", 500, 1000, 1, always(.5))),
		perMinute(),
		noisy("S12a", "2 % of answers are 429, hint", always(r/n)),
		noisy("S12b", "2 % of answers are 429, no hint", nil),
		joining("S13", "5 run, 5 more join, no hint", 5, 10, nil),
		equal("S14", "demand 0.7 of the limit", r, n, .7*r/n, always(r/n)),
		slots("S15", "concurrency limit, right hint", n, always(slotsShare*r/n)),
		solo("N1a", "one client alone, hint", always(r)),
		solo("N1b", "one client alone, no hint", nil),
	}
	return list
}

func perMinute() Scenario {
	s := equal("S11", "600 a minute in fixed windows", 10, 10, 2, always(1))
	s.Kinds = []Kind{Window60}
	return s
}

func skewed() Scenario {
	const r, n = rate100, 10
	s := equal("S2", "one replica wants 0.9 of the limit", r, n, 0, always(r/n))
	s.Most = func(i int) float64 {
		if i == 0 {
			return .9 * r
		}
		return .005 * r
	}
	s.Demand = func(i int, _ time.Duration) float64 { return s.Most(i) }
	s.Group = func(i int) bool { return i > 0 }
	s.Changes = []time.Duration{0}
	return s
}

func joining(name, title string, from, to int, hints []Change) Scenario {
	s := equal(name, title, rate100, to, 2*rate100/float64(from), hints)
	s.Joins = func(i int) time.Duration {
		if i < from {
			return 0
		}
		return minutes
	}
	s.Changes = []time.Duration{minutes}
	return s
}

func leaving() Scenario {
	const r = rate100
	s := equal("S4", "20 -> 5 leave at 60 s, hint 30 s late", r, 20, 2*r/5, []Change{{0, r / 20}, {90 * time.Second, r / 5}})
	s.Leaves = func(i int) time.Duration {
		if i < 5 {
			return s.Length
		}
		return minutes
	}
	s.Changes = []time.Duration{minutes}
	return s
}

func halving() Scenario {
	const r, n = rate100, 10
	s := equal("S5", "the limit halves at 60 s, doubles at 180 s", r, n, 2*r/n, always(r/n))
	s.Limits = []Change{{minutes, r / 2}, {3 * minutes, r}}
	s.Changes = []time.Duration{minutes, 3 * minutes}
	return s
}

// onOff lets every replica want four times its share for 10 s of each 40, at times of its own.
func onOff() Scenario {
	const r, n = rate100, 10
	s := equal("S7", "on and off: 10 s of each 40", r, n, 4*r/n, always(r/n))
	s.Demand = func(i int, t time.Duration) float64 {
		if (t+time.Duration(i)*4*time.Second)%(40*time.Second) < 10*time.Second {
			return 4 * r / n
		}
		return 0
	}
	return s
}

func stranger() Scenario {
	const r, n = rate100, 10
	s := equal("S8", "a stranger takes 0.4 of the limit for two minutes", r, n, 2*r/n, always(r/n))
	s.Stranger, s.StrangerFrom, s.To = .4*r, minutes, 3*minutes
	s.Changes = []time.Duration{minutes, 3 * minutes}
	return s
}

func noisy(name, title string, hints []Change) Scenario {
	s := equal(name, title, rate100, 10, 20, hints)
	s.Noise = .02
	return s
}

func slots(name, title string, n int, hints []Change) Scenario {
	s := equal(name, title, rate100, n, 2*rate100/float64(n), hints)
	s.Kinds = []Kind{Concurrency}
	return s
}

// life is when replica i runs.
func (s *Scenario) life(i int) (from, to time.Duration) {
	from, to = 0, s.Length
	if s.Joins != nil {
		from = s.Joins(i)
	}
	if s.Leaves != nil {
		to = min(to, s.Leaves(i))
	}
	return from, to
}

// Live reports whether replica i runs at t.
func (s *Scenario) Live(i int, t time.Duration) bool {
	from, to := s.life(i)
	return from <= t && t < to
}

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
	if f := s.faultAt(t); f != nil && f.outage() {
		return 0
	}
	if s.StrangerFrom <= t && t < s.To {
		l -= s.Stranger
	}
	return max(l, 0)
}

// faultAt is the fault in force at t, nil for none.
func (s *Scenario) faultAt(t time.Duration) *Fault {
	for i := range s.Faults {
		if f := &s.Faults[i]; f.From <= t && t < f.To {
			return f
		}
	}
	return nil
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
