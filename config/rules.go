package config

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/internal/field"
)

// checkRules notes rules that cannot be meant, and limiters that none of them uses.
func (f *File) checkRules(r *report) {
	rules := f.Proxy.Rules
	used, charged := make(map[string]bool), make(map[[2]string]bool)
	for i, rule := range rules {
		at := element("proxy.rules", i)
		f.checkRule(r, at, rule)
		for _, one := range rule.All() {
			used[one.Limiter] = true
			for _, c := range rule.Costs {
				charged[[2]string{one.Limiter, c.Unit}] = true
			}
		}
	}
	f.checkOrder(r)
	f.checkTurns(r)
	f.checkLast(r)
	keys := f.keys()
	for name, l := range f.Limiters {
		path := inner("limiters", name)
		if slices.Contains(f.added, name) {
			continue
		}
		if !used[name] {
			r.add(r.places.key(path), path, "", "no rule uses it")
			continue
		}
		keys.checkKeys(r, inner(path, "overrides"), name)
		l.limits(path, func(at string, limit quotient.Limit) {
			for i, rate := range limit.Rates {
				if rate.Unit != "" && !charged[[2]string{name, rate.Unit}] {
					r.hinted(inner(element(inner(at, "rates"), i), "unit"), "add costs to a rule of the limiter",
						"%s: no request costs any, and the rate would limit nothing", clip(rate.Unit))
				}
			}
		})
	}
}

// checkLast notes that a request may match no rule.
func (f *File) checkLast(r *report) {
	rules, hint := f.Proxy.Rules, `add a last one with pattern = "/": it may be exempt`
	if f.ruleless() || len(rules) > 0 && rules[len(rules)-1].Pattern == "/" {
		return
	}
	if len(rules) == 0 && f.Decide != nil && len(f.Decide.RateLimitFiles) > 0 {
		hint = `add some, or http = "off" to [decide]`
	}
	r.hinted("proxy.rules", hint, "a request may match no rule")
}

func (f *File) checkRule(r *report, at string, rule Rule) {
	if err := checkPattern(rule.Pattern); err != nil {
		r.field(inner(at, "pattern"), "%v", err)
	}
	if rule.Exempt {
		return
	}
	all, weight := rule.All(), inner(at, "weight")
	between(r, weight, rule.Weight, 1, 1<<30)
	f.checkSaid(r, weight, rule.WeightBy)
	f.checkCosts(r, inner(at, "costs"), rule)
	f.checkPlan(r, inner(at, "plan"), rule.Plan)
	rule.Refusal.check(r, inner(at, "refusal"))
	f.checkCount(r, inner(at, "count"), rule)
	if len(rule.Also) > maxAlso {
		r.field(inner(at, "also"), "%d are more than %d", len(rule.Also), maxAlso)
	}
	for i, one := range all {
		at, hint := at, "or exempt = true"
		if i > 0 {
			at, hint = element(inner(at, "also"), i-1), ""
		}
		switch _, ok := f.Limiters[one.Limiter]; {
		case one.Limiter == "":
			r.hinted(inner(at, "limiter"), hint, "it is missing")
		case !ok:
			names := slices.Collect(maps.Keys(f.Limiters))
			r.hinted(inner(at, "limiter"), didYouMean(one.Limiter, names),
				"there is no limiter %s", clip(one.Limiter))
		case slices.ContainsFunc(all[:i], func(b Also) bool { return b.Limiter == one.Limiter }):
			r.field(inner(at, "limiter"), "%s is a limiter of this rule already", clip(one.Limiter))
		}
		f.checkKey(r, inner(at, "key"), one.Key)
		f.checkOr(r, inner(at, "or"), one)
		f.checkRoom(r, weight, one.Limiter, "", rule.Weight)
	}
}

// checkRoom notes a weight, or a cost in a unit, that no limit of a limiter ever has room for.
func (f *File) checkRoom(r *report, at, name, unit string, n int) {
	f.Limiters[name].limits("", func(_ string, limit quotient.Limit) {
		most := math.Inf(1)
		if limit.InFlight > 0 && unit == "" {
			most = float64(limit.InFlight)
		}
		for _, rate := range limit.Rates {
			if rate.Unit != unit {
				continue
			}
			room := rate.Events
			if rate.Kind == quotient.Bucket && rate.Burst > 0 {
				room = float64(rate.Burst)
			}
			most = min(most, room)
		}
		if n > 1 && float64(n) > most {
			r.field(at, "%d never fits: limiter %s has room for %v", n, clip(name), most)
		}
	})
}

var statuses = regexp.MustCompile(`^[2-9]([0-9][0-9]|xx)$`)

