package admin

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
)

// newLimiter is a limiter of 100 a second that believes it is alone.
func newLimiter(t testing.TB, opts ...quotient.Option) *quotient.Limiter {
	t.Helper()
	rate := quotient.PerSecond(100)
	rate.Burst = 10
	l, err := quotient.New(quotient.Limit{Rates: []quotient.Rate{rate}}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// quiet is the handler of l with a log that nobody reads.
func quiet(l *quotient.Limiter, opts ...Option) http.Handler {
	return Handler(l, append(opts, Logger(slog.New(slog.DiscardHandler)))...)
}

// request is one request to the handler; "" is: loopback, JSON.
type request struct {
	method, path, host, contentType, body string
	header                                http.Header
}

// none as a content type is a request without one.
const none = "none"

func (r request) send(h http.Handler) *httptest.ResponseRecorder {
	req := httptest.NewRequest(r.method, r.path, strings.NewReader(r.body))
	req.Host = "127.0.0.1:9090"
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

func put(body string) request { return request{method: "PUT", path: "/replicas", body: body} }

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
		{" {\n\t\"replicas\" : 7 , \"ordinal\" : 1 }\r\n ", quotient.Pool{Replicas: 7, Ordinal: 1}},
		{`{"replicas":1}`, quotient.Pool{Replicas: 1}},
		{`{"replicas":1000000}`, quotient.Pool{Replicas: 1000000}},
	}
	for _, tt := range tests {
		l := newLimiter(t)
		rec := put(tt.body).send(quiet(l))
		if rec.Code != http.StatusOK {
			t.Errorf("%s: status %d, want 200: %s", tt.body, rec.Code, rec.Body)
			continue
		}
		if got := l.Pool(); got != tt.want {
			t.Errorf("%s: pool is %+v, want %+v", tt.body, got, tt.want)
		}
		answer := decode[state](t, rec)
		if answer.Pool.Replicas != tt.want.Replicas || answer.Pool.Ordinal != tt.want.Ordinal {
			t.Errorf("%s: answered pool %+v, want %+v", tt.body, answer.Pool, tt.want)
		}
		if want := 100 / float64(tt.want.Replicas); !near(answer.Rules[0].Share, want) {
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
		want   problem // Detail is not compared
	}{
		{"empty", put(``), 400, problem{Field: "body"}},
		{"no JSON", put(`replicas=4`), 400, problem{Field: "body", Value: "replicas=4"}},
		{"null", put(`null`), 400, problem{Field: "body", Value: "null"}},
		{"list", put(`[4]`), 400, problem{Field: "body", Value: "[4]"}},
		{"number", put(`4`), 400, problem{Field: "body", Value: "4"}},
		{"no end", put(`{"replicas":4`), 400, problem{Field: "body", Value: `{"replicas":4`}},
		{"no value", put(`{"replicas":}`), 400, problem{Field: "body", Value: `{"replicas":}`}},
		{"no colon", put(`{"replicas" 4}`), 400, problem{Field: "body", Value: `{"replicas" 4}`}},
		{"comma", put(`{"replicas":4,}`), 400, problem{Field: "body", Value: `{"replicas":4,}`}},
		{"trailing", put(`{"replicas":4} x`), 400, problem{Field: "body", Value: `{"replicas":4} x`}},
		{"two", put(`{"replicas":4}{"replicas":5}`), 400, problem{Field: "body", Value: `{"replicas":4}{"replicas":5}`}},
		{"name no string", put(`{4:4}`), 400, problem{Field: "body", Value: `{4:4}`}},
		{"long", put(`"` + long), 400, problem{Field: "body", Value: `"` + long[:maxValue-1] + "…"}},
		{"unknown", put(`{"replicas":4,"shards":2}`), 400, problem{Field: "shards", Range: "replicas, ordinal"}},
		{"other case", put(`{"Replicas":4}`), 400, problem{Field: "Replicas", Range: "replicas, ordinal"}},
		{"twice", put(`{"replicas":4,"replicas":5}`), 400, problem{Field: "replicas", Range: "replicas, ordinal"}},
		{"missing", put(`{"ordinal":1}`), 400, problem{Field: "replicas", Range: "a whole number from 1 to 1000000"}},
		{"nothing", put(`{}`), 400, problem{Field: "replicas", Range: "a whole number from 1 to 1000000"}},
		{"zero", put(`{"replicas":0}`), 400, problem{Field: "replicas", Value: "0", Range: "a whole number from 1 to 1000000"}},
		{"negative", put(`{"replicas":-1}`), 400, problem{Field: "replicas", Value: "-1", Range: "a whole number from 1 to 1000000"}},
		{"huge", put(`{"replicas":1000001}`), 400, problem{Field: "replicas", Value: "1000001", Range: "a whole number from 1 to 1000000"}},
		{"beyond int", put(`{"replicas":9223372036854775808}`), 400, problem{Field: "replicas", Value: "9223372036854775808", Range: "a whole number from 1 to 1000000"}},
		{"fraction", put(`{"replicas":4.5}`), 400, problem{Field: "replicas", Value: "4.5", Range: "a whole number from 1 to 1000000"}},
		{"exponent", put(`{"replicas":4e0}`), 400, problem{Field: "replicas", Value: "4e0", Range: "a whole number from 1 to 1000000"}},
		{"text", put(`{"replicas":"4"}`), 400, problem{Field: "replicas", Value: `"4"`, Range: "a whole number from 1 to 1000000"}},
		{"null value", put(`{"replicas":null}`), 400, problem{Field: "replicas", Value: "null", Range: "a whole number from 1 to 1000000"}},
		{"object", put(`{"replicas":{"a":1}}`), 400, problem{Field: "replicas", Value: `{"a":1}`, Range: "a whole number from 1 to 1000000"}},
		{"ordinal high", put(`{"replicas":4,"ordinal":5}`), 400, problem{Field: "ordinal", Value: "5", Range: "a whole number from 0 to 4"}},
		{"ordinal low", put(`{"replicas":4,"ordinal":-1}`), 400, problem{Field: "ordinal", Value: "-1", Range: "a whole number from 0 to 4"}},
		{"ordinal null", put(`{"replicas":4,"ordinal":null}`), 400, problem{Field: "ordinal", Value: "null", Range: "a whole number from 0 to 4"}},
		{"form", request{method: "PUT", path: "/replicas", contentType: "application/x-www-form-urlencoded", body: `{"replicas":4}`}, 415, problem{Field: "Content-Type", Value: "application/x-www-form-urlencoded", Range: "application/json"}},
		{"simple type", request{method: "PUT", path: "/replicas", contentType: "text/plain", body: `{"replicas":4}`}, 415, problem{Field: "Content-Type", Value: "text/plain", Range: "application/json"}},
		{"bad type", request{method: "PUT", path: "/replicas", contentType: ";", body: `{"replicas":4}`}, 415, problem{Field: "Content-Type", Value: ";", Range: "application/json"}},
		{"no type", request{method: "PUT", path: "/replicas", contentType: none, body: `{"replicas":4}`}, 415, problem{Field: "Content-Type", Range: "application/json"}},
		{"too large", put(`{"replicas":4}` + strings.Repeat(" ", maxBody)), 413, problem{Field: "body", Range: "at most 65536 bytes"}},
		{"POST", request{method: "POST", path: "/replicas", body: `{"replicas":4}`}, 405, problem{Field: "method", Value: "POST", Range: "PUT"}},
		{"GET replicas", request{method: "GET", path: "/replicas"}, 405, problem{Field: "method", Value: "GET", Range: "PUT"}},
		{"PUT state", request{method: "PUT", path: "/state"}, 405, problem{Field: "method", Value: "PUT", Range: "GET, HEAD"}},
		{"other path", request{method: "GET", path: "/other"}, 404, problem{Field: "path", Value: "/other", Range: "/state, /replicas"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLimiter(t, quotient.StartPool(quotient.Pool{Replicas: 3, Ordinal: 1}))
			rec := tt.req.send(quiet(l))
			got := decode[problem](t, rec)
			if rec.Code != tt.status || got.Status != tt.status {
				t.Errorf("status %d, in the body %d, want %d", rec.Code, got.Status, tt.status)
			}
			if got.Field != tt.want.Field || tt.want.Value != "" && got.Value != tt.want.Value || tt.want.Range != "" && got.Range != tt.want.Range {
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
			if p := l.Pool(); p.Replicas != 3 || p.Ordinal != 1 {
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
	h := Handler(l, AllowHosts("ops.example", "10.0.0.7"))
	for _, tt := range tests {
		rec := request{method: "GET", path: "/state", host: tt.host}.send(h)
		if rec.Code != tt.want {
			t.Errorf("Host %q: status %d, want %d", tt.host, rec.Code, tt.want)
		}
	}
	if rec := (request{method: "GET", path: "/state", host: "ops.example"}).send(quiet(l)); rec.Code != 403 {
		t.Errorf("a host that no option names: status %d, want 403", rec.Code)
	}
}

func TestNoHost(t *testing.T) {
	req := httptest.NewRequest("GET", "/state", nil)
	req.Host = ""
	rec := httptest.NewRecorder()
	Handler(newLimiter(t), AllowHosts("")).ServeHTTP(rec, req)
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
		req := put(`{"replicas":4}`)
		req.header = tt.header
		rec := req.send(quiet(l))
		if rec.Code != tt.want {
			t.Errorf("%v: status %d, want %d", tt.header, rec.Code, tt.want)
		}
		if changed := l.Pool().Replicas == 4; changed != (tt.want == 200) {
			t.Errorf("%v: pool %+v", tt.header, l.Pool())
		}
	}
}

func TestStateHasStableNames(t *testing.T) {
	full := quotient.Stats{
		Limit: quotient.Limit{
			Rates:    []quotient.Rate{{Name: "minute", Unit: "tokens", Events: 90, Per: time.Minute, Burst: 9, Aligned: true}},
			InFlight: 8,
		},
		Rules: []quotient.RuleStats{{Name: "minute", Unit: "tokens", Limit: 1.5, Share: 0.5, Burst: 3}},
		Pool: quotient.PoolStats{
			Pool:   quotient.Pool{Replicas: 3, Ordinal: 2, Fixed: true},
			Source: "file", Age: 1500 * time.Millisecond, Reports: 4, Errors: 5, Rejected: 6, LastError: "no such file",
		},
		Keys: 1, MaxKeys: 2, Waiting: 3, InFlight: 4, Admitted: 5,
		Refused: map[quotient.Reason]uint64{quotient.ReasonRate: 6},
		Waited:  7, Cancelled: 8, Evicted: 9, Overflowed: 10, DoubleReleases: 11, Reclaimed: 12, Throttled: 13,
	}
	const want = `{"limit":{"rates":[{"name":"minute","unit":"tokens","events":90,"per_seconds":60,"burst":9,"aligned":true}],"in_flight":8,"denies":false},` +
		`"rules":[{"name":"minute","unit":"tokens","limit":1.5,"share":0.5,"burst":3}],` +
		`"pool":{"replicas":3,"ordinal":2,"fixed":true,"source":"file","age_seconds":1.5,"reports":4,"errors":5,"rejected":6,"last_error":"no such file"},` +
		`"keys":1,"max_keys":2,"waiting":3,"in_flight":4,"admitted":5,"refused":{"REASON":6},"waited":7,"cancelled":8,"evicted":9,` +
		`"overflowed":10,"double_releases":11,"reclaimed":12,"throttled":13}`
	got, err := json.Marshal(newState(full))
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(want, "REASON", quotient.ReasonRate.String(), 1); string(got) != want {
		t.Errorf("state is\n%s\nwant\n%s", got, want)
	}
}

// A limit that refuses everything has no rates either.
func TestDenyIsNotNoLimit(t *testing.T) {
	if !newState(quotient.Stats{Limit: quotient.Deny()}).Limit.Denies || newState(quotient.Stats{}).Limit.Denies {
		t.Error("the state does not tell Deny from no limit")
	}
}

// Also under a prefix no other spelling of a path is redirected.
func TestOtherSpellingsAreNotFound(t *testing.T) {
	h := http.StripPrefix("/admin", quiet(newLimiter(t)))
	for _, path := range []string{"/admin", "/admin/", "/admin//state", "/admin/./state", "/admin/x/../state", "/admin/state/"} {
		rec := request{method: "GET", path: path}.send(h)
		if got := decode[problem](t, rec); rec.Code != 404 || got.Field != "path" || rec.Header().Get("Location") != "" {
			t.Errorf("%s: status %d, %+v, Location %q", path, rec.Code, got, rec.Header().Get("Location"))
		}
	}
	if rec := (request{method: "GET", path: "/admin/state"}).send(h); rec.Code != 200 {
		t.Errorf("/admin/state: status %d", rec.Code)
	}
}

func TestStateOfNothingHasNoNulls(t *testing.T) {
	got, err := json.Marshal(newState(quotient.Stats{}))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(got, []byte("null")) {
		t.Errorf("a null where a list or an object belongs: %s", got)
	}
}

func TestStateAnswer(t *testing.T) {
	l := newLimiter(t, quotient.StartPool(quotient.Pool{Replicas: 4, Ordinal: 3}))
	rec := request{method: "GET", path: "/state"}.send(quiet(l))
	if rec.Code != 200 || rec.Header().Get("Content-Type") != "application/json" || rec.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("status %d, fields %v", rec.Code, rec.Header())
	}
	got := decode[state](t, rec)
	if got.Pool.Replicas != 4 || got.Pool.Ordinal != 3 || got.Limit.Rates[0].Events != 100 || got.Limit.Rates[0].PerSeconds != 1 || !near(got.Rules[0].Share, 25) {
		t.Errorf("state %+v", got)
	}
	if rec := (request{method: "HEAD", path: "/state"}).send(quiet(l)); rec.Code != 200 {
		t.Errorf("HEAD: status %d", rec.Code)
	}
}

func TestChangesAreLogged(t *testing.T) {
	var out bytes.Buffer
	l := newLimiter(t, quotient.StartPool(quotient.Pool{Replicas: 3, Ordinal: 1, Fixed: true}))
	h := Handler(l, Logger(slog.New(slog.NewTextHandler(&out, nil))))
	put(`{"replicas":0}`).send(h)
	if out.Len() != 0 {
		t.Errorf("a refused change was logged: %s", out.String())
	}
	put(`{"replicas":4,"ordinal":2}`).send(h)
	const want = "old.replicas=3 old.ordinal=1 old.fixed=true new.replicas=4 new.ordinal=2 new.fixed=false"
	if !strings.Contains(out.String(), want) {
		t.Errorf("logged %q, want it to have %q", out.String(), want)
	}
	if Handler(l, Logger(nil)) == nil { // nil is slog.Default, not a panic at the first change
		t.Error("no handler")
	}
}

// TestOverTheNetwork goes through a real server, where the body limit and Host are net/http's.
func TestOverTheNetwork(t *testing.T) {
	l := newLimiter(t)
	srv := httptest.NewServer(Handler(l, Logger(slog.New(slog.DiscardHandler))))
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
	if got := send(strings.NewReader(`{"replicas":5,"ordinal":5}`)); got != 200 || l.Pool().Replicas != 5 {
		t.Errorf("status %d, pool %+v", got, l.Pool())
	}
	if got := send(strings.NewReader(strings.Repeat(" ", maxBody+1))); got != 413 {
		t.Errorf("a large body: status %d, want 413", got)
	}
}

// TestRangeIsTheLimiters: a pool that the handler refuses, the limiter would refuse too.
func TestRangeIsTheLimiters(t *testing.T) {
	if err := (quotient.Pool{Replicas: maxReplicas, Ordinal: maxReplicas}).Validate(); err != nil {
		t.Error(err)
	}
	if err := (quotient.Pool{Replicas: maxReplicas + 1}).Validate(); err == nil {
		t.Errorf("the limiter takes more than %d replicas", maxReplicas)
	}
}
