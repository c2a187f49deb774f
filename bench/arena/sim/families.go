package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Cell is a scenario against one upstream, drawn at random for a family.
type Cell struct {
	// Family is what the cell belongs to, and Kin the kind of lie, hint, incident or drift.
	Family, Kin string
	Scenario    Scenario
	Kind        Kind
	Fields      Fields
	Seed        uint64
	// Beside is the same without what is being judged: nothing reported, or no hint; nil: nothing to compare with.
	Beside *Cell
	// Wants are what must hold beside the score.
	Wants []Want
}

// Want is one figure of a run, and its goal.
type Want struct {
	What  string
	Value func(Result) float64
	Goal  float64
	Most  bool // the goal is the most, not the least
}

// Holds reports whether a value reaches the goal.
func (w Want) Holds(x float64) bool {
	if w.Most {
		return x <= w.Goal
	}
	return x >= w.Goal
}

// Families returns n cells of each family, drawn with a seed: lies, hints, incidents and drift.
func Families(n int, seed uint64) (all []Cell) {
	for f, draw := range []func(*drawing, int) Cell{drawLie, drawHint, drawIncident, drawDrift} {
		for i := range n {
			d := &drawing{rand.New(rand.NewPCG(seed, uint64(f*1_000_000+i)))}
			c := draw(d, i)
			c.Seed = d.Uint64()
			if c.Beside != nil {
				c.Beside.Seed = c.Seed
			}
			all = append(all, c)
		}
	}
	return all
}

// drawing draws what cells have in common.
type drawing struct{ *rand.Rand }

// between is a number between two, as likely in each octave.
func (d *drawing) between(least, most float64) float64 {
	return least * math.Pow(most/least, d.Float64())
}

func (d *drawing) seconds(least, most float64) time.Duration { return seconds(d.between(least, most)) }

// among is one of a list.
func among[T any](d *drawing, list ...T) T { return list[d.IntN(len(list))] }

// fleet draws a fleet with twice the demand of a limit, each at least one request in four seconds, and an upstream.
func (d *drawing) fleet(kinds ...Kind) Cell {
	n := among(d, 1, 1, 2, 3, 4, 6, 10, 20)
	limit := math.Round(max(d.between(8, 250), float64(n)/4))
	s := equal("", "", limit, n, 2*limit/float64(n), nil)
	return Cell{Scenario: s, Kind: among(d, kinds...), Fields: AllFields}
}

// share is what each of a cell's replicas may take.
func (c *Cell) share() float64 { return c.Scenario.Limit / float64(c.Scenario.Replicas) }

// hinted gives a cell the right hint.
func (c *Cell) hinted() { c.Scenario.Hints = always(c.share()) }

// liar makes a lie of one degree for a cell.
type liar struct {
	name string
	make func(d *drawing, c *Cell) func() func(time.Duration, *Answer)
}

func drawLie(d *drawing, i int) Cell {
	c := d.fleet(TokenBucket, GCRA, Window1, Window60, SlidingLog)
	if d.IntN(2) == 0 {
		c.hinted()
	}
	l := liars[i%len(liars)]
	c.Family, c.Kin = "lies", l.name
	c.Fields = AllFields
	truth := c
	truth.Fields = NoFields
	c.Beside = &truth
	c.Scenario.Lie = l.make(d, &c)
	return c
}

// retry is a lie about Retry-After alone. In half of the cells the fields are true, in the others absent.
func retry(name string, after func(d *drawing) func(t time.Duration) time.Duration) liar {
	return liar{name, func(d *drawing, c *Cell) func() func(time.Duration, *Answer) {
		if d.IntN(2) == 0 {
			c.Fields = RetryAfter
		}
		f := after(d)
		return stateless(func(t time.Duration, a *Answer) {
			if a.Outcome == policy.Throttled {
				a.RetryAfter = f(t)
			}
		})
	}}
}

func stateless(f func(time.Duration, *Answer)) func() func(time.Duration, *Answer) {
	return func() func(time.Duration, *Answer) { return f }
}

// fixedRetry is a Retry-After that is always the same.
func fixedRetry(name string, after time.Duration) liar {
	return retry(name, func(*drawing) func(time.Duration) time.Duration {
		return func(time.Duration) time.Duration { return after }
	})
}

// fields is a lie about the quota.
func fields(name string, of func(d *drawing, c *Cell) func(t time.Duration, a *Answer)) liar {
	return liar{name, func(d *drawing, c *Cell) func() func(time.Duration, *Answer) {
		f := of(d, c)
		return stateless(f)
	}}
}

