package etcd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/internal/watched"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"
)

// isNow fails unless the last pool is this one.
func isNow(t *testing.T, w *watched.Log, n, ordinal int) {
	t.Helper()
	synctest.Wait()
	if want := (quotient.Pool{Replicas: n, Ordinal: ordinal}); w.Last() != want {
		t.Errorf("the last pool is %+v, want %+v; the last error %v", w.Last(), want, w.LastErr())
	}
}

// A start takes as long as the page of Watch says, and nothing is reported before.
func TestStartTakes(t *testing.T) {
	for _, row := range []struct{ period, expiry, want time.Duration }{
		{time.Second, 10 * time.Second, 2250 * time.Millisecond},
		{time.Second, 2 * time.Second, 2250 * time.Millisecond},
		{100 * time.Millisecond, time.Second, 625 * time.Millisecond},
		{4 * time.Second, 8 * time.Second, 6 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, r := newWorld().replica("a")
			s.Period, s.Expiry = row.period, row.expiry
			began := time.Now()
			w := r.begin(t, s)
			w.Until("a report", func() bool { return w.Count() > 0 })
			if got := time.Since(began); got != row.want ||
				w.Last() != (quotient.Pool{Replicas: 1, Ordinal: 1}) {
				t.Errorf("%+v: after %v %+v, %v", row, got, w.Last(), w.LastErr())
			}
		})
	}
}

// A change counts at once, and what does not change is reported again at each look.
func TestChangesAndLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := newWorld()
		a, _ := world.join(t, "a")
		time.Sleep(10 * time.Second)
		b, _ := world.join(t, "b")
		isNow(t, a, 2, 1)
		if b.Count() > 0 {
			t.Errorf("a joiner reports %+v at once", b.Last())
		}
		time.Sleep(3 * time.Second)
		isNow(t, b, 2, 2)
		a.Leave()
		isNow(t, b, 1, 1)
		before := b.Count()
		time.Sleep(10 * time.Second)
		if n := b.Count() - before; n < 9 || n > 12 {
			t.Errorf("%d reports in ten periods", n)
		}
		b.Leave()
		if keys, leases := world.left(); keys+leases > 0 {
			t.Errorf("%d keys and %d leases are left", keys, leases)
		}
	})
}

// While the store fails each try is an error, after pauses that double up to the period. No
// pool is reported, and the last one is back with the store.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := newWorld().join(t, "a")
		time.Sleep(10 * time.Second)
		before := w.Count()
		r.set(func() { r.down = errAway })
		time.Sleep(9 * time.Second)
		pools, errs := w.Since(before)
		if len(pools) > 0 || len(errs) < 5 || !errors.Is(errs[0].Err, errAway) ||
			!strings.Contains(errs[0].Err.Error(), "renew quotient/f/a:") {
			t.Fatalf("%d pools, %d errors, the first %v", len(pools), len(errs), w.LastErr())
		}
		want := 100 * time.Millisecond
		for i := range errs[1:] {
			if got := errs[i+1].At.Sub(errs[i].At); got < want*9/10 || got > want*11/10 {
				t.Errorf("pause %d is %v, want %v", i, got, want)
			}
			want = min(2*want, time.Second)
		}
		if n := len(r.of("hurry")); n != len(errs) {
			t.Errorf("the client was hurried %d times in %d failures", n, len(errs))
		}
		r.set(func() { r.down = nil })
		time.Sleep(1100 * time.Millisecond)
		isNow(t, w, 1, 1)
	})
}

// A command that hangs is given up after two tries: a second, or half an Expiry.
func TestCommandIsBounded(t *testing.T) {
	for _, expiry := range []time.Duration{time.Second, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			world := newWorld()
			s, r := world.replica("a")
			s.Period, s.Expiry = 100*time.Millisecond, expiry
			w := r.begin(t, s)
			time.Sleep(10 * time.Second)
			r.set(func() { r.hangs = true })
			at := w.Count()
			w.Until("an error", func() bool { _, errs := w.Since(at); return len(errs) > 0 })
			renewed := r.of("renew")
			_, errs := w.Since(at)
			if got, want := errs[0].At.Sub(renewed[len(renewed)-2]), min(time.Second, expiry/2); got != want {
				t.Errorf("expiry %v: given up after %v, want %v", expiry, got, want)
			}
			began := time.Now()
			w.Leave()
			if got := time.Since(began); got > s.patience() {
				t.Errorf("Watch returned after %v", got)
			}
		})
	}
}

