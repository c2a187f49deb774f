package etcd

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/quotient-go/quotient/internal/rest"
)

const (
	// mostKeys is how many a fleet may have: as many replicas as a Limiter takes.
	mostKeys = 1_000_000
	// onePage is how many of them one command lists.
	onePage = 5_000
)

// page is a part of a listing.
type page struct {
	keys     []*mvccpb.KeyValue
	more     bool
	all      int64 // how many keys there are from the first of this page on
	revision int64
}

// store is what a Source calls of etcd.
type store interface {
	grant(ctx context.Context, seconds int64) (clientv3.LeaseID, error)
	// renew returns errGone if there is no such lease.
	renew(ctx context.Context, lease clientv3.LeaseID) error
	revoke(ctx context.Context, lease clientv3.LeaseID) error
	put(ctx context.Context, key, value string, lease clientv3.LeaseID) error
	// page returns the first keys from one on, without values, of those with a prefix, as they are at a
	// revision; 0: now.
	page(ctx context.Context, prefix, from string, revision int64) (page, error)
	// newest returns how many keys have a prefix, and the last revision that changed one of them.
	newest(ctx context.Context, prefix string) (keys, revision int64, err error)
	// watch returns once the store has agreed, or the context is done.
	watch(ctx context.Context, prefix string, from int64) clientv3.WatchChan
	// hurry has the client connect again at once, if it is waiting before it does.
	hurry()
}

// client is the store as one Watch reaches it by the program's client.
type client struct {
	*clientv3.Client
	ctx   context.Context // of the Watch
	alive *renewals       // nil: none is open
}

// renewals is a stream on which leases are renewed.
type renewals struct {
	stream etcdserverpb.Lease_LeaseKeepAliveClient // nil before the first
	ctx    context.Context
	end    context.CancelFunc
}

func (c *client) grant(ctx context.Context, seconds int64) (clientv3.LeaseID, error) {
	r, err := c.Grant(ctx, seconds)
	if err != nil {
		return 0, err
	}
	return r.ID, nil
}

// renew asks once, on a stream that stays open until the Watch ends. Where the store has users, each new
// stream costs it the check of a password. A stream that was open before may have ended with its member, so
// then another one is tried.
//
// KeepAliveOnce opens one each time. It asks again and again without a pause where a server, or a balancer
// before it, says at once that it cannot now. A KeepAlive goes on until the client is closed.
func (c *client) renew(ctx context.Context, lease clientv3.LeaseID) error {
	used := c.alive != nil
	ttl, err := c.ask(ctx, lease)
	if err != nil && used && ctx.Err() == nil {
		ttl, err = c.ask(ctx, lease)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return rpctypes.Error(err)
	case ttl <= 0:
		return errGone
	}
	return nil
}

// ask renews a lease and returns its new time. A stream that fails, or that is late, is ended.
func (c *client) ask(ctx context.Context, lease clientv3.LeaseID) (ttl int64, err error) {
	if c.alive == nil {
		c.alive = &renewals{}
		c.alive.ctx, c.alive.end = context.WithCancel(c.ctx)
	}
	late := context.AfterFunc(ctx, c.alive.end)
	ttl, err = c.alive.ask(c.ActiveConnection(), lease)
	if !late() || err != nil {
		c.alive.end()
		c.alive = nil
	}
	return ttl, err
}

func (r *renewals) ask(conn *grpc.ClientConn, lease clientv3.LeaseID) (ttl int64, err error) {
	if r.stream == nil {
		if r.stream, err = etcdserverpb.NewLeaseClient(conn).LeaseKeepAlive(r.ctx); err != nil {
			return 0, err
		}
	}
	err = r.stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(lease)})
	if err != nil && err != io.EOF { // at the end of a stream only Recv knows why
		return 0, err
	}
	answer, err := r.stream.Recv()
	return answer.GetTTL(), err
}

func (c *client) revoke(ctx context.Context, lease clientv3.LeaseID) error {
	_, err := c.Revoke(ctx, lease)
	return err
}

