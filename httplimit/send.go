package httplimit

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/dunglas/httpsfv"

	"github.com/quotient-go/quotient"
)

// FieldSet selects the header fields in which Middleware sends a client its limit and the rest of it. See SendFields.
type FieldSet uint8

const (
	// FieldsOff sends none. It is the default.
	FieldsOff FieldSet = iota
	// FieldsDraft11 sends RateLimit-Policy and RateLimit in the form of
	// draft-ietf-httpapi-ratelimit-headers-11, a draft whose names may still change:
	//
	//	RateLimit-Policy: "minute";q=100;w=60, "in-flight";q=10;qu="concurrent-requests"
	//	RateLimit: "minute";r=50;t=30, "in-flight";r=9
	//
	// Every rule is a member. Its name, and its unit unless that is requests, are Strings of at most 128 and
	// 64 bytes; bytes that a String cannot hold, and "%", are percent-encoded. A rule that needs more is left
	// out, and so is one with the name and the unit of another. A name that a rule shares with one before it
	// is followed by "/" and the unit.
	//
	// q and w are a rate's Events and Per. A Burst above the Events is a quota too, of the time in which it
	// fills: 100 a minute with a burst of 250 is q=250;w=150, the same rate. So r is never above q.
	FieldsDraft11
	// FieldsXRateLimit sends X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset (seconds from
	// now) of the rate of requests that has the fewest whole requests left, of equal ones that with the
	// longest reset. X-RateLimit-Limit is q, as above. They have no place for other units and for slots: a
	// limit of these alone is not sent.
	FieldsXRateLimit
)

// SendFields makes Middleware send each client the limit and the rest of its key, on all answers. It sets
// the fields when the request has been admitted or refused, before the handler runs. The handler may still
// change them. The limits in the fields are those over the fleet. The remaining requests, and the time
// until all of them are back, are this replica's part: another replica may send other numbers.
//
// The fields hold whole numbers. Numbers of requests are rounded down, and times are rounded up. A rate
// that whole events and seconds cannot express is sent as one that they can, and that is not above it.
// SendFields panics for a FieldSet that is not one of the constants.
//
// On a refusal, the rule that refuses has nothing left until Retry-After. If the rule is not in the fields,
// all rates of requests have nothing left. No other rule, of this Middleware or of those in front, has a
// later reset. So a client that obeys the fields waits as long as one that obeys Retry-After.
//
// No fields are sent while quotient.AwaitPool waits for the size of the pool, since the rest is not known.
// The refusal of a client that is denied has none either, since other limiters' rules do not help it.
//
// If several Middlewares are nested, each sends its limits. FieldsDraft11 adds a line to each field. FieldsXRateLimit
// keeps the limit with the fewest requests left, and among equals the one with the longest reset.
//
// A handler that forwards the fields of another server, as httputil.ReverseProxy does, adds them to these.
func SendFields(set FieldSet) Option {
	mustBe(set <= FieldsXRateLimit, "SendFields: %d is not one of the sets", set)
	return func(m *middleware) {
		m.sender = nil
		if set != FieldsOff {
			m.sender = &sender{set: set}
		}
	}
}

// The fields of the sets, as net/http keeps their names.
var (
	draftNames = []string{"Ratelimit-Policy", "Ratelimit"}
	xNames     = []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}
	setNames   = slices.Concat(draftNames, xNames)
)

// usualRules is up to how many rules a request costs no further allocation.
const usualRules = 4

// sender sends one FieldSet.
type sender struct {
	set    FieldSet
	newest atomic.Pointer[ruleTexts] // most limiters have one limit
	mu     sync.RWMutex
	texts  map[textsKey]*ruleTexts // at most maxRuleTexts
}

// scratch is what a request needs for its calls, and to tell where its key stands.
type scratch struct {
	opts     [mostOptions]quotient.CallOption // the first is StateInto(&rules)
	rules    []quotient.RuleState             // where the limiter says it
	room     [usualRules]quotient.RuleState
	refusing span     // which of the rules are those of the limiter that refused
	lines    []string // of headers that nothing uses yet
}

var scratches = sync.Pool{New: func() any {
	s := new(scratch)
	s.opts[0], s.rules = quotient.StateInto(&s.rules), s.room[:]
	return s
}}

// newScratch returns one that says nothing yet.
func newScratch() *scratch {
	s := scratches.Get().(*scratch)
	s.rules, s.refusing = s.rules[:0], all
	return s
}

