package etcd

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/etcdtest"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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
	flag.Set("test.parallel", "8") //nolint:errcheck // it exists; tests wait for servers more than they compute
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

var must = etcdtest.Must

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

// clientOf returns a client of servers with the options that the package's page names.
func clientOf(t testing.TB, servers ...*etcdtest.Server) *clientv3.Client {
	t.Helper()
	return clientAt(t, etcdtest.Addrs(servers)...)
}

func clientAt(t testing.TB, addrs ...string) *clientv3.Client {
	t.Helper()
	return clientWith(t, clientv3.Config{Endpoints: addrs,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second})
}

func clientWith(t testing.TB, config clientv3.Config) *clientv3.Client {
	t.Helper()
	config.Logger = zap.NewNop() // the client's own words about servers that tests have killed
	c, err := clientv3.New(config)
	must(t, err)
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // a test may have closed it
	return c
}

// world is an etcd in this process, without a network. Its leases run by the clock of a bubble.
type world struct {
	mu       sync.Mutex // guards what follows
	revision int64
	leases   map[clientv3.LeaseID]*time.Timer
	ttl      map[clientv3.LeaseID]time.Duration
	keys     map[string]*mvccpb.KeyValue
	watches  map[int]watching
	made     int
}

// watching is one watch of a world.
type watching struct {
	prefix string
	events chan clientv3.WatchResponse
	of     *reach
}

func newWorld() *world {
	return &world{revision: 1, keys: map[string]*mvccpb.KeyValue{}, watches: map[int]watching{},
		leases: map[clientv3.LeaseID]*time.Timer{}, ttl: map[clientv3.LeaseID]time.Duration{}}
}

// reach is a world as one replica reaches it.
type reach struct {
	*world
	down  error  // what commands return, unless it is nil
	hangs bool   // commands take until their context ends, and are not carried out
	once  string // this one hangs so once
	deaf  bool   // watches learn nothing
	calls []call
}

// call is one command that was asked for.
type call struct {
	name string
	at   time.Time
}

func (r *reach) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// of returns when a command was asked for.
func (r *reach) of(name string) (at []time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		if c.name == name {
			at = append(at, c.at)
		}
	}
	return at
}

// do carries out a command.
func (r *reach) do(ctx context.Context, name string, f func() error) error {
	r.mu.Lock()
	r.calls = append(r.calls, call{name, time.Now()})
	if hangs := r.hangs || r.once == name; hangs {
		if !r.hangs {
			r.once = ""
		}
		r.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
	defer r.mu.Unlock()
	if r.down != nil {
		return r.down
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return f()
}

func (r *reach) grant(ctx context.Context, seconds int64) (id clientv3.LeaseID, err error) {
	err = r.do(ctx, "grant", func() error {
		r.made++
		id = clientv3.LeaseID(r.made)
		r.ttl[id] = time.Duration(seconds) * time.Second
		r.leases[id] = time.AfterFunc(r.ttl[id], func() { r.world.end(id) })
		return nil
	})
	return id, err
}

func (r *reach) renew(ctx context.Context, id clientv3.LeaseID) error {
	return r.do(ctx, "renew", func() error {
		if r.leases[id] == nil {
			return errGone
		}
		r.leases[id].Reset(r.ttl[id])
		return nil
	})
}

func (r *reach) revoke(ctx context.Context, id clientv3.LeaseID) error {
	return r.do(ctx, "revoke", func() error {
		go r.world.end(id)
		return nil
	})
}

// end ends a lease and deletes its keys.
func (w *world) end(id clientv3.LeaseID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.leases[id]; t != nil {
		t.Stop()
	}
	delete(w.leases, id)
	for name, kv := range w.keys {
		if kv.Lease == int64(id) {
			w.delete(name)
		}
	}
}

// delete deletes a key. Call with mu held.
func (w *world) delete(name string) {
	w.revision++
	delete(w.keys, name)
	w.tell(deletion(name, w.revision))
}

// left returns how many keys and leases there are, once all is quiet in the bubble.
func (w *world) left() (keys, leases int) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.keys), len(w.leases)
}

// deletion is what a watch gets of a key that is gone.
func deletion(name string, revision int64) *clientv3.Event {
	kv := &mvccpb.KeyValue{Key: []byte(name), ModRevision: revision}
	return &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: kv}
}

