package redis

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Failure mode 20: a store that was restarted without its data makes no processor believe in a small pool.
func TestRestartWithDataLoss(t *testing.T) {
	t.Parallel()
	srv := start(t)
	a := watch(t, source(clientOf(t, srv, nil), "a"))
	b := watch(t, source(clientOf(t, srv, nil), "b"))
	a.wants(t, 2, 1)
	b.wants(t, 2, 2)
	for range 3 {
		before, _ := a.counts()
		must(t, srv.Restart(true))
		a.goesOn(t)
		if n := a.least(before); n < 2 {
			t.Errorf("it believed in %d", n)
		}
		a.wants(t, 2, 1)
	}
}

// Failure mode 20: the store is away for many expiries. Only errors are reported, and then all is as before.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	srv := start(t)
	a := watch(t, source(clientOf(t, srv, nil), "a"))
	b := watch(t, source(clientOf(t, srv, nil), "b"))
	a.wants(t, 2, 1)
	b.wants(t, 2, 2)
	must(t, srv.Kill())
	a.fails(t)
	before, _ := a.counts()
	for end := time.Now().Add(2 * expiry); time.Now().Before(end); {
		a.fails(t)
	}
	if n, _ := a.counts(); n != before {
		t.Errorf("a store that is away was believed: %+v", a.last())
	}
	must(t, srv.Restart(false))
	a.until(t, "it is back", func() bool { n, _ := a.counts(); return n > before })
	a.wants(t, 2, 1)
	b.wants(t, 2, 2)
	if n := a.least(before); n < 2 {
		t.Errorf("it believed in %d", n)
	}
}

// Failure mode 20: a store that is down at the start stops nothing.
func TestStoreDownAtTheStart(t *testing.T) {
	t.Parallel()
	srv := start(t)
	must(t, srv.Stop())
	a := watch(t, source(clientOf(t, srv, nil), "a"))
	a.fails(t)
	if !strings.Contains(a.lastError().Error(), "{quotient:f}:deadlines") {
		t.Errorf("the error does not name the fleet: %v", a.lastError())
	}
	must(t, srv.Restart(false))
	a.wants(t, 1, 1)
}

// Failure mode 20: a store that hangs holds Watch for a second at most, and only an error comes of it.
func TestStoreHangs(t *testing.T) {
	t.Parallel()
	needReal(t)
	srv := start(t)
	a := watch(t, source(clientOf(t, srv, nil), "a"))
	a.wants(t, 1, 1)
	must(t, srv.Pause())
	a.fails(t)
	must(t, srv.Resume())
	a.wants(t, 1, 1)
	must(t, srv.Pause())
	a.fails(t)
	began := time.Now()
	a.leave(t)
	if d := time.Since(began); d > patience/2 {
		t.Errorf("it took %v to end", d)
	}
	must(t, srv.Resume())
}

// A data type that is not ours, an eviction of one key, a rogue's numbers: errors or caution, then it heals.
func TestSpoiltData(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := clientOf(t, srv, nil)
	a, b := watch(t, source(c, "a")), watch(t, source(c, "b"))
	a.wants(t, 2, 1)
	ctx := t.Context()
	must(t, c.Del(ctx, "{quotient:f}:sizes").Err())
	a.goesOn(t)
	a.wants(t, 2, 1)
	before, _ := a.counts()
	must(t, c.Del(ctx, "{quotient:f}:deadlines").Err())
	a.goesOn(t)
	a.wants(t, 2, 1)
	b.wants(t, 2, 2)
	if n := min(a.least(before), b.least(0)); n < 2 {
		t.Errorf("it believed in %d", n)
	}
	must(t, c.ZAdd(ctx, "{quotient:f}:sizes", redis.Z{Score: math.Inf(1), Member: "nobody"}).Err())
	a.goesOn(t)
	a.wants(t, 2, 1)
	must(t, c.ZAdd(ctx, "{quotient:f}:deadlines", redis.Z{Score: 9e15, Member: "rogue"}).Err())
	a.goesOn(t)
	a.wants(t, 2, 1)
	must(t, c.Set(ctx, "{quotient:f}:deadlines", "x", 0).Err())
	a.fails(t)
	must(t, c.Del(ctx, "{quotient:f}:deadlines").Err())
	a.wants(t, 2, 1)
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
		c.AddHook(says{answer})
		s, err := source(c, "a").complete()
		must(t, err)
		if got, err := s.store("a").sync(t.Context(), 1, ""); err == nil ||
			!strings.Contains(err.Error(), "{quotient:f}:deadlines") {
			t.Errorf("%v: got %+v, %v", answer, got, err)
		}
	}
}
