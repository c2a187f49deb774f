package httplimit

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
)

// toldToGo fails unless an answer sends its client to another replica.
func toldToGo(t *testing.T, resp *http.Response) {
	t.Helper()
	var p problem
	if err := json.Unmarshal([]byte(readAll(t, resp.Body)), &p); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" || p.Type != reducedCapacity ||
		p.RetryAfter != 1 || len(p.Violated) > 0 {
		t.Errorf("status %d, Retry-After %q, %+v; want 503, 1 and %s", resp.StatusCode,
			resp.Header.Get("Retry-After"), p, reducedCapacity)
	}
}

// Whatever its body and however long it may wait, a request that waits is answered when draining begins.
func TestDrainEndsWaits(t *testing.T) {
	for name, raw := range map[string]string{
		"GET": "GET / HTTP/1.1\r\nHost: h\r\n\r\n", "small POST": sized("text"), "large POST": sized(long),
		"chunked POST":            chunked("text"),
		"POST that does not come": head + "Content-Length: 4\r\n\r\nte",
		"POST that is asked for":  head + "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n",
	} {
		for _, wait := range []time.Duration{Forever, time.Hour} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, drain := context.WithCancel(t.Context())
					g := serveGated(t, Wait(wait), UnreadBodyWait(time.Hour), Drain(ctx))
					c := g.send(t, raw)
					time.Sleep(time.Minute)
					start := time.Now()
					drain()
					toldToGo(t, answer(t, c))
					if waited := time.Since(start); waited > 0 {
						t.Errorf("%v after draining has begun", waited)
					}
					g.waiting(t, 0)
					inFlight(t, g.limiter, 1)
					g.permit.Release()
					g.over(t)
				})
			})
		}
	}
}

// An admitted request goes on, one that has room is served, and one that would have to wait is sent away at
// once.
func TestDrainLeavesTheRestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, drain := context.WithCancel(t.Context())
		l := limiter(t, oneSlot)
		release, served := make(chan struct{}), 0
		h := Middleware(l, Constant("k"), Wait(time.Hour),
			Drain(ctx))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/held" {
				<-release
			}
			if err := r.Context().Err(); err != nil {
				t.Errorf("the handler's context has ended: %v", err)
			}
			served++
		}))
		held := make(chan int)
		go func() { held <- ask(h, get(t, "/held")).Code }()
		synctest.Wait()
		drain()
		synctest.Wait()
		for _, r := range []*http.Request{get(t, "/"), post(t, newBody("text"))} {
			start := time.Now()
			w := ask(h, r)
			toldToGo(t, w.Result())
			if waited := time.Since(start); waited > 0 {
				t.Errorf("%s: waited for %v", r.Method, waited)
			}
		}
		close(release)
		if code := <-held; code != 200 || served != 1 {
			t.Errorf("status %d for what was being served, %d served", code, served)
		}
		for _, r := range []*http.Request{get(t, "/"), post(t, newBody("text"))} {
			if w := ask(h, r); w.Code != 200 {
				t.Errorf("%s: status %d with room, want 200", r.Method, w.Code)
			}
		}
		idle(t, l)
		if s := l.Stats(); s.Waiting != 0 {
			t.Errorf("%d wait", s.Waiting)
		}
	})
}

// A limit that refuses at once does so while a server drains too, and Drain changes nothing without Wait.
func TestDrainIsForWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, drain := context.WithCancel(t.Context())
		drain()
		for _, tt := range []struct {
			limit quotient.Limit
			opts  []Option
			want  int
		}{
			{oneSlot, nil, 429}, {quotient.Limit{Deny: true}, []Option{Wait(Forever)}, 429},
			{rates(quotient.Every(time.Hour)), []Option{Wait(time.Second)}, 429},
			{oneSlot, []Option{Wait(Forever)}, 503},
		} {
			for _, r := range []*http.Request{get(t, "/"), post(t, newBody("text"))} {
				l := limiter(t, tt.limit)
				l.TryAcquire("/")
				if w := ask(Middleware(l, Path(), append(tt.opts, Drain(ctx))...)(ok), r); w.Code != tt.want {
					t.Errorf("%v, %s: status %d, want %d", tt.limit, r.Method, w.Code, tt.want)
				}
			}
		}
	})
}

// A client that leaves while it waits is no drained one, and a request that does not wait costs nothing more.
func TestDrainBesideLeavingClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		held, _ := l.TryAcquire("k")
		var why []quotient.Decision
		note := OnRefuse(func(_ http.ResponseWriter, _ *http.Request, d quotient.Decision) {
			why = append(why, d)
		})
		h := Middleware(l, Constant("k"), Wait(Forever), Drain(context.Background()), note)(ok)
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan int)
		go func() { done <- ask(h, get(t, "/").WithContext(ctx)).Code }()
		synctest.Wait()
		leave()
		if code := <-done; code != 503 || len(why) != 1 || why[0] != (quotient.Decision{}) {
			t.Errorf("status %d, %v", code, why)
		}
		held.Release()
		idle(t, l)
	})
	ctx, drain := context.WithCancel(t.Context())
	defer drain()
	h := Middleware(limiter(t, plenty), Path(), Wait(Forever), Drain(ctx))(nothing)
	r := get(t, "/")
	if n := testing.AllocsPerRun(1000, func() { h.ServeHTTP(noWriter{}, r) }); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
}

