package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
)

// newLimiter is a limiter of 100 a second that believes it is alone.
func newLimiter(t testing.TB, opts ...quotient.Option) *quotient.Limiter {
	t.Helper()
	rate := quotient.PerSecond(100)
	rate.Burst = 10
	l, err := quotient.New(quotient.Rates(rate), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// mount is the handler of l under the name "api".
func mount(t testing.TB, l *quotient.Limiter, opts ...Option) http.Handler {
	t.Helper()
	var reg quotient.Registry
	if err := reg.Add("api", l); err != nil {
		t.Fatal(err)
	}
	h, err := New(&reg, opts...)
	if err != nil {
		t.Fatal(err)
	}
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

func (r request) send(h http.Handler) *httptest.ResponseRecorder {
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
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return rec
}

// overLoopback makes a request look as if it had come in over the loopback interface.
func overLoopback(req *http.Request) *http.Request {
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9090}
	req.RemoteAddr, req.Host = "127.0.0.1:50000", at.String()
	return req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey, net.Addr(at)))
}

func putReplicas(body string) request { return request{method: "PUT", path: "/replicas", body: body} }

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

func TestPutReplicasCountsAtOnce(t *testing.T) {
	tests := []struct {
		body string
		want quotient.Pool
	}{
		{`{"replicas":4,"ordinal":2}`, quotient.Pool{Replicas: 4, Ordinal: 2}},
		{`{"ordinal":4,"replicas":4}`, quotient.Pool{Replicas: 4, Ordinal: 4}},
		{`{"replicas":4}`, quotient.Pool{Replicas: 4}},
		{`{"replicas":4,"ordinal":0}`, quotient.Pool{Replicas: 4}},
		{`{"replicas":4,"weight":1}`, quotient.Pool{Replicas: 4, Weight: 1}},
		{`{"ordinal":3,"weight":2,"replicas":4}`, quotient.Pool{Replicas: 4, Ordinal: 3, Weight: 2}},
		{" {\n\t\"replicas\" : 7 , \"ordinal\" : 1 }\r\n ", quotient.Pool{Replicas: 7, Ordinal: 1}},
		{`{"replicas":1}`, quotient.Pool{Replicas: 1}},
		{`{"replicas":1000000}`, quotient.Pool{Replicas: 1000000}},
	}
	for _, tt := range tests {
		l := newLimiter(t)
		rec := putReplicas(tt.body).send(quiet(t, l))
		if rec.Code != http.StatusOK {
			t.Errorf("%s: status %d, want 200: %s", tt.body, rec.Code, rec.Body)
			continue
		}
		if got := l.Stats().Pool.Pool; got != tt.want {
			t.Errorf("%s: pool is %+v, want %+v", tt.body, got, tt.want)
		}
		answer := decode[State](t, rec).Limiters["api"]
		if answer.Pool.Replicas != tt.want.Replicas || answer.Pool.Ordinal != tt.want.Ordinal ||
			answer.Pool.Weight != max(1, tt.want.Weight) {
			t.Errorf("%s: answered pool %+v, want %+v", tt.body, answer.Pool, tt.want)
		}
		want := 100 * float64(max(1, tt.want.Weight)) / float64(tt.want.Replicas)
		if !near(answer.Rules[0].Share, want) {
			t.Errorf("%s: answered share %v, want %v", tt.body, answer.Rules[0].Share, want)
		}
	}
}

func near(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }

