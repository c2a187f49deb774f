package admin

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
)

// speaking is a client of the handler.
func speaking(t *testing.T, h http.Handler) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := NewClient(srv.URL)
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestReset(t *testing.T) {
	// nothing comes back while the test runs
	api := quotient.Must(quotient.New(quotient.Rates(quotient.Rate{Events: 1, Per: time.Hour, Burst: 5})))
	c := speaking(t, quiet(t, api))
	// on another replica of the fleet it may be remembered
	if now, err := c.Reset(t.Context(), "", "K"); err != nil || now.Version != 0 || now.Keys != 0 {
		t.Errorf("a key that is not remembered: %+v, %v", now, err)
	}
	for _, key := range []string{"K", "", "\x80"} {
		for api.Allow(key) || api.Allow("other") { // until neither has anything left
		}
		seen, err := c.Limiter(t.Context(), "api")
		must(t, err)
		now, err := c.Reset(t.Context(), "api", key, IfMatch(seen.ETag))
		if err != nil || now.Version != seen.Version+1 || now.ETag == seen.ETag {
			t.Fatalf("Reset of %q: %+v, %v", key, now, err)
		}
		if !api.Check(key).OK || api.Check("other").OK {
			t.Errorf("after a reset of %q: %+v, and another key %+v", key, api.Check(key), api.Check("other"))
		}
		if _, err := c.Reset(t.Context(), "api", key, IfMatch(seen.ETag)); !errors.Is(err, ErrConflict) {
			t.Errorf("a second reset by what was seen before the first: %v", err)
		}
	}
}
