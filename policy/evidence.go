package policy

import (
	"math"
	"time"
)

// What few refusals prove.
const (
	// prior is how many answers without a refusal are assumed before the first: one refusal in two
	// answers proves nothing. Any figure from 4 to 16 gives the same score in the arena.
	prior = 8.0
	// heavyFraction of refusals is beyond what probing or chance bring: then the limit has fallen.
	heavyFraction = 0.12
	// doubtFraction of refusals that come with fields which report room left, more than a tenth, is beyond
	// chance too: the fields speak of another quota.
	doubtFraction = 0.07
	doubtRoom     = 0.1
	// doubtFor is how long such fields are not looked at.
	doubtFor = 2 * time.Minute
)

// evidence counts answers and refusals. It forgets in about 2 seconds or 20 requests, whichever
// is longer: long enough to tell 12 % from chance, short enough to see a limit fall.
type evidence struct {
	answers, refusals, contradicted float64
	last, doubtUntil                time.Duration // of a refusal; until when fields are not believed
}

// age forgets, at a rate of so many requests per second.
func (e *evidence) age(dt, perSecond float64) {
	keep := 1 / (1 + dt/math.Max(2, 20/perSecond))
	e.answers *= keep
	e.refusals *= keep
	e.contradicted *= keep
}

func (e *evidence) served() { e.answers++ }

func (e *evidence) refused(q Quota, now time.Duration) {
	e.last = now
	e.answers++
	e.refusals++
	if q.Known() && q.Remaining >= 2 && q.Remaining > doubtRoom*q.Limit {
		e.contradicted++
	}
}

// heavy reports whether the limit has fallen: this is no chance and no probing.
func (e *evidence) heavy() bool { return e.refusals >= heavyFraction*(e.answers+prior) }

// doubt stops believing fields that refusals contradict.
func (e *evidence) doubt(now time.Duration) {
	if e.contradicted > doubtFraction*(e.answers+prior) {
		e.doubtUntil = now + doubtFor
	}
}

// quiet is how long ago the last refusal was, in seconds.
func (e *evidence) quiet(now time.Duration) float64 { return (now - e.last).Seconds() }
