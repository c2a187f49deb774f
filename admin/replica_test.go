package admin

import (
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
)

// TestStateNamesTheReplica: by the host's name, or by the one that the program gives.
func TestStateNamesTheReplica(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	if got := decode[State](t, get("/state").send(quiet(t, newLimiter(t)))).Process.Replica; got != host {
		t.Errorf("the replica is %q, want %q", got, host)
	}
	for _, name := range []string{"pod-7", "ä", strings.Repeat("x", 253), "rack 3 / 7"} {
		s := decode[State](t, get("/state").send(quiet(t, newLimiter(t), Replica(name))))
		if s.Process.Replica != name {
			t.Errorf("the replica is %q, want %q", s.Process.Replica, name)
		}
	}
	for _, name := range []string{"", strings.Repeat("x", 254), "a\nb", "\x80", "\u202epod"} {
		_, err := New(new(quotient.Registry), Replica(name))
		if err == nil || !strings.Contains(err.Error(), "Replica: name: ") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestStateListsWhatTheCallerMay: in answers to reads and to writes.
func TestStateListsWhatTheCallerMay(t *testing.T) {
	const reader = "reader-0123456789"
	guarded := quiet(t, newLimiter(t), Token(secret), ReadOnlyToken(reader))
	open := quiet(t, newLimiter(t))
	both := []string{"read", "write"}
	for _, tt := range []struct {
		method, body, token string
		h                   http.Handler
		want                []string
	}{
		{"GET", "", "", open, both},
		{"GET", "", secret, guarded, both},
		{"GET", "", reader, guarded, []string{"read"}},
		{"PUT", `{"replicas":2}`, "", open, both},
		{"PUT", `{"replicas":2}`, secret, guarded, both},
	} {
		req := request{method: tt.method, path: "/state", body: tt.body, header: http.Header{}}
		if tt.method == "PUT" {
			req.path = "/replicas"
		}
		if tt.token != "" {
			req.header.Set("Authorization", "Bearer "+tt.token)
		}
		if got := decode[State](t, req.send(tt.h)).May; !slices.Equal(got, tt.want) {
			t.Errorf("%s with token %q: may %q, want %q", tt.method, tt.token, got, tt.want)
		}
	}
}

// TestValidate: the answer is that of the change, or its refusal, and nothing has changed or is logged.
func TestValidate(t *testing.T) {
	c := readContract(t)
	for _, tt := range []struct {
		path, body, ifMatch string
		want                int
	}{
		{"/limit", `{"rates":[{"events":5,"per_seconds":1}]}`, "", 200},
		{"/limit", `{"rates":[{"events":-5,"per_seconds":1}]}`, "", 400},
		{"/limit", `{"rates":[{"events":5,"per_seconds":1}]}`, `"other"`, 412},
		{"/plan", `{"plan":"paid","limit":{"deny":true}}`, "", 200},
		{"/plan", `{"plan":"Paid","limit":{"deny":true}}`, "", 400},
		{"/override", `{"key":"k","limit":{"deny":true}}`, "", 200},
		{"/override", `{"limit":null}`, "", 400},
		{"/reset", `{"key":"k"}`, "", 200},
		{"/dry-run", `{"dry_run":true}`, "", 200},
		{"/replicas", `{"replicas":2}`, "", 200},
		{"/replicas", `{"replicas":2,"ordinal":3}`, "", 400},
	} {
		var lines strings.Builder
		l := newLimiter(t)
		h := mount(t, l, Logger(slog.New(slog.NewTextHandler(&lines, nil))))
		before := l.Stats().Version
		req := request{method: "PUT", path: tt.path + "?validate=1", body: tt.body, header: http.Header{}}
		if tt.ifMatch != "" {
			req.header.Set("If-Match", tt.ifMatch)
		}
		rec := req.send(h)
		documented(t, c, tt.path, "PUT", rec.Code, rec.Header(), rec.Body.Bytes())
		now := l.Stats()
		if rec.Code != tt.want || now.Version != before || now.Pool.Source != "configured" ||
			lines.Len() > 0 {
			t.Errorf("%s %s: %d, want %d; version %d after %d, log %q",
				tt.path, tt.body, rec.Code, tt.want, now.Version, before, lines.String())
		}
		req.path = tt.path + "?validate=yes"
		if rec := req.send(h); rec.Code != 400 || l.Stats().Version != before {
			t.Errorf("%s: validate=yes: %d, version %d after %d", tt.path, rec.Code,
				l.Stats().Version, before)
		}
	}
}

// TestRangesOfALimit: a number of another kind is refused with the range that counts, and a rate that cannot
// be counted over all replicas with its field.
func TestRangesOfALimit(t *testing.T) {
	for body, want := range map[string][2]string{
		`{"rates":[],"in_flight":1e3}`: {"in_flight", "a whole number from 0 to 1073741824"},
		`{"rates":[{"events":1,"per_seconds":1,"burst":0.5}]}`: {"rates[0].burst",
			"a whole number from 0 to 1099511627776; 0 when aligned"},
		`{"rates":[{"events":1,"per_seconds":1,"counted":true}]}`: {"rates[0].counted",
			"true when aligned, else false"},
		`{"deny":true,"in_flight":"1"}`: {"in_flight", "a whole number from 0 to 1073741824"},
		`{"rates":[],"in_flight":99999999999999999999999999999999999999}`: {"in_flight",
			"a whole number from 0 to 1073741824"},
	} {
		h, _, _ := two(t)
		req := request{method: "PUT", path: "/limit?limiter=api", body: body,
			header: http.Header{"Content-Type": {"application/json"}}}
		rec := req.send(h)
		if p := decode[Problem](t, rec); rec.Code != http.StatusBadRequest || p.Field != want[0] ||
			p.Range != want[1] {
			t.Errorf("%s: %d, field %s, range %s", body, rec.Code, p.Field, p.Range)
		}
	}
}
