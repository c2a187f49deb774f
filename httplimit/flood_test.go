package httplimit

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
)

// flooders is one more than as many full buffers as all bodies together may take, and some.
const flooders = maxAllBuffers/maxBuffer + 6

// flooded is a server whose keys come from the field Key and whose slots are all taken.
type flooded struct {
	*network
	limiter *quotient.Limiter
	m       *middleware
	permits map[string]quotient.Permit
}

func serveFlooded(t *testing.T) *flooded {
	f := &flooded{limiter: limiter(t, oneSlot), permits: map[string]quotient.Permit{}}
	h := Middleware(f.limiter, Header("Key"),
		Wait(Forever))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	f.m = h.(*handler).middleware
	f.network = serve(t, h)
	return f
}

// post takes the slot of a key and sends a request of that key that announces so many bytes, and sends these.
func (f *flooded) post(t *testing.T, key string, announced int, text string) net.Conn {
	t.Helper()
	if _, taken := f.permits[key]; !taken {
		f.permits[key], _ = f.limiter.TryAcquire(key)
	}
	c, err := f.dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: h\r\nKey: %s\r\nContent-Length: %d\r\n\r\n%s", key,
			announced, text)
	}()
	return c
}

// echoed fails unless a request that is admitted now gets its own body back.
func (f *flooded) echoed(t *testing.T, key string, c net.Conn, text string) {
	t.Helper()
	f.permits[key].Release()
	if resp := answer(t, c); resp.StatusCode != 200 || readAll(t, resp.Body) != text {
		t.Errorf("key %s: status %d, want 200 and the body", key, resp.StatusCode)
	}
}

// waiting fails unless n requests wait.
func (f *flooded) waiting(t *testing.T, n int) {
	t.Helper()
	synctest.Wait()
	if got := f.limiter.Stats().Waiting; got != n {
		t.Errorf("%d requests wait, want %d", got, n)
	}
}

// used is how many bytes of how many keys are set aside.
func used(b *bodies) (all, keys int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all, len(b.keys)
}

// over fails unless nothing is held any more.
func (f *flooded) over(t *testing.T) {
	t.Helper()
	for _, permit := range f.permits {
		permit.Release()
	}
	synctest.Wait()
	if s := f.limiter.Stats(); s.InFlight != 0 || s.Waiting != 0 {
		t.Errorf("in flight %d, waiting %d; want none", s.InFlight, s.Waiting)
	}
	if all, keys := used(&f.m.bodies); all != 0 || keys != 0 {
		t.Errorf("%d bytes of %d keys are still set aside", all, keys)
	}
}

// Requests that announce bodies and send none take no other client's right to wait, and are refused when
// their bodies do not come.
func TestAnnouncedBodiesAreNotCounted(t *testing.T) {
	for name, key := range map[string]func(i int) string{
		"one key":   func(int) string { return "flood" },
		"many keys": func(i int) string { return fmt.Sprint("flood", i) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := serveFlooded(t)
				conns := make([]net.Conn, flooders)
				for i := range conns {
					conns[i] = f.post(t, key(i), maxBuffer, "")
				}
				synctest.Wait()
				text := long[1:]
				other := f.post(t, "other", len(text), text)
				f.waiting(t, 1)
				time.Sleep(defaultUnreadBodyWait)
				for _, c := range conns {
					if resp := answer(t, c); resp.StatusCode != 429 || !resp.Close {
						t.Fatalf("a body that does not come: status %d, closing %v; want 429 and the end",
							resp.StatusCode, resp.Close)
					}
				}
				time.Sleep(time.Hour)
				f.waiting(t, 1)
				f.echoed(t, "other", other, text)
				f.over(t)
			})
		})
	}
}

