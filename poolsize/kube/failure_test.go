package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// While all fails there are errors, each attempt later than the one before, and no pool.
func TestFailuresKeepTheirDistance(t *testing.T) {
	bubble(t, func(t *testing.T, a *api, _ *pipes, s *Source) {
		a.set(3)
		a.fault(refuse(true, true, 500, meta.StatusReasonInternalError), nil)
		r := follow(t, s)
		time.Sleep(5 * time.Minute)
		all := r.take()
		if n := len(all); n < 15 || n > 40 {
			t.Errorf("%d attempts in five minutes, want one each 10 to 20 s", n)
		}
		for i, f := range all {
			if f.err == nil {
				t.Errorf("a pool after %v: %v", f.at, f.pool)
			}
			if i > 0 && f.at-all[i-1].at > 4*defaultRefresh {
				t.Errorf("a pause of %v, want at most %v", f.at-all[i-1].at, 4*defaultRefresh)
			}
		}
		a.fault(nil, nil)
		time.Sleep(4 * defaultRefresh)
		if got := last(r.take()); got.pool.Replicas != 3 {
			t.Errorf("at the end: %+v, want 3", got)
		}
	})
}

// A refusal names the permission that is missing, and is client-go's error underneath.
func TestForbidden(t *testing.T) {
	for _, verb := range []string{"list", "watch"} {
		bubble(t, func(t *testing.T, a *api, _ *pipes, s *Source) {
			a.set(3)
			a.fault(refuse(verb == "list", verb == "watch", 403, meta.StatusReasonForbidden), nil)
			r := follow(t, s)
			time.Sleep(30 * time.Second)
			failed := 0
			for _, f := range r.take() {
				if f.err == nil {
					if verb == "list" || f.pool.Replicas != 3 {
						t.Errorf("%s is forbidden: %v", verb, f.pool)
					}
					continue
				}
				failed++
				for _, want := range []string{"kube: Service api: " + verb, "so it is",
					"a Role must allow list and watch of endpointslices"} {
					if !strings.Contains(f.err.Error(), want) {
						t.Errorf("%v, want %q", f.err, want)
					}
				}
				if !apierrors.IsForbidden(f.err) {
					t.Errorf("%v hides that it is 403", f.err)
				}
			}
			if failed == 0 {
				t.Errorf("%s is forbidden, and there is no error", verb)
			}
		})
	}
}

// An error is short, whatever the server has sent.
func TestLongErrorsAreCut(t *testing.T) {
	bubble(t, func(t *testing.T, a *api, _ *pipes, s *Source) {
		a.fault(func(w http.ResponseWriter, _ *http.Request, _ bool) bool {
			status(w, 500, meta.StatusReasonInternalError, strings.Repeat("x", 1<<20))
			return true
		}, nil)
		r := follow(t, s)
		if got := last(r.take()).err; got == nil || len(got.Error()) > 600 {
			t.Errorf("an error of %d bytes, want at most 600", len(fmt.Sprint(got)))
		}
	})
}

// A watch that stands but is silent is begun again, from where it was, and until then the pool is reported.
func TestSilence(t *testing.T) {
	bubble(t, func(t *testing.T, a *api, _ *pipes, s *Source) {
		s.Silence = 30 * time.Second
		a.set(3)
		r := follow(t, s)
		for range 10 { // bookmarks keep a watch
			time.Sleep(29 * time.Second)
			a.bookmark()
			synctest.Wait()
		}
		if lists, watches := a.asked(); lists != 1 || watches != 1 {
			t.Errorf("with bookmarks: %d lists and %d watches, want one of each", lists, watches)
		}
		time.Sleep(2*time.Minute + time.Second)
		if lists, watches := a.asked(); lists != 1 || watches != 5 {
			t.Errorf("without: %d lists and %d watches, want 1 and 5", lists, watches)
		}
		for _, f := range r.take() {
			if f.err != nil || f.pool.Replicas != 3 {
				t.Errorf("after %v: %v, %v; want 3", f.at, f.pool, f.err)
			}
		}
	})
}

// A watch that is not answered keeps nothing alive: there is no report before the answer.
func TestNoAnswerIsNoReport(t *testing.T) {
	bubble(t, func(t *testing.T, a *api, _ *pipes, s *Source) {
		a.set(3)
		r := follow(t, s)
		time.Sleep(2 * time.Second)
		r.take()
		a.fault(hang(true, true), nil)
		a.kick()
		time.Sleep(defaultSilence - time.Second)
		if got := r.take(); len(got) != 0 {
			t.Errorf("while nothing answers: %v, want no report", got)
		}
		time.Sleep(time.Minute)
		got := r.take()
		if len(got) == 0 || got[0].err == nil ||
			!strings.Contains(got[0].err.Error(), "watch: no answer within 2m0s") {
			t.Errorf("then: %v, want errors", got)
		}
	})
}

