package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/internal/setting"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var (
	// errAgain ends a session that knows less than the store does, which is no failure.
	errAgain = errors.New("poolsize/etcd: the known state of the fleet is outdated")
	// errGone means that the store has no such lease, or no key of this replica with it.
	errGone = errors.New("gone from the store, registering again")
)

// watcher is one call of Watch.
type watcher struct {
	c      *Source // complete
	store  store
	here   *registration
	report func(quotient.Pool, error)

	made    int       // which registration it last found
	due     time.Time // when the start that this registration begins is over
	ready   bool      // it is
	renewed time.Time // when the lease was renewed last, or granted
	looked  bool      // the last session had a look that succeeded
	blind   int       // looks since the last check of what is known
}

// manyKeys is a fleet of which a check costs the store about a millisecond. A check a second by each replica then
// takes about one of its processors. Both grow with the fleet, so larger ones check more rarely, by the square.
const manyKeys = 1000

// session registers the replica if need be, lists the fleet, and follows it until something fails.
func (w *watcher) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	held, err := w.here.hold(ctx, w.store, w.c)
	if err != nil {
		return err
	}
	w.renewed = began
	if held.made != w.made {
		w.made, w.ready, w.due = held.made, false, time.Now().Add(w.c.start())
	}
	f, err := w.list(ctx, held)
	if err != nil {
		return err
	}
	changes, err := w.follow(ctx, f)
	if err != nil {
		return err
	}
	w.say(f)
	look := time.NewTimer(w.pause())
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r, ok := <-changes:
			if err := w.learn(f, r, ok); err != nil {
				return err
			}
		case <-look.C:
			if err := w.look(ctx, f); err != nil {
				return err
			}
			look.Reset(w.pause())
		}
	}
}

// list returns the fleet as the store has it, with this replica in it.
func (w *watcher) list(ctx context.Context, held held) (*fleet, error) {
	keys, revision, err := list(ctx, w.store, w.c.keys())
	if err != nil {
		return nil, fmt.Errorf("poolsize/etcd: list %s: %w", w.c.keys(), err)
	}
	f := newFleet(w.c.keys(), held, revision)
	for _, kv := range keys {
		f.put(kv)
	}
	return f, w.missing(f)
}

// missing returns an error if this replica is not in the fleet.
func (w *watcher) missing(f *fleet) error {
	if f.present() {
		return nil
	}
	w.here.lost(f.held)
	return fmt.Errorf("poolsize/etcd: %s: %w", f.prefix+f.held.name, errGone)
}

// follow returns what changes in the fleet from its listing on, once the store has agreed to say it. The
// context ends it. It tries twice, as commands do.
func (w *watcher) follow(ctx context.Context, f *fleet) (clientv3.WatchChan, error) {
	for range 2 {
		ctx, cancel := context.WithCancel(ctx)
		late := time.AfterFunc(w.c.patience()/2, cancel)
		changes := w.store.watch(ctx, f.prefix, f.revision+1)
		if late.Stop() {
			return changes, nil
		}
	}
	return nil, fmt.Errorf("poolsize/etcd: watch %s: no answer within %v", f.prefix, w.c.patience())
}

// learn takes in one answer of the watch, and reports a pool that it changes.
func (w *watcher) learn(f *fleet, r clientv3.WatchResponse, ok bool) error {
	switch err := r.Err(); {
	case !ok:
		return fmt.Errorf("poolsize/etcd: watch %s: the client has ended it", f.prefix)
	case errors.Is(err, rpctypes.ErrCompacted):
		return errAgain
	case err != nil:
		return fmt.Errorf("poolsize/etcd: watch %s: %w", f.prefix, err)
	}
	before := f.pool()
	f.learn(r.Events)
	if err := w.missing(f); err != nil {
		return err
	}
	if len(f.keys) > mostKeys {
		return fmt.Errorf("poolsize/etcd: watch %s: %w", f.prefix, tooMany(int64(len(f.keys))))
	}
	if f.pool() != before {
		w.say(f)
	}
	return nil
}

// look renews the lease, checks what is known, and reports the pool.
func (w *watcher) look(ctx context.Context, f *fleet) error {
	began := time.Now()
	if err := w.store.renew(ctx, f.held.lease); err != nil {
		return fmt.Errorf("poolsize/etcd: renew %s: %w", f.prefix+f.held.name, err)
	}
	w.renewed, w.looked = began, true
	if err := w.check(ctx, f); err != nil {
		return err
	}
	w.say(f)
	return nil
}

// check asks the store whether the watch has missed anything, unless it has done so lately.
func (w *watcher) check(ctx context.Context, f *fleet) error {
	many := len(f.keys) / manyKeys
	if w.blind++; w.blind < many*many {
		return nil
	}
	w.blind = 0
	keys, newest, err := w.store.newest(ctx, f.prefix)
	if err != nil {
		return fmt.Errorf("poolsize/etcd: look at %s: %w", f.prefix, err)
	}
	if keys != int64(len(f.keys)) || newest != f.newest() {
		return errAgain
	}
	return nil
}

// say reports the pool, unless the start is not over. After an Expiry without a renewal, as when the process
// was suspended, the lease may have ended, and those of others with it. The next look finds that.
func (w *watcher) say(f *fleet) {
	w.ready = w.ready || !time.Now().Before(w.due)
	if w.ready && time.Since(w.renewed) < w.c.Expiry {
		w.report(f.pool(), nil)
	}
}

func (w *watcher) pause() time.Duration {
	p := setting.Jittered(w.c.Period)
	if !w.ready {
		p = min(p, max(0, time.Until(w.due)))
	}
	return p
}
