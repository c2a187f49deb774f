package redis

import (
	"context"
	_ "embed" // of an older script
	"fmt"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/redis/go-redis/v9"
)

// heavy is a source that counts as so many.
func heavy(c redis.UniversalClient, id string, weight int) *Source {
	s := source(c, id)
	s.Weight = weight
	return s
}

// Processors of weights 3, 1 and 2 agree on six, each with the first of its own ordinals.
func TestWeights(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := clientOf(t, srv, nil)
	wants := func(w *watched, p quotient.Pool) {
		t.Helper()
		w.until(t, fmt.Sprint(p), func() bool { return w.last() == p })
	}
	a, b, d := watch(t, heavy(c, "a", 3)), watch(t, heavy(c, "b", 0)), watch(t, heavy(c, "d", 2))
	wants(a, quotient.Pool{Replicas: 6, Ordinal: 1, Weight: 3})
	wants(b, quotient.Pool{Replicas: 6, Ordinal: 4})
	wants(d, quotient.Pool{Replicas: 6, Ordinal: 5, Weight: 2})
	a.leave(t)
	wants(b, quotient.Pool{Replicas: 3, Ordinal: 1})
	wants(d, quotient.Pool{Replicas: 3, Ordinal: 2, Weight: 2})
	watch(t, heavy(c, "c", 4))
	wants(b, quotient.Pool{Replicas: 7, Ordinal: 1})
	wants(d, quotient.Pool{Replicas: 7, Ordinal: 6, Weight: 2})
	b.leave(t)
	d.leave(t)
}

// The order of ordinals is that of the processors' names also where one name begins with another.
func TestWeightsOfNamesThatBeginAlike(t *testing.T) {
	t.Parallel()
	c := clientOf(t, start(t), nil)
	names := []string{"a", "a\x00", "a/", "a/b", "a0", "b"}
	s, err := source(c, "any").complete()
	must(t, err)
	s.Expiry = time.Minute
	for range 3 {
		before := 0
		for i, name := range names {
			st := s.store(name)
			st.weight = i + 1
			a, err := st.sync(t.Context(), 21, "")
			must(t, err)
			if a.agreed && (a.living != 21 || a.rank != before) {
				t.Errorf("%q: %+v, want %d before it", name, a, before)
			}
			if before += i + 1; name == "b" && !a.agreed {
				t.Errorf("they do not agree: %+v", a)
			}
		}
	}
}

//go:embed testdata/before-weights.lua
var before string

// older is a store's data as a processor of a version without weights reaches it.
type older struct{ *store }

func (o older) sync(t *testing.T, size int) answer {
	t.Helper()
	for range 2 {
		v, err := redis.NewScript(before).Run(t.Context(), o.client,
			[]string{o.deadlines, o.sizes, o.silence, o.left}, o.processor, size,
			o.expiry.Milliseconds(), longestExpiry.Milliseconds(), mostProcessors, silence.Milliseconds(), "",
			o.keep.Milliseconds(),
			longestOutage.Milliseconds(), o.now, o.patience.Milliseconds()).Int64Slice()
		must(t, err)
		o.now = v[len(v)-1]
		if len(v) == 6 {
			return answer{v[0] == 1, v[1] == 1, int(v[2]), int(v[3]), int(v[4])}
		}
	}
	t.Fatal("no answer")
	return answer{}
}

// Beside processors of a version without weights, whose script knows nothing of them, all use their sum. The
// weight of a dropped processor goes too.
func TestVersionWithoutWeights(t *testing.T) {
	t.Parallel()
	c := clientOf(t, start(t), nil)
	s, err := heavy(c, "new", 3).complete()
	must(t, err)
	s.Expiry = 2 * time.Second
	old, fresh := older{s.store("old")}, s.store("new")
	was, is := newMember(s.Expiry, 1), newMember(s.Expiry, 3)
	for i := range 6 {
		a, err := fresh.sync(t.Context(), is.report, "")
		must(t, err)
		p, _ := is.learn(a, time.Now())
		b := old.sync(t, was.report)
		q, _ := was.learn(b, time.Now())
		if i > 1 && (p != quotient.Pool{Replicas: 4, Weight: 3} || q != quotient.Pool{Replicas: 4}) {
			t.Errorf("round %d: %+v and %+v count", i, p, q)
		}
	}
	dies := s.store("dies")
	dies.expiry = time.Millisecond
	if _, err := dies.sync(t.Context(), 7, ""); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Millisecond) // by the store's clock
	old.sync(t, was.report)          // drops it, and not its weight
	old.leave(context.Background(), "")
	for range 4 { // each looks after one entry of two
		a, err := fresh.sync(t.Context(), 3, "")
		must(t, err)
		if a.living == 3 && a.agreed && a.rank == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	entries, err := c.ZRange(t.Context(), fresh.weights, 0, -1).Result()
	t.Errorf("the dead one counts still: %q, %v", entries, err)
}

// Weights that were lost come back with the next syncs, and no processor believes in fewer meanwhile. A
// field that is not a weight, or not of a processor, goes.
func TestSpoiltWeights(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := clientOf(t, srv, nil)
	a, b := watch(t, heavy(c, "a", 3)), watch(t, heavy(c, "b", 2))
	want := quotient.Pool{Replicas: 5, Ordinal: 4, Weight: 2}
	agrees := func() { b.until(t, "all agree", func() bool { return b.last() == want }) }
	agrees()
	before, _ := a.counts()
	must(t, c.Del(t.Context(), "{quotient:f}:weights").Err())
	b.goesOn(t)
	agrees()
	if n := a.least(before); n < 5 {
		t.Errorf("it believed in %d", n)
	}
	for _, e := range []string{"9999rogue", "0004rogue", "abcd", "x", ""} {
		must(t, c.ZAdd(t.Context(), "{quotient:f}:weights", redis.Z{Member: e}).Err())
		b.goesOn(t)
		agrees()
	}
}
