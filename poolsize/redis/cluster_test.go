package redis

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-go/quotient/poolsize/redis/redistest"
	"github.com/redis/go-redis/v9"
)

// slots is how many a Cluster has.
const slots = 16384

// startCluster returns the masters of a Cluster, each of which has the same part of the slots, and a client
// of each.
func startCluster(t *testing.T, masters int, config ...string) (nodes []*redistest.Server,
	admins []*redis.Client) {
	t.Helper()
	ctx := t.Context()
	for i := range masters {
		n := startNode(t, config...)
		c := clientOf(t, n, nil)
		must(t, c.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err())
		if i > 0 {
			meet(t, admins[0], c, n)
		}
		nodes, admins = append(nodes, n), append(admins, c)
	}
	wait(t, "the cluster is up", func() bool {
		for _, c := range admins {
			if !up(ctx, c, masters) {
				return false
			}
		}
		return true
	})
	return nodes, admins
}

// startNode starts a server that is in no Cluster yet.
func startNode(t *testing.T, config ...string) *redistest.Server {
	t.Helper()
	return start(t, append([]string{"--cluster-enabled", "yes", "--cluster-port", freePort(t)}, config...)...)
}

// meet lets a node into the Cluster of which first is a client.
func meet(t *testing.T, first, c *redis.Client, n *redistest.Server) {
	t.Helper()
	bus, err := c.ConfigGet(t.Context(), "cluster-port").Result()
	must(t, err)
	must(t, first.Do(t.Context(), "CLUSTER", "MEET", "127.0.0.1", n.Port(), bus["cluster-port"]).Err())
}

func up(ctx context.Context, c *redis.Client, nodes int) bool {
	info, err := c.ClusterInfo(ctx).Result()
	known := fmt.Sprint("cluster_known_nodes:", nodes)
	return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, known)
}

// addrs returns where the servers are.
func addrs(nodes []*redistest.Server) (all []string) {
	for _, n := range nodes {
		all = append(all, n.Addr())
	}
	return all
}

// Two nodes, each with half of the slots: all keys of a fleet are on one of them, those of another fleet
// may be on the other.
func TestCluster(t *testing.T) {
	t.Parallel()
	needReal(t)
	nodes, admins := startCluster(t, 2)
	rights, besides := documentedACL(t)
	for _, c := range admins {
		allow(t, c, append(rights, besides...)...)
	}
	cluster := func() redis.UniversalClient {
		c := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: addrs(nodes), Username: "quotient", Password: "password", ContextTimeoutEnabled: true})
		t.Cleanup(func() { must(t, c.Close()) })
		return c
	}
	a, b := cluster(), cluster()
	agreeOn(t, a, b)
	used := map[bool]int{}
	for i := range 8 { // fleets on both nodes
		s := source(a, "a")
		s.Fleet = fmt.Sprint("fleet", i)
		watch(t, s).wants(t, 1, 1)
		n, err := admins[0].ClusterKeySlot(t.Context(), "{quotient:"+s.Fleet+"}:sizes").Result()
		must(t, err)
		used[n < slots/2]++
	}
	if len(used) != 2 {
		t.Errorf("all fleets are on one node: %v", used)
	}
	for _, c := range admins {
		refused, err := c.ACLLog(t.Context(), 100).Result()
		must(t, err)
		for _, r := range refused {
			if !strings.HasPrefix(r.Object, "client") {
				t.Errorf("a node refused %+v", r)
			}
		}
	}
}

// vanishing is a network from which one address can vanish: a client that dials it then waits for an answer
// in vain.
type vanishing struct {
	gone atomic.Value
	over chan struct{} // closed when the test ends: the client would wait for longer
}

