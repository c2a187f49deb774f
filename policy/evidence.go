package policy

// A few refusals prove this much.
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

// age forgets.
func (e *evidence) age(dt, memory float64) {
	keep := 1 / (1 + dt/memory)
	e.answers *= keep
	e.refusals *= keep
}

func (e *evidence) served() { e.answers++ }

// part is the part of the answers that were refusals.
func (e *evidence) part() float64 { return e.refusals / max(e.answers, 1) }

// memory is for how long answers are remembered, in seconds.
func (t *tracking) memory() float64 { return max(2, 20/t.perSecond(t.rate)) }

// delivered is what was served lately, in units per second.
func (e *evidence) delivered(t *tracking) float64 {
	return (e.answers - e.refusals) / t.memory() * t.cost
}

func (e *evidence) refused() {
	e.answers++
	e.refusals++
}

// heavy reports whether the limit has fallen: this is no chance and no probing.
func (e *evidence) heavy() bool { return e.refusals >= heavyFraction*(e.answers+prior) }