// Nothing is reported before the first list is there, and it is the newest that is asked for.
func TestFirstList(t *testing.T) {
	bubble(t, func(t *testing.T, a *api, _ *pipes, s *Source) {
		a.set(3)
		a.fault(func(_ http.ResponseWriter, _ *http.Request, watches bool) bool {
			if !watches {
				time.Sleep(10 * time.Second)
			}
			return false
		}, nil)
		r := follow(t, s)
		time.Sleep(9 * time.Second)
		if got := r.take(); len(got) != 0 {
			t.Errorf("before the list: %v", got)
		}
		time.Sleep(time.Second)
		if got := r.sizes(); got != "3" {
			t.Errorf("with the list: %q, want 3", got)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.versions) != 1 || a.versions[0] != "" {
			t.Errorf("lists of the versions %q, want one of the newest", a.versions)
		}
	})
}

// The end comes at once, whatever the source waits for.
func TestEndsAtOnce(t *testing.T) {
	for name, begin := range map[string]func(a *api){
		"all is well":             func(*api) {},
		"a list is not answered":  func(a *api) { a.fault(hang(true, false), nil) },
		"a watch is not answered": func(a *api) { a.fault(hang(false, true), nil) },
		"it waits after a failure": func(a *api) {
			a.fault(refuse(true, true, 500, meta.StatusReasonInternalError), nil)
		},
		"a list is garbage": func(a *api) { a.fault(write(true, true, "[]"), nil) },
	} {
		bubble(t, func(t *testing.T, a *api, _ *pipes, s *Source) {
			a.set(3)
			begin(a)
			r := follow(t, s)
			time.Sleep(20 * time.Second)
			at := time.Now()
			if err := r.stop(); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, want the context's error", name, err)
			}
			if d := time.Since(at); d > 0 {
				t.Errorf("%s: the end took %v", name, d)
			}
		})
	}
}

// Where the server has nothing of the version that a list asks for, the newest is listed, and that is no
// failure.
func TestListOfAForgottenVersion(t *testing.T) {
	bubble(t, func(t *testing.T, a *api, _ *pipes, s *Source) {
		a.set(3)
		r := follow(t, s)
		time.Sleep(2 * time.Second)
		r.take()
		a.fault(func(w http.ResponseWriter, r *http.Request, watches bool) bool {
			if watches || r.URL.Query().Get("resourceVersion") == "" {
				return false
			}
			status(w, http.StatusGone, meta.StatusReasonExpired, "too old")
			return true
		}, nil)
		a.forget()
		a.set(4)
		time.Sleep(3 * time.Second)
		all := r.take()
		for _, f := range all {
			if f.err != nil || f.pool.Replicas != 4 {
				t.Errorf("after %v: %v, %v; want 4 and no error", f.at, f.pool, f.err)
			}
		}
		if len(all) == 0 {
			t.Error("nothing is reported")
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.versions) != 3 || a.versions[1] == "" || a.versions[2] != "" {
			t.Errorf("lists of the versions %q, want the newest, the last one, and the newest again",
				a.versions)
		}
	})
}

// A watch that stands for a moment between failures does not show that all is well: nothing but errors is
// reported.
func TestFlappingWatchProvesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, a *api, _ *pipes, s *Source) {
		a.set(3)
		r := follow(t, s)
		time.Sleep(2 * time.Second)
		r.take()
		var asked atomic.Int32
		a.fault(func(w http.ResponseWriter, r *http.Request, watches bool) bool {
			if !watches || asked.Add(1)%2 == 1 {
				status(w, 429, meta.StatusReasonTooManyRequests, "too many")
				return true
			}
			c := codecFor(r)
			w.Header().Set("Content-Type", c.streamType)
			flush(w)
			select {
			case <-time.After(2 * time.Second):
			case <-r.Context().Done():
			}
			//nolint:errcheck // the client's
			w.Write(c.event(watch.Error, statusOf(429, meta.StatusReasonTooManyRequests, "too many")))
			return true
		}, nil)
		a.kick()
		time.Sleep(20 * time.Minute)
		all := r.take()
		for _, f := range all {
			if f.err == nil {
				t.Errorf("after %v: %v", f.at, f.pool)
			}
		}
		if len(all) < 50 || asked.Load() < 50 {
			t.Errorf("%d reports of %d watches, want 50 or more", len(all), asked.Load())
		}
	})
}
