package httplimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
)

// long is a body that is too long to be buffered.
var long = strings.Repeat("x", maxBuffer+1)

// post makes a request over HTTP/1 with a body of unknown length.
func post(t testing.TB, b io.ReadCloser) *http.Request {
	r := get(t, "/")
	r.Method, r.Body, r.ContentLength = "POST", b, -1
	return r
}

// gated is a server whose one slot is taken, and what its handler got.
type gated struct {
	*network
	limiter *quotient.Limiter
	m       *middleware
	permit  quotient.Permit
	bodies  chan string
}

func serveGated(t *testing.T, opts ...Option) *gated {
	g := &gated{limiter: limiter(t, oneSlot), bodies: make(chan string, 10)}
	h := Middleware(g.limiter, Constant("k"), append([]Option{Wait(Forever)},
		opts...)...)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("reading the body: %v", err)
		}
		g.bodies <- string(text)
	}))
	g.m = h.(*handler).middleware
	g.permit, _ = g.limiter.TryAcquire("k")
	g.network = serve(t, h)
	return g
}

// waiting fails unless n requests wait.
func (g *gated) waiting(t *testing.T, n int) {
	t.Helper()
	synctest.Wait()
	if got := g.limiter.Stats().Waiting; got != n {
		t.Errorf("%d requests wait, want %d", got, n)
	}
}

// over fails unless everything was given back.
func (g *gated) over(t *testing.T) {
	t.Helper()
	synctest.Wait()
	idle(t, g.limiter)
	if left, _ := used(&g.m.bodies); left != 0 {
		t.Errorf("%d bytes are still set aside", left)
	}
}

const head = "POST / HTTP/1.1\r\nHost: h\r\n"

func chunked(text string) string {
	return fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", head, len(text), text)
}

func sized(text string) string {
	return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(text), text)
}

func TestLeavingClientIsNoticed(t *testing.T) {
	for name, raw := range map[string]string{
		"GET":                  "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"empty POST":           sized(""),
		"small POST":           sized("text"),
		"small chunked POST":   chunked("text"),
		"POST of 64 KiB":       sized(long[1:]),
		"chunked, of 64 KiB":   chunked(long[1:]),
		"HTTP/1.0, small POST": "POST / HTTP/1.0\r\nContent-Length: 1\r\n\r\nx",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := serveGated(t)
				c := g.send(t, raw)
				g.waiting(t, 1)
				time.Sleep(24 * time.Hour)
				g.waiting(t, 1)
				_ = c.Close()
				g.waiting(t, 0)
				g.permit.Release()
				g.over(t)
				if len(g.bodies) != 0 {
					t.Error("the handler ran for a client that had left")
				}
			})
		})
	}
}

func TestBodyIsReplayed(t *testing.T) {
	for name, text := range map[string]string{
		"empty":  "",
		"small":  "text",
		"64 KiB": long[1:],
		"longer": long,
		"1 MiB":  strings.Repeat("abcdefgh", 1<<17),
	} {
		for framing, raw := range map[string]string{"chunked": chunked(text), "sized": sized(text)} {
			t.Run(name+" "+framing, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := serveGated(t)
					c := g.send(t, raw)
					g.waiting(t, 1)
					time.Sleep(5 * time.Second)
					g.permit.Release()
					if resp := answer(t, c); resp.StatusCode != 200 {
						t.Fatalf("status %d, want 200", resp.StatusCode)
					}
					if got := <-g.bodies; got != text {
						t.Errorf("the handler read %d bytes, want the %d that were sent", len(got), len(text))
					}
					g.over(t)
				})
			})
		}
	}
}

func TestWaitWithAnUnreadBodyIsBounded(t *testing.T) {
	expect := head + "Expect: 100-Continue\r\nContent-Length: 4\r\n\r\n"
	for name, raw := range map[string]string{
		"chunked": chunked(long),
		"sized":   sized(long),
		"expect":  expect,
	} {
		for _, bound := range []time.Duration{defaultUnreadBodyWait, time.Minute} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := serveGated(t, UnreadBodyWait(bound))
					start := time.Now()
					resp := answer(t, g.send(t, raw))
					if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "1" {
						t.Errorf("status %d, Retry-After %q; want 429, 1", resp.StatusCode,
							resp.Header.Get("Retry-After"))
					}
					if waited := time.Since(start); waited != bound {
						t.Errorf("refused after %v, want %v", waited, bound)
					}
					if text := readAll(t, resp.Body); !strings.Contains(text,
						`"violated-policies":["in-flight"]`) {
						t.Errorf("body %s does not name the rule", text)
					}
					g.permit.Release()
					g.over(t)
				})
			})
		}
	}
}