// chance is a number from 0 to 1 that looks random and depends on the instant alone.
func chance(t time.Duration) float64 {
	return rand.New(rand.NewPCG(uint64(t), 1)).Float64()
}

var liars = []liar{
	fixedRetry("retry: a minute", time.Minute),
	fixedRetry("retry: an hour", time.Hour),
	fixedRetry("retry: none", 0),
	fixedRetry("retry: a second", time.Second),
	retry("retry: random", func(*drawing) func(time.Duration) time.Duration {
		return func(t time.Duration) time.Duration { return wholeSeconds(seconds(math.Pow(3600, chance(t)))) }
	}),
	fields("limit of another window", func(d *drawing, c *Cell) func(time.Duration, *Answer) {
		per := among(d, time.Minute, time.Hour, 24*time.Hour)
		whole := math.Round(per.Seconds() * c.Scenario.Limit * d.between(.5, 3))
		used := d.Float64() * .5
		return func(t time.Duration, a *Answer) {
			left := 1 - math.Mod(used+t.Seconds()/per.Seconds(), 1)
			a.Quota = policy.Quota{Limit: whole, Remaining: math.Floor(left * whole), Reset: wholeSeconds(seconds(left * per.Seconds()))}
		}
	}),
	fields("10 to 100 x too large", func(d *drawing, _ *Cell) func(time.Duration, *Answer) {
		by := d.between(10, 100)
		return func(_ time.Duration, a *Answer) { a.Quota.Limit *= by; a.Quota.Remaining *= by }
	}),
	fields("10 to 100 x too small", func(d *drawing, _ *Cell) func(time.Duration, *Answer) {
		by := d.between(10, 100)
		return func(_ time.Duration, a *Answer) {
			a.Quota.Limit, a.Quota.Remaining = math.Ceil(a.Quota.Limit/by), math.Floor(a.Quota.Remaining/by)
		}
	}),
	fields("remaining scaled", func(d *drawing, _ *Cell) func(time.Duration, *Answer) {
		by := d.between(.1, 10)
		return func(_ time.Duration, a *Answer) { a.Quota.Remaining = math.Floor(a.Quota.Remaining * by) }
	}),
	fields("remaining frozen", func(d *drawing, _ *Cell) func(time.Duration, *Answer) {
		part := d.Float64()
		return func(_ time.Duration, a *Answer) { a.Quota.Remaining = math.Floor(part * a.Quota.Limit) }
	}),
	fields("remaining always 0", func(*drawing, *Cell) func(time.Duration, *Answer) {
		return func(_ time.Duration, a *Answer) { a.Quota.Remaining = 0 }
	}),
	fields("remaining always full", func(*drawing, *Cell) func(time.Duration, *Answer) {
		return func(_ time.Duration, a *Answer) { a.Quota.Remaining = a.Quota.Limit }
	}),
	fields("remaining negative", func(d *drawing, _ *Cell) func(time.Duration, *Answer) {
		by := d.between(1, 100)
		return func(_ time.Duration, a *Answer) { a.Quota.Remaining -= math.Floor(by * 5) }
	}),
	fields("of another client", func(d *drawing, _ *Cell) func(time.Duration, *Answer) {
		period, phase := d.between(2, 90), d.Float64()
		return func(t time.Duration, a *Answer) {
			a.Quota.Remaining = math.Floor(a.Quota.Limit * (1 - math.Mod(phase+t.Seconds()/period, 1)))
		}
	}),
	fields("reset: an instant as seconds", func(*drawing, *Cell) func(time.Duration, *Answer) {
		return func(t time.Duration, a *Answer) { a.Quota.Reset += 1_790_000_000*time.Second + t }
	}),
	fields("reset: seconds as an instant", func(*drawing, *Cell) func(time.Duration, *Answer) {
		return func(_ time.Duration, a *Answer) { a.Quota.Reset = 0 }
	}),
	fields("an hour's or day's quota, far from its end", func(d *drawing, c *Cell) func(time.Duration, *Answer) {
		per, from := among(d, time.Hour, time.Hour, 24*time.Hour), d.Float64()*.5
		whole := math.Round(max(5000, c.Scenario.Limit*250) * per.Hours())
		pause := among(d, 0, time.Second, 5*time.Second, time.Minute)
		used := 0.0
		return func(t time.Duration, a *Answer) {
			if used = t.Seconds() * c.Scenario.Limit; a.Outcome == policy.Throttled && pause > 0 {
				a.RetryAfter = pause
			}
			a.Quota = policy.Quota{Limit: whole, Remaining: max(0, whole-math.Floor(used)), Reset: wholeSeconds(seconds((1-from)*per.Seconds()) - t)}
		}
	}),
	fields("two quotas by turns", func(d *drawing, c *Cell) func(time.Duration, *Answer) {
		whole := math.Round(c.Scenario.Limit * 3600 * d.between(.1, 2))
		return func(t time.Duration, a *Answer) {
			if chance(t) < .5 {
				a.Quota = policy.Quota{Limit: whole, Remaining: math.Floor(whole * .7), Reset: time.Hour - t}
			}
		}
	}),
	{"fields of a cache", func(d *drawing, c *Cell) func() func(time.Duration, *Answer) {
		age := d.seconds(1, 60)
		return func() func(time.Duration, *Answer) {
			var kept Answer
			var at time.Duration
			return func(t time.Duration, a *Answer) {
				if a.Outcome == policy.Success {
					if kept.Quota.Limit == 0 || t-at >= age {
						kept, at = *a, t
					}
					a.Quota = kept.Quota
				}
			}
		}
	}},
	fields("of a CDN in front", func(d *drawing, _ *Cell) func(time.Duration, *Answer) {
		whole, part := math.Round(d.between(100, 1e5)), d.between(.2, 1)
		return func(t time.Duration, a *Answer) {
			if a.Outcome == policy.Success && chance(t) < part {
				a.Quota = policy.Quota{Limit: whole, Remaining: math.Floor(whole * (.8 + .2*chance(t+1))), Reset: time.Minute}
			}
		}
	}),
	fields("room on successes only", func(d *drawing, _ *Cell) func(time.Duration, *Answer) {
		part := d.Float64()
		return func(_ time.Duration, a *Answer) {
			if a.Outcome == policy.Success {
				a.Quota.Remaining = math.Floor(a.Quota.Limit * (.3 + .7*part))
			} else {
				a.Quota.Remaining = 0
			}
		}
	}),
}