// Each command hangs once, as at one member of several: it is tried again, and all is well.
func TestEachCommandMayHang(t *testing.T) {
	for _, name := range []string{"grant", "put", "list", "watch", "renew", "newest", "revoke"} {
		synctest.Test(t, func(t *testing.T) {
			s, r := newWorld().replica("a")
			r.once = name
			w := r.begin(t, s)
			time.Sleep(20 * time.Second)
			isNow(t, w, 1, 1)
			if w.LastErr() != nil {
				t.Errorf("%s: %v", name, w.LastErr())
			}
			began := time.Now()
			w.Leave()
			if got := time.Since(began); r.once != "" || got > time.Second {
				t.Errorf("%s: Watch returned after %v; hung: %v", name, got, r.once == "")
			}
			time.Sleep(10 * time.Second)
			if keys, _ := r.left(); keys > 0 {
				t.Errorf("%s: a key is left", name)
			}
		})
	}
}

// All keys are deleted, all data is lost, or no replica reaches the store for longer than the
// leases last. Each registers again, and reports nothing before another start is over: by then all others are
// back too. A replica that joins meanwhile may be the first, and none believes in a smaller pool.
func TestLostRegistration(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *world, []*reach){
		"all keys are deleted": func(_ *testing.T, w *world, _ []*reach) { w.deleteAll() },
		"the data is lost":     func(_ *testing.T, w *world, _ []*reach) { w.wipe() },
		"an outage": func(t *testing.T, w *world, ways []*reach) {
			for _, r := range ways {
				r.set(func() { r.down, r.deaf = errAway, true })
			}
			time.Sleep(30 * time.Second)
			if keys, _ := w.left(); keys > 0 {
				t.Fatalf("%d keys have outlived their leases", keys)
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			world := newWorld()
			var all []*watched.Log
			var ways []*reach
			for i := range 5 {
				w, r := world.join(t, fmt.Sprint(i))
				all, ways = append(all, w), append(ways, r)
				time.Sleep(137 * time.Millisecond)
			}
			time.Sleep(10 * time.Second)
			before := all[0].Count()
			lose(t, world, ways)
			synctest.Wait()
			joins, _ := world.join(t, "new")
			for _, r := range ways {
				r.set(func() { r.down, r.deaf = nil, false })
			}
			time.Sleep(8 * time.Second)
			for i, w := range append(all, joins) {
				if n := w.Least(before * min(1, 5-i)); i < 5 && n < 5 || i == 5 && n < 6 ||
					w.Last().Replicas != 6 {
					t.Errorf("%s: replica %d reports %d, at last %+v", name, i, n, w.Last())
				}
				_, errs := w.Since(0)
				if i < 5 && name != "an outage" && (len(errs) != 1 || !errors.Is(errs[0].Err, errGone)) {
					t.Errorf("%s: replica %d: %d errors, the last %v", name, i, len(errs), w.LastErr())
				}
			}
		})
	}
}

// A process that was suspended finds others gone before it finds that it is gone. It reports
// neither.
func TestSuspended(t *testing.T) {
	for range 10 { // it chooses by chance what it looks at first
		synctest.Test(t, func(t *testing.T) {
			world := newWorld()
			world.write("quotient/f/x", "", 1)
			world.write("quotient/f/y", "", 1)
			s, r := world.replica("a")
			var suspended atomic.Bool
			resumed := make(chan bool)
			run := func(ctx context.Context, report func(quotient.Pool, error)) error {
				return s.watch(ctx, s, r, func(p quotient.Pool, err error) {
					report(p, err)
					if suspended.CompareAndSwap(true, false) {
						<-resumed
					}
				})
			}
			w := watched.Start(t, run)
			time.Sleep(10 * time.Second)
			isNow(t, w, 3, 3)
			suspended.Store(true)
			time.Sleep(time.Minute)
			before := w.Count()
			r.set(func() { world.delete("quotient/f/x"); world.delete("quotient/f/y") })
			resumed <- true
			time.Sleep(time.Second)
			if after, _ := w.Since(before); len(after) > 0 {
				t.Errorf("it reports %+v", after)
			}
			time.Sleep(5 * time.Second)
			isNow(t, w, 1, 1)
		})
	}
}

// A change that the watch has missed is found by the next look, also if the number is the same.
func TestLookFindsWhatTheWatchMissed(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*world)
		want   quotient.Pool
	}{
		"joined": {func(w *world) { w.write("quotient/f/z", "", 1) }, quotient.Pool{Replicas: 4, Ordinal: 3}},
		"left":   {func(w *world) { w.delete("quotient/f/x") }, quotient.Pool{Replicas: 2, Ordinal: 2}},
		"one for other": {func(w *world) {
			w.delete("quotient/f/x")
			w.write("quotient/f/z", "", 1)
		}, quotient.Pool{Replicas: 3, Ordinal: 2}},
	} {
		synctest.Test(t, func(t *testing.T) {
			world := newWorld()
			world.write("quotient/f/x", "", 1)
			world.write("quotient/f/y", "", 1)
			w, r := world.join(t, "a")
			time.Sleep(10 * time.Second)
			isNow(t, w, 3, 3)
			r.set(func() { r.deaf = true; row.change(world) })
			time.Sleep(1300 * time.Millisecond) // a period with its jitter, and a retry
			isNow(t, w, row.want.Replicas, row.want.Ordinal)
			if w.LastErr() != nil {
				t.Errorf("%s: %v", name, w.LastErr())
			}
		})
	}
}

