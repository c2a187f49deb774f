package lease

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// through puts f before the server a. It answers itself where it returns true.
func (w *world) through(f func(out http.ResponseWriter, r *http.Request) bool) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.net.hosts["a"] = &struct {
		http.Handler
	}{http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if !f(out, r) {
			w.servers["a"].ServeHTTP(out, r)
		}
	})}
}

// A 200 that is not the server's grants nothing: a proxy may send one, for all requests.
func TestClientAnotherAnswer(t *testing.T) {
	for _, body := range []string{"42", "true", "<html>Please log in.</html>", ""} {
		inWorld(t, mutex("A"), func(t *testing.T, w *world) {
			w.through(func(out http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "/A") {
					_, _ = io.WriteString(out, body)
					return true
				}
				return false
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := w.client().Lock(ctx, "A", 1)
			synctest.Wait() // the peer is removed
			if odd := (*AnswerError)(nil); !errors.As(err, &odd) || odd.Status != http.StatusOK ||
				odd.Text != body {
				t.Errorf("%q: %v", body, err)
			}
		})
	}
}

// A heartbeat and a restore that something else answers with 200 are no contact.
func TestClientAnotherAnswerToHeartbeats(t *testing.T) {
	for _, path := range []string{"/peers/", "/restore"} {
		inWorld(t, mutex("A"), func(t *testing.T, w *world) {
			l, began := locked(t, t.Context(), w.client(), "A"), time.Now()
			w.start("a", ServerOptions{}) // which knows nothing
			w.through(func(out http.ResponseWriter, r *http.Request) bool {
				if strings.HasPrefix(r.URL.Path, path) {
					_, _ = io.WriteString(out, "<html>Please log in.</html>")
					return true
				}
				return false
			})
			time.Sleep(time.Minute)
			if err := l.Err(); !errors.Is(err, ErrCutOff) {
				t.Errorf("%s: %v after %v", path, err, time.Since(began))
			}
		})
	}
}

// A grace time that is too short to hold anything makes no storm of requests.
func TestClientShortGrace(t *testing.T) {
	config := mutex("A")
	config.Grace = time.Millisecond
	inWorld(t, config, func(t *testing.T, w *world) {
		time.Sleep(config.Grace)
		err := w.servers["a"].do(func(t *Table, now time.Time) error {
			_, err := t.Restore(1, time.Hour, []Restored{{Semaphore: "A", Count: 1}}, now)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.client().Lock(ctx, "A", 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		synctest.Wait() // the peer is removed
		if n := w.net.count("PUT"); n > 50 {
			t.Errorf("%d requests in a second, want at most 50", n)
		}
	})
}
