package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Source counts the replicas of a fleet in etcd, and is one of them. Client and Fleet must be set; the other
// fields may be zero. It may be used from many goroutines, and watched several times, also at once: that is
// still one replica. Do not copy it, or change its fields, once it is in use.
type Source struct {
	// Client reaches the store. The caller closes it. The package's page names the options that it should have.
	Client *clientv3.Client
	// Fleet names those that share the limits, in 1 to 200 bytes without slashes. Fleets know nothing of each
	// other.
	Fleet string
	// Prefix begins all keys, in at most 200 bytes; "": quotient.
	Prefix string
	// ID names this replica for those who read the keys, in at most 200 bytes without slashes; "": the host's
	// name. Two Sources with one ID still count as two.
	ID string
	// Period is the time from one look at the store to the next, give or take a tenth: a millisecond or more;
	// 0: 1 s. Changes come by themselves in between.
	Period time.Duration
	// Expiry is how long this replica counts after it has renewed its lease last: two periods to ten minutes,
	// in whole seconds; 0: 10 s. The store raises what is too short for it, by default to 2 s.
	Expiry time.Duration

	once sync.Once
	here *registration // of this process, shared by all Watches
}

// Watch registers a replica and reports the pool, at each look and whenever it changes in between. It takes
// the replica out of the fleet when the context is done, unless another Watch of this Source goes on. It
// returns the context's error, after at most one command's time; or at once the first field that is wrong.
// Every command that fails is reported as an error. A registration that the store has lost is reported as an
// error too. Watch then tries again after 100 ms, after twice that and so on, up to Period.
//
// Nothing is reported before the start is over. It takes one and a quarter periods and the longest time of a
// command, which is a second, or half an Expiry if that is less. By then all others that reach the store have
// looked again, and are back if the store had lost them. A replica that the store has lost starts again.
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
	retry := min(firstRetry, c.Period)
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
			w.looked, retry = false, min(firstRetry, c.Period)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(jittered(retry)):
		}
		retry = min(2*retry, c.Period)
	}
}
