package httplimit

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/policy"
)

// fields makes a header of pairs.
func fields(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// feedback fails unless a profile reads an answer so.
func feedback(t testing.TB, p *Profile, status int, h http.Header, want policy.Feedback, garbage int) {
	t.Helper()
	if got, n := p.Feedback(status, h, zooTime); got != want || n != garbage {
		t.Errorf("%d %v: %+v, garbage %d; want %+v, %d", status, h, got, n, want, garbage)
	}
}

func TestProfileOfYourOwn(t *testing.T) {
	p := &Profile{
		Throttled: []int{420}, Suspect: []int{401}, Unavailable: []int{529, 530},
		Quotas: []Fields{
			{Unit: "credits", Limit: "x-credits", Remaining: "X-CREDITS-LEFT", ResetAfter: "x-credits-after"},
			{Unit: "credits", Used: "x-day-credits", Reset: "x-day-reset"},
			{Remaining: "left", Used: "used"},
		},
	}
	credits := []string{"X-Credits", "100", "X-Credits-Left", "60"}
	success, throttled, unavailable := policy.Success, policy.Throttled, policy.Unavailable
	var readers sync.WaitGroup // any number of them may read
	for _, tt := range []struct {
		status int
		fields []string
		want   policy.Feedback
	}{
		{200, nil, gives(success, 0)},
		{200, append(credits, "X-Credits-After", "4"), gives(success, 0,
			policy.Quota{Unit: "credits", Limit: 100, Remaining: 60, Reset: 4 * time.Second})},
		{200, append(credits, "X-Day-Credits", "90/100", "X-Day-Reset", "9s"), gives(success, 0,
			policy.Quota{Unit: "credits", Limit: 100, Remaining: 10, Reset: 9 * time.Second})},
		{200, []string{"Left", "3", "Used", "5"}, gives(success, 0, policy.Quota{Limit: 8, Remaining: 3})},
		{420, nil, gives(throttled, 0)}, {429, nil, gives(throttled, 0)},
		{420, []string{"X-Credits-After", "4"}, gives(throttled, 4*time.Second)},
		{401, nil, gives(success, 0)}, {401, []string{"Left", "1"}, gives(success, 0)},
		{401, []string{"Retry-After", "0"}, gives(throttled, 0)}, {401, []string{"Left", "0"}, gives(throttled, 0)},
		{529, []string{"Retry-After", "1"}, gives(unavailable, time.Second)},
		{530, nil, gives(unavailable, 0)}, {503, nil, gives(unavailable, 0)},
	} {
		for range 2 {
			readers.Go(func() { feedback(t, p, tt.status, fields(tt.fields...), tt.want, 0) })
		}
	}
	readers.Wait()
	tested.Want(t, "the profile's quota", p.Quotas[0].Limit, "x-credits")
}

// A list by the draft is parsed up to 4 KiB and 16 members; a plain field up to 256 bytes.
func TestLongFields(t *testing.T) {
	p := &Profile{Quotas: []Fields{family("X")}}
	pad := func(value string, n int) string { return value + strings.Repeat(" ", n-len(value)) }
	plain := func(limit string) http.Header { return fields("X-Limit", limit, "X-Remaining", "5") }
	list := func(policies string, current ...string) http.Header {
		return http.Header{"Ratelimit": current, "Ratelimit-Policy": {policies}}
	}
	policies := `"a";q=10, ` + strings.Repeat(`"b", `, 14) + `"c";q=20, "d";q=30`
	// with what joins lines: 4,093
	long := `"` + strings.Repeat("x", 4091-len(`"";q=1, "a";q=10`)) + `";q=1, "a";q=10`
	for name, tt := range map[string]struct {
		h       http.Header
		limit   float64 // 0: nothing is read
		garbage int
	}{
		"plain": {plain(pad("10,", 256)), 10, 0}, "plain too long": {plain(pad("10,", 257)), 0, 1},
		"digits":          {plain(strings.Repeat("9", 256)), maxAmount, 0},
		"list":            {list(long+"   ", `"a";r=5`), 10, 0},
		"policy too long": {list(long+"    ", `"a";r=5`), 0, 1},
		"list too long":   {list(`"a";q=10`, pad(`"a";r=5`, 4095)), 0, 1},
		"lines too long":  {list(`"a";q=10`, `"a";r=5`, pad("b", 4086)), 0, 1},
		"16th policy":     {list(policies, `"c";r=5`), 20, 0},
		"17th policy":     {list(policies, `"d";r=5`), 0, 0},
		"16th member":     {list(policies, strings.Repeat(`"b", `, 15)+`"a";r=5`), 10, 0},
		"17th member":     {list(policies, strings.Repeat(`"b", `, 16)+`"a";r=5`), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			want := gives(policy.Success, 0)
			if tt.limit > 0 {
				want = gives(policy.Success, 0, policy.Quota{Limit: tt.limit, Remaining: 5})
			}
			feedback(t, p, 200, tt.h, want, tt.garbage)
		})
	}
}

