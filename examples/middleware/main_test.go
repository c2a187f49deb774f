package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	if strings.Count(out.String(), "\n") != 3 || !strings.Contains(out.String(), `"client";r=0;t=`) {
		t.Error(out.String())
	}
}

func ask(s *service, ctx context.Context, path, forwarded string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	r.Header.Set("X-Forwarded-For", forwarded)
	s.handler.ServeHTTP(w, r)
	return w
}

// Only what a trusted proxy says about the client counts: else each invented address would have a quota.
func TestStrangersCannotChooseTheirAddress(t *testing.T) {
	for _, c := range []struct {
		proxies []netip.Prefix
		served  int
	}{
		{nil, clientBurst},
		// httptest's peer is 192.0.2.1
		{[]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, 3 * clientBurst},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newService(c.proxies...)
			served := 0
			for i := range 3 * clientBurst {
				if ask(s, t.Context(), "/items/1",
					netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}).String()).Code == http.StatusOK {
					served++
				}
			}
			if served != c.served {
				t.Errorf("proxies %v: %d served, want %d", c.proxies, served, c.served)
			}
		})
	}
}

// An export waits for the one before it; after drain no request waits, and admitted ones still finish.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		codes := make(chan int, 2)
		start := time.Now()
		for range 2 {
			go func() { codes <- ask(s, t.Context(), "/export/1", "").Code }()
		}
		time.Sleep(100 * time.Millisecond)
		s.drain()
		if code := <-codes; code != http.StatusServiceUnavailable ||
			time.Since(start) != 100*time.Millisecond {
			t.Errorf("%d after %v for who waited", code, time.Since(start))
		}
		if code := <-codes; code != http.StatusOK || time.Since(start) != 500*time.Millisecond {
			t.Errorf("%d after %v for who was admitted", code, time.Since(start))
		}
		if n := s.routes.Stats().InFlight; n != 0 {
			t.Errorf("%d in flight", n)
		}
	})
}
