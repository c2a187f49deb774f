package redis

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/redis/go-redis/v9"
)

// A data type that is not ours, an eviction of one key, a rogue's numbers: errors or caution, then it heals.
// Weights that were lost come back, and what is not a weight, or not of a processor, goes.
func TestSpoiltData(t *testing.T) {
	t.Parallel()
	c := clientOf(t, start(t), nil)
	a, b := watch(t, heavy(c, "a", 3)), watch(t, heavy(c, "b", 2))
	agrees := func() {
		a.Is(quotient.Pool{Replicas: 5, Ordinal: 1, Weight: 3})
		b.Is(quotient.Pool{Replicas: 5, Ordinal: 4, Weight: 2})
	}
	agrees()
	const deadlines, sizes, weights = "{quotient:f}:deadlines", "{quotient:f}:sizes", "{quotient:f}:weights"
	ctx, before := t.Context(), a.Count()
	spoil := func(cmd redis.Cmder) {
		t.Helper()
		must(t, cmd.Err())
		a.GoesOn(6)
		agrees()
	}
	spoil(c.Del(ctx, sizes))
	spoil(c.Del(ctx, deadlines))
	spoil(c.Del(ctx, weights))
	if n := min(a.Least(before), b.Least(0)); n < 5 {
		t.Errorf("it believed in %d", n)
	}
	spoil(c.ZAdd(ctx, sizes, redis.Z{Score: math.Inf(1), Member: "nobody"}))
	spoil(c.ZAdd(ctx, deadlines, redis.Z{Score: 9e15, Member: "rogue"}))
	for _, e := range []string{"9999rogue", "0004rogue", "abcd", "x", ""} {
		spoil(c.ZAdd(ctx, weights, redis.Z{Member: e}))
	}
	must(t, c.Set(ctx, deadlines, "x", 0).Err())
	a.Fails()
	spoil(c.Del(ctx, deadlines))
}

// A fleet of the most processors takes in no more, and thousands that died at once are dropped in portions.
func TestFullFleet(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := clientOf(t, srv, nil)
	now := time.Now()
	if srv.Real() {
		var err error
		now, err = c.Time(t.Context()).Result()
		must(t, err)
	}
	fill := func(until time.Time, n int) {
		zs := make([]redis.Z, n)
		for i := range zs {
			zs[i] = redis.Z{Score: float64(until.UnixMilli()), Member: fmt.Sprint(i)}
		}
		for part := range slices.Chunk(zs, 10_000) {
			must(t, c.ZAdd(t.Context(), "{quotient:f}:deadlines", part...).Err())
		}
	}
	fill(now.Add(time.Minute), mostProcessors)
	s, err := source(c, "a").complete()
	must(t, err)
	st := s.store("a")
	st.patience = time.Minute // the imitation of redis-server is slow on a busy machine
	if _, err := st.sync(t.Context(), 1, ""); err == nil || !strings.Contains(err.Error(), "FULL 100000") {
		t.Errorf("a full fleet: %v", err)
	}
	must(t, c.Del(t.Context(), st.deadlines).Err())
	fill(now.Add(time.Minute), mostProcessors-10)
	for weight, want := range map[int]string{11: "FULL 100000", 10: ""} {
		heavy := s.store("heavy")
		heavy.weight, heavy.patience = weight, st.patience
		if _, err := heavy.sync(t.Context(), 1, ""); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("a weight of %d where there is room for ten: %v", weight, err)
		}
		heavy.leave(t.Context(), "")
	}
	must(t, c.Del(t.Context(), st.deadlines, st.sizes).Err())
	fill(now.Add(-time.Second), 2500)
	for _, want := range []int{1501, 501, 1, 1} {
		if got, err := st.sync(t.Context(), 1, ""); err != nil || got.living != want ||
			got.agreed != (want == 1) {
			t.Errorf("got %+v, %v, want %d living", got, err, want)
		}
	}
}

// An answer that is not ours is an error.
func TestStrangeAnswer(t *testing.T) {
	for _, answer := range []any{nil, "x", int64(1), []any{}, []any{int64(1), int64(1)},
		[]any{"a", "b", "c", "d", "e"}} {
		c := redis.NewClient(&redis.Options{})
		defer c.Close() //nolint:errcheck // it has not been used
		c.AddHook(hook(func(redis.ProcessHook) redis.ProcessHook {
			return func(_ context.Context, cmd redis.Cmder) error {
				cmd.(*redis.Cmd).SetVal(answer)
				return nil
			}
		}))
		s, err := source(c, "a").complete()
		must(t, err)
		if got, err := s.store("a").sync(t.Context(), 1, ""); err == nil ||
			!strings.Contains(err.Error(), "{quotient:f}:deadlines") {
			t.Errorf("%v: got %+v, %v", answer, got, err)
		}
	}
}

// The store's clock alone decides. A store 200 s ahead or behind of the processors changes
// nothing: a sync that said anything by their clock would be refused as late.
func TestClockOfAClient(t *testing.T) {
	for _, skew := range []time.Duration{-200 * time.Second, 0, 200 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			mini := newMini(t)
			c, err := (&Source{Client: pipeClient(t, mini), Fleet: "f", ID: "a"}).complete()
			must(t, err)
			a, b := c.store("a"), c.store("b")
			for i := range 20 {
				mini.SetTime(time.Now().Add(skew))
				for rank, st := range []*store{a, b} {
					got, err := st.sync(t.Context(), 2, "")
					must(t, err)
					if i > 0 && got != (answer{true, true, 2, 2, rank}) {
						t.Errorf("skew %v, sync %d: got %+v", skew, i, got)
					}
				}
				time.Sleep(time.Second)
			}
		})
	}
}

