package sim

import (
	"fmt"
	"math"
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
	// Most is what replica i wants; Demand is what it wants at time t, never more than that; nil: always Most.
	Most   func(i int) float64
	Demand func(i int, t time.Duration) float64
	// Life tells when replica i runs; nil: always.
	Life func(i int) Span
	// Hints are the shares that replicas get, from an instant on; none: no hint.
	Hints []Change
	// Start is a share that replica i gets when it joins, and that is taken back at once: where it comes
	// from; nil: nothing.
	Start func(i int) float64
	// Ceiling is the highest rate that a replica may try; 0: any.
	Ceiling float64
	// Noise is the part of the answers that are 429 for no reason; nil: none.
	Noise []Change
	// Stranger takes that much of the limit for a time.
	Stranger float64
	Strange  Span
	// RTT has the least and the greatest round trip of replica i; nil: 20 to 80 ms.
	RTT func(i int) Span
	// Lie falsifies what the answers report; nil: they report the truth.
	Lie func(t time.Duration, a *policy.Feedback)
	// Unmeant: pauses of more than a second are announced that are not meant. Who obeys is judged by courtesy there.
	Unmeant bool
	// Outage is a time in which all is refused, whatever the limit is.
	Outage Span
	// Changes are the instants after which convergence is measured.
	Changes []time.Duration
	// Group names the replicas whose fairness is measured; nil: all.
	Group func(i int) bool
	// Kinds are the upstreams that the scenario is played against.
	Kinds []Kind
	// Goals are for the adaptive controller: goodput, share of 429s, Jain's index, convergence, overshoot and
	// p99 of waits, as means over upstreams and fields. One below zero is no goal.
	Goals []float64
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
	full    = 100.0     // the usual limit
	share   = full / 10 // of ten replicas
	minutes = time.Minute
	late    = 90 * time.Second
	crowded = 100 * time.Second // when a crowd comes, for ten seconds
)

