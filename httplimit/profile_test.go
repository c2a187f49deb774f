package httplimit

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// gives is feedback with these quotas.
func gives(outcome policy.Outcome, pause time.Duration, quotas ...policy.Quota) policy.Feedback {
	f := policy.Feedback{Outcome: outcome, RetryAfter: pause}
	copy(f.Quotas[:], quotas)
	return f
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
	credits := policy.Quota{Unit: "credits", Limit: 100, Remaining: 60, Reset: 4 * time.Second}
	for _, tt := range []struct {
		status int
		h      http.Header
		want   policy.Feedback
	}{
		{200, nil, gives(policy.Success, 0)},
		{200, fields("X-Credits", "100", "X-Credits-Left", "60", "X-Credits-After", "4"),
			gives(policy.Success, 0, credits)},
		{200, fields("X-Credits", "100", "X-Credits-Left", "60", "X-Day-Credits", "90/100",
			"X-Day-Reset", "9s"),
			gives(policy.Success, 0,
				policy.Quota{Unit: "credits", Limit: 100, Remaining: 10, Reset: 9 * time.Second})},
		{200, fields("Left", "3", "Used", "5"),
			gives(policy.Success, 0, policy.Quota{Limit: 8, Remaining: 3})},
		{420, nil, gives(policy.Throttled, 0)},
		{420, fields("X-Credits-After", "4"), gives(policy.Throttled, 4*time.Second)},
		{401, nil, gives(policy.Success, 0)},
		{401, fields("Retry-After", "0"), gives(policy.Throttled, 0)},
		{401, fields("Left", "0"), gives(policy.Throttled, 0)},
		{401, fields("Left", "1"), gives(policy.Success, 0)},
		{529, fields("Retry-After", "1"), gives(policy.Unavailable, time.Second)},
		{530, nil, gives(policy.Unavailable, 0)},
		{503, nil, gives(policy.Unavailable, 0)},
		{429, nil, gives(policy.Throttled, 0)},
	} {
		feedback(t, p, tt.status, tt.h, tt.want, 0)
	}
	if p.Quotas[0].Limit != "x-credits" {
		t.Errorf("the profile was changed: %+v", p.Quotas[0])
	}
}

// A list by the draft is parsed up to 4 KiB and 16 members; a plain field up to 256 bytes.
func TestLongFields(t *testing.T) {
	p := &Profile{Quotas: []Fields{family("X")}}
	pad := func(value string, n int) string { return value + strings.Repeat(" ", n-len(value)) }
	quota := func(limit float64) policy.Feedback {
		return gives(policy.Success, 0, policy.Quota{Limit: limit, Remaining: 5})
	}
	policies := `"a";q=10, ` + strings.Repeat(`"b", `, 14) + `"c";q=20, "d";q=30`
	// with what joins lines: 4,093
	long := `"` + strings.Repeat("x", 4091-len(`"";q=1, "a";q=10`)) + `";q=1, "a";q=10`
	for _, tt := range []struct {
		name    string
		h       http.Header
		want    policy.Feedback
		garbage int
	}{
		{"plain", fields("X-Limit", pad("10,", 256), "X-Remaining", "5"), quota(10), 0},
		{"plain too long", fields("X-Limit", pad("10,", 257), "X-Remaining", "5"),
			gives(policy.Success, 0), 1},
		{"digits", fields("X-Limit", strings.Repeat("9", 256), "X-Remaining", "5"), quota(maxAmount), 0},
		{"list", fields("RateLimit", `"a";r=5`, "RateLimit-Policy", long+"   "), quota(10), 0},
		{"policy too long", fields("RateLimit", `"a";r=5`, "RateLimit-Policy", long+"    "),
			gives(policy.Success, 0), 1},
		{"list too long", fields("RateLimit", pad(`"a";r=5`, 4095), "RateLimit-Policy", `"a";q=10`),
			gives(policy.Success, 0), 1},
		{"lines too long", fields("RateLimit", `"a";r=5`, "RateLimit", pad("b", 4086), "RateLimit-Policy",
			`"a";q=10`), gives(policy.Success, 0), 1},
		{"16th policy", fields("RateLimit", `"c";r=5`, "RateLimit-Policy", policies), quota(20), 0},
		{"17th policy", fields("RateLimit", `"d";r=5`, "RateLimit-Policy", policies),
			gives(policy.Success, 0), 0},
		{"16th member", fields("RateLimit", strings.Repeat(`"b", `, 15)+`"a";r=5`, "RateLimit-Policy",
			policies), quota(10), 0},
		{"17th member", fields("RateLimit", strings.Repeat(`"b", `, 16)+`"a";r=5`, "RateLimit-Policy",
			policies), gives(policy.Success, 0), 0},
	} {
		t.Run(tt.name, func(t *testing.T) { feedback(t, p, 200, tt.h, tt.want, tt.garbage) })
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

// A zero now is the present.
func TestFeedbackReadsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().Add(90 * time.Second)
		for _, h := range []http.Header{
			fields("X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset",
				at.Format(time.RFC3339)),
			fields("X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset",
				at.Format(time.RFC3339), "Retry-After", at.UTC().Format(http.TimeFormat)),
		} {
			want := gives(policy.Throttled, 90*time.Second, policy.Quota{Limit: 10, Reset: 90 * time.Second})
			if got, _ := anyUpstream.Feedback(429, h, time.Time{}); got != want {
				t.Errorf("%v: %+v, want %+v", h, got, want)
			}
		}
	})
}

