package rls

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	limits "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/poolsize/gossip"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// set is a service with its rules, as a command has them: files in a folder, and limiters by package config.
type set struct {
	paths        []string
	kind, fields string
	reg          quotient.Registry
	service      *Service
	config       *config.Config
	rules        *Rules
}

// newSet puts files into force, for a pool of a source; nil is one of no other.
func newSet(t testing.TB, src quotient.Source, kind, fields string, files ...string) *set {
	t.Helper()
	s := &set{kind: kind, fields: fields}
	s.service = New(&s.reg)
	s.write(t, files...)
	text := "[limiters.other]\nin-flight = 1\n"
	if src == nil { // one that nobody follows
		var err error
		src, err = gossip.New(gossip.Config{Bind: "127.0.0.1:0"})
		tested.Must(t, err)
	}
	f, err := config.Parse("q.toml", []byte("pool.source = \"test:\"\n"+text))
	tested.Must(t, err)
	sources := config.Sources{"test": func(string) (quotient.Source, error) { return src, nil }}
	s.config, err = config.New(f, &s.reg, config.Adjust(s.adjust), config.With(s), config.WithSources(sources))
	tested.Must(t, err)
	return s
}

func (s *set) write(t testing.TB, files ...string) {
	dir := t.TempDir()
	s.paths = nil
	for i, text := range files {
		path := filepath.Join(dir, strconv.Itoa(i)+".yaml")
		tested.Must(t, os.WriteFile(path, []byte(text), 0o600))
		s.paths = append(s.paths, path)
	}
}

func (s *set) adjust(f *config.File) (err error) {
	if s.rules, err = Read(s.paths); err != nil {
		return err
	}
	s.rules.Fields = s.fields
	for name, l := range s.rules.Limiters(s.kind, &s.reg) {
		f.Limiters[name] = l
	}
	return nil
}

func (s *set) Prepare(*config.File) (func(), error) {
	rules := s.rules
	return func() { s.service.Set(rules) }, nil
}

// TestConformance holds the answers to the requests of testdata/conformance.txt, once as they are and once with a
// reload before each. A block there is a service of its own: a title, files between lines of +++, and below a line of
// --- what happens in turn. Five signs of equality end it. Request and answer are spelt as requestOf and answerOf say.
func TestConformance(t *testing.T) {
	all, err := os.ReadFile("testdata/conformance.txt")
	tested.Must(t, err)
	requests := 0
	for block := range strings.SplitSeq(strings.TrimSuffix(string(all), "=====\n"), "=====\n") {
		head, steps, _ := strings.Cut(block, "\n---\n")
		title, files, _ := strings.Cut(head, "\n")
		requests += strings.Count(steps, "->")
		for _, reloads := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/reloads=%v", title, reloads), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var kind, fields string
					for word := range strings.FieldsSeq(title) {
						if v, ok := strings.CutPrefix(word, "kind:"); ok {
							kind = v
						} else if v, ok := strings.CutPrefix(word, "fields:"); ok {
							fields = v
						}
					}
					play(t, newSet(t, nil, kind, fields, strings.Split(files, "\n+++\n")...), steps, reloads)
				})
			})
		}
	}
	if requests < 120 {
		t.Errorf("%d requests are fewer than 120", requests)
	}
}

func play(t *testing.T, s *set, steps string, reloads bool) {
	for step := range strings.SplitSeq(strings.TrimSpace(steps), "\n") {
		if wait, ok := strings.CutPrefix(step, "wait "); ok {
			d, err := time.ParseDuration(wait)
			tested.Must(t, err)
			time.Sleep(d)
			continue
		}
		if change, ok := strings.CutPrefix(step, "operator "); ok {
			operate(t, s, strings.Fields(change))
			continue
		}
		if reloads {
			tested.Must(t, s.config.Reload())
		}
		if step == "" || step[0] == '#' {
			continue
		}
		request, want, ok := strings.Cut(step, " -> ")
		if !ok {
			t.Fatalf("no step: %s", step)
		}
		times := 1
		if n, rest, ok := strings.Cut(request, " x "); ok {
			times, _ = strconv.Atoi(n)
			request = rest
		}
		var got string
		for range times {
			got = answerOf(s.service.ShouldRateLimit(t.Context(), requestOf(t, request)))
		}
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", request, got, want)
		}
	}
}

