package rls

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"github.com/quotient-go/quotient/internal/tested"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"
)

// The model of the reference: descriptors with their limits, and a count for each text of a descriptor in each window. It
// shares no code with the service, and differs from the reference only in that a request which is refused takes nothing.

// modelRule is a descriptor of a file.
type modelRule struct {
	key, value  string
	per         int // of the unit; -1: no rate_limit, -2: unlimited
	unit        string
	name        string
	replaces    string
	shadow      bool
	share       bool
	quota       bool
	descriptors []modelRule
}

var modelUnits = map[string]int64{"second": 1, "minute": 60, "hour": 3600, "day": 86400, "month": 2592000}

// yaml is the rule as a file has it.
func (r modelRule) yaml(b *strings.Builder, indent string) {
	fmt.Fprintf(b, "%s- key: %s\n", indent, r.key)
	indent += "  "
	if r.value != "" {
		fmt.Fprintf(b, "%svalue: %q\n", indent, r.value)
	}
	for name, set := range map[string]bool{"shadow_mode": r.shadow, "share_threshold": r.share, "quota_mode": r.quota} {
		if set {
			fmt.Fprintf(b, "%s%s: true\n", indent, name)
		}
	}
	switch {
	case r.per == -2:
		fmt.Fprintf(b, "%srate_limit: {unlimited: true}\n", indent)
	case r.per >= 0:
		fmt.Fprintf(b, "%srate_limit: {unit: %s, requests_per_unit: %d, name: %q", indent, r.unit, r.per, r.name)
		if r.replaces != "" {
			fmt.Fprintf(b, ", replaces: [{name: %s}]", r.replaces)
		}
		b.WriteString("}\n")
	}
	if len(r.descriptors) > 0 {
		fmt.Fprintf(b, "%sdescriptors:\n", indent)
		for _, in := range r.descriptors {
			in.yaml(b, indent)
		}
	}
}