// drawHint draws a hint that moves or is wrong.
func drawHint(d *drawing, i int) Cell {
	c := d.fleet(TokenBucket, GCRA, Window1, Window60, SlidingLog)
	c.Fields = among(d, NoFields, RetryAfter, AllFields)
	c.Family, c.Kin = "hints", [...]string{"right", "flaps", "wrong", "moves", "steady, too high", "steady, too low"}[i%6]
	blind := c
	c.Beside = &blind
	h := c.share()
	s := &c.Scenario
	switch i % 6 {
	case 0:
		c.hinted()
	case 1:
		every, by := d.seconds(2, 10), d.between(1.4, 2)
		for t, k := time.Duration(0), 0; t < s.Length; t, k = t+every, k+1 {
			s.Hints = append(s.Hints, Change{t, h * math.Pow(by, float64(k%2*2-1))})
		}
	case 2:
		s.Hints = always(h * d.between(.05, 20))
	case 3:
		for t := time.Duration(0); t < s.Length; t += d.seconds(3, 60) {
			s.Hints = append(s.Hints, Change{t, h * d.between(.05, 20)})
		}
	case 4:
		s.Hints = always(h * d.between(1.5, 4))
	case 5:
		s.Hints = always(h / d.between(1.5, 4))
	}
	if i%6 >= 4 {
		c.Wants = []Want{{What: "Jain, last two minutes", Goal: .95, Value: func(r Result) float64 {
			return r.Fair(2*time.Minute, 4*time.Minute)
		}}}
	}
	return c
}

