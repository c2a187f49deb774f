package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// direct hands requests to a handler without a network.
type direct struct{ http.Handler }

func (d direct) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, req)
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		u := &upstream{}
		if err := run(t.Context(), &out, direct{u}, "http://h/", u); err != nil {
			t.Errorf("%v\n%s", err, out.String())
		}
		if u.most != inFlight {
			t.Errorf("%d requests at a time, want exactly %d where no network is", u.most, inFlight)
		}
	})
}

// The client that does not learn is refused most of the time: the proof that the claim can break.
func TestFixedBreaksTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		got, err := play(t.Context(), direct{u}, "http://h/", u, policy.Fixed{}, 0)
		if err != nil || got.check() == nil || got.refusedShare() < .5 {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// A slot is held until the body is closed.
func TestBodyHoldsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := newClient(direct{&upstream{}}, policy.Fixed{})
		if err != nil {
			t.Fatal(err)
		}
		limiter := c.Transport.(*httplimit.Transport).Limiter
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://h/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if n := limiter.Stats().InFlight; n != 1 {
			t.Errorf("%d in flight with an open body", n)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if n := limiter.Stats().InFlight; n != 0 {
			t.Errorf("%d in flight with a closed body", n)
		}
	})
}

// The fixed client is served over a real network. The time is over before the one that learns begins, and it
// is judged for that.
func TestOverLoopback(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var out bytes.Buffer
	err := loopback(ctx, &out)
	if err == nil || !strings.Contains(err.Error(), "the client that learns") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(out.String(), "allowed: ") || strings.Contains(out.String(), "allowed: 0 served") {
		t.Errorf("nothing was served:\n%s", out.String())
	}
}
