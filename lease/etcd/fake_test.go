package etcd

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// world is an etcd in fake time. Its leases end on the instant, which is sooner than a real one's do.
type world struct {
	mu       sync.Mutex // guards what follows
	revision int64
	raft     uint64 // the term of those that lead the store
	leases   map[clientv3.LeaseID]*held
	keys     map[string]entry
	watchers map[*reach]func()
}

type held struct {
	ttl   time.Duration
	timer *time.Timer
}

type entry struct {
	candidate
	lease clientv3.LeaseID
}

func newWorld() *world {
	w := &world{raft: 2}
	w.wipe()
	return w
}

// wipe loses all data.
func (w *world) wipe() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.leases {
		l.timer.Stop()
	}
	w.revision, w.leases, w.keys = 1, map[clientv3.LeaseID]*held{}, map[string]entry{}
	if w.watchers == nil {
		w.watchers = map[*reach]func(){}
	}
}

// end ends a lease with its keys. The caller holds the lock.
func (w *world) end(id clientv3.LeaseID) {
	if l := w.leases[id]; l != nil {
		l.timer.Stop()
		delete(w.leases, id)
	}
	for k, e := range w.keys {
		if e.lease == id {
			delete(w.keys, k)
			w.change()
		}
	}
}

// change makes a revision and wakes the watchers. The caller holds the lock.
func (w *world) change() {
	w.revision++
	for r, changed := range w.watchers {
		if r.down == nil && !r.deaf {
			changed()
		}
	}
}

// reach is the store as one server reaches it.
type reach struct {
	*world
	// guarded by world.mu
	down  error         // what each command fails by
	deaf  bool          // its watch says nothing
	hangs string        // this command hangs once, until its context ends
	ever  bool          // it hangs each time
	stale uint64        // the raft term of the member that renews; 0: as it is
	stops chan struct{} // the process stands still after a command, until this is closed
	after string        // that command; empty: any
	asked []string
}

var errAway = errors.New("the store is away")

// call is one command.
func (r *reach) call(ctx context.Context, name string, f func() error) (err error) {
	r.mu.Lock()
	r.asked = append(r.asked, name)
	down, hang := r.down, r.hangs == name
	if hang && !r.ever {
		r.hangs = ""
	}
	if !hang && down == nil {
		err = f()
	}
	var stops chan struct{}
	if r.after == "" || r.after == name {
		stops, r.stops = r.stops, nil
	}
	r.mu.Unlock()
	if stops != nil {
		<-stops
	}
	if hang {
		<-ctx.Done()
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case down != nil:
		return down
	}
	return err
}

func (r *reach) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *reach) count(name string) (n int) {
	r.set(func() { n = strings.Count(strings.Join(r.asked, " ")+" ", name+" ") })
	return n
}

func (r *reach) grant(ctx context.Context, seconds int64) (id clientv3.LeaseID, err error) {
	return id, r.call(ctx, "grant", func() error {
		r.revision++ // a store does not: it only makes ids here
		id = clientv3.LeaseID(r.revision)
		l := &held{ttl: time.Duration(seconds) * time.Second}
		l.timer = time.AfterFunc(l.ttl, func() { r.set(func() { r.end(id) }) })
		r.leases[id] = l
		return nil
	})
}

func (r *reach) revoke(ctx context.Context, id clientv3.LeaseID) error {
	return r.call(ctx, "revoke", func() error { r.end(id); return nil })
}

func (r *reach) renew(ctx context.Context, id clientv3.LeaseID) (raft uint64, err error) {
	return raft, r.call(ctx, "renew", func() error {
		if raft = r.stale; raft != 0 {
			return nil // by a member that leads no more: it does not count
		}
		raft = r.raft
		l := r.leases[id]
		if l == nil || !l.timer.Reset(l.ttl) {
			return errGone
		}
		return nil
	})
}

func (r *reach) put(ctx context.Context, c candidate, id clientv3.LeaseID) (revision int64, err error) {
	return revision, r.call(ctx, "put", func() error {
		if r.leases[id] == nil {
			return errGone
		}
		c.revision = r.revision + 1
		r.keys[c.key] = entry{c, id}
		r.change()
		revision = c.revision
		return nil
	})
}

func (r *reach) draw(ctx context.Context, c candidate, id clientv3.LeaseID) (revision int64, err error) {
	return revision, r.call(ctx, "draw", func() error {
		if r.keys[c.key].revision != c.revision || r.leases[id] == nil {
			return errGone
		}
		r.change()
		revision = r.revision
		return nil
	})
}

func (r *reach) first(ctx context.Context, prefix string, c candidate) (first candidate, raft uint64,
	err error) {
	return first, raft, r.call(ctx, "first", func() error {
		raft = r.raft
		if r.keys[c.key].revision != c.revision {
			return errGone
		}
		for k, e := range r.keys {
			if strings.HasPrefix(k, prefix) && (first.key == "" || e.revision < first.revision) {
				first = e.candidate
			}
		}
		return nil
	})
}

func (r *reach) watch(ctx context.Context, _ string, changed func()) {
	r.set(func() { r.watchers[r] = changed })
	changed()
	<-ctx.Done()
	r.set(func() { delete(r.watchers, r) })
}

func (r *reach) hurry() {}

// running is one server's Run in a world.
type running struct {
	*judged
	*reach
	cancel context.CancelFunc
	ended  chan error
}

// join runs one server more in the world.
func (w *world) join(t *testing.T, j *judge, name string) *running {
	t.Helper()
	r := &running{judged: j.server(t, name), reach: &reach{world: w}, ended: make(chan error, 1)}
	e := &Election{Server: r.judged, URL: "http://" + name, Name: "locks", TTL: 8 * time.Second,
		Log: slog.New(slog.DiscardHandler)}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(t.Context())
	go func() { r.ended <- e.run(ctx, r.reach) }()
	synctest.Wait()
	t.Cleanup(r.leave)
	return r
}

// set is the reach's, not the judge's.
func (r *running) set(f func()) { r.reach.set(f) }

// leave ends Run.
func (r *running) leave() {
	r.cancel()
	r.ended <- <-r.ended
}