// The client sends its body when the handler asks for it, not before.
func TestExpectContinueIsLeftToTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := serveGated(t)
		c := g.send(t, head+"Expect: 100-continue\r\nContent-Length: 4\r\n\r\n")
		g.waiting(t, 1)
		g.permit.Release()
		if resp := answer(t, c); resp.StatusCode != 100 {
			t.Fatalf("status %d, want 100 after the admission", resp.StatusCode)
		}
		go func() { _, _ = io.WriteString(c, "text") }()
		if resp := answer(t, c); resp.StatusCode != 200 {
			t.Fatalf("status %d, want 200", resp.StatusCode)
		}
		if got := <-g.bodies; got != "text" {
			t.Errorf("the handler read %q, want text", got)
		}
		g.over(t)
	})
}

func TestAllBuffersTogetherAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := serveGated(t)
		const taken = maxAllBuffers - 2*uncounted + 1 // one byte too many for one more
		g.m.bodies.all = taken
		fits := g.send(t, sized(long[:uncounted]))
		start := time.Now()
		if resp := answer(t, g.send(t, sized(long[:2*uncounted]))); resp.StatusCode != 429 ||
			time.Since(start) != defaultUnreadBodyWait {
			t.Errorf("status %d after %v, want 429 after %v", resp.StatusCode, time.Since(start),
				defaultUnreadBodyWait)
		}
		g.waiting(t, 1)
		g.permit.Release()
		if resp := answer(t, fits); resp.StatusCode != 200 {
			t.Errorf("status %d, want 200", resp.StatusCode)
		}
		if all, _ := used(&g.m.bodies); all != taken {
			t.Errorf("%d bytes are set aside, want %d", all, taken)
		}
		g.m.bodies.all = 0
		g.over(t)
	})
}

// An outer handler may have unpacked a body and left its length as it was.
func TestNoMoreIsReadThanIsAnnounced(t *testing.T) {
	for _, announced := range []int{10, uncounted, 3 * uncounted} {
		m := Middleware(limiter(t, oneSlot), Path())(ok).(*handler).middleware
		b := newBody(long)
		r := post(t, b)
		r.ContentLength = int64(announced)
		read := buffer{room: &m.bodies, key: "k"}
		read.read(httptest.NewRecorder(), r, time.Now().Add(soon), nil)
		if most := max(announced+1-uncounted, 0); m.bodies.all != most || read.complete || read.late {
			t.Errorf("%d bytes are set aside, complete %v, late %v; want %d", m.bodies.all, read.complete,
				read.late, most)
		}
		if left := len(readAll(t, b)); left != len(long)-announced-1 {
			t.Errorf("%d of %d bytes are left, want all but %d", left, len(long), announced+1)
		}
		if text := readAll(t, r.Body); text != long[:announced+1] {
			t.Errorf("%d bytes are replayed, want %d", len(text), announced+1)
		}
		if read.free(); m.bodies.all != 0 {
			t.Errorf("%d bytes are left", m.bodies.all)
		}
	}
}

// thief is a context that is asked for its state between the look and the admission.
type thief struct {
	context.Context
	steal func()
}

func (c thief) Err() error { c.steal(); return c.Context.Err() }

// Room that a request has seen may be gone when it is admitted: it must not wait unread.
func TestRoomThatIsGoneAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		b := newBody("text")
		steal := func() {
			if permit, decision := l.TryAcquire("/"); decision.OK {
				time.AfterFunc(24*time.Hour, permit.Release)
			}
		}
		start := time.Now()
		ask(Middleware(l, Path(), Wait(Forever))(ok), post(t, b).WithContext(thief{t.Context(), steal}))
		if waited := time.Since(start); waited > defaultUnreadBodyWait && readAll(t, b) == "text" {
			t.Errorf("waited %v with an unread body", waited)
		}
		time.Sleep(24 * time.Hour)
		idle(t, l)
	})
}

