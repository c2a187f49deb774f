package dns

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/dns/dnstest"
	"go.uber.org/goleak"
)

// The context's end ends a look-up that is never answered, and nothing of it goes on. Package net alone would
// wait for the server for 5 s, which is longer than goleak does.
func TestContextEndsASilentLookUp(t *testing.T) {
	for _, srv := range []bool{false, true} {
		s := server(t)
		s.Fail(dnstest.Silent)
		asked := make(chan struct{}, 100)
		dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer // the server's own would close the connection itself
			defer func() { asked <- struct{}{} }()
			return d.DialContext(ctx, network, s.Addr())
		}
		src := &Source{Name: name, SRV: srv, Timeout: time.Hour, Resolver: &net.Resolver{Dial: dial}}
		before := goleak.IgnoreCurrent()
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			ended <- src.Watch(ctx, func(p quotient.Pool, err error) { t.Errorf("reported %v, %v", p, err) })
		}()
		receive(t, asked)
		cancel()
		if err := receive(t, ended); err != context.Canceled {
			t.Errorf("Watch returned %v", err)
		}
		if err := goleak.Find(before); err != nil {
			t.Errorf("srv %v: %v", srv, err)
		}
	}
}

// dialing is a source in fake time whose network is a function.
func dialing(dial func(context.Context) error) *Source {
	return &Source{Name: name,
		Resolver: &net.Resolver{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return nil, dial(ctx)
		}}}
}

// The first look-up comes at once, the others 4.5 to 5.5 s after each other, not all alike.
func TestPauseIsJittered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := dialing(func(context.Context) error { return errors.New("no network") })
		reports := watching(t, src)
		last := time.Now()
		seen := map[time.Duration]bool{}
		for i := range 50 {
			fails(t, reports, "no network")
			d := time.Since(last)
			last = last.Add(d)
			if i == 0 && d != 0 || i > 0 && (d < 4500*time.Millisecond || d > 5500*time.Millisecond) {
				t.Errorf("look-up %d after %v", i, d)
			}
			seen[d] = true
		}
		if len(seen) < 10 {
			t.Errorf("%d different pauses", len(seen))
		}
	})
}

// A look-up ends at Timeout at the latest, and the next one begins a pause later: there is one at a time. A
// server has a quarter of Timeout. A connection that is dialed for longer, whatever its context, does not
// delay the look-up.
func TestTimeoutBoundsALookUp(t *testing.T) {
	const part = defaultTimeout / 4
	rows := []struct {
		dialing     time.Duration // however long it may take
		least, most time.Duration // for a look-up
	}{
		// within the bounds of the context; resolv.conf sets how many servers are queried how often
		{0, part, defaultTimeout},
		{3 * defaultTimeout, defaultTimeout, defaultTimeout},
	}
	for _, r := range rows {
		synctest.Test(t, func(t *testing.T) {
			var open atomic.Int32
			src := dialing(func(ctx context.Context) error {
				if n := open.Add(1); n > 2 && r.dialing == 0 { // a question for each family
					t.Errorf("%d questions at a time", n)
				}
				defer open.Add(-1)
				start := time.Now()
				<-ctx.Done()
				if d := time.Since(start); d > part {
					t.Errorf("a server had %v", d)
				}
				time.Sleep(r.dialing)
				return ctx.Err()
			})
			src.Refresh = 100 * time.Millisecond
			t.Cleanup(func() { time.Sleep(time.Hour) }) // what is still dialing ends
			reports := watching(t, src)
			for i := range 20 {
				start := time.Now()
				fails(t, reports, "timeout")
				d := time.Since(start)
				if d < r.least || d > r.most+110*time.Millisecond || i == 0 && d > r.most {
					t.Errorf("%+v: look-up %d ends after %v", r, i, d)
				}
			}
		})
	}
}
