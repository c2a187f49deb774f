package policy

import (
	"math"
	"time"
)

const (
	// wantingFor is how long, in seconds and in intervals between requests, a replica is wanting after its
	// pace held one back. The longer counts.
	wantingFor, wantingIntervals = 1.0, 3.0
	// usedMore is how much more, in mean paces of the others that are wanting, makes a replica wanting that
	// is not held back.
	usedMore = 1.1
	// pullIn is the time, in seconds, in which a rate comes by a factor of e closer to the replica's part.
	// lendIn is the same for a part of a hinted limit.
	pullIn, lendIn = 1.0, 0.3
	keptOfUse      = 1.2 // what stays, in rates of use, of a rate that is not used while others are wanting
	// knownPart of the others, when that many are wanting, know the level. Then slow start ends.
	knownPart = 0.3
	// firstFaster is what remains of the first period while at least halfWant of all are wanting and none is
	// refused. Then the share that all have may be too low.
	firstFaster, halfWant = 0.5, 0.5
	// crowdPart of all requests, and a further one of them, is refused while the fleet is at its limit.
	crowdPart = 0.005
	mostFor   = 120.0 // how long, in seconds, a replica remembers most of what it was served
)

// company is what the controller makes of reports of the others. Each controller finds the level by its own answers.
// Reports only move rates between replicas, keeping their sum, and show that the fleet has reached its limit.
type company struct {
	on                           bool // there is a report, and it covers others too
	weight                       float64
	wanting, rate, used, refused float64 // of the others, as in Fleet
	crowd                        bool    // the fleet is at its limit
	chance                       chance
	most                         float64 // that was served in the last minute or so
}

// over reports whether a use is more than that of the others who are wanting.
func (c *company) over(use float64) bool {
	return c.on && c.wanting > 0 && use > usedMore*c.rate/c.wanting
}

// many reports whether so many are wanting that their share must be too low if none is refused.
func (c *company) many() bool { return !c.crowd && c.wanting+1 >= halfWant*c.weight }

// Report implements Reporter.
func (t *tracking) Report(now time.Duration) Report {
	if t.rate == 0 {
		return Report{}
	}
	now = min(max(now, -farAway), farAway)
	w := Report{Rate: t.use(now), Refused: t.answers.lately(now) * t.cost}
	if t.plateau.slow || !t.wants(now) && !t.company.over(w.Rate) {
		return w
	}
	w.Wanting, w.Rate = true, t.rate
	if b := &t.blackout; b.dark && !b.ill {
		w.Rate = min(w.Rate, b.served/b.lasted(now))
	}
	return w
}

// wants reports whether the pace has held a request back lately: in a blackout, before it.
func (t *tracking) wants(now time.Duration) bool {
	held := max(wantingFor, wantingIntervals/t.perSecond(t.rate))
	if b := &t.blackout; b.dark {
		return t.wanted && (now-b.until).Seconds() < held && (b.firstBad-t.wantedAt).Seconds() < held
	}
	return t.wanted && (now-t.wantedAt).Seconds() < held
}

// use is what was served lately, in units per second. It fades.
func (t *tracking) use(now time.Duration) float64 {
	memory := t.memory()
	return max(0, t.delivered()) / (1 + max(0, (now-t.now).Seconds())/memory)
}

// learn takes in reports. The part of this replica is taken out: its own state is fresher.
func (t *tracking) learn(f *Fleet, now time.Duration) {
	c := &t.company
	if !f.sound() || f.Weight <= 1 {
		if c.on && !t.wants(now) && !t.blackout.dark { // what it gave away while it was idle is its own again
			t.rate = max(t.rate, c.most)
			t.plateau.top = max(t.plateau.top, t.rate)
		}
		*c, t.share.lent = company{chance: c.chance}, 0
		return
	}
	if c.on && f == t.bounds.Fleet {
		return
	}
	w := t.Report(now)
	c.on, c.weight = true, f.Weight
	c.wanting, c.rate, c.used, c.refused = min(f.Wanting, f.Weight), f.Rate, f.Used, max(0, f.Refused-w.Refused)
	if w.Wanting {
		c.wanting, c.rate = max(0, c.wanting-1), max(0, c.rate-w.Rate)
	} else {
		c.used = max(0, c.used-w.Rate)
	}
}

// join follows reports for so many seconds.
func (t *tracking) join(b *Bounds, now time.Duration, elapsed float64) {
	t.learn(b.Fleet, now)
	c := &t.company
	if !c.on {
		return
	}
	use := t.use(now)
	c.most = max(use, c.most*math.Exp(-elapsed/mostFor))
	t.watch(c.rate+c.used+max(use, t.rate), now, elapsed)
	wants := t.wants(now) || c.over(use)
	own := t.rate
	if !wants {
		own = min(own, use)
	}
	part, in := t.part(own, b.Fleet.Limit)
	if t.plateau.slow {
		if c.wanting < max(1, knownPart*(c.weight-1)) {
			return
		}
		t.plateau.slow = false
	}
	if !wants {
		part = max(part, min(t.rate, keptOfUse*use))
	}
	if !t.blackout.dark && t.pulls(part, in, wants) {
		t.pull(part, elapsed, in, *b)
	}
}