// refusedOnce is a handler that refuses, with a hook.
func refusedOnce(t *testing.T, f func(http.ResponseWriter, *http.Request, quotient.Decision)) http.Handler {
	l := limiter(t, rates(quotient.Rate{Name: "minute", Events: 1, Per: time.Minute, Burst: 1}))
	l.Allow("/x")
	return Middleware(l, Path(), SendFields(FieldsDraft11), OnRefuse(f))(ok)
}

func TestOnRefuse(t *testing.T) {
	for _, tt := range []struct {
		name              string
		write             func(http.ResponseWriter)
		status            int
		body, contentType string
	}{
		{"nothing", func(http.ResponseWriter) {}, 429, `"retry-after-seconds":60`,
			"application/problem+json"},
		{"a body", func(w http.ResponseWriter) { _, _ = w.Write([]byte("slow down")) }, 429, "slow down", ""},
		{"a type", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/x")
			_, _ = w.Write([]byte("slow down"))
		}, 429, "slow down", "text/x"},
		{"a status", func(w http.ResponseWriter) { w.WriteHeader(420) }, 420, "", ""},
		{"a hint first", func(w http.ResponseWriter) { w.WriteHeader(103) }, 429, `"retry-after-seconds":60`,
			"application/problem+json"},
		{"a flush", func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }, 429, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got quotient.Decision
				h := refusedOnce(t, func(w http.ResponseWriter, r *http.Request, d quotient.Decision) {
					got = d
					h := w.Header()
					if h.Get("Retry-After") != "60" || h.Get("Cache-Control") != "no-store" ||
						h.Get("RateLimit") != `"minute";r=0;t=60` {
						t.Errorf("the hook sees %v", h)
					}
					if r.URL.Path != "/x" {
						t.Errorf("the request is for %s", r.URL)
					}
					tt.write(w)
				})
				resp, err := serve(t, h).client(t).Get("http://h/x")
				if err != nil {
					t.Fatal(err)
				}
				text := readAll(t, resp.Body)
				if resp.StatusCode != tt.status || !strings.Contains(text, tt.body) ||
					tt.body == "" && text != "" {
					t.Errorf("status %d, body %q", resp.StatusCode, text)
				}
				if tt.contentType != "" && resp.Header.Get("Content-Type") != tt.contentType {
					t.Errorf("Content-Type %q", resp.Header.Get("Content-Type"))
				}
				if resp.Header.Get("Retry-After") != "60" || resp.Header.Get("RateLimit") == "" {
					t.Errorf("the client gets %v", resp.Header)
				}
				want := "refused: rate (minute: share 1 of 1 per 1m), " + "retry after 1m0s"
				if got.String() != want {
					t.Errorf("decision %v, want %s", got, want)
				}
				_ = resp.Body.Close()
			})
		})
	}
}

// A hook that panics leaves nothing taken, and the next request is served as before.
func TestOnRefuseThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		h := Middleware(l, Constant("k"), Wait(time.Second), SendFields(FieldsDraft11),
			OnRefuse(func(http.ResponseWriter, *http.Request, quotient.Decision) {
				panic(http.ErrAbortHandler)
			}))(ok)
		held, _ := l.TryAcquire("k")
		for _, r := range []*http.Request{get(t, "/"), post(t, newBody("text"))} {
			func() {
				defer func() {
					if recover() != http.ErrAbortHandler {
						t.Error("no panic")
					}
				}()
				h.ServeHTTP(httptest.NewRecorder(), r)
			}()
		}
		held.Release()
		idle(t, l)
		if w := ask(h, get(t, "/")); w.Code != 204 {
			t.Errorf("status %d", w.Code)
		}
	})
}

// Each reason has a sentence; none has the key, nor the numbers of the limit.
func TestDetailOfEveryReason(t *testing.T) {
	seen := map[string]bool{}
	for reason := quotient.ReasonNone; reason <= quotient.ReasonPool; reason++ {
		d := quotient.Decision{Reason: reason, Rule: "minute", Unit: "tokens", Limit: 777, Share: 888,
			Window: time.Minute, RetryAfter: 3 * time.Second}
		text := refusalOf(d).detail()
		if strings.Contains(text, "777") || strings.Contains(text, "888") || !strings.HasSuffix(text, ".") {
			t.Errorf("%v: %s", reason, text)
		}
		seen[text] = true
		quota := strings.Contains(string(refusalOf(d).body()), "quota-exceeded")
		if want := statusOf(reason) != 503 && reason != quotient.ReasonDenied; quota != want {
			t.Errorf("%v: %s, of a quota %v, want %v", reason, refusalOf(d).body(), quota, want)
		}
		d.Rule, d.Unit = "", "" // another waiter is next, and its turn has just come
		if text := refusalOf(d).detail(); strings.Contains(text, `""`) {
			t.Errorf("%v: %s", reason, text)
		}
		d.RetryAfter = 0
		if one := refusalOf(d).detail(); strings.Contains(one, "1 seconds") {
			t.Errorf("%v: %s", reason, one)
		}
	}
	for _, want := range []string{
		`The quota of the limit "minute" of tokens is used up. Try again in 3 seconds.`,
		"Too many requests are waiting already. Try again in 3 seconds.",
		"Requests of this client are refused. Trying again does not help.",
		"The limit of concurrent requests is reached. Try again in 3 seconds.",
		"The request would have to wait longer than allowed. Try again in 3 seconds.",
		"The service can accept no more requests for the moment. Try again in 3 seconds.",
		`The request is larger than the limit "minute" of tokens ever allows. A smaller request may pass.`,
	} {
		if !seen[want] {
			t.Errorf("no reason says %q", want)
		}
	}
}
