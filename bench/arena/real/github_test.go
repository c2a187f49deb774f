package real

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/examples/fleet/upstream"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

const (
	githubLimit = 20 // requests a second
	githubHour  = 5000
	githubHost  = "api.github.com"
)

// github answers as GitHub's API does. Every answer says what is left of an hour's quota. A secondary limit,
// which holds a second's requests, refuses with Retry-After and 403 or 429; no field says anything of it.
type github struct {
	origin, reset time.Time

	mu     sync.Mutex
	left   int
	tokens float64
	last   time.Time
	log    []answer // since origin
}

func newGitHub() *github {
	now := time.Now()
	return &github{origin: now, last: now, reset: now.Add(time.Hour), left: githubHour, tokens: githubLimit}
}

// githubServer is GitHub with a secondary limit of so many requests a second that the hour's quota lasts for
// 250 seconds, as in the simulation.
func githubServer(t *testing.T, _ duel) server {
	g := newGitHub()
	srv := httptest.NewServer(g)
	t.Cleanup(srv.Close)
	return server{srv.URL, githubHost, func(begin time.Time) (all []answer) {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, a := range g.log {
			a.at -= begin.Sub(g.origin)
			all = append(all, a)
		}
		return all
	}}
}

// ServeHTTP answers 200, 403 or 429, and 400 when the request does not say which replica sent it.
func (g *github) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, err := strconv.Atoi(r.Header.Get(upstream.HeaderReplica))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	a := answer{now.Sub(g.origin), g.judge(w.Header(), now), who}
	g.log = append(g.log, a)
	h := w.Header()
	h.Set("X-RateLimit-Resource", "core")
	h.Set("X-RateLimit-Limit", strconv.Itoa(githubHour))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(g.left))
	h.Set("X-RateLimit-Used", strconv.Itoa(githubHour-g.left))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(g.reset.Unix(), 10))
	w.WriteHeader(a.status)
}

// judge takes a request if it may, and returns the status.
func (g *github) judge(h http.Header, now time.Time) int {
	g.tokens = min(githubLimit, g.tokens+githubLimit*now.Sub(g.last).Seconds())
	g.last = now
	if now.After(g.reset) {
		g.left, g.reset = githubHour, now.Add(time.Hour)
	}
	switch {
	case g.left == 0:
		return http.StatusForbidden
	case g.tokens < 1:
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil((1-g.tokens)/githubLimit))))
		return [...]int{http.StatusForbidden, http.StatusTooManyRequests}[len(g.log)%2]
	}
	g.left--
	g.tokens--
	return http.StatusOK
}

// TestGitHub reads the answers as a client does.
func TestGitHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// fake time begins in 2000, when instants still looked like spans
		time.Sleep(2 * 365 * 24 * time.Hour)
		g := newGitHub()
		ask := func() policy.Feedback {
			req, rec := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
			upstream.Sign(req.Header, 1, 0, 0)
			g.ServeHTTP(rec, req)
			f, garbage := httplimit.ProfileFor(githubHost).Feedback(rec.Code, rec.Header(), time.Time{})
			if garbage > 0 {
				t.Fatalf("garbage in %v", rec.Header())
			}
			return f
		}
		want := policy.Feedback{Outcome: policy.Success}
		for i := range githubHour {
			left := float64(githubHour - 1 - i)
			want.Quotas[0] = policy.Quota{Limit: githubHour, Remaining: left, Reset: time.Until(g.reset)}
			if f := ask(); f != want {
				t.Fatalf("request %d: %+v, want %+v", i, f, want)
			}
			if i%githubLimit < githubLimit-1 || i == githubHour-1 {
				continue
			}
			for range 2 { // by either status
				refused := want
				refused.Outcome, refused.RetryAfter = policy.Throttled, time.Second
				if f := ask(); f != refused {
					t.Fatalf("beyond the secondary limit: %+v, want %+v", f, refused)
				}
			}
			time.Sleep(time.Second)
		}
		want.Outcome, want.RetryAfter = policy.Throttled, time.Until(g.reset)
		if f := ask(); f != want {
			t.Fatalf("after the hour's quota: %+v, want %+v", f, want)
		}
		time.Sleep(time.Hour)
		if f := ask(); f.Outcome != policy.Success {
			t.Fatalf("in the next hour: %+v", f)
		}
	})
}