func TestRefusals(t *testing.T) {
	long := strings.Repeat("x", 1000)
	tests := []struct {
		name   string
		req    request
		status int
		want   Problem // Detail is not compared
	}{
		{"empty", putReplicas(``), 400, Problem{Field: "body"}},
		{"no JSON", putReplicas(`replicas=4`), 400, Problem{Field: "body", Value: "replicas=4"}},
		{"null", putReplicas(`null`), 400, Problem{Field: "body", Value: "null"}},
		{"list", putReplicas(`[4]`), 400, Problem{Field: "body", Value: "[4]"}},
		{"number", putReplicas(`4`), 400, Problem{Field: "body", Value: "4"}},
		{"no end", putReplicas(`{"replicas":4`), 400, Problem{Field: "body", Value: `{"replicas":4`}},
		{"no value", putReplicas(`{"replicas":}`), 400, Problem{Field: "body", Value: `{"replicas":}`}},
		{"no colon", putReplicas(`{"replicas" 4}`), 400, Problem{Field: "body", Value: `{"replicas" 4}`}},
		{"comma", putReplicas(`{"replicas":4,}`), 400, Problem{Field: "body", Value: `{"replicas":4,}`}},
		{"trailing", putReplicas(`{"replicas":4} x`), 400, Problem{Field: "body", Value: `{"replicas":4} x`}},
		{"two", putReplicas(`{"replicas":4}{"replicas":5}`), 400,
			Problem{Field: "body", Value: `{"replicas":4}{"replicas":5}`}},
		{"name no string", putReplicas(`{4:4}`), 400, Problem{Field: "body", Value: `{4:4}`}},
		{"long", putReplicas(`"` + long), 400, Problem{Field: "body", Value: `"` + long[:maxValue-1] + "…"}},
		{"unknown", putReplicas(`{"replicas":4,"shards":2}`), 400,
			Problem{Field: "shards", Range: "replicas, weight, ordinal, ttl_seconds"}},
		{"other case", putReplicas(`{"Replicas":4}`), 400,
			Problem{Field: "Replicas", Range: "replicas, weight, ordinal, ttl_seconds"}},
		{"twice", putReplicas(`{"replicas":4,"replicas":5}`), 400, Problem{Field: "replicas", Range: "once"}},
		{"missing", putReplicas(`{"ordinal":1}`), 400,
			Problem{Field: "replicas", Range: "a whole number from 1 to 1000000"}},
		{"nothing", putReplicas(`{}`), 400,
			Problem{Field: "replicas", Range: "a whole number from 1 to 1000000"}},
		{"zero", putReplicas(`{"replicas":0}`), 400,
			Problem{Field: "replicas", Value: "0", Range: "a whole number from 1 to 1000000"}},
		{"negative", putReplicas(`{"replicas":-1}`), 400,
			Problem{Field: "replicas", Value: "-1", Range: "a whole number from 1 to 1000000"}},
		{"huge", putReplicas(`{"replicas":1000001}`), 400,
			Problem{Field: "replicas", Value: "1000001", Range: "a whole number from 1 to 1000000"}},
		{"beyond int", putReplicas(`{"replicas":9223372036854775808}`), 400,
			Problem{Field: "replicas", Value: "9223372036854775808",
				Range: "a whole number from 1 to 1000000"}},
		{"fraction", putReplicas(`{"replicas":4.5}`), 400,
			Problem{Field: "replicas", Value: "4.5", Range: "a whole number from 1 to 1000000"}},
		{"exponent", putReplicas(`{"replicas":4e0}`), 400,
			Problem{Field: "replicas", Value: "4e0", Range: "a whole number from 1 to 1000000"}},
		{"text", putReplicas(`{"replicas":"4"}`), 400,
			Problem{Field: "replicas", Value: `"4"`, Range: "a whole number from 1 to 1000000"}},
		{"null value", putReplicas(`{"replicas":null}`), 400,
			Problem{Field: "replicas", Value: "null", Range: "a whole number from 1 to 1000000"}},
		{"object", putReplicas(`{"replicas":{"a":1}}`), 400,
			Problem{Field: "replicas", Value: `{"a":1}`, Range: "a whole number from 1 to 1000000"}},
		{"ordinal high", putReplicas(`{"replicas":4,"ordinal":5}`), 400,
			Problem{Field: "ordinal", Value: "5", Range: "a whole number from 0 to 4"}},
		{"ordinal low", putReplicas(`{"replicas":4,"ordinal":-1}`), 400,
			Problem{Field: "ordinal", Value: "-1", Range: "a whole number from 0 to 4"}},
		{"ordinal null", putReplicas(`{"replicas":4,"ordinal":null}`), 400,
			Problem{Field: "ordinal", Value: "null", Range: "a whole number from 0 to 4"}},
		{"form", request{method: "PUT", path: "/replicas", contentType: "application/x-www-form-urlencoded",
			body: `{"replicas":4}`}, 415,
			Problem{Field: "Content-Type", Value: "application/x-www-form-urlencoded",
				Range: "application/json"}},
		{"simple type", request{method: "PUT", path: "/replicas", contentType: "text/plain",
			body: `{"replicas":4}`}, 415,
			Problem{Field: "Content-Type", Value: "text/plain", Range: "application/json"}},
		{"bad type", request{method: "PUT", path: "/replicas", contentType: ";", body: `{"replicas":4}`}, 415,
			Problem{Field: "Content-Type", Value: ";", Range: "application/json"}},
		{"no type", request{method: "PUT", path: "/replicas", contentType: none, body: `{"replicas":4}`}, 415,
			Problem{Field: "Content-Type", Range: "application/json"}},
		{"too large", putReplicas(`{"replicas":4}` + strings.Repeat(" ", maxBody)), 413,
			Problem{Field: "body", Range: "at most 65536 bytes"}},
		{"POST", request{method: "POST", path: "/replicas", body: `{"replicas":4}`}, 405,
			Problem{Field: "method", Value: "POST", Range: "PUT"}},
		{"GET replicas", request{method: "GET", path: "/replicas"}, 405,
			Problem{Field: "method", Value: "GET", Range: "PUT"}},
		{"PUT state", request{method: "PUT", path: "/state"}, 405,
			Problem{Field: "method", Value: "PUT", Range: "GET, HEAD"}},
		{"other path", request{method: "GET", path: "/other"}, 404, Problem{Field: "path", Value: "/other"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLimiter(t, quotient.StartPool(quotient.Pool{Replicas: 3, Ordinal: 1}))
			rec := tt.req.send(quiet(t, l))
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
			if ct := rec.Header().Get("Content-Type"); ct != "application/problem+json" {
				t.Errorf("Content-Type %q", ct)
			}
			if wantAllow := tt.status == 405; wantAllow && rec.Header().Get("Allow") != tt.want.Range {
				t.Errorf("Allow %q, want %q", rec.Header().Get("Allow"), tt.want.Range)
			}
			if p := l.Stats().Pool.Pool; p.Replicas != 3 || p.Ordinal != 1 {
				t.Errorf("a refused change changed the pool to %+v", p)
			}
		})
	}
}

