package proxy

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/tested"
)

// logged is the end of a file whose requests have lines with plain keys.
const logged = all + "[proxy.log]\naccess = \"all\"\nkeys = \"plain\"\n"

// line is one of the access log.
type line struct {
	Method, Host, Path, Client, Rule, Limiter, Key, Plan, Decision, Reason, Msg string

	Status    int
	Upstream  int     `json:"upstream_status"`
	Wait      float64 `json:"wait_ms"`
	After     float64 `json:"retry_after_ms"`
	Duration  float64 `json:"duration_ms"`
	Overhead  float64 `json:"overhead_ms"`
	Bytes     int
	Unlogged  int
	Aborted   bool
	wholeLine string
}

// accessLines writes the access log of a world, and returns its lines as they come.
func (w *world) accessLines() <-chan line {
	w.t.Helper()
	from, to := io.Pipe()
	ctx, stop := context.WithCancel(w.t.Context())
	lines, ended := make(chan line, 100), make(chan error, 1)
	go func() { ended <- w.proxy.WriteLog(ctx, to) }()
	go func() {
		for s := bufio.NewScanner(from); s.Scan(); {
			l := line{wholeLine: s.Text()}
			if err := json.Unmarshal(s.Bytes(), &l); err != nil {
				w.t.Errorf("%s: %v", s.Text(), err)
			}
			lines <- l
		}
		close(lines)
	}()
	w.t.Cleanup(func() {
		stop()
		must(w.t, <-ended)
		must(w.t, to.Close())
		for range lines {
		}
	})
	return lines
}

// TestAccessLog: the line of each end of a request.
func TestAccessLog(t *testing.T) {
	broken, _ := breaking(t, "")
	cut, _ := breaking(t, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
	up := httptest.NewServer(http.HandlerFunc(teapot))
	defer up.Close()
	const paced = "[limiters.all]\nrates = [{ events = 20, per = \"1s\", kind = \"paced\", no-turns = true }]\n"
	const plans = hundred + "[limiters.all.plans.paid]\nin-flight = 1\n"
	const trusted = "[proxy]\nupstreams = [\"UPSTREAM\"]\ntrusted = [\"127.0.0.0/8\"]\n"
	byPlan := strings.Replace(logged, "limiter", "plan = \"header:X-Plan\"\nlimiter", 1)
	const exempt = hundred + "[[proxy.rules]]\npattern = \"/a/b\"\nexempt = true\n" + logged
	for _, row := range []struct {
		what, url, text string
		requests        int // the last one counts
		header          []string
		want            line
	}{
		{"admitted", up.URL, hundred + logged, 1, nil,
			line{Limiter: "all", Key: "/a/b", Decision: "admitted", Status: 418, Upstream: 418, Bytes: 5}},
		{"waited", up.URL, paced + logged, 2, nil,
			line{Limiter: "all", Key: "/a/b", Decision: "waited", Status: 418, Upstream: 418, Bytes: 5, Wait: 1}},
		{"refused by a rate", up.URL, strict + logged, 2, nil,
			line{Limiter: "all", Key: "/a/b", Decision: "refused", Reason: "rate", Status: 429, After: 1}},
		{"denied", up.URL, "[limiters.all]\ndeny = true\n" + logged, 1, nil,
			line{Limiter: "all", Key: "/a/b", Decision: "refused", Reason: "denied", Status: 429}},
		{"of a plan", up.URL, trusted + plans + byPlan, 1, []string{"X-Plan", "paid"},
			line{Limiter: "all", Key: "/a/b", Plan: "paid", Decision: "admitted", Status: 418, Upstream: 418,
				Bytes: 5}},
		{"exempt", up.URL, exempt, 1, nil, line{Rule: "/a/b", Decision: "none", Status: 418, Upstream: 418, Bytes: 5}},
		{"broken off", broken, hundred + logged, 1, nil,
			line{Limiter: "all", Key: "/a/b", Decision: "admitted", Status: 502, Bytes: 110}},
		{"cut", cut, hundred + logged, 1, nil,
			line{Limiter: "all", Key: "/a/b", Decision: "admitted", Status: 200, Upstream: 200, Bytes: 3,
				Aborted: true}},
	} {
		w := worldBefore(t, row.text, row.url)
		got := w.lineOf(w.accessLines(), row.requests, row.header)
		row.want.Method, row.want.Path, row.want.Msg = "GET", "/A/b/", "request"
		row.want.Rule = cmp.Or(row.want.Rule, "/")
		row.want.Client, row.want.Host = "127.0.0.1", w.front.Listener.Addr().String()
		same(t, row.what, got, row.want)
	}
}

func teapot(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusTeapot)
	_, _ = io.WriteString(w, "short")
}

