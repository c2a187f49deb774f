package httplimit

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

// plenty is a limit with a rate and slots that no benchmark reaches.
var plenty = quotient.Limit{Rates: []quotient.Rate{{Events: 1e12, Per: 1e9, Burst: 1 << 30}},
	InFlight: 1 << 20}

// noWriter is an http.ResponseWriter that does nothing.
type noWriter struct{ header http.Header }

func (w noWriter) Header() http.Header         { return w.header }
func (w noWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w noWriter) WriteHeader(int)             {}

var nothing = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// noBase is a base that answers with the same response and a body.
type noBase struct{ body http.Response }

func (b *noBase) RoundTrip(*http.Request) (*http.Response, error) {
	resp := b.body
	return &resp, nil
}

func newNoBase() *noBase {
	return &noBase{http.Response{StatusCode: 200, Header: http.Header{}, Body: newBody("")}}
}

// roundTrip sends a request and closes the body of the answer.
func roundTrip(t testing.TB, rt http.RoundTripper, req *http.Request) {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

func TestMiddlewareDoesNotAllocate(t *testing.T) {
	keys := map[string]KeyFunc{
		"path":     Path(),
		"address":  ClientAddr(),
		"header":   Header("Token"),
		"host":     Host(),
		"constant": Constant("k"),
	}
	get, post := get(t, "/items/42"), post(t, newBody("text"))
	get.RemoteAddr, post.RemoteAddr = "203.0.113.7:5678", "203.0.113.7:5678"
	for name, key := range keys {
		for _, opts := range [][]Option{nil, {Wait(time.Minute)}, {Wait(Forever)}} {
			l := limiter(t, plenty)
			h := Middleware(l, key, opts...)(nothing)
			var w http.ResponseWriter = noWriter{}
			for _, r := range []*http.Request{get, post} {
				if n := testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }); n != 0 {
					t.Errorf("%s, %s: %v allocations a request, want 0", name, r.Method, n)
				}
			}
			idle(t, l)
		}
	}
}

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

func TestTransportAllocatesLittle(t *testing.T) {
	l, bare, req := limiter(t, plenty), newNoBase(), request(t, "http://h/", nil)
	tr := &Transport{Base: bare, Limiter: l}
	without := testing.AllocsPerRun(1000, func() { roundTrip(t, bare, req) })
	with := testing.AllocsPerRun(1000, func() { roundTrip(t, tr, req) })
	if with-without > 4 {
		t.Errorf("%v allocations a request over the %v of the base, want at most 4", with-without, without)
	}
	idle(t, l)
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
	rate := quotient.Limit{Rates: plenty.Rates}
	both := quotient.Limit{
		Rates: append([]quotient.Rate{{Name: "hour", Events: 1e12, Per: time.Hour, Burst: 1 << 30}},
			plenty.Rates...)}
	learner := limiter(b, plenty, quotient.Policy(deaf{}))
	urgent := func(*http.Request) quotient.Priority { return quotient.PriorityHigh }
	paid := PlanBy(func(*http.Request) string { return "paid" })
	plans := quotient.Plans(map[string]quotient.Limit{"paid": rate})
	slots := quotient.Limit{InFlight: 1 << 20}
	for _, bb := range []struct {
		name string
		h    http.Handler
	}{
		{"none", nothing},
		{"rate", Middleware(limiter(b, rate), Path())(nothing)},
		{"rate,wait=1m", Middleware(limiter(b, rate), Path(), Wait(time.Minute))(nothing)},
		{"rate,wait=forever", Middleware(limiter(b, rate), Path(), Wait(Forever))(nothing)},
		{"slots", Middleware(limiter(b, slots), Path())(nothing)},
		{"rate+slots", Middleware(limiter(b, plenty), Path())(nothing)},
		{"rate,priority", Middleware(limiter(b, rate), Path(), PriorityBy(urgent))(nothing)},
		{"rate,plan", Middleware(limiter(b, rate, plans), Path(), paid)(nothing)},
		{"rate,also=slots",
			Middleware(limiter(b, rate), Path(), Also(limiter(b, slots), Constant("route")))(nothing)},
		{"rate,also=slots,fields=draft-11",
			Middleware(limiter(b, rate), Path(), Also(limiter(b, slots), Constant("route")),
				SendFields(FieldsDraft11))(nothing)},
		{"rate,fields=draft-11", Middleware(limiter(b, rate), Path(), SendFields(FieldsDraft11))(nothing)},
		{"rate,fields=x-ratelimit",
			Middleware(limiter(b, rate), Path(), SendFields(FieldsXRateLimit))(nothing)},
		{"rate+slots,fields=draft-11",
			Middleware(limiter(b, plenty), Path(), SendFields(FieldsDraft11))(nothing)},
		{"rate+rate,fields=draft-11",
			Middleware(limiter(b, both), Path(), SendFields(FieldsDraft11))(nothing)},
		{"feedback", Middleware(learner, Path())(nothing)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			requests := targets(b)
			var w http.ResponseWriter = noWriter{http.Header{}}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				clear(w.Header())
				bb.h.ServeHTTP(w, requests[i%len(requests)])
				i++
			}
		})
	}
}

