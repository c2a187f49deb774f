package policy_test

import (
	"math"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// longestGate is the longest that any controller may close a key for at once.
const longestGate = 31 * 24 * time.Hour

// contract is a policy and what it promises beyond what all controllers do.
type contract struct {
	name   string
	policy policy.Policy
	floor  func(policy.Bounds) float64 // the least rate under sane bounds, if the ceiling allows it
	// fairness of 20 equal replicas after a minute, at least; in the mean of several runs
	jain float64
}

// contracts are the policies that learn. The properties of this package hold for all of them.
var contracts = []contract{
	// Halving those alone that happen to be refused is uneven: the textbook controller makes no promise of
	// .95.
	{"AIMD", policy.AIMD{}, func(b policy.Bounds) float64 {
		if b.Share > 0 {
			return b.Share / 50
		}
		return 0.1
	}, 0.9},
	{"Tracking", policy.Tracking{}, func(policy.Bounds) float64 { return 0.02 }, 0.95},
}

// witness gives a controller and its twin the same samples, and notes the first broken promise.
type witness struct {
	contract
	ctrl, twin policy.Controller
	bounds     policy.Bounds // of the last sample
	rate       float64       // after it
	now        time.Duration // of the last sample
	round      time.Duration // when the round of feedback began
	open       bool          // no answer to a request sent since then has come
	stopped    time.Duration // when it began to probe
	probing    bool
	cost       float64 // of a request; 0: not yet known
	varies     bool    // the cost does
	broken     string  // what was broken
	at         policy.Sample
}

func (c contract) witness(seed uint64) *witness {
	w := &witness{contract: c, ctrl: c.policy.New(seed), twin: c.policy.New(seed)}
	w.round, w.stopped = math.MinInt64, math.MinInt64
	return w
}

// tell is one sample, the first of them the one that starts the controller.
func (w *witness) tell(s policy.Sample, b policy.Bounds) policy.Pace {
	pace := w.ctrl.Next(s, b)
	if w.broken == "" {
		w.at = s
		w.broken = w.judge(s, b, pace, w.twin.Next(s, b))
	}
	w.turn(s)
	if !w.probing && pace.Probe() > 0 {
		w.stopped = s.Now
	}
	w.probing = pace.Probe() > 0
	w.learn(s.Cost)
	w.bounds, w.rate = b, w.allowed(pace)
	return pace
}

// judge returns the promise that a pace breaks; empty when none.
func (w *witness) judge(s policy.Sample, b policy.Bounds, p, twin policy.Pace) string {
	gated := p.NotBefore > max(s.Now, 0) // the clock begins at 0
	switch {
	case p != twin:
		return "the same seed and samples give another pace"
	case !(p.Rate > 0) || math.IsInf(p.Rate, 1):
		return "the rate is not finite and positive"
	case b.Ceiling > 0 && p.Rate > b.Ceiling:
		return "the rate is above the ceiling"
	case sane(b) && w.sound(s) && p.Rate < min(w.floor(b), b.Ceiling)*(1-1e-9):
		return "the rate is below the floor"
	case gated && p.NotBefore.Seconds()-s.Now.Seconds() > longestGate.Seconds()+1:
		return "the gate is shut for longer than 31 days"
	case w.steady(s) && b == w.bounds && b.Fleet == nil && w.allowed(p) > w.rate*(1+1e-6) && w.mustNotRise(s):
		return "the rate rises before the round of feedback is over"
	}
	return ""
}

// allowed is the rate that a pace allows now: that of its probes, if it has any.
func (w *witness) allowed(p policy.Pace) float64 {
	if p.Probe() > 0 {
		return w.cost / p.Probe().Seconds()
	}
	return p.Rate
}

// sane reports whether the bounds are what a limiter gives: a share below the ceiling, and both in range.
func sane(b policy.Bounds) bool {
	return (b.Share == 0 || b.Share >= 1e-6) && b.Share <= b.Ceiling && b.Ceiling >= 1e-6 && b.Share <= 1e12
}

// learn notes what a request costs. A controller may count in requests, and its rate then follows the cost.
func (w *witness) learn(cost float64) {
	if cost > 0 {
		w.varies = w.varies || w.cost > 0 && cost != w.cost
		w.cost = cost
	}
}

// sound reports whether no request has cost less than one event.
func (w *witness) sound(s policy.Sample) bool {
	return (w.cost == 0 || w.cost >= 1 && !w.varies) && (!(s.Cost > 0) || s.Cost >= 1)
}

// steady reports whether the cost is known and stays.
func (w *witness) steady(s policy.Sample) bool {
	return w.cost > 0 && !w.varies && (!(s.Cost > 0) || s.Cost == w.cost)
}

// mustNotRise reports whether a sample is a refusal, or comes before any answer to a request that was sent
// after one.
func (w *witness) mustNotRise(s policy.Sample) bool {
	return s.Outcome == policy.Throttled || w.open && s.Now >= w.now && !w.ends(s)
}

// ends reports whether a sample is the answer to a request that was sent since the round began.
func (w *witness) ends(s policy.Sample) bool {
	return s.Sent >= w.round && (s.Outcome == policy.Success || s.Outcome == policy.Unavailable)
}

// lifetime is the longest that a clock runs. Controllers need not distinguish instants beyond it.
const lifetime = 70 * 365 * 24 * time.Hour

// turn begins a round at a refusal, and ends it. A refusal of a request that was sent before the last round
// began, or before the controller stopped to probe, says nothing new. Where time goes back, it cannot be
// known what was sent before what.
func (w *witness) turn(s policy.Sample) {
	absurd := s.Now < -lifetime || s.Now > lifetime
	if s.Now < w.now || absurd {
		w.round, w.stopped, w.open = math.MinInt64, math.MinInt64, false
	}
	w.now = s.Now
	switch {
	case absurd:
	case s.Outcome == policy.Throttled && s.Sent >= max(w.round, w.stopped):
		w.round, w.open = s.Now, true
	case w.ends(s):
		w.open = false
	}
}
