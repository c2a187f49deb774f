package policy

import (
	"math"
	"math/rand/v2"
	"time"
)

// Tracking is the controller for a client whose upstream judges for itself. It follows the upstream's limit
// by the answers, and needs neither the limit nor the number of clients. Clients that share a limit and all
// use it settle at equal rates without talking to each other.
//
// A refusal cuts the rate by a tenth or so, once for each round trip. Success lets it return to just below
// where it was cut, rest there, and then grow ever faster (growth.go). While few of many are refused it does
// not go below the share that was hinted (share.go). A refusal that announces a pause stops the key until the
// pause has ended. When only refusals come, single probes find the end of them, and the requests served since
// the last such time give the rate for the next (blackout.go). RateLimit fields make growth faster or slower,
// as far as refusals confirm them (headroom.go). docs/adaptive-controller.md has the whole picture and the
// figures, docs/adaptive.md what a user needs.
//
// The zero value is ready to use.
type Tracking struct {
	// Spend is how a quota is used whose reset is more than five minutes away, as an hour's or a day's.
	Spend Spend
	// Retry is how announced pauses are taken. The zero value obeys them.
	Retry Retry
	// Without switches rules off, to see what each is worth (docs/adaptive-controller.md). 0 is all rules.
	Without Rules
}

// Spend is how a long quota is used: one whose reset, by its RateLimit fields, is more than five minutes
// away.
type Spend uint8

// The ways to use a long quota.
const (
	// SpendFast uses it as fast as the upstream's other limits allow, and slows down when it would last for
	// less than ten seconds. When it is used up the key waits for its reset. It is the default, and right
	// for a client of GitHub: requests go at once, and most clients never use their hour's quota up.
	SpendFast Spend = iota
	// SpendEvenly spreads what is left evenly until the reset. It is right for work that never ends, such as
	// a crawler's. The fields of a long quota are then believed without a test.
	SpendEvenly
)

// Rules is a set of Tracking's rules.
type Rules uint16

// The rules that can be switched off.
const (
	// RuleFloor trusts a hinted share as long as few of many requests are refused.
	RuleFloor Rules = 1 << iota
	// RulePatience probes above the share ever more seldom while each probe fails.
	RulePatience
	// RuleReturn comes back to just below the rate of the last cut before it probes further.
	RuleReturn
	// RuleBlackout stops when nothing but refusals comes, and learns the rate from what was served.
	RuleBlackout
	// RuleCycle slows growth down to the length of the upstream's window, three minutes at most, once a
	// blackout of no more than a minute or so has shown it.
	RuleCycle
	// RuleHeadroom makes growth faster or slower by RateLimit fields.
	RuleHeadroom
	// RuleDoubt trusts fields less that refusals contradict, or that claim for long that nothing is left.
	RuleDoubt
	// RuleSlowStart doubles the rate each second, when there is no hint, until the first refusal after a success.
	// It does so again when cuts have brought the rate down to the least.
	RuleSlowStart
	// RuleRecover returns fast to the level that held before a fall.
	RuleRecover
	// RuleServed does not cut far below what was served.
	RuleServed
)

// New returns a controller that starts at the share, or at 5 requests per second when none is known, and in
// both cases at most at the ceiling.
func (p Tracking) New(seed uint64) Controller {
	t := &tracking{without: p.Without, spend: p.Spend}
	t.retry.most = p.Retry.longest().Seconds()
	t.retry.believed = t.retry.most
	if p.Retry.Test {
		t.retry.believed = min(t.retry.most, testAfter)
	}
	t.random = *rand.NewPCG(seed, 0x9e3779b97f4a7c15) // any constant: the stream is chosen by the seed
	return t
}

// The greatest rate, and the least: 20 requests in 1000 seconds, or a fiftieth of the share that is believed or
// of the level. A controller that goes lower gets too few answers; one that stays higher makes half of the
// requests of a thousand clients refusals. Both parts yield: refusals end the belief, and wear the level down.
const (
	greatestRate = 1e12
	leastRate    = 0.02 // requests per second
	leastOfShare = 0.02
)

// probeUnanswered is how many seconds a probe has at least before the next one: an upstream that does not
// answer gets no more than one a second.
const probeUnanswered = 1.0

