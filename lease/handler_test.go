package lease_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/lease"
)

// served starts a server with the semaphores of the conformance test.
func served(t testing.TB, c lease.Config, o lease.ServerOptions) *lease.Server {
	t.Helper()
	if c.Semaphores == nil {
		c.Semaphores = semaphores
	}
	s, err := lease.NewServer(c, o)
	tested.Must(t, err)
	t.Cleanup(s.Close)
	return s
}

func sent(h http.Handler, method, target, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://server/", strings.NewReader(body))
	if u, err := url.ParseRequestURI(target); err == nil {
		r.URL = u
	}
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const restoreOne = `{"expires_in":"5m","peer_id":1,"acquired":{}}`

// led are requests that only a leader answers.
var led = []struct{ method, target, body string }{
	{"POST", "/new_peer", `{"expires_in":"5m"}`},
	{"GET", "/peers/", ""},
	{"PUT", "/peers/1", `{"expires_in":"5m"}`},
	{"DELETE", "/peers/1", ""},
	{"PUT", "/peers/1/%2F%26?block_for=1h&expires_in=5m", "1"},
	{"DELETE", "/peer/1/A", ""},
	{"GET", "/peers/1/is_acquired", ""},
	{"GET", "/remainder?semaphore=a+b", ""},
	{"POST", "/restore", restoreOne},
	{"POST", "/remove_expired", ""},
}

// A server that does not lead sends its clients to the leader where it knows one, and says itself what it is.
func TestStandByAndClosed(t *testing.T) {
	s := served(t, lease.Config{}, lease.ServerOptions{StandBy: true})
	const unknown, closed = "lease: this server is on stand-by, and the leader is not known", "lease: the server is closed"
	for _, row := range []struct{ leader, base, detail string }{
		{"", "", unknown}, {"http://two:8000", "http://two:8000", ""}, {"http://two:8000/", "http://two:8000", ""},
		{"https://x/leases", "https://x/leases", ""}, {"", "", closed},
	} {
		s.StandBy(row.leader)
		title, status, after := "Service Unavailable", http.StatusServiceUnavailable, "1"
		if row.base != "" {
			title, status, after = "Temporary Redirect", http.StatusTemporaryRedirect, ""
			row.detail = "lease: this server is on stand-by, the leader is " + row.leader
		} else if row.detail == closed {
			s.Close()
		}
		body := fmt.Sprintf(`{"title":%q,"status":%d,"detail":%q}`+"\n", title, status, row.detail)
		for _, r := range led {
			to := row.base + r.target
			if row.base == "" {
				to = ""
			}
			w := sent(s, r.method, r.target, r.body)
			if h := w.Header(); w.Code != status || w.Body.String() != body || h.Get("Location") != to ||
				h.Get("Retry-After") != after || h.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%q: %s %s: %d %v %s", row.leader, r.method, r.target, w.Code, h, w.Body)
			}
		}
		for target, want := range map[string]int{"/": 200, "/health": 200, "/version": 200, "/ready": 503, "/nothing": 404} {
			tested.Want(t, fmt.Sprintf("%q: GET %s", row.leader, target), sent(s, "GET", target, "").Code, want)
		}
	}
}

func TestGraceHeader(t *testing.T) {
	for grace, want := range map[time.Duration]string{30 * time.Second: "30000ms", 0: ""} {
		s := served(t, lease.Config{Grace: grace}, lease.ServerOptions{})
		for _, w := range []*httptest.ResponseRecorder{
			sent(s, "POST", "/new_peer", `{"expires_in":"5m"}`),
			sent(s, "POST", "/restore", restoreOne),
			sent(s, "PUT", "/peers/1", `{"expires_in":"5m"}`),
		} {
			if got := w.Header().Get("Lease-Grace"); w.Code != 200 || got != want {
				t.Errorf("grace %v: %d, header %q, want %q", grace, w.Code, got, want)
			}
		}
	}
}

