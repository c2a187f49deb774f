package config

import (
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/internal/field"
)

// checkRules notes rules that cannot be meant, and limiters that none of them uses.
func (f *File) checkRules(r *report) {
	rules := f.Proxy.Rules
	used := make(map[string]bool)
	for i, rule := range rules {
		at := element("proxy.rules", i)
		f.checkRule(r, at, rule)
		used[rule.Limiter] = true
	}
	f.checkOrder(r)
	if len(rules) == 0 || rules[len(rules)-1].Pattern != "/" {
		r.hinted("proxy.rules", `add a last one with pattern = "/": it may be exempt`,
			"a request may match no rule")
	}
	for name, l := range f.Limiters {
		path := inner("limiters", name)
		if !used[name] {
			r.add(r.places.key(path), path, "", "no rule uses it")
			continue
		}
		f.checkKeys(r, inner(path, "overrides"), name, l)
		l.limits(path, func(at string, limit quotient.Limit) {
			for i, rate := range limit.Rates {
				if rate.Unit != "" {
					r.field(inner(element(inner(at, "rates"), i), "unit"),
						"%s: a request that is proxied counts as one, and has no such cost", clip(rate.Unit))
				}
			}
		})
	}
}

func (f *File) checkRule(r *report, at string, rule Rule) {
	if err := checkPattern(rule.Pattern); err != nil {
		r.field(inner(at, "pattern"), "%v", err)
	}
	if rule.Exempt {
		return
	}
	switch _, ok := f.Limiters[rule.Limiter]; {
	case rule.Limiter == "":
		r.hinted(inner(at, "limiter"), "or exempt = true", "it is missing")
	case !ok:
		names := slices.Collect(maps.Keys(f.Limiters))
		r.hinted(inner(at, "limiter"), didYouMean(rule.Limiter, names),
			"there is no limiter %s", clip(rule.Limiter))
	}
	rule.Key.check(r, inner(at, "key"))
	f.checkPlan(r, inner(at, "plan"), rule.Plan)
}

func (k Key) check(r *report, at string) {
	spelt := []string{"path", "pattern", "client", "host", "header:NAME", "credential:NAME", "constant:KEY"}
	switch k.Kind {
	case KeyPath, KeyPattern, KeyClient, KeyHost:
		if k.Arg != "" {
			r.field(at, "%s takes no argument: %s", clip(string(k.Kind)), clip(k.Arg))
		}
	case KeyHeader:
		if checkField(r, at, k.Arg, `as "header:X-Tenant"`) && field.Secret(k.Arg) {
			r.hinted(at, fmt.Sprintf("use %q", "credential:"+k.Arg),
				"%s holds a secret, and keys are shown", clip(k.Arg))
		}
	case KeyCredential:
		if checkField(r, at, k.Arg, `as "credential:X-API-Key"`) && strings.EqualFold(k.Arg, "Cookie") {
			r.field(at, "%s holds what its client likes, which has any number of quotas then", clip(k.Arg))
		}
	case KeyConstant:
		if k.Arg == "" || len(k.Arg) > longestKey {
			r.hinted(at, `as "constant:all"`, "%s is no key", clip(k.Arg))
		}
	default:
		kinds := []string{"path", "pattern", "client", "host", "header", "credential", "constant"}
		r.hinted(at, didYouMean(string(k.Kind), kinds),
			"%s is not one of %s", clip(string(k.Kind)), joined(spelt))
	}
}

func (f *File) checkPlan(r *report, at string, p Plan) {
	switch p.Kind {
	case PlanNone:
	case PlanHeader:
		checkField(r, at, p.Arg, `as "header:X-Plan"`)
		if !f.Proxy.trusts() {
			r.hinted(at, "add trusted to [proxy]",
				"a header without trusted networks: any client could pick its plan")
		}
	case PlanClaim:
		if p.Arg == "" {
			r.hinted(at, `as "claim:plan"`, "it names no claim")
		}
		if f.Proxy.JWT == nil {
			r.hinted(at, "add [proxy.jwt]", "a claim without a key that verifies it")
		}
	default:
		r.hinted(at, didYouMean(string(p.Kind), []string{"header", "claim"}),
			"%s is not one of header:NAME, claim:NAME", clip(string(p.Kind)))
	}
}

// checkKeys notes the overrides of keys that no request can have.
func (f *File) checkKeys(r *report, path, name string, l Limiter) {
	for key := range l.Overrides {
		has := func(rule Rule) bool { return rule.Limiter == name && rule.mayHave(key) }
		if !slices.ContainsFunc(f.Proxy.Rules, has) {
			at := inner(path, key)
			r.add(r.places.key(at), at, "a path is in lower case, without a slash at the end, "+
				"a host has no port, and a credential is its hash",
				"no request has this key by any rule of %s", clip(name))
		}
	}
}

