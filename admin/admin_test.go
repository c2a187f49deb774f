package admin

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

var must = tested.Must

// newLimiter is a limiter of 100 a second that believes it is alone.
func newLimiter(t testing.TB, opts ...quotient.Option) *quotient.Limiter {
	t.Helper()
	rate := quotient.PerSecond(100)
	rate.Burst = 10
	l, err := quotient.New(quotient.Rates(rate), opts...)
	must(t, err)
	return l
}

// mount is the handler of l under the name "api".
func mount(t testing.TB, l *quotient.Limiter, opts ...Option) http.Handler {
	t.Helper()
	var reg quotient.Registry
	must(t, reg.Add("api", l))
	h, err := New(&reg, opts...)
	must(t, err)
	return h
}

// quiet is mount with a log that is not read.
func quiet(t testing.TB, l *quotient.Limiter, opts ...Option) http.Handler {
	t.Helper()
	return mount(t, l, append(opts, Logger(slog.New(slog.DiscardHandler)))...)
}

// request is one request to the handler; "" is: loopback, JSON.
type request struct {
	method, path, host, contentType, body string
	header                                http.Header
}

// none as a content type is a request without one.
const none = "none"

// with is the request with one more header field, and as with a token.
func (r request) with(name, value string) request {
	if r.header = r.header.Clone(); r.header == nil {
		r.header = make(http.Header)
	}
	r.header[name] = []string{value}
	return r
}

// headed is the request with these header fields.
func (r request) headed(header http.Header) request { r.header = header; return r }

// send sends the request, and holds the answer to the document.
func (r request) send(t testing.TB, h http.Handler) *httptest.ResponseRecorder {
	t.Helper()
	req := overLoopback(httptest.NewRequest(r.method, r.path, strings.NewReader(r.body)))
	if r.host != "" {
		req.Host = r.host
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	if r.contentType == "" {
		r.contentType = "application/json"
	}
	if r.contentType != none {
		req.Header.Set("Content-Type", r.contentType)
	}
	return served(t, h, req)
}

// served is the answer to a request, which keeps to the document.
func served(t testing.TB, h http.Handler, req *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	path, rec := req.URL.Path, httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	documented(t, path, req.Method, rec)
	return rec
}

// overLoopback makes a request look as if it had come in over the loopback interface.
func overLoopback(req *http.Request) *http.Request {
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9090}
	req.RemoteAddr, req.Host = "127.0.0.1:50000", at.String()
	return req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey, net.Addr(at)))
}

func get(path string) request { return request{method: "GET", path: path, contentType: none} }

func putting(path, body string) request { return request{method: "PUT", path: path, body: body} }

func putReplicas(body string) request { return putting("/replicas", body) }

// decode reads an answer strictly into a value of type T.
func decode[T any](t testing.TB, rec *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	dec := json.NewDecoder(rec.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("answer is not a %T: %v", v, err)
	}
	return v
}

func TestRefusals(t *testing.T) {
	const whole = "a whole number from 1 to 1000000"
	long := `"` + strings.Repeat("x", 1000)
	typed := func(contentType string) request {
		return request{method: "PUT", path: "/replicas", contentType: contentType, body: `{"replicas":4}`}
	}
	limit := func(body string) request { return putting("/limit", body) }
	tests := []struct {
		name   string
		req    request
		status int
		want   Problem // Detail is not compared
	}{
		{"long", putReplicas(long), 400, Problem{Field: "body", Value: long[:maxValue] + "…"}},
		{"unknown", putReplicas(`{"replicas":4,"shards":2}`), 400,
			Problem{Field: "shards", Value: "2", Range: "replicas, weight, ordinal, ttl_seconds"}},
		{"twice", putReplicas(`{"replicas":4,"replicas":5}`), 400, Problem{Field: "replicas", Range: "once"}},
		{"missing", putReplicas(`{}`), 400, Problem{Field: "replicas", Range: whole}},
		{"zero", putReplicas(`{"replicas":0}`), 400, Problem{Field: "replicas", Value: "0", Range: whole}},
		{"ordinal", putReplicas(`{"replicas":4,"ordinal":5}`), 400,
			Problem{Field: "ordinal", Value: "5", Range: "a whole number from 0 to 4"}},
		{"burst", limit(`{"rates":[{"events":1,"per_seconds":1,"burst":0.5}]}`), 400,
			Problem{Field: "rates[0].burst", Range: ranges["burst"]}},
		{"counted", limit(`{"rates":[{"events":1,"per_seconds":1,"counted":true}]}`), 400,
			Problem{Field: "rates[0].counted", Range: ranges["counted"]}},
		{"form", typed("application/x-www-form-urlencoded"), 415,
			Problem{Field: "Content-Type", Value: "application/x-www-form-urlencoded", Range: "application/json"}},
		{"bad type", typed(";"), 415, Problem{Field: "Content-Type", Value: ";"}},
		{"no type", typed(none), 415, Problem{Field: "Content-Type"}},
		{"too large", putReplicas(`{"replicas":4}` + strings.Repeat(" ", maxBody)), 413,
			Problem{Field: "body", Range: "at most 65536 bytes"}},
		{"POST", request{method: "POST", path: "/replicas", body: `{"replicas":4}`}, 405,
			Problem{Field: "method", Value: "POST", Range: "PUT"}},
		{"PUT state", request{method: "PUT", path: "/state"}, 405,
			Problem{Field: "method", Value: "PUT", Range: "GET, HEAD"}},
		{"other path", get("/other"), 404, Problem{Field: "path", Value: "/other"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLimiter(t, quotient.StartPool(quotient.Pool{Replicas: 3, Ordinal: 1}))
			rec := tt.req.send(t, quiet(t, l))
			got := decode[Problem](t, rec)
			if rec.Code != tt.status || got.Status != tt.status {
				t.Errorf("status %d, in the body %d, want %d", rec.Code, got.Status, tt.status)
			}
			if got.Field != tt.want.Field || tt.want.Value != "" && got.Value != tt.want.Value ||
				tt.want.Range != "" && got.Range != tt.want.Range {
				t.Errorf("problem %+v, want %+v", got, tt.want)
			}
			if got.Detail == "" || got.Title != http.StatusText(tt.status) {
				t.Errorf("detail %q, title %q", got.Detail, got.Title)
			}
			tested.Want(t, "Content-Type", rec.Header().Get("Content-Type"), "application/problem+json")
			if wantAllow := tt.status == 405; wantAllow && rec.Header().Get("Allow") != tt.want.Range {
				t.Errorf("Allow %q, want %q", rec.Header().Get("Allow"), tt.want.Range)
			}
			if p := l.Stats().Pool.Pool; p.Replicas != 3 || p.Ordinal != 1 {
				t.Errorf("a refused change changed the pool to %+v", p)
			}
		})
	}
}

