package httplimit

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// zooTime is when the answers of the zoo came.
var zooTime = time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC)

// exhibit is one line of the zoo: an answer, and what it means.
type exhibit struct {
	place, host string
	status      int
	header      http.Header
	want        policy.Feedback
	garbage     int
}

// zoo reads all exhibits. testdata/zoo/vendors.txt explains the form.
func zoo(t testing.TB) (all []exhibit) {
	t.Helper()
	files, err := filepath.Glob("testdata/zoo/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("files %v, error %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		host := ""
		for i, line := range strings.Split(string(text), "\n") {
			place := fmt.Sprintf("%s:%d", file, i+1)
			switch {
			case line == "", strings.HasPrefix(line, "#"):
			case strings.HasPrefix(line, "["):
				host = strings.Trim(line, "[]")
			default:
				e, err := parseExhibit(line)
				if err != nil || host == "" {
					t.Fatalf("%s: %v (host %q)", place, err, host)
				}
				e.place, e.host = place, host
				all = append(all, e)
			}
		}
	}
	return all
}

func parseExhibit(line string) (e exhibit, err error) {
	answer, want, ok := strings.Cut(line, "=> ")
	if !ok {
		return e, fmt.Errorf("no => in the line")
	}
	parts := strings.Split(strings.TrimSpace(answer), "|")
	if e.status, err = strconv.Atoi(strings.TrimSpace(parts[0])); err != nil {
		return e, err
	}
	e.header = http.Header{}
	for _, part := range parts[1:] {
		name, value, ok := strings.Cut(part, ":")
		if !ok {
			return e, fmt.Errorf("no field in %q", part)
		}
		e.header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	e.want, e.garbage, err = parseWant(want)
	return e, err
}

// outcomes are the words that an expectation starts with.
var outcomes = map[string]policy.Outcome{
	"success":     policy.Success,
	"throttled":   policy.Throttled,
	"unavailable": policy.Unavailable,
}

func parseWant(text string) (f policy.Feedback, garbage int, err error) {
	words := strings.Fields(text)
	f.Outcome = outcomes[words[0]]
	if f.Outcome == policy.Unknown {
		return f, 0, fmt.Errorf("unknown outcome %q", words[0])
	}
	quotas := f.Quotas[:0]
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "retry":
			f.RetryAfter, err = time.ParseDuration(value)
		case "garbage":
			garbage, err = strconv.Atoi(value)
		default:
			var q policy.Quota
			q, err = parseQuota(name, value)
			quotas = append(quotas, q)
		}
		if err != nil {
			return f, garbage, fmt.Errorf("%q: %w", word, err)
		}
	}
	if len(quotas) > len(f.Quotas) {
		return f, garbage, fmt.Errorf("%d quotas", len(quotas))
	}
	return f, garbage, nil
}

// parseQuota reads remaining/limit@reset.
func parseQuota(unit, text string) (q policy.Quota, err error) {
	if q.Unit = unit; unit == "requests" {
		q.Unit = ""
	}
	amounts, reset, dated := strings.Cut(text, "@")
	if dated {
		if q.Reset, err = time.ParseDuration(reset); err != nil {
			return q, err
		}
	}
	left, limit, _ := strings.Cut(amounts, "/")
	if q.Remaining, err = strconv.ParseFloat(left, 64); err != nil {
		return q, err
	}
	q.Limit, err = strconv.ParseFloat(limit, 64)
	return q, err
}

// leastZoo is how many exhibits there must be: fewer would mean that some were not read.
const leastZoo = 300

func TestZoo(t *testing.T) {
	all := zoo(t)
	if len(all) < leastZoo {
		t.Errorf("%d exhibits, want at least %d", len(all), leastZoo)
	}
	seen := map[string]string{}
	for _, e := range all {
		got, garbage := ProfileFor(e.host).Feedback(e.status, e.header, zooTime)
		if got != e.want || garbage != e.garbage {
			t.Errorf("%s: %s %d %v:\n got %+v, garbage %d\nwant %+v, garbage %d", e.place, e.host, e.status,
				e.header, got, garbage, e.want, e.garbage)
		}
		what := fmt.Sprint(e.host, e.status, e.header)
		if before, twice := seen[what]; twice {
			t.Errorf("%s is the same as %s", e.place, before)
		}
		seen[what] = e.place
	}
}