// lineOf asks so many times, and returns the line of the last, whether its answer has an end or not.
func (w *world) lineOf(lines <-chan line, times int, header []string) (last line) {
	w.t.Helper()
	for range times {
		if resp, err := w.front.Client().Do(w.ask(http.MethodGet, "/A/b/?secret", nil, header...)); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		last = tested.Event(w.t, lines)
	}
	return last
}

// same compares a line with one in which times are 0, or anything else for above 0.
func same(t *testing.T, what string, got, wanted line) {
	t.Helper()
	if got.Duration <= 0 || (got.Overhead > 0) != (got.Upstream > 0 || got.Status == http.StatusBadGateway) {
		t.Errorf("%s: the times are %+v", what, got)
	}
	if got.Decision == refused && wanted.Bytes == 0 {
		wanted.Bytes = got.Bytes // of the problem
		got.Wait = 0
	}
	for _, at := range []*float64{&got.Wait, &got.After, &wanted.Wait, &wanted.After} {
		*at = math.Ceil(min(*at, 1))
	}
	got.Duration, got.Overhead, got.wholeLine = 0, 0, ""
	want(t, what, got, wanted)
}

// TestAccessLogOfSlots: lines of requests that find a slot taken: they are refused, find the queue full or leave, and
// one that has the slot is refused by none. A shutdown has a reason, too.
func TestAccessLogOfSlots(t *testing.T) {
	own := strings.Replace(logged, "limiter", "refusal = { status = 420, body = \"-\" }\nlimiter", 1)
	for _, row := range []struct {
		mode, reason string
		status       int
	}{
		{"mode = \"refuse\"\n", "in_flight", 420}, {"queue = 0\n", "queue_full", 420},
		{"", "left", 503}, {"", "shutdown", 503},
	} {
		up, entered, stop := holding(t)
		w := newWorld(t, one+row.mode+own, up)
		lines := w.accessLines()
		first := w.later(t.Context(), "")
		tested.Event(t, entered)
		ctx, cancel := context.WithCancel(t.Context())
		second := w.later(ctx, "")
		if row.mode == "" {
			w.waiting(1)
		}
		switch row.reason {
		case "left":
			cancel()
		case "shutdown":
			w.proxy.Drain()
		}
		l := tested.Event(t, lines)
		want(t, row.reason+": decision", l.Decision, refused)
		want(t, row.reason+": reason", l.Reason, row.reason)
		want(t, row.reason+": status", l.Status, row.status)
		want(t, row.reason+": aborted", l.Aborted, row.reason == "left")
		tested.Event(t, second)
		stop()
		tested.Event(t, first)
		want(t, "decision on the first", tested.Event(t, lines).Decision, admitted)
		cancel()
	}
}

// TestAccessLogOfAClientThatLeaves: while its request is at the upstream.
func TestAccessLogOfAClientThatLeaves(t *testing.T) {
	up, entered, _ := holding(t)
	w := newWorld(t, one+logged, up)
	lines := w.accessLines()
	ctx, cancel := context.WithCancel(t.Context())
	w.later(ctx, "")
	tested.Event(t, entered)
	cancel()
	l := tested.Event(t, lines)
	want(t, "aborted", l.Aborted, true)
	want(t, "upstream status", l.Upstream, 0)
}

