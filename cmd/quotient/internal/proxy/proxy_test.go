package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/cmd/quotient/internal/upstream"
	"github.com/quotient-go/quotient/internal/tested"
)

// TestMisfits: what is not passed on.
func TestMisfits(t *testing.T) {
	asked := 0
	w := newWorld(t, loose+all, func(http.ResponseWriter, *http.Request) { asked++ })
	for _, row := range []struct {
		line, allow string
		status      int
	}{
		{"CONNECT other:443", allowed, 405},
		{"CONNECT /a", allowed, 405},
		{"TRACE /a", allowed, 405},
		{"OPTIONS *", allowed, 200},
		{"GET *", "", 400},
		{"GET mailto:a", "", 400},
		{"GET http:a", "", 400},
		{"GET ftp://other/a", "", 400},
	} {
		resp, body := w.raw(row.line + " HTTP/1.1\nHost: other\nConnection: close\n\n")
		want(t, "status of "+row.line, resp.StatusCode, row.status)
		want(t, "Allow of "+row.line, resp.Header.Get("Allow"), row.allow)
		if row.status != 200 && !strings.Contains(body, `"type":"about:blank"`) {
			t.Errorf("%s: the body is %q, want a problem", row.line, body)
		}
	}
	want(t, "requests at the upstream", asked, 0)
}

// TestEventsAreFlushed: each event reaches the client while the upstream goes on.
func TestEventsAreFlushed(t *testing.T) {
	both(t, func(t *testing.T, setUp ...func(*httptest.Server)) {
		next := make(chan struct{})
		w := newWorld(t, loose+all, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 3 {
				_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
				_ = http.NewResponseController(w).Flush()
				<-next
			}
		}, setUp...)
		resp, err := w.front.Client().Do(w.ask(http.MethodGet, "/", nil))
		must(t, err)
		defer resp.Body.Close()
		lines := bufio.NewReader(resp.Body)
		for i := range 3 {
			line, err := lines.ReadString('\n')
			must(t, err)
			want(t, "event", line, fmt.Sprintf("data: %d\n", i))
			_, err = lines.ReadString('\n')
			must(t, err)
			next <- struct{}{}
		}
	})
}

// TestTrailersPass: announced or not, and those of the request.
func TestTrailersPass(t *testing.T) {
	both(t, func(t *testing.T, setUp ...func(*httptest.Server)) {
		got := make(chan string, 2)
		w := newWorld(t, loose+all, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			got <- r.Trailer.Get("X-Sum")
			got <- r.Trailer.Get("X-Forwarded-For")
			w.Header().Set("Trailer", "X-Announced")
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-Announced", "1")
			w.Header().Set(http.TrailerPrefix+"X-Late", "2")
		}, setUp...)
		req := w.ask(http.MethodPost, "/", io.MultiReader(strings.NewReader("abc")))
		req.Trailer = http.Header{"X-Sum": {"7"}, "X-Forwarded-For": {"192.0.2.1"}}
		resp, body := w.do(req)
		want(t, "body", body, "body")
		want(t, "trailer of the request", tested.Event(t, got), "7")
		want(t, "address in a trailer", tested.Event(t, got), "")
		want(t, "announced trailer", resp.Trailer.Get("X-Announced"), "1")
		want(t, "other trailer", resp.Trailer.Get("X-Late"), "2")
	})
}

// TestTrailersThatFrameAreDropped: a server that adds trailers to the head would believe them.
func TestTrailersThatFrameAreDropped(t *testing.T) {
	both(t, func(t *testing.T, setUp ...func(*httptest.Server)) {
		address, _ := breaking(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Connection, X-Sum\r\n\r\n"+
			"4\r\nbody\r\n0\r\nX-Sum: 7\r\nX-Late: 8\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n"+
			"Connection: close\r\n\r\n")
		resp, body := worldBefore(t, loose+all, address, setUp...).get("/")
		want(t, "body", body, "body")
		want(t, "the trailer", textOf(resp.Trailer), "X-Late: 8\nX-Sum: 7")
	})
}

// TestInformationalAnswersPass: 103 with its fields, and 100 when the upstream wants the body.
func TestInformationalAnswersPass(t *testing.T) {
	both(t, func(t *testing.T, setUp ...func(*httptest.Server)) {
		w := newWorld(t, loose+all, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</style.css>")
			w.WriteHeader(http.StatusEarlyHints)
			body, _ := io.ReadAll(r.Body)
			_, _ = w.Write(body)
		}, setUp...)
		hints, goOn := make(chan string, 10), make(chan struct{}, 1)
		req := w.ask(http.MethodPost, "/", strings.NewReader("body"), "Expect", "100-continue")
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				if code != http.StatusContinue {
					hints <- fmt.Sprint(code, h.Get("Link"))
				}
				return nil
			},
			Got100Continue: func() { goOn <- struct{}{} },
		}))
		_, body := w.do(req)
		want(t, "body", body, "body")
		want(t, "hint", tested.Event(t, hints), "103</style.css>")
	})
}

// TestHTTP10HasNoInformationalAnswers: RFC 9110, 15.2.
func TestHTTP10HasNoInformationalAnswers(t *testing.T) {
	w := newWorld(t, loose+all, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "body")
	})
	resp, body := w.raw("GET / HTTP/1.0\nHost: a\n\n")
	want(t, "status", resp.StatusCode, http.StatusOK)
	want(t, "body", body, "body")
}

