package httplimit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
)

// hourly is a limit of one request an hour.
var hourly = quotient.Rates(quotient.Rate{Name: "hour", Events: 1, Per: time.Hour, Burst: 1})

// Without Wait a request over the limit is refused at once, and its body is not read.
func TestRefusesByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		permit, _ := l.TryAcquire("/")
		around := Around(l)
		for name, h := range map[string]http.Handler{
			"Middleware": Middleware(l, Path())(ok),
			"Around": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				around(w, r, "/", ok)
			}),
		} {
			b := newBody("text")
			for _, r := range []*http.Request{get(t, "/"), post(t, b)} {
				start := time.Now()
				checkRefusal(t, ask(h, r), 429, "1", []string{"in-flight"})
				if waited := time.Since(start); waited != 0 {
					t.Errorf("%s, %s: refused after %v, want at once", name, r.Method, waited)
				}
			}
			if text := readAll(t, b); text != "text" {
				t.Errorf("%s: of the body %q is left, want all of it", name, text)
			}
		}
		if s := l.Stats(); s.Waited != 0 || s.Refused[quotient.ReasonInFlight] != 4 {
			t.Errorf("waited %d, refused %v; want 0 and 4 for a slot", s.Waited, s.Refused)
		}
		permit.Release()
		idle(t, l)
	})
}

// waitingRequests are a request without a body and one whose body has to be read before the wait.
func waitingRequests(t *testing.T) map[string]*http.Request {
	return map[string]*http.Request{"GET": get(t, "/"), "POST": post(t, newBody("text"))}
}

func TestWaitEndsWithTheTurn(t *testing.T) {
	for name := range waitingRequests(t) {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, oneSlot)
			permit, _ := l.TryAcquire("/")
			time.AfterFunc(time.Minute-1, permit.Release)
			start := time.Now()
			w := ask(Middleware(l, Path(), Wait(time.Minute))(ok), waitingRequests(t)[name])
			if w.Code != 204 || time.Since(start) != time.Minute-1 {
				t.Errorf("%s: status %d after %v, want 204 after a minute", name, w.Code, time.Since(start))
			}
			if s := l.Stats(); s.Admitted != 2 || s.Waited != 1 || len(s.Refused) != 0 || s.Cancelled != 0 {
				t.Errorf("%s: counted %+v, want one that waited and no refusal", name, s)
			}
			idle(t, l)
		})
	}
}

// The limit's patience is over, and not the client's: 429 with a time to come back.
func TestWaitEndsWithMax(t *testing.T) {
	for name := range waitingRequests(t) {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, quotient.Limit{InFlight: 1, Rates: hourly.Rates})
			l.TryAcquire("/") // an hour's event, and the slot for good
			time.Sleep(2 * time.Hour)
			start := time.Now()
			w := ask(Middleware(l, Path(), Wait(time.Minute))(ok), waitingRequests(t)[name])
			checkRefusal(t, w, 429, "1", []string{"in-flight"})
			if waited := time.Since(start); waited != time.Minute {
				t.Errorf("%s: refused after %v, want a minute", name, waited)
			}
			if s := l.Stats(); s.Waiting != 0 || s.Cancelled != 1 {
				t.Errorf("%s: waiting %d, cancelled %d; want 0, 1", name, s.Waiting, s.Cancelled)
			}
		})
	}
}

// A turn that is known to come after max is not waited for, nor is the body of its request.
func TestTurnAfterMaxIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, hourly)
		l.TryAcquire("/")
		b := newBody("text")
		for _, r := range []*http.Request{get(t, "/"), post(t, b)} {
			start := time.Now()
			w := ask(Middleware(l, Path(), Wait(time.Hour-1))(ok), r)
			checkRefusal(t, w, 429, "3600", []string{"hour"})
			if waited := time.Since(start); waited != 0 {
				t.Errorf("%s: refused after %v, want at once", r.Method, waited)
			}
		}
		if text := readAll(t, b); text != "text" {
			t.Errorf("of the body %q is left, want all of it", text)
		}
		if w := ask(Middleware(l, Path(), Wait(time.Hour+time.Millisecond))(ok), get(t, "/")); w.Code != 204 {
			t.Errorf("status %d for a turn just in time, want 204", w.Code)
		}
	})
}

