package echolimit_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"go.uber.org/goleak"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/echolimit"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// soon is the deadline of what happens on the real network.
const soon = 10 * time.Second

func limiter(t testing.TB, limit quotient.Limit, opts ...quotient.Option) *quotient.Limiter {
	t.Helper()
	l, err := quotient.New(limit, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// once is a limit of one request an hour.
var once = quotient.Rates(quotient.Every(time.Hour))

// learners are limiters with one slot: under a policy that learns handlers see another writer.
func learners(t testing.TB, opts ...quotient.Option) map[string]*quotient.Limiter {
	slot := quotient.Limit{InFlight: 1}
	return map[string]*quotient.Limiter{
		"fixed":    limiter(t, slot, opts...),
		"learning": limiter(t, slot, append(opts, quotient.Policy(policy.AIMD{}))...),
	}
}

// serve runs a server on the loopback interface and returns its address and a client.
func serve(t *testing.T, h http.Handler) (string, *http.Client) {
	t.Helper()
	s := httptest.NewServer(h)
	base := &http.Transport{}
	t.Cleanup(func() { base.CloseIdleConnections(); s.Close() })
	return s.URL, &http.Client{Transport: base, Timeout: soon}
}

// get sends a request and returns the answer, read to its end.
func get(t testing.TB, c *http.Client, url string) (*http.Response, string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// idle waits until every permit was given back, and fails if one was twice. A client may have the answer
// before the handler has returned.
func idle(t testing.TB, l *quotient.Limiter) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	for state := range l.Keys() {
		key := state.Key
		permit, err := l.Acquire(ctx, key)
		if err != nil {
			t.Fatalf("the permit of %q was not given back: %v", key, err)
		}
		permit.Release()
	}
	if s := l.Stats(); s.InFlight != 0 || s.Waiting != 0 || s.DoubleReleases != 0 {
		t.Errorf("in flight %d, waiting %d, double releases %d; want none", s.InFlight, s.Waiting,
			s.DoubleReleases)
	}
}

func newEcho() *echo.Echo {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	return e
}

// response is echo's own response of a request, whatever stands around it.
func response(t testing.TB, c *echo.Context) *echo.Response {
	t.Helper()
	r, err := echo.UnwrapResponse(c.Response())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// statusOf is the status that was sent.
func statusOf(t testing.TB, c *echo.Context) int { return response(t, c).Status }

func TestRefusal(t *testing.T) {
	l := limiter(t, once)
	router := newEcho()
	var seen []int
	served := 0
	router.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			err := next(c)
			seen = append(seen, statusOf(t, c))
			return err
		}
	})
	router.Use(echolimit.Middleware(l, echolimit.Route(), httplimit.SendFields(httplimit.FieldsDraft11)))
	router.GET("/items/:id", func(c *echo.Context) error { served++; return c.String(http.StatusOK, "item") })
	url, client := serve(t, router)
	resp, text := get(t, client, url+"/items/1")
	if resp.StatusCode != 200 || text != "item" ||
		resp.Header.Get("RateLimit-Policy") != `"interval";q=1;w=3600` {
		t.Errorf("status %d, body %q, fields %v", resp.StatusCode, text, resp.Header)
	}
	resp, text = get(t, client, url+"/items/2")
	if resp.StatusCode != 429 || !strings.Contains(text, `"violated-policies":["interval"]`) ||
		resp.Header.Get("Retry-After") != "3600" ||
		resp.Header.Get("Content-Type") != "application/problem+json" ||
		resp.Header.Get("RateLimit") != `"interval";r=0;t=3600` {
		t.Errorf("status %d, body %q, fields %v", resp.StatusCode, text, resp.Header)
	}
	if served != 1 || !slices.Equal(seen, []int{200, 429}) {
		t.Errorf("%d requests reached the handler, want 1; the handler in front saw %v", served, seen)
	}
}

func nothing(c *echo.Context) error { return c.NoContent(http.StatusNoContent) }