func TestBrokenLocksAreNamed(t *testing.T) {
	s := served(t, lease.Config{}, lease.ServerOptions{})
	sent(s, "POST", "/restore",
		`{"expires_in":"5m","peer_id":1,"acquired":{"High":1,"/&":1},"tokens":{"High":5,"/&":6}}`)
	for i, name := range []string{"High", "/&"} {
		if _, err := s.Break(1, name, uint64(5+i)); err != nil {
			t.Fatal(err)
		}
	}
	w := sent(s, "PUT", "/peers/1", `{"expires_in":"5m"}`)
	if got := w.Header().Values("Lease-Broken"); !slices.Equal(got, []string{"High", "%2F&"}) {
		t.Errorf("Lease-Broken: %v", got)
	}
}

func TestRestoreBeyondTheMaximumIsLogged(t *testing.T) {
	var log bytes.Buffer
	s := served(t, lease.Config{}, lease.ServerOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	sent(s, "POST", "/restore", `{"expires_in":"5m","peer_id":41,"acquired":{"C":5}}`)
	tested.Not(t, log.Len() > 0, "logged within the maximum: %s", &log)
	sent(s, "POST", "/restore", `{"expires_in":"5m","peer_id":42,"acquired":{"C":1}}`)
	for _, want := range []string{"beyond", "peer=42", "[C]"} {
		if got := log.String(); !strings.Contains(got, want) {
			t.Errorf("logged %q, want %q in it", got, want)
		}
	}
}

func TestMetricsAndMissing(t *testing.T) {
	s := served(t, lease.Config{}, lease.ServerOptions{Metrics: http.NotFoundHandler()})
	for _, row := range []struct {
		method, target string
		missing        uint64
	}{{"GET", "/metrics", 0}, {"GET", "/nothing", 1}, {"POST", "/nothing", 2}, {"POST", "/health", 2}} {
		w := sent(s, row.method, row.target, "")
		if got := s.Stats().Missing; got != row.missing || row.missing == 0 && w.Body.String() != "404 page not found\n" {
			t.Errorf("%s %s: %s, missing %d, want %d", row.method, row.target, w.Body, got, row.missing)
		}
	}
}

func TestBodyThatBreaksOff(t *testing.T) {
	s := served(t, lease.Config{}, lease.ServerOptions{})
	req := httptest.NewRequest("PUT", "/peers/1/A", iotest.ErrReader(errors.New("broke off")))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	if s.ServeHTTP(w, req); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "broke off") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A restore is done whole or not at all, and may be repeated.
func FuzzRestore(f *testing.F) {
	f.Add("{")
	for _, rest := range []string{
		`42,"acquired":{"A":3,"C":1},"tokens":{"A":17}`, `18446744073709551615,"acquired":{"A":7}`,
		`1,"acquired":{"A":9223372036854775807}`, `1,"acquired":{"A":1},"tokens":{"A":9223372036854775807}`,
		`1,"acquired":{"A":1,"A":2}`, `1,"acquired":{"A":1,"X":1}`,
	} {
		f.Add(`{"expires_in":"5m","peer_id":` + rest + `}`)
	}
	f.Add(`{"expires_in":"0ms","peer_id":1,"acquired":{"A":1,"B":2}}`)
	f.Fuzz(func(t *testing.T, body string) {
		s := served(t, lease.Config{}, lease.ServerOptions{})
		w := sent(s, "POST", "/restore", body)
		st := s.Stats()
		var held int64
		for _, a := range st.Semaphores {
			held += a.Acquired
		}
		if w.Code != http.StatusOK {
			if st.Peers != 0 || held != 0 || !slices.Contains([]int{400, 409, 413, 422}, w.Code) {
				t.Fatalf("%q: %d %s, %d peers hold %d", body, w.Code, w.Body, st.Peers, held)
			}
			return
		}
		var back struct{ Acquired map[string]int64 }
		if err := json.Unmarshal([]byte(body), &back); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		for _, n := range back.Acquired {
			held -= n
		}
		if w := sent(s, "POST", "/restore", body); w.Code != http.StatusOK && held != 0 {
			t.Fatalf("%q: again %d %s, differs by %d", body, w.Code, w.Body, held)
		}
	})
}

// A count is read as encoding/json reads it, unless it is no UTF-8.
func FuzzCount(f *testing.F) {
	for _, body := range []string{" 1 ", "5", "1e0", "1\f ", "9223372036854775808", "-0", "null", "01", "\"\xe8\xb1\""} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		s := served(t, lease.Config{}, lease.ServerOptions{})
		sent(s, "POST", "/restore", restoreOne)
		w := sent(s, "PUT", "/peers/1/C", body)
		want := http.StatusOK
		var n *int64
		switch err := json.Unmarshal([]byte(body), &n); {
		case !json.Valid([]byte(body)) || !utf8.ValidString(body):
			want = http.StatusBadRequest
		case err != nil || n == nil:
			want = http.StatusUnprocessableEntity
		case *n < 1:
			want = http.StatusBadRequest
		case *n > 5:
			want = http.StatusConflict
		}
		tested.Want(t, fmt.Sprintf("%q: %s", body, w.Body), w.Code, want)
		if want != http.StatusOK {
			return
		}
		if w := sent(s, "GET", "/remainder?semaphore=C", ""); w.Body.String() != strconv.FormatInt(5-*n, 10) {
			t.Fatalf("%q: another count is held", body)
		}
	})
}

