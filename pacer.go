package quotient

import (
	"math"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// pacerBurst is how many seconds of its rate a pacing bucket holds where the law does not say, at least one event: enough
// to even out the jitter of timers, and little enough that a new rate shows at once.
const pacerBurst = 0.1

// heldWeight is what one more request counts in the time that requests hold a slot: a mean over about 16 of them, which
// evens out round trips that differ by some factor.
const heldWeight = 1.0 / 16

// mostGate is the longest that a law may hold all back at once. It is far beyond the windows of most upstreams, and a
// law that means longer says so again when the time has passed.
const mostGate = time.Hour

// leastPace is the shortest time for which a pace holds: a law that is always out of date would be asked without end.
const leastPace = time.Millisecond

// pacer is one law of a key and the bucket that paces what it governs: events of one unit, or slots, each of which is
// taken for as long as a request holds it. See docs/decisions/0020.
//
// The bucket is not a rate.Limiter, because that one cannot be set to a number of tokens at an instant, and locks at every
// question. It counts events, or slots taken. Instants are on the clock of the laws: since setting.origin.
type pacer struct {
	law       policy.Law    // nil until the first feedback: the pace is then where a law starts
	pace      float64       // what it allows: events per second, or slots
	held      float64       // of slots: the seconds that a request holds one, smoothed; 0: not known
	rate      float64       // of the bucket, per second
	size      float64       // of the bucket
	tokens    float64       // in it, at the instant last; negative: owed
	last      time.Duration // when tokens were counted
	taken     float64       // since the law was last told anything, less what was given back
	outdated  time.Duration // when the pace is: the next ask has the law asked; below 0: from the start; 0: never
	saved     float64       // seconds of the rate that the bucket holds
	notBefore time.Duration // nothing passes before it; 0: no such instant
	cut       time.Duration // when the bucket was last made smaller, slower, or anew: what was taken before does not come back
	paced     bool          // it has held an ask back since the law was last told anything
}

// fresh is the pacer of a key never seen.
func (ls *lawSetting) fresh(at time.Duration, full bool) pacer {
	p := pacer{saved: ls.saved, outdated: ls.outdated}
	p.setPace(at, ls.start, ls)
	if full || ls.id == slotsID { // slots are not saved up: none is in use
		p.tokens = p.size
	}
	return p
}

// has is what the bucket holds, gated or not.
func (p *pacer) has(at time.Duration) float64 {
	return min(p.size, p.tokens+p.rate*(float64(at-p.last)/float64(time.Second)))
}

// setPace changes the pace, and with it the fill rate and the size. Tokens that are there stay, up to the new size.
func (p *pacer) setPace(at time.Duration, pace float64, ls *lawSetting) {
	p.pace = pace
	if ls.id == slotsID {
		pace = min(pace/p.held, maxEvents) // while nobody knows how long they are held only their number counts
	}
	if size := max(1, pace*p.saved); pace != p.rate || size != p.size {
		p.tokens, p.last = p.has(at), at
		if pace < p.rate || size < p.size {
			p.cut = at
		}
		p.rate, p.size = pace, size
	}
}

// holds is told for how long a request that succeeded has held its slots.
func (p *pacer) holds(seconds float64) {
	if p.held == 0 {
		p.held = seconds
	}
	p.held += (seconds - p.held) * heldWeight
}

// until is how long it takes, if nobody takes anything meanwhile, before n events may pass: an ask above the
// size waits for a full bucket and then owes the rest.
func (p *pacer) until(at time.Duration, n int) time.Duration {
	return p.untilHas(at, min(float64(n), p.size))
}

// untilHas is how long until the bucket would hold n, were it large enough. It is cut to whole nanoseconds.
func (p *pacer) untilHas(at time.Duration, n float64) time.Duration {
	gated, has := p.gated(at), 1.0
	if gated == 0 {
		has = p.has(at)
	}
	if n <= has {
		return gated
	}
	if d := (n - has) / p.rate * float64(time.Second); d < float64(never-gated) {
		return gated + time.Duration(d)
	}
	return never
}

// take takes n, there or not.
func (p *pacer) take(at time.Duration, n float64) {
	p.pay(at, n)
	p.taken += n
}

// pay takes n tokens, there or not, or puts some back, never above the size.
func (p *pacer) pay(at time.Duration, n float64) {
	p.open(at)
	p.tokens, p.last = p.has(at)-n, at
}

// giveBack gives back n that were taken some time ago, as far as they cannot have come back by themselves.
func (p *pacer) giveBack(at, ago time.Duration, n float64) {
	p.taken -= n
	p.open(at)
	if n -= p.rate * ago.Seconds(); n > 0 && at-ago >= p.cut {
		p.pay(at, -n)
	}
}

// upTo is how many of n events may pass now one by one.
func (p *pacer) upTo(at time.Duration, n int) int {
	if p.gated(at) > 0 {
		return 0
	}
	most := max(p.has(at), 0)
	if whole := math.Floor(most) + 1; p.untilHas(at, whole) == 0 {
		most = whole // a deficit shorter than a nanosecond is none
	}
	return int(min(float64(n), most))
}

// gated is how long nothing passes.
func (p *pacer) gated(at time.Duration) time.Duration {
	p.open(at)
	return max(0, p.notBefore-at)
}

// open ends a gate whose time is over.
func (p *pacer) open(at time.Duration) {
	if p.notBefore != 0 && at >= p.notBefore {
		p.lift(p.notBefore)
	}
}

// lift ends a gate at an instant: one event may pass at it, whatever there was before.
func (p *pacer) lift(at time.Duration) { p.notBefore, p.tokens, p.last, p.cut = 0, 1, at, at }

// heed puts a pace in force. One whose rate is nonsense is not heeded, but the bounds are.
func (p *pacer) heed(at time.Duration, pace policy.Pace, ls *lawSetting) {
	at = max(at, p.last) // a success may be dated before the last look at the bucket
	p.open(at)
	x := pace.Rate
	if !usable(x) {
		x, pace.NotBefore = p.pace, p.notBefore
	}
	p.saved, p.outdated = savedFor(pace.Saved), 0
	if pace.Until != 0 {
		p.outdated = max(pace.Until, at+leastPace)
	}
	p.setPace(at, min(x, ls.bounds.Ceiling, maxEvents), ls)
	switch {
	case pace.NotBefore > at:
		p.notBefore = min(pace.NotBefore, at+mostGate)
	case p.notBefore != 0:
		p.lift(at)
	}
}

// rebound tells the law of its new bounds.
func (p *pacer) rebound(at time.Duration, ls *lawSetting) {
	p.guard(at, ls, func() { p.ask(policy.Sample{Now: at, Sent: at}, ls) })
}

// renew asks the law, whose pace is out of date. One that has not begun does. A bucket that is full stays full when the
// pace rises: who takes all that there is once a second gets the pace of the second that begins, not of the one before.
func (p *pacer) renew(at time.Duration, ls *lawSetting, fresh policy.Policy, seed uint64) {
	p.guard(at, ls, func() {
		full := p.law != nil && p.has(at) >= p.size
		if p.law != nil || p.begin(fresh.New(seed), at, at, ls) {
			p.ask(policy.Sample{Now: at, Sent: at, Paced: p.paced}, ls)
			if p.paced = false; full && p.notBefore == 0 {
				p.tokens, p.last = p.size, at
			}
			return
		}
		p.outdated = 0
	})
}

// ask has the law say its pace, without any feedback.
func (p *pacer) ask(s policy.Sample, ls *lawSetting) {
	s.Taken = p.told(ls)
	p.heed(s.Now, p.law.Next(s, ls.bounds), ls)
}

// guard drops a law that panics where nobody who asks has anything to do with it.
func (p *pacer) guard(at time.Duration, ls *lawSetting, f func()) {
	sound := false
	defer func() {
		if !sound {
			_ = recover()
			p.forget(at, ls)
		}
	}()
	f()
	sound = true
}

// told is what the law is told to have been taken, and counts from now on anew.
func (p *pacer) told(ls *lawSetting) float64 {
	n := p.taken
	if p.taken = 0; ls.id == slotsID {
		return 0 // how long they are held is not known yet
	}
	return n
}

// forget drops what was learned, as of an instant.
func (p *pacer) forget(at time.Duration, ls *lawSetting) {
	if p.notBefore != 0 {
		p.lift(min(p.notBefore, at))
	}
	p.law, p.held, p.paced = nil, 0, false
	p.saved, p.outdated = ls.saved, ls.outdated
	p.setPace(at, ls.start, ls)
}

// savedFor is how many seconds' events a law wants saved up.
func savedFor(d time.Duration) float64 {
	if d <= 0 {
		return pacerBurst
	}
	return d.Seconds()
}

// usable guards against a law that answers nonsense.
func usable(x float64) bool { return x > 0 && !math.IsInf(x, 1) }