// coarse is the shortest time between two steps of a controller. Successes in between are only counted: at a
// thousand requests a second nine of ten cost next to nothing, and growth over seconds does not notice.
const coarse = 10 * time.Millisecond

// farAway bounds instants, so that no sum of three of them wraps around.
const farAway = time.Duration(math.MaxInt64 / 4)

// longestStep is the longest time, in seconds, that one sample accounts for when requests are frequent.
const longestStep = 1.0

// tracking is one controller. Rates are in units per second (or slots), times in seconds unless they are a
// time.Duration.
type tracking struct {
	without Rules
	spend   Spend
	random  rand.PCG

	rate     float64
	now      time.Duration
	cost     float64 // of a request, smoothed
	costs    bool    // it is known
	fresh    bool    // nothing has been served yet
	bounds   Bounds  // of the last step
	last     Pace    // that it returned
	counted  float64 // successes since
	paced    bool    // the pace held requests back since
	wanted   bool    // it ever did
	wantedAt time.Duration
	answers  evidence
	share    share
	plateau  plateau
	level    level
	cuts     cuts
	blackout blackout
	fields   headroom
	retry    retry
	company  company
}

// Next implements Controller.
func (t *tracking) Next(s Sample, b Bounds) Pace {
	s.Now, s.Sent = min(max(s.Now, -farAway), farAway), min(max(s.Sent, -farAway), farAway)
	if t.counts(&s, &b) {
		t.counted++
		t.paced = t.paced || s.Paced
		t.blackout.clear(s.Sent)
		return t.last
	}
	if t.rate == 0 {
		t.begin(s, b)
	}
	t.step(s, b)
	t.bounds, t.last = b, t.pace(b)
	return t.last
}

// counts reports whether a sample is a success that follows closely upon another and says nothing else.
func (t *tracking) counts(s *Sample, b *Bounds) bool {
	return s.Outcome == Success && t.costs && s.Now >= t.now && s.Now-t.now < coarse && t.fields.repeats(&s.Quota) &&
		*b == t.bounds && !t.blackout.dark && !t.fresh && t.retry.judged()
}

// step is Next for all but successes that follow closely upon each other.
func (t *tracking) step(s Sample, b Bounds) {
	if s.Now < t.now {
		t.rebase(s.Now - t.now)
	}
	now, elapsed := s.Now, (s.Now - t.now).Seconds()
	dt := t.growing(&s, &b, elapsed)
	t.now = now
	t.learnCost(s.Cost)
	t.join(&b, now, elapsed)
	t.hint(min(b.Share, greatestRate))
	t.answers.age(elapsed, t.memory())
	t.answers.answers += t.counted
	t.share.weigh(t.rate, -doubtPaid*dt/t.period(t.slowness())-doubtServed*t.counted)
	t.blackout.served += t.counted * t.cost
	s.Paced, t.counted, t.paced = s.Paced || t.paced, 0, false
	if s.Paced {
		t.blackout.held += dt
		t.wanted, t.wantedAt = true, now
	}
	switch s.Outcome {
	case Success:
		t.answers.served()
		t.success(&s, dt)
		t.fresh = false
	case Throttled:
		t.answers.refused()
		t.company.refuse(now)
		t.throttled(&s)
	case Unavailable, Failed:
		if was := t.blackout.dark; t.blackout.failure(t, &s) && !was {
			t.cuts.last = now // what was sent before says nothing more
		}
	default:
		t.blackout.elsewhere(t, &s)
	}
	t.level.follow(t, elapsed)
	t.rate = t.bounded(t.rate, b)
}

// longest is how much time one sample accounts for: half an interval between requests, or longestStep. A key
// that rests does not grow meanwhile.
func (t *tracking) longest() float64 { return max(longestStep, 0.5/t.perSecond(t.rate)) }

func (t *tracking) begin(s Sample, b Bounds) {
	t.cost, t.now, t.fresh, t.fields.trust = 1, s.Now, true, 1
	t.hint(min(b.Share, greatestRate))
	t.share.since = -farAway // the first change is no flapping
	if h := t.share.hint; h > 0 {
		t.rate = h
	} else {
		t.rate, t.plateau.slow = startUnknown, t.has(RuleSlowStart)
	}
	t.plateau.top = t.rate
	t.blackout.began, t.cuts.last = s.Now, -farAway
}