func TestProfileIsSafeForManyGoroutines(t *testing.T) {
	p := &Profile{Quotas: []Fields{family("x-any")}}
	want := gives(policy.Success, 0, policy.Quota{Limit: 10, Remaining: 5})
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			feedback(t, p, 200, fields("X-Any-Limit", "10", "X-Any-Remaining", "5"), want, 0)
		})
	}
	readers.Wait()
}

func TestFeedbackDoesNotAllocate(t *testing.T) {
	usual := usualHeader()
	for host, h := range map[string]http.Header{
		"example.com":       usual,
		"api.github.com":    usual,
		"api.openai.com":    usual,
		"api.anthropic.com": usual,
		"slack.com":         usual,
		"x.github.com": fields("Date", usual.Get("Date"), "X-RateLimit-Limit", "10",
			"X-RateLimit-Remaining", "5", "X-RateLimit-Reset", "1795276830"),
		"eu.openai.com": fields("X-RateLimit-Limit-Tokens", "10", "X-RateLimit-Remaining-Tokens", "5",
			"X-RateLimit-Reset-Tokens", "6m0s"),
		"eu.anthropic.com": fields("Anthropic-RateLimit-Tokens-Limit", "10",
			"Anthropic-RateLimit-Tokens-Remaining", "5", "Anthropic-RateLimit-Tokens-Reset",
			"2026-11-21T16:00:30Z"),
		"unknown.example.com": fields("X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "5",
			"X-RateLimit-Reset", "30"),
	} {
		if n := testing.AllocsPerRun(100, func() { ProfileFor(host).Feedback(200, h, time.Time{}) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", host, n)
		}
	}
}

func TestTransportReportsQuotas(t *testing.T) {
	quota := policy.Quota{Limit: 60, Remaining: 12, Reset: 30 * time.Second}
	mine := &Profile{Throttled: []int{499}, Quotas: []Fields{family("mine")}}
	hosts := map[string]*Profile{"mine.example": mine, "git.example:8080": ProfileFor("github.com")}
	for _, tt := range []struct {
		url    string
		status int
		fields []string
		want   policy.Feedback
	}{
		{"http://h/", 200, []string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "12",
			"X-RateLimit-Reset", "30"}, gives(policy.Success, 0, quota)},
		{"http://h/", 429, []string{"RateLimit-Policy", `"m";q=60;w=60`, "RateLimit", `"m";r=12;t=30`},
			gives(policy.Throttled, 0, quota)},
		{"http://h/", 403, []string{"Retry-After", "9"}, gives(policy.Success, 0)},
		{"http://API.GitHub.com/", 403, []string{"Retry-After", "9"}, gives(policy.Throttled, 9*time.Second)},
		{"http://git.example:8080/", 403, []string{"Retry-After", "9"},
			gives(policy.Throttled, 9*time.Second)},
		{"http://git.example/", 403, []string{"Retry-After", "9"}, gives(policy.Success, 0)},
		{"http://MINE.example:80/", 200,
			[]string{"Mine-Limit", "60", "Mine-Remaining", "12", "Mine-Reset", "30"},
			gives(policy.Success, 0, quota)},
		{"http://mine.example/", 499, nil, gives(policy.Throttled, 0)},
		{"http://mine.example/", 200, []string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "12"},
			gives(policy.Success, 0)},
		{"http://api.anthropic.com/", 529, nil, gives(policy.Unavailable, 0)},
	} {
		l, heard := learning(t)
		tr := &Transport{Base: answers(tt.status, http.NoBody, tt.fields...), Limiter: l}
		tr.Profile = func(host string) *Profile { return hosts[host] }
		roundTrip(t, tr, request(t, tt.url, nil))
		heard.learned(t, tt.want)
		if n := tr.Garbage(); n != 0 {
			t.Errorf("%s: garbage %d, want 0", tt.url, n)
		}
	}
}

