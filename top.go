package quotient

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// KeyUse is a key with how much of its limit is used.
type KeyUse struct {
	Key string
	KeyStats
	Used float64 // of the rule that has the least left: 0 to 1
}

// Top returns the n hottest keys of this replica, the hottest first: those with the most callers waiting, then those that have used
// the most of a rule, then by name. It looks at every key that is remembered, each for itself, so that the limiter goes on
// meanwhile: about a third of a second for a million keys. An n below 1 is none.
func (l *Limiter) Top(n int) []KeyUse {
	if n < 1 {
		return nil
	}
	var t top
	for i := range l.shards {
		l.shards[i].hottest(&t, n)
	}
	slices.SortFunc(t, func(a, b KeyUse) int { return -a.compare(b) })
	return t
}

// hottest puts the shard's hottest keys into t, which keeps n.
func (s *shard) hottest(t *top, n int) {
	s.mu.Lock()
	keys := s.lru.Keys()
	s.mu.Unlock()
	for _, key := range keys {
		s.mu.Lock()
		g, ok := s.lru.Peek(key)
		if !ok {
			s.mu.Unlock()
			continue
		}
		now := s.tick(s.l.now())
		g.sync(s.setting)
		s.reclaim(g, now)
		u := KeyUse{Key: key, Used: g.use(now)}
		if g.more != nil {
			u.Waiting = g.more.queue.len
		}
		hot := len(*t) < n || u.compare((*t)[0]) > 0
		if hot {
			u.KeyStats = s.keyStats(g)
		}
		s.mu.Unlock()
		if hot {
			t.offer(u, n)
		}
	}
}

// use is how much of its fullest rule the gate has used.
func (g *gate) use(now time.Time) float64 {
	st, most := g.setting, 0.0
	for i := range st.rations {
		r := &st.rations[i]
		size := float64(r.burst) / milli
		if r.window != nil {
			size = float64(g.more.windows[i].quota)
		}
		left, _ := g.left(i, now)
		most = max(most, 1-left/max(size, 1))
	}
	if st.limit.InFlight > 0 {
		most = max(most, float64(g.used)/float64(max(st.slots, 1)))
	}
	return min(max(most, 0), 1)
}

// compare tells which is hotter: above 0 when u is.
func (u KeyUse) compare(v KeyUse) int {
	return cmp.Or(cmp.Compare(u.Waiting, v.Waiting), cmp.Compare(u.Used, v.Used), cmp.Compare(v.Key, u.Key))
}

// top is a heap of the hottest keys, the least hot of them at its root.
type top []KeyUse

func (t *top) offer(u KeyUse, n int) {
	if len(*t) < n {
		heap.Push(t, u)
		return
	}
	(*t)[0] = u
	heap.Fix(t, 0)
}

// Len is heap.Interface's.
func (t top) Len() int { return len(t) }

// Less is heap.Interface's.
func (t top) Less(i, j int) bool { return t[i].compare(t[j]) < 0 }

// Swap is heap.Interface's.
func (t top) Swap(i, j int) { t[i], t[j] = t[j], t[i] }

// Push is heap.Interface's.
func (t *top) Push(x any) { *t = append(*t, x.(KeyUse)) }

// Pop is heap.Interface's; a top never shrinks.
func (t *top) Pop() any { panic("quotient: a top never shrinks") }

// Quota is where a key stands under one rule, as header fields tell clients.
type Quota struct {
	Name, Unit string        // of the rule
	Limit      float64       // over the fleet: events per Window, or slots
	Window     time.Duration // the rate's Per; 0 for slots
	Left       float64       // whole events, or slots, that this replica has left; at least 0
	Reset      time.Duration // until they are full again, or the window ends; 0 for slots
}

// AppendQuotas appends to dst where the key stands under each rule of its limit, in order, the in-flight rule last. Like Check it takes
// nothing and counts nothing. It allocates nothing when dst has room, and appends nothing under Deny.
func (l *Limiter) AppendQuotas(dst []Quota, key string) []Quota {
	now := l.arrival() // slots alone need no clock
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now = s.tick(now)
	g := s.peek(key, now)
	s.reclaim(g, now)
	st := g.setting
	if st.limit.deny {
		return dst
	}
	for i := range st.rations {
		q := Quota{Name: st.rations[i].name, Unit: st.rations[i].unit, Limit: st.limit.Rates[i].Events, Window: st.limit.Rates[i].Per}
		q.Left, q.Reset = g.left(i, now)
		q.Left = max(0, float64(int64(q.Left)))
		if t := st.rations[i].turn; t != nil {
			if w := t.until(now, g.bucket(i), 0, 0); w > 0 {
				q.Left, q.Reset = 0, max(q.Reset, w)
			}
		}
		dst = append(dst, q)
	}
	if st.limit.InFlight > 0 {
		dst = append(dst, Quota{
			Name: inFlightRule, Limit: float64(st.limit.InFlight), Left: max(0, float64(st.slots)-float64(g.used)),
		})
	}
	return dst
}