func TestKeys(t *testing.T) {
	l := limiter(t, quotient.Rates(quotient.PerHour(1e6)))
	router := newEcho()
	router.Use(echolimit.Middleware(l, echolimit.Route()))
	router.GET("/items/:id", nothing)
	byToken := echolimit.Middleware(l, echolimit.Request(httplimit.Header("Token")))
	router.PUT("/items/:id", nothing, byToken)
	for _, r := range []struct{ method, path string }{
		{"GET", "/items/1"}, {"GET", "/items/2"}, {"GET", "/nothing/1"}, {"GET", "/nothing/2"},
		{"MADEUP", "/items/1"}, {"MADEUP2", "/items/1"}, {"PUT", "/items/1"},
	} {
		req := httptest.NewRequest(r.method, r.path, nil)
		req.Header.Set("Token", "abc")
		router.ServeHTTP(httptest.NewRecorder(), req)
	}
	var keys []string
	for state := range l.Keys() {
		key := state.Key
		keys = append(keys, key)
	}
	slices.Sort(keys)
	want := []string{"(unmatched)", "GET /items/:id", "OTHER /items/:id", "PUT /items/:id", "abc"}
	if !slices.Equal(keys, want) {
		t.Errorf("keys %q, want %q", keys, want)
	}
}

func TestPanicReleasesOnce(t *testing.T) {
	for name, l := range learners(t) {
		t.Run(name, func(t *testing.T) {
			router := newEcho()
			router.Use(middleware.Recover(),
				echolimit.Middleware(l, echolimit.Route(), httplimit.Wait(httplimit.Forever)))
			router.GET("/", func(*echo.Context) error { panic("a bug") })
			for range 2 {
				w := httptest.NewRecorder()
				router.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
				if w.Code != 500 {
					t.Errorf("status %d, want 500 of echo's own recovery", w.Code)
				}
				idle(t, l)
			}
		})
	}
}

// A handler that streams holds its permit until it returns, and its client reads what was flushed.
func TestStreamHoldsThePermit(t *testing.T) {
	for name, l := range learners(t) {
		t.Run(name, func(t *testing.T) {
			router, end := newEcho(), make(chan struct{})
			router.GET("/", func(c *echo.Context) error {
				_, err := io.WriteString(c.Response(), "first\n")
				c.Response().(http.Flusher).Flush()
				<-end
				return err
			}, echolimit.Middleware(l, echolimit.Route()))
			url, client := serve(t, router)
			resp, err := client.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(resp.Body).ReadString('\n')
			if line != "first\n" || err != nil || l.Stats().InFlight != 1 {
				t.Errorf("read %q, %v; in flight %d, want 1", line, err, l.Stats().InFlight)
			}
			close(end)
			_ = resp.Body.Close()
			idle(t, l)
		})
	}
}

// A body that was read while its request waited comes to the handler whole.
func TestBodyOfAWaitingRequest(t *testing.T) {
	waits := make(chan struct{}, 1)
	onWait := quotient.OnWait(func(string, time.Duration) { waits <- struct{}{} })
	for name, l := range learners(t, onWait) {
		t.Run(name, func(t *testing.T) {
			router := newEcho()
			router.POST("/", func(c *echo.Context) error {
				_, err := io.Copy(c.Response(), c.Request().Body)
				return err
			}, echolimit.Middleware(l, echolimit.Route(), httplimit.Wait(httplimit.Forever)))
			url, client := serve(t, router)
			held, _ := l.TryAcquire("POST /")
			go func() { <-waits; held.Release() }()
			resp, err := client.Post(url, "text/plain", strings.NewReader("the body"))
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if string(text) != "the body" || err != nil {
				t.Errorf("the handler read %q, %v", text, err)
			}
			idle(t, l)
		})
	}
}

