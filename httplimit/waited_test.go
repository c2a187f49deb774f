package httplimit

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// OnWaited is called for requests that have waited, with a wait that is no overhead.
func TestOnWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		var got []string
		work := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(3 * time.Second) })
		h := Middleware(l, Constant("k"), Wait(Forever),
			OnWaited(func(r *http.Request, waited, overhead time.Duration) {
				got = append(got, fmt.Sprint(r.URL.Path, " ", waited, " ", overhead))
			}))(work)
		for _, path := range []string{"/1", "/2"} {
			go h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
			synctest.Wait()
		}
		slow := httptest.NewRequest(http.MethodPost, "/3", &slowBody{5 * time.Second})
		slow.ContentLength = 4
		go h.ServeHTTP(httptest.NewRecorder(), slow)
		time.Sleep(time.Minute)
		synctest.Wait()
		// The third one's body came after 5 s, and the slot was free after 6.
		if want := []string{"/2 3s 0s", "/3 6s 0s"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		got = nil
		go h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/4", nil))
		synctest.Wait()
		slow = httptest.NewRequest(http.MethodPost, "/5", &slowBody{4 * time.Second})
		slow.ContentLength = 4
		go h.ServeHTTP(httptest.NewRecorder(), slow)
		time.Sleep(time.Minute)
		synctest.Wait()
		// the slot was free before the body was there
		if want := []string{"/5 4s 0s"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		idle(t, l)
	})
}

// A hook that panics loses no permit.
func TestOnWaitedThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		work := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) })
		h := Middleware(l, Constant("k"), Wait(Forever),
			OnWaited(func(*http.Request, time.Duration, time.Duration) { panic("a hook") }))(work)
		go h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		synctest.Wait()
		for _, body := range []io.Reader{nil, &slowBody{2 * time.Second}} {
			r := httptest.NewRequest(http.MethodPost, "/", body)
			if body != nil {
				go Middleware(l, Constant("k"))(work).ServeHTTP(httptest.NewRecorder(),
					httptest.NewRequest(http.MethodGet, "/", nil))
				synctest.Wait()
				r.ContentLength = 4
			}
			if got := panicOf(func() { h.ServeHTTP(httptest.NewRecorder(), r) }); got != "a hook" {
				t.Errorf("panic with %v, want that of the hook", got)
			}
		}
		idle(t, l)
	})
}

// slowBody is a body of four bytes that takes its time.
type slowBody struct{ after time.Duration }

func (b *slowBody) Read(p []byte) (int, error) {
	time.Sleep(b.after)
	b.after = 0
	return copy(p, "body"), io.EOF
}

// NoAnswer keeps a policy from learning from an error of the handler's own.
func TestNoAnswerTeachesNothing(t *testing.T) {
	for _, status := range []int{200, 429, 502, 503} {
		l, heard := learning(t)
		h := Middleware(l, Constant("k"))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			NoAnswer(w)
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(status)
		}))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != status {
			t.Errorf("status %d, want %d", w.Code, status)
		}
		heard.learned(t, policy.Feedback{Outcome: policy.Failed})
	}
	NoAnswer(httptest.NewRecorder()) // no Middleware is there
}

// CanonicalPath is what Path keys by, and is not hashed.
func TestCanonicalPath(t *testing.T) {
	long := "/" + strings.Repeat("a", 300)
	for p, want := range map[string]string{"//A/./b;x/": "/a/b", "": "/", long: long} {
		if got := CanonicalPath(p); got != want {
			t.Errorf("%q is %q, want %q", p, got, want)
		}
	}
}
