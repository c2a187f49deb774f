package etcd

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// slow is a lease that is not renewed in time.
const slow = 99

// busy is a server, or a balancer before one, that says at once that it cannot now.
type busy struct {
	etcdserverpb.UnimplementedLeaseServer
	etcdserverpb.UnimplementedKVServer
	etcdserverpb.UnimplementedWatchServer
	asked   atomic.Int64
	keys    int64        // that it has
	streams atomic.Int64 // of watches or renewals
	renews  int          // that it grants on one of these
}

// Watch serves watches and never has anything to say on them.
func (b *busy) Watch(s etcdserverpb.Watch_WatchServer) error {
	b.streams.Add(1)
	header := &etcdserverpb.ResponseHeader{Revision: 1}
	for id := int64(0); ; id++ {
		if _, err := s.Recv(); err != nil {
			return err
		}
		err := s.Send(&etcdserverpb.WatchResponse{Header: header, Created: true, WatchId: id})
		if err != nil {
			return err
		}
	}
}

// LeaseKeepAlive renews as often as it may on a stream.
func (b *busy) LeaseKeepAlive(s etcdserverpb.Lease_LeaseKeepAliveServer) error {
	b.streams.Add(1)
	for range b.renews {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		b.asked.Add(1)
		if r.ID == slow {
			<-s.Context().Done()
			return nil
		}
		if err := s.Send(&etcdserverpb.LeaseKeepAliveResponse{ID: r.ID, TTL: r.ID - 1}); err != nil {
			return err
		}
	}
	return status.Error(codes.Unavailable, "no upstream")
}

func (b *busy) Range(context.Context, *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	b.asked.Add(1)
	header := &etcdserverpb.ResponseHeader{Revision: 1}
	return &etcdserverpb.RangeResponse{Header: header, Count: b.keys, More: true}, nil
}

func (b *busy) serve(t *testing.T) *client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := grpc.NewServer()
	etcdserverpb.RegisterLeaseServer(s, b)
	etcdserverpb.RegisterKVServer(s, b)
	etcdserverpb.RegisterWatchServer(s, b)
	ended := make(chan error)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		must(t, <-ended)
	})
	return &client{Client: clientAt(t, l.Addr().String()), ctx: t.Context()}
}

// A renewal that is refused is not asked for again without a pause.
func TestRenewCallsOnce(t *testing.T) {
	b := &busy{}
	c := b.serve(t)
	if err := c.renew(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "no upstream") {
		t.Errorf("got %v", err)
	}
	if n := b.streams.Load(); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
}

// Renewals share a stream, since each new one may cost the store the check of a password. A stream that has
// ended, or whose answer is late, is replaced.
func TestRenewalsShareAStream(t *testing.T) {
	b := &busy{renews: 3}
	c := b.serve(t)
	renew := func(lease clientv3.LeaseID, want error, streams int64) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if lease == slow {
			go func() {
				for b.asked.Load() == 0 {
					runtime.Gosched()
				}
				cancel()
			}()
		}
		b.asked.Store(0)
		if err := c.renew(ctx, lease); !errors.Is(err, want) || b.streams.Load() != streams {
			t.Errorf("lease %d: %v, want %v; %d streams, want %d", lease, err, want,
				b.streams.Load(), streams)
		}
	}
	renew(5, nil, 1)
	renew(5, nil, 1)
	renew(1, errGone, 1)
	renew(5, nil, 2) // on another one
	renew(slow, context.Canceled, 2)
	renew(5, nil, 3)
	renew(5, nil, 3)
}

// Each watch has a stream of its own, so that it does not hang with one that hangs.
func TestWatchesAreApart(t *testing.T) {
	b := &busy{}
	c := b.serve(t)
	for range 3 {
		if c.watch(t.Context(), "quotient/f/", 1) == nil {
			t.Error("no watch")
		}
	}
	if n := b.streams.Load(); n != 3 {
		t.Errorf("three watches have %d streams", n)
	}
}

// A fleet of more keys than a Limiter takes is refused by the first page.
func TestTooManyKeys(t *testing.T) {
	b := &busy{keys: mostKeys + 1}
	c := b.serve(t)
	_, _, err := list(t.Context(), c, "quotient/f/")
	if err == nil || !strings.Contains(err.Error(), "1000001 keys, not at most 1000000") {
		t.Errorf("got %v", err)
	}
	b.keys-- // and each page announces more, and has nothing
	if _, _, err := list(t.Context(), c, "quotient/f/"); err != nil {
		t.Error(err)
	}
	if n := b.asked.Load(); n != 2 {
		t.Errorf("%d pages were asked for", n)
	}
}
