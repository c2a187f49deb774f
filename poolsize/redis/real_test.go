package redis

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/poolsize/internal/watched"
	"github.com/quotient-go/quotient/poolsize/redis/redistest"
	"github.com/redis/go-redis/v9"
)

// agreeOn lets two processors join and one leave.
func agreeOn(t *testing.T, a, b redis.UniversalClient) {
	t.Helper()
	sa, sb := source(a, "a"), source(b, "b")
	sa.Ceiling = func() float64 { return .5 }
	wa, wb := watch(t, sa), watch(t, sb)
	wa.Wants(2, 1)
	wb.Wants(2, 2)
	wa.Leave()
	wb.Wants(1, 1)
	if got, err := sa.Left(t.Context()); err != nil || got != .5 {
		t.Errorf("left is %v, %v", got, err)
	}
	wb.Leave()
}

// documentedACL returns the rights that the package's page names, and those besides for a Cluster.
func documentedACL(t *testing.T) (rights, cluster []string) {
	t.Helper()
	page, err := os.ReadFile("doc.go")
	must(t, err)
	text := strings.NewReplacer("//", " ", "\n", " ").Replace(string(page))
	_, text, ok := strings.Cut(text, "ACL SETUSER quotient on >password ")
	if !ok {
		t.Fatal("the page names no ACL")
	}
	text, besides, ok := strings.Cut(text, "A Cluster also needs")
	if !ok {
		t.Fatal("the page names no rights for a Cluster")
	}
	besides, _, _ = strings.Cut(besides, ":")
	return strings.Fields(text), strings.FieldsFunc(besides, func(r rune) bool {
		return !strings.ContainsRune("+|abcdefghijklmnopqrstuvwxyz", r)
	})
}

// allow makes the documented user.
func allow(t *testing.T, admin *redis.Client, rights ...string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", "quotient", "on", ">password"}
	for _, r := range rights {
		if strings.ContainsAny(r, "+~") {
			args = append(args, r)
		}
	}
	must(t, admin.Do(t.Context(), args...).Err())
}

// The rights that the page names are enough, and each of them is needed.
func TestACL(t *testing.T) {
	t.Parallel()
	needReal(t)
	srv := start(t)
	admin := clientOf(t, srv, nil)
	rights, _ := documentedACL(t)
	allow(t, admin, rights...)
	user := func() *redis.Client {
		return clientOf(t, srv, &redis.Options{Username: "quotient", Password: "password"})
	}
	agreeOn(t, user(), user())
	refused, err := admin.ACLLog(t.Context(), 100).Result()
	must(t, err)
	for _, r := range refused {
		if r.Object != "client|setinfo" && r.Object != "client" {
			t.Errorf("the server refused %+v", r)
		}
	}
	for _, r := range rights {
		must(t, admin.FlushAll(t.Context()).Err())
		must(t, admin.Do(t.Context(), "ACL", "DELUSER", "quotient").Err())
		allow(t, admin, slices.DeleteFunc(slices.Clone(rights), func(s string) bool { return s == r })...)
		must(t, admin.ScriptFlush(t.Context()).Err())
		tested.Not(t, wholeSync(t, user()) == nil, "%s is not needed", r)
	}
}

// wholeSync walks through each branch of the script.
func wholeSync(t *testing.T, c *redis.Client) error {
	s, err := source(c, "a").complete()
	must(t, err)
	a, b := s.store("a"), s.store("b")
	a.weight, b.weight = 2, 3
	for _, st := range []*store{a, b, a, b} {
		st.expiry = time.Millisecond
		if _, err := st.sync(t.Context(), 2, ".5"); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := c.Do(t.Context(), "ZADD", a.sizes, 1, "nobody").Err(); err != nil {
		return err
	}
	if _, err = a.sync(t.Context(), 1, ""); err != nil {
		return err
	}
	a.expiry = time.Minute
	for range 2 { // they agree
		if _, err = a.sync(t.Context(), 2, ""); err != nil {
			return err
		}
	}
	return nil
}

// freePort returns a port without a listener.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	_, port, err := net.SplitHostPort(l.Addr().String())
	must(t, err)
	return port
}

