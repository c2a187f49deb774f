package httplimit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

// Without Wait a request over the limit is refused at once, with it one that is denied, or whose turn is known to
// come after max. Its body is not read.
func TestRefusesAtOnce(t *testing.T) {
	aroundOf := func(l *quotient.Limiter) http.Handler {
		around := Around(l)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { around(w, r, "/", ok) })
	}
	with := func(opts ...Option) func(*quotient.Limiter) http.Handler {
		return func(l *quotient.Limiter) http.Handler { return handle(l, ok, opts...) }
	}
	denied := quotient.Limit{Deny: true}
	for name, tt := range map[string]struct {
		limit      quotient.Limit
		handler    func(*quotient.Limiter) http.Handler
		retryAfter string
		violated   []string
	}{
		"Middleware":       {oneSlot, with(), "1", []string{"in-flight"}},
		"Around":           {oneSlot, aroundOf, "1", []string{"in-flight"}},
		"a turn after max": {hourly, with(Wait(time.Hour - 1)), "3600", []string{"hour"}},
		"denied":           {denied, with(), "", []string{}}, // no waiting helps
		"denied, Wait":     {denied, with(Wait(time.Hour)), "", []string{}},
		"denied, Forever":  {denied, with(Wait(Forever)), "", []string{}},
	} {
		bubble(t, name, func(t *testing.T) {
			l, b, start := limiter(t, tt.limit), newBody("text"), time.Now()
			held, _ := l.TryAcquire("/")
			for i, r := range []*http.Request{get(t, "/"), post(t, b)} {
				after := tt.retryAfter
				if i > 0 && after == "3600" {
					after = "7200" // the first has been promised the next hour's
				}
				checkRefusal(t, ask(tt.handler(l), r), 429, after, tt.violated)
			}
			elapsed(t, start, 0)
			if text := readAll(t, b); text != "text" || l.Stats().Waited != 0 {
				t.Errorf("of the body %q is left, %d waited; want all of it, 0", text, l.Stats().Waited)
			}
			held.Release()
			idle(t, l)
		})
	}
}

// waitingRequests are a request without a body and one whose body has to be read before the wait.
func waitingRequests(t *testing.T) map[string]*http.Request {
	return map[string]*http.Request{"GET": get(t, "/"), "POST": post(t, newBody("text"))}
}

func TestWaitEndsWithTheTurn(t *testing.T) {
	for name := range waitingRequests(t) {
		for _, most := range []time.Duration{time.Minute, Forever - 1, Forever} {
			synctest.Test(t, func(t *testing.T) {
				l, held := taken(t)
				time.AfterFunc(time.Minute-1, held.Release)
				start := time.Now()
				tested.Want(t, name+": status", ask(handle(l, ok, Wait(most)), waitingRequests(t)[name]).Code, 204)
				elapsed(t, start, time.Minute-1)
				if s := l.Stats(); s.Admitted != 2 || s.Waited != 1 || len(s.Refused) != 0 || s.Cancelled != 0 {
					t.Errorf("%s: counted %+v, want one that waited and no refusal", name, s)
				}
				idle(t, l)
			})
		}
	}
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
		tested.Want(t, "status for the fourth in line that waits for three turns",
			send("too late", Wait(3100*time.Millisecond)), 429)
		time.Sleep(time.Second - time.Millisecond)
		tested.Want(t, "status for one that does not wait", send("no wait"), 429)
		for _, want := range []string{"first", "second", "third"} {
			tested.Want(t, "served", <-served, want)
		}
	})
}

// Whether its server may drain or not, a client that leaves gets no Decision.
func TestClientLeavesAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, held := taken(t)
		var why []quotient.Decision
		note := OnRefuse(func(_ http.ResponseWriter, _ *http.Request, d quotient.Decision) { why = append(why, d) })
		drains := Drain(context.Background())
		for _, opts := range [][]Option{{Wait(time.Minute)}, {Wait(Forever)}, {Wait(Forever), drains}} {
			for _, r := range []*http.Request{get(t, "/"), post(t, newBody("text")), post(t, newBody(long))} {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				start := time.Now()
				checkRefusal(t, ask(handle(l, ok, append(opts, note)...), r.WithContext(ctx)), 503, "1", []string{})
				elapsed(t, start, time.Second)
			}
		}
		tested.Not(t, !slices.Equal(why, make([]quotient.Decision, 9)), "told of %v", why)
		held.Release()
		idle(t, l)
	})
}

// The shorter one of two bounds counts.
func TestShorterBoundOfAWait(t *testing.T) {
	patient := func(d time.Duration) []quotient.Option { return []quotient.Option{quotient.MaxWait(d)} }
	for _, tt := range []struct {
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
	} {
		bubble(t, tt.name, func(t *testing.T) {
			l := limiter(t, oneSlot, tt.limit...)
			held, _ := l.TryAcquire("/")
			r, start := get(t, "/"), time.Now()
			if tt.body != "" {
				r = post(t, newBody(tt.body))
			}
			checkRefusal(t, ask(handle(l, ok, tt.opts...), r), 429, "1", []string{"in-flight"})
			elapsed(t, start, tt.want)
			held.Release()
			idle(t, l)
		})
	}
}

// A turn within max is waited for, whatever clients were told that were refused before.
func TestTurnsOfOthersDelayNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, quotient.Rates(quotient.Every(2*defaultUnreadBodyWait)))
		for range 50 {
			l.TryAcquire("/")
		}
		start := time.Now()
		tested.Want(t, "status", ask(handle(l, ok, Wait(time.Minute)), post(t, newBody("text"))).Code, 204)
		elapsed(t, start, 2*defaultUnreadBodyWait)
	})
}