func (r modelRule) pattern() *regexp.Regexp {
	return regexp.MustCompile("(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(r.value), `\*`, ".*") + "$")
}

var (
	modelKeys   = []string{"a", "b"}
	modelValues = []string{"", "x", "y", "x*", "*", "x*z", "*y*"}
	saidValues  = []string{"x", "y", "xz", "xyz", "w|y", `w\`, ""}
)

func drawRules(rt *rapid.T, depth int) (rules []modelRule) {
	seen := map[string]bool{}
	for range rapid.IntRange(1, 3).Draw(rt, "rules") {
		r := modelRule{key: rapid.SampledFrom(modelKeys).Draw(rt, "key"),
			value: rapid.SampledFrom(modelValues).Draw(rt, "value"), per: rapid.IntRange(-2, 6).Draw(rt, "per")}
		if seen[r.key+"="+r.value] {
			continue
		}
		seen[r.key+"="+r.value] = true
		r.share = strings.Contains(r.value, "*") && rapid.Bool().Draw(rt, "share")
		if r.per >= 0 {
			r.unit = rapid.SampledFrom(slices.Sorted(maps.Keys(modelUnits))).Draw(rt, "unit")
			r.name = rapid.SampledFrom([]string{"", "n", "m"}).Draw(rt, "name")
			if by := rapid.SampledFrom([]string{"", "", "n", "m"}).Draw(rt, "replaces"); by != r.name {
				r.replaces = by
			}
			r.shadow = rapid.IntRange(0, 5).Draw(rt, "shadow") == 0
			r.quota = rapid.IntRange(0, 5).Draw(rt, "quota") == 0
		}
		if depth > 0 && rapid.Bool().Draw(rt, "nested") {
			r.descriptors = drawRules(rt, depth-1)
		}
		rules = append(rules, r)
	}
	return rules
}

// modelDescriptor is one of a request.
type modelDescriptor struct {
	entries [][2]string
	hits    int // -1: those of the request
}

// find returns the rule of a descriptor, and the text that it counts by; nil for none.
func find(rules []modelRule, d modelDescriptor) (found *modelRule, text string) {
	for i, e := range d.entries {
		found = nil
		for pass := 0; pass < 3 && found == nil; pass++ {
			for j, r := range rules {
				wild := strings.Contains(r.value, "*")
				if found == nil && r.key == e[0] && (pass == 0 && !wild && r.value == e[1] && e[1] != "" ||
					pass == 1 && wild && r.pattern().MatchString(e[1]) || pass == 2 && r.value == "") {
					found = &rules[j]
				}
			}
		}
		if found == nil {
			return nil, ""
		}
		value := e[1]
		if found.share {
			value = found.value
		}
		text += fmt.Sprintf("%q=%q ", e[0], value)
		if rules = found.descriptors; i < len(d.entries)-1 && rules == nil {
			return nil, ""
		}
	}
	if found == nil || found.per == -1 {
		return nil, ""
	}
	return found, text
}

// model counts.
type model struct {
	rules  []modelRule
	counts map[string]int
}

// asked is a descriptor with its rule.
type asked struct {
	rule *modelRule // nil: none
	key  string
	hits int
	look bool
	own  bool // the hits are its own
	over bool
}

func (a asked) counts() bool { return a.rule != nil && a.rule.per >= 0 }

// lacks reports whether the hits do not fit, where so many are counted.
func (a asked) lacks(count int) bool {
	return a.counts() && !a.rule.shadow && (a.look && count >= a.rule.per || !a.look && count+a.hits > a.rule.per)
}

// read finds the rules of a request.
func (m *model) read(ds []modelDescriptor, hits int) []asked {
	all, replaced := make([]asked, len(ds)), map[string]bool{}
	for i, d := range ds {
		r, text := find(m.rules, d)
		if r == nil {
			continue
		}
		replaced[r.replaces] = true
		all[i] = asked{rule: r, hits: max(1, hits), look: d.hits == 0, own: d.hits > 0}
		if r.per >= 0 {
			all[i].key = fmt.Sprint(text, r.unit, time.Now().Unix()/modelUnits[r.unit])
		}
		if d.hits > 0 {
			all[i].hits = d.hits
		}
	}
	for i, a := range all {
		if a.counts() && a.rule.name != "" && replaced[a.rule.name] {
			all[i] = asked{}
		}
	}
	return all
}

// isRefused reports whether those that are over their limits refuse a request.
func isRefused(all []asked) bool {
	quotas, over := 0, 0
	for _, a := range all {
		switch {
		case a.over && !a.rule.quota:
			return true
		case a.counts() && a.rule.quota:
			if quotas++; a.over {
				over++
			}
		}
	}
	return quotas > 0 && over == quotas
}

// take takes the hits of those that have room, in turn, and returns the first that has none; -1 for none.
func (m *model) take(all []asked) (after map[string]int, lacking int) {
	after = maps.Clone(m.counts)
	for i, a := range all {
		switch {
		case !a.counts() || a.over || a.look:
		case a.lacks(after[a.key]):
			return nil, i
		case after[a.key]+a.hits <= a.rule.per: // or else it is in shadow mode
			after[a.key] += a.hits
		}
	}
	return after, -1
}

// ask answers a request, and counts it.
func (m *model) ask(ds []modelDescriptor, hits int) string {
	all := m.read(ds, hits)
	for i, a := range all {
		all[i].over = a.look && a.lacks(m.counts[a.key])
	}
	after := m.counts
	for i := 0; i >= 0 && !isRefused(all); {
		var taken map[string]int
		if taken, i = m.take(all); i >= 0 {
			all[i].over = true
		} else {
			after = taken
		}
	}
	refused := isRefused(all)
	for i, a := range all {
		all[i].over = a.over || refused && !a.look && a.lacks(m.counts[a.key])
	}
	m.counts = maps.Clone(after)
	for _, a := range all {
		if a.counts() && a.own && (a.over || refused) { // they have happened
			m.counts[a.key] = max(m.counts[a.key], min(a.rule.per, m.counts[a.key]+a.hits))
		}
	}
	return say(all, refused)
}

// say spells an answer as shape does.
func say(all []asked, refused bool) string {
	text := map[bool]string{false: "ok:", true: "OVER:"}[refused]
	for _, a := range all {
		switch {
		case a.rule == nil:
			text += " ok"
		case a.rule.per == -2:
			text += " unlimited"
		case a.over:
			text += " OVER"
		default:
			text += " counts"
		}
	}
	return text
}

// shape is an answer without its numbers.
func shape(answer string) string {
	code, rest, _ := strings.Cut(answer, ": ")
	for one := range strings.SplitSeq(rest, "; ") {
		switch {
		case strings.HasPrefix(one, "OVER"):
			code += " OVER"
		case one == "ok unlimited":
			code += " unlimited"
		case strings.HasPrefix(one, "ok "):
			code += " counts"
		default:
			code += " ok"
		}
	}
	return strings.Replace(code, " ", ": ", 1)
}

// TestPropertyModel plays requests, pauses and reloads against the model.
func TestPropertyModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var m model
		m.counts = map[string]int{}
		m.rules = drawRules(rt, 2)
		file := func() string {
			var b strings.Builder
			b.WriteString("domain: d\ndescriptors:\n")
			for _, r := range m.rules {
				r.yaml(&b, "")
			}
			return b.String()
		}
		rapid.SyncTest(rt, func(rt *rapid.T) {
			s := newSet(t, nil, "", "", file())
			for range rapid.IntRange(1, 30).Draw(rt, "steps") {
				switch rapid.IntRange(0, 9).Draw(rt, "step") {
				case 0:
					time.Sleep(time.Duration(rapid.SampledFrom([]int{1, 30, 60, 3600}).Draw(rt, "seconds")) * time.Second)
				case 1: // all that stays keeps its counts, also under another limit
					m.rules = append(m.rules, modelRule{key: fmt.Sprint("new", len(m.rules)), per: 1, unit: "day"})
					if r := &m.rules[rapid.IntRange(0, len(m.rules)-1).Draw(rt, "changed")]; r.per > 0 {
						r.per = rapid.IntRange(1, 9).Draw(rt, "to")
					}
					s.write(t, file())
					tested.Must(t, s.config.Reload())
				default:
					playOne(rt, t, &m, s)
				}
			}
		})
	})
}

// playOne asks both.
func playOne(rt *rapid.T, t *testing.T, m *model, s *set) {
	hits := rapid.IntRange(0, 3).Draw(rt, "hits")
	ds := make([]modelDescriptor, rapid.IntRange(1, 4).Draw(rt, "descriptors"))
	r := requestOf(t, "d:"+strings.Repeat(".;", len(ds)-1)+".")
	r.HitsAddend = uint32(hits)
	for i := range ds {
		ds[i].hits = max(-1, rapid.IntRange(-8, 4).Draw(rt, "own hits"))
		if ds[i].hits >= 0 {
			r.Descriptors[i].HitsAddend = wrapperspb.UInt64(uint64(ds[i].hits))
		}
		for range rapid.IntRange(1, 3).Draw(rt, "entries") {
			key, value := rapid.SampledFrom(modelKeys).Draw(rt, "key"), rapid.SampledFrom(saidValues).Draw(rt, "value")
			ds[i].entries = append(ds[i].entries, [2]string{key, value})
			r.Descriptors[i].Entries = append(r.Descriptors[i].Entries,
				&common.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
	}
	want := m.ask(ds, hits)
	got := answerOf(s.service.ShouldRateLimit(t.Context(), r))
	if shape(got) != want {
		rt.Fatalf("%v\n got %s (%s)\nwant %s\n%+v", r, shape(got), got, want, m.rules)
	}
}