// echo takes a connection over, as a WebSocket does.
func echo(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "echo" {
		w.WriteHeader(http.StatusUpgradeRequired)
		return
	}
	c, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer c.Close()
	_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n" +
		"Upgrade: echo\r\n\r\n")
	_ = buffered.Flush()
	_, _ = io.Copy(c, buffered)
}

// TestUpgradesPass: bytes go both ways, and the slot is held until the connection ends.
func TestUpgradesPass(t *testing.T) {
	for _, policy := range []string{"fixed", "tracking"} {
		w := newWorld(t, "[limiters.all]\nin-flight = 1\nmode = \"refuse\"\npolicy = \""+policy+"\"\n"+
			all, echo)
		c := w.dial()
		_, err := io.WriteString(c,
			"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nbefore it was asked\n")
		must(t, err)
		r := bufio.NewReader(c)
		resp, err := http.ReadResponse(r, nil)
		must(t, err)
		want(t, "status", resp.StatusCode, http.StatusSwitchingProtocols)
		want(t, "Upgrade", resp.Header.Get("Upgrade"), "echo")
		early, err := r.ReadString('\n')
		must(t, err)
		want(t, "what came with the request", early, "before it was asked\n")
		for i := range 3 {
			line := fmt.Sprintf("line %d\n", i)
			_, err := io.WriteString(c, line)
			must(t, err)
			got, err := r.ReadString('\n')
			must(t, err)
			want(t, "echo", got, line)
		}
		second, _ := w.get("/")
		want(t, "status while the slot is held", second.StatusCode, http.StatusTooManyRequests)
		must(t, c.Close())
		until(t, "the slot is free", func() bool { return w.limiter().Stats().InFlight == 0 })
	}
}

// TestUpgradeBehindABody: it would not be clear where the other protocol begins, so the upstream is not asked for it.
func TestUpgradeBehindABody(t *testing.T) {
	w := newWorld(t, loose+all, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header["Upgrade"]) })
	c := w.dial()
	_, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, close\r\nUpgrade: echo\r\n"+
		"Content-Length: 1\r\n\r\nx")
	must(t, err)
	text, err := io.ReadAll(c)
	must(t, err)
	want(t, "Upgrade", strings.HasSuffix(string(text), "\r\n\r\n[]"), true)
}

// TestUpgradeIsNotGranted: an upstream that switches to another protocol than was requested, or without a
// request, is broken. Its connection is closed.
func TestUpgradeIsNotGranted(t *testing.T) {
	const switches = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
	both(t, func(t *testing.T, setUp ...func(*httptest.Server)) {
		for name, tt := range map[string]struct {
			answer string
			header []string // over HTTP/1
		}{
			"another protocol": {switches + "Upgrade: other\r\n\r\n",
				[]string{"Connection", "Upgrade", "Upgrade", "echo"}},
			"unasked": {switches + "Upgrade: other\r\n\r\n", nil},
			"none":    {switches + "\r\n", nil},
		} {
			wrong, _ := breaking(t, tt.answer)
			w := worldBefore(t, loose+all, wrong, setUp...)
			header := tt.header
			if len(setUp) > 0 { // HTTP/2 has no such fields
				header = nil
			}
			resp, body := w.get("/", header...)
			wantProblem(t, name, resp, body, http.StatusBadGateway)
			until(t, name+": nothing is in flight", func() bool {
				return w.proxy.ups.(*upstream.Pool).State()[0].InFlight == 0
			})
		}
	})
}

// TestWaitersLeave: a request that waits ends when its client goes, also with a body that is not read, and
// reaches no upstream.
func TestWaitersLeave(t *testing.T) {
	both(t, func(t *testing.T, setUp ...func(*httptest.Server)) {
		up, entered, stop := holding(t)
		w := newWorld(t, one+all, up, setUp...)
		first := w.later(t.Context(), "")
		tested.Event(t, entered)
		for _, body := range []string{"", "short", strings.Repeat("a", 60_000)} {
			ctx, cancel := context.WithCancel(t.Context())
			ended := w.later(ctx, body)
			w.waiting(1)
			cancel()
			want(t, "status of a request that was given up", tested.Event(t, ended), 0)
			w.waiting(0)
		}
		stop()
		want(t, "status of the first", tested.Event(t, first), 200)
		want(t, "further requests at the upstream", len(entered), 0)
	})
}

// TestClientLeavesTheUpstream: the upstream notices that the client has gone.
func TestClientLeavesTheUpstream(t *testing.T) {
	both(t, func(t *testing.T, setUp ...func(*httptest.Server)) {
		up, entered, _ := holding(t)
		left := make(chan struct{})
		w := newWorld(t, one+all, func(w http.ResponseWriter, r *http.Request) {
			up(w, r)
			close(left)
		}, setUp...)
		ctx, cancel := context.WithCancel(t.Context())
		w.later(ctx, "")
		tested.Event(t, entered)
		cancel()
		tested.Event(t, left)
		until(t, "the slot is free", func() bool { return w.limiter().Stats().InFlight == 0 })
	})
}

// TestDrainAnswersWaiters: with 503 at once; what was admitted is finished.
func TestDrainAnswersWaiters(t *testing.T) {
	up, entered, stop := holding(t)
	w := newWorld(t, one+all, up)
	first := w.later(t.Context(), "body")
	tested.Event(t, entered)
	second := w.later(t.Context(), "body")
	w.waiting(1)
	w.proxy.Drain()
	want(t, "status of the waiter", tested.Event(t, second), http.StatusServiceUnavailable)
	stop()
	want(t, "status of what was admitted", tested.Event(t, first), http.StatusOK)
}