// When the store's clock jumps, the dead count for ten minutes longer at most, and the living are never too
// few.
func TestClockOfTheStore(t *testing.T) {
	for _, row := range []struct {
		jump      time.Duration
		forgotten bool // the processor, with all others
		longer    time.Duration
	}{
		{0, false, modelExpiry},
		{-5 * time.Minute, false, 5*time.Minute + modelExpiry},
		{-longestExpiry - modelExpiry, true, 0},
		{-365 * 24 * time.Hour, true, 0},
		// for which it takes the jump for a time without it
		{30 * time.Second, true, 2*time.Second + modelExpiry - 1},
		{time.Hour, true, 0},
		{365 * 24 * time.Hour, true, 0},
	} {
		synctest.Test(t, func(t *testing.T) { // whose clock alone decides what is late
			mini := newMini(t)
			s, err := (&Source{Client: pipeClient(t, mini), Fleet: "f", ID: "a"}).complete()
			must(t, err)
			a, dies := s.store("a"), s.store("b")
			now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			mini.SetTime(now)
			m := newMember(s.Expiry, s.Weight)
			for range 3 {
				_, err := dies.sync(t.Context(), 2, "")
				must(t, err)
				got, err := a.sync(t.Context(), m.report, "")
				must(t, err)
				m.learn(got, now)
			}
			for after := 2 * time.Second; after < longestExpiry+time.Minute; after += 2 * time.Second {
				mini.SetTime(now.Add(row.jump + after))
				got, err := a.sync(t.Context(), m.report, "")
				must(t, err)
				if after == 2*time.Second && got.known == row.forgotten {
					t.Errorf("jump %v: got %+v", row.jump, got)
				}
				p, _ := m.learn(got, now.Add(after))
				if want := after <= row.longer; (got.living == 2) != want {
					t.Fatalf("jump %v: after %v %d live", row.jump, after, got.living)
				}
				if after < modelExpiry && p.Replicas != 2 {
					t.Errorf("jump %v: after %v %d count", row.jump, after, p.Replicas)
				}
				if after > row.longer+2*modelExpiry && p.Replicas != 1 {
					t.Fatalf("jump %v: after %v %d count still", row.jump, after, p.Replicas)
				}
			}
		})
	}
}

// The store is away for longer than an expiry. Only errors are reported, and then all is as
// before, also where it has lost its data.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	for _, wipe := range []bool{false, true} {
		t.Run(fmt.Sprint("wipe ", wipe), func(t *testing.T) {
			t.Parallel()
			srv := start(t)
			a := watch(t, source(clientOf(t, srv, nil), "a"))
			b := watch(t, source(clientOf(t, srv, nil), "b"))
			a.Wants(2, 1)
			b.Wants(2, 2)
			must(t, srv.Kill())
			a.Fails()
			before := a.Count()
			for end := time.Now().Add(2 * expiry); time.Now().Before(end); {
				a.Fails()
			}
			if pools, _ := a.Since(before); len(pools) > 0 {
				t.Errorf("a store that is away was believed: %+v", pools[0].Pool)
			}
			must(t, srv.Restart(wipe))
			a.GoesOn(6)
			a.Wants(2, 1)
			b.Wants(2, 2)
			if n := a.Least(before); n < 2 {
				t.Errorf("it believed in %d", n)
			}
		})
	}
}

// cut cuts ways to the store, or ends that.
func cut(away bool, ways ...*way) {
	for _, w := range ways {
		w.away.Store(away)
	}
}

// No processor could reach the store for longer than an expiry, as in a failover, and one
// that starts then is the first to reach it. It counts those whom the store still knows, for one expiry in
// which they can come back, if the store was not silent for too long. If the store has lost its data, the memory
// of one that is back already counts for both.
func TestNewReplicaAfterOutage(t *testing.T) {
	const n = 4
	for _, row := range []struct {
		lost   bool          // the data; then one replica is back five seconds after that
		outage time.Duration // until the new replica starts
		back   time.Duration // after which the others reach the store again
		want   int
	}{
		{false, 9 * time.Second, 5 * time.Second, n + 1},
		{false, 17 * time.Second, 5 * time.Second, n + 1},
		{false, 17 * time.Second, 9 * time.Second, n + 1},
		{false, 68 * time.Second, 5 * time.Second, n + 1},
		{false, 2 * time.Minute, 5 * time.Second, 1}, // which is what the page says
		{true, 9 * time.Second, 4 * time.Second, n},
	} {
		synctest.Test(t, func(t *testing.T) {
			mini := newMini(t)
			all, ways := fleetIn(t, mini, n, time.Second, 10*time.Second)
			cut(true, ways...)
			if row.lost {
				mini.FlushAll()
				time.AfterFunc(5*time.Second, func() { cut(false, ways[0]) })
			}
			time.Sleep(row.outage)
			var before []int
			for _, w := range all {
				before = append(before, w.Count())
			}
			joins := watch(t, &Source{Client: pipeClient(t, mini), Fleet: "f", ID: "z"})
			time.Sleep(row.back)
			tested.Want(t, fmt.Sprintf("%+v: the joiner counts", row), joins.Least(0), row.want)
			cut(false, ways...)
			time.Sleep(12 * time.Second)
			for i, w := range append(all, joins) {
				w.Wants(n+1, i+1)
				if i < n && w.Least(before[i]) < n {
					t.Errorf("%+v: processor %d counts %d", row, i, w.Least(before[i]))
				}
			}
		})
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

// Before a sync that follows a failed one, and only then, a Cluster's client finds out again
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
