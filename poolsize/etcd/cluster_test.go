package etcd

import (
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// cluster returns the members of a store that has n of them.
func cluster(t *testing.T, n int) (all []*server) {
	t.Helper()
	needReal(t)
	var peers []string
	for i := range n {
		s := newServer(t, string(rune('a'+i)))
		s.urls = [2]string{"http://" + freeAddr(t), "http://" + freeAddr(t)}
		all, peers = append(all, s), append(peers, s.name+"="+s.urls[1])
	}
	var starting sync.WaitGroup
	for _, s := range all {
		s.extra = []string{"--initial-cluster", strings.Join(peers, ",")}
		s.launch()
		starting.Go(func() {
			if err := s.serves(); err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	return all
}

// Failure mode 20: the leader of three members is killed, or hangs. No replica believes in a smaller pool,
// and all go on with the others.
func TestLeaderFails(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*server){
		"killed": func(s *server) { s.end(syscall.SIGKILL) },
		"hangs":  func(s *server) { s.signal(syscall.SIGSTOP) },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			members := cluster(t, 3)
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
func leaderOf(t *testing.T, members []*server) *server {
	t.Helper()
	for _, s := range members {
		r, err := clientOf(t, s).Status(t.Context(), s.addr())
		must(t, err)
		if r.Leader == r.Header.MemberId {
			return s
		}
	}
	t.Fatal("nobody leads")
	return nil
}
