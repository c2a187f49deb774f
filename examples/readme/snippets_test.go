package readme

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/examples/readme/api"
	"github.com/quotient-go/quotient/examples/readme/limits"
	"github.com/quotient-go/quotient/httplimit"
)

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
	err := limits.Run(ended, new(quotient.Registry))
	if taken := (*net.OpError)(nil); errors.As(err, &taken) {
		t.Skip("port 9091 of this machine is taken:", err)
	}
	if err != nil {
		t.Error(err)
	}
	if err := limits.Run(t.Context(), nil); err == nil {
		t.Error("a page of no limiters was served")
	}
}

// The client of the README sends a quarter of 100 a second, and saves up no burst that an upstream could punish.
func TestReadmeClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, sent := api.Client(), 0
		c.Transport.(*httplimit.Transport).Base = answers(func() int { sent++; return http.StatusOK })
		for start := time.Now(); time.Since(start) < 3*time.Second; {
			resp, err := c.Get("http://api.example.com/")
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if most := 3 + int(25*time.Since(start).Seconds()); sent > most {
				t.Fatalf("%d requests after %v", sent, time.Since(start))
			}
		}
		if sent < 74 {
			t.Errorf("%d requests in three seconds, want 25 a second", sent)
		}
	})
}

// The badges of the README say what go.mod and LICENSE say.
func TestReadmeBadges(t *testing.T) {
	for picture, want := range map[string][2]string{
		"go.svg":      {"go.mod", "(?m)^go (1\\.[0-9]+)"},
		"licence.svg": {"LICENSE", "(Apache) License\\s+Version (2.0)"},
	} {
		svg, err1 := os.ReadFile(root + "/docs/pictures/" + picture)
		text, err2 := os.ReadFile(root + "/" + want[0])
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		said := regexp.MustCompile(want[1]).FindStringSubmatch(string(text))
		if said == nil || !strings.Contains(string(svg), ">"+strings.Join(said[1:], " ")+"<") {
			t.Errorf("%s does not say what %s says: %q", picture, want[0], said)
		}
	}
}
