package redis

import (
	"context"
	_ "embed" // of an older script
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/redis/go-redis/v9"
)

// agrees and differs are answers of a store that knows the processor.
func agrees(living, rank int) answer     { return answer{true, true, living, living, rank} }
func differs(largest, living int) answer { return answer{true, false, largest, living, -1} }

// missed stands for a sync that has failed.
var missed answer

// fresh is an answer of a store that does not know the processor.
func fresh(a answer) answer { a.known = false; return a }

// What is for use, and when, is held by TestPropertyConsensus.
func TestMember(t *testing.T) {
	tested.Want(t, "the first report of a weight of three", newMember(10*time.Second, 3).report, 3)
	type row struct {
		at      int // seconds
		a       answer
		size    int // that counts
		ordinal int
		report  int // next time
	}
	for _, c := range []struct {
		name string
		rows []row
	}{
		{"alone", []row{
			{0, fresh(agrees(1, 0)), 1, 1, 1}, {1, agrees(1, 0), 1, 1, 1}}},
		{"joins", []row{
			{0, fresh(differs(5, 6)), 6, 0, 6}, {1, differs(6, 6), 6, 0, 6}, {2, agrees(6, 3), 6, 4, 6}}},
		{"joins where a larger size is reported", []row{
			{0, fresh(differs(9, 4)), 9, 0, 4}, {1, differs(4, 4), 9, 0, 4}, {2, agrees(4, 0), 4, 1, 4}}},
		{"sees another join", []row{
			{0, fresh(differs(3, 3)), 3, 0, 3}, {1, agrees(3, 2), 3, 3, 3}, {2, differs(3, 4), 4, 0, 4},
			{3, agrees(4, 2), 4, 3, 4}}},
		{"three to one", []row{
			{0, fresh(differs(3, 3)), 3, 0, 3}, {1, agrees(3, 0), 3, 1, 3}, {12, differs(3, 1), 3, 0, 1},
			{13, agrees(1, 0), 1, 1, 1}}},
		{"what it had counts for one expiry of a disagreement", []row{
			{0, fresh(agrees(1, 0)), 1, 1, 1}, {1, agrees(9, 0), 9, 1, 9}, {2, differs(8, 7), 9, 0, 7},
			{11, differs(8, 7), 9, 0, 7}, {12, differs(8, 7), 8, 0, 7},
			{13, differs(7, 8), 8, 0, 8}, {14, differs(7, 6), 7, 0, 6}}},
		{"a new disagreement keeps it anew", []row{
			{0, fresh(agrees(1, 0)), 1, 1, 1}, {1, differs(9, 8), 9, 0, 8}, {2, agrees(8, 1), 8, 2, 8},
			{20, differs(8, 7), 8, 0, 7}, {29, differs(7, 7), 8, 0, 7}, {30, agrees(7, 1), 7, 2, 7}}},
		{"a store that has forgotten all is not believed for one expiry", []row{
			{0, fresh(agrees(1, 0)), 1, 1, 1}, {1, agrees(5, 1), 5, 2, 5}, {2, fresh(differs(5, 1)), 5, 0, 5},
			{3, differs(5, 1), 5, 0, 5},
			{11, differs(5, 1), 5, 0, 5}, {12, differs(5, 1), 5, 0, 1}, {13, agrees(1, 0), 1, 1, 1}}},
		{"all are back before", []row{
			{0, fresh(agrees(1, 0)), 1, 1, 1}, {1, agrees(5, 1), 5, 2, 5}, {2, fresh(differs(5, 1)), 5, 0, 5},
			{3, differs(5, 5), 5, 0, 5}, {4, agrees(5, 1), 5, 2, 5}}},
		{"forgotten twice", []row{
			{0, fresh(agrees(1, 0)), 1, 1, 1}, {1, agrees(5, 1), 5, 2, 5}, {2, fresh(differs(5, 1)), 5, 0, 5},
			{9, fresh(differs(5, 1)), 5, 0, 5},
			{18, differs(5, 1), 5, 0, 5}, {19, differs(5, 1), 5, 0, 1}, {20, agrees(1, 0), 1, 1, 1}}},
		{"more than before while the store has forgotten", []row{
			{0, fresh(agrees(1, 0)), 1, 1, 1}, {1, agrees(5, 1), 5, 2, 5}, {2, fresh(differs(7, 1)), 7, 0, 7},
			{3, agrees(8, 1), 8, 2, 8}}},
		{"a missed sync may hide that the store has forgotten all", []row{
			{0, fresh(differs(5, 5)), 5, 0, 5}, {1, agrees(5, 1), 5, 2, 5}, {2, missed, 5, 0, 5},
			{3, agrees(1, 0), 5, 0, 1}, {11, agrees(1, 0), 5, 0, 1}, {12, agrees(1, 0), 1, 1, 1}}},
		{"each missed sync may", []row{
			{0, fresh(agrees(1, 0)), 1, 1, 1}, {1, agrees(5, 1), 5, 2, 5}, {2, missed, 5, 0, 5},
			{9, missed, 5, 0, 5}, {18, agrees(1, 0), 5, 0, 1}, {19, agrees(1, 0), 1, 1, 1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, start := newMember(10*time.Second, 1), time.Now()
			tested.Want(t, "the first report", m.report, 1)
			for i, r := range c.rows {
				now := start.Add(time.Duration(r.at) * time.Second)
				if r.a == missed {
					m.missed(now)
					continue
				}
				p, usable := m.learn(r.a, now)
				if want := (quotient.Pool{Replicas: r.size, Ordinal: r.ordinal}); p != want {
					t.Errorf("row %d, at %d s: got %+v, want %+v", i, r.at, p, want)
				}
				if usable != (i > 0) || m.report != r.report {
					t.Errorf("row %d: usable %v, next report %d, want %d", i, usable, m.report, r.report)
				}
			}
		})
	}
}

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
	old.patience, fresh.patience = time.Minute, time.Minute
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