// Scenarios are all. Those named S and N have goals. Those named O break controllers which hold in the others:
// upstreams that lie, incidents, restarts. Each says what it hurts. Those named H go over ranges.
var Scenarios = append([]Scenario{
	ten("S1", "equal demand, right hint", always(share), after(0), goals(.99, .01, .99, 0)),
	ten("S2", "one replica wants 0.9 of the limit", always(share), after(0), skew, goals(.985, .005, .99, 6)),
	equal("S3", "5 -> 20 join at 60 s, hint 30 s late", full, 20, 2*full/5, []Change{{0, full / 5}, {late, full / 20}},
		join, goals(.99, .02, .98, 3)),
	equal("S4", "20 -> 5 leave at 60 s, hint 30 s late", full, 20, 2*full/5, []Change{{0, full / 20}, {late, full / 5}},
		leave, goals(.98, .015, 1, 8)),
	ten("S5", "the limit halves at 60 s, doubles at 180 s", always(share), after(minutes, 3*minutes),
		limits(Change{minutes, full / 2}, Change{3 * minutes, full}), goals(.98, .02, .98, 6, 1.5)),
	equal("S6", "50 replicas, no hint", full, 50, 2*full/50, nil, after(0), goals(.98, .02, .95, 4)),
	equal("S7", "on and off: 10 s of each 40", full, 10, 4*share, always(share), onOff, goals(1, .01)),
	ten("S8", "a stranger takes 0.4 of the limit for two minutes", always(share), after(minutes, 3*minutes),
		stranger, goals(.98, .02, .98, 6)),
	ten("S9a", "hint wrong: 4x too high", always(4*share), goals(.98, .02)),
	ten("S9b", "hint wrong: 4x too low", always(share/4), goals(.97, .01)),
	equal("S10", "1000 replicas, 500/s", 500, 1000, 1, always(.5), after(0), goals(.98, .02, .96, 1)),
	equal("S11", "600 a minute in fixed windows", 10, 10, 2, always(1), against(Window60), goals(1, .01, .98)),
	ten("S12a", "2 % of answers are 429, hint", always(share), noise, goals(.965)),
	ten("S12b", "2 % of answers are 429, no hint", nil, noise, goals(.94)),
	equal("S13", "5 run, 5 more join, no hint", full, 10, 2*full/5, nil, join, goals(.98, .014, .95, 10)),
	equal("S14", "demand 0.7 of the limit", full, 10, .7*share, always(share), goals(1, 0, -1, -1, -1, .1)),
	ten("S15", "concurrency limit, right hint", always(slotsShare*share), against(Concurrency), goals(.88)),
	equal("N1a", "one client alone, hint", full, 1, 2*full, always(full), goals(.98, .01)),
	equal("N1b", "one client alone, no hint", full, 1, 2*full, nil, goals(.98, .01)),

	// A controller that restores its trust in the hint at each change: discovery sees half of the pool every
	// other time.
	ten("O1", "the hint flaps between 2x and 1/2x every 7 s", nil, flap),
	ten("O2", "Retry-After lies: a minute, none, a year, negative", always(share), lies(aboutRetryAfter), unmeant),
	ten("O3a", "fields lie: always half is left", always(share), lies(constantly)),
	ten("O3b", "fields lie: they are about another quota", always(share), lies(aboutAnotherQuota)),
	ten("O3c", "fields lie: off by two", always(share), lies(byTwo)),
	// A controller that keeps cutting while all is refused: it comes back from its floor, for minutes.
	ten("O4", "everything is refused for 20 s", always(share), after(minutes+20*time.Second),
		func(s *Scenario) { s.Outage = Span{minutes, s.Changes[0]} }),
	// A controller that learns much and forgets it with the process.
	equal("O5", "rolling restart: one replica every 10 s", full, 20, 2*share, nil, roll),
	// A controller whose clock is its round trip: the near half grows sooner, and the far half starves.
	ten("O6", "half of the replicas 10 ms away, half 400 ms", nil, func(s *Scenario) {
		ways := [2]Span{{8 * time.Millisecond, 12 * time.Millisecond}, {350 * time.Millisecond, 450 * time.Millisecond}}
		s.RTT = func(i int) Span { return ways[i%2] }
	}),
	// A controller that remembers a plateau: the limit climbs by six tenths in a minute, then drops at once.
	ten("O7", "the limit is a saw-tooth of +-30 % over 60 s", always(share),
		after(minutes, 2*minutes, 3*minutes), drift),
	// A controller that lets an unused rate grow, or forgets it at once.
	equal("O8", "flash crowd: five times the demand for 10 s", full, 10, 5*.7*share, always(share),
		after(crowded, crowded+10*time.Second), crowd),
	// A controller whose cuts and growth keep the proportions that they find: none knows what others have.
	equal("O9", "20 replicas start a factor of 100 apart, no hint", full, 20, full/2, nil, func(s *Scenario) {
		s.Start = func(i int) float64 { return full / 20 / 10 * math.Pow(100, float64(i)/19) }
	}),
}, ranges()...)

