package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestScansAreShared: within a second all who ask the same get the same answer, and only then is there
// another look.
func TestScansAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t)
		h := quiet(t, l)
		count := func(path string) int { return len(decode[Keys](t, get(path).send(h)).Keys) }
		l.Allow("a")
		if n := count("/keys"); n != 1 {
			t.Errorf("%d keys", n)
		}
		l.Allow("b")
		time.Sleep(scanFresh - 1)
		if n := count("/keys?top=20&limiter=api"); n != 1 {
			t.Errorf("%d keys within a second: another scan", n)
		}
		if n := count("/keys?top=21"); n != 2 {
			t.Errorf("%d keys: a scan for others was shared", n)
		}
		time.Sleep(time.Nanosecond)
		if n := count("/keys"); n != 2 {
			t.Errorf("%d keys after a second", n)
		}
	})
}

// TestScansAreOneAtATime: while one is under way the others wait, and leave when their clients do; no scan is
// made for those.
func TestScansAreOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t)
		h := quiet(t, l).(*Handler)
		h.api.scans.place <- struct{}{} // one that takes long
		c := readContract(t)
		ctx, cancel := context.WithCancel(t.Context())
		answers := make(chan *httptest.ResponseRecorder)
		ask := func(ctx context.Context, path string) {
			rec := httptest.NewRecorder()
			req := overLoopback(httptest.NewRequestWithContext(ctx, "GET", path, nil))
			h.ServeHTTP(rec, req)
			answers <- rec
		}
		for i := range 100 {
			go ask(ctx, fmt.Sprintf("/keys?top=%d", i+1))
		}
		go ask(t.Context(), "/keys")
		synctest.Wait()
		cancel()
		for range 100 {
			rec := <-answers
			if rec.Code != http.StatusServiceUnavailable {
				t.Errorf("a client that has gone: %d", rec.Code)
			}
			documented(t, c, "/keys", "GET", rec.Code, rec.Header(), rec.Body.Bytes())
		}
		if <-h.api.scans.place; (<-answers).Code != http.StatusOK || len(h.api.scans.done) != 1 {
			t.Errorf("%d scans, want that of the client who waited", len(h.api.scans.done))
		}
		for range 10 {
			go ask(ctx, "/keys?top=7")
			if (<-answers).Code != http.StatusServiceUnavailable || len(h.api.scans.done) != 1 {
				t.Error("a scan for a client that had gone before its turn")
			}
		}
	})
}

// TestScansAreForgotten: whatever is requested, few answers are kept.
func TestScansAreForgotten(t *testing.T) {
	l := newLimiter(t)
	h := quiet(t, l).(*Handler)
	for i := range 100 {
		if rec := get(fmt.Sprintf("/keys?top=%d", i+1)).send(h); rec.Code != http.StatusOK ||
			len(h.api.scans.done) > mostScans {
			t.Fatalf("%d, %d answers are kept", rec.Code, len(h.api.scans.done))
		}
	}
}
