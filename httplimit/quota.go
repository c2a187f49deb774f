package httplimit

import (
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient"
)

const (
	// maxName and maxQuotaUnit are the longest name and unit that are sent, in bytes as they are written.
	// With them the 17 rules of the largest limit are below maxStructured.
	maxName      = 128
	maxQuotaUnit = 64
	// maxRuleTexts is for how many limits the texts are kept, at most 10 KB each: that of the limiter, and some
	// that single keys have of their own. Those of more are made again now and then.
	maxRuleTexts = 256
)

// ruleTexts is the content of the fields of the rules of one limit.
type ruleTexts struct {
	quotas []quotient.RuleState // but for Left and Reset
	policy string               // "" if there is nothing to send
	rules  []string             // by rule, what stands before its number; "" for one that is left out
	most   []int64              // by rule, its q
	recent [1 << recentBits]atomic.Pointer[saying]
}

// recentBits is for how many of the last texts of a limit are kept, 64. Keys that have used as much of it
// share one, so that most requests find theirs.
const recentBits = 6

// level is where a key stands under a rule, as it is sent.
type level struct{ left, reset int64 }

// saying is a text that was sent.
type saying struct {
	now  [usualRules]level // of the rules of the limit, or of one of them
	text string
	cut  int // where its second part begins
}

// levels appends where a key stands, by rule.
func (t *ruleTexts) levels(now []level, quotas []quotient.RuleState) []level {
	for i := range quotas {
		q := &quotas[i]
		now = append(now, level{min(whole(q.Left), t.most[i]), secondsUp(q.Reset)})
	}
	return now
}

// refuse makes the quotas say what a refusal says: a limiter's state knows of no pause, no queue and no other
// reason that is no rule's. The rule that refuses is one of refusing.
func (t *ruleTexts) refuse(now []level, no *refusal, refusing span) {
	told := false
	for i := range t.quotas {
		told = told || t.rules[i] != "" && refusing.holds(i) &&
			t.quotas[i].Name == no.Rule.Name && t.quotas[i].Unit == no.Unit
	}
	until := no.seconds()
	for i := range t.quotas {
		q := &t.quotas[i]
		if told && q.Name == no.Rule.Name && q.Unit == no.Unit && refusing.holds(i) ||
			!told && q.Window > 0 && q.Unit == "" {
			now[i] = level{0, until}
		}
		now[i].reset = min(now[i].reset, until)
	}
}

// tightest is the rule with the fewest requests left, of those in the fields. There is one.
func (t *ruleTexts) tightest(now []level) int {
	tightest := -1
	for i := range now {
		if t.rules[i] != "" && (tightest < 0 || now[i].tighter(now[tightest])) {
			tightest = i
		}
	}
	return tightest
}

// tighter reports whether a has fewer requests left than b.
func (a level) tighter(b level) bool {
	return a.left < b.left || a.left == b.left && a.reset > b.reset
}

// said is the text of a set for where a key stands, kept or written. For FieldsXRateLimit there is one rule.
func (t *ruleTexts) said(set FieldSet, now []level) *saying {
	if len(now) > usualRules {
		return t.write(set, now)
	}
	mix := uint64(len(now))
	for _, s := range now {
		mix = (mix^uint64(s.left))*0x9E3779B97F4A7C15 ^ uint64(s.reset)
	}
	kept := &t.recent[mix*0x9E3779B97F4A7C15>>(64-recentBits)]
	if s := kept.Load(); s != nil && slices.Equal(s.now[:len(now)], now) {
		return s
	}
	s := t.write(set, now)
	copy(s.now[:], now)
	kept.Store(s)
	return s
}

// write makes the text.
func (t *ruleTexts) write(set FieldSet, now []level) *saying {
	var room [256]byte
	if set == FieldsDraft11 {
		return &saying{text: string(t.appendDraft11(room[:0], now))}
	}
	text := strconv.AppendInt(room[:0], now[0].left, 10)
	cut := len(text)
	return &saying{text: string(strconv.AppendInt(text, now[0].reset, 10)), cut: cut}
}

// appendDraft11 writes the field RateLimit.
func (t *ruleTexts) appendDraft11(text []byte, now []level) []byte {
	for i, s := range now {
		if t.rules[i] == "" {
			continue
		}
		text = append(text, t.rules[i]...)
		text = strconv.AppendInt(text, s.left, 10)
		if t.quotas[i].Window > 0 {
			text = append(text, ";t="...)
			text = strconv.AppendInt(text, s.reset, 10)
		}
	}
	return text
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
		for _, n := range [...]uint64{
			math.Float64bits(q.Limit), math.Float64bits(q.Share), math.Float64bits(q.Burst),
			uint64(q.Window), uint64(len(q.Name)), uint64(len(q.Unit)),
		} {
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
	n := len(quotas)
	made := &ruleTexts{quotas: slices.Clone(quotas), rules: make([]string, n), most: make([]int64, n)}
	for i := range quotas {
		q := &quotas[i]
		made.most[i], _ = inWhole(q)
		if s.set != FieldsDraft11 && q.Unit == "" && q.Window > 0 {
			made.rules[i] = strconv.FormatInt(made.most[i], 10)
			made.policy = made.rules[i]
		}
	}
	if s.set == FieldsDraft11 {
		made.describe()
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
		if a.Limit != b.Limit || a.Share != b.Share || a.Burst != b.Burst || a.Window != b.Window ||
			a.Name != b.Name || a.Unit != b.Unit {
			return false
		}
	}
	return true
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
	burst := q.Burst
	if burst > 1 && q.Share > 0 { // over the fleet; of a limit that is divided into parts below 1 each replica has 1
		burst = math.Round(burst * (q.Limit / q.Share))
	}
	if burst > limit {
		limit, window = burst, window*burst/limit
	}
	return whole(limit), max(whole(math.Ceil(window)), 1)
}

// whole rounds down, to what an Integer of structured fields can hold.
func whole(n float64) int64 { return int64(min(max(n, 0), maxAmount)) }

// secondsUp rounds up to seconds. Values below 0 count as 0.
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