// One key that sends nearly whole bodies fills half of the room, and no more; another client still may wait
// as long as it takes.
func TestOneKeyLeavesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serveFlooded(t)
		for range flooders {
			f.post(t, "flood", maxBuffer, long[2:])
		}
		synctest.Wait()
		if n, _ := used(&f.m.bodies); n > maxAllBuffers/2 || n < maxAllBuffers/2-maxBuffer {
			t.Errorf("%d bytes are set aside for one key, want half of %d", n, maxAllBuffers)
		}
		text := long[1:]
		other := f.post(t, "other", len(text), text)
		synctest.Wait()
		time.Sleep(time.Hour)
		f.waiting(t, 1) // all of the flood were refused when their bodies did not come
		f.echoed(t, "other", other, text)
		f.over(t)
	})
}

// Many keys fill nearly all, never more than that; a request without a body, or with a small one, waits as
// always.
func TestManyKeysStayWithinTheTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serveFlooded(t)
		for i := range 2 * flooders {
			f.post(t, fmt.Sprint("flood", i), maxBuffer, long[2:])
		}
		synctest.Wait()
		if n, _ := used(&f.m.bodies); n > maxAllBuffers || n < maxAllBuffers*9/10 {
			t.Errorf("%d bytes are set aside, want nearly %d", n, maxAllBuffers)
		}
		none := f.post(t, "none", 0, "")
		text := strings.Repeat("x", uncounted)
		small := f.post(t, "small", len(text), text)
		synctest.Wait()
		time.Sleep(time.Hour)
		f.waiting(t, 2)
		f.echoed(t, "none", none, "")
		f.echoed(t, "small", small, text)
		f.over(t)
	})
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
	l := limiter(t, oneSlot)
	permit, _ := l.TryAcquire("/")
	h := Middleware(l, Path(), Wait(Forever))(ok)
	r := post(t, &body{Reader: io.MultiReader(strings.NewReader(long[:maxBuffer/2]), panicking{})})
	if got := panicOf(func() { ask(h, r) }); got != "a body" {
		t.Errorf("panic with %v, want that of the body", got)
	}
	if all := h.(*handler).bodies.all; all != 0 {
		t.Errorf("%d bytes are still set aside", all)
	}
	permit.Release()
	idle(t, l)
}

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("a body") }

// The time for a body and the wait after it are one bound.
func TestSlowBodyAndWaitAreBoundedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serveFlooded(t)
		start := time.Now()
		c := f.post(t, "slow", len(long), long) // too long to be read before the wait
		if resp := answer(t, c); resp.StatusCode != 429 || time.Since(start) != defaultUnreadBodyWait {
			t.Errorf("status %d after %v, want 429 after %v", resp.StatusCode, time.Since(start),
				defaultUnreadBodyWait)
		}
		start = time.Now()
		f.permits["chunked"], _ = f.limiter.TryAcquire("chunked")
		c, err := f.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			_, _ = io.WriteString(c,
				"POST / HTTP/1.1\r\nHost: h\r\nKey: chunked\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
			time.Sleep(6 * time.Second)
			_, _ = fmt.Fprintf(c, "%x\r\n%s\r\n0\r\n\r\n", len(long), long)
		}()
		if resp := answer(t, c); resp.StatusCode != 429 || time.Since(start) != defaultUnreadBodyWait {
			t.Errorf("status %d after %v, want 429 after %v", resp.StatusCode, time.Since(start),
				defaultUnreadBodyWait)
		}
		f.over(t)
	})
}

// A body that comes late, but in time, has not lost anything: the deadlines of the connection are as they
// were.
func TestSlowBodyIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := serveFlooded(t)
		c := f.post(t, "slow", 4, "te")
		synctest.Wait()
		time.Sleep(defaultUnreadBodyWait - time.Second)
		go func() { _, _ = io.WriteString(c, "xt") }()
		synctest.Wait()
		time.Sleep(time.Hour)
		f.waiting(t, 1)
		f.echoed(t, "slow", c, "text")
		go func() {
			_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nKey: slow\r\nContent-Length: 4\r\n\r\n")
			time.Sleep(time.Minute)
			_, _ = io.WriteString(c, "next")
		}()
		if resp := answer(t, c); resp.StatusCode != 200 || readAll(t, resp.Body) != "next" {
			t.Errorf("the next request: status %d, want 200 and its body", resp.StatusCode)
		}
		f.over(t)
	})
}
