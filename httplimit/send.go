package httplimit

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient"
)

// FieldSet names the header fields in which Middleware tells a client where it stands. See SendFields.
type FieldSet uint8

const (
	// FieldsOff sends none. It is the default.
	FieldsOff FieldSet = iota
	// FieldsDraft11 sends RateLimit-Policy and RateLimit in the form of draft-ietf-httpapi-ratelimit-headers-11, a
	// draft whose names may still change:
	//
	//	RateLimit-Policy: "minute";q=100;w=60, "in-flight";q=10;qu="concurrent-requests"
	//	RateLimit: "minute";r=50;t=30, "in-flight";r=9
	//
	// Every rule is a member. Its name, and its unit unless that is requests, are Strings of at most 128 and 64 bytes; bytes that a String
	// cannot hold, and "%", are percent-encoded. A rule that needs more is left out, and so is one with the name and the unit of another. A name
	// that a rule shares with one before it is followed by "/" and the unit.
	FieldsDraft11
	// FieldsXRateLimit sends X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset (seconds from now) of the rate
	// of requests that has the fewest whole requests left, of equal ones that with the longest reset. They have no place for other units and
	// for slots: a limit of these alone is not sent.
	FieldsXRateLimit
)

// SendFields makes Middleware tell each client where its key stands, on all its answers. It sets the fields
// when the request has been admitted or refused, before the handler runs, which may still change them. The
// limits in the fields are those over the fleet. What is left, and how long it takes until that is all there
// again, are this replica's part: another replica may give other numbers.
//
// The fields hold whole numbers. What may come and what is left are rounded down, and times are rounded up. A
// rate that whole events and seconds cannot express is sent as one that they can, and that is not above it.
// SendFields panics for a FieldSet that is not one of the constants.
//
// A refusal says that nothing is left of the rule that refuses, or of all rates of requests if no rule in the
// fields is the reason. It says that this lasts no shorter than Retry-After.
//
// Where several Middlewares stand one behind the other, each sends its limits. FieldsDraft11 adds a line to
// each field. Of FieldsXRateLimit the limit with the fewest requests left stays, of equal ones that with the
// longest reset.
//
// A handler that passes on the fields of another server, as httputil.ReverseProxy does, adds them to these.
func SendFields(set FieldSet) Option {
	if set > FieldsXRateLimit {
		panic("httplimit: SendFields: " + strconv.Itoa(int(set)) + " is not one of the sets")
	}
	return func(m *middleware) {
		m.sender = nil
		if set != FieldsOff {
			m.sender = &sender{set: set}
		}
	}
}

const (
	// maxName and maxQuotaUnit are the longest name and unit that are sent, in bytes as they are written. With them the 17 rules of the
	// largest limit are below maxStructured.
	maxName      = 128
	maxQuotaUnit = 64
	// maxRuleTexts is for how many limits the texts are kept, about 1 KB each: that of the limiter, and some
	// that single keys have of their own. Those of more are made again now and then.
	maxRuleTexts = 256
	// usualRules is up to how many rules a request costs no further allocation.
	usualRules = 4
)

// The fields of the sets, as net/http keeps their names.
var (
	draftNames = []string{"Ratelimit-Policy", "Ratelimit"}
	xNames     = []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}
	setNames   = [...]string{"Ratelimit-Policy", "Ratelimit", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}
)

// sender sends one FieldSet.
type sender struct {
	set    FieldSet
	newest atomic.Pointer[ruleTexts] // most limiters have one limit
	mu     sync.RWMutex
	texts  map[textsKey]*ruleTexts // at most maxRuleTexts
}

// send sets the fields for where the key stands now, on a refusal unless no is nil.
func (s *sender) send(w http.ResponseWriter, l *quotient.Limiter, key string, no *refusal) {
	var room [usualRules]quotient.RuleState
	quotas := ofLimit(l.AppendState(room[:0], key))
	texts := s.textsOf(quotas)
	if texts.policy == "" {
		return
	}
	if no != nil {
		texts.refuse(quotas, no)
	}
	if s.set == FieldsDraft11 {
		set(w, draftNames, texts.draft11(quotas), true)
		return
	}
	if values := texts.xRateLimit(quotas); !tighterStands(w.Header(), values) {
		set(w, xNames, values, false)
	}
}

