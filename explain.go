package quotient

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// RuleState is the state of a key under one rule, on this replica. A rate has a Window, a controller of the
// policy has a Pace, and slots have neither. The Limit of a controller is the most that it may allow, +Inf
// without a rate. Its Share is the limit divided by the pool, 0 when the size of the pool is unknown. The
// Share of a counted rate is what this replica may take of the present window. Burst and Left of a
// controller are those of its pace: events that may come at once, or slots.
type RuleState struct {
	Name         string        // of the rate; "in-flight" for slots, "adaptive" for a controller
	Unit         string        // of the events, "" for requests; "in-flight" for a controller of slots
	Limit, Share float64       // fleet and here: events per Window, or slots; of a controller, per second
	Window       time.Duration // of a rate, its Per
	Burst        float64       // events that may come at once, here; 0 for windows and slots
	Left         float64       // events, or slots, that are left here; negative: owed
	Reset        time.Duration // until a rate is full, or a window has room; until a controller's pause ends
	Pace         float64       // what a controller allows, or will after a pause: events per second, or slots
	ForgottenIn  time.Duration // until a controller forgets if no feedback comes; 0: nothing has been learned
}

// seenState is state for those who ask: what is left is not known while the pool is awaited.
func (g *gate) seenState(dst []RuleState, now instant) []RuleState {
	if g.setting.awaiting {
		return dst
	}
	return g.state(dst, now)
}

// StateInto makes Acquire, TryAcquire or Check also return the state of the key on which the decision is
// based: (*into)[:0] gets the key under each rule appended, the rates of its limit in order, the slots, the
// controllers of the policy. It allocates nothing when there is room. A limit that denies has no rules, and
// while AwaitPool waits for the size of the pool nothing is known. *into stays unchanged if the call is not
// valid, or if the context had ended before.
func StateInto(into *[]RuleState) CallOption { return CallOption{kind: optionState, into: into} }

// tell puts where the gate stands where calls want it.
func (g *gate) tell(opts []CallOption, now instant) {
	for _, a := range opts {
		if a.into != nil {
			g.advance(now, nil)
			*a.into = g.seenState((*a.into)[:0], now)
		}
	}
}

// state appends where the gate stands under each rule.
func (g *gate) state(dst []RuleState, now instant) []RuleState {
	st := g.setting
	if st.limit.Deny {
		return dst
	}
	for i := range st.rules {
		r := &st.rules[i]
		if r.hidden {
			continue
		}
		n := len(dst)
		dst = slices.Grow(dst, 1)[:n+1]
		x := &dst[n]
		*x = RuleState{
			Name: r.name, Unit: r.unit, Limit: r.limit, Share: r.share,
			Burst: r.burst, Window: r.window,
		}
		left, of, full := g.resource(r).left(now, r)
		if x.Left, x.Reset = left, full; r.counted != 0 {
			x.Share = of
		}
		x.Left = min(x.Left, float64(r.most)) // a bucket may hold what several turns in a row admit
		switch {
		case r.ctrl != noController:
			if x.Burst = of; r.unit == inFlightRule {
				x.Left, x.Burst, _ = (*keyControllerSlots)(g).left(now, r)
			}
			g.ext.learned.state(x, now.at, r.ctrl)
		case r.place == placeRest: // slots and the first bucket know no turns
			if wait := g.resource(r).until(now, r, 0, 0, 1); wait > 0 && wait < never {
				x.Left, x.Reset = min(x.Left, math.Nextafter(1, 0)), max(x.Reset, wait) // outside of its turn
			}
		}
	}
	return dst
}

// state fills in what a controller has learned.
func (l *learned) state(x *RuleState, at time.Duration, ctrl int) {
	x.Pace, x.Window = l.pacers[ctrl].pace, 0
	if l.due != 0 {
		x.ForgottenIn = l.due - at
	}
}

// Explanation is why a call for a key would be admitted, wait or be refused now: all that the decision
// depends on.
type Explanation struct {
	KeyState
	Remembered bool     // false: a key that would start fresh
	Overflow   bool     // it shares the gate of the keys for which there is no room
	DryRun     bool     // all calls are admitted
	Limit      Limit    // that holds for the key, over the fleet
	First      Reason   // why the first waiter of the key waits; ReasonNone when there is none
	Next       Decision // what Check returns, but RetryAfter is that of a call for which no other was told a turn

	belief belief // of the pool that the limit is divided by
}