// drawIncident draws what happens to an upstream for a while, and two minutes after it.
func drawIncident(d *drawing, i int) Cell {
	c := d.fleet(TokenBucket, GCRA, Window1, TokenBucket, GCRA, Window1, Window60, SlidingLog)
	c.Scenario.Limit = math.Round(max(c.Scenario.Limit, 20, 2*float64(c.Scenario.Replicas)))
	c.Fields = among(d, NoFields, RetryAfter, AllFields)
	s := &c.Scenario
	s.Demand, s.Most = constant(2 * c.share())
	if d.IntN(2) == 0 {
		c.hinted()
	}
	from := 60*time.Second + d.seconds(1, 30)
	kin := i % 5
	c.Family = "incidents"
	c.Kin = [...]string{"a tenth for 30 s", "outage", "refused at random", "one served in 30 s", "a tenth for 30 s"}[kin]
	to := from
	switch kin {
	case 0, 4:
		to += 30 * time.Second
		s.Limits = []Change{{from, s.Limit / 10}, {to, s.Limit}}
		c.Wants = []Want{used("used after 15 s", to, 15, 30, s.Limit, .9, c.Kind), fairAfter(to, s)}
	case 1:
		to += d.seconds(5, 300)
		f := Fault{From: from, To: to, Part: 1, Outcome: among(d, policy.Unavailable, policy.Failed, policy.Failed)}
		if f.Outcome == policy.Failed && d.IntN(2) == 0 {
			f.After = d.seconds(1, 10)
		}
		s.Faults = []Fault{f}
		c.Wants = []Want{used("used after 5 s", to+f.After, 5, 10, s.Limit, .5, c.Kind), probes(f, s.Replicas), fairAfter(to, s)}
	case 2:
		to += among(d, 3*time.Minute, 5*time.Minute)
		s.Faults = []Fault{{From: from, To: to, Part: .5, Outcome: policy.Throttled}}
		c.Wants = []Want{used("used after 20 s", to, 20, 20, s.Limit, .5, c.Kind), fairAfter(to, s)}
	case 3:
		to += minutes
		s.Faults = []Fault{{From: from, To: to, Part: 1, Except: 30 * time.Second, Outcome: policy.Throttled}}
		c.Wants = []Want{used("used after 20 s", to, 20, 20, s.Limit, .5, c.Kind), fairAfter(to, s)}
	}
	s.Changes = []time.Duration{from, to}
	s.Length = to + 2*time.Minute + time.Second
	c.Wants = append(c.Wants, worstMinute(s))
	return c
}

// used is the part of a limit that is used in some seconds after an instant, or in the second minute after it on long windows.
func used(what string, at time.Duration, after, length int, limit, goal float64, kind Kind) Want {
	if kind == Window60 {
		what, after, length = "used in the second minute", 60, 60
	}
	if kind == SlidingLog {
		after, length = max(after, 10), max(length, 10)
	}
	from := at + time.Duration(after)*time.Second
	return Want{What: what, Goal: goal, Value: func(r Result) float64 {
		return r.Used(from, from+time.Duration(length)*time.Second, limit)
	}}
}

func fairAfter(to time.Duration, s *Scenario) Want {
	return Want{What: "Jain in the second minute", Goal: .95, Value: func(r Result) float64 {
		return r.Fair(to+minutes, to+2*minutes)
	}}
}

// probes is how many requests a second each replica sends in an outage, later than its first three seconds.
func probes(f Fault, replicas int) Want {
	return Want{What: "probes", Goal: 1, Most: true, Value: func(r Result) float64 {
		sent, n := 0, 0
		for t := f.From + f.After + 3*time.Second; t+time.Second < f.To; t += time.Second {
			sent += r.Sent[t/time.Second]
			n++
		}
		return float64(sent) / float64(max(n, 1)*replicas)
	}}
}

// worstMinute is the part of the requests that is refused in the worst minute without a fault, a second after it at the earliest.
func worstMinute(s *Scenario) Want {
	return Want{What: "429s, worst minute", Goal: .25, Most: true, Value: func(r Result) float64 { return r.WorstMinute(s) }}
}

// drawDrift draws a limit that swings by two fifths over two minutes.
func drawDrift(d *drawing, i int) Cell {
	c := d.fleet(TokenBucket, GCRA, Window1, SlidingLog)
	c.Family, c.Kin = "drift", [...]string{"no hint", "hint"}[i%2]
	c.Fields = among(d, NoFields, RetryAfter, AllFields)
	if i%2 == 1 {
		c.hinted()
	}
	s := &c.Scenario
	s.Length = 6 * minutes
	phase, most := d.Float64(), s.Limit*1.4
	s.Demand, s.Most = constant(2 * most / float64(s.Replicas))
	for t := time.Duration(0); t < s.Length; t += time.Second {
		s.Limits = append(s.Limits, Change{t, s.Limit * (1 + .4*math.Sin(2*math.Pi*(phase+t.Seconds()/120)))})
	}
	c.Wants = []Want{
		{What: "goodput", Goal: .96, Value: func(r Result) float64 { return r.Goodput }},
		{What: "429s", Goal: .025, Most: true, Value: func(r Result) float64 { return r.Refused }},
	}
	return c
}
