package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
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
		u := newUpstream()
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
		u := newUpstream()
		got := play(t.Context(), newClient(direct{u}, policy.Fixed{}), "http://h/", u, 0)
		if got.check() == nil || got.refusedShare() < .5 {
			t.Error(got)
		}
		if (&upstream{most: 2 * inFlight}).check() == nil {
			t.Error("twice as many requests at a time are well")
		}
	})
}

// A slot is held until the body is closed.
func TestBodyHoldsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(direct{newUpstream()}, policy.Fixed{})
		limiter := c.Transport.(*httplimit.Transport).Limiter
		resp, err := c.Get("http://h/")
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
