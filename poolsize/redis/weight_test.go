package redis

import (
	"context"
	_ "embed" // of an older script
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
	a, b, d := watch(t, heavy(c, "a", 3)), watch(t, heavy(c, "b", 0)), watch(t, heavy(c, "d", 2))
	a.Is(quotient.Pool{Replicas: 6, Ordinal: 1, Weight: 3})
	b.Is(quotient.Pool{Replicas: 6, Ordinal: 4})
	d.Is(quotient.Pool{Replicas: 6, Ordinal: 5, Weight: 2})
	a.Leave()
	b.Is(quotient.Pool{Replicas: 3, Ordinal: 1})
	d.Is(quotient.Pool{Replicas: 3, Ordinal: 2, Weight: 2})
	watch(t, heavy(c, "c", 4))
	b.Is(quotient.Pool{Replicas: 7, Ordinal: 1})
	d.Is(quotient.Pool{Replicas: 7, Ordinal: 6, Weight: 2})
	b.Leave()
	d.Leave()
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
	for range 100 { // each looks after one entry of two, by chance
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
