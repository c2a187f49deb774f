package quotient

import (
	"fmt"
	"strings"
	"time"
)

// Explanation tells why an ask for a key would be admitted, wait or be refused now: all that the decision goes by.
type Explanation struct {
	Key        string
	Remembered bool // false: a key that would start fresh
	Overridden bool // it has a limit of its own
	Overflow   bool // it shares the gate of the keys for which there is no room
	DryRun     bool // nobody is stopped

	Limit             Limit // that holds for the key, over the fleet
	Pool              PoolStats
	Rules             []RuleExplanation // the rates, in order, and the in-flight rule if there is one
	InFlight, Waiting int
	First             Reason        // what the first of those who wait waits for; ReasonNone when nobody waits
	Next              Decision      // what the ask would get from TryAcquire now, but for a dry run
	Wait              time.Duration // until the ask would have its turn, as far as time alone decides; 0: now, or unknown
	Until             time.Time     // that instant by the wall clock; zero when Wait is 0
	Learned           []Learned     // what the policy paces the key by, one for each law; none under policy.Fixed
}

// RuleExplanation is where a key stands under one rule.
type RuleExplanation struct {
	RuleStats
	Ceiling float64       // how far a policy may go, in the unit of Share
	Left    float64       // events, or slots, that this replica has left; negative: owed
	Resets  time.Duration // until the rule is as if nothing had been asked: full, or in its next window; 0 for slots
}

// Learned is what one law of a key has made of the upstream's answers.
type Learned struct {
	Unit        string        // of the events that it paces; "" for requests, "in-flight" for slots
	Pace        float64       // events per second, or slots: what it allows now
	Share       float64       // what division would allow; 0: the size of the pool is unknown
	Ceiling     float64       // the most that it may allow; +Inf without a rate
	PausedFor   time.Duration // how long nothing passes, since the upstream said so
	ForgottenIn time.Duration // until all is forgotten if no feedback comes; 0: nothing has been learned
}

// Explain tells how an ask for the key would fare now, and why. Like Check it takes nothing and counts nothing. An ask that is not valid
// is explained by Next, with ReasonAsk.
func (l *Limiter) Explain(key string, asks ...Ask) Explanation {
	l.mu.Lock()
	pool := l.poolStats()
	l.mu.Unlock()
	now := l.now()
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now = s.tick(now)
	g := s.peek(key, now)
	s.reclaim(g, now)
	e := Explanation{
		Key: key, Remembered: s.get(key) != nil, Overridden: g.setting.own != nil, Overflow: g == s.overflow,
		DryRun: l.dry.Load(), Limit: g.setting.limit.clone(), Pool: pool, InFlight: int(g.used), Rules: g.explain(now),
	}
	if g.waited() {
		e.Waiting, e.First = g.more.queue.len, g.more.blocked
	}
	e.Learned = g.explainLaws(now)
	d, err := newDemand(asks, s.setting.units)
	if err != nil {
		e.Next = Decision{Reason: ReasonAsk, bad: err}
		return e
	}
	e.Next = s.decide(g, g.stands(now, &d))
	if e.Wait = e.Next.RetryAfter; e.Wait > 0 {
		e.Until = time.Now().Add(e.Wait)
	}
	return e
}

// explain is where the gate stands under each rule.
func (g *gate) explain(now time.Time) []RuleExplanation {
	st := g.setting
	stats := st.rules()
	rules := make([]RuleExplanation, len(stats))
	for i := range rules {
		x := &rules[i]
		x.RuleStats, x.Ceiling = stats[i], stats[i].Share
		if i >= len(st.rations) {
			x.Left = float64(st.slots) - float64(g.used)
			continue
		}
		x.Left, x.Resets = g.left(i, now)
	}
	return rules
}

// left is what rate i has left, in events, and when it will be as if nothing had been asked.
func (g *gate) left(i int, now time.Time) (events float64, resets time.Duration) {
	r := &g.setting.rations[i]
	if r.window != nil {
		w := &g.more.windows[i]
		w.roll(now, r.window)
		return float64(w.quota - w.used), r.window.left(now)
	}
	has := g.bucket(i).tokens(now)
	return has / milli, saturated((float64(r.burst) - has) / float64(r.perSecond))
}