// checkCount notes what is no status, and limits of a rule from which an answer's status takes too much or nothing.
func (f *File) checkCount(r *report, at string, rule Rule) {
	for i, s := range rule.Count {
		at := at
		if len(rule.Count) > 1 {
			at = element(at, i)
		}
		if !statuses.MatchString(s) {
			r.hinted(at, `as "4xx" or ["401", "403"]`, "%s is no status", clip(s))
		}
	}
	if len(rule.Count) == 0 {
		return
	}
	rates := 0
	for _, one := range rule.All() {
		l, ok := f.Limiters[one.Limiter]
		if !ok {
			return
		}
		l.limits("", func(_ string, limit quotient.Limit) {
			for _, rate := range limit.Rates {
				rates++
				window := rate.Kind == quotient.Window || rate.Kind == quotient.CountedWindow
				if each := float64(rate.Per) / rate.Events; !window && rate.Unit == "" && each < float64(time.Second) {
					r.hinted(at, `use kind = "window"`, "the rate %s of %s refills a request in less than a second: "+
						"what does not count would come back only in part", clip(rate.Name), clip(one.Limiter))
				}
			}
		})
	}
	if rates == 0 {
		r.field(at, "no limiter of the rule has rates, and slots come back in any case")
	}
}

// checkTurns notes rules whose limiters stand in orders that contradict each other. A request holds the slots of one
// while it waits for those of the next, and so two could wait for each other. With one order none does.
func (f *File) checkTurns(r *report) {
	type step struct{ to, at string }
	next, names := make(map[string][]step), []string{}
	for i, rule := range f.Proxy.Rules {
		all := rule.All()
		for j := 1; j < len(all); j++ {
			from, to, at := all[j-1].Limiter, all[j].Limiter, element(inner(element("proxy.rules", i), "also"), j-1)
			if from != "" && to != "" {
				names, next[from] = append(names, from), append(next[from], step{to, inner(at, "limiter")})
			}
		}
	}
	const passing, passed = 1, 2
	state := make(map[string]int)
	var circle func(from string) bool
	circle = func(from string) bool {
		state[from] = passing
		for _, s := range next[from] {
			if s.to != from && state[s.to] == passing {
				r.hinted(s.at, "keep one order in all rules", "%s stands behind %s here, and before it in other "+
					"rules: requests could wait for each other", clip(s.to), clip(from))
				return true
			}
			if state[s.to] == 0 && circle(s.to) {
				return true
			}
		}
		state[from] = passed
		return false
	}
	for _, name := range names {
		if state[name] == 0 && circle(name) {
			return
		}
	}
}

// checkKey notes what is wrong with the parts of a key.
func (f *File) checkKey(r *report, at string, k Key) {
	parts := k.Parts()
	for i, part := range parts {
		at := at
		if len(parts) > 1 {
			at = element(at, i)
		}
		same := func(other Key) bool { return other.String() == part.String() }
		if part.check(r, at); slices.ContainsFunc(parts[:i], same) {
			r.field(at, "%s is in the list twice", clip(part.String()))
		}
		if part.Kind == KeyClaim && f.Proxy.JWT == nil {
			r.hinted(at, "add [proxy.jwt]", "a claim without a key that verifies it")
		}
	}
}

// checkOr notes what is wrong with the key of requests that have no other.
func (f *File) checkOr(r *report, at string, rule Also) {
	if rule.Or.Kind == "" {
		return
	}
	f.checkKey(r, at, rule.Or)
	may := func(k Key) bool {
		return !slices.Contains([]KeyKind{KeyPath, KeyPattern, KeyClient, KeyHost, KeyConstant}, k.Kind)
	}
	switch key := rule.Key.String(); {
	case key == rule.Or.String():
		r.field(at, "%s is the key itself", clip(key))
	case !slices.ContainsFunc(rule.Key.Parts(), may):
		r.field(at, "it never counts: every request has the key %s", clip(key))
	}
}

// otherNames are what people call the kinds of keys.
var otherNames = map[string]string{
	"ip": "client", "addr": "client", "address": "client", "remote-addr": "client", "route": "pattern",
	"url": "path", "uri": "path", "domain": "host", "jwt": "claim", "param": "query", "session": "cookie",
}

func (k Key) check(r *report, at string) {
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
	case KeyCookie:
		if len(k.Arg) > longestPattern || !field.IsName(k.Arg) {
			r.hinted(at, `as "cookie:session"`, "%s is no name of a cookie", clip(k.Arg))
		}
	case KeyQuery, KeyClaim:
		switch {
		case k.Arg == "" || len(k.Arg) > longestPattern:
			r.hinted(at, fmt.Sprintf("as %q", string(k.Kind)+":tenant"), "%s is no name", clip(k.Arg))
		case field.Secret(k.Arg):
			r.field(at, "%s holds a secret, and keys are shown", clip(k.Arg))
		}
	default:
		noKind(r, at, string(k.Kind))
	}
}