// A request that might be admitted at once stands behind those that wait, and they are served in order of
// arrival however long each may wait.
func TestWaitKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, quotient.Rates(quotient.Every(time.Second)))
		l.TryAcquire("/")
		served := make(chan string, 3)
		h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { served <- r.Header.Get("Name") })
		send := func(name string, opts ...Option) int {
			r := get(t, "/")
			r.Header.Set("Name", name)
			return ask(Middleware(l, Path(), opts...)(h), r).Code
		}
		for _, waiter := range []struct {
			name string
			most time.Duration
		}{{"first", time.Minute}, {"second", Forever}, {"third", 3100 * time.Millisecond}} {
			go send(waiter.name, Wait(waiter.most))
			synctest.Wait()
		}
		if code := send("too late", Wait(3100*time.Millisecond)); code != 429 {
			t.Errorf("status %d for the fourth in line that waits for three turns, want 429", code)
		}
		time.Sleep(time.Second - time.Millisecond)
		if code := send("no wait"); code != 429 {
			t.Errorf("status %d for one that does not wait, want 429", code)
		}
		for _, want := range []string{"first", "second", "third"} {
			if got := <-served; got != want {
				t.Errorf("served %q, want %q", got, want)
			}
		}
	})
}

func TestClientLeavesABoundedWait(t *testing.T) {
	for name := range waitingRequests(t) {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, oneSlot)
			permit, _ := l.TryAcquire("/")
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			start := time.Now()
			w := ask(Middleware(l, Path(), Wait(time.Minute))(ok), waitingRequests(t)[name].WithContext(ctx))
			if checkRefusal(t, w, 503, "1", []string{}); time.Since(start) != time.Second {
				t.Errorf("%s: after %v, want 1s", name, time.Since(start))
			}
			permit.Release()
			idle(t, l)
		})
	}
}

// The shorter one of two bounds counts.
func TestShorterBoundOfAWait(t *testing.T) {
	patient := func(d time.Duration) []quotient.Option { return []quotient.Option{quotient.MaxWait(d)} }
	tests := []struct {
		name  string
		limit []quotient.Option
		opts  []Option
		body  string
		want  time.Duration
	}{
		{"the limiter's", patient(2 * time.Second), []Option{Wait(time.Minute)}, "", 2 * time.Second},
		{"ours", patient(time.Minute), []Option{Wait(2 * time.Second)}, "", 2 * time.Second},
		{"no place", []quotient.Option{quotient.MaxWaiting(0, 0)}, []Option{Wait(time.Minute)}, "", 0},
		{"unread body", nil, []Option{Wait(time.Minute)}, long, defaultUnreadBodyWait},
		{"ours, unread body", nil, []Option{Wait(2 * time.Second)}, long, 2 * time.Second},
		{"unread body, long", nil, []Option{Wait(time.Minute), UnreadBodyWait(time.Hour)}, long, time.Minute},
		{"forever, unread body", nil, []Option{Wait(Forever)}, long, defaultUnreadBodyWait},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, oneSlot, tt.limit...)
				permit, _ := l.TryAcquire("/")
				start := time.Now()
				r := get(t, "/")
				if tt.body != "" {
					r = post(t, newBody(tt.body))
				}
				w := ask(Middleware(l, Path(), tt.opts...)(ok), r)
				checkRefusal(t, w, 429, "1", []string{"in-flight"})
				if waited := time.Since(start); waited != tt.want {
					t.Errorf("refused after %v, want %v", waited, tt.want)
				}
				permit.Release()
				idle(t, l)
			})
		})
	}
}

// The time for a body is a part of max, and a body that does not come within it is not waited for.
func TestMaxCountsFromTheArrival(t *testing.T) {
	for _, after := range []time.Duration{2 * time.Second, 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			g := serveGated(t, Wait(3*time.Second))
			start := time.Now()
			c := g.send(t, head+"Content-Length: 4\r\n\r\n")
			time.AfterFunc(after, func() { _, _ = c.Write([]byte("text")) })
			resp := answer(t, c)
			if waited := time.Since(start); resp.StatusCode != 429 || waited != 3*time.Second {
				t.Errorf("a body after %v: %d after %v, want 429 after 3s", after, resp.StatusCode, waited)
			}
			_ = c.Close()
			g.permit.Release()
			g.over(t)
		})
	}
}

