package policy

import "math"

// What few refusals prove.
const (
	// prior is how many answers without a refusal are assumed before the first: one refusal in two
	// answers proves nothing. Any figure from 4 to 16 gives the same score in the arena.
	prior = 8.0
	// heavyFraction of refusals is beyond what probing or chance bring: then the limit has fallen.
	heavyFraction = 0.12
)

// evidence counts answers and refusals. It forgets in about 2 seconds or 20 requests, whichever
// is longer: long enough to tell 12 % from chance, short enough to see a limit fall.
type evidence struct {
	answers, refusals float64
}

// age forgets, at a rate of so many requests per second.
func (e *evidence) age(dt, perSecond float64) {
	keep := 1 / (1 + dt/math.Max(2, 20/perSecond))
	e.answers *= keep
	e.refusals *= keep
}

func (e *evidence) served() { e.answers++ }

func (e *evidence) refused() {
	e.answers++
	e.refusals++
}

// heavy reports whether the limit has fallen: this is no chance and no probing.
func (e *evidence) heavy() bool { return e.refusals >= heavyFraction*(e.answers+prior) }