// explainLaws is what the laws of the gate have learned.
func (g *gate) explainLaws(now time.Time) []Learned {
	if g.more == nil || g.more.learned == nil {
		return nil
	}
	l, at := g.more.learned, now.Sub(g.setting.origin)
	var all []Learned
	for i := range g.setting.laws {
		ls, p := &g.setting.laws[i], &l.pacers[i]
		x := Learned{Unit: ls.unit, Pace: p.pace, Share: ls.bounds.Share, Ceiling: ls.bounds.Ceiling, PausedFor: max(0, p.notBefore-at)}
		if ls.id == slotsID {
			x.Unit = inFlightRule
		}
		if l.due != 0 {
			x.ForgottenIn = l.due - at
		}
		all = append(all, x)
	}
	return all
}

// String is the explanation for an operator, a few lines long.
func (e Explanation) String() string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	say("%q: %s.\n", e.Key, e.verdict())
	say("Limit over the fleet: %s", e.Limit)
	if e.Overridden {
		b.WriteString(" (its own)")
	}
	say("; %s.\n", e.Pool.String())
	for _, r := range e.Rules {
		say("%s: share %.6g of %.6g, %.6g left", r.Name, r.Share, r.Limit, r.Left)
		if r.Resets > 0 {
			say(", full in %v", r.Resets.Round(time.Millisecond))
		}
		b.WriteString(".\n")
	}
	for _, x := range e.Learned {
		say("%s\n", x)
	}
	say("%d in flight, %d waiting", e.InFlight, e.Waiting)
	if e.First != ReasonNone {
		say(", the first of them for: %s", e.First)
	}
	b.WriteString(".")
	switch {
	case e.Overflow:
		b.WriteString(" MaxKeys keys are busy: it shares a gate with others.")
	case !e.Remembered:
		b.WriteString(" Nothing is remembered of it: it would start fresh.")
	}
	return b.String()
}

// verdict is the answer in words.
func (e Explanation) verdict() string {
	n := e.Next
	if n.OK {
		return "the next ask is admitted at once"
	}
	text := "the next ask has to wait"
	switch n.Reason {
	case ReasonDenied, ReasonTooLarge, ReasonShare, ReasonAsk:
		text = "the next ask is refused"
	}
	text += " (" + n.Reason.String()
	if n.Rule != "" {
		text += ", rule " + n.Rule
	}
	text += ")"
	if e.Wait > 0 {
		text += fmt.Sprintf(" for %v, until %s", e.Wait.Round(time.Millisecond), e.Until.Format(time.TimeOnly))
	}
	if e.DryRun {
		text += "; this is a dry run, so it is admitted"
	}
	return text
}

// String is the pool in words.
func (p PoolStats) String() string {
	s := fmt.Sprintf("%d replicas (%s", p.Replicas, p.Source)
	if p.Age > 0 {
		s += fmt.Sprintf(", said %v ago", p.Age.Round(time.Second))
	}
	if p.Ordinal > 0 {
		s += fmt.Sprintf(", ordinal %d", p.Ordinal)
	}
	return s + ")"
}

// String is what was learned in words.
func (x Learned) String() string {
	unit := x.Unit
	if unit == "" {
		unit = "requests"
	}
	s := fmt.Sprintf("The policy allows %s %.6g", unit, x.Pace)
	if unit != inFlightRule {
		s += " a second"
	}
	s += fmt.Sprintf(" (share %.6g, ceiling %.6g)", x.Share, x.Ceiling)
	if x.PausedFor > 0 {
		s += fmt.Sprintf(", and nothing for %v", x.PausedFor.Round(time.Millisecond))
	}
	if x.ForgottenIn > 0 {
		return s + fmt.Sprintf("; forgotten in %v.", x.ForgottenIn.Round(time.Second))
	}
	return s + "; nothing has been learned yet."
}