// A large fleet is checked more rarely, so that it is no load, and still says at each look what it knows.
func TestLargeFleetsCheckRarely(t *testing.T) {
	for _, row := range []struct{ replicas, least, most int }{{999, 90, 111}, {2000, 22, 28}, {4999, 5, 7}} {
		synctest.Test(t, func(t *testing.T) {
			world := newWorld()
			for i := range row.replicas - 1 {
				world.write(fmt.Sprint("quotient/f/", i), "", 1)
			}
			w, r := world.join(t, "a")
			time.Sleep(100 * time.Second)
			if n := len(r.of("newest")); n < row.least || n > row.most {
				t.Errorf("a fleet of %d was checked %d times in 100 periods", row.replicas, n)
			}
			if n := w.Count(); n < 88 {
				t.Errorf("a fleet of %d was reported %d times in 100 periods", row.replicas, n)
			}
		})
	}
}

// A Source that is watched twice is one replica until its last Watch ends.
func TestOneWatchOfTwoEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newWorld().replica("a")
		first, second := r.begin(t, s), r.begin(t, s)
		time.Sleep(5 * time.Second)
		isNow(t, first, 1, 1)
		isNow(t, second, 1, 1)
		first.Leave()
		time.Sleep(20 * time.Second)
		isNow(t, second, 1, 1)
		r.deleteAll()
		third := r.begin(t, s)
		time.Sleep(5 * time.Second)
		isNow(t, second, 1, 1)
		isNow(t, third, 1, 1)
		second.Leave()
		third.Leave()
		if keys, _ := r.left(); keys > 0 || len(r.of("grant")) != 1 {
			t.Errorf("%d keys are left of %d leases", keys, len(r.of("grant")))
		}
		again := r.begin(t, s)
		time.Sleep(5 * time.Second)
		isNow(t, again, 1, 1)
	})
}

// A fleet that grows beyond all bounds by its watch is refused as one that is listed.
func TestTooManyByTheWatch(t *testing.T) {
	f := newFleet("quotient/f/", held{name: "this one", lease: 1}, 1)
	for i := range mostKeys {
		f.keys[string(binary.AppendUvarint(nil, uint64(i)))] = key{}
	}
	s, r := newWorld().replica("a")
	w := &watcher{c: s, store: r, here: newRegistration("a"), report: func(quotient.Pool, error) {}}
	world := newWorld()
	world.write("quotient/f/this one", "", 1)
	event := &clientv3.Event{Type: clientv3.EventTypePut, Kv: world.keys["quotient/f/this one"]}
	err := w.learn(f, clientv3.WatchResponse{Events: []*clientv3.Event{event}}, true)
	if err == nil || !strings.Contains(err.Error(), "1000001 keys") {
		t.Errorf("got %v", err)
	}
}

// wrong are sources with one wrong field each. What is not set, or at a bound, is right.
func wrong(t *testing.T) map[string]quotient.Source {
	c := clientAt(t, "127.0.0.1:1") // which is not called
	long := strings.Repeat("x", 201)
	for _, right := range []*Source{
		{Client: c, Fleet: "f"}, {Client: c, Fleet: "f", Prefix: "/services/limits", Expiry: 2 * time.Second},
	} {
		must(t, right.Validate())
	}
	return map[string]quotient.Source{
		"Source.Client: nil":                                &Source{Fleet: "f"},
		"Source.Client: it has no connection":               &Source{Client: clientv3.NewCtxClient(t.Context()), Fleet: "f"},
		`Source.Fleet: "" has 0 bytes, not 1 to 200`:        &Source{Client: c},
		"has 201 bytes":                                     &Source{Client: c, Fleet: long},
		`Source.Fleet: "a/b" has a slash`:                   &Source{Client: c, Fleet: "a/b"},
		`Source.ID: "a/b" has a slash`:                      &Source{Client: c, Fleet: "f", ID: "a/b"},
		"Source.ID: ":                                       &Source{Client: c, Fleet: "f", ID: long},
		"Source.Prefix: ":                                   &Source{Client: c, Fleet: "f", Prefix: long},
		"Source.Period: 1µs is not between 1ms and 5m0s":    &Source{Client: c, Fleet: "f", Period: time.Microsecond},
		"Source.Period: -1ns":                               &Source{Client: c, Fleet: "f", Period: -1},
		"Source.Expiry: 10s is not between 12s and 10m0s":   &Source{Client: c, Fleet: "f", Period: 6 * time.Second},
		"Source.Expiry: 11m0s":                              &Source{Client: c, Fleet: "f", Expiry: 11 * time.Minute},
		"Source.Expiry: 2.5s is no whole number of seconds": &Source{Client: c, Fleet: "f", Expiry: 2500 * time.Millisecond},
	}
}

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
