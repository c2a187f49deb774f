package cookbook

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/lease"
)

// A broken transport reaches nothing.
type broken struct{}

func (broken) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("no route") }

// An upstream answers in memory.
type upstream func(*http.Request) *http.Response

func (u upstream) RoundTrip(r *http.Request) (*http.Response, error) { return u(r), nil }

func answer(status int, fields ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(fields); i += 2 {
		h.Set(fields[i], fields[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader("{}"))}
}

// call sends one request, reads the answer and returns its status.
func call(t *testing.T, c *http.Client, url string) int {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// The upstream takes 20 a second and says nothing else. A client that knows only "at most 100" gets most of
// that.
func TestLearn(t *testing.T) {
	fake(t, "learn", func(t *testing.T) {
		theirs := limiterOf(t, quotient.Rates(quotient.PerSecond(20)))
		refused := 0
		c := learn(upstream(func(*http.Request) *http.Response {
			time.Sleep(5 * time.Millisecond)
			if theirs.Allow("all") {
				return answer(200)
			}
			refused++
			return answer(429)
		}))
		served := 0
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			if call(t, c, "http://api.example.com/") == 200 {
				served++
			}
		}
		between(t, "served in a minute", served, 60*20*6/10, 60*20+20)
		between(t, "refused", refused, 1, served/8)
	})
}

// GitHub has 20 calls left for half an hour, since others used the rest, and then refuses with 403. A few
// calls find out, in all that time, and the client is back soon after it.
func TestGitHub(t *testing.T) {
	fake(t, "github", func(t *testing.T) {
		// Fake time begins in 2000, when Unix seconds still looked like a number of seconds.
		time.Sleep(2 * 365 * 24 * time.Hour)
		begin := time.Now()
		reset, left, refused := begin.Add(30*time.Minute), 20, 0
		c := github(upstream(func(*http.Request) *http.Response {
			time.Sleep(100 * time.Millisecond)
			if time.Now().After(reset) {
				reset, left = reset.Add(time.Hour), 5000
			}
			status := 200
			if left--; left < 0 {
				status = 403
				refused++
			}
			return answer(status, "X-RateLimit-Limit", "5000", "X-RateLimit-Remaining",
				strconv.Itoa(max(0, left)),
				"X-RateLimit-Reset", strconv.FormatInt(reset.Unix(), 10))
		}))
		for left < 4000 {
			call(t, c, "https://api.github.com/repos/o/r")
		}
		between(t, "refused", refused, 1, 15)
		if late := time.Since(begin) - 30*time.Minute; late < 0 || late > 5*time.Minute {
			t.Errorf("back %v after the reset", late)
		}
	})
}

// Three retries are all that the budget allows; what the limiter refuses is not tried again.
func TestRetry(t *testing.T) {
	fake(t, "retry", func(t *testing.T) {
		budget := func() *quotient.Limiter {
			return limiterOf(t, quotient.Rates(quotient.Rate{Events: 3, Per: time.Hour, Burst: 3}))
		}
		failed, tried := errors.New("failed"), 0
		begin := time.Now()
		err := retry(t.Context(), budget(), func() (time.Duration, error) {
			tried++
			return 5 * time.Second, failed
		})
		if took := time.Since(begin); !errors.Is(err, failed) || tried != 4 || took < 15*time.Second ||
			took > 18*time.Second {
			t.Errorf("%v after %d attempts in %v", err, tried, took)
		}
		tried = 0
		err = retry(t.Context(), budget(), func() (time.Duration, error) {
			tried++
			return 0, quotient.ErrLimited
		})
		if tried != 1 || err == nil {
			t.Errorf("%v after %d attempts", err, tried)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = retry(ctx, budget(), func() (time.Duration, error) { return time.Hour, failed })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v when the context ends", err)
		}
	})
}

func TestReadBatch(t *testing.T) {
	fake(t, "batch", func(t *testing.T) {
		l := limiterOf(t, quotient.Rates(quotient.Rate{Events: 100, Per: time.Hour, Burst: 70}))
		var asked []int
		for _, there := range []int{10, 100, 100, 100} {
			n, err := readBatch(l, func(most int) int {
				asked = append(asked, most)
				return min(most, there)
			})
			if want := min(there, append(asked, 0)[len(asked)-1]); err != nil || n > want {
				t.Errorf("read %d of %d, %v", n, want, err)
			}
		}
		// 70 are there. 10 of 50 are used, then 50, then the 10 that are left, and then none.
		if len(asked) != 3 || asked[0] != 50 || asked[1] != 50 || asked[2] != 10 {
			t.Errorf("asked for %v", asked)
		}
	})
}

func TestThumbnail(t *testing.T) {
	fake(t, "do", func(t *testing.T) {
		l := limiterOf(t, quotient.Rates(quotient.Every(time.Second)))
		begin := time.Now()
		for range 3 {
			if small, err := thumbnail(t.Context(), l, make([]byte, 10)); err != nil || len(small) != 5 {
				t.Errorf("%v, %v", small, err)
			}
		}
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("three took %v", took)
		}
	})
}

