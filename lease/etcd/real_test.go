//go:build unix

package etcd

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-go/quotient/internal/etcdtest"
	"github.com/quotient-go/quotient/internal/tested"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

const ttl = 2 * time.Second

// stand runs one server more, which reaches the store at these addresses.
func stand(t *testing.T, j *judge, name string, addrs ...string) *running {
	t.Helper()
	r := &running{judged: j.server(t, name)}
	e := &Election{Client: clientAt(t, addrs...), Server: r.judged, URL: "http://" + name,
		Name: "locks", TTL: ttl}
	return r.runs(t, e.Run)
}

// pair runs a server a, which leads, and a server b, which follows it.
func pair(t *testing.T, j *judge, toA, toB []string) (a, b *running) {
	t.Helper()
	a = stand(t, j, "a", toA...)
	leads(t, j, a)
	b = stand(t, j, "b", toB...)
	j.wait(t, "b follows", func() bool { return j.follows(b.judged, "http://a") })
	return a, b
}

// leads waits until the server leads.
func leads(t *testing.T, j *judge, r *running) {
	t.Helper()
	j.wait(t, r.name+" leads", func() bool { return j.now() == r.judged })
}

// One leads after the other, by the end of each, and tokens rise.
func TestRealTakeovers(t *testing.T) {
	t.Parallel()
	srv, j := etcdtest.Start(t), newJudge()
	now := stand(t, j, "s0", srv.Addr())
	leads(t, j, now)
	for i := range 7 {
		next := stand(t, j, fmt.Sprint("s", i+1), srv.Addr())
		j.wait(t, "it follows", func() bool { return j.follows(next.judged, "http://"+now.name) })
		began := time.Now()
		now.leave()
		leads(t, j, next)
		if took := time.Since(began); i > 0 && took > ttl {
			t.Errorf("handed over after %v", took)
		}
		now = next
	}
	now.leave()
	r, err := clientAt(t, srv.Addr()).Get(t.Context(), "quotient-leases/", clientv3.WithPrefix())
	must(t, err)
	if r.Count > 0 || j.leads != 8 {
		t.Errorf("%v are left; %d have led", r.Kvs, j.leads)
	}
	j.verdict(t)
}

// A leader that is cut off from the store stops before another one leads, and follows that
// one when it is back.
func TestRealCutOff(t *testing.T) {
	for name, cut := range map[string]func(*etcdtest.Relay){
		"cut":     (*etcdtest.Relay).Cut,
		"stalled": (*etcdtest.Relay).Stall,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, j := etcdtest.Start(t), newJudge()
			way := etcdtest.NewRelay(t, srv.Addr())
			a, b := pair(t, j, []string{way.Addr()}, []string{srv.Addr()})
			began := time.Now()
			cut(way)
			j.wait(t, "a stops", func() bool { return j.now() != a.judged })
			until, _ := a.ends()
			stopped := until.Sub(began)
			leads(t, j, b)
			took := time.Since(began)
			t.Logf("%s: a has stopped after %v, b leads after %v", name, stopped, took)
			if stopped > ttl || took > 3*ttl {
				t.Error("that is too late")
			}
			way.Heal()
			j.wait(t, "a follows", func() bool { return j.follows(a.judged, "http://b") })
			b.leave()
			leads(t, j, a)
			j.verdict(t)
		})
	}
}

// The store is killed, or hangs. No server leads after the TTL, and one does when the store is back.
func TestRealStoreFails(t *testing.T) {
	for name, row := range map[string]struct{ end, back func(*etcdtest.Server) }{
		"killed": {(*etcdtest.Server).Kill,
			func(s *etcdtest.Server) { s.Restart(false) }},
		"hangs": {func(s *etcdtest.Server) { s.Signal(syscall.SIGSTOP) },
			func(s *etcdtest.Server) { s.Signal(syscall.SIGCONT) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, j := etcdtest.Start(t), newJudge()
			_, b := pair(t, j, []string{srv.Addr()}, []string{srv.Addr()})
			row.end(srv)
			j.wait(t, "no server leads", func() bool { return j.now() == nil })
			j.wait(t, "b knows of none", func() bool { return j.follows(b.judged, "") })
			row.back(srv)
			began := time.Now()
			j.wait(t, "one leads", func() bool { return j.now() != nil })
			t.Logf("%s: one leads %v after the store is back", name, time.Since(began))
			j.verdict(t)
		})
	}
}

// The leader of three members of the store hangs. At most one server leads meanwhile, and one does after.
func TestRealMemberHangs(t *testing.T) {
	t.Parallel()
	members, j := etcdtest.Cluster(t, 3), newJudge()
	a, b := pair(t, j, etcdtest.Addrs(members), etcdtest.Addrs(members))
	etcdtest.Leader(t, members).Signal(syscall.SIGSTOP)
	before, _ := a.ends()
	renewed := func(r *running) bool {
		until, leads := r.ends()
		return leads && until.After(before.Add(2*ttl))
	}
	j.wait(t, "one is renewed", func() bool { return renewed(a) || renewed(b) })
	first, second := a, b
	if renewed(b) {
		first, second = b, a
	}
	first.leave()
	leads(t, j, second)
	t.Logf("%d have led", j.leads)
	j.verdict(t)
}

// The client's own election and this one stand side by side.
func TestRealConcurrency(t *testing.T) {
	t.Parallel()
	srv, j := etcdtest.Start(t), newJudge()
	a := stand(t, j, "a", srv.Addr())
	leads(t, j, a)
	session, err := concurrency.NewSession(clientAt(t, srv.Addr()), concurrency.WithTTL(5))
	must(t, err)
	other := concurrency.NewElection(session, "quotient-leases/locks")
	r, err := other.Leader(t.Context())
	must(t, err)
	tested.Want(t, "the leader", string(r.Kvs[0].Value), "http://a")
	won := make(chan error, 1)
	go func() { won <- other.Campaign(t.Context(), "http://other") }()
	j.wait(t, "it stands", func() bool {
		r, err := session.Client().Get(t.Context(), "quotient-leases/locks/", clientv3.WithPrefix())
		return err == nil && r.Count == 2
	})
	b := stand(t, j, "b", srv.Addr())
	j.wait(t, "b follows", func() bool { return j.follows(b.judged, "http://a") })
	a.leave()
	must(t, <-won)
	j.wait(t, "b follows the other", func() bool { return j.follows(b.judged, "http://other") })
	must(t, other.Resign(t.Context()))
	leads(t, j, b)
	must(t, session.Close())
	j.verdict(t)
}
