package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// value is what a replica's key holds. A later version may add fields. A reader takes what it knows of them,
// and counts a key whose value it cannot read as one replica.
const value = `{"version":1}`

// held is a registration as it was found or made.
type held struct {
	name  string // of the key, without its prefix
	lease clientv3.LeaseID
	made  int // how often the key was put before
}

// registration is the one key of this process and its lease. All Watches of a Source share it.
type registration struct {
	turn    chan struct{} // holds a value while a Watch has what follows, also during commands
	held    held          // lease 0: none
	there   bool          // the key has been put, and no Watch has missed it since
	watches int           // that run
}

func newRegistration(id string) *registration {
	return &registration{turn: make(chan struct{}, 1), held: held{name: id + ":" + rand.Text()}}
}

func (r *registration) join(ctx context.Context) error {
	if err := r.enter(ctx); err != nil {
		return err
	}
	defer r.exit()
	r.watches++
	return nil
}

func (r *registration) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *registration) exit() { <-r.turn }

// hold renews the registration, or makes a new one where there is none any more.
func (r *registration) hold(ctx context.Context, st store, c *Source) (held, error) {
	if err := r.enter(ctx); err != nil {
		return held{}, err
	}
	defer r.exit()
	if r.held.lease != 0 {
		switch err := st.renew(ctx, r.held.lease); {
		case errors.Is(err, errGone):
			r.held.lease, r.there = 0, false
		case err != nil:
			return held{}, fmt.Errorf("poolsize/etcd: renew %s: %w", c.keys()+r.held.name, err)
		}
	}
	if r.there {
		return r.held, nil
	}
	if err := r.register(ctx, st, c); err != nil {
		return held{}, fmt.Errorf("poolsize/etcd: register %s: %w", c.keys()+r.held.name, err)
	}
	return r.held, nil
}

// register puts the key. If it fails the lease is kept, so that a put that arrives later is revoked with it.
func (r *registration) register(ctx context.Context, st store, c *Source) (err error) {
	if r.held.lease == 0 {
		if r.held.lease, err = st.grant(ctx, int64(c.Expiry/time.Second)); err != nil {
			return err
		}
	}
	if err := st.put(ctx, c.keys()+r.held.name, value, r.held.lease); err != nil {
		return err
	}
	r.there = true
	r.held.made++
	return nil
}

// lost takes in that a Watch has missed the key, unless it was made again meanwhile.
func (r *registration) lost(h held) {
	r.turn <- struct{}{} // others have it for a few commands at most
	defer r.exit()
	if r.held == h {
		r.there = false
	}
}

// leave counts a Watch out. The last one revokes the lease, and so deletes the key, although the context is
// done. If that fails, the key expires.
func (r *registration) leave(ctx context.Context, st store) {
	r.turn <- struct{}{}
	defer r.exit()
	if r.watches--; r.watches > 0 || r.held.lease == 0 {
		return
	}
	st.revoke(context.WithoutCancel(ctx), r.held.lease) //nolint:errcheck // see above
	r.held.lease, r.there = 0, false
}
