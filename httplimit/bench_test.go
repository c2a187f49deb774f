package httplimit

import (
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

// A text that was sent lately is found again; one that is new allocates as much as always.
func TestFieldsAllocateTwice(t *testing.T) {
	// each answer is another one
	used := rates(quotient.Rate{Name: "hour", Events: 1e9, Per: time.Hour, Burst: 1e9})
	for _, set := range []FieldSet{FieldsDraft11, FieldsXRateLimit} {
		for most, limit := range map[float64]quotient.Limit{0: plenty, 2: used} {
			l := limiter(t, limit)
			h := Middleware(l, Path(), SendFields(set))(nothing)
			r := get(t, "/items/42")
			var w http.ResponseWriter = noWriter{http.Header{}}
			if n := testing.AllocsPerRun(1000, func() { clear(w.Header()); h.ServeHTTP(w, r) }); n > most {
				t.Errorf("set %d: %v allocations a request, want at most %v", set, n, most)
			}
			idle(t, l)
		}
	}
}

// usual is the answers that policies learn from, among the fields of a usual one
var usual = []struct {
	name, host string
	status     int
	fields     http.Header
}{
	{"nothing/any", "example.com", 200, nil},
	{"nothing/github", "api.github.com", 200, nil},
	{"nothing/openai", "api.openai.com", 200, nil},
	{"nothing/slack", "slack.com", 200, nil},
	{"epoch", "api.github.com", 200, fields("X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "4999",
		"X-RateLimit-Reset", "1795276830")},
	{"durations", "api.openai.com", 200, fields(
		"X-RateLimit-Limit-Requests", "60", "X-RateLimit-Remaining-Requests", "59",
		"X-RateLimit-Reset-Requests", "1s", "X-RateLimit-Limit-Tokens", "60000",
		"X-RateLimit-Remaining-Tokens", "59000", "X-RateLimit-Reset-Tokens", "6m0s")},
	{"instants", "api.anthropic.com", 200, fields("Anthropic-RateLimit-Tokens-Limit", "10",
		"Anthropic-RateLimit-Tokens-Remaining", "5", "Anthropic-RateLimit-Tokens-Reset", "2026-11-21T16:00:30Z")},
	{"any", "example.com", 200, fields("X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "50",
		"X-RateLimit-Reset", "30")},
}

// amongUsual is fields among those of an answer without a word about limits.
func amongUsual(h http.Header) http.Header {
	all := fields(
		"Date", "Sat, 21 Nov 2026 16:00:00 GMT", "Content-Type", "application/json; charset=utf-8",
		"Content-Length", "1234", "Connection", "keep-alive", "Cache-Control", "private, max-age=0", "Etag", `"abc"`,
		"Vary", "Accept", "Server", "nginx", "X-Request-Id", "0123456789abcdef", "X-Frame-Options", "DENY",
		"X-Content-Type-Options", "nosniff", "Strict-Transport-Security", "max-age=31536000",
		"Content-Security-Policy", "default-src 'none'", "Referrer-Policy", "no-referrer",
		"Access-Control-Allow-Origin", "*", "Via", "1.1 proxy",
	)
	maps.Copy(all, h)
	return all
}

func TestFeedbackDoesNotAllocate(t *testing.T) {
	for _, tt := range usual {
		resp := &http.Response{StatusCode: tt.status, Header: amongUsual(tt.fields)}
		read := func() { ProfileFor(tt.host).FeedbackOf(resp) }
		tested.Want(t, tt.name+": allocations", testing.AllocsPerRun(100, read), 0)
	}
}
