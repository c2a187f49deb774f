package redis

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/internal/tested"
)

// model is the store in plain Go: what the script must do.
type model struct {
	deadlines, sizes  map[string]int64
	weights           map[string]int // of those above 1
	entries           map[string]int // of each processor: which one of all that were ever made
	made              int
	last, began, till int64 // of the silence
}

func newModel() model {
	return model{deadlines: map[string]int64{}, sizes: map[string]int64{}, weights: map[string]int{},
		entries: map[string]int{}}
}

// counted is as how many processors those of the names count.
func (m *model) counted(names []string) (n int) {
	for _, p := range names {
		n += max(1, m.weights[p])
	}
	return n
}

func (m *model) sync(now int64, me string, weight int, size int64, expiry time.Duration) answer {
	if e := expiry.Milliseconds(); m.last > 0 && m.last < now-e/2 &&
		m.last >= now-e-longestOutage.Milliseconds() {
		m.began, m.till = m.last, now+e
	}
	m.last = now
	alive := now
	if now < m.till && m.till <= now+longestExpiry.Milliseconds() {
		alive = min(now, m.began)
	}
	for p, d := range m.deadlines {
		if d < alive || d > now+longestExpiry.Milliseconds() {
			m.drop(p)
		}
	}
	deadline, known := m.deadlines[me]
	known = known && deadline >= now
	if !known {
		m.made++
		m.entries[me] = m.made
	}
	m.deadlines[me], m.sizes[me] = now+expiry.Milliseconds(), size
	if weight > 1 {
		m.weights[me] = weight
	}
	sizes, names := slices.Sorted(maps.Values(m.sizes)), slices.Sorted(maps.Keys(m.deadlines))
	a := answer{known: known, largest: int(sizes[len(sizes)-1]), living: m.counted(names), rank: -1}
	if a.agreed = sizes[0] == int64(a.living) && a.largest == a.living; a.agreed {
		a.rank = m.counted(names[:slices.Index(names, me)])
	}
	return a
}

func (m *model) drop(p string) {
	delete(m.deadlines, p)
	delete(m.sizes, p)
	delete(m.weights, p)
	delete(m.entries, p)
}

func (m *model) leave(p string) {
	if m.drop(p); len(m.deadlines) == 0 {
		m.wipe()
	}
}

func (m *model) wipe() {
	clear(m.deadlines)
	clear(m.sizes)
	clear(m.weights)
	clear(m.entries)
	m.last, m.began, m.till = 0, 0, 0
}

// processor is one of the property's fleet.
type processor struct {
	*store
	member
	last   time.Time       // its last sync that the store has seen, by its own clock
	entry  int             // that it learned of last; 0: none
	back   time.Time       // when, in use, it first learned of a store that had forgotten it
	others map[string]bool // whom the store knew when it last answered, but for an expiry after back
}

// world is a fleet, the model and the script on miniredis, which must always say the same.
type world struct {
	t     *rapid.T
	model model
	mini  *miniredis.Miniredis
	new   func(id string, weight int) *store
	now   time.Time     // of the processors
	skew  time.Duration // of the store's clock
	jumps bool          // the store's clock has jumped
	live  map[string]*processor
	gone  int // processors, so far
}

const modelExpiry = 10 * time.Second

func (w *world) pick() *processor {
	names := slices.Sorted(maps.Keys(w.live))
	if len(names) == 0 {
		return nil
	}
	return w.live[rapid.SampledFrom(names).Draw(w.t, "processor")]
}

func (w *world) join() {
	if len(w.live) < 8 {
		// names that begin alike, and differ in what stands around the slash before the token
		id := rapid.SampledFrom([]string{"a", "a\x00", "a/", "a/b", "a0", "b"}).Draw(w.t, "id") + fmt.Sprint(w.gone)
		weight := max(1, rapid.IntRange(-2, 4).Draw(w.t, "weight"))
		w.live[id] = &processor{store: w.new(id, weight), member: newMember(modelExpiry, weight)}
		w.gone++
	}
}

func (w *world) wipe() { w.model.wipe(); w.mini.FlushAll() }

func (w *world) tick(d time.Duration) {
	w.now = w.now.Add(d)
	w.mini.SetTime(w.now.Add(w.skew))
}

// sync lets one processor sync; its answer may be lost on the way, which is then an error for it.
func (w *world) sync(p *processor, heard bool) {
	w.tick(time.Millisecond)
	report := p.report
	want := w.model.sync(w.now.Add(w.skew).UnixMilli(), p.processor, p.store.weight, int64(report),
		p.expiry())
	got, err := p.sync(context.Background(), report, "")
	if err != nil || got != want {
		w.t.Fatalf("the script answers %+v, %v; the model %+v", got, err, want)
	}
	if p.last = w.now; heard {
		w.learn(p, got)
	} else {
		p.missed(w.now)
	}
}

func (p *processor) expiry() time.Duration { return p.store.expiry }

// learn checks what is promised when a processor takes an answer in.
func (w *world) learn(p *processor, a answer) {
	used, before := p.used, p.entry
	pool, usable := p.learn(a, w.now)
	if p.entry = w.model.entries[p.processor]; used && p.entry != before {
		p.back = w.now
	}
	if usable && !used && p.entry != before {
		w.t.Fatalf("%s begins to use %+v, and has not heard before that the fleet knows of it",
			p.processor, pool)
	}
	if pool.Replicas < a.living || max(1, pool.Weight) != p.store.weight || pool.Ordinal < 0 ||
		pool.Ordinal+p.store.weight-1 > pool.Replicas {
		w.t.Fatalf("%s counts %+v where %d live", p.processor, pool, a.living)
	}
	for id, q := range w.live {
		if _, living := w.model.deadlines[id]; a.agreed && living && q.heard && q.size < a.living {
			w.t.Fatalf("all agree on %d, and %s uses %d", a.living, id, q.size)
		}
	}
	if usable && !w.jumps {
		if n := w.alive(p); pool.Replicas < n {
			w.t.Fatalf("%s counts %d, and %d that it knew live", p.processor, pool.Replicas, n)
		}
	}
	if w.now.Sub(p.back) >= modelExpiry {
		p.others = map[string]bool{}
		for id := range w.model.deadlines {
			p.others[id] = true
		}
	}
}

