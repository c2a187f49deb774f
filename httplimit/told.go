package httplimit

import (
	"net/http"
	"slices"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// line is one line of a field.
type line struct{ name, value string }

// standing are the lines of the fields of all sets that are there before a handler runs: another Middleware has sent them.
func standing(h http.Header) (lines []line) {
	for _, name := range setNames {
		for _, value := range h[name] {
			lines = append(lines, line{name, value})
		}
	}
	return lines
}

// NoAnswer marks an answer that does not come from the upstream: policies count the request as
// policy.Failed, and learn nothing from the answer. Call it in a handler that forwards requests and writes
// its own error because no answer came, before WriteHeader. w is the writer that the handler got from a
// Middleware, or one with Unwrap. It changes nothing if no policy learns.
func NoAnswer(w http.ResponseWriter) { trackers(w, (*tracker).refuse) }

// trackers calls f for each tracker that a writer writes to: those of the Middlewares in front.
func trackers(w http.ResponseWriter, f func(*tracker)) {
	for w != nil {
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter }) // as a tracker is
		if !ok {
			return
		}
		if t, ok := w.(interface{ itself() *tracker }); ok {
			f(t.itself())
		}
		w = outer.Unwrap()
	}
}

func (t *tracker) itself() *tracker { return t }

// refuse notes that the answer to come is the refusal of a Middleware behind this one.
func (t *tracker) refuse() { t.refused = true }

// read is what the handler's own fields say: a policy must not learn from those that a Middleware sends.
func (t *tracker) read(status int) (policy.Feedback, int) {
	h := t.inner.Header()
	var all [len(setNames)][]string
	ours := slices.Clone(t.ours)
	for i, name := range setNames {
		if all[i] = h[name]; len(ours) > 0 && len(all[i]) > 0 {
			h[name] = foreign(name, all[i], ours)
		}
	}
	heard, garbage := anyUpstream.Feedback(status, h, time.Time{})
	for i, name := range setNames {
		if len(all[i]) > 0 {
			h[name] = all[i]
		}
	}
	return heard, garbage
}

// foreign are the lines of a field but for those that are ours, each of which it takes out once.
func foreign(name string, values []string, ours []line) (others []string) {
	for _, value := range values {
		if i := slices.Index(ours, line{name, value}); i >= 0 {
			ours[i] = line{}
			continue
		}
		others = append(others, value)
	}
	return others
}