func TestHosts(t *testing.T) {
	tests := []struct {
		host string
		want int
	}{
		{"localhost", 200},
		{"localhost:9090", 200},
		{"LocalHost.:9090", 200},
		{"127.0.0.1", 200},
		{"127.9.9.9:1", 200},
		{"[::1]:9090", 200},
		{"[::1]", 200},
		{"ops.example", 200},
		{"OPS.example:8443", 200},
		{"10.0.0.7", 200},
		{"evil.example", 403},
		{"localhost.evil.example", 403},
		{"127.0.0.1.evil.example:9090", 403},
		{"192.168.0.1:9090", 403},
		{"0.0.0.0:9090", 403},
		{"[fe80::1]:9090", 403},
		{":9090", 403},
		{"xlocalhost", 403},
	}
	l := newLimiter(t)
	h := quiet(t, l, AllowHosts("ops.example", "10.0.0.7"))
	for _, tt := range tests {
		rec := request{method: "GET", path: "/state", host: tt.host}.send(h)
		if rec.Code != tt.want {
			t.Errorf("Host %q: status %d, want %d", tt.host, rec.Code, tt.want)
		}
	}
	rec := (request{method: "GET", path: "/state", host: "ops.example"}).send(quiet(t, l))
	if rec.Code != 403 {
		t.Errorf("a host that no option names: status %d, want 403", rec.Code)
	}
}

func TestNoHost(t *testing.T) {
	req := overLoopback(httptest.NewRequest("GET", "/state", nil))
	req.Host = ""
	rec := httptest.NewRecorder()
	quiet(t, newLimiter(t), AllowHosts("ops.example")).ServeHTTP(rec, req)
	if rec.Code != http.StatusForbidden {
		t.Errorf("without Host: status %d, want 403", rec.Code)
	}
}

func TestCrossOriginWritesAreRefused(t *testing.T) {
	tests := []struct {
		header http.Header
		want   int
	}{
		{http.Header{}, 200},
		{http.Header{"Sec-Fetch-Site": {"same-origin"}}, 200},
		{http.Header{"Origin": {"http://127.0.0.1:9090"}}, 200},
		{http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403},
		{http.Header{"Sec-Fetch-Site": {"same-site"}}, 403},
		{http.Header{"Origin": {"http://evil.example"}}, 403},
		{http.Header{"Origin": {"null"}}, 403},
	}
	for _, tt := range tests {
		l := newLimiter(t)
		req := putReplicas(`{"replicas":4}`)
		req.header = tt.header
		rec := req.send(quiet(t, l))
		if rec.Code != tt.want {
			t.Errorf("%v: status %d, want %d", tt.header, rec.Code, tt.want)
		}
		if changed := l.Stats().Pool.Replicas == 4; changed != (tt.want == 200) {
			t.Errorf("%v: pool %+v", tt.header, l.Stats().Pool.Pool)
		}
	}
}

