package etcd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/etcdtest"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/poolsize/internal/setting"
	"github.com/quotient-go/quotient/poolsize/internal/watched"
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
		c, err := clientv3.New(clientv3.Config{Endpoints: os.Args[2:], Logger: zap.NewNop()})
		if err != nil {
			fmt.Println(err)
			return
		}
		watched.Print(source(c, "child"))
		return
	}
	flag.Set("test.parallel", "8") //nolint:errcheck // it exists; tests wait for servers more than they compute
	goleak.VerifyTestMain(m)
}

// Times for tests with a real store. An expiry of 2 s is the least that etcd grants by default.
const (
	period = 50 * time.Millisecond
	expiry = 2 * time.Second
)

var must = tested.Must

// watch runs Watch until the test ends.
func watch(t testing.TB, s *Source) *watched.Log {
	t.Helper()
	return watched.Start(t, s.Watch)
}

// source returns a replica of the fleet f at test speed.
func source(c *clientv3.Client, id string) *Source {
	return &Source{Client: c, Fleet: "f", ID: id, Period: period, Expiry: expiry}
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
	s := &Source{Fleet: "f", ID: id, Prefix: setting.Prefix, Period: setting.Period, Expiry: setting.Expiry}
	return s, &reach{world: w}
}

// join starts a replica.
func (w *world) join(t testing.TB, id string) (*watched.Log, *reach) {
	s, r := w.replica(id)
	return r.begin(t, s), r
}

// begin starts one Watch of a Source.
func (r *reach) begin(t testing.TB, s *Source) *watched.Log {
	return watched.Start(t, func(ctx context.Context, report func(quotient.Pool, error)) error {
		return s.watch(ctx, s, r, report)
	})
}

var errAway = errors.Join(errors.New("away"), rpctypes.ErrNoLeader)