// ofLimit leaves out the laws of a policy, which come last: they are no rules that a client has to keep.
func ofLimit(rules []quotient.RuleState) []quotient.RuleState {
	for n := len(rules); n > 0 && rules[n-1].Pace > 0; n-- {
		rules = rules[:n-1]
	}
	return rules
}

// set puts each value into the field of its name: beside what is there, or in its place.
func set(w http.ResponseWriter, names, values []string, beside bool) {
	h := w.Header()
	for i, name := range names {
		if there := h[name]; beside && len(there) > 0 {
			h[name] = append(there[:len(there):len(there)], values[i])
		} else {
			h[name] = values[i : i+1 : i+1] // a caller that appends to it gets a copy
		}
	}
	trackers(w, func(t *tracker) {
		for i, name := range names {
			t.ours = append(t.ours, line{name, values[i]})
		}
	})
}

// tighterStands reports whether what an outer Middleware has sent in xNames is tighter than these values.
func tighterStands(h http.Header, values []string) bool {
	var there, own [2]int64
	for i, name := range xNames[1:] {
		lines, err := h[name], error(nil)
		if len(lines) == 0 {
			return false
		}
		if there[i], err = strconv.ParseInt(lines[0], 10, 64); err != nil {
			return false
		}
		own[i], _ = strconv.ParseInt(values[1+i], 10, 64) // it has just been written
	}
	return there[0] < own[0] || there[0] == own[0] && there[1] > own[1]
}

// draft11 is the values of draftNames.
func (t *ruleTexts) draft11(quotas []quotient.RuleState) []string {
	var room [256]byte
	text := room[:0]
	for i := range quotas {
		if t.rules[i] == "" {
			continue
		}
		text = append(text, t.rules[i]...)
		text = strconv.AppendInt(text, whole(quotas[i].Left), 10)
		if quotas[i].Window > 0 {
			text = append(text, ";t="...)
			text = strconv.AppendInt(text, secondsUp(quotas[i].Reset), 10)
		}
	}
	return []string{t.policy, string(text)}
}

// xRateLimit is the values of xNames.
func (t *ruleTexts) xRateLimit(quotas []quotient.RuleState) []string {
	tightest := -1
	for i := range quotas {
		if t.rules[i] != "" && (tightest < 0 || tighter(&quotas[i], &quotas[tightest])) {
			tightest = i
		}
	}
	var room [40]byte
	text := strconv.AppendInt(room[:0], whole(quotas[tightest].Left), 10)
	n := len(text)
	both := string(strconv.AppendInt(text, secondsUp(quotas[tightest].Reset), 10))
	return []string{t.rules[tightest], both[:n], both[n:]}
}

// tighter reports whether a has fewer whole requests left than b.
func tighter(a, b *quotient.RuleState) bool {
	left, other := whole(a.Left), whole(b.Left)
	return left < other || left == other && a.Reset > b.Reset
}

// refuse makes the quotas say what a refusal says: AppendState knows of no pause, no queue and no other reason that is no rule's.
func (t *ruleTexts) refuse(quotas []quotient.RuleState, no *refusal) {
	told := false
	for i := range quotas {
		told = told || t.rules[i] != "" && quotas[i].Name == no.rule && quotas[i].Unit == ""
	}
	for i := range quotas {
		q := &quotas[i]
		if refuses := q.Name == no.rule || !told && q.Window > 0; refuses && q.Unit == "" { // a request asks for no other unit
			q.Left, q.Reset = 0, max(q.Reset, no.retryAfter, time.Second) // the least Retry-After
		}
	}
}

// ruleTexts is what the fields say of the rules of one limit whatever was used of it.
type ruleTexts struct {
	quotas []quotient.RuleState // but for Left and Reset
	policy string               // "" if there is nothing to send
	rules  []string             // by rule, what stands before its number; "" for one that is left out
}

// textsKey is under what texts are kept. Limits that share one by chance take turns.
type textsKey struct {
	name string // of the first rule
	mix  uint64
}

// keyOf mixes the numbers of the rules as FNV-1a mixes bytes, and the lengths of their names and units.
func keyOf(quotas []quotient.RuleState) (k textsKey) {
	for i := range quotas {
		q := &quotas[i]
		for _, n := range [...]uint64{math.Float64bits(q.Limit), uint64(q.Window), uint64(len(q.Name)), uint64(len(q.Unit))} {
			k.mix = (k.mix ^ n) * 1099511628211
		}
		k.name = quotas[0].Name
	}
	return k
}

