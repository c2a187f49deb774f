package admin

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

// fleetSize is how many limiters the tests of compression have, and busy how many of them have traffic.
const fleetSize, busy = 1000, 10

// leastGain is by what factor compression makes the state of such a process shorter, at least.
const leastGain = 5

func bigFleet(t *testing.T) *quotient.Registry {
	t.Helper()
	var reg quotient.Registry
	for i := range fleetSize {
		l, err := quotient.New(quotient.Limit{Rates: []quotient.Rate{quotient.PerSecond(float64(100 + i)),
			quotient.PerHour(1e6)}, InFlight: 10 + i%7},
			quotient.MaxKeys(16))
		must(t, err)
		must(t, reg.Add(fmt.Sprintf("limiter-%04d", i), l))
	}
	return &reg
}

// traffic uses the first limiters, each in another measure.
func traffic(reg *quotient.Registry) {
	i := 0
	for _, l := range reg.All() {
		for range 7*i + 3 {
			l.Allow("k")
		}
		if i++; i == busy {
			return
		}
	}
}

// TestStateIsCompressed: the same state, in a fraction of the bytes, for those that accept it. Others get it
// plain.
func TestStateIsCompressed(t *testing.T) {
	reg := bigFleet(t)
	h, err := New(reg, BehindAuthentication())
	must(t, err)
	traffic(reg)
	for _, path := range []string{"/state", "/state?history=1"} {
		long := get(path).send(t, h).Body.Len()
		for accept, packed := range map[string]bool{
			"": false, "gzip": true, "br, GZIP;q=0.5": true, "deflate": false, "gzip;q=0": false,
			"gzip; q=0.0, br": false, "*": false, "xgzip": false, "gzip;q=x": false,
		} {
			rec := get(path).with("Accept-Encoding", accept).send(t, h)
			if rec.Code != 200 || (rec.Header().Get("Content-Encoding") == "gzip") != packed {
				t.Errorf("%s for %q: %d, %v", path, accept, rec.Code, rec.Header())
			}
			if !packed {
				continue
			}
			if rec.Body.Len()*leastGain > long {
				t.Errorf("%s for %q: %d bytes of %d", path, accept, rec.Body.Len(), long)
			}
			t.Logf("%s: %d bytes, compressed %d", path, long, rec.Body.Len())
			z, err := gzip.NewReader(rec.Body)
			must(t, err)
			plain, err := io.ReadAll(z)
			if err != nil || len(plain) < long*9/10 {
				t.Errorf("%s for %q: %d bytes of %d: %v", path, accept, len(plain), long, err)
			}
		}
	}
	short := get("/state?limiter=limiter-0001").with("Accept-Encoding", "gzip")
	if rec := short.send(t, h); rec.Header().Get("Content-Encoding") != "" {
		t.Errorf("%d bytes are compressed", rec.Body.Len())
	}
}

// TestEventsAreCompressed: each event can be read when it comes, compressed or not, whenever its client has
// come. A stream that the service ends is whole.
func TestEventsAreCompressed(t *testing.T) {
	const accept = "Accept-Encoding: gzip\r\n"
	synctest.Test(t, func(t *testing.T) {
		s := startStreaming(t)
		streams := []*follower{s.dialWith(accept), s.dial()}
		for id := 1; id <= 30; id++ {
			if id == 20 { // the newest event is what it begins with
				late := s.dialWith(accept)
				late.state(t, id-1)
				streams = append(streams, late)
			}
			for i, f := range streams {
				if at := f.state(t, id).Time.Sub(s.begun); at != time.Duration(id-1)*time.Second ||
					time.Since(s.begun) != at {
					t.Fatalf("event %d of stream %d has the state of %v, after %v", id, i, at,
						time.Since(s.begun))
				}
			}
		}
		ended := make(chan error)
		go func() { ended <- s.srv.Shutdown(context.Background()) }()
		for i, f := range streams {
			if rest, err := io.ReadAll(f.body); err != nil {
				t.Errorf("stream %d ends with %d bytes, %v", i, len(rest), err)
			}
		}
		tested.Want(t, "its end", <-ended, nil)
		synctest.Wait()
		if s.open() != 0 || s.h.streams.frame.plain != nil || s.h.streams.packer != nil {
			t.Errorf("%d streams, or their memory, are left", s.open())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := startStreaming(t)
		f := s.dialWith(accept)
		f.state(t, 1)
		_ = s.srv.Close()
		if _, err := io.ReadAll(f.body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("a stream that broke ends with %v", err)
		}
	})
}