func (v *vanishing) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if v.gone.Load() == addr {
		select {
		case <-ctx.Done():
		case <-v.over:
		}
		return nil, &net.OpError{Op: "dial", Net: network, Err: context.DeadlineExceeded}
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

// failover is a Cluster of three masters, of which one has the fleet f and a replica.
type failover struct {
	*vanishing
	expiry   time.Duration // of each processor, and how long the nodes wait for one another
	addrs    []string
	master   *redistest.Server
	promoted *redis.Client // of the replica
}

func newFailover(t *testing.T, expiry time.Duration) *failover {
	t.Helper()
	ctx := t.Context()
	config := []string{"--cluster-node-timeout", fmt.Sprint(expiry.Milliseconds()),
		"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"}
	nodes, admins := startCluster(t, 3, config...)
	slot, err := admins[0].ClusterKeySlot(ctx, "{quotient:f}:sizes").Result()
	must(t, err)
	serves := int(slot) * len(nodes) / slots
	id, err := admins[serves].ClusterMyID(ctx).Result()
	must(t, err)
	replica := startNode(t, config...)
	f := &failover{&vanishing{over: make(chan struct{})}, expiry, append(addrs(nodes), replica.Addr()),
		nodes[serves], clientOf(t, replica, nil)}
	t.Cleanup(func() { close(f.over) })
	meet(t, admins[0], f.promoted, replica)
	wait(t, "the replica knows its master", func() bool {
		return up(ctx, f.promoted, 4) && f.promoted.ClusterReplicate(ctx, id).Err() == nil
	})
	wait(t, "all know the replica, and it has the data", func() bool {
		for _, c := range admins {
			info, err := c.ClusterNodes(ctx).Result()
			if err != nil || !strings.Contains(info, "slave "+id) {
				return false
			}
		}
		return f.role(t, "master_link_status:up")
	})
	return f
}

// role reports whether the replica says this about its replication.
func (f *failover) role(t *testing.T, word string) bool {
	info, err := f.promoted.Info(t.Context(), "replication").Result()
	return err == nil && strings.Contains(info, word)
}

// join starts one processor with a client of its own, which differs from its users' by the dialer alone.
func (f *failover) join(t *testing.T, id string) *watched {
	t.Helper()
	o := &redis.ClusterOptions{Addrs: f.addrs, Dialer: f.dial, ContextTimeoutEnabled: true}
	c := redis.NewClusterClient(o)
	t.Cleanup(func() { must(t, c.Close()) })
	s := source(c, id)
	s.Expiry = f.expiry
	return watch(t, s)
}

// Failure mode 20: a master of a Cluster dies, or its host vanishes. All processors find its replica soon
// after that has become the master, although all had expired by then. None believes in a smaller pool
// meanwhile: not those that were there, and not those that have started since, before or after the replica's
// promotion.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	needReal(t)
	for _, vanishes := range []bool{false, true} {
		t.Run(fmt.Sprint("vanishes ", vanishes), func(t *testing.T) {
			t.Parallel()
			const olds = 6
			expiry, soon := expiry, 6*time.Second
			if vanishes {
				// Each try to reach the vanished host takes a command's time, and the client chooses by
				// chance whom it asks for the others. So a processor needs several tries within an expiry.
				expiry = 8 * time.Second
				soon = 20 * time.Second // a new client may first wait 5 s, whatever its context says
			}
			f := newFailover(t, expiry)
			var all []*watched
			for i := range olds {
				all = append(all, f.join(t, fmt.Sprint("old", i)))
			}
			for i, w := range all {
				w.wants(t, olds, i+1)
			}
			before := make([]int, olds, olds+2) // reports of each
			for i, w := range all {
				before[i], _ = w.counts()
			}
			if vanishes {
				f.gone.Store(f.master.Addr())
			}
			must(t, f.master.Kill())
			for range 3 {
				all[0].fails(t)
			}
			all = append(all, f.join(t, "z joins before"))
			wait(t, "the replica is the master", func() bool { return f.role(t, "role:master") })
			promoted := time.Now()
			all = append(all, f.join(t, "zz joins after"))
			for i, w := range all {
				w.wants(t, len(all), i+1)
			}
			took := time.Since(promoted)
			t.Logf("all agree %v after the promotion", took)
			if took > soon {
				t.Errorf("it took %v from the promotion until all agreed, not at most %v", took, soon)
			}
			for i, w := range all {
				least := olds // they may find the new master before the new replicas do
				if i >= olds {
					least, before = olds+1, append(before, 0)
				}
				if n := w.least(before[i]); n < least {
					t.Errorf("processor %d believed in %d, with %d others", i, n, least-1)
				}
			}
		})
	}
}