// Nothing is taken from the line after the first, from empty names, and from names that net/http would not
// keep.
func TestFieldsThatDoNotCount(t *testing.T) {
	for _, h := range []http.Header{
		nil,
		{"": {"5"}, "X-Ratelimit-Limit": {"10"}},
		{"x-ratelimit-limit": {"10"}, "x-ratelimit-remaining": {"5"}},
		{"X-Ratelimit-Limit": {}, "X-Ratelimit-Remaining": nil},
		{"X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Remaining": {"", "5"}},
		{"Ratelimit": {}, "Ratelimit-Policy": {}},
	} {
		for _, p := range []*Profile{{}, {Quotas: []Fields{{}}}, anyUpstream, github, openAI} {
			feedback(t, p, 200, h, gives(policy.Success, 0), 0)
			feedback(t, p, 429, h, gives(policy.Throttled, 0), 0)
		}
	}
}

func TestProfileFor(t *testing.T) {
	for want, hosts := range map[*Profile]string{
		github: "github.com api.github.com API.GITHUB.COM api.github.com:443 api.github.com:8443 api.github.com. " +
			"acme.ghe.com .github.com",
		gitlab: "gitlab.com", xRateLimit: "discord.com discordapp.com oauth.reddit.com " +
			"api.atlassian.com acme.atlassian.net api.bitbucket.org",
		openAI: "api.openai.com acme.openai.azure.com", anthropic: "api.anthropic.com",
		shopify: "acme.myshopify.com", aws: "iam.amazonaws.com s3.cn-north-1.amazonaws.com.cn ec2.us-east-1.api.aws",
		google: "www.googleapis.com", telegram: "api.telegram.org",
		retryAfterAlone: "slack.com api.stripe.com",
		anyUpstream: " example.com notgithub.com github.com.example.com com [::1]:443 127.0.0.1 azure.com " +
			"github.community",
	} {
		for host := range strings.SplitSeq(hosts, " ") {
			if got := ProfileFor(host); got != want {
				t.Errorf("%q: %+v, want %+v", host, got.Quotas, want.Quotas)
			}
		}
	}
}

// zooTime is when the answers of the zoo came.
var zooTime = time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC)

// exhibit is one line of the zoo: an answer, and what it means.
type exhibit struct {
	place, host string
	status      int
	header      http.Header
	body        string
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
		tested.Must(t, err)
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
		if name, value = strings.TrimSpace(name), strings.TrimSpace(value); name == "body" {
			e.body = value
		} else {
			e.header.Add(name, value)
		}
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

// A zero now is the present.
func TestZoo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(zooTime))
		visit(t, zoo(t))
	})
}

func visit(t *testing.T, all []exhibit) {
	tested.Not(t, len(all) < leastZoo, "%d exhibits, want at least %d", len(all), leastZoo)
	seen := map[string]string{}
	for _, e := range all {
		resp := &http.Response{StatusCode: e.status, Header: e.header, Body: newBody(e.body)}
		got, garbage := ProfileFor(e.host).FeedbackOf(resp)
		tested.Want(t, fmt.Sprintf("%s: the body", e.place), readAll(t, resp.Body), e.body)
		if got != e.want || garbage != e.garbage {
			t.Errorf("%s: %s %d %v:\n got %+v, garbage %d\nwant %+v, garbage %d", e.place, e.host, e.status,
				e.header, got, garbage, e.want, e.garbage)
		}
		what := fmt.Sprint(e.host, e.status, e.header, e.body)
		if before, twice := seen[what]; twice {
			t.Errorf("%s is the same as %s", e.place, before)
		}
		seen[what] = e.place
	}
}

