package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/quotient-go/quotient/internal/rest"
)

// errGone means that the store has no such lease, or no key of this candidacy.
var errGone = errors.New("the lease or the key in etcd is gone")

// candidate is one key of an election.
type candidate struct {
	key, url string
	revision int64 // that created the key
}

// store is what a term calls of etcd. Each method but watch returns when its context ends.
type store interface {
	grant(ctx context.Context, seconds int64) (clientv3.LeaseID, error)
	// revoke ends a lease with its key. It is no error if there is none.
	revoke(ctx context.Context, lease clientv3.LeaseID) error
	// renew returns the raft term of the member that has answered, or errGone.
	renew(ctx context.Context, lease clientv3.LeaseID) (raft uint64, err error)
	// put creates the candidate's key and returns the revision.
	put(ctx context.Context, c candidate, lease clientv3.LeaseID) (revision int64, err error)
	// draw puts the candidate's key again, and returns that revision, or errGone.
	draw(ctx context.Context, c candidate, lease clientv3.LeaseID) (revision int64, err error)
	// first returns the oldest candidate below the prefix as all members agree on, and the raft term of
	// that. It returns errGone if c is not a candidate.
	first(ctx context.Context, prefix string, c candidate) (_ candidate, raft uint64, err error)
	// watch calls changed at its start and after each change below the prefix, until the context ends.
	watch(ctx context.Context, prefix string, changed func())
	// hurry has the client connect again at once, if it is waiting before it does.
	hurry()
}

// client is the store as the program's client reaches it.
type client struct{ *clientv3.Client }

func (c client) grant(ctx context.Context, seconds int64) (clientv3.LeaseID, error) {
	r, err := c.Grant(ctx, seconds)
	switch {
	case err != nil:
		return 0, err
	case r.TTL < seconds:
		return r.ID, fmt.Errorf("etcd grants a lease of %d s, not %d s", r.TTL, seconds)
	}
	return r.ID, nil
}

func (c client) revoke(ctx context.Context, lease clientv3.LeaseID) error {
	_, err := c.Revoke(ctx, lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// renew asks once. The client's KeepAlive does not say when it has asked, and KeepAliveOnce asks again
// without a pause while the store is away.
func (c client) renew(ctx context.Context, lease clientv3.LeaseID) (raft uint64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // it ends the stream
	stream, err := etcdserverpb.NewLeaseClient(c.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return 0, rpctypes.Error(err)
	}
	err = stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(lease)})
	if err != nil && err != io.EOF { // at the end of a stream only Recv knows why
		return 0, rpctypes.Error(err)
	}
	r, err := stream.Recv()
	switch {
	case err != nil:
		return 0, rpctypes.Error(err)
	case r.GetTTL() <= 0:
		return 0, errGone
	}
	return r.GetHeader().GetRaftTerm(), nil
}

func (c client) put(ctx context.Context, own candidate, lease clientv3.LeaseID) (revision int64, err error) {
	r, err := c.Put(ctx, own.key, own.url, clientv3.WithLease(lease))
	if err != nil {
		return 0, err
	}
	return r.Header.Revision, nil
}

// stands is true while the candidate's key is there, and is the one that it has created.
func stands(c candidate) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(c.key), "=", c.revision)
}

func (c client) draw(ctx context.Context, own candidate, lease clientv3.LeaseID) (revision int64, err error) {
	put := clientv3.OpPut(own.key, own.url, clientv3.WithLease(lease))
	r, err := c.Txn(ctx).If(stands(own)).Then(put).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound) || err == nil && !r.Succeeded:
		return 0, errGone
	case err != nil:
		return 0, err
	}
	return r.Header.Revision, nil
}

func (c client) first(ctx context.Context, prefix string, own candidate) (
	_ candidate, raft uint64, err error,
) {
	r, err := c.Txn(ctx).If(stands(own)).Then(clientv3.OpGet(prefix, clientv3.WithFirstCreate()...)).Commit()
	if err != nil {
		return candidate{}, 0, err
	}
	if !r.Succeeded || len(r.Responses[0].GetResponseRange().GetKvs()) == 0 {
		return candidate{}, 0, errGone
	}
	kv := r.Responses[0].GetResponseRange().Kvs[0]
	return candidate{string(kv.Key), string(kv.Value), kv.CreateRevision}, r.Header.RaftTerm, nil
}

// watch takes a stream of its own each time. A client has one for all watches with the same metadata, and it
// may hang at a server that is gone.
func (c client) watch(ctx context.Context, prefix string, changed func()) {
	for ctx.Err() == nil {
		one, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
		one = metadata.AppendToOutgoingContext(one, "quotient-election", rand.Text())
		for r := range c.Watch(one, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
			if r.Err() == nil {
				changed()
			}
		}
		cancel()
		rest.For(ctx, jittered(time.Second))
	}
}

func (c client) hurry() { c.ActiveConnection().ResetConnectBackoff() }
