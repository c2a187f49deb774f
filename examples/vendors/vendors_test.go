package vendors_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/go-github/v84/github"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/examples/vendors"
	"github.com/stripe/stripe-go/v84"
)

func TestMain(m *testing.M) {
	stripe.DefaultLeveledLogger = &stripe.LeveledLogger{Level: stripe.LevelNull} // it logs each refusal
	os.Exit(m.Run())
}

// A vendor is one of the clients, and how its upstream answers.
type vendor struct {
	name   string
	recipe func(c *http.Client) call // as this package has it
	plain  func(c *http.Client) call // as the vendor has it
	answer string                    // of a request that is served
	quota  func(h http.Header, left int, reset time.Time)
	refuse func(w http.ResponseWriter)
	again  int // how often plain repeats a request that the upstream refuses
	ours   int // and one that the limiter refuses
}

// call is one call of a client.
type call func(ctx context.Context) error

const perWindow, window = 20, time.Second

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func askOpenAI(c openai.Client) call {
	return func(ctx context.Context) error { _, err := c.Models.Get(ctx, "m"); return err }
}

func askGitHub(c *github.Client) call {
	return func(ctx context.Context) error { _, _, err := c.Repositories.Get(ctx, "o", "r"); return err }
}

func askStripe(c *stripe.Client) call {
	return func(ctx context.Context) error { _, err := c.V1Balance.Retrieve(ctx, nil); return err }
}

func askAWS(c *sts.Client) call {
	return func(ctx context.Context) error {
		_, err := c.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
		return err
	}
}

// credentials are nobody's.
func credentials() aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}, nil
	})
}

func nothing(http.Header, int, time.Time) {}

var all = []vendor{
	{"openai-go", func(c *http.Client) call { return askOpenAI(vendors.OpenAI(c, "key")) },
		func(c *http.Client) call {
			return askOpenAI(openai.NewClient(option.WithAPIKey("key"), option.WithHTTPClient(c)))
		},
		`{"id":"m"}`,
		func(h http.Header, left int, reset time.Time) {
			h.Set("X-Ratelimit-Limit-Requests", strconv.Itoa(perWindow))
			h.Set("X-Ratelimit-Remaining-Requests", strconv.Itoa(left))
			h.Set("X-Ratelimit-Reset-Requests", time.Until(reset).String())
		},
		func(w http.ResponseWriter) {
			text(w, 429, `{"error":{"code":"rate_limit_exceeded","message":"slow down"}}`)
		}, 2, 2},
	{"go-github", func(c *http.Client) call { return askGitHub(vendors.GitHub(c, "token")) },
		func(c *http.Client) call { return askGitHub(github.NewClient(c)) },
		`{"id":1}`,
		func(h http.Header, left int, reset time.Time) {
			h.Set("X-RateLimit-Limit", strconv.Itoa(perWindow))
			h.Set("X-RateLimit-Remaining", strconv.Itoa(left))
			h.Set("X-RateLimit-Reset", strconv.FormatInt(reset.Unix(), 10))
		},
		func(w http.ResponseWriter) { text(w, 403, `{"message":"API rate limit exceeded"}`) }, 0, 0},
	{"stripe-go", func(c *http.Client) call { return askStripe(vendors.Stripe(c, "sk_test_1")) },
		func(c *http.Client) call {
			config := &stripe.BackendConfig{HTTPClient: c}
			return askStripe(stripe.NewClient("sk_test_1", stripe.WithBackends(stripe.NewBackendsWithConfig(config))))
		},
		`{"object":"balance"}`, nothing,
		func(w http.ResponseWriter) { text(w, 429, `{"error":{"code":"rate_limit","message":"Too many"}}`) }, 0, 2},
	{"aws-sdk-go-v2", func(c *http.Client) call { return askAWS(vendors.STS(c, "us-east-1", credentials())) },
		func(c *http.Client) call {
			return askAWS(sts.NewFromConfig(aws.Config{Region: "us-east-1", Credentials: credentials(), HTTPClient: c}))
		},
		`<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>a</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>`,
		nothing,
		func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/xml")
			w.WriteHeader(400)
			_, _ = io.WriteString(w, "<ErrorResponse><Error><Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>")
		}, 2, 2},
}

// upstream is a vendor's: it serves so many requests in each window, and refuses the others.
type upstream struct {
	vendor
	perWindow int
	requests  atomic.Int64

	mu     sync.Mutex
	reset  time.Time
	served int
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	u.requests.Add(1)
	u.mu.Lock()
	if now := time.Now(); !now.Before(u.reset) {
		u.reset, u.served = now.Truncate(window).Add(window), 0
	}
	serves := u.served < u.perWindow
	if serves {
		u.served++
	}
	u.quota(w.Header(), u.perWindow-u.served, u.reset)
	u.mu.Unlock()
	if !serves {
		u.refuse(w)
		return
	}
	text(w, 200, u.answer)
}

// loopback has requests to any host answered by a server in memory, whose connections take part in fake time.
type loopback struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	*http.Transport
}

// serve starts the upstream for the test.
func serve(t *testing.T, u *upstream) *loopback {
	b := &loopback{conns: make(chan net.Conn), closed: make(chan struct{})}
	b.Transport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		b.conns <- theirs
		return ours, nil
	}}
	server := httptest.NewUnstartedServer(u)
	_ = server.Listener.Close()
	server.Listener = b
	server.Start()
	t.Cleanup(func() { b.CloseIdleConnections(); server.Close() })
	return b
}

