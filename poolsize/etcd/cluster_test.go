package etcd

import (
	"syscall"
	"testing"
	"time"

	"github.com/quotient-go/quotient/internal/etcdtest"
)

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
			leader := leaderOf(t, members)
			end(leader)
			began := time.Now()
			joins := watch(t, source(clientOf(t, members...), "d"))
			for i, w := range append(all, joins) {
				w.wants(t, 4, i+1)
			}
			took := time.Since(began)
			t.Logf("all count the joiner %v after the leader's end", took)
			for i, w := range all {
				if n := w.least(before[i]); n < 3 {
					t.Errorf("replica %d believed in %d", i, n)
				}
			}
		})
	}
}

// leaderOf returns the member that leads.
func leaderOf(t *testing.T, members []*etcdtest.Server) *etcdtest.Server {
	t.Helper()
	for _, s := range members {
		r, err := clientOf(t, s).Status(t.Context(), s.Addr())
		must(t, err)
		if r.Leader == r.Header.MemberId {
			return s
		}
	}
	t.Fatal("nobody leads")
	return nil
}