// alive counts those that p knew by their weights, and that have not been silent for an expiry, whatever the
// store knows.
func (w *world) alive(p *processor) (n int) {
	for id := range p.others {
		if q := w.live[id]; q != nil && w.now.Sub(q.last) < modelExpiry {
			n += q.store.weight
		}
	}
	return n
}

// settles checks that a fleet that is left alone agrees within four rounds after an expiry. In that expiry
// those that crashed are dropped, and nothing that was lost counts any more.
func (w *world) settles() {
	rounds := 0
	for end := w.now.Add(modelExpiry + time.Second); w.now.Before(end); rounds++ {
		for _, id := range slices.Sorted(maps.Keys(w.live)) {
			w.sync(w.live[id], true)
		}
		w.tick(time.Second)
	}
	for range 3 {
		for _, id := range slices.Sorted(maps.Keys(w.live)) {
			w.sync(w.live[id], true)
		}
	}
	ranked := slices.SortedFunc(maps.Values(w.live),
		func(a, b *processor) int { return cmp.Compare(a.processor, b.processor) })
	total, before := 0, 0
	for _, p := range ranked {
		total += p.store.weight
	}
	for _, p := range ranked {
		w.tick(time.Millisecond)
		a := w.model.sync(w.now.Add(w.skew).UnixMilli(), p.processor, p.store.weight, int64(p.report),
			p.expiry())
		if pool, _ := p.learn(a, w.now); pool.Replicas != total || pool.Ordinal != before+1 {
			w.t.Fatalf("after %d rounds %s counts %+v, want %d of %d", rounds, p.processor, pool,
				before+1, total)
		}
		before += p.store.weight
	}
}

// TestPropertyConsensus runs random fleets with random faults, on the script and on a model of it.
func TestPropertyConsensus(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, consensus) }) // a clock that no busy machine delays
}

func consensus(t *rapid.T) {
	mini := newMini(t)
	client := pipeClient(t, mini)
	s := Source{Client: client, Fleet: "f", Expiry: modelExpiry}
	w := &world{t: t, mini: mini, live: map[string]*processor{}, now: time.Now(), model: newModel(),
		new: func(id string, weight int) *store {
			heavy := Source{Client: s.Client, Fleet: s.Fleet, Expiry: s.Expiry, Weight: weight}
			c, err := heavy.complete()
			tested.Must(t, err)
			return c.store(id)
		}}
	w.tick(0)
	w.join()
	sync := func(heard bool) func(*rapid.T) {
		return func(*rapid.T) {
			if p := w.pick(); p != nil {
				w.sync(p, heard)
			}
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"join":       func(*rapid.T) { w.join() },
		"sync":       sync(true),
		"sync again": sync(true), // more often than the rest
		"all sync": func(*rapid.T) {
			for _, id := range slices.Sorted(maps.Keys(w.live)) {
				w.sync(w.live[id], true)
			}
		},
		"answer lost": sync(false),
		"what was given up arrives late, or claims to come from the future": func(t *rapid.T) {
			if p := w.pick(); p != nil {
				w.sync(p, true)
				word, size := *p.store, rapid.SampledFrom([]int{leaving, p.report}).Draw(t, "says")
				if off := rapid.IntRange(3000, 30_000).Draw(t, "ms"); rapid.Bool().Draw(t, "late") {
					w.tick(time.Duration(off) * time.Millisecond)
				} else {
					word.now += int64(off)
				}
				if v, err := word.run(context.Background(), size, ""); err != nil || len(v) != 1 {
					t.Fatalf("the store answers %v, %v", v, err)
				}
			}
		},
		"leave": func(*rapid.T) {
			if p := w.pick(); p != nil && len(w.live) > 1 {
				p.leave(context.Background(), "")
				w.model.leave(p.processor)
				delete(w.live, p.processor)
			}
		},
		"crash": func(*rapid.T) {
			if p := w.pick(); p != nil && len(w.live) > 1 {
				delete(w.live, p.processor)
			}
		},
		"time": func(t *rapid.T) {
			w.tick(time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond)
		},
		"stall": func(*rapid.T) { w.tick(modelExpiry + time.Second) },
		"wipe":  func(*rapid.T) { w.wipe() },
		"wipe, and the answer that would say so is lost": func(*rapid.T) {
			if p := w.pick(); p != nil {
				w.wipe()
				for _, heard := range []bool{false, true, true} {
					w.sync(p, heard)
				}
			}
		},
		"the store's clock jumps": func(t *rapid.T) {
			if rapid.IntRange(0, 9).Draw(t, "one in ten") == 0 {
				w.skew += time.Duration(rapid.IntRange(-100_000, 100_000).Draw(t, "by")) * time.Second
				w.jumps = true
				w.tick(0)
			}
		},
	})
	if w.jumps { // once the store has seen it, the dead may count for the longest expiry
		for _, id := range slices.Sorted(maps.Keys(w.live)) {
			w.sync(w.live[id], true)
		}
		w.tick(longestExpiry + time.Second)
	}
	w.settles()
}