// part is what this replica may have if it is wanting, and in how many seconds it comes there. That is as
// much as the others have that are wanting, and what is left of a limit that is believed. Own is what it has.
func (t *tracking) part(own, limit float64) (part, in float64) {
	c, all := &t.company, t.company.wanting+1
	part, in = (c.rate+own)/all, pullIn
	t.share.lent = 0
	if h := t.share.hint; h > 0 && known(limit) {
		lent := min(max((limit-c.used)/all, limit/c.weight), limit)
		t.share.lent = lent/h - 1
		if low := t.share.floor(); low > part {
			part, in = low, lendIn
		}
	}
	return part, in
}

// pulls reports whether the rate moves to the part. A replica that is not wanting rises, so that it can
// start there, if others are wanting or the limit is known. It falls while others are wanting.
func (t *tracking) pulls(part, in float64, wants bool) bool {
	c := &t.company
	switch {
	case part > t.rate && t.answers.heavy():
		return false // what others have is not to be had here
	case wants || c.wanting > 0:
		return true
	}
	return part >= t.rate && in == lendIn
}

// pull moves the rate to a part, and with it all that the controller remembers in units of its part. Reports
// alone never brings the rate below the equal part of what this replica was served. Nor does it more than
// double the rate in a second, unless the limit is known here.
func (t *tracking) pull(part, elapsed, in float64, b Bounds) {
	c := &t.company
	part = max(part, min(t.rate, c.most/c.weight))
	x := t.rate + (part-t.rate)*(1-math.Exp(-elapsed/in))
	if in == pullIn {
		x = min(x, t.rate*math.Exp(ln2*elapsed/slowDouble))
	}
	by := min(t.bounded(x, b)/t.rate, greatestRate) // a rate may be next to nothing, and not grow without end
	for _, rate := range []*float64{
		&t.rate, &t.plateau.top, &t.level.held, &t.level.from, &t.blackout.before,
	} {
		*rate *= by
	}
}

const (
	chanceOver = 7.0 // the length, in seconds, of the times that are compared
	// chanceLeast and chanceMost bound the part that is refused by chance. Less does no harm; more is for
	// each controller to judge.
	chanceLeast, chanceMost = 0.008, 0.05
	chanceBelow             = 0.95            // of the highest sum: below it refusals by the rate would have ended
	topKept                 = 0.97            // what stays of the highest sum from one time to the next
	chanceAlike             = 2.0             // how unlike two parts in a row may be
	chanceFor               = 5 * time.Minute // how long it holds
)

// chance finds out whether refusals in the fleet follow its rate. Where they stay when all have become slower
// they have another cause, and say nothing about the limit.
type chance struct {
	seconds, events, refused float64 // of the time that runs
	top                      float64 // the highest sum of rates lately
	before                   float64 // the part that was refused in the time before, if that was a slow one; else 0
	part                     float64 // that is refused by chance; 0: none is known
	until                    time.Duration
}

// holds reports whether refusals are by chance.
func (c *chance) holds(now time.Duration) bool { return c.part > 0 && now < c.until }

// count takes in dt seconds of the fleet, and reports whether that has shown that refusals are by chance.
func (c *chance) count(part, sum, dt float64, now time.Duration) bool {
	c.seconds += dt
	c.events += sum * dt
	c.refused += part * sum * dt
	if c.seconds < chanceOver {
		return false
	}
	part, sum = c.refused/max(c.events, leastShare), c.events/c.seconds
	c.seconds, c.events, c.refused = 0, 0, 0
	slow := sum < chanceBelow*c.top
	c.top *= topKept
	if part <= chanceMost {
		c.top = max(c.top, sum)
	}
	return c.judge(part, slow, now)
}

// judge compares a time with the one before.
func (c *chance) judge(part float64, slow bool, now time.Duration) (found bool) {
	before := c.before
	c.before = 0
	switch {
	case part < chanceLeast || part > chanceMost:
		if part < c.part/chanceAlike {
			c.part = 0
		}
	case slow:
		c.before = part
		if before > part/chanceAlike && before < part*chanceAlike {
			found = !c.holds(now)
			c.part, c.until = (part+before)/2, now+chanceFor
		}
	}
	return found
}

// watch finds out whether the fleet is at its limit, by the part that is refused of a sum of rates. When
// refusals turn out to be by chance the rate returns to where the fleet was.
func (t *tracking) watch(sum float64, now time.Duration, elapsed float64) {
	c := &t.company
	part := (c.refused + t.answers.lately(now)*t.cost) / sum
	if c.chance.count(part, sum, min(elapsed, longestStep), now) {
		t.plateau.top = max(t.plateau.top, t.rate*min(c.chance.top/sum, 1/chanceBelow/chanceBelow))
	}
	c.crowd = !c.chance.holds(now) && part > crowdPart+t.cost/sum
}
