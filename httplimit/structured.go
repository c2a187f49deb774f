package httplimit

import (
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/quotient-go/quotient/policy"
)

const (
	// maxStructured is how much of RateLimit, and of RateLimit-Policy, is parsed, in bytes of all lines
	// together. Fifty quotas fit in; a field that is longer is garbage.
	maxStructured = 4096
	// maxMembers is how many members of such a list count.
	maxMembers = 16
	// maxUnit is the longest name of a unit, in bytes.
	maxUnit = 64
)

// concurrent is the quota unit for requests in flight. Its quotas are not kept: they are no events.
const concurrent = "concurrent-requests"

// structured takes in the field RateLimit: the list of draft-ietf-httpapi-ratelimit-headers from version 08
// on, or the dictionary of version 07.
func (r *reader) structured() {
	lines := r.lines("Ratelimit")
	if len(lines) == 0 {
		return
	}
	if list, err := httpsfv.UnmarshalList(lines); err == nil {
		policies := r.policies()
		for _, member := range list[:min(len(list), maxMembers)] {
			r.member(member, policies)
		}
		return
	}
	dictionary, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil {
		r.garbage++
		return
	}
	limit, left, reset := r.entry(dictionary, "limit"), r.entry(dictionary, "remaining"), r.entry(dictionary, "reset")
	r.add(policy.Quota{Limit: limit, Remaining: left, Reset: inSeconds(reset)}, inSeconds(reset))
}

// policies is the list in the field RateLimit-Policy.
func (r *reader) policies() httpsfv.List {
	list, err := httpsfv.UnmarshalList(r.lines("Ratelimit-Policy"))
	if err != nil {
		r.garbage++
		return nil
	}
	return list[:min(len(list), maxMembers)]
}

// lines are those of a field, or none if they are longer than what is parsed. Each counts for two bytes more,
// which is what joins it to the next.
func (r *reader) lines(name string) []string {
	lines, size := r.header[name], 0
	for _, line := range lines {
		size += len(line) + 2
	}
	if size > maxStructured {
		r.garbage++
		return nil
	}
	return lines
}

// member takes in one quota of the list. Where the time is absent, the window of its policy is taken: the
// renewal is not later than that.
func (r *reader) member(m httpsfv.Member, policies httpsfv.List) {
	name, params := named(m)
	if params == nil {
		r.garbage++
		return
	}
	q := policy.Quota{Limit: notSaid, Remaining: r.param(params, "r", "a")}
	reset := r.param(params, "t", "w")
	for _, p := range policies {
		id, told := named(p)
		if told == nil || id != name {
			continue
		}
		var counts bool
		if q.Unit, counts = r.unit(told); !counts {
			return
		}
		q.Limit = r.param(told, "q")
		if reset < 0 {
			reset = r.param(told, "w")
		}
		break
	}
	q.Reset = inSeconds(reset)
	r.add(q, q.Reset)
}

// unit is what a policy counts: requests if it does not say, and nothing of ours if it counts what is in flight.
func (r *reader) unit(params *httpsfv.Params) (name string, counts bool) {
	value, told := params.Get("qu")
	if !told {
		return "", true
	}
	name, ok := stringOf(value)
	if !ok || len(name) > maxUnit {
		r.garbage++
		return "", false
	}
	if name == "requests" {
		name = ""
	}
	return strings.Clone(name), name != concurrent // a Token would keep the whole field alive
}

// param is a number among the parameters, under the first of these names that is there.
func (r *reader) param(params *httpsfv.Params, names ...string) float64 {
	for _, name := range names {
		if value, told := params.Get(name); told {
			return r.value(value)
		}
	}
	return notSaid
}

// entry is a number of the dictionary.
func (r *reader) entry(d *httpsfv.Dictionary, name string) float64 {
	member, told := d.Get(name)
	if !told {
		return notSaid
	}
	item, _ := member.(httpsfv.Item)
	return r.value(item.Value)
}

// value is an integer or a decimal, 0 or more.
func (r *reader) value(v any) float64 {
	n := float64(notSaid)
	switch v := v.(type) {
	case int64:
		n = float64(v)
	case float64:
		n = v
	}
	if n < 0 {
		r.garbage++
		return notSaid
	}
	return n
}

// named is the name of a member and its parameters, or nil for one without a name.
func named(m httpsfv.Member) (string, *httpsfv.Params) {
	item, _ := m.(httpsfv.Item)
	if name, ok := stringOf(item.Value); ok {
		return name, item.Params
	}
	return "", nil
}

// stringOf is a String or a Token: both are seen as names.
func stringOf(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case httpsfv.Token:
		return string(v), true
	}
	return "", false
}