// Any path is answered, and a name that is escaped is found again.
func FuzzPath(f *testing.F) {
	for _, row := range [][3]string{
		{"PUT", "/peers/1/%2F%26", "/&"}, {"POST", "/%ff?semaphore=%zz", "\xff\x00"}, {"0", "0", "."},
		{"PUT", "/peer/1/+?expires_in=1h+30m", "+ %;"}, {"DELETE", "//peers//1", "is_acquired"},
		{"GET", "/peers/%2531/is_acquired", "%41"},
	} {
		f.Add(row[0], row[1], row[2])
	}
	f.Fuzz(func(t *testing.T, method, path, name string) {
		if name == "" || len(name) > 1024 {
			name = "A"
		}
		s := served(t, lease.Config{Semaphores: map[string]lease.Semaphore{name: {Max: 1}}}, lease.ServerOptions{})
		sent(s, "POST", "/restore", restoreOne)
		if u, err := url.ParseRequestURI(path); err == nil {
			r := httptest.NewRequest("GET", "/", strings.NewReader("1"))
			r.Method, r.URL = method, u
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			if s.ServeHTTP(w, r); w.Code < 200 || w.Code > 422 {
				t.Fatalf("%s %q: %d", method, path, w.Code)
			}
		}
		sent(s, "DELETE", "/peers/1", "")
		sent(s, "POST", "/restore", restoreOne)
		if w := sent(s, "PUT", "/peers/1/"+url.PathEscape(name), "1"); w.Code != http.StatusOK {
			t.Fatalf("name %q: %d %s", name, w.Code, w.Body)
		}
		if w := sent(s, "GET", "/remainder?semaphore="+url.QueryEscape(name), ""); w.Body.String() != "0" {
			t.Fatalf("name %q: %d %s", name, w.Code, w.Body)
		}
	})
}

// deaf is a client that takes no notice but of the status.
type deaf struct {
	header http.Header
	status int
}

func (d *deaf) Header() http.Header               { return d.header }
func (d *deaf) WriteHeader(status int)            { d.status = status }
func (d *deaf) Write(b []byte) (int, error)       { return len(b), nil }
func (d *deaf) WriteString(s string) (int, error) { return len(s), nil }