func TestTransportCountsGarbage(t *testing.T) {
	l, _ := learning(t)
	tr := &Transport{Base: answers(429, http.NoBody, "Retry-After", "soon", "X-RateLimit-Limit", "ten",
		"X-RateLimit-Remaining", "5"), Limiter: l}
	for i := range 3 {
		if n := tr.Garbage(); n != uint64(2*i) {
			t.Errorf("after %d answers: garbage %d, want %d", i, n, 2*i)
		}
		trip(t, tr)
	}
	fixed := &Transport{Base: tr.Base, Limiter: limiter(t, oneSlot)}
	fixed.Profile = func(string) *Profile {
		t.Error("a profile for a policy that does not learn")
		return nil
	}
	trip(t, fixed)
	if n := fixed.Garbage(); n != 0 {
		t.Errorf("garbage %d for a policy that does not learn, want 0", n)
	}
}

// A panic of the profile function gives the permit back.
func TestProfileThatPanics(t *testing.T) {
	l, _ := learning(t)
	tr := &Transport{Base: answers(200, http.NoBody), Limiter: l,
		Profile: func(string) *Profile { panic("mine") }}
	func() {
		defer func() { _ = recover() }()
		trip(t, tr)
	}()
	idle(t, l)
}

func TestHandlersQuotasAreFeedback(t *testing.T) {
	var garbage atomic.Uint64
	l, heard := learning(t)
	quota := policy.Quota{Limit: 60, Reset: 30 * time.Second}
	for i, tt := range []struct {
		status int
		want   policy.Feedback
	}{
		{200, gives(policy.Success, 0, quota)},
		{429, gives(policy.Throttled, 30*time.Second, quota)},
		{503, gives(policy.Unavailable, 0, quota)},
	} {
		h := Middleware(l, Path(),
			CountGarbage(&garbage))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("RateLimit-Policy", `"m";q=60;w=60`)
			w.Header().Set("RateLimit", `"m";r=0;t=30`)
			w.Header().Set("X-RateLimit-Remaining", "none")
			w.WriteHeader(tt.status)
		}))
		ask(h, get(t, "/"))
		heard.learned(t, tt.want)
		if n := garbage.Load(); n != uint64(i+1) {
			t.Errorf("%d: garbage %d, want %d", tt.status, n, i+1)
		}
	}
}

func TestProfileFor(t *testing.T) {
	for host, want := range map[string]*Profile{
		"github.com": github, "api.github.com": github, "API.GITHUB.COM": github,
		"api.github.com:443": github, "api.github.com:8443": github,
		"api.github.com.": github, "acme.ghe.com": github, "gitlab.com": gitlab, "discord.com": discord,
		"discordapp.com":   discord,
		"oauth.reddit.com": reddit, "api.openai.com": openAI, "acme.openai.azure.com": openAI,
		"api.anthropic.com": anthropic,
		"api.atlassian.com": atlassian, "acme.atlassian.net": atlassian, "api.bitbucket.org": atlassian,
		"acme.myshopify.com": shopify, "slack.com": retryAfterAlone, "api.stripe.com": retryAfterAlone,
		"": anyUpstream, "example.com": anyUpstream, "notgithub.com": anyUpstream,
		"github.com.example.com": anyUpstream, "com": anyUpstream,
		".github.com": github, "[::1]:443": anyUpstream, "127.0.0.1": anyUpstream, "azure.com": anyUpstream,
		"github.community": anyUpstream,
	} {
		if got := ProfileFor(host); got != want {
			t.Errorf("%q: %+v, want %+v", host, got.Quotas, want.Quotas)
		}
	}
}
