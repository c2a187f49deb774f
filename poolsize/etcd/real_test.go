package etcd

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/etcdtest"
	"github.com/quotient-go/quotient/poolsize/internal/watched"
	"github.com/quotient-go/quotient/poolsize/pooltest"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
)

// first returns a store with one replica, the first of the fleet.
func first(t *testing.T) (*etcdtest.Server, *watched.Log) {
	t.Helper()
	srv := etcdtest.Start(t)
	a := watch(t, source(clientOf(t, srv), "a"))
	a.Wants(1, 1)
	return srv, a
}

// A process that stands still, or is killed, counts until its lease ends. When it goes on it
// registers again, and believes in no smaller pool than it had.
func TestCrash(t *testing.T) {
	t.Parallel()
	srv, a := first(t)
	p := watched.StartChild(t, childArg, srv.Addr())
	a.Wants(2, 1)
	must(t, p.Process.Signal(syscall.SIGSTOP))
	a.Wants(1, 1)
	must(t, p.Process.Signal(syscall.SIGCONT))
	a.Wants(2, 1)
	for range 10 {
		if p.Says.Scan(); strings.HasPrefix(p.Says.Text(), "1 ") {
			t.Errorf("the child says %q", p.Says.Text())
		}
	}
	began := time.Now()
	must(t, p.Process.Kill())
	a.Wants(1, 1)
	if took := time.Since(began); took < expiry-2*period {
		t.Errorf("dropped after %v, with an expiry of %v", took, expiry)
	}
}

// The store is away for longer than the leases last. Only errors are reported, then all are
// there as before, by the same leases, and one that began meanwhile. Nor does a store that has lost its data
// make a replica believe in a small pool.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	for _, wipe := range []bool{false, true} {
		t.Run(fmt.Sprint("wipe ", wipe), func(t *testing.T) {
			t.Parallel()
			srv, a := first(t)
			b := watch(t, source(clientOf(t, srv), "b"))
			a.Wants(2, 1)
			b.Wants(2, 2)
			srv.Kill()
			a.Fails()
			b.Fails()
			late := watch(t, source(clientOf(t, srv), "c"))
			before := []int{a.Count(), b.Count()}
			for end := time.Now().Add(2 * expiry); time.Now().Before(end); {
				a.Fails()
			}
			if pools, errs := a.Since(before[0]); len(pools) > 0 ||
				!strings.Contains(errs[0].Err.Error(), "poolsize/etcd: ") {
				t.Errorf("a store that is away was believed: %+v, %v", a.Last(), errs[0].Err)
			}
			srv.Restart(wipe)
			ordinals := 0
			for i, w := range []*watched.Log{a, b, late} {
				w.GoesOn(1)
				w.Until("all three", func() bool { return w.Last().Replicas == 3 })
				if w.GoesOn(4); !wipe {
					w.Wants(3, i+1)
				}
				ordinals += w.Last().Ordinal
			}
			if n := min(a.Least(before[0]), b.Least(before[1])); n < 2 || ordinals != 1+2+3 {
				t.Errorf("they believed in %d; ordinals that add up to %d", n, ordinals)
			}
		})
	}
}

// One that cannot reach the store for longer than its lease lasts is dropped,
// and keeps what it had. When it can it registers again and never believes in less.
func TestPartition(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"stalled", "cut"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			srv, a := first(t)
			way := etcdtest.NewRelay(t, srv.Addr())
			b := watch(t, source(clientAt(t, way.Addr()), "b"))
			b.Wants(2, 2)
			a.Wants(2, 1)
			c := watch(t, source(clientOf(t, srv), "c"))
			b.Wants(3, 2)
			before := b.Count()
			if how == "cut" {
				way.Cut()
			} else {
				way.Stall()
			}
			a.Wants(2, 1)
			b.Fails()
			c.Wants(2, 2)
			way.Heal()
			a.Wants(3, 1)
			b.Wants(3, 3)
			if n := b.Least(before); n < 3 {
				t.Errorf("it believed in %d", n)
			}
		})
	}
}

