package proxy

import (
	"net/http"
	"slices"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

// fieldNames are the fields that tell a client where it stands, as net/http keeps their names. The first two
// are those of draft 11; version 07 had the same names for other values.
var fieldNames = [...]string{
	"Ratelimit-Policy", "Ratelimit",
	"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset",
	"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset",
	"X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset",
}

// drafts is how many of fieldNames are those of draft 11.
const drafts = 2

// fieldLines are the lines of fieldNames.
type fieldLines [len(fieldNames)][]string

func linesOf(h http.Header) (lines fieldLines) {
	for i, name := range fieldNames {
		lines[i] = h[name]
	}
	return lines
}

// standIn reports whether a header has one of the fields. To go through it is quicker than to ask for each.
func standIn(h http.Header) bool {
	for name := range h {
		if len(name) >= len("Ratelimit") && (name[0] == 'R' || name[0] == 'X') && slices.Contains(fieldNames[:], name) {
			return true
		}
	}
	return false
}

// span are fields of ours, in the order of fieldNames.
type span struct{ from, to int }

// spans are the fields of each set.
var spans = map[httplimit.FieldSet]span{
	httplimit.FieldsDraft11: {0, drafts}, httplimit.FieldsXRateLimit: {drafts, drafts + 3},
}

// lines are the fields of ours that the answer has.
func (f *flight) lines() (lines fieldLines) {
	h := f.w.Header()
	for i := f.route.fields.from; i < f.route.fields.to; i++ {
		lines[i] = h[fieldNames[i]]
	}
	return lines
}

// none reports whether there are no lines, from the name of that index on.
func (l *fieldLines) none(from int) bool {
	for _, lines := range l[from:] {
		if len(lines) > 0 {
			return false
		}
	}
	return true
}

// set has a header hold these lines and no others.
func (l *fieldLines) set(h http.Header) {
	for i, name := range fieldNames {
		if len(l[i]) > 0 {
			h[name] = l[i]
		} else {
			delete(h, name)
		}
	}
}

// join puts our fields and those of an upstream's answer together.
func (f *flight) join(theirs http.Header, switched bool) {
	if f.cors != nil {
		unset(f.w.Header())
	}
	ours := f.lines()
	if ours.none(0) || !standIn(theirs) {
		return
	}
	joined := together(ours, linesOf(theirs))
	if f.late != nil && !switched {
		f.late.lines, f.late.set = joined, true // first the policy reads theirs
		return
	}
	joined.set(f.w.Header())
	for _, name := range fieldNames {
		delete(theirs, name)
	}
}

// lateFields is a writer that puts fields together when the head is written: a policy that learns must have
// read those of the upstream alone before.
type lateFields struct {
	http.ResponseWriter
	lines fieldLines
	set   bool
}

// WriteHeader puts the fields together.
func (w *lateFields) WriteHeader(status int) {
	if w.set && status >= http.StatusOK {
		w.lines.set(w.Header())
		w.set = false
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *lateFields) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// together is one answer of two. Lists of draft 11 are joined. If one of them has another form, the one stays that is
// more restrictive: it has less left, or as much and for longer. If two cannot be compared, ours stays.
func together(ours, theirs fieldLines) fieldLines {
	if ours.none(drafts) && theirs.none(drafts) {
		if joined, ok := join(ours, theirs); ok {
			return joined
		}
	}
	left, reset, known := standing(theirs)
	ownLeft, ownReset, ownKnown := standing(ours)
	if known && (!ownKnown || left < ownLeft || left == ownLeft && reset > ownReset) {
		return theirs
	}
	return ours
}

// standing is what is left of the requests, and how long until that is renewed.
func standing(lines fieldLines) (left float64, reset time.Duration, known bool) {
	h := make(http.Header)
	lines.set(h)
	said, _ := httplimit.ProfileFor("").Feedback(http.StatusOK, h, time.Time{})
	for _, q := range said.Quotas {
		if q != (policy.Quota{}) && q.Unit == "" {
			return q.Remaining, q.Reset, true
		}
	}
	return 0, 0, false
}

// join joins lists, and reports whether both are. If two members have one name, the more restrictive one
// stays, with its policy.
func join(ours, theirs fieldLines) (joined fieldLines, ok bool) {
	var policies, limits [2]httpsfv.List
	for i, lines := range [2]fieldLines{ours, theirs} {
		if policies[i], ok = parse(lines[0]); !ok {
			return joined, false
		}
		if limits[i], ok = parse(lines[1]); !ok {
			return joined, false
		}
	}
	dropped := [2]map[string]bool{{}, {}}
	for _, own := range limits[0] {
		for _, their := range limits[1] {
			if name := nameOf(own); name == nameOf(their) {
				if tighter(their, own) {
					dropped[0][name] = true
				} else {
					dropped[1][name] = true
				}
			}
		}
	}
	for _, own := range policies[0] { // of a name that is in only one of their fields
		if name := nameOf(own); !dropped[0][name] && contains(policies[1], name) {
			dropped[1][name] = true
		}
	}
	if len(dropped[0])+len(dropped[1]) == 0 { // as they are
		for i := range drafts {
			joined[i] = append(append([]string{}, ours[i]...), theirs[i]...)
		}
		return joined, true
	}
	for i, lists := range [drafts][2]httpsfv.List{policies, limits} {
		joined[i] = without(lists, dropped)
	}
	return joined, true
}

// parse reads a list whose members have names.
func parse(lines []string) (httpsfv.List, bool) {
	const most = 4096 // bytes, as what a policy reads
	size := 0
	for _, line := range lines {
		size += len(line)
	}
	if size > most {
		return nil, false
	}
	list, err := httpsfv.UnmarshalList(lines)
	for _, m := range list {
		if nameOf(m) == "" {
			return nil, false
		}
	}
	return list, err == nil
}

// nameOf is the name of a member, "" if it has none.
func nameOf(m httpsfv.Member) string {
	item, _ := m.(httpsfv.Item)
	switch name := item.Value.(type) {
	case string:
		return name
	case httpsfv.Token:
		return string(name)
	}
	return ""
}

func contains(list httpsfv.List, name string) bool {
	for _, m := range list {
		if nameOf(m) == name {
			return true
		}
	}
	return false
}

// tighter reports whether a has less left than b, or as much for longer.
func tighter(a, b httpsfv.Member) bool {
	left, reset := numbers(a)
	other, until := numbers(b)
	return left < other || left == other && reset > until
}

// numbers are what is left, and until when. An absent value is 0 for the second, and everything for the first.
func numbers(m httpsfv.Member) (left, reset float64) {
	item, _ := m.(httpsfv.Item)
	if item.Params == nil {
		return 1e15, 0
	}
	last := func(otherwise float64, names ...string) float64 {
		for _, name := range names {
			switch value, _ := item.Params.Get(name); n := value.(type) {
			case int64:
				otherwise = float64(n)
			case float64:
				otherwise = n
			}
		}
		return otherwise
	}
	return last(1e15, "a", "r"), last(0, "w", "t")
}

// without is two lists as one line, without what was dropped from each.
func without(lists [2]httpsfv.List, dropped [2]map[string]bool) []string {
	var kept httpsfv.List
	for i, list := range lists {
		for _, m := range list {
			if !dropped[i][nameOf(m)] {
				kept = append(kept, m)
			}
		}
	}
	text, err := httpsfv.Marshal(kept)
	if err != nil || text == "" { // what was read can be written
		return nil
	}
	return []string{text}
}
