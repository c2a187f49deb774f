package etcd

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
)

// childArg makes the test binary one replica: it watches the fleet at the address that follows, and prints
// each report.
const childArg = "etcd-child"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == childArg {
		child(os.Args[2])
		return
	}
	goleak.VerifyTestMain(m)
}

// Times for tests with a real store. An expiry of 2 s is the least that etcd grants by default.
const (
	period = 50 * time.Millisecond
	expiry = 2 * time.Second
	// patience bounds every wait for an event.
	patience = 20 * time.Second
)

func child(addr string) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // it ends with its parent
		cancel()
	}()
	say := func(p quotient.Pool, err error) { fmt.Println(p.Replicas, err) }
	source(c, "child").Watch(ctx, say) //nolint:errcheck // the context's end
}

// startChild returns a process that is one replica, when it has learned of the fleet.
func startChild(t *testing.T, addr string) (p *exec.Cmd, says *bufio.Scanner) {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	p = exec.Command(exe, childArg, addr)
	in, err := p.StdinPipe()
	must(t, err)
	out, err := p.StdoutPipe()
	must(t, err)
	must(t, p.Start())
	t.Cleanup(func() {
		p.Process.Signal(syscall.SIGCONT) //nolint:errcheck // it may have ended
		in.Close()                        //nolint:errcheck // the child ends with it
		p.Wait()                          //nolint:errcheck // some children are killed
	})
	says = bufio.NewScanner(out)
	says.Scan()
	if !strings.HasSuffix(says.Text(), "<nil>") {
		t.Fatalf("the child says %q", says.Text())
	}
	return p, says
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// source returns a replica of the fleet f at test speed.
func source(c *clientv3.Client, id string) *Source {
	return &Source{Client: c, Fleet: "f", ID: id, Period: period, Expiry: expiry}
}

// noted is one report.
type noted struct {
	pool quotient.Pool
	err  error
	at   time.Time
}

// watched is a Watch that runs.
type watched struct {
	cancel context.CancelFunc
	ended  chan error

	mu   sync.Mutex // guards what follows
	all  []noted
	more chan struct{} // gets a value after each report
}

// watch runs Watch until the test ends.
func watch(t testing.TB, s *Source) *watched {
	t.Helper()
	return watchWith(t, s.Watch)
}

func watchWith(t testing.TB, run func(context.Context, func(quotient.Pool, error)) error) *watched {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &watched{cancel: cancel, ended: make(chan error, 1), more: make(chan struct{}, 1)}
	go func() {
		w.ended <- run(ctx, w.report)
		close(w.ended)
	}()
	t.Cleanup(func() { w.leave(t) })
	return w
}

func (w *watched) report(p quotient.Pool, err error) {
	w.mu.Lock()
	w.all = append(w.all, noted{p, err, time.Now()})
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
func (w *watched) since(n int) (pools, errs []noted) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.all[n:] {
		if r.err != nil {
			errs = append(errs, r)
		} else {
			pools = append(pools, r)
		}
	}
	return pools, errs
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
	return pools[len(pools)-1].pool
}

// lastError returns the last error; nil at first.
func (w *watched) lastError() error {
	_, errs := w.since(0)
	if len(errs) == 0 {
		return nil
	}
	return errs[len(errs)-1].err
}

// least returns the smallest size of the pools from report n on.
func (w *watched) least(n int) int {
	least := 1 << 30
	pools, _ := w.since(n)
	for _, p := range pools {
		least = min(least, p.pool.Replicas)
	}
	return least
}

// until waits until a condition holds after a report.
func (w *watched) until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	timeout := time.After(patience)
	for !holds() {
		select {
		case <-w.more:
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

// goesOn waits for n pools more.
func (w *watched) goesOn(t testing.TB, n int) {
	t.Helper()
	before := w.count()
	w.until(t, "it goes on", func() bool { pools, _ := w.since(before); return len(pools) >= n })
}

// fails waits for an error more.
func (w *watched) fails(t testing.TB) {
	t.Helper()
	before := w.count()
	w.until(t, "an error", func() bool { _, errs := w.since(before); return len(errs) > 0 })
}
