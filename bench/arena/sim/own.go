package sim

import (
	"math"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Own are scenarios that break controllers which hold in those of Given: upstreams that lie, incidents,
// restarts.
func Own() []Scenario {
	return []Scenario{
		flapping(),
		lying("O2", "Retry-After lies: a minute, none, a year, negative", lieRetryAfter),
		lying("O3a", "fields lie: always half is left", lieConstant),
		lying("O3b", "fields lie: they are about another quota", lieOtherWindow),
		lying("O3c", "fields lie: off by two", lieOffByTwo),
		incident(),
		rolling(),
		mixed(),
		drifting(),
		crowd(),
		apart(),
	}
}

// flapping hurts a controller that restores its trust in the hint at each change: discovery that sees half
// of the pool every other time doubles each share every seven seconds.
func flapping() Scenario {
	s := ten("O1", "the hint flaps between 2x and 1/2x every 7 s", nil)
	for t := time.Duration(0); t < s.Length; t += 14 * time.Second {
		s.Hints = append(s.Hints, Change{t, 2 * share10}, Change{t + 7*time.Second, share10 / 2})
	}
	return s
}

// lying has an upstream that enforces the limit and says something else, in every answer.
func lying(name, title string, lie func(time.Duration, *policy.Feedback)) Scenario {
	s := ten(name, title, always(share10))
	s.Lie = lie
	return s
}

// lieRetryAfter hurts a controller that stops for as long as the answer demands: each 429 costs a minute, or
// the rest of the run. It also hurts one that takes "now" literally and hammers.
func lieRetryAfter(t time.Duration, a *policy.Feedback) {
	if a.Outcome == policy.Throttled {
		a.RetryAfter = [...]time.Duration{minutes, 0, 365 * 24 * time.Hour, -5 * time.Second}[t/minutes%4]
	}
}

// lieConstant hurts a controller that grows while fields promise headroom: the promise never ends, so only
// the 429s say no.
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

// incident hurts a controller that keeps cutting while all is refused: it comes back from its floor, for
// minutes.
func incident() Scenario {
	s := ten("O4", "everything is refused for 20 s", always(share10))
	s.Outage = Span{minutes, minutes + 20*time.Second}
	s.Changes = []time.Duration{s.Outage.To}
	return s
}

// rolling hurts a controller that learns much and forgets it with the process. Every ten seconds one replica
// leaves with its knowledge, and a fresh one joins a second later.
func rolling() Scenario {
	const n = 10
	s := equal("O5", "rolling restart: one replica every 10 s", rate100, 2*n, 2*share10, nil)
	swap := func(i int) time.Duration { return 45*time.Second + time.Duration(i%n)*10*time.Second }
	s.Leaves = func(i int) time.Duration {
		if i < n {
			return swap(i)
		}
		return s.Length
	}
	s.Joins = func(i int) time.Duration {
		if i < n {
			return 0
		}
		return swap(i) + time.Second
	}
	return s
}

// mixed hurts a controller whose clock is its round trip: the near half grows sooner, and the far half
// starves.
func mixed() Scenario {
	s := ten("O6", "half of the replicas 10 ms away, half 400 ms", nil)
	s.RTT = func(i int) (least, most time.Duration) {
		if i%2 == 0 {
			return 8 * time.Millisecond, 12 * time.Millisecond
		}
		return 350 * time.Millisecond, 450 * time.Millisecond
	}
	return s
}

// drifting hurts a controller that remembers a plateau: the limit climbs by six tenths in a minute, then
// drops at once.
func drifting() Scenario {
	s := ten("O7", "the limit is a saw-tooth of +-30 % over 60 s", always(share10))
	for t := time.Duration(0); t < s.Length; t += time.Second {
		s.Limits = append(s.Limits, Change{t, rate100 * (.7 + .6*(t%minutes).Seconds()/60)})
		if t > 0 && t%minutes == 0 {
			s.Changes = append(s.Changes, t)
		}
	}
	return s
}

// crowd hurts a controller that lets an unused rate grow, or forgets it at once: demand is .7 of the limit,
// and five times that for ten seconds.
func crowd() Scenario {
	crowded := Span{100 * time.Second, 110 * time.Second}
	s := equal("O8", "flash crowd: five times the demand for 10 s", rate100, 10, 5*.7*share10, always(share10))
	s.Demand = func(_ int, t time.Duration) float64 {
		if crowded.Has(t) {
			return 5 * .7 * share10
		}
		return .7 * share10
	}
	s.Changes = []time.Duration{crowded.From, crowded.To}
	return s
}

// apart hurts a controller whose cuts and growth keep the proportions that they find: no replica knows what
// the others have.
func apart() Scenario {
	const r, n = rate100, 20
	s := equal("O9", "20 replicas start a factor of 100 apart, no hint", r, n, 10*r/n, nil)
	s.Start = func(i int) float64 { return r / n / 10 * math.Pow(100, float64(i)/(n-1)) }
	s.Most = func(int) float64 { return 10 * r / n }
	return s
}
