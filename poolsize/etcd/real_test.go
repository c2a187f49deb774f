package etcd

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/etcdtest"
	"github.com/quotient-go/quotient/poolsize/pooltest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// first returns a store with one replica, the first of the fleet.
func first(t *testing.T) (*etcdtest.Server, *watched) {
	t.Helper()
	srv := etcdtest.Start(t)
	a := watch(t, source(clientOf(t, srv), "a"))
	a.wants(t, 1, 1)
	return srv, a
}

func TestJoinAndLeave(t *testing.T) {
	t.Parallel()
	srv, a := first(t)
	c := watch(t, source(clientOf(t, srv), "c"))
	a.wants(t, 2, 1)
	b := watch(t, source(clientOf(t, srv), "b"))
	a.wants(t, 3, 1)
	c.wants(t, 3, 2)
	b.wants(t, 3, 3)
	began := time.Now()
	a.leave(t)
	c.wants(t, 2, 1)
	b.wants(t, 2, 2)
	took := time.Since(began)
	t.Logf("the others count one less %v after a leave", took)
	if took > expiry/2 {
		t.Errorf("it took %v, as if by the lease's end", took)
	}
	c.leave(t)
	b.wants(t, 1, 1)
	for _, w := range []*watched{a, b, c} {
		if w.lastError() != nil {
			t.Error(w.lastError())
		}
	}
}

// Failure mode 15: a process that is killed counts until its lease ends.
func TestCrash(t *testing.T) {
	t.Parallel()
	srv, b := first(t)
	p, _ := startChild(t, srv.Addr())
	q, _ := startChild(t, srv.Addr())
	b.wants(t, 3, 1)
	began := time.Now()
	must(t, p.Process.Kill())
	must(t, q.Process.Kill())
	b.wants(t, 1, 1)
	took := time.Since(began)
	t.Logf("dropped %v after the kill, with an expiry of %v", took, expiry)
	if took < expiry-2*period {
		t.Errorf("dropped after %v", took)
	}
}

// A process that is stopped past its expiry is dropped. When it goes on it registers again, and believes in
// no smaller pool than it had.
func TestStoppedProcess(t *testing.T) {
	t.Parallel()
	srv, a := first(t)
	p, says := startChild(t, srv.Addr())
	a.wants(t, 2, 1)
	must(t, p.Process.Signal(syscall.SIGSTOP))
	a.wants(t, 1, 1)
	must(t, p.Process.Signal(syscall.SIGCONT))
	a.wants(t, 2, 1)
	for range 10 {
		if says.Scan(); strings.HasPrefix(says.Text(), "1 ") {
			t.Errorf("the child says %q", says.Text())
		}
	}
}

// Failure mode 20: the store is away for longer than the leases last. Only errors are reported, then all are
// there as before, by the same leases.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	srv, a := first(t)
	b := watch(t, source(clientOf(t, srv), "b"))
	a.wants(t, 2, 1)
	b.wants(t, 2, 2)
	srv.End(syscall.SIGKILL)
	a.fails(t)
	before := a.count()
	for end := time.Now().Add(2 * expiry); time.Now().Before(end); {
		a.fails(t)
	}
	if pools, errs := a.since(before); len(pools) > 0 ||
		!strings.Contains(errs[0].err.Error(), "poolsize/etcd: ") {
		t.Errorf("a store that is away was believed: %+v, %v", a.last(), errs[0].err)
	}
	t.Log(a.lastError())
	srv.Restart(false)
	back := time.Now()
	a.goesOn(t, 1)
	a.wants(t, 2, 1)
	t.Logf("back %v after the store", time.Since(back))
	b.goesOn(t, 1)
	b.wants(t, 2, 2)
	if n := min(a.least(before), b.least(0)); n < 2 {
		t.Errorf("they believed in %d", n)
	}
}

// Failure mode 20: a store that comes back without its data makes no replica believe in a small pool.
func TestRestartWithDataLoss(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	a := watch(t, source(clientOf(t, srv), "a"))
	b := watch(t, source(clientOf(t, srv), "b"))
	a.until(t, "both", func() bool { return a.last().Replicas == 2 })
	for range 2 {
		srv.End(syscall.SIGKILL)
		a.fails(t)
		b.fails(t)
		before := []int{a.count(), b.count()}
		srv.Restart(true)
		back := time.Now()
		a.goesOn(t, 4)
		b.goesOn(t, 4)
		t.Logf("back %v after the store", time.Since(back))
		if n := min(a.least(before[0]), b.least(before[1])); n < 2 {
			t.Errorf("they believed in %d", n)
		}
		if one, other := a.last().Ordinal, b.last().Ordinal; one+other != 3 {
			t.Errorf("ordinals %d and %d", one, other)
		}
	}
}

// A store that is not there at the start is waited for.
func TestStoreComesLater(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	srv.End(syscall.SIGTERM)
	a := watch(t, source(clientOf(t, srv), "a"))
	for range 3 {
		a.fails(t)
	}
	srv.Restart(false)
	a.wants(t, 1, 1)
	if pools, _ := a.since(0); pools[0].pool.Replicas != 1 {
		t.Errorf("it began with %+v", pools[0].pool)
	}
}