// rebase moves all instants with a clock that has gone back, or what lay ahead would stay ahead for as long as it went.
func (t *tracking) rebase(by time.Duration) {
	b, h := &t.blackout, &t.fields
	for _, at := range []*time.Duration{
		&t.now, &t.wantedAt, &t.cuts.last, &t.share.since,
		&b.firstBad, &b.until, &b.began, &b.proven, &b.cycled, &h.since, &h.fromAt, &t.retry.at, &t.retry.end,
		&t.company.mineAt, &t.company.chance.until,
	} {
		*at = max(*at+by, -farAway)
	}
}

// has reports whether a rule is in force.
func (t *tracking) has(r Rules) bool { return t.without&r == 0 }

// bounded keeps a rate finite, above the floor and below the ceiling.
func (t *tracking) bounded(x float64, b Bounds) float64 {
	if !(x > t.least()) {
		x = t.least()
	}
	x = min(x, greatestRate)
	if b.Ceiling > 0 {
		x = min(x, b.Ceiling)
	}
	return x
}

// least is the rate at which cuts end.
func (t *tracking) least() float64 {
	return max(leastRate*t.cost, leastOfShare*max(t.share.hint, t.level.held))
}

// pace is what the state allows.
func (t *tracking) pace(b Bounds) Pace {
	if !t.blackout.dark {
		return Pace{Rate: t.rate}
	}
	// Should a probe never be answered, the next one comes at the least rate.
	probe := max(probeUnanswered, min(1/t.perSecond(t.bounded(0, b)), farAway.Seconds()))
	p := Pace{Rate: t.rate, NotBefore: t.blackout.until}
	return p.Probing(time.Duration(probe * float64(time.Second)))
}

// learnCost smooths what a request costs. Without a hint the controller starts at so many requests, whatever
// they cost, and whatever a cheaper first one has cost.
func (t *tracking) learnCost(cost float64) {
	if !(cost >= leastShare && cost <= greatestRate) {
		return
	}
	if scale := cost / t.cost; !t.costs || t.plateau.slow && scale > 1 {
		t.costs, t.cost = true, cost
		if !known(t.share.hint) {
			t.rate *= scale
			t.plateau.top *= scale
			t.level.held *= scale
		}
	}
	t.cost += (cost - t.cost) / 16 // about the last sixteen requests
}

// perSecond is a rate in requests per second.
func (t *tracking) perSecond(rate float64) float64 { return rate / t.cost }

// fraction returns a random number from 0 to 1.
func (t *tracking) fraction() float64 { return float64(t.random.Uint64()>>11) / (1 << 53) }

// success is an answer that does not complain.
func (t *tracking) success(s *Sample, dt float64) {
	t.retry.served(s)
	t.blackout.count(t, s)
	if s.Sent < t.cuts.last || t.blackout.dark && !t.retry.judged() {
		return // it was sent before the cut, or before the pause was announced, and says nothing about the time since
	}
	t.share.weigh(t.rate, -doubtServed)
	if t.blackout.dark {
		t.blackout.end(t, s)
		return
	}
	switch claimed := t.fields.read(t, s); {
	case claimed && (t.fields.even || !t.plateau.slow) && t.has(RuleHeadroom):
		t.fields.steer(t, s.Paced, dt)
	case s.Paced:
		t.grow(dt)
	}
}

// throttled is a refusal.
func (t *tracking) throttled(s *Sample) {
	was := t.blackout.dark
	if !was {
		t.retry.announced(s)
	}
	dark, worth := t.blackout.refusal(t, s), 1.0
	if dark && !was && t.blackout.paused {
		worth = doubtPaused
	}
	if s.Sent >= t.cuts.last && !t.fresh {
		t.share.weigh(t.rate, worth)
	}
	switch {
	case dark && !was && !t.blackout.paused:
		t.fields.judge(t)
		t.cuts.last = s.Now // what was sent before says nothing more
	case s.Sent < t.cuts.last: // of a congestion that has been answered already
	case was || t.fresh: // a limit that others had used up when the controller began says nothing about the rate
		t.cuts.last = s.Now
	default:
		t.fields.judge(t)
		t.cut(s.Now)
	}
}
