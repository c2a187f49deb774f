package httplimit

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

// gated is a server whose keys come from the field Key, and whose slots are taken. Its handler sends a body back.
type gated struct {
	*network
	limiter *quotient.Limiter
	m       *middleware
	permits map[string]quotient.Permit
	served  int
}

func serveGated(t *testing.T, opts ...Option) *gated {
	g := &gated{limiter: limiter(t, oneSlot), permits: map[string]quotient.Permit{}}
	h := Middleware(g.limiter, Header("Key"), append([]Option{Wait(Forever)}, opts...)...)(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			g.served++
			text, err := io.ReadAll(r.Body)
			tested.Want(t, "reading the body", err, nil)
			_, _ = w.Write(text)
		}))
	g.m = h.(*handler).middleware
	g.take("")
	g.network = serve(t, h)
	return g
}

// take takes the slot of a key.
func (g *gated) take(key string) {
	if _, taken := g.permits[key]; !taken {
		g.permits[key], _ = g.limiter.TryAcquire(key)
	}
}

func (g *gated) release(key string) { g.permits[key].Release(); delete(g.permits, key) }

// post takes the slot of a key, and sends a request of that key that announces so many bytes, and sends these.
func (g *gated) post(t *testing.T, key string, announced int, text string) net.Conn {
	t.Helper()
	g.take(key)
	return g.send(t, fmt.Sprintf("%sKey: %s\r\nContent-Length: %d\r\n\r\n%s", head, key, announced, text))
}

// echoed fails unless a request that is admitted now gets its own body back.
func (g *gated) echoed(t *testing.T, key string, c net.Conn, text string) {
	t.Helper()
	g.release(key)
	if resp := answer(t, c); resp.StatusCode != 200 || readAll(t, resp.Body) != text {
		t.Errorf("key %q: status %d, want 200 and the body", key, resp.StatusCode)
	}
}

// refused fails unless a request is refused so long after a start.
func (g *gated) refused(t *testing.T, c net.Conn, start time.Time, after time.Duration) *http.Response {
	t.Helper()
	resp := answer(t, c)
	if resp.StatusCode != 429 || time.Since(start) != after {
		t.Errorf("status %d after %v, want 429 after %v", resp.StatusCode, time.Since(start), after)
	}
	return resp
}

// waiting fails unless n requests wait.
func (g *gated) waiting(t *testing.T, n int) {
	t.Helper()
	synctest.Wait()
	tested.Want(t, "requests that wait", g.limiter.Stats().Waiting, n)
}

// used is how many bytes of how many keys are set aside.
func used(b *bodies) (all, keys int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all, len(b.keys)
}

// over fails unless nothing is held once all slots are given back.
func (g *gated) over(t *testing.T) {
	t.Helper()
	for key := range g.permits {
		g.release(key)
	}
	synctest.Wait()
	idle(t, g.limiter)
	if all, keys := used(&g.m.bodies); all != 0 || keys != 0 {
		t.Errorf("%d bytes of %d keys are still set aside", all, keys)
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
		bubble(t, name, func(t *testing.T) {
			g := serveGated(t)
			c := g.send(t, raw)
			time.Sleep(24 * time.Hour)
			g.waiting(t, 1)
			_ = c.Close()
			g.waiting(t, 0)
			g.over(t)
			tested.Not(t, g.served > 0, "the handler ran for a client that had left")
		})
	}
}

func TestBodyIsReplayed(t *testing.T) {
	for _, text := range []string{"", "text", long[1:], long, strings.Repeat("abcdefgh", 1<<17)} {
		for framing, raw := range map[string]string{"chunked": chunked(text), "sized": sized(text)} {
			bubble(t, fmt.Sprint(framing, " ", len(text)), func(t *testing.T) {
				g := serveGated(t)
				c := g.send(t, raw)
				g.waiting(t, 1)
				time.Sleep(5 * time.Second)
				g.echoed(t, "", c, text)
				g.over(t)
			})
		}
	}
}