// mayHave reports whether a request of the rule may have the key.
func (rule Rule) mayHave(key string) bool {
	switch rule.Key.Kind {
	case KeyPath:
		return len(key) <= 256 && httplimit.CanonicalPath(key) == key // a longer one is hashed
	case KeyPattern:
		return key == rule.Pattern
	case KeyHost:
		return httplimit.Host()(&http.Request{RequestURI: "/", Host: key}) == key
	case KeyCredential:
		digest, ok := strings.CutPrefix(key, "credential:")
		_, err := hex.DecodeString(digest)
		return ok && err == nil && len(digest) == 32 && digest == strings.ToLower(digest) || key == "(no credential)"
	case KeyConstant:
		return key == rule.Key.Arg
	}
	return true
}

// isSegment reports whether a canonical path may have the segment.
func isSegment(s string) bool {
	return s != "" && !strings.Contains(s, "/") && httplimit.CanonicalPath("/"+s) == "/"+s
}

// hops are the fields that do not go on to an upstream, so that a client may write anything into them.
var hops = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Te", "Upgrade", "Http2-Settings",
}

// checkField notes a name that no field has by which a rule can go, and reports whether it is well.
func checkField(r *report, at, name, hint string) bool {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case len(name) > 256, !field.IsName(name):
		r.hinted(at, hint, "%s is no name of a header field", clip(name))
	case canonical == "Host":
		r.hinted(at, `key = "host" is the host`, "%s is not kept among the header fields", clip(name))
	case field.Apart(name), slices.Contains(hops, canonical):
		r.field(at, "%s is about the connection or the message, and no upstream reads it", clip(name))
	case canonical == "X-Real-Ip", canonical == "Forwarded", strings.HasPrefix(canonical, "X-Forwarded-"):
		r.hinted(at, `use key = "client", and trusted of [proxy]`, "any client may write %s", clip(name))
	default:
		return true
	}
	return false
}

// longestPattern bounds a pattern, in bytes: http.ServeMux takes a step for each segment.
const longestPattern = 256

// checkPattern returns what is wrong with a pattern: in the syntax of http.ServeMux, or for canonical paths.
func checkPattern(pattern string) error {
	switch {
	case pattern == "":
		return fmt.Errorf("it is missing")
	case len(pattern) > longestPattern:
		return fmt.Errorf("%d bytes are more than %d", len(pattern), longestPattern)
	}
	if err := register(http.NewServeMux(), pattern); err != nil {
		return err
	}
	method, host, path := split(pattern)
	if method != strings.ToUpper(method) {
		return fmt.Errorf("%s never matches: methods are in upper case", clip(pattern))
	}
	if host != strings.ToLower(host) {
		return fmt.Errorf("%s never matches: hosts are in lower case", clip(pattern))
	}
	if path != "/{$}" && strings.HasSuffix(path, "/{$}") {
		return fmt.Errorf("%s never matches: canonical paths have no slash at the end", clip(pattern))
	}
	path = strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/")
	if path == "" {
		return nil
	}
	for segment := range strings.SplitSeq(path, "/") {
		literal, err := url.PathUnescape(segment)
		if !strings.HasPrefix(segment, "{") && (err != nil || !isSegment(literal)) {
			return fmt.Errorf("%s never matches: canonical paths have no segment %s",
				clip(pattern), clip(segment))
		}
	}
	return nil
}

// register puts a pattern into a mux, and returns what http.ServeMux says against it.
func register(mux *http.ServeMux, pattern string) (err error) {
	defer func() {
		if why := recover(); why != nil {
			text := fmt.Sprint(why)
			if _, rest, ok := strings.Cut(text, "parsing "); ok {
				text = rest
			}
			err = fmt.Errorf("%s", text)
		}
	}()
	mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

// split takes a valid pattern apart.
func split(pattern string) (method, host, path string) {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		method, pattern = pattern[:i], strings.TrimLeft(pattern[i+1:], " \t")
	}
	i := strings.IndexByte(pattern, '/')
	return method, pattern[:i], pattern[i:]
}