// pair returns what acquires and releases one lock without a network.
func pair(t testing.TB) func() {
	s := served(t, lease.Config{}, lease.ServerOptions{})
	path := "/peers/" + sent(s, "POST", "/new_peer", `{"expires_in":"1h"}`).Body.String() + "/A"
	var body strings.Reader
	acquire := httptest.NewRequest("PUT", path+"?expires_in=300000ms", &body)
	acquire.Header.Set("Content-Type", "application/json")
	requests := []*http.Request{acquire, httptest.NewRequest("DELETE", path, nil)}
	w := &deaf{header: http.Header{}}
	return func() {
		for _, r := range requests {
			body.Reset("1")
			if s.ServeHTTP(w, r); w.status != http.StatusOK {
				t.Fatalf("%s: %d", r.Method, w.status)
			}
		}
	}
}

// The allocations of a pair mostly outlive it or go to net/http: the lock, the body, the header's value.
func TestAcquireAndReleaseAllocateLittle(t *testing.T) {
	if n := testing.AllocsPerRun(1000, pair(t)); n > 8 {
		t.Errorf("acquire and release allocate %v times, want at most 8", n)
	}
}

func BenchmarkHandler(b *testing.B) {
	both := pair(b)
	b.ReportAllocs()
	for b.Loop() {
		both()
	}
}

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"5m": 5 * time.Minute, "30s": 30 * time.Second, "12h": 12 * time.Hour,
		"500ms":  500 * time.Millisecond,
		"1h 30m": 90 * time.Minute, "1h30m": 90 * time.Minute, "2days": 2 * day, "0ms": 0, "0s": 0,
		"5min":     5 * time.Minute,
		"300000ms": 5 * time.Minute, "1 h": time.Hour, " 1h ": time.Hour, "1h 1h": 2 * time.Hour,
		"07s": 7 * time.Second,
		"1ns": 1, "1nsec": 1, "1us": 1000, "1usec": 1000, "1msec": 1e6, "1sec": 1e9, "1second": 1e9,
		"2seconds": 2e9,
		"1minute":  time.Minute, "2minutes": 2 * time.Minute, "1hr": time.Hour, "1hour": time.Hour,
		"2hours": 2 * time.Hour,
		"1d":     day, "1day": day, "1w": 7 * day, "1week": 7 * day, "2weeks": 14 * day,
		"1M": 2630016 * time.Second, "1month": 2630016 * time.Second, "2months": 2 * 2630016 * time.Second,
		"1y": 31557600 * time.Second, "1year": 31557600 * time.Second, "2years": 2 * 31557600 * time.Second,
		"9223372036854775807ns": math.MaxInt64, "292y": 292 * 31557600 * time.Second,
	} {
		if got, err := lease.ParseDuration(text); got != want || err != nil {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", " ", "5", "m", "-5m", "+5m", "5 parsecs", "5m!", "1.5h", "5mm", "5m 3", "1e3s", "5M5", "S", "5S",
		"١s", "5µs", "5m\n3",
		"9223372036854775808ns", "300y", "200y 200y", "99999999999999999999s", "9223372036854775807ns 1ns",
	} {
		if got, err := lease.ParseDuration(text); err == nil || got != 0 {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", -1: "0ms", 1: "1ns", time.Microsecond: "1000ns", time.Millisecond: "1ms",
		5 * time.Minute: "300000ms",
		time.Second + 1: "1000000001ns", math.MaxInt64: "9223372036854775807ns",
	} {
		tested.Want(t, fmt.Sprint(int64(d)), lease.FormatDuration(d), want)
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, text := range []string{"1h 30m", "0ms", "-5m", "5 parsecs", "200y 200y", "1year 2months 3weeks 10ns"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := lease.ParseDuration(text)
		if d < 0 || err != nil && d != 0 {
			t.Fatalf("%q: %v, %v", text, d, err)
		}
		if again, err2 := lease.ParseDuration(lease.FormatDuration(d)); again != d || err2 != nil {
			t.Fatalf("%q: %v, then %v, %v", text, d, again, err2)
		}
	})
}