// A master fails, Sentinel makes its replica the master, and no processor believes in a
// smaller pool meanwhile.
func TestSentinel(t *testing.T) {
	t.Parallel()
	needReal(t)
	master := start(t)
	replica := start(t, "--replicaof", "127.0.0.1 "+fmt.Sprint(master.Port()),
		"--repl-diskless-sync-delay", "0")
	sentinel := start(t, "--sentinel").Addr()
	knows := redis.NewSentinelClient(&redis.Options{Addr: sentinel})
	t.Cleanup(func() { must(t, knows.Close()) })
	must(t, knows.Monitor(t.Context(), "main", "127.0.0.1", fmt.Sprint(master.Port()), "1").Err())
	for option, value := range map[string]string{
		"down-after-milliseconds": "500",
		"failover-timeout":        "5000",
	} {
		must(t, knows.Set(t.Context(), "main", option, value).Err())
	}
	wait(t, "Sentinel knows the replica", func() bool {
		r, err := knows.Replicas(t.Context(), "main").Result()
		return err == nil && len(r) == 1 && r[0]["master-link-status"] == "ok"
	})
	client := func() redis.UniversalClient {
		c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main",
			SentinelAddrs: []string{sentinel}, ContextTimeoutEnabled: true})
		t.Cleanup(func() { must(t, c.Close()) })
		return c
	}
	agreeOn(t, client(), client())
	sa, sb := source(client(), "a"), source(client(), "b")
	a, b := watch(t, sa), watch(t, sb)
	a.Wants(2, 1)
	b.Wants(2, 2)
	before := a.Count()
	must(t, master.Kill())
	promoted := clientOf(t, replica, nil)
	wait(t, "the replica is the master", func() bool {
		role, err := promoted.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(role, "role:master")
	})
	a.GoesOn(10)
	a.Wants(2, 1)
	b.Wants(2, 2)
	if n := a.Least(before); n < 2 {
		t.Errorf("it believed in %d", n)
	}
}

// wait polls until something holds.
var wait = tested.Until

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
		watch(t, s).Wants(1, 1)
		n, err := admins[0].ClusterKeySlot(t.Context(), "{quotient:"+s.Fleet+"}:sizes").Result()
		must(t, err)
		used[n < slots/2]++
	}
	tested.Not(t, len(used) != 2, "all fleets are on one node: %v", used)
	for _, c := range admins {
		refused, err := c.ACLLog(t.Context(), 100).Result()
		must(t, err)
		for _, r := range refused {
			tested.Not(t, !strings.HasPrefix(r.Object, "client"), "a node refused %+v", r)
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
func (f *failover) join(t *testing.T, id string) *watched.Log {
	t.Helper()
	o := &redis.ClusterOptions{Addrs: f.addrs, Dialer: f.dial, ContextTimeoutEnabled: true}
	c := redis.NewClusterClient(o)
	t.Cleanup(func() { must(t, c.Close()) })
	s := source(c, id)
	s.Expiry = f.expiry
	return watch(t, s)
}

// A master of a Cluster dies, or its host vanishes. All processors find its replica soon
// after that has become the master, although all had expired by then. None believes in a smaller pool
// meanwhile: not those that were there, and not those that have started since, before or after the replica's
// promotion.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	needReal(t)
	for _, vanishes := range []bool{false, true} {
		t.Run(fmt.Sprint("vanishes ", vanishes), func(t *testing.T) {
			t.Parallel()
			// A processor that finds the new master needs a few syncs. With the client's old map, which it keeps for a
			// minute, more than a hundred fail. They are counted, and not timed, or a machine that stands still would count.
			const olds, most = 6, 50
			expiry := expiry
			if vanishes {
				// Each try to reach the vanished host takes a command's time, and the client chooses by
				// chance whom it asks for the others. So a processor needs several tries within an expiry.
				expiry = 6 * time.Second
			}
			f := newFailover(t, expiry)
			var all []*watched.Log
			for i := range olds {
				all = append(all, f.join(t, fmt.Sprint("old", i)))
			}
			for i, w := range all {
				w.Wants(olds, i+1)
			}
			before := make([]int, olds, olds+2) // reports of each
			for i, w := range all {
				before[i] = w.Count()
			}
			if vanishes {
				f.gone.Store(f.master.Addr())
			}
			must(t, f.master.Kill())
			for range 3 {
				all[0].Fails()
			}
			all = append(all, f.join(t, "z joins before"))
			wait(t, "the replica is the master", func() bool { return f.role(t, "role:master") })
			promoted, since := time.Now(), make([]int, olds+2) // reports of each, to count from here
			for i, w := range all {
				since[i] = w.Count()
			}
			all = append(all, f.join(t, "zz joins after"))
			for i, w := range all {
				w.Wants(len(all), i+1)
			}
			t.Logf("all agree %v after the promotion", time.Since(promoted))
			for i, w := range all {
				_, errs := w.Since(since[i])
				tested.Not(t, len(errs) > most, "processor %d failed %d times after the promotion", i, len(errs))
			}
			for i, w := range all {
				least := olds // they may find the new master before the new replicas do
				if i >= olds {
					least, before = olds+1, append(before, 0)
				}
				if n := w.Least(before[i]); n < least {
					t.Errorf("processor %d believed in %d, with %d others", i, n, least-1)
				}
			}
		})
	}
}