// The policy reads the status that is written, also of an error that echo answers.
func TestFeedback(t *testing.T) {
	tooMany := echo.NewHTTPError(429, "slow")
	for name, tt := range map[string]struct {
		handle    echo.HandlerFunc
		throttled uint64
		status    int
	}{
		"nothing": {func(*echo.Context) error { return nil }, 0, 200},
		"json":    {func(c *echo.Context) error { return c.JSON(429, "slow") }, 1, 429},
		"error":   {func(*echo.Context) error { return tooMany }, 1, 429},
		"a bug":   {func(*echo.Context) error { return io.ErrUnexpectedEOF }, 0, 500},
		"error after the answer": {func(c *echo.Context) error {
			_ = c.String(200, "fine")
			return tooMany
		}, 0, 200},
		"flushed": {func(c *echo.Context) error {
			c.Response().(http.Flusher).Flush()
			return tooMany
		}, 0, 200},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, l := range learners(t) {
				router := newEcho()
				var heard error
				router.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
					return func(c *echo.Context) error { heard = next(c); return heard }
				})
				router.GET("/", tt.handle, echolimit.Middleware(l, echolimit.Route()))
				w := httptest.NewRecorder()
				router.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
				if got := l.Stats().Throttled; kind == "learning" && got != tt.throttled {
					t.Errorf("throttled %d, want %d", got, tt.throttled)
				}
				c := router.NewContext(httptest.NewRequest("GET", "/", nil), httptest.NewRecorder())
				want := tt.handle(c)
				if kind == "learning" && !response(t, c).Committed {
					want = nil // it was answered
				}
				if w.Code != tt.status || heard != want {
					t.Errorf("%s: status %d, error %v; want %d, %v", kind, w.Code, heard, tt.status, want)
				}
				idle(t, l)
			}
		})
	}
}

func TestMistakesPanicAtOnce(t *testing.T) {
	for name, mistake := range map[string]func(){
		"nil limiter": func() { echolimit.Middleware(nil, echolimit.Route()) },
		"nil key":     func() { echolimit.Middleware(limiter(t, once), nil) },
		"Request nil": func() { echolimit.Request(nil) },
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, "nil") {
					t.Errorf("%s: panic %s", name, text)
				}
			}()
			mistake()
		}()
	}
}

// One error is one call of echo's error handler, also of one that does not look whether an answer has begun,
// and one answer. A logger in front sees its status.
func TestOneErrorOneAnswer(t *testing.T) {
	for kind, l := range learners(t) {
		router, called, seen := newEcho(), 0, 0
		router.HTTPErrorHandler = func(c *echo.Context, _ error) {
			called++
			_ = c.String(http.StatusBadGateway, "sorry")
		}
		router.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				err := next(c)
				seen = statusOf(t, c)
				return err
			}
		})
		router.GET("/", func(*echo.Context) error { return io.ErrUnexpectedEOF },
			echolimit.Middleware(l, echolimit.Route()))
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if called != 1 || w.Code != http.StatusBadGateway || w.Body.String() != "sorry" {
			t.Errorf("%s: called %d times, status %d, body %q", kind, called, w.Code, w.Body.String())
		}
		if kind == "learning" && seen != http.StatusBadGateway { // else it is answered later
			t.Errorf("the logger sees %d", seen)
		}
		idle(t, l)
	}
}

// The handlers get the request that carries the permit, and put its cost right.
func TestPermitFrom(t *testing.T) {
	l := limiter(t, quotient.Rates(quotient.Rate{Name: "tokens", Unit: "tokens", Events: 100, Per: time.Hour,
		Burst: 100}))
	sixty := httplimit.CostBy("tokens", func(*http.Request) int { return 60 })
	e := echo.New()
	e.Use(echolimit.Middleware(l, func(*echo.Context) string { return "k" }, sixty))
	e.GET("/", func(c *echo.Context) error {
		if p, ok := httplimit.PermitFrom(c.Request().Context()); !ok || p.Correct("tokens", 15) != nil {
			t.Error("no permit that can be corrected")
		}
		return c.NoContent(204)
	})
	url, c := serve(t, e)
	if resp, _ := get(t, c, url); resp.StatusCode != 204 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if left := l.AppendState(nil, "k")[0].Left; left < 85 || left > 86 {
		t.Errorf("%v tokens are left, want 85", left)
	}
}