// ranges are the scenarios named H: each is played over a range of one figure, which its name ends with.
func ranges() (list []Scenario) {
	add := func(name, title string, x float64, n int, d, share float64, traits ...trait) {
		name, title = fmt.Sprint(name, "/", x), fmt.Sprintf(title, x)
		list = append(list, equal(name, title, full, n, d, always(share), traits...))
	}
	for _, times := range []float64{1, 10, 100, 1000} { // a ceiling is the most that is ever tried
		most := func(s *Scenario) { s.Ceiling, s.Kinds = times*full, []Kind{TokenBucket, GCRA} }
		add("H1a", "one process, no count, ceiling %g times the limit", times, 1, 2*full, 0, most)
		add("H1b", "one process that knows it, ceiling %g times the limit", times, 1, 2*full, times*full, most)
	}
	for _, percent := range []float64{5, 15, 30, 60} {
		refuse := func(s *Scenario) {
			s.Noise = []Change{{minutes, percent / 100}, {2 * minutes, 0}}
			s.Changes, s.Kinds = []time.Duration{2 * minutes}, []Kind{TokenBucket}
		}
		add("H2a", "%g %% are refused for a minute, no hint", percent, 10, 2*share, 0, refuse)
		add("H2b", "%g %% are refused for a minute, right hint", percent, 10, 2*share, share, refuse)
	}
	for _, times := range []float64{1.5, 2, 3, .67, .5, .33} {
		add("H3", "four replicas, hint %g times what is right", times, 4, full/2, times*full/4, against(GCRA))
	}
	for _, known := range []float64{0, 1} {
		ten := func(s *Scenario) { s.Limit, s.Length, s.Kinds = 10, 10*minutes, []Kind{Window60} }
		add("H4", "600 a minute, each wants 3/s, hint %g", known, 10, 3, known, ten)
	}
	return list
}

// A trait changes a scenario.
type trait func(*Scenario)

// equal is a scenario in which n replicas want d each.
func equal(name, title string, limit float64, n int, d float64, hints []Change, traits ...trait) Scenario {
	s := Scenario{
		Name: name, Title: title, Limit: limit, Replicas: n, Length: 4 * minutes, Hints: hints,
		Most: func(int) float64 { return d }, Kinds: []Kind{TokenBucket, GCRA, Window1, Window60, SlidingLog},
	}
	for _, change := range traits {
		change(&s)
	}
	return s
}

// ten is ten replicas that want twice the limit of a hundred together.
func ten(name, title string, hints []Change, traits ...trait) Scenario {
	return equal(name, title, full, 10, 2*share, hints, traits...)
}

func always(share float64) []Change { return []Change{{0, share}} }

func after(changes ...time.Duration) trait { return func(s *Scenario) { s.Changes = changes } }
func goals(wanted ...float64) trait        { return func(s *Scenario) { s.Goals = wanted } }
func limits(changes ...Change) trait       { return func(s *Scenario) { s.Limits = changes } }
func against(kind Kind) trait              { return func(s *Scenario) { s.Kinds = []Kind{kind} } }
func noise(s *Scenario)                    { s.Noise, s.Unmeant = always(.02), true }
func unmeant(s *Scenario)                  { s.Unmeant = true }
func stranger(s *Scenario)                 { s.Stranger, s.Strange = .4*full, Span{minutes, 3 * minutes} }

func lies(lie func(time.Duration, *policy.Feedback)) trait { return func(s *Scenario) { s.Lie = lie } }

func skew(s *Scenario) {
	s.Most = func(i int) float64 { return map[bool]float64{true: .9 * full, false: .005 * full}[i == 0] }
	s.Group = func(i int) bool { return i > 0 }
}

// join lets all but five replicas join after a minute.
func join(s *Scenario) {
	end := s.Length
	s.Life = func(i int) Span { return Span{min(time.Duration(i/5), 1) * minutes, end} }
	s.Changes = []time.Duration{minutes}
}

// leave lets all but five replicas leave after a minute.
func leave(s *Scenario) {
	end := s.Length
	s.Life = func(i int) Span { return Span{0, end - min(time.Duration(i/5), 1)*(end-minutes)} }
	s.Changes = []time.Duration{minutes}
}

// roll lets one of ten leave every ten seconds, and a fresh one join a second later.
func roll(s *Scenario) {
	end := s.Length
	s.Life = func(i int) Span {
		swap := 45*time.Second + time.Duration(i%10)*10*time.Second
		return [2]Span{{0, swap}, {swap + time.Second, end}}[i/10]
	}
}

