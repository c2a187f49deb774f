package door

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// holding asks for the one slot, to be held.
func (w *world) holding(ctx context.Context, query string) *http.Response {
	s := plain()
	s.target = "/slots/"
	r := s.described("haproxy").WithContext(ctx)
	r.Method, r.RequestURI, r.URL.RawQuery = http.MethodPost, "/decide?"+query, query
	return do(w.door, r)
}

// releasing releases a permit, and returns the status.
func (w *world) releasing(token string) int {
	r := plain().described("haproxy")
	r.Method, r.RequestURI = http.MethodPost, "/release"
	r.Header = http.Header{permitField: {token}}
	return do(w.door, r).StatusCode
}

// TestHold: a slot stays taken until it is released, its time is over, or the door shuts.
func TestHold(t *testing.T) {
	for name, c := range map[string]struct {
		query string
		end   func(t *testing.T, w *world, token string)
	}{
		"released": {"hold=1h", func(t *testing.T, w *world, token string) {
			want(t, "release", w.releasing(token), 204)
			want(t, "another release", w.releasing(token), 404)
		}},
		"after its time": {"hold=30s", func(t *testing.T, w *world, token string) {
			time.Sleep(30*time.Second - 1)
			want(t, "one more, before", w.holding(t.Context(), "hold=1s").StatusCode, 429)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			want(t, "release", w.releasing(token), 404)
		}},
		"after max-hold": {"hold=24h", func(t *testing.T, w *world, token string) {
			time.Sleep(time.Minute)
			synctest.Wait()
			want(t, "release", w.releasing(token), 404)
		}},
		"drained": {"hold=1h", func(t *testing.T, w *world, token string) {
			w.door.Drain()
			synctest.Wait()
			want(t, "release", w.releasing(token), 404)
			want(t, "held from now on", w.holding(t.Context(), "hold=1s").StatusCode, 503)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "haproxy")
				ctx, leave := context.WithCancel(t.Context())
				res := w.holding(ctx, c.query)
				leave() // the answer is there
				token := res.Header.Get(permitField)
				want(t, "status", res.StatusCode, 200)
				want(t, "length of the token", len(token), 32)
				want(t, "one more", w.holding(t.Context(), "hold=1s").StatusCode, 429)
				want(t, "release by a guess", w.releasing(strings.Repeat("0", 32)), 404)
				c.end(t, w, token)
				want(t, "the slot is free", w.holding(t.Context(), "").StatusCode, 200)
				w.door.Drain()
				synctest.Wait()
				want(t, "places taken", w.door.permits.taken, 0)
				want(t, "tokens", len(w.door.permits.held), 0)
			})
		})
	}
}

// TestHoldsNothing: a question that does not ask to hold, or may not, leaves its slot free.
func TestHoldsNothing(t *testing.T) {
	ask := func(t *testing.T, profile, method, query string) *http.Response {
		w := newWorld(t, profile)
		defer w.door.Drain()
		s := plain()
		s.method, s.target = method, "/slots/"
		if profile == "envoy" {
			s.target += "?" + query
		}
		s.header.Set("Quotient-Hold", "1m")
		r := s.described(profile)
		if profile != "envoy" {
			r.Method, r.RequestURI, r.URL.RawQuery = method, "/decide?"+query, query
		}
		res := do(w.door, r)
		if l, _ := w.reg.Get("slots"); res.Header.Get(permitField) == "" {
			want(t, "slots taken", l.Stats().InFlight, 0)
		}
		return res
	}
	for name, c := range map[string]struct {
		profile, method, query string
		status                 int
		held                   bool
	}{
		"held":                                 {"forward-auth", "POST", "hold=1m", 200, true},
		"no word of it":                        {"forward-auth", "POST", "", 200, false},
		"by GET, with the query of its client": {"forward-auth", "GET", "hold=1m", 200, false},
		"the client's own path and query":      {"envoy", "POST", "hold=1m", 200, false},
		"no duration":                          {"nginx", "POST", "hold=long", 403, false},
		"none":                                 {"nginx", "POST", "hold=0s", 403, false},
		"less than none":                       {"nginx", "POST", "hold=-1s", 403, false},
		"empty":                                {"nginx", "POST", "hold=", 403, false},
		"two":                                  {"nginx", "POST", "hold=1s&hold=2s", 403, false},
		"a query that is none":                 {"nginx", "POST", "hold=1s&%zz", 403, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				res := ask(t, c.profile, c.method, c.query)
				want(t, "status", res.StatusCode, c.status)
				want(t, "held", res.Header.Get(permitField) != "", c.held)
			})
		})
	}
}