// TestAccessLogOfAnUpgrade: its line comes at its end.
func TestAccessLogOfAnUpgrade(t *testing.T) {
	for _, policy := range []string{"fixed", "tracking"} {
		w := newWorld(t, one+"policy = \""+policy+"\"\n"+logged, echo)
		lines := w.accessLines()
		c := w.dial()
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		must(t, err)
		_, err = http.ReadResponse(bufio.NewReader(c), nil)
		must(t, err)
		want(t, "lines before the end", len(lines), 0)
		must(t, c.Close())
		l := tested.Event(t, lines)
		want(t, "status", l.Status, http.StatusSwitchingProtocols)
		want(t, "upstream status", l.Upstream, http.StatusSwitchingProtocols)
		want(t, "decision", l.Decision, admitted)
	}
}

// TestAccessLogIsNotForged: whatever a client sends is in one line, and is short.
func TestAccessLogIsNotForged(t *testing.T) {
	w := newWorld(t, hundred+strings.Replace(logged, "limiter", "key = \"header:X-Key\"\nlimiter", 1), ok)
	lines := w.accessLines()
	const forged = "%0a{%22decision%22:%22refused%22}\xff\x80\xe2\x80\xa8\""
	w.raw("GET /" + forged + strings.Repeat("a", 5000) + "?q=1 HTTP/1.1\nHost: a\nX-Key: \"}\xff{\t" +
		strings.Repeat("k", 200) + "\nConnection: close\n\n")
	l := tested.Event(t, lines)
	want(t, "decision", l.Decision, admitted)
	want(t, "the path begins with what was sent", strings.HasPrefix(l.Path, "/%0A%7B%22decision%22"), true)
	want(t, "bytes of the path", len(l.Path), maxPath)
	if n := len(l.wholeLine); n > 2000 {
		t.Errorf("the line has %d bytes", n)
	}
	w.get("/")
	want(t, "path of the next line", tested.Event(t, lines).Path, "/")
}

// TestAccessLogOfEarlyRefusals: each has a line of its own, by all modes, that is as short and whole as others.
func TestAccessLogOfEarlyRefusals(t *testing.T) {
	refusals := strings.Replace(logged, `access = "all"`, `access = "refusals"`, 1)
	const trusted = "[proxy]\nupstreams = [\"UPSTREAM\"]\ntrusted = [\"127.0.0.0/8\"]\n"
	for _, row := range []struct {
		text, sent string
		want       line
	}{
		{logged, "no request\n\n", line{Status: 400, Reason: "request_line"}},
		{refusals, "GET / HTTP/1.1\nHost: h\nX: {\"\xff\x00\n\n", line{Status: 400, Reason: "head"}},
		{strings.Replace(logged, "keys", "sample = 1_000_000\nkeys", 1), "GET /\\ HTTP/1.1\nHost: a.test\n\n",
			line{Method: "GET", Host: "a.test", Path: "/%5C", Status: 400, Reason: "target"}},
		{refusals, "GET /" + strings.Repeat("{", maxPath) + "?q HTTP/1.1\nHost: h\n\n",
			line{Method: "GET", Host: "h", Path: ("/" + strings.Repeat("%7B", maxPath))[:maxPath], Status: 400,
				Reason: "target"}},
		{logged, "POST / HTTP/1.1\nHost: h\nExpect: x\nX-Forwarded-For: 192.0.2.7\nContent-Length: 1\n\nx",
			line{Method: "POST", Host: "h", Path: "/", Client: "192.0.2.7", Status: 417, Reason: "expectation"}},
		{strings.Replace(logged, "plain", "hashed", 1), "no request\n\n",
			line{Client: "a hash", Status: 400, Reason: "request_line"}},
	} {
		w := newWorld(t, trusted+loose+row.text, ok)
		w.behindFront()
		lines := w.accessLines()
		w.raw(row.sent)
		got := tested.Event(t, lines)
		if len(got.Client) == 32 {
			got.Client = "a hash"
		}
		for _, member := range []string{`"rule"`, `"key"`, `"bytes"`} {
			want(t, "the line has "+member, strings.Contains(got.wholeLine, member), false)
		}
		got.wholeLine, row.want.Msg, row.want.Decision = "", "request", unasked
		row.want.Client = cmp.Or(row.want.Client, "127.0.0.1")
		want(t, row.sent, got, row.want)
	}
}