// A watch from a revision that is compacted already is no failure for those who use the store's own words.
func TestCompactedWatch(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	c := clientOf(t, srv)
	r, err := c.Put(t.Context(), "k", "v")
	must(t, err)
	_, err = c.Put(t.Context(), "k", "w")
	must(t, err)
	_, err = c.Compact(t.Context(), r.Header.Revision+1)
	must(t, err)
	s, err := source(c, "a").complete()
	must(t, err)
	w := &watcher{c: s, store: &client{Client: c, ctx: t.Context()}, here: newRegistration("a")}
	f := newFleet(s.keys(), held{}, r.Header.Revision-1)
	changes, err := w.follow(t.Context(), f)
	must(t, err)
	if err := w.learn(f, <-changes, true); err != errAgain {
		t.Errorf("got %v", err)
	}
}

// Fleets whose names begin alike, and prefixes that lie in one another, know nothing of each other.
func TestFleetsAreApart(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	c := clientOf(t, srv)
	var all []*watched.Log
	for _, s := range []struct{ prefix, fleet string }{
		{"", "app"}, {"", "app2"}, {"quotient/app", "x"}, {"quotient/app/x", "y"}, {"other", "app"},
	} {
		src := source(c, "a")
		src.Prefix, src.Fleet, src.Expiry = s.prefix, s.fleet, time.Minute
		all = append(all, watch(t, src))
	}
	for i, w := range all {
		w.GoesOn(3)
		if w.Last().Replicas != 1 || w.Last().Ordinal != 1 || w.LastErr() != nil {
			t.Errorf("fleet %d: %+v, %v", i, w.Last(), w.LastErr())
		}
	}
}

// A key of a version that is not known yet counts as one replica. A key without a lease would count for ever,
// and one with a slash is no replica's: they do not.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	c := clientOf(t, srv)
	lease, err := c.Grant(t.Context(), 60)
	must(t, err)
	put := func(key, value string, o ...clientv3.OpOption) {
		_, err := c.Put(t.Context(), key, value, o...)
		must(t, err)
	}
	leased := clientv3.WithLease(lease.ID)
	put("quotient/f/left by hand", value)
	put("quotient/f/next version", `{"version":2,"weight":3,"since":"then"}`, leased)
	put("quotient/f/deep/er", value, leased)
	src := source(c, "a")
	src.Expiry = time.Minute
	a := watch(t, src)
	a.Wants(2, 2)
	put("quotient/f/no version", "\x00\xff", leased)
	a.Wants(3, 2)
	put("quotient/f/by hand too", "")
	put("quotient/f/", "", leased)
	put("quotient/f/next version", `{"version":2,"weight":4}`, leased) // changed in place: its ordinal stays
	put("quotient/f/empty", "", leased)
	a.Wants(4, 2)
	a.GoesOn(3)
	_, err = c.Delete(t.Context(), "quotient/f/next version")
	must(t, err)
	a.Wants(3, 1)
	if a.LastErr() != nil {
		t.Error(a.LastErr())
	}
}

// A fleet of more than one page is listed whole, and its changes are seen.
func TestLargeFleet(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	c := clientOf(t, srv)
	lease, err := c.Grant(t.Context(), 60)
	must(t, err)
	const n = 2*onePage + 3
	for made := 0; made < n; {
		var ops []clientv3.Op
		for ; made < n && len(ops) < 128; made++ {
			ops = append(ops, clientv3.OpPut(fmt.Sprint("quotient/f/", made), value,
				clientv3.WithLease(lease.ID)))
		}
		_, err := c.Txn(t.Context()).Then(ops...).Commit()
		must(t, err)
	}
	s := source(c, "a")
	s.Period = time.Second
	a := watch(t, s)
	a.Wants(n+1, n+1)
	_, err = c.Revoke(t.Context(), lease.ID)
	must(t, err)
	a.Wants(1, 1)
}