// Also under a prefix no other spelling of a path is redirected.
func TestOtherSpellingsAreNotFound(t *testing.T) {
	h := http.StripPrefix("/admin", quiet(t, newLimiter(t)))
	for _, path := range []string{"/admin", "/admin//", "/admin//state", "/admin/./state",
		"/admin/x/../state", "/admin/state/"} {
		rec := request{method: "GET", path: path}.send(h)
		if got := decode[Problem](t, rec); rec.Code != 404 || got.Field != "path" ||
			rec.Header().Get("Location") != "" {
			t.Errorf("%s: status %d, %+v, Location %q", path, rec.Code, got, rec.Header().Get("Location"))
		}
	}
	if rec := (request{method: "GET", path: "/admin/state"}).send(h); rec.Code != 200 {
		t.Errorf("/admin/state: status %d", rec.Code)
	}
}

func TestStateAnswer(t *testing.T) {
	l := newLimiter(t, quotient.StartPool(quotient.Pool{Replicas: 4, Ordinal: 3}))
	rec := request{method: "GET", path: "/state"}.send(quiet(t, l))
	if rec.Code != 200 || rec.Header().Get("Content-Type") != "application/json" ||
		rec.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("status %d, fields %v", rec.Code, rec.Header())
	}
	got := decode[State](t, rec).Limiters["api"]
	if got.Pool.Replicas != 4 || got.Pool.Ordinal != 3 || got.Limit.Rates[0].Events != 100 ||
		got.Limit.Rates[0].PerSeconds != 1 || !near(got.Rules[0].Share, 25) {
		t.Errorf("state %+v", got)
	}
	if rec := (request{method: "HEAD", path: "/state"}).send(quiet(t, l)); rec.Code != 200 {
		t.Errorf("HEAD: status %d", rec.Code)
	}
}

func TestChangesAreLogged(t *testing.T) {
	var out bytes.Buffer
	l := newLimiter(t, quotient.StartPool(quotient.Pool{Replicas: 3, Ordinal: 1, Fixed: true}))
	h := mount(t, l, Logger(slog.New(slog.NewTextHandler(&out, nil))))
	putReplicas(`{"replicas":0}`).send(h)
	if out.Len() != 0 {
		t.Errorf("a refused change was logged: %s", out.String())
	}
	putReplicas(`{"replicas":4,"ordinal":2}`).send(h)
	const want = "old.replicas=3 old.ordinal=1 old.fixed=true new.replicas=4 new.ordinal=2 new.fixed=false"
	if !strings.Contains(out.String(), want) {
		t.Errorf("logged %q, want it to have %q", out.String(), want)
	}
	// nil is slog.Default, not a panic at the first change
	if mount(t, l, Logger(nil)).(*Handler).api.log == nil {
		t.Error("no log")
	}
}

// TestOverTheNetwork goes through a real server, where the body limit and Host are net/http's.
func TestOverTheNetwork(t *testing.T) {
	l := newLimiter(t)
	srv := httptest.NewServer(quiet(t, l))
	defer srv.Close()
	send := func(body io.Reader) int {
		req, err := http.NewRequest("PUT", srv.URL+"/replicas", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json; charset=utf-8")
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	if got := send(strings.NewReader(`{"replicas":5,"ordinal":5}`)); got != 200 ||
		l.Stats().Pool.Replicas != 5 {
		t.Errorf("status %d, pool %+v", got, l.Stats().Pool.Pool)
	}
	if got := send(strings.NewReader(strings.Repeat(" ", maxBody+1))); got != 413 {
		t.Errorf("a large body: status %d, want 413", got)
	}
}

// TestRangeIsTheLimiters: a pool that the handler refuses, the limiter would refuse too.
func TestRangeIsTheLimiters(t *testing.T) {
	largest := quotient.Pool{Replicas: maxReplicas, Ordinal: maxReplicas}
	if err := newLimiter(t).SetPool(largest, 0); err != nil {
		t.Error(err)
	}
	if err := newLimiter(t).SetPool(quotient.Pool{Replicas: maxReplicas + 1}, 0); err == nil {
		t.Errorf("the limiter takes more than %d replicas", maxReplicas)
	}
}
