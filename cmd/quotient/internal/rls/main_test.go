package rls

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	limits "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/carry"
	"github.com/quotient-go/quotient/internal/tested"
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

// newSet puts files into force.
func newSet(t testing.TB, src quotient.Source, kind, fields string, files ...string) *set {
	t.Helper()
	s := &set{kind: kind, fields: fields}
	s.service = New(&s.reg)
	s.write(t, files...)
	text := "[limiters.other]\nin-flight = 1\n"
	if src == nil {
		src = silent{}
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
	for name, l := range s.rules.Limiters(s.kind) {
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

func BenchmarkShouldRateLimit(b *testing.B) {
	s := newSet(b, nil, "window", "", "domain: d\ndescriptors:\n"+
		"- {key: user, rate_limit: {unit: second, requests_per_unit: 1000000}}\n"+
		"- {key: path, value: /api*, rate_limit: {unit: hour, requests_per_unit: 100000000}}\n")
	for name, text := range map[string]string{
		"one": "d: user=%d", "two": "d: user=%d; path=/api/%[1]d", "none": "d: other=%d",
	} {
		requests := make([]*ratelimit.RateLimitRequest, 100_000)
		for i := range requests {
			requests[i] = requestOf(b, fmt.Sprintf(text, i))
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := s.service.ShouldRateLimit(context.Background(), requests[i%len(requests)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// silent is a source that reports and carries nothing.
type silent struct{}

func (silent) Carry(string, func(carry.Sums)) (func(), error) { return func() {}, nil }

func (silent) Watch(ctx context.Context, _ func(quotient.Pool, error)) error {
	<-ctx.Done()
	return ctx.Err()
}