func (c *client) put(ctx context.Context, key, value string, lease clientv3.LeaseID) error {
	_, err := c.Put(ctx, key, value, clientv3.WithLease(lease))
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return errGone
	}
	return err
}

func (c *client) page(ctx context.Context, prefix, from string, revision int64) (page, error) {
	end := clientv3.GetPrefixRangeEnd(prefix)
	r, err := c.Get(ctx, from, clientv3.WithRange(end), clientv3.WithRev(revision),
		clientv3.WithKeysOnly(), clientv3.WithLimit(onePage))
	if err != nil {
		return page{}, err
	}
	return page{r.Kvs, r.More, r.Count, r.Header.Revision}, nil
}

// list returns all keys with a prefix as they are at one revision, and that.
func list(ctx context.Context, st store, prefix string) (keys []*mvccpb.KeyValue, revision int64, err error) {
	for from := prefix; ; {
		p, err := st.page(ctx, prefix, from, revision)
		if err != nil {
			return nil, 0, err
		}
		revision = cmp.Or(revision, p.revision)
		if n := int64(len(keys)) + p.all; n > mostKeys {
			return nil, 0, tooMany(n)
		}
		keys = append(keys, p.keys...)
		if !p.more || len(p.keys) == 0 {
			return keys, revision, nil
		}
		from = string(keys[len(keys)-1].Key) + "\x00"
	}
}

func tooMany(keys int64) error {
	return fmt.Errorf("%d keys, not at most %d", keys, mostKeys)
}

func (c *client) newest(ctx context.Context, prefix string) (keys, revision int64, err error) {
	r, err := c.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1),
		clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend))
	if err != nil || len(r.Kvs) == 0 {
		return 0, 0, err
	}
	return r.Count, r.Kvs[0].ModRevision, nil
}

// watch takes a stream of its own each time. A client has one for all watches with the same metadata, and it
// may hang at a server that is gone.
func (c *client) watch(ctx context.Context, prefix string, from int64) clientv3.WatchChan {
	ctx = metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(ctx), "quotient-watch", rand.Text())
	return c.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(from))
}

func (c *client) hurry() { c.ActiveConnection().ResetConnectBackoff() }

// timed is a store whose commands take at most patience each, in two tries: a client of several members sends
// the second to another one. A watch takes as long as its context.
type timed struct {
	store
	patience time.Duration
}

func (t timed) grant(ctx context.Context, seconds int64) (id clientv3.LeaseID, err error) {
	err = rest.Twice(ctx, t.patience/2, func(ctx context.Context) (err error) {
		id, err = t.store.grant(ctx, seconds)
		return err
	})
	return id, err
}

func (t timed) renew(ctx context.Context, lease clientv3.LeaseID) error {
	return rest.Twice(ctx, t.patience/2, func(ctx context.Context) error { return t.store.renew(ctx, lease) })
}

func (t timed) revoke(ctx context.Context, lease clientv3.LeaseID) error {
	return rest.Twice(ctx, t.patience/2, func(ctx context.Context) error { return t.store.revoke(ctx, lease) })
}

func (t timed) put(ctx context.Context, key, value string, lease clientv3.LeaseID) error {
	return rest.Twice(ctx, t.patience/2, func(ctx context.Context) error { return t.store.put(ctx, key, value, lease) })
}

func (t timed) page(ctx context.Context, prefix, from string, revision int64) (p page, err error) {
	err = rest.Twice(ctx, t.patience/2, func(ctx context.Context) (err error) {
		p, err = t.store.page(ctx, prefix, from, revision)
		return err
	})
	return p, err
}

func (t timed) newest(ctx context.Context, prefix string) (keys, revision int64, err error) {
	err = rest.Twice(ctx, t.patience/2, func(ctx context.Context) (err error) {
		keys, revision, err = t.store.newest(ctx, prefix)
		return err
	})
	return keys, revision, err
}
