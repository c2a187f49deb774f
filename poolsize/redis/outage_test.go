package redis

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// cut cuts ways to the store, or ends that.
func cut(away bool, ways ...*way) {
	for _, w := range ways {
		w.away.Store(away)
	}
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
			all, ways := fleetIn(t, mini, n, time.Second, 10*time.Second)
			cut(true, ways...)
			time.Sleep(row.outage)
			var before []int
			for _, w := range all {
				pools := w.Count()
				before = append(before, pools)
			}
			joins := watch(t, &Source{Client: pipeClient(t, mini), Fleet: "f", ID: "z"})
			time.Sleep(row.back)
			if got := joins.Least(0); got != row.want {
				t.Errorf("%+v: the joiner counts %d, want %d", row, got, row.want)
			}
			cut(false, ways...)
			time.Sleep(10 * time.Second)
			for i, w := range append(all, joins) {
				w.Wants(n+1, i+1)
				if i < n && w.Least(before[i]) < n {
					t.Errorf("%+v: processor %d counts %d", row, i, w.Least(before[i]))
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
		all, ways := fleetIn(t, mini, 4, time.Second, 10*time.Second)
		cut(true, ways...)
		mini.FlushAll()
		time.Sleep(5 * time.Second)
		cut(false, ways[0])
		time.Sleep(4 * time.Second) // it has synced several times
		joins := watch(t, &Source{Client: pipeClient(t, mini), Fleet: "f", ID: "z"})
		time.Sleep(4 * time.Second)
		if got := joins.Least(0); got < 4 {
			t.Errorf("the joiner counts %d", got)
		}
		cut(false, ways...)
		time.Sleep(12 * time.Second)
		for i, w := range append(all, joins) {
			w.Wants(5, i+1)
		}
	})
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
		client, to := &clustered{Client: pipeClient(t, mini)}, &way{}
		client.AddHook(hook(to.hook))
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
			cut(row.away, to)
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
