package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/rest"
	"github.com/quotient-go/quotient/poolsize/internal/setting"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Source counts the replicas of a fleet in etcd, and is one of them. Client and Fleet must be set; the other
// fields may be zero. It may be used from many goroutines, and watched several times, also at once: that is
// still one replica. Do not copy it, or change its fields, once it is in use.
type Source struct {
	// Client reaches the store. The caller closes it. The package's page names the options that it should have.
	Client *clientv3.Client
	// Fleet names the replicas that share the limits, in 1 to 200 bytes without slashes. Replicas of
	// different fleets do not count each other.
	Fleet string
	// Prefix begins all keys, in at most 200 bytes; "" means quotient.
	Prefix string
	// ID names this replica in its key, for readers of the keys, in at most 200 bytes without slashes; ""
	// means the host's name. Two Sources with one ID still count as two.
	ID string
	// Period is the time from one check of the store to the next, give or take a tenth: a millisecond or
	// more; 0 means 1 s. Changes arrive in between, without a check.
	Period time.Duration
	// Expiry is how long this replica counts after the last renewal of its lease: two periods to ten minutes, in
	// whole seconds; 0 means 10 s. The store raises an Expiry below its own minimum, which is 2 s by default.
	Expiry time.Duration

	once sync.Once
	here *registration // of this process, shared by all Watches
}

// Watch registers a replica and reports the pool, at each check and at each change in between. When the
// context ends, it removes the replica from the fleet, unless another Watch of this Source is running. It
// then returns the context's error, after at most the time of one command. If a field is wrong, Watch
// returns at once an error that names the first such field.
//
// Every failed command is reported as an error, and so is a registration that the store has lost. Watch
// then tries again after 100 ms. The pause doubles with each further failure, up to Period.
//
// Nothing is reported before the start is over. The start takes one and a quarter periods and the longest time of a
// command, which is a second, or half an Expiry if that is less. By then all others that reach the store have checked
// it again, and are back if the store had lost them. A replica that the store has lost starts again.
func (s *Source) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	c, err := s.complete()
	if err != nil {
		return err
	}
	return s.watch(ctx, c, &client{Client: c.Client, ctx: ctx}, report)
}

// watch is Watch with a complete source.
func (s *Source) watch(ctx context.Context, c *Source, st store, report func(quotient.Pool, error)) error {
	s.once.Do(func() { s.here = newRegistration(c.ID) })
	if err := s.here.join(ctx); err != nil {
		return err
	}
	w := &watcher{c: c, store: timed{st, c.patience()}, here: s.here, report: report}
	defer func() { s.here.leave(ctx, w.store) }()
	retry := min(setting.FirstRetry, c.Period)
	for {
		err := w.session(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errors.Is(err, errAgain) {
			report(quotient.Pool{}, err)
			w.store.hurry()
		}
		if w.looked {
			w.looked, retry = false, min(setting.FirstRetry, c.Period)
		}
		if !rest.For(ctx, setting.Jittered(retry)) {
			return ctx.Err()
		}
		retry = min(2*retry, c.Period)
	}
}
