package etcd

import (
	"fmt"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/etcdtest"
	"github.com/quotient-go/quotient/poolsize/pooltest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// crowd is the rest of a fleet: keys of one lease that outlasts the test.
type crowd struct {
	client *clientv3.Client
	lease  clientv3.LeaseID
	in     int
}

// set lets n replicas in, and the others out.
func (c *crowd) set(t testing.TB, n int) {
	for ; c.in < n; c.in++ {
		_, err := c.client.Put(t.Context(), fmt.Sprint("quotient/f/other", c.in), value,
			clientv3.WithLease(c.lease))
		must(t, err)
	}
	for ; c.in > n; c.in-- {
		_, err := c.client.Delete(t.Context(), fmt.Sprint("quotient/f/other", c.in-1))
		must(t, err)
	}
}

// The source does what every source must do.
func TestPooltest(t *testing.T) {
	srv := etcdtest.Start(t)
	direct := clientOf(t, srv)
	way := etcdtest.NewRelay(t, srv.Addr())
	lease, err := direct.Grant(t.Context(), 600)
	must(t, err)
	others := &crowd{client: direct, lease: lease.ID}
	pooltest.Run(t, pooltest.World{
		Source: func(t testing.TB) quotient.Source { return source(clientAt(t, way.Addr()), "this") },
		Set:    func(t testing.TB, n int) { others.set(t, n-1) },
		Break:  func(testing.TB) { way.Stall() },
		Heal:   func(testing.TB) { way.Heal() },
	})
}
