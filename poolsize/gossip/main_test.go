package gossip

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == childArg {
		child(os.Args[2])
		return
	}
	goleak.VerifyTestMain(m)
}

// racing is set under the race detector, which costs too much for a test of what something costs.
var racing bool

// Times for tests with real sockets: short, and still not missed by chance on a busy machine.
const (
	interval = 20 * time.Millisecond
	rejoin   = 100 * time.Millisecond
	probe    = 100 * time.Millisecond
	// patience bounds every wait for an event.
	patience = 20 * time.Second
)

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// config is one of a replica at test speed, on a free port of loopback.
func config(name string, join ...string) Config {
	return Config{Name: name, Bind: "127.0.0.1:0", Join: join, Interval: interval, Rejoin: rejoin,
		Probe: probe}
}

func source(t testing.TB, c Config) *Source {
	t.Helper()
	s, err := New(c)
	must(t, err)
	return s
}

// noted is one report.
type noted struct {
	pool quotient.Pool
	err  error
}

// watched is a Watch that runs.
type watched struct {
	*Source
	cancel context.CancelFunc
	ended  chan error

	mu   sync.Mutex // guards what follows
	all  []noted
	more chan struct{} // gets a value after each report
}

// start watches a replica until the test ends.
func start(t testing.TB, c Config) *watched {
	t.Helper()
	return watchOf(t, source(t, c))
}

func watchOf(t testing.TB, s *Source) *watched {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &watched{Source: s, cancel: cancel, ended: make(chan error, 1), more: make(chan struct{}, 1)}
	go func() {
		w.ended <- s.Watch(ctx, w.report)
		close(w.ended)
	}()
	t.Cleanup(func() { w.leave(t) })
	return w
}

func (w *watched) report(p quotient.Pool, err error) {
	w.mu.Lock()
	w.all = append(w.all, noted{p, err})
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// leave ends the Watch.
func (w *watched) leave(t testing.TB) {
	t.Helper()
	w.cancel()
	select {
	case err, first := <-w.ended:
		if first && err != context.Canceled {
			t.Errorf("Watch returned %v", err)
		}
	case <-time.After(patience):
		t.Error("Watch does not end")
	}
}

// since returns the reports from number n on: pools alone, or errors alone.
func (w *watched) since(n int) (pools []quotient.Pool, errs []error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.all[n:] {
		if r.err != nil {
			errs = append(errs, r.err)
		} else {
			pools = append(pools, r.pool)
		}
	}
	return pools, errs
}

// least and most are the smallest and the largest size of the pools from report n on.
func (w *watched) least(n int) int {
	least := largestPool
	pools, _ := w.since(n)
	for _, p := range pools {
		least = min(least, p.Replicas)
	}
	return least
}

func (w *watched) most(n int) (most int) {
	pools, _ := w.since(n)
	for _, p := range pools {
		most = max(most, p.Replicas)
	}
	return most
}

func (w *watched) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}

// last returns the last pool; the zero value at first.
func (w *watched) last() quotient.Pool {
	pools, _ := w.since(0)
	if len(pools) == 0 {
		return quotient.Pool{}
	}
	return pools[len(pools)-1]
}

// lastError returns the last error; nil at first.
func (w *watched) lastError() error {
	_, errs := w.since(0)
	if len(errs) == 0 {
		return nil
	}
	return errs[len(errs)-1]
}

// until waits until a condition holds.
func (w *watched) until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	timeout := time.After(patience)
	for !holds() {
		select {
		case <-w.more:
		case <-time.After(interval / 4):
		case <-timeout:
			t.Fatalf("%s: not after %v; %d reports; the last pool %+v, the last error %v",
				what, patience, w.count(), w.last(), w.lastError())
		}
	}
}

// wants waits for a pool of n in which this replica has an ordinal.
func (w *watched) wants(t testing.TB, n, ordinal int) {
	t.Helper()
	want := quotient.Pool{Replicas: n, Ordinal: ordinal}
	w.until(t, fmt.Sprintf("%d of %d", ordinal, n), func() bool { return w.last() == want })
}

// address waits until a replica listens, and returns where.
func (w *watched) address(t testing.TB) string {
	t.Helper()
	w.until(t, "it listens", func() bool { return w.Stats().Address != "" })
	return w.Stats().Address
}
