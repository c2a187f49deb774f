package ginlimit_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/goleak"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/ginlimit"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultWriter, gin.DefaultErrorWriter = io.Discard, io.Discard
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

func TestRefusal(t *testing.T) {
	l := limiter(t, once)
	router := gin.New()
	var seen []int
	served := 0
	router.Use(func(c *gin.Context) { c.Next(); seen = append(seen, c.Writer.Status()) })
	router.Use(ginlimit.Middleware(l, ginlimit.Route(), httplimit.SendFields(httplimit.FieldsDraft11)))
	router.GET("/items/:id", func(c *gin.Context) { served++; c.String(http.StatusOK, "item") })
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

func TestKeys(t *testing.T) {
	l := limiter(t, quotient.Rates(quotient.PerHour(1e6)))
	router := gin.New()
	router.Use(ginlimit.Middleware(l, ginlimit.Route()))
	router.GET("/items/:id", func(c *gin.Context) {})
	byToken := ginlimit.Middleware(l, ginlimit.Request(httplimit.Header("Token")))
	router.PUT("/items/:id", byToken, func(c *gin.Context) {})
	for _, r := range []struct{ method, path string }{
		{"GET", "/items/1"}, {"GET", "/items/2"}, {"GET", "/nothing/1"}, {"GET", "/nothing/2"},
		{"MADEUP", "/items/1"}, {"PUT", "/items/1"},
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
	if want := []string{"(unmatched)", "GET /items/:id", "PUT /items/:id", "abc"}; !slices.Equal(keys, want) {
		t.Errorf("keys %q, want %q", keys, want)
	}
}

func TestPanicReleasesOnce(t *testing.T) {
	for name, l := range learners(t) {
		t.Run(name, func(t *testing.T) {
			router := gin.New()
			router.Use(gin.Recovery(),
				ginlimit.Middleware(l, ginlimit.Route(), httplimit.Wait(httplimit.Forever)))
			router.GET("/", func(*gin.Context) { panic("a bug") })
			for range 2 {
				w := httptest.NewRecorder()
				router.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
				if w.Code != 500 {
					t.Errorf("status %d, want 500 of gin's own recovery", w.Code)
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
			router, end := gin.New(), make(chan struct{})
			router.GET("/", ginlimit.Middleware(l, ginlimit.Route()), func(c *gin.Context) {
				_, _ = c.Writer.WriteString("first\n")
				c.Writer.Flush()
				<-end
			})
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
			router := gin.New()
			router.POST("/", ginlimit.Middleware(l, ginlimit.Route(), httplimit.Wait(httplimit.Forever)),
				func(c *gin.Context) {
					_, _ = io.Copy(c.Writer, c.Request.Body)
				})
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

// The policy reads the status that is written, which in gin is the last one that was set.
func TestFeedback(t *testing.T) {
	for name, tt := range map[string]struct {
		handle    gin.HandlerFunc
		throttled uint64
	}{
		"nothing":        {func(*gin.Context) {}, 0},
		"json":           {func(c *gin.Context) { c.JSON(429, "slow") }, 1},
		"status alone":   {func(c *gin.Context) { c.Status(429) }, 1},
		"abort":          {func(c *gin.Context) { c.AbortWithStatus(429) }, 1},
		"string":         {func(c *gin.Context) { c.Status(429); _, _ = c.Writer.WriteString("slow") }, 1},
		"changed before": {func(c *gin.Context) { c.Status(429); c.Status(200) }, 0},
		"changed after":  {func(c *gin.Context) { c.String(200, "fine"); c.Status(429) }, 0},
		"flushed":        {func(c *gin.Context) { c.Writer.Flush(); c.Status(429) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := learners(t)["learning"]
			router := gin.New()
			router.GET("/", ginlimit.Middleware(l, ginlimit.Route()), tt.handle)
			router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			if got := l.Stats().Throttled; got != tt.throttled {
				t.Errorf("throttled %d, want %d", got, tt.throttled)
			}
			idle(t, l)
		})
	}
}

// A connection that is taken over holds the permit until it is closed.
func TestHijack(t *testing.T) {
	for name, take := range map[string]func(gin.ResponseWriter) (io.Closer, error){
		"direct": func(w gin.ResponseWriter) (io.Closer, error) {
			conn, _, err := w.Hijack()
			return conn, err
		},
		"controller": func(w gin.ResponseWriter) (io.Closer, error) {
			rc := http.NewResponseController(w)
			if err := rc.SetReadDeadline(time.Now().Add(soon)); err != nil {
				return nil, err
			}
			conn, _, err := rc.Hijack()
			return conn, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := learners(t)["learning"]
			router, conns := gin.New(), make(chan io.Closer, 1)
			router.GET("/", ginlimit.Middleware(l, ginlimit.Route()), func(c *gin.Context) {
				conn, err := take(c.Writer)
				if err != nil {
					panic(err)
				}
				conns <- conn
			})
			url, client := serve(t, router)
			failed := make(chan error)
			go func() {
				resp, err := client.Get(url)
				if err == nil {
					_ = resp.Body.Close()
				}
				failed <- err
			}()
			conn := <-conns
			if n := l.Stats().InFlight; n != 1 {
				t.Errorf("in flight %d, want 1 until the connection is closed", n)
			}
			_ = conn.Close()
			if err := <-failed; err == nil {
				t.Error("the client got an answer over a connection that was closed")
			}
			idle(t, l)
		})
	}
}

func TestMistakesPanicAtOnce(t *testing.T) {
	for name, mistake := range map[string]func(){
		"nil limiter": func() { ginlimit.Middleware(nil, ginlimit.Route()) },
		"nil key":     func() { ginlimit.Middleware(limiter(t, once), nil) },
		"Request nil": func() { ginlimit.Request(nil) },
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

// odd is a writer of another middleware. Values of its type cannot be compared.
type odd struct {
	gin.ResponseWriter
	notes []string
}

// A middleware in front may have put a writer of its own into the context, of whatever type.
func TestWriterOfAnotherMiddleware(t *testing.T) {
	for kind, l := range learners(t) {
		router := gin.New()
		router.Use(func(c *gin.Context) { c.Writer = odd{c.Writer, nil} },
			ginlimit.Middleware(l, ginlimit.Route()))
		router.GET("/", func(c *gin.Context) { c.String(http.StatusAccepted, "fine") })
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if w.Code != http.StatusAccepted || w.Body.String() != "fine" {
			t.Errorf("%s: status %d, body %q; want 202, fine", kind, w.Code, w.Body)
		}
		idle(t, l)
	}
}

// The handlers get the request that carries the permit, and put its cost right.
func TestPermitFrom(t *testing.T) {
	l := limiter(t, quotient.Rates(quotient.Rate{Name: "tokens", Unit: "tokens", Events: 100, Per: time.Hour,
		Burst: 100}))
	sixty := httplimit.CostBy("tokens", func(*http.Request) int { return 60 })
	e := gin.New()
	e.Use(ginlimit.Middleware(l, func(*gin.Context) string { return "k" }, sixty))
	e.GET("/", func(c *gin.Context) {
		if p, ok := httplimit.PermitFrom(c.Request.Context()); !ok || p.Correct("tokens", 15) != nil {
			t.Error("no permit that can be corrected")
		}
		c.Status(204)
	})
	url, c := serve(t, e)
	if resp, _ := get(t, c, url); resp.StatusCode != 204 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if left := l.AppendState(nil, "k")[0].Left; left < 85 || left > 86 {
		t.Errorf("%v tokens are left, want 85", left)
	}
}