// onOff lets every replica want four times its share for 10 s of each 40, at times of its own.
func onOff(s *Scenario) {
	s.Demand = func(i int, t time.Duration) float64 {
		if (t+time.Duration(i)*4*time.Second)%(40*time.Second) < 10*time.Second {
			return 4 * share
		}
		return 0
	}
}

// crowd lets replicas want .7 of the limit, and five times that between the changes.
func crowd(s *Scenario) {
	crowded := Span{s.Changes[0], s.Changes[1]}
	s.Demand = func(_ int, t time.Duration) float64 {
		if crowded.Has(t) {
			return 5 * .7 * share
		}
		return .7 * share
	}
}

func flap(s *Scenario) {
	for t := time.Duration(0); t < s.Length; t += 14 * time.Second {
		s.Hints = append(s.Hints, Change{t, 2 * share}, Change{t + 7*time.Second, share / 2})
	}
}

func drift(s *Scenario) {
	for t := time.Duration(0); t < s.Length; t += time.Second {
		s.Limits = append(s.Limits, Change{t, full * (.7 + .6*(t%minutes).Seconds()/60)})
	}
}

// aboutRetryAfter hurts a controller that stops for as long as the answer demands: each 429 costs a minute, or
// the rest of the run. It also hurts one that takes "now" literally and hammers.
func aboutRetryAfter(t time.Duration, a *policy.Feedback) {
	if a.Outcome == policy.Throttled {
		a.RetryAfter = [...]time.Duration{minutes, 0, 365 * 24 * time.Hour, -5 * time.Second}[t/minutes%4]
	}
}

// constantly hurts a controller that grows while fields promise headroom: only the 429s say no.
func constantly(_ time.Duration, a *policy.Feedback) {
	a.Quotas[0] = policy.Quota{Limit: 100, Remaining: 50, Reset: time.Second}
}

// aboutAnotherQuota hurts as constantly does, slower: the fields report a quota of a million an hour that
// never runs out, while another one refuses.
func aboutAnotherQuota(t time.Duration, a *policy.Feedback) {
	a.Quotas[0] = policy.Quota{Limit: 1e6, Remaining: 1e6 - t.Seconds()*full, Reset: time.Hour - t}
}

// byTwo hurts a controller that aims to leave exactly nothing: two more seem left than are, and the
// reset seems two seconds away that is now.
func byTwo(_ time.Duration, a *policy.Feedback) {
	if a.Quotas[0].Limit > 0 {
		a.Quotas[0].Remaining += 2
		a.Quotas[0].Reset += 2 * time.Second
	}
}

func (s *Scenario) life(i int) Span {
	if s.Life == nil {
		return Span{0, s.Length}
	}
	return s.Life(i)
}

// Live reports whether replica i runs at t.
func (s *Scenario) Live(i int, t time.Duration) bool { return t < s.Length && s.life(i).Has(t) }

func (s *Scenario) demand(i int, t time.Duration) float64 {
	if s.Demand == nil {
		return s.Most(i)
	}
	return s.Demand(i, t)
}

// demandAt is what all replicas want together at t.
func (s *Scenario) demandAt(t time.Duration) (sum float64) {
	for i := range s.Replicas {
		if s.Live(i, t) {
			sum += s.demand(i, t)
		}
	}
	return sum
}

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

// limitAt is what the upstream leaves to the replicas at t.
func (s *Scenario) limitAt(t time.Duration) float64 {
	l := at(s.Limit, s.Limits, t)
	switch {
	case s.Outage.Has(t):
		return 0
	case s.Strange.Has(t):
		return l - s.Stranger
	}
	return l
}

// shareAt is the hint in force at t, 0 for none.
func (s *Scenario) shareAt(t time.Duration) float64 { return at(0, s.Hints, t) }

// Whole is the upstream's limit at the start in the unit that a contender governs: events per second, or slots
// where the only upstream of the scenario limits those.
func (s *Scenario) Whole() float64 {
	if s.Kinds[0] == Concurrency {
		return s.Limit * slotsShare
	}
	return s.Limit
}