// Ten jobs of a second with two slots take five seconds, and all are done when work returns.
func TestWork(t *testing.T) {
	fake(t, "work", func(t *testing.T) {
		l := limiterOf(t, quotient.Limit{InFlight: 2})
		jobs, done := make(chan func(), 10), make(chan bool, 10)
		for range 10 {
			jobs <- func() { time.Sleep(time.Second); done <- true }
		}
		close(jobs)
		begin := time.Now()
		if err := work(t.Context(), l, jobs); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 5*time.Second || len(done) != 10 {
			t.Errorf("%d jobs took %v", len(done), took)
		}
	})
}

// Prompts use 700 tokens of 30,000 a minute, more than is estimated. An API that refuses them all gets few.
func TestOpenAI(t *testing.T) {
	fake(t, "openai", func(t *testing.T) {
		l := made[*quotient.Limiter](t)(openAI())
		status := 200
		during := func(d time.Duration) (sent int) {
			for end := time.Now().Add(d); time.Now().Before(end); {
				err := prompt(t.Context(), l, "hello", func(context.Context, string) (*http.Response,
					int, error) {
					time.Sleep(10 * time.Millisecond)
					sent++
					return answer(status), 700, nil
				})
				if (err == nil) != (status == 200) {
					t.Fatalf("%d: %v", status, err)
				}
			}
			return sent
		}
		between(t, "prompts in ten minutes", during(10*time.Minute), 10*30_000/700*8/10, 11*30_000/700)
		status = 429
		between(t, "prompts to an API that refuses", during(time.Minute), 1, 20)
		failed := errors.New("failed")
		err := prompt(t.Context(), l, "hello", func(context.Context, string) (*http.Response, int, error) {
			return nil, 0, failed
		})
		if !errors.Is(err, failed) {
			t.Errorf("a request that fails: %v", err)
		}
	})
}

// While one replica runs the job, another one skips it. When it has ended, the next run gets the lease.
func TestOnSchedule(t *testing.T) {
	fake(t, "on schedule", func(t *testing.T) {
		server := made[*lease.Server](t)(lease.NewServer(
			lease.Config{Semaphores: map[string]lease.Semaphore{"nightly": {Max: 1}}}, lease.ServerOptions{}))
		defer server.Close()
		replica := func(base http.RoundTripper) *lease.Client {
			return &lease.Client{URLs: []string{"http://lease"}, HTTP: &http.Client{Transport: base}}
		}
		never := func(context.Context, uint64) error {
			t.Error("the job runs twice at a time, or without a server")
			return nil
		}
		way := upstream(func(r *http.Request) *http.Response {
			w := httptest.NewRecorder()
			server.ServeHTTP(w, r)
			return w.Result()
		})
		ran := 0
		for range 2 {
			err := onSchedule(t.Context(), replica(way), func(ctx context.Context, token uint64) error {
				ran++
				if err := onSchedule(t.Context(), replica(way), never); !errors.Is(err, context.Canceled) || token == 0 {
					t.Errorf("the other replica: %v; token %d", err, token)
				}
				return ctx.Err()
			})
			if err != nil {
				t.Error(err)
			}
		}
		if ran != 2 {
			t.Errorf("the job ran %d times, want 2", ran)
		}
		if err := onSchedule(t.Context(), replica(broken{}), never); !errors.Is(err, context.Canceled) {
			t.Errorf("without a server: %v", err)
		}
		time.Sleep(time.Minute) // clients leave in the background
		if n := server.Stats().Peers; n > 0 {
			t.Errorf("%d clients are left", n)
		}
	})
}
