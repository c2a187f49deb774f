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
// A refusal cuts the rate by a tenth or so, once for each round trip; while few of many are refused, it does not
// go below the share that was hinted. Success lets the rate return to just below where it was cut, rest there, and then
// grow ever faster. A refusal that announces a pause stops the key until the pause has ended. When only refusals come,
// single probes find the end of them, and the requests served since the last such time give the rate for the next.
// RateLimit fields make growth faster or slower, as far as refusals confirm them. Reports of other replicas move rates
// between them. docs/adaptive-controller.md has the whole picture and the figures, docs/adaptive.md what a user needs.
//
// The zero value is ready to use.
type Tracking struct {
	// Spend is how a quota is used whose reset is more than five minutes away, as an hour's or a day's.
	Spend Spend
	// Retry is how announced pauses are taken. The zero value obeys them.
	Retry Retry
}

// Spend is how a long quota is used: one whose reset, by its RateLimit fields, is more than five minutes away.
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

// New returns a controller that starts at the share, or at 5 requests per second when none is known, and in
// both cases at most at the ceiling.
func (p Tracking) New(seed uint64) Controller {
	t := &tracking{spend: p.Spend}
	t.retry.most = longestPause.Seconds()
	if p.Retry.Longest > 0 {
		t.retry.most = min(p.Retry.Longest, mostPause).Seconds()
	}
	t.retry.believed = t.retry.most
	if p.Retry.Test {
		t.retry.believed = min(t.retry.most, testAfter)
	}
	t.random = *rand.NewPCG(seed, 0x9e3779b97f4a7c15) // any constant: the stream is chosen by the seed
	return t
}

const (
	greatestRate    = 1e12
	probeUnanswered = 1.0 // seconds: an upstream that does not answer gets no more than one probe in each
	// coarse is the shortest time between two steps of a controller. Successes in between are only counted: at a
	// thousand requests a second nine of ten cost next to nothing, and growth over seconds does not notice.
	coarse = 10 * time.Millisecond
	// farAway bounds instants, so that no sum of three of them wraps around.
	farAway = time.Duration(math.MaxInt64 / 4)
	// longestStep is the longest time, in seconds, that one sample accounts for, or half an interval between
	// requests if that is longer: a key that rests does not grow meanwhile.
	longestStep = 1.0
)

// tracking is one controller. Rates are in units per second (or slots), times in seconds unless they are a
// time.Duration.
type tracking struct {
	spend  Spend
	random rand.PCG

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
	spare    float64       // seconds since the last answer, of which reports have interrupted growth
	cutAt    time.Duration // of the last cut; -farAway: there was none
	answers  evidence
	share    share
	plateau  plateau
	level    level
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
	dt := min(elapsed+t.spare, max(longestStep, 0.5/t.perSecond(t.rate)))
	if t.spare = 0; s.Outcome == Unknown && b.Fleet.known() { // growth counts from one answer to the next
		t.spare, dt = dt, 0
	}
	t.now = now
	t.learnCost(s.Cost)
	if t.company.on || b.Fleet != nil {
		t.join(&b, now, elapsed)
	}
	if b.Share != t.bounds.Share {
		t.hint(min(b.Share, greatestRate))
	}
	t.remember(elapsed, dt)
	s.Paced, t.counted, t.paced = s.Paced || t.paced, 0, false
	if s.Paced {
		t.blackout.held += dt
		t.wanted, t.wantedAt = true, now
	}
	switch s.Outcome {
	case Success:
		t.served(&s, dt)
		t.fresh = false
	case Throttled:
		t.refused(&s)
	case Unavailable, Failed:
		if was := t.blackout.dark; t.blackout.failure(t, &s) && !was {
			t.cutAt = now // what was sent before says nothing more
		}
	default:
		t.blackout.elsewhere(t, &s)
	}
	t.level.follow(t, elapsed)
	t.rate = t.bounded(t.rate, b)
}

func (t *tracking) begin(s Sample, b Bounds) {
	t.cost, t.now, t.fresh, t.fields.trust = 1, s.Now, true, 1
	t.hint(min(b.Share, greatestRate))
	t.share.since = -farAway // the first change is no flapping
	if t.rate = t.share.hint; t.rate == 0 {
		t.rate, t.plateau.slow = startUnknown, true
	}
	t.plateau.top = t.rate
	t.blackout.began, t.cutAt = s.Now, -farAway
}

// rebase moves all instants with a clock that has gone back, or what lay ahead would stay ahead for as long as it went.
func (t *tracking) rebase(by time.Duration) {
	b, h := &t.blackout, &t.fields
	for _, at := range []*time.Duration{
		&t.now, &t.wantedAt, &t.cutAt, &t.share.since,
		&b.firstBad, &b.until, &b.began, &b.proven, &b.cycled, &h.since, &h.fromAt, &t.retry.at, &t.retry.end,
		&t.answers.reportedAt, &t.company.chance.until,
	} {
		*at = max(*at+by, -farAway)
	}
}

// bounded keeps a rate finite, above the floor and below the ceiling.
func (t *tracking) bounded(x float64, b Bounds) float64 {
	if least := t.least(); !(x > least) {
		x = least
	}
	x = min(x, greatestRate)
	if b.Ceiling > 0 {
		x = min(x, b.Ceiling)
	}
	return x
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
		if t.share.hint == 0 {
			t.rate *= scale
			t.plateau.top *= scale
			t.level.held *= scale
		}
	}
	t.cost += (cost - t.cost) / 16 // about the last sixteen requests
}

// fraction returns a random number from 0 to 1.
func (t *tracking) fraction() float64 { return float64(t.random.Uint64()>>11) / (1 << 53) }