func (b *loopback) Accept() (net.Conn, error) {
	select {
	case c := <-b.conns:
		return c, nil
	case <-b.closed:
		return nil, net.ErrClosed
	}
}

func (b *loopback) Close() error { b.once.Do(func() { close(b.closed) }); return nil }

func (b *loopback) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// RoundTrip speaks plain HTTP. The host stays, since it says whose fields they are.
func (b *loopback) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme = "http"
	return b.Transport.RoundTrip(r)
}

// later is when the test begins: fake time begins in 2000, when Unix seconds looked like a number of seconds.
const later = 3 * 365 * 24 * time.Hour

func each(t *testing.T, test func(t *testing.T, v vendor)) {
	for _, v := range all {
		t.Run(v.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { time.Sleep(later); test(t, v) })
		})
	}
}

func limited(t *testing.T, most quotient.Limit, base http.RoundTripper) *http.Client {
	t.Helper()
	c, err := vendors.Limited(most, base)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestTheUpstreamIsObeyed: eight workers that know nothing of the vendor's limit get nearly all of it, and few refusals.
// Each call is one request.
func TestTheUpstreamIsObeyed(t *testing.T) {
	each(t, func(t *testing.T, v vendor) {
		u := &upstream{vendor: v, perWindow: perWindow}
		ask := v.recipe(limited(t, quotient.Rates(quotient.PerSecond(1000)), serve(t, u)))
		var calls, refused atomic.Int64
		var workers sync.WaitGroup
		end := time.Now().Add(time.Minute)
		for range 8 {
			workers.Go(func() {
				for time.Now().Before(end) {
					calls.Add(1)
					if ask(t.Context()) != nil {
						refused.Add(1)
					}
				}
			})
		}
		workers.Wait()
		most := int64(perWindow * time.Minute / window)
		if n := calls.Load() - refused.Load(); n < most*6/10 || refused.Load() > calls.Load()/10 {
			t.Errorf("%d of %d were served, %d refused", n, most, refused.Load())
		}
		if u.requests.Load() != calls.Load() {
			t.Errorf("%d calls were %d requests", calls.Load(), u.requests.Load())
		}
	})
}

// TestRetriesMultiply: while the upstream refuses everything, a call is one request, and several with the client's own
// retries on, but for 429 of Stripe. So it is where the limiter refuses, and nothing is sent.
func TestRetriesMultiply(t *testing.T) {
	each(t, func(t *testing.T, v vendor) {
		for name, c := range map[string]struct {
			client      func(*http.Client) call
			again, ours int
		}{"as here": {v.recipe, 0, 0}, "as it comes": {v.plain, v.again, v.ours}} {
			u := &upstream{vendor: v}
			if err := c.client(&http.Client{Transport: serve(t, u)})(t.Context()); err == nil {
				t.Errorf("%s: no error", name)
			}
			if n := int(u.requests.Load()); n != 1+c.again {
				t.Errorf("%s: the upstream got %d requests, want %d", name, n, 1+c.again)
			}
			attempts := &counted{base: limited(t, quotient.Limit{Deny: true}, nil).Transport}
			err := c.client(&http.Client{Transport: attempts})(t.Context())
			if name == "as here" && !errors.Is(err, quotient.ErrLimited) {
				t.Errorf("%s: %v does not say that the limiter refuses", name, err)
			}
			if attempts.n != 1+c.ours {
				t.Errorf("%s: the limiter was asked %d times, want %d", name, attempts.n, 1+c.ours)
			}
		}
	})
}

// counted counts requests.
type counted struct {
	base http.RoundTripper
	n    int
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n++
	return c.base.RoundTrip(r)
}

// TestGitHubWaits: with its own check on, the client fails by itself once its quota is spent, until the reset.
func TestGitHubWaits(t *testing.T) {
	i := slices.IndexFunc(all, func(v vendor) bool { return v.name == "go-github" })
	for name, c := range map[string]struct {
		client      func(*http.Client) call
		least, most int // calls that fail
	}{"as here": {all[i].recipe, 0, 30}, "as it comes": {all[i].plain, 100, 300}} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(later)
			u := &upstream{vendor: all[i], perWindow: perWindow}
			ask := c.client(limited(t, quotient.Rates(quotient.PerSecond(1000)), serve(t, u)))
			failed := 0
			for range 300 {
				if ask(t.Context()) != nil {
					failed++
				}
			}
			if failed < c.least || failed > c.most {
				t.Errorf("%s: %d of 300 failed, want %d to %d", name, failed, c.least, c.most)
			}
		})
	}
}

// TestPage holds the table of the cookbook to the code: a row for each client, with what is to be turned off as it is
// spelled here.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/cookbook.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("vendors.go")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "### Vendors' clients\n")
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if strings.HasPrefix(line, "#") {
			break
		}
		if len(cells) != 6 || strings.HasPrefix(cells[1], " client") || strings.HasPrefix(cells[1], " ---") {
			continue
		}
		rows++
		if !slices.ContainsFunc(all, func(v vendor) bool { return strings.Contains(cells[1], "["+v.name+"]") }) {
			t.Errorf("nothing tests %s", cells[1])
		}
		for i, cell := range cells[2:4] {
			if parts := strings.Split(cell, "`"); len(parts) < 3 || !strings.Contains(string(code), parts[1]) {
				t.Error(fmt.Sprint("the code lacks ", cells[1], []string{"where the transport goes", "what is turned off"}[i], cell))
			}
		}
	}
	if rows != len(all) {
		t.Errorf("%d rows, want %d", rows, len(all))
	}
}
