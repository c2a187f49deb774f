package readme

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
	"github.com/quotient-go/quotient/poolsize/dns"
)

// The README's functions, to the letter.

func client() *http.Client {
	limit := quotient.Rates(quotient.PerSecond(100)) // the API's, for each host
	limiter := quotient.Must(quotient.New(limit, quotient.Policy(policy.Tracking{}), quotient.Replicas(4)))
	return &http.Client{Transport: &httplimit.Transport{Limiter: limiter}}
}

func counted(ctx context.Context) *quotient.Registry {
	limiters := &quotient.Registry{Options: func(string) []quotient.Option {
		return []quotient.Option{
			quotient.AwaitPool(time.Minute), // admit nothing before the first count; a minute after the last
			quotient.Replicas(10),           // assume ten
			quotient.HoldDown(time.Minute),  // apply a lower count a minute later
			quotient.Logger(slog.Default()),
		}
	}}
	pods := &dns.Source{Name: "api.prod.svc.cluster.local.", Uncapped: true}
	go limiters.Follow(ctx, pods) // logs failures
	return limiters
}

func operate(ctx context.Context, limiters *quotient.Registry) error {
	page, err := admin.New(limiters, admin.Token(os.Getenv("ADMIN_TOKEN"))) // 16 random bytes or more
	if err != nil {
		return err
	}
	return page.ListenAndServe(ctx, "127.0.0.1:9091")
}

// The server of the README answers 40 requests at once as the README shows.
func TestReadmeRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := quotient.New(quotient.Rates(quotient.PerSecond(100)), quotient.Replicas(4))
		if err != nil {
			t.Fatal(err)
		}
		hello := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		throttled := httplimit.Middleware(limiter, httplimit.Path())(hello)
		lines := map[string]int{}
		for n := range 40 {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/?"+strconv.Itoa(n), nil)
			throttled.ServeHTTP(w, r)
			lines["HTTP/1.1 "+strconv.Itoa(w.Code)+" "+http.StatusText(w.Code)]++
			if after := w.Header().Get("Retry-After"); after != "" {
				lines["Retry-After: "+after]++
			}
		}
		text, err := os.ReadFile(root + "/README.md")
		if err != nil {
			t.Fatal(err)
		}
		for line, n := range lines {
			if shown := fmt.Sprintf("\n%7d %s\n", n, line); !strings.Contains(string(text), shown) {
				t.Errorf("README.md does not show that there are %d lines %q", n, line)
			}
		}
		if len(lines) != 3 {
			t.Errorf("lines %v, want three kinds", lines)
		}
	})
}

// The page is served until the program is to end, and at once no more when it is to end already.
func TestReadmeOperates(t *testing.T) {
	t.Setenv("ADMIN_TOKEN", "0123456789abcdef")
	ended, end := context.WithCancel(t.Context())
	end()
	err := operate(ended, new(quotient.Registry))
	if taken := (*net.OpError)(nil); errors.As(err, &taken) {
		t.Skip("port 9091 of this machine is taken:", err)
	}
	if err != nil {
		t.Error(err)
	}
	if err := operate(t.Context(), nil); err == nil {
		t.Error("a page of no limiters was served")
	}
}

// during returns how many events are admitted in d.
func during(l *quotient.Limiter, d time.Duration) (n int) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if l.Allow("k") {
			n++
		}
	}
	return n
}

// silent is a source that never reports.
type silent struct{}

func (silent) Watch(ctx context.Context, _ func(quotient.Pool, error)) error {
	<-ctx.Done()
	return ctx.Err()
}

// The limiters of the README wait for their first count, and give up waiting after a minute.
func TestReadmeCounts(t *testing.T) {
	// else its semaphore belongs to the bubble
	_, _ = net.DefaultResolver.LookupHost(t.Context(), "localhost")
	synctest.Test(t, func(t *testing.T) {
		ended, end := context.WithCancel(t.Context())
		end() // nothing here may leave the machine
		limiters := counted(ended)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = limiters.Follow(ctx, silent{}) }()
		limiter, err := limiters.Limiter("api", quotient.Rates(quotient.PerSecond(100)))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)
		if limiter.Allow("k") {
			t.Error("admitted after less than a minute without a count")
		}
		time.Sleep(2 * time.Second)
		if n := during(limiter, 10*time.Second); n < 95 || n > 110 {
			t.Errorf("%d in ten seconds after a minute without a count, want a tenth of 1,000", n)
		}
	})
}