const (
	bad = -1 // reported as unreadable
	day = maxRetryAfter
)

// saidWaits are values of Retry-After, and what they mean.
var saidWaits = map[string]time.Duration{
	"": bad, "0": 0, "1": time.Second, "120": 2 * time.Minute, " 007 ": 7 * time.Second, "2.0": 2 * time.Second,
	"2.5": 2500 * time.Millisecond, "2.": 2 * time.Second, "0.000000001": 1, "0.0000000001": 1, "0.0000000000": 0,
	"1.9999999999": 2 * time.Second, "86400": day, "86399.5": day - 500*time.Millisecond, "86400.1": day,
	"999999999": day, "1000000000": 0, "1793955067": 30 * time.Second, "1793955067.5": 30500 * time.Millisecond,
	"1793955067000": 30 * time.Second, "9223372037": day, "9223372036854775808": day,
	"99999999999999999999999": day, strings.Repeat("9", maxValue+1): day, "-1": bad, "-0": bad, "+1": bad,
	"1e3": bad, "0x10": bad, ".5": bad, "1.-5": bad, "1.2.3": bad, "1, 2": bad, "1;2": bad, "NaN": bad, "Inf": bad,
	"soon": bad, "१": bad, "1m30s": 90 * time.Second, "250ms": 250 * time.Millisecond, "-1s": bad, "1d": bad,
	"99999h": day, "9999999h": bad, strings.Repeat("0s", maxValue/2+1): bad,
	"Fri, 06 Nov 2026 08:51:07 GMT": 30 * time.Second, "2026-11-06T08:51:07.25Z": 30250 * time.Millisecond,
}

func TestRetryAfter(t *testing.T) {
	const (
		date  = "Sun, 06 Nov 1994 08:49:37 GMT"
		later = "Sun, 06 Nov 1994 08:51:07 GMT" // 90 s later
	)
	now := time.Date(2026, 11, 6, 8, 50, 37, 0, time.UTC) // 30 s before the instants of saidWaits
	check := func(want time.Duration, said ...string) {
		t.Helper()
		h := fields(said...)
		if got, ok := RetryAfter(h, now); ok != (want != bad) || ok && got != want || !ok && got != 0 {
			t.Errorf("%v: %v, %v; want %v", h, got, ok, want)
		}
	}
	for value, want := range saidWaits {
		check(want, "Retry-After", value)
	}
	for value, want := range map[string]time.Duration{
		later: 90 * time.Second, "Sunday, 06-Nov-94 08:51:07 GMT": 90 * time.Second,
		"Sun Nov  6 08:51:07 1994": 90 * time.Second, "Fri, 31 Dec 9999 23:59:59 GMT": day,
		"Mon, 01 Jan 0001 00:00:00 GMT": 0, "Sun, 06 Nov 1994 08:51:07 +0100": bad,
	} {
		check(want, "Retry-After", value, "Date", date)
	}
	check(0, "Retry-After", date, "Date", later)
	check(30*time.Second, "Retry-After", "Fri, 06 Nov 2026 08:51:07 GMT", "Date", "yesterday")
	for age, want := range map[string]time.Duration{
		"0": time.Second, "00": time.Second, "-5": time.Second, "old": time.Second, "5": bad,
		"99999999999999999999999": bad,
	} {
		check(want, "Retry-After", "1", "Age", age)
	}
	check(bad, "Retry-After", later, "Date", date, "Age", "1")
	check(bad)
	// Of several fields, and lines of one, the longest counts, and those that say nothing do not.
	check(5*time.Second, "Retry-After", "3", "Retry-After", "5", "Retry-After", "4")
	check(3*time.Second, "Retry-After", "soon", "Retry-After", "", "Retry-After", "3", "X-Retry-After", "-9")
	for _, f := range waits {
		check(1500*f.unit, f.name, "1500")
		check(f.unit/2, f.name, "0.5")
		check(day, f.name, "99999999999999999999999")
		check(2*time.Second, f.name, "2s", "Retry-After", "1")
		if f.unit != time.Second {
			check(day, f.name, "1000000000") // no instant
		}
		check(bad, f.name, "-1500")
		check(bad, f.name, "NaN")
		check(bad, f.name, "00:00:00.033")
	}
}
