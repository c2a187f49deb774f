package sim

import (
	"math"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Own are scenarios that break controllers which hold in those of Given: upstreams that lie, incidents,
// restarts. Each says what it hurts.
func Own() []Scenario {
	const r, share, crowded, outage = rate100, share10, 100 * time.Second, 20 * time.Second
	lies := func(lie func(time.Duration, *policy.Feedback)) func(*Scenario) {
		return func(s *Scenario) { s.Lie = lie }
	}
	return []Scenario{
		// A controller that restores its trust in the hint at each change: discovery sees half of the pool every
		// other time.
		ten("O1", "the hint flaps between 2x and 1/2x every 7 s", nil).and(flap),
		ten("O2", "Retry-After lies: a minute, none, a year, negative", always(share)).and(lies(lieRetryAfter)),
		ten("O3a", "fields lie: always half is left", always(share)).and(lies(lieConstant)),
		ten("O3b", "fields lie: they are about another quota", always(share)).and(lies(lieOtherWindow)),
		ten("O3c", "fields lie: off by two", always(share)).and(lies(lieOffByTwo)),
		// A controller that keeps cutting while all is refused: it comes back from its floor, for minutes.
		ten("O4", "everything is refused for 20 s", always(share)).after(minutes + outage).
			and(func(s *Scenario) { s.Outage = Span{minutes, minutes + outage} }),
		// A controller that learns much and forgets it with the process.
		equal("O5", "rolling restart: one replica every 10 s", r, 20, 2*share, nil).and(roll),
		// A controller whose clock is its round trip: the near half grows sooner, and the far half starves.
		ten("O6", "half of the replicas 10 ms away, half 400 ms", nil).and(func(s *Scenario) {
			ways := [2]Span{{8 * time.Millisecond, 12 * time.Millisecond}, {350 * time.Millisecond, 450 * time.Millisecond}}
			s.RTT = func(i int) (least, most time.Duration) { return ways[i%2].From, ways[i%2].To }
		}),
		// A controller that remembers a plateau: the limit climbs by six tenths in a minute, then drops at once.
		ten("O7", "the limit is a saw-tooth of +-30 % over 60 s", always(share)).
			after(minutes, 2*minutes, 3*minutes).and(drift),
		// A controller that lets an unused rate grow, or forgets it at once.
		equal("O8", "flash crowd: five times the demand for 10 s", r, 10, 5*.7*share, always(share)).
			after(crowded, crowded+10*time.Second).and(crowd),
		// A controller whose cuts and growth keep the proportions that they find: none knows what others have.
		equal("O9", "20 replicas start a factor of 100 apart, no hint", r, 20, r/2, nil).
			and(func(s *Scenario) { s.Start = func(i int) float64 { return r / 20 / 10 * math.Pow(100, float64(i)/19) } }),
	}
}

func flap(s *Scenario) {
	for t := time.Duration(0); t < s.Length; t += 14 * time.Second {
		s.Hints = append(s.Hints, Change{t, 2 * share10}, Change{t + 7*time.Second, share10 / 2})
	}
}

// lieRetryAfter hurts a controller that stops for as long as the answer demands: each 429 costs a minute, or
// the rest of the run. It also hurts one that takes "now" literally and hammers.
func lieRetryAfter(t time.Duration, a *policy.Feedback) {
	if a.Outcome == policy.Throttled {
		a.RetryAfter = [...]time.Duration{minutes, 0, 365 * 24 * time.Hour, -5 * time.Second}[t/minutes%4]
	}
}

// lieConstant hurts a controller that grows while fields promise headroom: only the 429s say no.
func lieConstant(_ time.Duration, a *policy.Feedback) {
	a.Quotas[0] = policy.Quota{Limit: 100, Remaining: 50, Reset: time.Second}
}

// lieOtherWindow hurts as lieConstant does, slower: the fields report a quota of a million an hour that
// never runs out, while another one refuses.
func lieOtherWindow(t time.Duration, a *policy.Feedback) {
	a.Quotas[0] = policy.Quota{Limit: 1e6, Remaining: 1e6 - t.Seconds()*rate100, Reset: time.Hour - t}
}

// lieOffByTwo hurts a controller that aims to leave exactly nothing: two more seem left than are, and the
// reset seems two seconds away that is now.
func lieOffByTwo(_ time.Duration, a *policy.Feedback) {
	if a.Quotas[0].Limit > 0 {
		a.Quotas[0].Remaining += 2
		a.Quotas[0].Reset += 2 * time.Second
	}
}

// roll lets one of ten leave every ten seconds, and a fresh one join a second later.
func roll(s *Scenario) {
	swap := func(i int) time.Duration { return 45*time.Second + time.Duration(i%10)*10*time.Second }
	length := s.Length
	s.Leaves = func(i int) time.Duration { return [2]time.Duration{swap(i), length}[i/10] }
	s.Joins = func(i int) time.Duration { return [2]time.Duration{0, swap(i) + time.Second}[i/10] }
}

func drift(s *Scenario) {
	for t := time.Duration(0); t < s.Length; t += time.Second {
		s.Limits = append(s.Limits, Change{t, rate100 * (.7 + .6*(t%minutes).Seconds()/60)})
	}
}

// crowd lets replicas want .7 of the limit, and five times that between the changes.
func crowd(s *Scenario) {
	crowded := Span{s.Changes[0], s.Changes[1]}
	s.Demand = func(_ int, t time.Duration) float64 {
		if crowded.Has(t) {
			return 5 * .7 * share10
		}
		return .7 * share10
	}
}