// checkOrder notes rules behind one that matches all that they match, and rules that overlap where none is
// more specific. Otherwise the first that matches is the one that http.ServeMux chooses.
func (f *File) checkOrder(r *report) {
	mux := http.NewServeMux()
	depth := 2
	var before []shape
	for _, rule := range f.Proxy.Rules {
		depth = max(depth, strings.Count(rule.Pattern, "/")+2)
	}
	first, anyHost := make(map[string]int), []int(nil)
	for i, rule := range f.Proxy.Rules {
		at := inner(element("proxy.rules", i), "pattern")
		if checkPattern(rule.Pattern) != nil {
			continue
		}
		if behind := covers(before, shapeOf(rule.Pattern), depth); len(behind) > 0 {
			by := f.rule(first[behind[0]]) + " which matches"
			if len(behind) > 1 {
				by = "others, which match"
			}
			r.field(at, "%s is never reached behind %s all that it does", clip(rule.Pattern), by)
			continue
		}
		if register(mux, rule.Pattern) != nil {
			r.hinted(at, "make one of them more specific",
				"%s overlaps with %s and which one counts is not clear",
				clip(rule.Pattern), f.rule(f.conflict(i)))
			continue
		}
		first[rule.Pattern] = i
		before = append(before, shapeOf(rule.Pattern))
		switch _, host, _ := split(rule.Pattern); {
		case host == "":
			anyHost = append(anyHost, i)
		default:
			f.checkHost(r, at, i, anyHost, depth)
		}
	}
}

// checkHost notes a rule with a host behind one without that overlaps with it: http.ServeMux looks at those
// with a host first.
func (f *File) checkHost(r *report, at string, i int, anyHost []int, depth int) {
	pattern := f.Proxy.Rules[i].Pattern
	_, host, _ := split(pattern)
	bare := strings.Replace(pattern, host, "", 1)
	alone := []shape{shapeOf(bare)}
	for _, j := range anyHost {
		other := f.Proxy.Rules[j].Pattern
		pair := http.NewServeMux()
		register(pair, other) //nolint:errcheck // it is valid
		if register(pair, bare) != nil || len(covers(alone, shapeOf(other), depth)) > 0 {
			r.hinted(at, "put the one with the host first", "%s overlaps with %s which has no host",
				clip(pattern), f.rule(j))
			return
		}
	}
}

func (f *File) rule(i int) string {
	rule := f.Proxy.Rules[i]
	if rule.Line > 0 {
		return fmt.Sprintf("%s of line %d,", clip(rule.Pattern), rule.Line)
	}
	return fmt.Sprintf("%s, rule %d,", clip(rule.Pattern), i+1)
}

// conflict returns the first rule that rule i cannot stand beside.
func (f *File) conflict(i int) int {
	for j := range i {
		mux := http.NewServeMux()
		if register(mux, f.Proxy.Rules[j].Pattern) == nil && register(mux, f.Proxy.Rules[i].Pattern) != nil {
			return j
		}
	}
	return i
}

type shape struct {
	pattern, method, host string
	segments              []string // "" for a slash at the end, "{" for any one segment
	many                  bool     // the last segment stands for any number, also none
}

// shapeOf takes a valid pattern apart.
func shapeOf(pattern string) shape {
	s := shape{pattern: pattern}
	var path string
	s.method, s.host, path = split(pattern)
	s.segments = strings.Split(path[1:], "/")
	last := s.segments[len(s.segments)-1]
	s.many = last == "" || strings.HasSuffix(last, "...}")
	for i, segment := range s.segments {
		switch {
		case segment == "{$}":
			s.segments[i] = ""
		case strings.HasPrefix(segment, "{"):
			s.segments[i] = "{"
		default:
			s.segments[i], _ = url.PathUnescape(segment)
		}
	}
	return s
}

// matches reports whether a pattern matches all that another does for one number of segments.
func (s shape) matches(o shape, segments []string) bool {
	head := s.method == http.MethodGet && o.method == http.MethodHead
	if s.host != "" && s.host != o.host || s.method != "" && s.method != o.method && !head {
		return false
	}
	for i, segment := range s.segments {
		switch {
		case s.many && i == len(s.segments)-1:
			return len(segments) > i
		case i >= len(segments):
			return false
		case segment == "{":
			if segments[i] == "" {
				return false
			}
		case segment != segments[i]:
			return false
		}
	}
	return len(s.segments) == len(segments)
}

// covers returns the patterns that together match all that another does; none if there are no such. A
// pattern that matches any number of segments is tried with each number up to depth, which is more than any
// other has.
func covers(by []shape, o shape, depth int) (found []string) {
	segments, more := o.segments, 0
	if o.many {
		segments, more = segments[:len(segments)-1], depth
	}
	for n := range more + 1 {
		rest := slices.Repeat([]string{"{"}, n)
		if o.many && n == 0 {
			rest = []string{""}
		}
		asked := slices.Concat(segments, rest)
		i := slices.IndexFunc(by, func(s shape) bool { return s.matches(o, asked) })
		if i < 0 {
			return nil
		}
		if !slices.Contains(found, by[i].pattern) {
			found = append(found, by[i].pattern)
		}
	}
	return found
}
