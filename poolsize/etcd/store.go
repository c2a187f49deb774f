package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

const (
	// mostKeys is how many a fleet may have: as many replicas as a Limiter takes.
	mostKeys = 1_000_000
	// page is how many of them one command lists.
	page = 5_000
)

// store is what a Source asks of etcd.
type store interface {
	grant(ctx context.Context, seconds int64) (clientv3.LeaseID, error)
	// renew returns errGone if there is no such lease.
	renew(ctx context.Context, lease clientv3.LeaseID) error
	revoke(ctx context.Context, lease clientv3.LeaseID) error
	put(ctx context.Context, key, value string, lease clientv3.LeaseID) error
	// list returns the keys with a prefix, without values, and the revision of that.
	list(ctx context.Context, prefix string) ([]*mvccpb.KeyValue, int64, error)
	// newest returns how many keys have a prefix, and the last revision that changed one of them.
	newest(ctx context.Context, prefix string) (keys, revision int64, err error)
	// watch returns once the store has agreed, or the context is done.
	watch(ctx context.Context, prefix string, from int64) clientv3.WatchChan
	// hurry has the client connect again at once, if it is waiting before it does.
	hurry()
}

// client is the store as the program's client reaches it.
type client struct{ *clientv3.Client }

func (c client) grant(ctx context.Context, seconds int64) (clientv3.LeaseID, error) {
	r, err := c.Grant(ctx, seconds)
	if err != nil {
		return 0, err
	}
	return r.ID, nil
}

// renew asks once. KeepAliveOnce would ask again and again without a pause while no server answers, and what KeepAlive
// starts goes on until the client is closed.
func (c client) renew(ctx context.Context, lease clientv3.LeaseID) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := etcdserverpb.NewLeaseClient(c.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return rpctypes.Error(err)
	}
	if err := s.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(lease)}); err != nil {
		return rpctypes.Error(err)
	}
	r, err := s.Recv()
	if err != nil {
		return rpctypes.Error(err)
	}
	if r.TTL <= 0 {
		return errGone
	}
	return nil
}

func (c client) revoke(ctx context.Context, lease clientv3.LeaseID) error {
	_, err := c.Revoke(ctx, lease)
	return err
}

func (c client) put(ctx context.Context, key, value string, lease clientv3.LeaseID) error {
	_, err := c.Put(ctx, key, value, clientv3.WithLease(lease))
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return errGone
	}
	return err
}

func (c client) list(ctx context.Context, prefix string) (all []*mvccpb.KeyValue, revision int64, err error) {
	end := clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix))
	from, options := prefix, []clientv3.OpOption{end, clientv3.WithKeysOnly(), clientv3.WithLimit(page)}
	for {
		r, err := c.Get(ctx, from, options...)
		if err != nil {
			return nil, 0, err
		}
		if revision == 0 {
			revision = r.Header.Revision
			options = append(options, clientv3.WithRev(revision))
			if r.Count > mostKeys {
				return nil, 0, tooMany(r.Count)
			}
		}
		all = append(all, r.Kvs...)
		if !r.More || len(r.Kvs) == 0 {
			return all, revision, nil
		}
		from = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
}

func tooMany(keys int64) error {
	return fmt.Errorf("poolsize/etcd: %d keys, not at most %d", keys, mostKeys)
}

func (c client) newest(ctx context.Context, prefix string) (keys, revision int64, err error) {
	r, err := c.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1),
		clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend))
	if err != nil || len(r.Kvs) == 0 {
		return 0, 0, err
	}
	return r.Count, r.Kvs[0].ModRevision, nil
}

// watch takes a stream of its own each time: a client has one for all watches with the same metadata, and that
// may hang at a server that is gone.
func (c client) watch(ctx context.Context, prefix string, from int64) clientv3.WatchChan {
	ctx = metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(ctx), "quotient-watch", rand.Text())
	return c.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(from))
}

func (c client) hurry() { c.ActiveConnection().ResetConnectBackoff() }

// timed is a store whose commands take at most patience each. A watch takes as long as its context.
type timed struct {
	store
	patience time.Duration
}

func (t timed) grant(ctx context.Context, seconds int64) (clientv3.LeaseID, error) {
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	return t.store.grant(ctx, seconds)
}

func (t timed) renew(ctx context.Context, lease clientv3.LeaseID) error {
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	return t.store.renew(ctx, lease)
}

func (t timed) revoke(ctx context.Context, lease clientv3.LeaseID) error {
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	return t.store.revoke(ctx, lease)
}

func (t timed) put(ctx context.Context, key, value string, lease clientv3.LeaseID) error {
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	return t.store.put(ctx, key, value, lease)
}

func (t timed) list(ctx context.Context, prefix string) ([]*mvccpb.KeyValue, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	return t.store.list(ctx, prefix)
}

func (t timed) newest(ctx context.Context, prefix string) (keys, revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	return t.store.newest(ctx, prefix)
}