// Failure mode 19 of this source: one that cannot reach the store for longer than its lease lasts is dropped,
// and keeps what it had. When it can it registers again and never believes in less.
func TestPartition(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"stalled", "cut"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			srv, a := first(t)
			way := etcdtest.NewRelay(t, srv.Addr())
			b := watch(t, source(clientAt(t, way.Addr()), "b"))
			b.wants(t, 2, 2)
			a.wants(t, 2, 1)
			c := watch(t, source(clientOf(t, srv), "c"))
			b.wants(t, 3, 2)
			before, began := b.count(), time.Now()
			if how == "cut" {
				way.Cut()
			} else {
				way.Stall()
			}
			a.wants(t, 2, 1)
			t.Logf("dropped after %v", time.Since(began))
			b.fails(t)
			c.wants(t, 2, 2)
			way.Heal()
			healed := time.Now()
			a.wants(t, 3, 1)
			t.Logf("counted again %v after the healing", time.Since(healed))
			b.wants(t, 3, 3)
			if n := b.least(before); n < 3 {
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
	var all []*watched
	for _, s := range []struct{ prefix, fleet string }{
		{"", "app"}, {"", "app2"}, {"quotient/app", "x"}, {"quotient/app/x", "y"}, {"other", "app"},
	} {
		src := source(c, "a")
		src.Prefix, src.Fleet = s.prefix, s.fleet
		all = append(all, watch(t, src))
	}
	for i, w := range all {
		w.goesOn(t, 3)
		if w.last().Replicas != 1 || w.last().Ordinal != 1 || w.lastError() != nil {
			t.Errorf("fleet %d: %+v, %v", i, w.last(), w.lastError())
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
	a := watch(t, source(c, "a"))
	a.wants(t, 2, 2)
	put("quotient/f/no version", "\x00\xff", leased)
	a.wants(t, 3, 2)
	put("quotient/f/by hand too", "")
	put("quotient/f/", "", leased)
	put("quotient/f/next version", `{"version":2,"weight":4}`, leased) // changed in place: its ordinal stays
	put("quotient/f/empty", "", leased)
	a.wants(t, 4, 2)
	a.goesOn(t, 3)
	_, err = c.Delete(t.Context(), "quotient/f/next version")
	must(t, err)
	a.wants(t, 3, 1)
	if a.lastError() != nil {
		t.Error(a.lastError())
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
	a.wants(t, n+1, n+1)
	_, err = c.Revoke(t.Context(), lease.ID)
	must(t, err)
	a.wants(t, 1, 1)
}

// A user with no more rights than the page names can do all of it.
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
	a, b := watch(t, source(user(), "a")), watch(t, source(user(), "b"))
	a.until(t, "both", func() bool { return a.last().Replicas == 2 })
	b.leave(t)
	a.until(t, "one", func() bool { return a.last().Replicas == 1 })
	other := source(user(), "c")
	other.Fleet = "g"
	c := watch(t, other)
	c.fails(t)
	if !strings.Contains(c.lastError().Error(), "permission denied") {
		t.Errorf("another fleet: %v", c.lastError())
	}
	for _, w := range []*watched{a, b} { // on a busy machine the check of a password may take too long
		if _, errs := w.since(0); len(errs) > 0 && strings.Contains(fmt.Sprint(errs), "denied") {
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
	a.wants(t, 1, 1)
	must(t, c.Close())
	for range 3 {
		a.fails(t)
	}
	if n := a.least(0); n != 1 {
		t.Errorf("it believed in %d", n)
	}
}

// Failure mode 20: the leader of three members is killed, or hangs. No replica believes in a smaller pool,
// and all go on with the others.
func TestLeaderFails(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*etcdtest.Server){
		"killed": func(s *etcdtest.Server) { s.End(syscall.SIGKILL) },
		"hangs":  func(s *etcdtest.Server) { s.Signal(syscall.SIGSTOP) },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			members := etcdtest.Cluster(t, 3)
			var all []*watched
			for i := range 3 {
				s := source(clientOf(t, members...), string(rune('a'+i)))
				s.Expiry = 10 * time.Second
				w := watch(t, s)
				w.wants(t, i+1, i+1)
				all = append(all, w)
			}
			all[0].wants(t, 3, 1)
			before := []int{all[0].count(), all[1].count(), all[2].count()}
			leader := etcdtest.Leader(t, members)
			end(leader)
			began := time.Now()
			joins := watch(t, source(clientOf(t, members...), "d"))
			for i, w := range append(all, joins) {
				w.wants(t, 4, i+1)
			}
			t.Logf("all count the joiner %v after the leader's end", time.Since(began))
			for i, w := range all {
				if n := w.least(before[i]); n < 3 {
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

// The source does what every source must do.
func TestPooltest(t *testing.T) {
	t.Parallel()
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
