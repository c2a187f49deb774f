package httplimit

import (
	"maps"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
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

// deaf is a policy that gets every sample and keeps nothing.
type deaf struct{}

func (d deaf) New(uint64) policy.Controller                    { return d }
func (deaf) Next(_ policy.Sample, b policy.Bounds) policy.Pace { return policy.Pace{Rate: b.Ceiling} }

// targets are requests for 1,000 different paths.
func targets(b *testing.B) []*http.Request {
	out := make([]*http.Request, 1000)
	distinct := map[string]bool{}
	for i := range out {
		out[i] = get(b, "/items/"+strconv.Itoa(i))
		distinct[Path()(out[i])] = true
	}
	if len(distinct) != len(out) {
		b.Fatalf("%d distinct keys, want %d", len(distinct), len(out))
	}
	return out
}

func BenchmarkMiddleware(b *testing.B) {
	rate, inFlight := quotient.Limit{Rates: plenty.Rates}, quotient.Limit{InFlight: 1 << 20}
	hour := quotient.Rate{Name: "hour", Events: 1e12, Per: time.Hour, Burst: 1 << 30}
	twoRates := quotient.Limit{Rates: append([]quotient.Rate{hour}, plenty.Rates...)}
	urgent := PriorityBy(func(*http.Request) quotient.Priority { return quotient.PriorityHigh })
	paid := PlanBy(func(*http.Request) string { return "paid" })
	plans := quotient.Plans(map[string]quotient.Limit{"paid": rate})
	slots := func() Option { return Also(limiter(b, inFlight), Constant("route")) }
	draft, x := SendFields(FieldsDraft11), SendFields(FieldsXRateLimit)
	for _, bb := range []struct {
		name string
		l    *quotient.Limiter // nil: no Middleware
		opts []Option
	}{
		{"none", nil, nil}, {"rate", limiter(b, rate), nil},
		{"rate,wait=1m", limiter(b, rate), []Option{Wait(time.Minute)}},
		{"rate,wait=forever", limiter(b, rate), []Option{Wait(Forever)}},
		{"slots", limiter(b, inFlight), nil}, {"rate+slots", limiter(b, plenty), nil},
		{"rate,priority", limiter(b, rate), []Option{urgent}}, {"rate,plan", limiter(b, rate, plans), []Option{paid}},
		{"rate,also=slots", limiter(b, rate), []Option{slots()}},
		{"rate,also=slots,fields=draft-11", limiter(b, rate), []Option{slots(), draft}},
		{"rate,fields=draft-11", limiter(b, rate), []Option{draft}},
		{"rate,fields=x-ratelimit", limiter(b, rate), []Option{x}},
		{"rate+slots,fields=draft-11", limiter(b, plenty), []Option{draft}},
		{"rate+rate,fields=draft-11", limiter(b, twoRates), []Option{draft}},
		{"feedback", limiter(b, plenty, quotient.Policy(deaf{})), nil},
	} {
		b.Run(bb.name, func(b *testing.B) {
			h, requests := http.Handler(nothing), targets(b)
			if bb.l != nil {
				h = handle(bb.l, nothing, bb.opts...)
			}
			var w http.ResponseWriter = noWriter{http.Header{}}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				clear(w.Header())
				h.ServeHTTP(w, requests[i%len(requests)])
				i++
			}
		})
	}
}

func BenchmarkTransport(b *testing.B) {
	bare, req := newNoBase(), request(b, "http://example.com/", nil)
	for _, bb := range []struct {
		name string
		rt   http.RoundTripper
	}{
		{"none", bare},
		{"rate+slots", &Transport{Base: bare, Limiter: limiter(b, plenty)}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				roundTrip(b, bb.rt, req)
			}
		})
	}
}

// usual is the answers that policies learn from, among the fields of a usual one. The first eight allocate nothing.
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
	{"list", "example.com", 200, fields("RateLimit-Policy", `"minute";q=100;w=60`, "RateLimit", `"minute";r=50;t=30`)},
	{"dictionary", "example.com", 200, fields("RateLimit", "limit=100, remaining=50, reset=5")},
	{"refusal", "example.com", 429, fields("Retry-After", "30")},
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
	for _, tt := range usual[:8] {
		h := amongUsual(tt.fields)
		read := func() { ProfileFor(tt.host).Feedback(tt.status, h, time.Time{}) }
		if n := testing.AllocsPerRun(100, read); n != 0 {
			t.Errorf("%s: %v allocations, want 0", tt.name, n)
		}
	}
}

// BenchmarkFeedback is what an answer costs that a policy learns from.
func BenchmarkFeedback(b *testing.B) {
	for _, bb := range usual {
		b.Run(bb.name, func(b *testing.B) {
			h := amongUsual(bb.fields)
			b.ReportAllocs()
			for b.Loop() {
				profileOf(bb.host).Feedback(bb.status, h, time.Time{})
			}
		})
	}
}