func TestWaitWithAnUnreadBodyIsBounded(t *testing.T) {
	for name, raw := range map[string]string{
		"chunked": chunked(long), "sized": sized(long),
		"expect": head + "Expect: 100-Continue\r\nContent-Length: 4\r\n\r\n",
	} {
		for _, bound := range []time.Duration{defaultUnreadBodyWait, time.Minute} {
			bubble(t, name, func(t *testing.T) {
				g := serveGated(t, UnreadBodyWait(bound))
				start := time.Now()
				resp := g.refused(t, g.send(t, raw), start, bound)
				text, again := readAll(t, resp.Body), resp.Header.Get("Retry-After")
				if !strings.Contains(text, `"violated-policies":["in-flight"]`) || again != "1" {
					t.Errorf("body %s, Retry-After %q", text, again)
				}
				g.over(t)
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
		g.release("")
		tested.Want(t, "status", answer(t, c).StatusCode, 100)
		go func() { _, _ = io.WriteString(c, "text") }()
		if resp := answer(t, c); resp.StatusCode != 200 || readAll(t, resp.Body) != "text" {
			t.Errorf("status %d, want 200 and the body", resp.StatusCode)
		}
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
		tested.Want(t, "bytes left to read", len(readAll(t, b)), len(long)-announced-1)
		if text := readAll(t, r.Body); text != long[:announced+1] {
			t.Errorf("%d bytes are replayed, want %d", len(text), announced+1)
		}
		read.free()
		tested.Want(t, "bytes left", m.bodies.all, 0)
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

// Within the limit nothing is read before the handler asks for it.
func TestBodyIsNotTouchedWithoutWaiting(t *testing.T) {
	for _, opts := range [][]Option{nil, {Wait(time.Hour)}, {Wait(Forever)}} {
		b := newBody("text")
		h := handle(limiter(t, oneSlot), func(_ http.ResponseWriter, r *http.Request) {
			tested.Want(t, "the body that the handler gets", r.Body, io.ReadCloser(b))
		}, opts...)
		tested.Want(t, "status", ask(h, post(t, b)).Code, 200)
	}
}

// brokenBody fails once, after its text.
func brokenBody() *body { return &body{Reader: iotest.TimeoutReader(strings.NewReader("text"))} }

func TestErrorOfTheBodyIsReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, held := taken(t)
		time.AfterFunc(time.Second, held.Release)
		b, read := brokenBody(), ""
		h := handle(l, func(_ http.ResponseWriter, r *http.Request) {
			text, err := io.ReadAll(r.Body)
			read = string(text)
			tested.Is(t, "reading the body", err, iotest.ErrTimeout)
			_ = r.Body.Close()
		}, Wait(Forever))
		if w := ask(h, post(t, b)); w.Code != 200 || read != "text" || b.closed != 1 {
			t.Errorf("status %d, read %q, closed %d times; want 200, text, once", w.Code, read, b.closed)
		}
		idle(t, l)
	})
}

// When the body could not be read, the client's leaving would not be noticed. One that is known to be too long is
// left alone. HTTP/2 reports clients that leave, whatever their body: nothing is read and nothing bounds the wait.
func TestBodiesThatAreNotReadBeforeTheWait(t *testing.T) {
	for name, tt := range map[string]struct {
		body   *body
		change func(*http.Request)
		left   int
		status int
		after  time.Duration
	}{
		"broken": {brokenBody(), func(*http.Request) {}, 0, 429, defaultUnreadBodyWait},
		"long": {newBody(long), func(r *http.Request) { r.ContentLength = int64(len(long)) }, len(long), 429,
			defaultUnreadBodyWait},
		"HTTP/2": {newBody(long), func(r *http.Request) { r.ProtoMajor = 2 }, len(long), 204, time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, held := taken(t)
			time.AfterFunc(time.Hour, held.Release)
			r, start := post(t, tt.body), time.Now()
			tt.change(r)
			w := ask(handle(l, ok, Wait(Forever)), r)
			elapsed(t, start, tt.after)
			if left := len(readAll(t, tt.body)); w.Code != tt.status || left != tt.left {
				t.Errorf("%s: status %d, %d bytes are left; want %d, %d", name, w.Code, left, tt.status, tt.left)
			}
			time.Sleep(time.Hour)
			idle(t, l)
		})
	}
}

// A dry run holds no request back, and reads no body: here the client sends none for 20 s.
func TestDryRunReadsNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, hourly)
		l.SetDryRun(true)
		body, client := io.Pipe()
		defer func() { _ = client.Close() }()
		for _, most := range []time.Duration{Forever, time.Minute} {
			for _, r := range []*http.Request{get(t, "/"), post(t, body)} {
				start := time.Now()
				timer := time.AfterFunc(20*time.Second, func() { _ = client.Close() })
				tested.Want(t, fmt.Sprintf("%s: status", r.Method), ask(handle(l, ok, Wait(most)), r).Code, 204)
				elapsed(t, start, 0)
				timer.Stop()
			}
		}
		tested.Want(t, "admitted by the dry run", l.Stats().DryRunAdmitted[quotient.ReasonRate], 3)
	})
}

// flooders is one more than as many full buffers as all bodies together may take, and some.
const flooders = maxAllBuffers/maxBuffer + 6