// The time for a body is a part of every bound, and a body that does not come within it is not waited for.
func TestMaxCountsFromTheArrival(t *testing.T) {
	for _, tt := range []struct {
		opts        []Option
		after, want time.Duration
		text        string
	}{
		{[]Option{Wait(3 * time.Second)}, 2 * time.Second, 3 * time.Second, "text"},
		{[]Option{Wait(3 * time.Second)}, 4 * time.Second, 3 * time.Second, "text"},
		{nil, 6 * time.Second, defaultUnreadBodyWait, long},
	} {
		synctest.Test(t, func(t *testing.T) {
			g, start := serveGated(t, tt.opts...), time.Now()
			c := g.send(t, head+"Transfer-Encoding: chunked\r\n\r\n")
			time.AfterFunc(tt.after, func() { _, _ = fmt.Fprintf(c, "%x\r\n%s\r\n0\r\n\r\n", len(tt.text), tt.text) })
			g.refused(t, c, start, tt.want)
			_ = c.Close()
			g.over(t)
		})
	}
}

// toldToGo fails unless an answer sends its client to another replica.
func toldToGo(t *testing.T, resp *http.Response) {
	t.Helper()
	var p problem
	tested.Must(t, json.Unmarshal([]byte(readAll(t, resp.Body)), &p))
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
			bubble(t, name, func(t *testing.T) {
				ctx, drain := context.WithCancel(t.Context())
				g := serveGated(t, Wait(wait), UnreadBodyWait(time.Hour), Drain(ctx))
				c := g.send(t, raw)
				time.Sleep(time.Minute)
				start := time.Now()
				drain()
				toldToGo(t, answer(t, c))
				elapsed(t, start, 0)
				g.waiting(t, 0)
				inFlight(t, g.limiter, 1)
				g.over(t)
			})
		}
	}
}

// An admitted request goes on, one that has room is served, and one that would have to wait is sent away at
// once.
func TestDrainLeavesTheRestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, drain := context.WithCancel(t.Context())
		l, release, served := limiter(t, oneSlot), make(chan struct{}), 0
		h := Middleware(l, Constant("k"), Wait(time.Hour), Drain(ctx))(http.HandlerFunc(
			func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/held" {
					<-release
				}
				tested.Want(t, "the end of the handler's context", r.Context().Err(), nil)
				served++
			}))
		held := make(chan int)
		go func() { held <- ask(h, get(t, "/held")).Code }()
		synctest.Wait()
		drain()
		start := time.Now()
		for _, r := range waitingRequests(t) {
			toldToGo(t, ask(h, r).Result())
		}
		elapsed(t, start, 0)
		close(release)
		if code := <-held; code != 200 || served != 1 {
			t.Errorf("status %d for what was being served, %d served", code, served)
		}
		for method, r := range waitingRequests(t) {
			tested.Want(t, fmt.Sprintf("%s: status with room", method), ask(h, r).Code, 200)
		}
		idle(t, l)
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
			{hourly, []Option{Wait(time.Second)}, 429}, {oneSlot, []Option{Wait(Forever)}, 503},
		} {
			for method, r := range waitingRequests(t) {
				l := limiter(t, tt.limit)
				l.TryAcquire("/")
				if w := ask(handle(l, ok, append(tt.opts, Drain(ctx))...), r); w.Code != tt.want {
					t.Errorf("%v, %s: status %d, want %d", tt.limit, method, w.Code, tt.want)
				}
			}
		}
	})
}

// OnWaited is called for requests that have waited, with a wait that is no overhead. If it panics, no permit is
// lost.
func TestOnWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		var got []string
		work := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(3 * time.Second) })
		hook := OnWaited(func(r *http.Request, waited, overhead time.Duration) {
			got = append(got, fmt.Sprint(r.URL.Path, " ", waited, " ", overhead))
			if r.URL.Path == "/panics" {
				panic("a hook")
			}
		})
		h := Middleware(l, Constant("k"), Wait(Forever), hook)(work)
		slow := func(path string, after time.Duration) *http.Request {
			r := post(t, io.NopCloser(&slowBody{after}))
			r.URL.Path = path
			return r
		}
		for _, tt := range []struct {
			first, second *http.Request
			want          []string
		}{
			// The third one's body comes after 5 s, and the slot is free after 6.
			{get(t, "/2"), slow("/3", 5*time.Second), []string{"/2 3s 0s", "/3 6s 0s"}},
			{nil, slow("/5", 4*time.Second), []string{"/5 4s 0s"}}, // the slot was free before the body was there
			{nil, get(t, "/panics"), []string{"/panics 3s 0s"}},
			{nil, slow("/panics", 4*time.Second), []string{"/panics 4s 0s"}},
		} {
			got = nil
			go ask(h, get(t, "/1"))
			synctest.Wait()
			if tt.first != nil {
				go ask(h, tt.first)
				synctest.Wait()
			}
			value := panicOf(func() { ask(h, tt.second) })
			if panics := tt.second.URL.Path == "/panics"; panics && value != "a hook" || !panics && value != nil {
				t.Errorf("%s: panic with %v", tt.second.URL, value)
			}
			time.Sleep(time.Minute)
			tested.Not(t, !slices.Equal(got, tt.want), "got %q, want %q", got, tt.want)
			idle(t, l)
		}
	})
}

// slowBody is a body of four bytes that takes its time.
type slowBody struct{ after time.Duration }

func (b *slowBody) Read(p []byte) (int, error) {
	time.Sleep(b.after)
	b.after = 0
	return copy(p, "body"), io.EOF
}