func TestNoWaitInADryRun(t *testing.T) {
	for name := range waitingRequests(t) {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, hourly)
			l.SetDryRun(true)
			start := time.Now()
			for range 3 {
				w := ask(Middleware(l, Path(), Wait(time.Minute))(ok), waitingRequests(t)[name])
				if w.Code != 204 {
					t.Errorf("%s: status %d, want 204", name, w.Code)
				}
			}
			if s := l.Stats(); time.Since(start) != 0 || s.DryRunAdmitted[quotient.ReasonRate] != 2 {
				t.Errorf("%s: after %v, %v; want at once, and two", name, time.Since(start), s.DryRunAdmitted)
			}
		})
	}
}

// A replica that does not know its share answers 503 after a wait too.
func TestWaitForThePoolEndsWith503(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot, quotient.AwaitPool(), quotient.HintMaxAge(time.Minute), quotient.Replicas(4))
		start := time.Now()
		w := ask(Middleware(l, Path(), Wait(time.Second))(ok), get(t, "/"))
		if checkRefusal(t, w, 503, "1", []string{}); time.Since(start) != time.Second {
			t.Errorf("refused after %v, want 1s", time.Since(start))
		}
	})
}

// Decisions after a wait have the reason, the rule, and the time that is left now.
func TestDecisionsAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &handler{middleware: newMiddleware("Middleware", limiter(t, hourly), nil)}
		waited := quotient.Decision{}
		if got, want := h.overdue("k", nil, waited),
			(quotient.Decision{Reason: quotient.ReasonWait}); got != want {
			t.Errorf("room by now: %+v, want %+v", got, want)
		}
		h.limiter.TryAcquire("k")
		time.Sleep(time.Minute)
		got := h.overdue("k", nil, waited)
		left := got.RetryAfter.Round(time.Second)
		if got.OK || got.Reason != quotient.ReasonRate || got.Rule != "hour" || left != 59*time.Minute {
			t.Errorf("no room yet: %+v, want the rate of the hour for 59m", got)
		}
		early, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, tt := range []struct {
			ctx    context.Context
			reason quotient.Reason
			want   bool
		}{
			{t.Context(), quotient.ReasonDeadline, true},
			{early, quotient.ReasonDeadline, false},
			{t.Context(), quotient.ReasonQueue, false},
		} {
			p := newPatience(tt.ctx, time.Time{}, time.Minute, nil)
			if got := p.isTooShort(quotient.Decision{Reason: tt.reason}); got != tt.want {
				t.Errorf("%v: %v, want %v", tt.reason, got, tt.want)
			}
			p.end()
		}
	})
}

// A patience is a context: it ends with the request's, or when its time is over, whichever comes first.
func TestPatienceIsAContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			request time.Duration
			want    time.Duration
		}{{0, time.Minute}, {time.Second, time.Second}, {time.Hour, time.Minute}} {
			ctx, cancel := t.Context(), func() {}
			if tt.request > 0 {
				ctx, cancel = context.WithTimeout(ctx, tt.request)
			}
			p := newPatience(ctx, time.Time{}, time.Minute, nil)
			if end, ok := p.Deadline(); !ok || time.Until(end) != tt.want || p.Err() != nil {
				t.Errorf("request %v: %v left, %v; want %v", tt.request, time.Until(end), p.Err(), tt.want)
			}
			began := time.Now()
			<-p.Done()
			if waited := time.Since(began); waited != tt.want || p.Err() != context.DeadlineExceeded {
				t.Errorf("request %v: over after %v, error %v; want %v", tt.request, waited, p.Err(), tt.want)
			}
			p.end()
			cancel()
		}
	})
}

// The longest bound that is not Forever is far away, and does not overflow.
func TestLongestBoundedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		permit, _ := l.TryAcquire("/")
		time.AfterFunc(24*time.Hour, permit.Release)
		w := httptest.NewRecorder()
		Middleware(l, Path(), Wait(Forever-1))(ok).ServeHTTP(w, get(t, "/"))
		if w.Code != 204 {
			t.Errorf("status %d, want 204", w.Code)
		}
		idle(t, l)
	})
}