// TestHosts: those that are served. TestAttackHostsAndOrigins has those that are refused.
func TestHosts(t *testing.T) {
	h := quiet(t, newLimiter(t), AllowHosts("ops.example", "10.0.0.7"))
	for _, host := range []string{
		"localhost", "localhost:9090", "LocalHost.:9090", "127.0.0.1", "127.9.9.9:1", "[::1]:9090", "[::1]", "ops.example",
		"OPS.example:8443", "10.0.0.7", "localhost:",
	} {
		if rec := (request{method: "GET", path: "/state", host: host}).send(t, h); rec.Code != 200 {
			t.Errorf("Host %q: status %d", host, rec.Code)
		}
	}
}

// Also under a prefix no other spelling of a path is redirected.
func TestOtherSpellingsAreNotFound(t *testing.T) {
	h := http.StripPrefix("/admin", quiet(t, newLimiter(t)))
	for _, path := range []string{"/admin", "/admin//", "/admin//state", "/admin/./state",
		"/admin/x/../state", "/admin/state/"} {
		rec := get(path).send(t, h)
		if got := decode[Problem](t, rec); rec.Code != 404 || got.Field != "path" ||
			rec.Header().Get("Location") != "" {
			t.Errorf("%s: status %d, %+v, Location %q", path, rec.Code, got, rec.Header().Get("Location"))
		}
	}
	tested.Want(t, "/admin/state: status", get("/admin/state").send(t, h).Code, 200)
}

// TestHostIsTheAddressItCameTo checks that a request may name the address of this machine that it came to:
// Prometheus asks a pod by its address. It needs credentials then: without, only loopback is served.
func TestHostIsTheAddressItCameTo(t *testing.T) {
	l := newLimiter(t)
	for _, tt := range []struct {
		host, at string
		opts     []Option
		want     int
	}{
		{"10.1.2.3:4041", "10.1.2.3:4041", []Option{Token(secret)}, 200},
		{"10.1.2.3", "10.1.2.3:4041", []Option{Token(secret)}, 200},
		{"10.1.2.3:80", "10.1.2.3:4041", []Option{Token(secret)}, 200}, // a port that is forwarded
		{"[2001:db8::7]:4041", "[2001:db8::7]:4041", []Option{Token(secret)}, 200},
		{"10.1.2.3:4041", "[::ffff:10.1.2.3]:4041", []Option{Token(secret)}, 200},
		{"10.1.2.4:4041", "10.1.2.3:4041", []Option{Token(secret)}, 403},
		{"rebound.example:4041", "10.1.2.3:4041", []Option{Token(secret)}, 403},
		{"10.1.2.3.evil.example", "10.1.2.3:4041", []Option{Token(secret)}, 403},
		{"", "10.1.2.3:4041", []Option{Token(secret)}, 403},
		{"10.1.2.3:4041", "", []Option{Token(secret)}, 403},
		{"10.1.2.3:4041", "10.1.2.3:4041", nil, 403},
		{"10.1.2.3:4041", "10.1.2.3:4041", []Option{BehindAuthentication()}, 403}, // as before
	} {
		req := overLoopback(httptest.NewRequest("GET", "/state", nil))
		req.Host = tt.host
		req.Header.Set("Authorization", "Bearer "+secret)
		if tt.at == "" {
			tt.at = "127.0.0.1:4041"
		}
		at, err := net.ResolveTCPAddr("tcp", tt.at)
		must(t, err)
		req = req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey, net.Addr(at)))
		if rec := served(t, quiet(t, l, tt.opts...), req); rec.Code != tt.want {
			t.Errorf("Host %q of a connection to %s: status %d, want %d", tt.host, tt.at, rec.Code, tt.want)
		}
	}
}