// BenchmarkFieldsBesideNone takes turns with and without fields, so that a busy machine slows both, and each
// answer has a header of its own, as in net/http. It reports how many times the one costs the other.
func BenchmarkFieldsBesideNone(b *testing.B) {
	slots := quotient.Limit{Rates: plenty.Rates, InFlight: 1 << 20}
	for _, limit := range []quotient.Limit{{Rates: plenty.Rates}, slots} {
		for set, name := range map[FieldSet]string{
			FieldsDraft11:    "draft-11",
			FieldsXRateLimit: "x-ratelimit",
		} {
			b.Run(name+"/"+strconv.Itoa(limit.InFlight), func(b *testing.B) {
				requests := targets(b)
				least := [2]time.Duration{time.Hour, time.Hour}
				pair := [2]http.Handler{
					Middleware(limiter(b, limit), Path())(nothing),
					Middleware(limiter(b, limit), Path(), SendFields(set))(nothing),
				}
				for b.Loop() {
					for i, h := range pair {
						start := time.Now()
						for _, r := range requests {
							h.ServeHTTP(noWriter{http.Header{}}, r)
						}
						least[i] = min(least[i], time.Since(start))
					}
				}
				b.ReportMetric(float64(least[0])/float64(len(requests)), "ns/without")
				b.ReportMetric(float64(least[1])/float64(len(requests)), "ns/with")
				b.ReportMetric(float64(least[1])/float64(least[0]), "times")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkFieldsOfManyLimits is the fields where keys have limits of their own.
func BenchmarkFieldsOfManyLimits(b *testing.B) {
	requests := targets(b)
	for _, limits := range []int{1, 16, maxRuleTexts, 2 * maxRuleTexts} {
		b.Run(strconv.Itoa(limits), func(b *testing.B) {
			l := limiter(b, plenty)
			for i, r := range requests[:limits] {
				own := quotient.Rates(quotient.Rate{Name: "minute", Events: 1e9 + float64(i),
					Per: time.Second})
				if err := l.Override(Path()(r), &own); err != nil {
					b.Fatal(err)
				}
			}
			h := Middleware(l, Path(), SendFields(FieldsDraft11))(nothing)
			var w http.ResponseWriter = noWriter{http.Header{}}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				clear(w.Header())
				h.ServeHTTP(w, requests[i%limits])
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

func BenchmarkPath(b *testing.B) {
	for _, target := range []string{"/items/42/parts/7", "/Items//42;x=1/./parts/7/"} {
		r := get(b, target)
		b.Run(target, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Path()(r)
			}
		})
	}
}

// usualHeader is what an answer has without a word about limits.
func usualHeader() http.Header {
	return fields(
		"Date", "Sat, 21 Nov 2026 16:00:00 GMT", "Content-Type", "application/json; charset=utf-8",
		"Content-Length", "1234",
		"Connection", "keep-alive", "Cache-Control", "private, max-age=0", "Etag", `"abc"`, "Vary", "Accept",
		"Server", "nginx",
		"X-Request-Id", "0123456789abcdef", "X-Frame-Options", "DENY", "X-Content-Type-Options", "nosniff",
		"Strict-Transport-Security", "max-age=31536000", "Content-Security-Policy", "default-src 'none'",
		"Referrer-Policy", "no-referrer",
		"Access-Control-Allow-Origin", "*", "Via", "1.1 proxy",
	)
}

// BenchmarkFeedback is what an answer costs that a policy learns from, among the fields of a usual one.
func BenchmarkFeedback(b *testing.B) {
	for _, bb := range []struct {
		name, host string
		status     int
		fields     []string
	}{
		{"nothing/any", "example.com", 200, nil},
		{"nothing/github", "api.github.com", 200, nil},
		{"nothing/openai", "api.openai.com", 200, nil},
		{"nothing/slack", "slack.com", 200, nil},
		{"epoch", "api.github.com", 200,
			[]string{"X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "4999", "X-RateLimit-Reset",
				"1795276830"}},
		{"durations", "api.openai.com", 200, []string{
			"X-RateLimit-Limit-Requests", "60", "X-RateLimit-Remaining-Requests", "59",
			"X-RateLimit-Reset-Requests", "1s",
			"X-RateLimit-Limit-Tokens", "60000", "X-RateLimit-Remaining-Tokens", "59000",
			"X-RateLimit-Reset-Tokens", "6m0s"}},
		{"any", "example.com", 200,
			[]string{"X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "50", "X-RateLimit-Reset", "30"}},
		{"list", "example.com", 200,
			[]string{"RateLimit-Policy", `"minute";q=100;w=60`, "RateLimit", `"minute";r=50;t=30`}},
		{"dictionary", "example.com", 200, []string{"RateLimit", "limit=100, remaining=50, reset=5"}},
		{"refusal", "example.com", 429, []string{"Retry-After", "30"}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			h := usualHeader()
			for name, values := range fields(bb.fields...) {
				h[name] = values
			}
			b.ReportAllocs()
			for b.Loop() {
				profileOf(bb.host).Feedback(bb.status, h, time.Time{})
			}
		})
	}
}