// TestAccessLogOfAFlood: early refusals have so many lines a second, and the next one says how many had none.
func TestAccessLogOfAFlood(t *testing.T) {
	w := newWorld(t, loose+logged, ok)
	synctest.Test(t, func(t *testing.T) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		for i, unlogged := range []uint64{0, 1000 - maxEarly, 1000 - maxEarly} {
			for range 1000 {
				w.proxy.Refused(http.Header{}, r, http.StatusBadRequest, "flood")
			}
			want(t, "lines", len(w.proxy.lines), maxEarly)
			want(t, fmt.Sprint("unlogged before second ", i), (<-w.proxy.lines).unlogged, unlogged)
			for len(w.proxy.lines) > 0 {
				want(t, "unlogged before the next", (<-w.proxy.lines).unlogged, 0)
			}
			time.Sleep(time.Second)
		}
		lines := w.proxy.lines
		w.proxy.lines = nil // as if it were full
		w.proxy.Refused(http.Header{}, r, http.StatusBadRequest, "no room")
		w.proxy.lines = lines
		r.ProtoMajor = 2
		r.Header.Set("Content-Type", "application/grpc")
		w.proxy.Refused(http.Header{}, r, http.StatusBadRequest, "a call of gRPC")
		line := <-w.proxy.lines
		want(t, "status of HTTP of a call of gRPC", line.status, http.StatusOK)
		want(t, "unlogged, with one whose line was dropped", line.unlogged, 1000-maxEarly+1)
		New(w.reg, nil, nil).Refused(http.Header{}, r, http.StatusBadRequest, "no file is in force")
	})
}

// TestAccessLogReloads: which lines there are, and how they show keys, is that of the file in force.
func TestAccessLogReloads(t *testing.T) {
	w := newWorld(t, strict+all, ok)
	lines := w.accessLines()
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("0123456789abcdef\n"), 0o600))
	address, file := w.conf.File().Proxy.Upstreams[0], `secret-file = "`+filepath.ToSlash(secret)+`"`
	load := func(log string) error {
		f, err := config.Parse("test.toml", []byte(
			"[proxy]\nupstreams = [\""+address.String()+"\"]\nlog = { "+log+" }\n"+strict+all))
		must(t, err)
		commit, err := w.proxy.Prepare(f)
		if err == nil {
			commit()
		}
		return err
	}
	hashes := map[string]int{}
	for i, log := range []string{
		"", `access = "refusals"`, `access = "all", sample = 1_000_000`, `access = "all"`, `access = "all", ` + file,
	} {
		must(t, load(log))
		w.get("/" + string(rune('a'+i))) // is admitted
		w.get("/")                       // is, once
		if i == 0 {
			continue // no line
		}
		if i > 2 {
			want(t, log+": decision", tested.Event(t, lines).Decision, admitted)
		}
		l := tested.Event(t, lines)
		want(t, log+": decision", l.Decision, refused)
		want(t, log+": digits of the address", len(l.Client), 32)
		hashes[l.Key]++
	}
	want(t, "hashes of a key by two secrets", len(hashes), 2)
	must(t, os.WriteFile(secret, []byte("short\n"), 0o600))
	if err := load(`access = "all", ` + file); err == nil || !strings.Contains(err.Error(), "has 5 bytes, want 16") {
		t.Errorf("a secret that is too short: %v", err)
	}
}

// TestAccessLogDrops: lines that find the queue full, or cannot be written, are dropped and counted, and no request
// waits for them.
func TestAccessLogDrops(t *testing.T) {
	w := newWorld(t, loose+logged, ok)
	w.proxy.lines = make(chan *entry, 2)
	for range 5 {
		w.get("/")
	}
	until(t, "lines are dropped", func() bool { return w.proxy.Dropped() == 3 })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, to := io.Pipe()
	must(t, to.Close())
	must(t, w.proxy.WriteLog(ended, to))
	want(t, "dropped, with those that could not be written", w.proxy.Dropped(), 5)
	w.get("/")
	until(t, "a line is queued", func() bool { return len(w.proxy.lines) == 1 })
	var text strings.Builder
	must(t, w.proxy.WriteLog(ended, &text))
	want(t, "lines that are written after the end", strings.Count(text.String(), "\n"), 1)
}
