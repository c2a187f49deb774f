package redis

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/needed"
	"github.com/quotient-go/quotient/poolsize/redis/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

// childArg makes the test binary one processor: it watches the fleet at the address that follows, and prints
// each report.
const childArg = "redis-child"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == childArg {
		child(os.Args[2])
		return
	}
	flag.Set("test.parallel", "8")         //nolint:errcheck // the flag exists; most tests wait for real servers
	redis.SetLogger(&logging.VoidLogger{}) // the client's own words about servers that tests have killed

	// The client's dials end up to a second after it is closed.
	const pool = "github.com/redis/go-redis/v9/internal/pool.(*ConnPool)."
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(pool+"tryDial"),
		goleak.IgnoreAnyFunction(pool+"dialConn"))
}

// Periods for tests in real time: short, and still an expiry that a busy machine does not miss by chance.
const (
	period = 50 * time.Millisecond
	expiry = 2 * time.Second
	// patience bounds every wait for an event.
	patience = 20 * time.Second
)

func child(addr string) {
	c := redis.NewClient(&redis.Options{Addr: addr})
	s := &Source{Client: c, Fleet: "f", ID: "child", Period: period, Expiry: expiry}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // it ends with its parent
		cancel()
	}()
	//nolint:errcheck // the context's end
	s.Watch(ctx, func(p quotient.Pool, err error) { fmt.Println(p.Replicas, err) })
}

// startChild returns a process that is one processor, when it has learned of the fleet.
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

// start returns a server that ends with the test, and says if it is not a real one.
func start(t testing.TB, config ...string) *redistest.Server {
	t.Helper()
	s, err := redistest.Start(config...)
	must(t, err)
	if !s.Real() {
		t.Log("miniredis stands in for redis-server, which is not installed")
	}
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// needReal skips a test that only a real server can pass.
func needReal(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		needed.Without(t, "redis-server",
			"redis-server is not installed: nothing is known about a real one (apt-get install redis-server)")
	}
}

// clientOf returns a client with the options, which may be nil, for a server.
func clientOf(t testing.TB, s *redistest.Server, o *redis.Options) *redis.Client {
	t.Helper()
	if o == nil {
		o = &redis.Options{}
	}
	o.ContextTimeoutEnabled = true
	if o.Addr == "" {
		o.Addr = s.Addr()
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // a test may have closed it
	return c
}

// pipeAddr is where clients with a dialer of their own seem to dial. A name would be looked up, which a
// bubble cannot do.
const pipeAddr = "127.0.0.1:6379"

// pipeClient returns a client of miniredis without a network between them.
func pipeClient(t testing.TB, mini *miniredis.Miniredis) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: pipeAddr,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return mini.Dial() }})
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// source returns a processor of the fleet f at test speed.
func source(c redis.UniversalClient, id string) *Source {
	return &Source{Client: c, Fleet: "f", ID: id, Period: period, Expiry: expiry}
}

// watched is a Watch that runs.
type watched struct {
	cancel context.CancelFunc
	ended  chan error

	mu    sync.Mutex // guards what follows
	pools []quotient.Pool
	errs  []error
	more  chan struct{} // gets a value after each report
}

// watch runs Watch until the test ends.
func watch(t testing.TB, s *Source) *watched {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &watched{cancel: cancel, ended: make(chan error, 1), more: make(chan struct{}, 1)}
	go func() {
		w.ended <- s.Watch(ctx, w.report)
		close(w.ended)
	}()
	t.Cleanup(func() { w.leave(t) })
	return w
}

func (w *watched) report(p quotient.Pool, err error) {
	w.mu.Lock()
	if err != nil {
		w.errs = append(w.errs, err)
	} else {
		w.pools = append(w.pools, p)
	}
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

// last returns the last pool; the zero value at first.
func (w *watched) last() quotient.Pool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pools) == 0 {
		return quotient.Pool{}
	}
	return w.pools[len(w.pools)-1]
}

// counts returns how many pools and errors were reported.
func (w *watched) counts() (pools, errs int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pools), len(w.errs)
}

// least returns the smallest size of the pools from number from on.
func (w *watched) least(from int) int {
	n := 1 << 30
	for _, p := range w.since(from) {
		n = min(n, p.Replicas)
	}
	return n
}

// since returns the pools from number from on.
func (w *watched) since(from int) []quotient.Pool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.pools[from:])
}

// until waits until a condition holds after a report.
func (w *watched) until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	timeout := time.After(patience)
	for !holds() {
		select {
		case <-w.more:
		case <-timeout:
			pools, errs := w.counts()
			t.Fatalf("%s: not after %v; %d pools, the last %+v; %d errors, %v", what, patience, pools,
				w.last(), errs, w.lastError())
		}
	}
}

func (w *watched) lastError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.errs) == 0 {
		return nil
	}
	return w.errs[len(w.errs)-1]
}

// wants waits for a pool of n in which this processor has an ordinal, which only an agreement gives.
func (w *watched) wants(t testing.TB, n, ordinal int) {
	t.Helper()
	w.until(t, fmt.Sprintf("%d of %d", ordinal, n),
		func() bool { return w.last() == quotient.Pool{Replicas: n, Ordinal: ordinal} })
}

// goesOn waits for six pools more.
func (w *watched) goesOn(t testing.TB) {
	t.Helper()
	before, _ := w.counts()
	w.until(t, "it goes on", func() bool { n, _ := w.counts(); return n > before+5 })
}

// fails waits for an error more.
func (w *watched) fails(t testing.TB) {
	t.Helper()
	_, before := w.counts()
	w.until(t, "an error", func() bool { _, n := w.counts(); return n > before })
}

// hook is what a client's commands pass through.
type hook func(next redis.ProcessHook) redis.ProcessHook

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return h(next) }

// newMini returns an imitation of a store that ends with the test.
func newMini(t testing.TB) *miniredis.Miniredis {
	mini := miniredis.NewMiniRedis()
	t.Cleanup(mini.Close)
	return mini
}
