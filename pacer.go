package quotient

import (
	"math"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// pacerBurst is how many seconds of its rate a pacing bucket holds where the controller sets nothing, and at
// least one event. It is enough to even out the jitter of timers, and so little that a new rate shows at
// once.
const pacerBurst = 0.1

// heldWeight is what one more request counts in the mean time that requests hold a slot. That is a mean over
// about 16 requests, which evens out round trips that differ by some factor.
const heldWeight = 1.0 / 16

// maxPause is the longest for which a controller can stop all at once. It is far beyond the windows of most
// upstreams, and a controller that wants more can pause again when the time has passed.
const maxPause = time.Hour

// minPace is the shortest time for which a pace holds: a controller whose pace has always expired would be
// called without end.
const minPace = time.Millisecond

// pacer is the resource of what a controller governs: the controller, and the bucket that paces it. That is
// events of one unit, or slots, each of which is taken for as long as a request holds it. See
// docs/decisions.md, 20.
type pacer struct {
	bucket
	fill                          // of the bucket: what the pace makes of it
	ctrl        policy.Controller // nil until the first feedback: the pace is then where a controller starts
	pace        float64           // what the controller allows: events per second, or slots
	held        float64           // seconds that a request holds a slot, smoothed; 0: unknown; 1 for events
	taken       float64           // since the controller was last asked, less what was given back
	saved       float64           // seconds of the rate that the bucket holds
	probe       time.Duration     // single requests pass, one in each; 0: the pace is in force
	pausedUntil time.Duration     // nothing passes before it; 0: no such instant
	heldBack    bool              // it has held a call back since the controller was last asked

	// expires is when the pace does: the next call then asks the controller. Below 0 it is from the start; 0
	// is never.
	expires time.Duration
	// cut is when the bucket was last made smaller, slower or new: what was taken before does not come back.
	cut time.Duration
}

// startPacer returns the pacer of a key never seen.
func (r *rule) startPacer(at time.Duration, full bool) pacer {
	p := pacer{fill: fill{interval: math.Inf(1)}, saved: r.saved, expires: r.expires, held: r.held}
	p.setPace(at, r.start)
	if full || r.held == 0 { // slots are not saved up: none is in use
		p.tokens = p.size
	}
	return p
}

// setPace changes the pace, and with it the fill rate and the size. Tokens that are there stay, up to the new
// size.
func (p *pacer) setPace(at time.Duration, pace float64) {
	p.pace = pace
	f := p.paced()
	if p.probe > 0 {
		f = fill{interval: float64(p.probe), size: 1}
	}
	if f == p.fill {
		return
	}
	p.tokens, p.last = p.has(at, &p.fill), at
	if f.interval > p.interval || f.size < p.size {
		p.cut = at
	}
	p.fill = f
}

// paced is how the bucket fills at the pace. While the time that slots are held is unknown, only their number
// counts.
func (p *pacer) paced() fill {
	size := max(1, min(p.pace/p.held, maxEvents)*p.saved)
	return fill{max(float64(time.Second)*p.held/p.pace, float64(time.Second)/maxEvents), size}
}

// observeHeld notes for how long a request that succeeded has held its slots.
func (p *pacer) observeHeld(seconds float64) {
	if p.held == 0 {
		p.held = seconds
	}
	p.held += (seconds - p.held) * heldWeight
}

// until computes a turn behind a probe by the pace that is expected then: nothing is known of when the probe
// is answered. Only the next probe passes before that.
func (p *pacer) until(t instant, _ *rule, from time.Duration, ahead, n float64) time.Duration {
	paused, has := p.paused(t.at), 1.0
	if paused == 0 {
		has = p.has(t.at, &p.fill)
	}
	d := p.in(ahead + min(n, p.size) - has)
	if p.probe > 0 && d > 0 {
		f := p.paced()
		d = max(1, min(d, f.in(ahead+min(n, f.size)-has)))
	}
	return max(from, after(paused, d))
}

// wakes returns in what time the next waiter looks again, whose turn comes after so long as far as is known.
// A probe's answer wakes it sooner. Nil is no controller.
func (p *pacer) wakes(at, turn time.Duration) time.Duration {
	if p != nil && p.probe > 0 && p.paused(at) == 0 {
		return p.untilHas(at, &p.fill, 1)
	}
	return turn
}

// take takes n. A probe is a single request, whatever it costs.
func (p *pacer) take(t instant, _ *rule, n float64) {
	p.endPause(t.at)
	p.taken += n
	if p.probe > 0 {
		n = min(n, 1)
	}
	p.spend(t.at, &p.fill, n)
}

// refund gives back what cannot have been refilled since, unless the bucket was made smaller or slower. At
// least it sets what has come back against what is owed.
func (p *pacer) refund(t instant, taken time.Duration, _ *rule, n float64) {
	p.taken -= n
	p.endPause(t.at)
	back := min(n, -p.has(t.at, &p.fill))
	if taken >= p.cut {
		back = max(back, n-float64(t.at-taken)/p.interval)
	}
	p.spend(t.at, &p.fill, -max(0, back))
}

func (p *pacer) upTo(t instant, _ *rule, n int) int {
	if p.paused(t.at) > 0 {
		return 0
	}
	return p.whole(t.at, &p.fill, n)
}

func (p *pacer) left(t instant, _ *rule) (events, of float64, full time.Duration) {
	paused := p.paused(t.at) // first: the end of a pause sets what is left
	return p.has(t.at, &p.fill), p.size, paused
}

func (p *pacer) age(t instant, _ *rule) time.Duration {
	return saturated(p.has(t.at, &p.fill) * p.interval)
}

func (p *pacer) state(t instant, _ *rule) state { return state{has: p.has(t.at, &p.fill)} }

// follow hands the controller its new bounds, or starts where a controller does under them.
func (p *pacer) follow(t instant, _, r *rule) {
	if p.ctrl == nil {
		p.saved, p.expires = r.saved, r.expires
		p.setPace(t.at, r.start)
		return
	}
	p.guard(t.at, r, func() { p.ask(policy.Sample{Now: t.at, Sent: t.at}, r) })
}

// paused returns for how long nothing passes.
func (p *pacer) paused(at time.Duration) time.Duration {
	p.endPause(at)
	return max(0, p.pausedUntil-at)
}

// endPause ends a pause whose time is over.
func (p *pacer) endPause(at time.Duration) {
	if p.pausedUntil != 0 && at >= p.pausedUntil {
		p.resume(p.pausedUntil)
	}
}

// resume ends a pause at an instant: one event may pass at it, whatever there was before.
func (p *pacer) resume(at time.Duration) { p.pausedUntil, p.tokens, p.last, p.cut = 0, 1, at, at }

// apply puts a pace in force. One whose rate is nonsense counts for nothing, but the bounds do.
func (p *pacer) apply(at time.Duration, pace policy.Pace, r *rule) {
	at = max(at, p.last) // a success may be dated before the last look at the bucket
	p.endPause(at)
	x, probe := pace.Rate, pace.Probe()
	if !usable(x) {
		x, pace.NotBefore, probe = p.pace, p.pausedUntil, p.probe
	}
	if p.probe > 0 {
		p.cut = at + 1 // what probes have taken is no part of the pace; some answers are dated by them
	}
	p.saved, p.expires, p.probe = savedFor(pace.Saved), 0, min(probe, maxPause)
	if pace.Until != 0 {
		p.expires = max(pace.Until, at+minPace)
	}
	p.setPace(at, min(x, r.bounds.Ceiling, maxEvents))
	switch {
	case pace.NotBefore > at:
		p.pausedUntil = min(pace.NotBefore, at+maxPause)
	case p.pausedUntil != 0:
		p.resume(at)
	}
}

// renew calls the controller, whose pace has expired, and starts one where there is none. A full bucket
// stays full when the pace rises. So a caller that takes everything once a second gets the pace of the
// second that begins, not of the one before.
func (p *pacer) renew(at time.Duration, r *rule, fresh policy.Policy, seed uint64) {
	p.guard(at, r, func() {
		full := p.ctrl != nil && p.untilHas(at, &p.fill, p.size) == 0
		if p.ctrl != nil || p.begin(fresh.New(seed), at, at, r) {
			p.ask(policy.Sample{Now: at, Sent: at, Paced: p.heldBack}, r)
			if p.heldBack = false; full && p.pausedUntil == 0 {
				p.tokens, p.last = p.size, at
			}
			return
		}
		p.expires = 0
	})
}

// begin starts a controller, and reports whether there is one.
func (p *pacer) begin(ctrl policy.Controller, sent, at time.Duration, r *rule) bool {
	if ctrl == nil {
		return false
	}
	p.ctrl = ctrl
	ctrl.Next(policy.Sample{Now: at, Sent: sent}, r.boundsAt(at))
	return true
}

// ask asks the controller for its pace, without any feedback.
func (p *pacer) ask(s policy.Sample, r *rule) {
	if s.Taken = p.takenSince(); r.ofSlots() {
		s.Taken = 0 // for how long the slots are held is unknown yet
	}
	p.apply(s.Now, p.ctrl.Next(s, r.boundsAt(s.Now)), r)
}

// guard drops a controller that panics where no caller has anything to do with it.
func (p *pacer) guard(at time.Duration, r *rule, f func()) {
	defer func() { _ = recover() }()
	orElse(f, func() { p.forget(at, r) })
}

// takenSince returns what was taken since the controller was last asked, and starts the count again.
func (p *pacer) takenSince() float64 {
	n := p.taken
	p.taken = 0
	return n
}

// forget drops what was learned, as of an instant.
func (p *pacer) forget(at time.Duration, r *rule) {
	if p.pausedUntil != 0 {
		p.resume(min(p.pausedUntil, at))
	}
	p.ctrl, p.held, p.heldBack, p.probe = nil, r.held, false, 0
	p.saved, p.expires = r.saved, r.expires
	p.setPace(at, r.start)
}

// savedFor returns how many seconds' events a controller wants saved up.
func savedFor(d time.Duration) float64 {
	if d <= 0 {
		return pacerBurst
	}
	return d.Seconds()
}

// usable guards against a controller that answers nonsense.
func usable(x float64) bool { return x > 0 && !math.IsInf(x, 1) }