// deleteAll deletes all keys in one transaction.
func (w *world) deleteAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revision++
	var all []*clientv3.Event
	for name := range w.keys {
		all = append(all, deletion(name, w.revision))
	}
	clear(w.keys)
	for _, to := range w.watches {
		to.events <- clientv3.WatchResponse{Events: all}
	}
}

func (r *reach) put(ctx context.Context, name, value string, id clientv3.LeaseID) error {
	return r.do(ctx, "put", func() error {
		if r.leases[id] == nil {
			return errGone
		}
		r.write(name, value, id)
		return nil
	})
}

// write puts a key. Call with mu held.
func (w *world) write(name, value string, id clientv3.LeaseID) {
	w.revision++
	kv := &mvccpb.KeyValue{Key: []byte(name), Value: []byte(value), Lease: int64(id),
		CreateRevision: w.revision, ModRevision: w.revision}
	if old := w.keys[name]; old != nil {
		kv.CreateRevision = old.CreateRevision
	}
	w.keys[name] = kv
	w.tell(&clientv3.Event{Type: clientv3.EventTypePut, Kv: kv})
}

// tell tells watches of an event. Call with mu held.
func (w *world) tell(e *clientv3.Event) {
	for _, to := range w.watches {
		if strings.HasPrefix(string(e.Kv.Key), to.prefix) && !to.of.deaf {
			to.events <- clientv3.WatchResponse{Events: []*clientv3.Event{e}}
		}
	}
}

// wipe takes all data away, as a store that comes back with an empty directory. Watches wait for a revision
// that is not reached any more.
func (w *world) wipe() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, t := range w.leases {
		t.Stop()
		delete(w.leases, id)
	}
	clear(w.keys)
	clear(w.watches)
	w.revision = 1
}

// compact ends all watches as a compaction does that they were too slow for.
func (w *world) compact() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, to := range w.watches {
		to.events <- clientv3.WatchResponse{Canceled: true, CompactRevision: w.revision}
	}
}

func (r *reach) page(ctx context.Context, prefix, _ string, _ int64) (p page, err error) {
	err = r.do(ctx, "list", func() error {
		for name, kv := range r.keys {
			if strings.HasPrefix(name, prefix) {
				p.keys = append(p.keys, kv)
			}
		}
		p.revision, p.all = r.revision, int64(len(p.keys))
		return nil
	})
	return p, err
}

func (r *reach) newest(ctx context.Context, prefix string) (keys, revision int64, err error) {
	err = r.do(ctx, "newest", func() error {
		for name, kv := range r.keys {
			if strings.HasPrefix(name, prefix) {
				keys, revision = keys+1, max(revision, kv.ModRevision)
			}
		}
		return nil
	})
	return keys, revision, err
}

func (r *reach) watch(ctx context.Context, prefix string, _ int64) clientv3.WatchChan {
	events := make(chan clientv3.WatchResponse, 10_000)
	id := 0
	if err := r.do(ctx, "watch", func() error {
		r.made++
		id = r.made
		r.watches[id] = watching{prefix, events, r}
		return nil
	}); err != nil {
		close(events)
		return events
	}
	context.AfterFunc(ctx, func() { r.set(func() { delete(r.watches, id) }) })
	return events
}

func (r *reach) hurry() { r.set(func() { r.calls = append(r.calls, call{"hurry", time.Now()}) }) }

// replica returns a Source of the fleet f with default times, and how it reaches the world.
func (w *world) replica(id string) (*Source, *reach) {
	s := &Source{Fleet: "f", ID: id, Prefix: defaultPrefix, Period: defaultPeriod, Expiry: defaultExpiry}
	return s, &reach{world: w}
}

// join starts a replica.
func (w *world) join(t testing.TB, id string) (*watched, *reach) {
	s, r := w.replica(id)
	return r.begin(t, s), r
}

// begin starts one Watch of a Source.
func (r *reach) begin(t testing.TB, s *Source) *watched {
	return watchWith(t, func(ctx context.Context, report func(quotient.Pool, error)) error {
		return s.watch(ctx, s, r, report)
	})
}

var errAway = errors.Join(errors.New("away"), rpctypes.ErrNoLeader)
