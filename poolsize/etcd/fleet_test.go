package etcd

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"
)

// plain counts the fleet from all that the store has.
func plain(store map[string]*mvccpb.KeyValue, own string) (p quotient.Pool, newest int64) {
	var replicas []*mvccpb.KeyValue
	for name, kv := range store {
		newest = max(newest, kv.ModRevision)
		if kv.Lease != 0 && name != "p/" && !strings.Contains(name[2:], "/") {
			replicas = append(replicas, kv)
		}
	}
	slices.SortFunc(replicas, func(a, b *mvccpb.KeyValue) int {
		if a.CreateRevision != b.CreateRevision {
			return int(a.CreateRevision - b.CreateRevision)
		}
		return strings.Compare(string(a.Key), string(b.Key))
	})
	i := slices.IndexFunc(replicas, func(kv *mvccpb.KeyValue) bool { return string(kv.Key) == own })
	return quotient.Pool{Replicas: len(replicas), Ordinal: i + 1}, newest
}

// Whatever happens to the keys, the known state of them is what a count from the beginning finds.
func TestPropertyFleet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const own = "p/m"
		store := map[string]*mvccpb.KeyValue{}
		f := newFleet("p/", held{name: "m", lease: 7}, 0)
		names := []string{own, "p/", "p/a", "p/b", "p/n", "p/z", "p/deep/a", "p/deep/"}
		for revision := int64(1); revision < 60; revision++ {
			var events []*clientv3.Event
			for range rapid.IntRange(1, 3).Draw(t, "events of one transaction") {
				name := rapid.SampledFrom(names).Draw(t, "name")
				if store[name] != nil && store[name].ModRevision == revision {
					continue // a transaction changes a key once
				}
				if store[name] != nil && rapid.Bool().Draw(t, "delete") {
					delete(store, name)
					events = append(events, deletion(name, revision))
					continue
				}
				lease := rapid.SampledFrom([]int64{0, 7, 8}).Draw(t, "lease")
				kv := &mvccpb.KeyValue{Key: []byte(name), Lease: lease, CreateRevision: revision,
					ModRevision: revision}
				if old := store[name]; old != nil {
					kv.CreateRevision = old.CreateRevision
				}
				store[name] = kv
				events = append(events, &clientv3.Event{Type: clientv3.EventTypePut, Kv: kv})
			}
			f.learn(events)
			want, newest := plain(store, own)
			present := store[own] != nil && store[own].Lease == 7
			if got := f.pool(); f.present() != present || present && got != want {
				t.Fatalf("revision %d: present %v, %+v; want %v, %+v", revision, f.present(), got,
					present, want)
			}
			if f.newest() != newest || len(f.keys) != len(store) {
				t.Fatalf("revision %d: %d keys, the newest %d; want %d, %d",
					revision, len(f.keys), f.newest(), len(store), newest)
			}
		}
	})
}

// Two states of a store with equal numbers of keys and equal newest revisions are one state: that is why a
// check needs no more than these two.
func TestPropertyTwoNumbersTellStatesApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seen := map[[2]int64]string{}
		keys := map[int]int64{} // and their revisions
		for revision := int64(1); revision < 40; revision++ {
			name := rapid.IntRange(0, 6).Draw(t, "name")
			if _, there := keys[name]; there && rapid.Bool().Draw(t, "delete") {
				delete(keys, name)
			} else {
				keys[name] = revision
			}
			newest := int64(0)
			for _, r := range keys {
				newest = max(newest, r)
			}
			is, state := [2]int64{int64(len(keys)), newest}, fmt.Sprint(keys)
			if was, ok := seen[is]; ok && was != state {
				t.Fatalf("revision %d: %v is told by %v as %v was", revision, state, is, was)
			}
			seen[is] = state
		}
	})
}