// noKind notes what is no kind of a key.
func noKind(r *report, at, kind string) {
	spelt := []string{
		"path", "pattern", "client", "host", "header:NAME", "credential:NAME", "cookie:NAME", "query:NAME",
		"claim:NAME", "constant:KEY",
	}
	kinds := make([]string, len(spelt))
	for i, s := range spelt {
		kinds[i], _, _ = strings.Cut(s, ":")
	}
	meant := cmp.Or(otherNames[plain(kind)], kind)
	r.hinted(at, didYouMean(meant, kinds), "%s is not one of %s", clip(kind), joined(spelt))
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
	all, depth := http.NewServeMux(), 2
	for _, rule := range f.Proxy.Rules {
		depth = max(depth, strings.Count(rule.Pattern, "/")+2)
	}
	var before []string           // the patterns in all
	first := make(map[string]int) // the rules that they are from
	var anyHost []int
	for i, rule := range f.Proxy.Rules {
		at := inner(element("proxy.rules", i), "pattern")
		if checkPattern(rule.Pattern) != nil {
			continue
		}
		if behind := covers(all, before, rule.Pattern, depth); len(behind) > 0 {
			by := f.rule(first[behind[0]]) + " which matches"
			if len(behind) > 1 {
				by = "others, which match"
			}
			r.field(at, "%s is never reached behind %s all that it does", clip(rule.Pattern), by)
			continue
		}
		if register(all, rule.Pattern) != nil {
			r.hinted(at, "make one of them more specific",
				"%s overlaps with %s and which one counts is not clear",
				clip(rule.Pattern), f.rule(f.conflict(i)))
			continue
		}
		before, first[rule.Pattern] = append(before, rule.Pattern), i
		if _, host, _ := split(rule.Pattern); host == "" {
			anyHost = append(anyHost, i)
		} else {
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
	mux := alone(bare)
	for _, j := range anyHost {
		other := f.Proxy.Rules[j].Pattern
		if len(covers(mux, []string{bare}, other, depth)) > 0 || register(alone(other), bare) != nil {
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
	return slices.IndexFunc(f.Proxy.Rules[:i], func(rule Rule) bool {
		return checkPattern(rule.Pattern) == nil && register(alone(rule.Pattern), f.Proxy.Rules[i].Pattern) != nil
	})
}

// alone is a mux of one valid pattern.
func alone(pattern string) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle(pattern, http.NotFoundHandler())
	return mux
}

var wildcard = regexp.MustCompile(`\{[^}]*\}`)

// covers returns which of the patterns by, all of which are in a mux, together match all that another pattern does;
// none if there are no such. It is asked with names that no pattern has. A pattern that matches any number of segments
// is tried with each number up to depth, which is more than any other has.
func covers(all *http.ServeMux, by []string, pattern string, depth int) (found []string) {
	method, host, path := split(pattern)
	paths, end := []string{strings.TrimSuffix(path, "{$}")}, strings.LastIndexByte(path, '/')+1
	if last := path[end:]; last == "" || strings.HasSuffix(last, "...}") {
		paths = []string{path[:end]}
		for n := range depth {
			paths = append(paths, path[:end]+strings.Repeat("X/", n)+"X")
		}
	}
	for _, path := range paths {
		path, _ = url.PathUnescape(wildcard.ReplaceAllString(path, "X"))
		asked := &http.Request{Method: cmp.Or(method, "x"), Host: cmp.Or(host, "X"), URL: &url.URL{Path: path}}
		one, redirects := matched(all, asked)
		if redirects { // to a subtree, whose pattern is not the one that matches the path itself
			does := func(pattern string) bool { m, to := matched(alone(pattern), asked); return m != "" && !to }
			both := slices.Concat(found, by) // the one before is most often that of this path too
			if i := slices.IndexFunc(both, does); i >= 0 {
				one = both[i]
			} else {
				one = ""
			}
		}
		if one == "" {
			return nil
		}
		if !slices.Contains(found, one) {
			found = append(found, one)
		}
	}
	return found
}

// matched is the pattern of a mux for a request; it redirects if that matches only with a slash behind.
func matched(mux *http.ServeMux, r *http.Request) (pattern string, redirects bool) {
	h, pattern := mux.Handler(r)
	_, ours := h.(http.HandlerFunc)
	return pattern, !ours
}