// A user with no more rights than the page names can do all of it: join, watch and leave.
func TestRights(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	root := clientOf(t, srv)
	do := func(_ any, err error) { t.Helper(); must(t, err) }
	ctx := t.Context()
	do(root.UserAdd(ctx, "root", "secret"))
	do(root.UserGrantRole(ctx, "root", "root"))
	do(root.RoleAdd(ctx, "quotient"))
	end, both := clientv3.GetPrefixRangeEnd("quotient/f/"), clientv3.PermissionType(clientv3.PermReadWrite)
	do(root.RoleGrantPermission(ctx, "quotient", "quotient/f/", end, both))
	do(root.UserAdd(ctx, "quotient", "password"))
	do(root.UserGrantRole(ctx, "quotient", "quotient"))
	do(root.AuthEnable(ctx))
	user := func() *clientv3.Client {
		at := []string{srv.Addr()}
		return clientWith(t, clientv3.Config{Endpoints: at, Username: "quotient", Password: "password"})
	}
	a := watch(t, source(user(), "a"))
	a.Wants(1, 1)
	b := watch(t, source(user(), "b"))
	b.Wants(2, 2)
	began := time.Now()
	a.Leave()
	b.Wants(1, 1)
	if took := time.Since(began); took > expiry/2 {
		t.Errorf("it took %v to notice a leaver, as if by the lease's end", took)
	}
	other := source(user(), "c")
	other.Fleet = "g"
	c := watch(t, other)
	if err := c.Fails(); !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("another fleet: %v", err)
	}
	for _, w := range []*watched.Log{a, b} { // on a busy machine the check of a password may take too long
		if _, errs := w.Since(0); len(errs) > 0 && strings.Contains(fmt.Sprint(errs), "denied") {
			t.Error(errs)
		}
	}
}

// The client is the program's: one that is closed is an error at each try, and nothing more.
func TestClosedClient(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	c := clientOf(t, srv)
	a := watch(t, source(c, "a"))
	a.Wants(1, 1)
	must(t, c.Close())
	for range 3 {
		a.Fails()
	}
	if n := a.Least(0); n != 1 {
		t.Errorf("it believed in %d", n)
	}
}

// The leader of three members is killed, or hangs. No replica believes in a smaller pool,
// and all go on with the others.
func TestLeaderFails(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*etcdtest.Server){
		"killed": (*etcdtest.Server).Kill,
		"hangs":  func(s *etcdtest.Server) { s.Signal(syscall.SIGSTOP) },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			members := etcdtest.Cluster(t, 3)
			var all []*watched.Log
			for i := range 3 {
				s := source(clientOf(t, members...), string(rune('a'+i)))
				s.Expiry = 10 * time.Second
				w := watch(t, s)
				w.Wants(i+1, i+1)
				all = append(all, w)
			}
			all[0].Wants(3, 1)
			before := []int{all[0].Count(), all[1].Count(), all[2].Count()}
			leader := etcdtest.Leader(t, members)
			end(leader)
			joins := watch(t, source(clientOf(t, members...), "d"))
			for i, w := range append(all, joins) {
				w.Wants(4, i+1)
			}
			for i, w := range all {
				if n := w.Least(before[i]); n < 3 {
					t.Errorf("replica %d believed in %d", i, n)
				}
			}
		})
	}
}

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

// The source does what every source must do. The checks look at all goroutines: no other test may run beside.
func TestPooltest(t *testing.T) {
	srv := etcdtest.Start(t)
	direct := clientOf(t, srv)
	way := etcdtest.NewRelay(t, srv.Addr())
	lease, err := direct.Grant(t.Context(), 600)
	must(t, err)
	others := &crowd{client: direct, lease: lease.ID}
	pooltest.Run(t, pooltest.World{
		Source: func(t testing.TB) quotient.Source {
			s := source(clientAt(t, way.Addr()), "this")
			s.Expiry = time.Second // the start is the shorter for it, and the lease is not
			return s
		},
		Set:   func(t testing.TB, n int) { others.set(t, n-1) },
		Break: func(testing.TB) { way.Stall() },
		Heal:  func(testing.TB) { way.Heal() },
		Wrong: wrong(t),
		// The client is the test's. On a busy machine it is still connecting again after a check that broke the way.
		Ignore: []goleak.Option{goleak.IgnoreAnyFunction("google.golang.org/grpc.(*addrConn).resetTransportAndUnlock")},
	})
}