// free gives it back, without the room that few limits need.
func (s *scratch) free() {
	if cap(s.rules) > usualRules {
		s.rules = s.room[:]
	}
	scratches.Put(s)
}

// chunk is how many lines of headers are allocated at once.
const chunk = 32

// values returns room for the lines of n headers. A caller that appends to a line's slice gets a copy.
func (s *scratch) values(n int) []string {
	if len(s.lines) < n {
		s.lines = make([]string, chunk)
	}
	out := s.lines[:n:n]
	s.lines = s.lines[n:]
	return out
}

// send sets the fields for where the key stands, on a refusal unless no is nil.
func (s *sender) send(w http.ResponseWriter, at *scratch, no *refusal) {
	if no != nil && (no.Reason == quotient.ReasonPool || no.Reason == quotient.ReasonDenied) {
		return
	}
	quotas := ofLimit(at.rules)
	if len(quotas) == 0 {
		return
	}
	texts := s.textsOf(quotas)
	if texts.policy == "" {
		return
	}
	var room [usualRules]level
	now := texts.levels(room[:0], quotas)
	if no != nil && !no.forGood {
		texts.refuse(now, no, at.refusing)
	}
	if s.set == FieldsDraft11 {
		values := at.values(len(draftNames))
		values[0], values[1] = texts.policy, texts.said(s.set, now).text
		set(w, draftNames, values, true)
		return
	}
	tightest := texts.tightest(now)
	if no == nil && tighterStands(w.Header(), now[tightest]) {
		return
	}
	values, said := at.values(len(xNames)), texts.said(s.set, now[tightest:tightest+1])
	values[0], values[1], values[2] = texts.rules[tightest], said.text[:said.cut], said.text[said.cut:]
	set(w, xNames, values, false)
}

// ofLimit leaves out the controllers of a policy, which come last: they are no rules that a client has to keep.
func ofLimit(rules []quotient.RuleState) []quotient.RuleState {
	for n := len(rules); n > 0 && rules[n-1].Pace > 0; n-- {
		rules = rules[:n-1]
	}
	return rules
}

// set puts each value into the field of its name: beside what is there, or in its place.
func set(w http.ResponseWriter, names, values []string, beside bool) {
	h := w.Header()
	beside = beside && len(h) > 0
	for i, name := range names {
		if beside && len(h[name]) > 0 {
			there := h[name]
			h[name] = append(there[:len(there):len(there)], values[i])
		} else {
			h[name] = values[i : i+1 : i+1]
		}
	}
	trackers(w, func(t *tracker) {
		for i, name := range names {
			t.ours = append(t.ours, line{name, values[i]})
		}
	})
}

// tighterStands reports whether what an outer Middleware has sent in xNames is tighter than this.
func tighterStands(h http.Header, own level) bool {
	left, told := numberIn(h["X-Ratelimit-Remaining"])
	reset, told2 := numberIn(h["X-Ratelimit-Reset"])
	return told && told2 && level{left, reset}.tighter(own)
}

// numberIn is the whole number in the first line of a field.
func numberIn(lines []string) (int64, bool) {
	if len(lines) == 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(lines[0], 10, 64)
	return n, err == nil
}

// firstInstant is the least number that counts as an instant, in seconds since 1970, where a reset may be
// one: 1e9 is in 2001, and no quota lasts thirty years.
const firstInstant = 1e9

// lowerResets makes the fields that Middlewares in front have sent agree with a refusal behind them: nothing
// lasts longer than its Retry-After.
func lowerResets(h http.Header, most int64) {
	for i, line := range h["Ratelimit"] {
		h["Ratelimit"][i] = lowered(line, most)
	}
	// A longer number is an instant, set by some other handler.
	if reset, told := numberIn(h["X-Ratelimit-Reset"]); told && reset > most && reset < firstInstant {
		h["X-Ratelimit-Reset"] = []string{strconv.FormatInt(most, 10)}
	}
}

// lowered is a line of RateLimit with no t above most.
func lowered(line string, most int64) string {
	list, err := httpsfv.UnmarshalList([]string{line})
	if err != nil {
		return line
	}
	changed := false
	for _, member := range list {
		item, _ := member.(httpsfv.Item)
		if item.Params == nil {
			continue
		}
		t, _ := item.Params.Get("t")
		if n, is := t.(int64); is && n > most {
			item.Params.Add("t", most)
			changed = true
		}
	}
	if text, err := httpsfv.Marshal(list); err == nil && changed {
		return text
	}
	return line
}