// textsOf returns the texts for the rules, kept or made.
func (s *sender) textsOf(quotas []quotient.RuleState) *ruleTexts {
	if t := s.newest.Load(); t != nil && t.areOf(quotas) {
		return t
	}
	key := keyOf(quotas)
	s.mu.RLock()
	t := s.texts[key]
	s.mu.RUnlock()
	if t == nil || !t.areOf(quotas) {
		t = s.make(quotas)
		s.keep(key, t)
	}
	return t
}

// keep keeps texts, in the place of any others if there are too many.
func (s *sender) keep(key textsKey, t *ruleTexts) {
	s.newest.Store(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.texts == nil {
		s.texts = make(map[textsKey]*ruleTexts)
	}
	for other := range s.texts {
		if len(s.texts) < maxRuleTexts {
			break
		}
		delete(s.texts, other)
	}
	s.texts[key] = t
}

// make makes the texts for the rules.
func (s *sender) make(quotas []quotient.RuleState) *ruleTexts {
	made := &ruleTexts{quotas: slices.Clone(quotas), rules: make([]string, len(quotas))}
	if s.set == FieldsDraft11 {
		made.describe()
	} else {
		made.count()
	}
	return made
}

// areOf reports whether the texts are those of these rules.
func (t *ruleTexts) areOf(quotas []quotient.RuleState) bool {
	if len(t.quotas) != len(quotas) {
		return false
	}
	for i := range quotas {
		a, b := &t.quotas[i], &quotas[i]
		if a.Limit != b.Limit || a.Window != b.Window || a.Name != b.Name || a.Unit != b.Unit {
			return false
		}
	}
	return true
}

// count makes the texts of FieldsXRateLimit.
func (t *ruleTexts) count() {
	for i := range t.quotas {
		if q := &t.quotas[i]; q.Unit == "" && q.Window > 0 {
			events, _ := inWhole(q)
			t.rules[i] = strconv.FormatInt(events, 10)
			t.policy = t.rules[i]
		}
	}
}

// describe makes the texts of FieldsDraft11.
func (t *ruleTexts) describe() {
	used := make(map[string]bool, len(t.quotas))
	var policy []byte
	for i := range t.quotas {
		q := &t.quotas[i]
		name, unit := quoted(q.Name), quoted(q.Unit)
		if q.Window <= 0 {
			unit = quoted(concurrent)
		}
		if used[name] {
			name = name[:len(name)-1] + "/" + unit[1:]
		}
		if used[name] || len(name) > maxName+2 || len(unit) > maxQuotaUnit+2 {
			continue
		}
		used[name] = true
		between := ""
		if len(policy) > 0 {
			between = ", "
		}
		t.rules[i] = between + name + ";r="
		policy = appendPolicy(append(policy, between...), name, unit, q)
	}
	t.policy = string(policy)
}

// appendPolicy adds a member of RateLimit-Policy.
func appendPolicy(b []byte, name, unit string, q *quotient.RuleState) []byte {
	events, seconds := inWhole(q)
	b = append(append(b, name...), ";q="...)
	b = strconv.AppendInt(b, events, 10)
	if seconds > 0 {
		b = strconv.AppendInt(append(b, ";w="...), seconds, 10)
	}
	if unit != `""` {
		b = append(append(b, ";qu="...), unit...)
	}
	return b
}

// inWhole is a rule in whole events and seconds, and not above it. Slots have no seconds.
func inWhole(q *quotient.RuleState) (events, seconds int64) {
	limit, window := q.Limit, q.Window.Seconds()
	if window <= 0 {
		return whole(limit), 0
	}
	if window < 1 {
		limit, window = limit/window, 1
	}
	if limit < 1 {
		limit, window = 1, window/limit
	}
	return whole(limit), max(whole(math.Ceil(window)), 1)
}

// whole rounds down, to what an Integer of structured fields can hold.
func whole(n float64) int64 { return int64(min(max(n, 0), maxAmount)) }

// secondsUp rounds up to seconds. What is less than 0 is 0.
func secondsUp(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return wholeSeconds(d)
}

// quoted is text as a String of structured fields, as FieldsDraft11 documents.
func quoted(text string) string {
	const digits = "0123456789ABCDEF"
	out := []byte{'"'}
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c > '~' || c == '%':
			out = append(out, '%', digits[c>>4], digits[c&15])
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		default:
			out = append(out, c)
		}
	}
	return string(append(out, '"'))
}
