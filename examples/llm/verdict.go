package main

import (
	"fmt"
	"io"
)

// These are a run's claims about the last seconds of each phase.
const (
	leastUsed   = 0.85 // of what is scarce
	mostRefused = 0.05 // of all requests
	leastFair   = 0.8  // Jain's index over the clients: 1 when all are served alike, 0.75 when one of four gets nothing
)

func (t tally) since(before tally) tally {
	return tally{t.Served - before.Served, t.Refused - before.Refused, t.Tokens - before.Tokens}
}

func (t tally) refusedShare() float64 { return t.Refused / max(1, t.Served+t.Refused) }

// line shows what was served in so many seconds, and how much of the limits that is.
func (t tally) line(seconds float64) string {
	requests, tokens := t.Served/seconds, t.Tokens/seconds
	return fmt.Sprintf("%9.0f (%3.0f %%) %9.0f (%3.0f %%)", requests, 100*requests/requestsPerMinute, tokens, 100*tokens/tokensPerMinute)
}

// result is what became of the last seconds of a phase.
type result struct {
	phase
	from, to             tally
	servedFrom, servedTo []float64 // by client
}

// used is how much of the scarce limit was used.
func (r result) used() float64 {
	d := r.to.since(r.from)
	if r.scarce == "tokens" {
		return d.Tokens / tokensPerMinute / judged
	}
	return d.Served / requestsPerMinute / judged
}

// fairness is Jain's index of what the clients were served.
func (r result) fairness() float64 {
	sum, squares := 0.0, 0.0
	for i := range r.servedTo {
		x := r.servedTo[i] - r.servedFrom[i]
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(r.servedTo)) * max(squares, 1))
}

// held prints a verdict, and reports whether all claims held.
func (r result) held(out io.Writer) bool {
	d := r.to.since(r.from)
	ok := true
	say := func(good bool, format string, x, bound float64) {
		word := "held  "
		if !good {
			word, ok = "BROKEN", false
		}
		fmt.Fprintf(out, "%s  %s\n", word, fmt.Sprintf(format, 100*x, 100*bound))
	}
	fmt.Fprintf(out, "last %d s: %s\n", judged, d.line(judged))
	say(r.used() >= leastUsed, r.scarce+" used: %.1f %%, at least %.0f %%", r.used(), leastUsed)
	say(d.refusedShare() <= mostRefused, "refused with 429: %.1f %%, at most %.0f %%", d.refusedShare(), mostRefused)
	say(r.fairness() >= leastFair, "fairness between the clients: %.1f %%, at least %.0f %%", r.fairness(), leastFair)
	return ok
}
