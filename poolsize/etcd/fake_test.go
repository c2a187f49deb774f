package etcd

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

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
	down  error // what commands return, unless it is nil
	hangs bool  // commands take until their context ends, and are not carried out
	deaf  bool  // watches learn nothing
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
	if r.hangs {
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
	return watchOn(t, s, r)
}

var errAway = errors.Join(errors.New("away"), rpctypes.ErrNoLeader)

// hangs is a store of which one command hangs once.
type hangs struct {
	*reach
	name string
	done bool
}

func (h *hangs) first(ctx context.Context, name string) error {
	if h.name != name || h.done {
		return nil
	}
	h.done = true
	<-ctx.Done()
	return ctx.Err()
}

func (h *hangs) grant(ctx context.Context, seconds int64) (clientv3.LeaseID, error) {
	if err := h.first(ctx, "grant"); err != nil {
		return 0, err
	}
	return h.reach.grant(ctx, seconds)
}

func (h *hangs) put(ctx context.Context, name, value string, id clientv3.LeaseID) error {
	if err := h.first(ctx, "put"); err != nil {
		return err
	}
	return h.reach.put(ctx, name, value, id)
}

func (h *hangs) page(ctx context.Context, prefix, from string, revision int64) (page, error) {
	if err := h.first(ctx, "list"); err != nil {
		return page{}, err
	}
	return h.reach.page(ctx, prefix, from, revision)
}

func (h *hangs) watch(ctx context.Context, prefix string, from int64) clientv3.WatchChan {
	if h.first(ctx, "watch") != nil {
		return nil
	}
	return h.reach.watch(ctx, prefix, from)
}

func (h *hangs) renew(ctx context.Context, id clientv3.LeaseID) error {
	if err := h.first(ctx, "renew"); err != nil {
		return err
	}
	return h.reach.renew(ctx, id)
}

func (h *hangs) newest(ctx context.Context, prefix string) (int64, int64, error) {
	if err := h.first(ctx, "newest"); err != nil {
		return 0, 0, err
	}
	return h.reach.newest(ctx, prefix)
}

func (h *hangs) revoke(ctx context.Context, id clientv3.LeaseID) error {
	if err := h.first(ctx, "revoke"); err != nil {
		return err
	}
	return h.reach.revoke(ctx, id)
}

// watchOn starts one Watch of a Source on a store.
func watchOn(t testing.TB, s *Source, st store) *watched {
	return watchWith(t, func(ctx context.Context, report func(quotient.Pool, error)) error {
		return s.watch(ctx, s, st, report)
	})
}