// Explain returns how a call for the key would fare now, and why. Without a Plan it is one of the plan that
// the key is in. Like Check it takes nothing and counts nothing.
func (l *Limiter) Explain(key string, opts ...CallOption) Explanation {
	now := l.now()
	s, h := l.lock(key)
	defer s.mu.Unlock()
	now = s.tick(now)
	g := s.peek(h, key, now)
	d, err := newDemand(opts, s.setting.units, *s.plans)
	if slices.ContainsFunc(opts, func(a CallOption) bool { return a.kind == optionPlan }) {
		g = s.within(g, d.plan, now)
	}
	e := Explanation{
		KeyState: g.keyState(key, now), Remembered: s.find(h) != nil, Overflow: s.overflow.is(g),
		DryRun: l.dry.Load(), Limit: g.setting.limit.clone(), belief: g.setting.belief,
	}
	e.Rules = g.state(nil, now)
	if g.waited() {
		e.First = g.ext.blocked
	}
	if err != nil {
		e.Next = Decision{Reason: ReasonBadRequest, bad: err}
		return e
	}
	e.Next = s.answer(g, &d, promises{})
	return e
}

// String is the explanation for an operator, a few lines long.
func (e Explanation) String() string {
	var b strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	add("%q: %s.\n", e.Key, e.verdict())
	add("Limit over the fleet: %s", e.Limit)
	switch {
	case e.Overridden:
		b.WriteString(" (its own)")
	case e.Plan != "":
		add(" (plan %s)", e.Plan)
	}
	add("; %s.\n", e.belief.words())
	for _, r := range e.Rules {
		add("%s\n", r.words())
	}
	add("%d in flight, %d waiting", e.InFlight, e.Waiting)
	if e.First != ReasonNone {
		add(", the first of them for: %s", e.First)
	}
	b.WriteString(".")
	switch {
	case e.Overflow:
		b.WriteString(" MaxKeys keys are busy: the key shares one limit with others.")
	case !e.Remembered:
		b.WriteString(" No state is kept for the key: it would start as a new one.")
	}
	return b.String()
}

// verdict is the answer in words.
func (e Explanation) verdict() string {
	n := e.Next
	if n.OK {
		return "the next request is admitted at once"
	}
	text := "the next request has to wait"
	switch n.Reason {
	case ReasonDenied, ReasonTooLarge, ReasonShare, ReasonBadRequest:
		text = "the next request is refused"
	}
	text += " (" + n.Reason.String()
	if n.Rule != "" {
		text += ", rule " + n.Rule
	}
	text += ")"
	if n.RetryAfter > 0 {
		until := time.Now().Add(n.RetryAfter).Format(time.TimeOnly)
		text += fmt.Sprintf(" for %v, until %s", short(n.RetryAfter), until)
	}
	if e.DryRun {
		text += "; this is a dry run, so it is admitted"
	}
	return text
}

// words is where a key stands under the rule.
func (x RuleState) words() string {
	if x.Pace > 0 {
		return x.learned()
	}
	s := x.Name + ": " + shareWords(x.Share, x.Limit, x.Unit, x.Window) + ", " + digits(x.Left) + " left"
	if x.Reset > 0 {
		s += fmt.Sprintf(", full in %v", short(x.Reset))
	}
	return s + "."
}

// learned is what a controller has learned in words.
func (x RuleState) learned() string {
	unit := x.Unit
	if unit == "" {
		unit = "requests"
	}
	s := "The policy allows " + digits(x.Pace) + " " + unit
	if unit != inFlightRule {
		s += " a second"
	}
	s += fmt.Sprintf(" (share %s, at most %s)", digits(x.Share), digits(x.Limit))
	if x.Reset > 0 {
		s += fmt.Sprintf(", and nothing for %v", short(x.Reset))
	}
	if x.ForgottenIn > 0 {
		return s + fmt.Sprintf("; forgotten in %v.", x.ForgottenIn.Round(time.Second))
	}
	return s + "; nothing has been learned yet."
}
