package etcd

import (
	"strings"
	"sync"
	"testing"
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