// TestHoldIsBounded: in number and in bytes, and a place is free again when its permit is.
func TestHoldIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "haproxy")
		w.door.permits.taken = maxPermits - 1
		res := w.holding(t.Context(), "hold=1m")
		want(t, "the last place", res.StatusCode, 200)
		want(t, "one more", w.holding(t.Context(), "hold=1m").StatusCode, 503)
		want(t, "one that holds nothing", w.holding(t.Context(), "").StatusCode, 429)
		want(t, "release", w.releasing(res.Header.Get(permitField)), 204)
		synctest.Wait()
		want(t, "places taken", w.door.permits.taken, maxPermits-1)
		s := plain()
		s.header.Set("X-Long", strings.Repeat("x", maxHead))
		r := s.described("haproxy")
		r.Method, r.RequestURI, r.URL.RawQuery = http.MethodPost, "/decide?hold=1m", "hold=1m"
		want(t, "a long head", do(w.door, r).StatusCode, 431)
	})
}

// TestHoldEndsWithWhoAsks: who leaves before there is an answer holds nothing.
func TestHoldEndsWithWhoAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "haproxy")
		entered := make(chan struct{})
		w.door.SetHandler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			close(entered)
			<-r.Context().Done() // as one that waits for its turn
			w.proxy.ServeHTTP(rw, r)
		}))
		ctx, leave := context.WithCancel(t.Context())
		go func() { <-entered; leave() }()
		res := w.holding(ctx, "hold=1h")
		want(t, "token", res.Header.Get(permitField), "")
		synctest.Wait()
		want(t, "places taken", w.door.permits.taken, 0)
	})
}

// TestPanicIsNoAdmission: a panic of the handler is one answer, and not the end of the process.
func TestPanicIsNoAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "haproxy")
		w.door.SetHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = w.door.RoundTrip(r)
			panic("on purpose")
		}))
		want(t, "status", w.holding(t.Context(), "hold=1m").StatusCode, 503)
		synctest.Wait()
		want(t, "places taken", w.door.permits.taken, 0)
	})
}

// TestRelease: who may, and how a token is named.
func TestRelease(t *testing.T) {
	w := newWorld(t, "haproxy")
	zero := strings.Repeat("0", 32)
	for name, c := range map[string]struct {
		method, query, from string
		fields              []string
		status              int
	}{
		"by the query":          {"POST", "token=" + zero, asker, nil, 404},
		"by the field":          {"POST", "", asker, []string{zero}, 404},
		"twice":                 {"POST", "token=" + zero, asker, []string{zero}, 400},
		"not at all":            {"POST", "", asker, nil, 400},
		"no token":              {"POST", "token=x", asker, nil, 404},
		"a long one":            {"POST", "token=" + zero + "0", asker, nil, 404},
		"no hexadecimal number": {"POST", "token=" + strings.Repeat("g", 32), asker, nil, 404},
		"by GET":                {"GET", "token=" + zero, asker, nil, 405},
		"by a stranger":         {"POST", "token=" + zero, "192.0.2.7:1", nil, 403},
	} {
		r := read(t, c.from, fmt.Sprintf("%s /release?%s HTTP/1.1\nHost: a", c.method, c.query))
		if c.fields != nil {
			r.Header[permitField] = c.fields
		}
		want(t, name, do(w.door, r).StatusCode, c.status)
	}
}

// TestReleasesAtOnce: one of many that release a permit does.
func TestReleasesAtOnce(t *testing.T) {
	w := newWorld(t, "haproxy")
	for range 50 {
		token := w.holding(t.Context(), "hold=1m").Header.Get(permitField)
		statuses := make(chan int, 4)
		var all sync.WaitGroup
		for range cap(statuses) {
			all.Go(func() { statuses <- w.releasing(token) })
		}
		all.Wait()
		sum := 0
		for range cap(statuses) {
			sum += <-statuses
		}
		want(t, "statuses", sum, 204+3*404)
	}
}