// However many requests announce bodies, whether they send nearly all of them or none: no other client loses its
// right to wait, and those whose bodies do not come are refused. One key fills half of the room for bodies at most,
// many keys nearly all. A request without a body, or with a small one, waits as always.
func TestAnnouncedBodiesAreNotCounted(t *testing.T) {
	one, many := func(int) string { return "flood" }, func(i int) string { return fmt.Sprint("flood", i) }
	small, full := strings.Repeat("x", uncounted), long[1:]
	for name, tt := range map[string]struct {
		key         func(i int) string
		n           int
		text        string
		least, most int // bytes that are set aside
		others      []string
	}{
		"one key, announced":   {one, flooders, "", 0, 0, []string{full}},
		"many keys, announced": {many, flooders, "", 0, 0, []string{full}},
		"one key": {one, flooders, long[2:], maxAllBuffers/2 - maxBuffer, maxAllBuffers / 2,
			[]string{full}},
		"many keys": {many, 2 * flooders, long[2:], maxAllBuffers * 9 / 10, maxAllBuffers, []string{"", small}},
	} {
		bubble(t, name, func(t *testing.T) {
			g, start := serveGated(t), time.Now()
			conns := make([]net.Conn, tt.n)
			for i := range conns {
				conns[i] = g.post(t, tt.key(i), maxBuffer, tt.text)
			}
			if n, _ := used(&g.m.bodies); n < tt.least || n > tt.most {
				t.Errorf("%d bytes are set aside, want %d to %d", n, tt.least, tt.most)
			}
			others := map[string]net.Conn{}
			for _, text := range tt.others {
				others[text] = g.post(t, fmt.Sprint("other", len(text)), len(text), text)
			}
			time.Sleep(defaultUnreadBodyWait)
			for _, c := range conns {
				if tt.text == "" && !g.refused(t, c, start, defaultUnreadBodyWait).Close {
					t.Fatal("a body that does not come: the connection goes on")
				}
			}
			time.Sleep(time.Hour)
			g.waiting(t, len(others)) // all of the flood were refused when their bodies did not come
			for text, c := range others {
				g.echoed(t, fmt.Sprint("other", len(text)), c, text)
			}
			g.over(t)
		})
	}
}

// Room is a bound for each key: never more than what stays free.
func TestRoomOfBodies(t *testing.T) {
	var b bodies
	if b.take("a", maxAllBuffers/2+1) || !b.take("a", maxAllBuffers/2) || b.take("a", 1) {
		t.Error("one key may have half")
	}
	if b.take("b", maxAllBuffers/4+1) || !b.take("b", maxAllBuffers/4) {
		t.Error("another key may have half of the rest")
	}
	b.give("a", maxAllBuffers/2)
	if !b.take("b", maxAllBuffers/4) || b.take("b", 1) || len(b.keys) != 1 {
		t.Errorf("what is given back is free again: %d bytes of %d keys", b.all, len(b.keys))
	}
	if b.give("b", maxAllBuffers/2); b.all != 0 || len(b.keys) != 0 {
		t.Errorf("%d bytes of %d keys are left", b.all, len(b.keys))
	}
}

// A body that panics while it is read leaves nothing set aside.
func TestPanicOfABodyGivesItsRoomBack(t *testing.T) {
	l, held := taken(t)
	h := handle(l, ok, Wait(Forever))
	r := post(t, &body{Reader: io.MultiReader(strings.NewReader(long[:maxBuffer/2]), panicking{})})
	tested.Want(t, "the panic", panicOf(func() { ask(h, r) }), "a body")
	tested.Want(t, "bytes that are set aside", h.(*handler).bodies.all, 0)
	held.Release()
	idle(t, l)
}

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("a body") }

// A body that comes late, but in time, has not lost anything: the deadlines of the connection are as they
// were.
func TestSlowBodyIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := serveGated(t)
		c := g.post(t, "slow", 4, "te")
		time.Sleep(defaultUnreadBodyWait - time.Second)
		go func() { _, _ = io.WriteString(c, "xt") }()
		time.Sleep(time.Hour)
		g.waiting(t, 1)
		g.echoed(t, "slow", c, "text")
		go func() {
			_, _ = io.WriteString(c, head+"Key: slow\r\nContent-Length: 4\r\n\r\n")
			time.Sleep(time.Minute)
			_, _ = io.WriteString(c, "next")
		}()
		if resp := answer(t, c); resp.StatusCode != 200 || readAll(t, resp.Body) != "next" {
			t.Errorf("the next request: status %d, want 200 and its body", resp.StatusCode)
		}
		g.over(t)
	})
}