// The same, by chance: of many that come at once, all that wait were read.
func TestWhoWaitsWasRead(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			l, over := limiter(t, oneSlot), make(chan bool)
			h := Middleware(l, Path(),
				Wait(Forever))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
			bodies := make([]*body, 16)
			for i := range bodies {
				bodies[i] = newBody("text")
				r := post(t, bodies[i])
				go ask(h, r)
			}
			synctest.Wait()
			unread := 0
			for _, b := range bodies {
				unread += b.Reader.(*strings.Reader).Len() / len("text")
			}
			if unread > 1 {
				t.Errorf("%d bodies are unread, want at most that of the request that has the slot", unread)
			}
			close(over)
			synctest.Wait()
			idle(t, l)
		})
	}
}

// Within the limit nothing is read before the handler asks for it.
func TestBodyIsNotTouchedWithoutWaiting(t *testing.T) {
	for _, opts := range [][]Option{nil, {Wait(time.Hour)}, {Wait(Forever)}} {
		l := limiter(t, oneSlot)
		b := newBody("text")
		h := Middleware(l, Path(), opts...)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Body != io.ReadCloser(b) {
				t.Error("the body was replaced")
			}
		}))
		if w := ask(h, post(t, b)); w.Code != 200 {
			t.Errorf("status %d, want 200", w.Code)
		}
	}
}

// brokenBody fails once, after its text.
func brokenBody() *body { return &body{Reader: iotest.TimeoutReader(strings.NewReader("text"))} }

func TestErrorOfTheBodyIsReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		permit, _ := l.TryAcquire("/")
		time.AfterFunc(time.Second, permit.Release)
		read := ""
		h := Middleware(l, Path(),
			Wait(Forever))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			text, err := io.ReadAll(r.Body)
			if read = string(text); !errors.Is(err, iotest.ErrTimeout) {
				t.Errorf("error %v, want %v", err, iotest.ErrTimeout)
			}
			_ = r.Body.Close()
		}))
		b := brokenBody()
		if w := ask(h, post(t, b)); w.Code != 200 || read != "text" || b.closed != 1 {
			t.Errorf("status %d, read %q, closed %d times; want 200, text, once", w.Code, read, b.closed)
		}
		idle(t, l)
	})
}

// When the body could not be read, the client's leaving would not be noticed.
func TestWaitWithABrokenBodyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		permit, _ := l.TryAcquire("/")
		start := time.Now()
		if w := ask(Middleware(l, Path(), Wait(Forever))(ok), post(t, brokenBody())); w.Code != 429 ||
			time.Since(start) != defaultUnreadBodyWait {
			t.Errorf("status %d after %v, want 429 after %v", w.Code, time.Since(start),
				defaultUnreadBodyWait)
		}
		permit.Release()
		idle(t, l)
	})
}

// A body that is known to be too long is left alone.
func TestLongBodyIsNotReadBeforeTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		permit, _ := l.TryAcquire("/")
		b := newBody(long)
		r := post(t, b)
		r.ContentLength = int64(len(long))
		if w := ask(Middleware(l, Path(), Wait(Forever))(ok), r); w.Code != 429 {
			t.Errorf("status %d, want 429", w.Code)
		}
		if left := len(readAll(t, b)); left != len(long) {
			t.Errorf("%d bytes are left, want all %d", left, len(long))
		}
		permit.Release()
		idle(t, l)
	})
}

// HTTP/2 reports clients that leave, whatever their body: nothing is read and nothing bounds the wait.
func TestBodyOfHTTP2IsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		permit, _ := l.TryAcquire("/")
		time.AfterFunc(time.Hour, permit.Release)
		b := newBody(long)
		r := post(t, b)
		r.ProtoMajor = 2
		if w := ask(Middleware(l, Path(), Wait(Forever))(ok), r); w.Code != 204 ||
			r.Body != io.ReadCloser(b) || len(readAll(t, b)) != len(long) {
			t.Errorf("status %d, want 204 and the whole body", w.Code)
		}
		idle(t, l)
	})
}

// A dry run holds no request back, and reads no body: here the client sends none for 20 s.
func TestDryRunReadsNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, rates(quotient.Every(time.Hour)))
		l.SetDryRun(true)
		h := Middleware(l, Path(), Wait(Forever))(ok)
		body, client := io.Pipe()
		defer func() { _ = client.Close() }()
		for range 2 {
			start := time.Now()
			timer := time.AfterFunc(20*time.Second, func() { _ = client.Close() })
			if w := ask(h, post(t, body)); w.Code >= 400 || time.Since(start) > 0 {
				t.Errorf("status %d after %v", w.Code, time.Since(start))
			}
			timer.Stop()
		}
	})
}