// operate does what an operator may: LIMITER dry-run, LIMITER enforced, or LIMITER KEY with one of these limits.
func operate(t *testing.T, s *set, change []string) {
	l, ok := s.reg.Get(change[0])
	tested.Not(t, !ok, "no limiter %s", change[0])
	if len(change) == 2 {
		l.SetDryRun(change[1] == "dry-run")
		return
	}
	limit, ok := map[string]quotient.Limit{
		"deny": {Deny: true}, "free": {}, "slots": {InFlight: 1},
		"bucket": quotient.Rates(quotient.Rate{Events: 2.5, Per: 90 * time.Second}),
	}[change[2]]
	tested.Not(t, !ok, "no limit %s", change[2])
	tested.Must(t, l.Override(change[1], &limit, 0))
}

// requestOf reads "domain: key=value,key2=value2 +3 @5/minute; key=value +=2": descriptors are between semicolons, with
// hits of their own (+3) and a limit of their own (@5/minute), +=2 are the hits of the request, and one of a dot alone has no entries.
func requestOf(t tested.TB, text string) *ratelimit.RateLimitRequest {
	domain, rest, _ := strings.Cut(text, ":")
	r := &ratelimit.RateLimitRequest{Domain: domain}
	if rest = strings.TrimSpace(rest); rest == "" {
		return r
	}
	for one := range strings.SplitSeq(rest, ";") {
		d := new(common.RateLimitDescriptor)
		for word := range strings.FieldsSeq(one) {
			switch {
			case strings.HasPrefix(word, "+="):
				r.HitsAddend = uint32(number(t, word[2:]))
			case word == ".": // no entries
			case word == "-":
				d.IsNegativeHits = true
			case word[0] == '+':
				d.HitsAddend = wrapperspb.UInt64(number(t, word[1:]))
			case word[0] == '@':
				n, unit, _ := strings.Cut(word[1:], "/")
				d.Limit = &common.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: uint32(number(t, n)),
					Unit:            limits.RateLimitUnit(limits.RateLimitUnit_value[strings.ToUpper(unit)]),
				}
			default:
				for pair := range strings.SplitSeq(word, ",") {
					key, value, _ := strings.Cut(pair, "=")
					d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
				}
			}
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

func number(t tested.TB, text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	tested.Must(t, err)
	return n
}

// answerOf writes "OVER: ok 3 of 5 minute in 60; OVER 0 of 5 name minute in 60; ok; ok unlimited | field: value".
func answerOf(r *ratelimit.RateLimitResponse, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	code := func(c ratelimit.RateLimitResponse_Code) string {
		return map[ratelimit.RateLimitResponse_Code]string{1: "ok", 2: "OVER"}[c]
	}
	var parts []string
	for _, s := range r.Statuses {
		part := code(s.Code)
		switch l := s.CurrentLimit; {
		case l != nil:
			part += fmt.Sprintf(" %d of %d", s.LimitRemaining, l.RequestsPerUnit)
			if l.Name != "" {
				part += " " + l.Name
			}
			part += fmt.Sprintf(" %s in %d", nameOf(l.Unit), s.DurationUntilReset.AsDuration()/time.Second)
		case s.LimitRemaining == math.MaxUint32:
			part += " unlimited"
		case s.LimitRemaining != 0 || s.DurationUntilReset != nil:
			part += " with what no limit has"
		}
		parts = append(parts, part)
	}
	text := code(r.OverallCode) + ": " + strings.Join(parts, "; ")
	for _, h := range r.ResponseHeadersToAdd {
		text += " | " + h.Key + ": " + h.Value
	}
	return text
}

// TestErrors holds the errors and warnings of each mistake in testdata/errors.txt: files between lines of +++, below five
// dashes what Read says, and five signs of equality at the end.
func TestErrors(t *testing.T) {
	all, err := os.ReadFile("testdata/errors.txt")
	tested.Must(t, err)
	for row := range strings.SplitSeq(strings.TrimSuffix(string(all), "=====\n"), "=====\n") {
		text, want, _ := strings.Cut(row, "-----\n")
		r, got := newRules(), ""
		for i, file := range strings.Split(text, "+++\n") {
			if err := r.add("q"+strconv.Itoa(i)+".yaml", []byte(file)); err != nil {
				got += err.Error() + "\n"
			}
		}
		for _, warning := range r.Warnings() {
			got += "warning: " + warning.Error() + "\n"
		}
		if got != want {
			t.Errorf("%s\n got %swant %s", text, got, want)
		}
	}
}

// TestBoundsOfFiles: what a file may have the most of.
func TestBoundsOfFiles(t *testing.T) {
	var rules, deep, wide strings.Builder
	for i := range maxRules + 1 {
		fmt.Fprintf(&rules, "- {key: k%d, rate_limit: {unit: day, requests_per_unit: 1}}\n", i)
	}
	for i := range maxDepth + 1 {
		fmt.Fprintf(&deep, "%sdescriptors:\n%[1]s- key: k\n%[1]s  rate_limit: {unlimited: true}\n", strings.Repeat("  ", i))
	}
	wide.WriteString("descriptors:\n- {key: k, descriptors: &a0 []}\n")
	for i := range 6 {
		fmt.Fprintf(&wide, "- {key: k%d, descriptors: &a%d [", i, i+1)
		for j := range 10 {
			fmt.Fprintf(&wide, "{key: x%d, descriptors: *a%d}, ", j, i)
		}
		wide.WriteString("]}\n")
	}
	for _, c := range []struct{ text, want string }{
		{"descriptors:\n" + rules.String(), "q.yaml:1002:28: descriptors[999].rate_limit: more than 999 rules"},
		{deep.String(), "more than 32 levels of descriptors"},
		{wide.String(), "more than 100000 values"},
		{strings.Repeat("# a comment\n", maxFile/12+1), "it is larger than 1048576 bytes"},
		{"a: " + strings.Repeat("[", maxFile/16), "nested too deep"},
		{strings.Repeat(" ", maxIndent+1) + "a: b", "nested too deep"},
	} {
		path := filepath.Join(t.TempDir(), "q.yaml")
		tested.Must(t, os.WriteFile(path, []byte("domain: d\n"+c.text), 0o600))
		began := time.Now()
		_, err := Read([]string{path})
		tested.Not(t, err == nil || !strings.Contains(err.Error(), c.want), "%.40s: %.300v, want %s", c.text, err, c.want)
		tested.Not(t, time.Since(began) > tested.Patience, "%.40s took %v", c.text, time.Since(began))
	}
	_, err := Read([]string{filepath.Join(t.TempDir(), "absent.yaml")})
	tested.Not(t, err == nil || !strings.Contains(err.Error(), "absent.yaml"), "%v", err)
}

// TestBoundsOfRequests: what a request may have the most of, and how long a key gets.
func TestBoundsOfRequests(t *testing.T) {
	const file = "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: 9}}\n"
	long := strings.Repeat("x", 1<<20)
	s := newSet(t, nil, "", "", file)
	for _, c := range []struct{ request, want string }{
		{"d: " + strings.Repeat("k=a;", maxDescriptors) + "k=a", "101 descriptors are more than 100"},
		{"d: " + strings.Repeat("k=a,", maxDepth) + "k=a", "33 entries of a descriptor are more than 32"},
		{"d: k=" + long, "ok 8 of 9"},
		{"d: k=" + long + "y", "ok 8 of 9"},
		{"d: k=" + long, "ok 7 of 9"},
		{"d: k=" + long + " @9/day", "ok 8 of 9"},
		{"d: k=1=2 @9/day", "ok 8 of 9"},
		{"d: k~1=2 @9/day", "ok 8 of 9"},
	} {
		r := requestOf(t, c.request)
		for _, e := range r.Descriptors[0].Entries {
			e.Key = strings.ReplaceAll(e.Key, "~", "=")
		}
		got := answerOf(s.service.ShouldRateLimit(t.Context(), r))
		tested.Not(t, !strings.Contains(got, c.want), "%.40s: %.200s, want %s", c.request, got, c.want)
	}
	for i := range maxOwn - 1 {
		request := fmt.Sprintf("d: k=a @%d/day", i+20)
		got := answerOf(s.service.ShouldRateLimit(t.Context(), requestOf(t, request)))
		tested.Not(t, !strings.HasPrefix(got, "ok"), "%s: %s", request, got)
	}
	got := answerOf(s.service.ShouldRateLimit(t.Context(), requestOf(t, "d: k=a @10000/day")))
	tested.Not(t, !strings.Contains(got, "64 distinct limits"), "%s", got)
	for _, l := range s.reg.All() {
		for k := range l.Keys() {
			tested.Not(t, len(k.Key) > maxKey, "a key of %d bytes", len(k.Key))
		}
	}
}

// TestReloadsUnderLoad: no call fails while a rule comes and goes, and as many limits as may be are brought by several
// requests at once.
func TestReloadsUnderLoad(t *testing.T) {
	const k, l = "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: 9}}\n",
		"- {key: l, rate_limit: {unit: day, requests_per_unit: 9}}\n"
	s := newSet(t, nil, "", "draft-11", k+l)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 10 * maxOwn {
				r := requestOf(t, fmt.Sprintf("d: k=%d; l=%d; k=x @%d/day", i%50, i%50, i%maxOwn+1))
				if _, err := s.service.ShouldRateLimit(t.Context(), r); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 10 {
		s.write(t, k+[]string{"", l}[i%2])
		tested.Must(t, s.config.Reload())
	}
	all.Wait()
}

// TestLimiters: each rule is one limiter, of the kind and with the name that are promised.
func TestLimiters(t *testing.T) {
	r := newRules()
	tested.Must(t, r.add("q.yaml", []byte("domain: Shop\ndescriptors:\n"+
		"- {key: a, rate_limit: {unit: week, requests_per_unit: 5}, shadow_mode: true}\n"+
		"- {key: b, value: x*, descriptors: [{key: c, rate_limit: {unit: second, requests_per_unit: 0}}]}\n"+
		"- {key: u, rate_limit: {unlimited: true}}\n"+
		"- {key: "+strings.Repeat("k", 99)+", rate_limit: {unit: year, requests_per_unit: 4294967295}}\n")))
	for kind, want := range map[string]quotient.Kind{
		"": quotient.Window, "window": quotient.Window, "bucket": quotient.Bucket, "counted-window": quotient.CountedWindow,
	} {
		got := ""
		all := r.Limiters(kind, new(quotient.Registry))
		for _, name := range slices.Sorted(maps.Keys(all)) {
			l := all[name]
			got += fmt.Sprintf("%s %v %v %v %d\n", name, l.Limit, l.DryRun, l.Refuse, l.MaxKeys)
			for _, rate := range l.Limit.Rates {
				tested.Want(t, "kind", rate.Kind, want)
			}
			tested.Want(t, "demand", l.Demand != nil, want == quotient.CountedWindow)
		}
		if want == quotient.Window {
			tested.Want(t, "limiters", got, "ratelimit-requests deny false true 262144\n"+
				"shop.a-492a5999 week: 5 per 168h, window true true 262144\n"+
				"shop.b_x-.c-76eb2b1f deny false true 262144\n"+
				"shop."+strings.Repeat("k", 50)+"-8020e473 year: 4294967295 per 8760h, window false true 262144\n")
		}
	}
}

// TestKeysOfLimiters: how many keys each rule remembers, also after a reload, and all of them.
func TestKeysOfLimiters(t *testing.T) {
	const limit = "rate_limit: {unit: day, requests_per_unit: 1}"
	rules := func(n int) string {
		b := strings.Builder{}
		b.WriteString("domain: d\ndescriptors:\n")
		for i := range n {
			fmt.Fprintf(&b, "- {key: k%d, %s}\n", i, limit)
		}
		return b.String()
	}
	s := newSet(t, nil, "", "", rules(1))
	for _, c := range []struct {
		file, name string
		want       int
	}{
		{"domain: d\ndescriptors:\n- {key: a, value: b, " + limit + "}", "d.a_b", 256},
		{"domain: d\ndescriptors:\n- {key: a, value: \"b*\", share_threshold: true, " + limit + "}", "d.a_b-", 256},
		{"domain: d\ndescriptors:\n- {key: a, value: \"b*\", " + limit + "}", "d.a_b-", 1 << 18},
		{"domain: d\ndescriptors:\n- {key: \"a*\", share_threshold: true, " + limit + "}", "d.a-", 1 << 18},
		{"domain: d\ndescriptors:\n- {key: a, descriptors: [{key: b, value: c, " + limit + "}]}",
			"d.a.b_c", 1 << 18},
		{rules(9), "d.k8", 1 << 20 / 10},
		{rules(9), "d.k0", 1 << 18}, // it was in force before
		{rules(maxRules), "d.k998", 1 << 12},
	} {
		r := newRules()
		tested.Must(t, r.add("q.yaml", []byte(c.file)))
		for name, l := range r.Limiters("", &s.reg) {
			if strings.HasPrefix(name, c.name) && (len(name) == len(c.name) || name[len(c.name)] == '-') {
				tested.Want(t, "keys of "+name, l.MaxKeys, c.want)
				c.name = ""
				break
			}
		}
		tested.Want(t, "not found", c.name, "")
	}
	s.write(t, rules(9))
	tested.Must(t, s.config.Reload())
}

// FuzzRead: no file breaks the reader, and rules that it accepts are limiters of a valid file.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"testdata/errors.txt", "testdata/conformance.txt"} {
		all, err := os.ReadFile(name)
		tested.Must(f, err)
		for row := range strings.SplitSeq(string(all), "=====\n") {
			text, _, _ := strings.Cut(row, "\n---\n")
			text, _, _ = strings.Cut(text, "-----\n")
			if _, files, ok := strings.Cut(text, "\ndomain"); ok && strings.HasSuffix(name, "conformance.txt") {
				text = "domain" + files
			}
			f.Add([]byte(text))
		}
	}
	f.Add([]byte("a: &a [*a, *a]\n? b\n: |2\n  c"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := newRules()
		if err := r.add("q.yaml", text); err != nil {
			if errs, ok := err.(config.Errors); !ok || len(errs) == 0 || len(errs) > maxErrors {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		s := &set{service: New(new(quotient.Registry))}
		f, err := config.Parse("q.toml", []byte("[limiters.other]\nin-flight = 1\n"))
		tested.Must(t, err)
		_, err = config.New(f, s.service.reg, config.Adjust(func(f *config.File) error {
			maps.Copy(f.Limiters, r.Limiters("", s.service.reg))
			return nil
		}))
		tested.Must(t, err)
		s.service.Set(r)
		for domain, top := range r.domains {
			for _, n := range top.children {
				key, value, _ := strings.Cut(n.composite, "_")
				entry := &common.RateLimitDescriptor_Entry{Key: key, Value: value}
				_, err := s.service.ShouldRateLimit(t.Context(), &ratelimit.RateLimitRequest{Domain: domain,
					Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{entry}}}})
				tested.Must(t, err)
			}
		}
	})
}
