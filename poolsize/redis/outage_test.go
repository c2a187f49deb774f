package redis

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// away is a hook for clients that cannot reach the store while it is set.
type away struct{ atomic.Bool }

func (a *away) hook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if a.Load() {
			return errors.New("no route to host")
		}
		return next(ctx, cmd)
	}
}

// olds starts processors whose way to the store can be cut, and returns them when they have had the time to
// agree.
func olds(t *testing.T, mini *miniredis.Miniredis, cut *away, ids ...string) (all []*watched) {
	t.Helper()
	for _, id := range ids {
		client := pipeClient(t, mini)
		client.AddHook(hook(cut.hook))
		all = append(all, watch(t, &Source{Client: client, Fleet: "f", ID: id}))
		time.Sleep(137 * time.Millisecond)
	}
	time.Sleep(10 * time.Second)
	return all
}

// Failure mode 20: no processor could reach the store for longer than an expiry, as in a failover, and one
// that starts then is the first to reach it. It counts those whom the store still knows, for one expiry in
// which they can come back, if the store was not silent for too long.
func TestNewReplicaAfterOutage(t *testing.T) {
	const n = 4
	for _, row := range []struct {
		outage time.Duration // until the new replica starts
		back   time.Duration // after which the others reach the store again
		want   int
	}{
		{9 * time.Second, 5 * time.Second, n + 1},
		{17 * time.Second, 5 * time.Second, n + 1},
		{17 * time.Second, 9 * time.Second, n + 1},
		{68 * time.Second, 5 * time.Second, n + 1},
		{2 * time.Minute, 5 * time.Second, 1}, // which is what the page says
	} {
		synctest.Test(t, func(t *testing.T) {
			mini := newMini(t)
			cut := &away{}
			all := olds(t, mini, cut, "a", "b", "c", "d")
			all[0].wants(t, n, 1)
			cut.Store(true)
			time.Sleep(row.outage)
			var before []int
			for _, w := range all {
				pools, _ := w.counts()
				before = append(before, pools)
			}
			joins := watch(t, &Source{Client: pipeClient(t, mini), Fleet: "f", ID: "z"})
			time.Sleep(row.back)
			if got := joins.least(0); got != row.want {
				t.Errorf("%+v: the joiner counts %d, want %d", row, got, row.want)
			}
			cut.Store(false)
			time.Sleep(10 * time.Second)
			for i, w := range append(all, joins) {
				w.wants(t, n+1, i+1)
				if i < n && w.least(before[i]) < n {
					t.Errorf("%+v: processor %d counts %d", row, i, w.least(before[i]))
				}
			}
		})
	}
}

// Failure mode 20: the store has lost its data, and one processor is back before another starts. The first
// one's memory counts for both, for one expiry in which the others can come back.
func TestNewReplicaAfterOneIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := newMini(t)
		cut, cutOne := &away{}, &away{}
		all := append(olds(t, mini, cutOne, "a"), olds(t, mini, cut, "b", "c", "d")...)
		all[0].wants(t, 4, 1)
		cut.Store(true)
		cutOne.Store(true)
		mini.FlushAll()
		time.Sleep(5 * time.Second)
		cutOne.Store(false)
		time.Sleep(4 * time.Second) // it has synced several times
		joins := watch(t, &Source{Client: pipeClient(t, mini), Fleet: "f", ID: "z"})
		time.Sleep(4 * time.Second)
		if got := joins.least(0); got < 4 {
			t.Errorf("the joiner counts %d", got)
		}
		cut.Store(false)
		time.Sleep(12 * time.Second)
		for i, w := range append(all, joins) {
			w.wants(t, 5, i+1)
		}
	})
}

// A processor that died while no processor could reach the store counts for one expiry after the first one
// does, and not again.
func TestDeadAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := newMini(t)
		cut := &away{}
		all := olds(t, mini, cut, "a", "b", "c", "d")
		for range 3 {
			cut.Store(true)
			for len(all) > 2 {
				all[3].leave(t) // which the store does not learn
				all = all[:3]
				all[2].leave(t)
				all = all[:2]
			}
			time.Sleep(30 * time.Second)
			before, _ := all[0].counts()
			cut.Store(false)
			time.Sleep(15 * time.Second) // an expiry, and time to agree
			all[0].wants(t, 2, 1)
			all[1].wants(t, 2, 2)
			if got := all[0].last().Replicas; got != 2 {
				t.Errorf("counts %d of 2", got)
			}
			if got := all[0].least(before); got < 2 {
				t.Errorf("it believed in %d", got)
			}
		}
	})
}

// One whose predecessors crashed again and again counts one of them for an expiry, and no more.
func TestCrashLoop(t *testing.T) {
	mini := newMini(t)
	s, err := (&Source{Client: pipeClient(t, mini), Fleet: "f", ID: "a"}).complete()
	must(t, err)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range 10 {
		mini.SetTime(now)
		got, err := s.store(fmt.Sprint(i)).sync(t.Context(), 1, "")
		must(t, err)
		if want := min(i+1, 2); got.living != want || got.known {
			t.Errorf("start %d: got %+v, want %d living", i, got, want)
		}
		now = now.Add(s.Expiry + time.Second)
	}
}

// clustered is a client that counts how often it is asked to find out who serves what.
type clustered struct {
	*redis.Client
	asked int
}

func (c *clustered) ForEachMaster(ctx context.Context, _ func(context.Context, *redis.Client) error) error {
	c.asked++
	<-ctx.Done() // as if the node that it asks has vanished
	return ctx.Err()
}

// Failure mode 20: before a sync that follows a failed one, and only then, a Cluster's client finds out again
// which node serves the keys. That takes no longer than a command, and the sync is tried whatever comes of
// it.
func TestMapIsReloadedAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := newMini(t)
		client, cut := &clustered{Client: pipeClient(t, mini)}, &away{}
		client.AddHook(hook(cut.hook))
		s, err := (&Source{Client: client, Fleet: "f", ID: "a"}).complete()
		must(t, err)
		st := s.store("a")
		for i, row := range []struct {
			away  bool
			asked int
			takes time.Duration
		}{
			{false, 0, 0}, {false, 0, 0}, {true, 0, 0}, {true, 1, time.Second}, {false, 2, time.Second},
			{false, 2, 0},
		} {
			cut.Store(row.away)
			began := time.Now()
			if _, err := st.sync(t.Context(), 1, ""); (err != nil) != row.away {
				t.Errorf("sync %d: %v", i, err)
			}
			if took := time.Since(began); client.asked != row.asked || took != row.takes {
				t.Errorf("sync %d took %v, and the map was asked for %d times by then, want %d", i, took,
					client.asked, row.asked)
			}
		}
	})
}
