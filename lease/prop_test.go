package lease

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// twins are a Table and its model, which do the same.
type twins struct {
	*rapid.T
	table *Table
	model *model
	now   time.Time
}

// TestPropertyTable compares a Table with a model that shares no code with it, step by step.
func TestPropertyTable(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &twins{T: rt, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
		c := w.config()
		k := Tokens{Next: w.id("next", 20), End: EndOfTokens}
		if w.rarely("block") {
			k.End = k.Next + w.id("size", 9)
		}
		var err error
		if w.table, err = NewTable(c, k, w.now); err != nil {
			rt.Fatal(err)
		}
		w.model = newModel(c, k, w.now)
		for id := range uint64(4) {
			w.same("ok", w.table.AddPeer(id+1, time.Minute, w.now), w.model.addPeer(id+1, time.Minute, w.now))
		}
		steps := map[string]func(*rapid.T){
			"": w.compare, "acquire": w.acquire, "acquire2": w.acquire, "acquire3": w.acquire,
			"release": w.release,
			"peer":    w.peer, "heartbeat": w.heartbeat, "heartbeat2": w.heartbeat, "remove": w.remove,
			"restore": w.restore, "break": w.breakLock,
			"configure": w.configure, "tokens": w.tokens, "time": w.time, "ask": w.ask, "expiry": w.expiry,
		}
		for range 3 { // longer histories
			rt.Repeat(steps)
		}
	})
}

func (w *twins) id(label string, most uint64) uint64 {
	return rapid.Uint64Range(0, most).Draw(w.T, label)
}

// rarely is true in one case of eight.
func (w *twins) rarely(label string) bool { return w.id(label, 7) == 7 }

func (w *twins) peerID() uint64 { return 1 + w.id("peer", 5) }

func (w *twins) name() string {
	return rapid.SampledFrom([]string{"A", "B", "C"}).Draw(w.T, "semaphore")
}

func (w *twins) count() int64 {
	return rapid.SampledFrom([]int64{1, 2, 1, 2, 3, 1, 3, 4, 1, 5, 0, -1, 6}).Draw(w.T, "count")
}

func (w *twins) duration(most time.Duration) time.Duration {
	return time.Second * time.Duration(w.id("seconds", uint64(most/time.Second)))
}

func (w *twins) config() Config {
	c := Config{Semaphores: map[string]Semaphore{}}
	for _, name := range []string{"A", "B", "C"} {
		if !w.rarely("missing") {
			c.Semaphores[name] = Semaphore{Max: 1 + int64(w.id("max", 4)), Level: int64(w.id("level", 2))}
		}
	}
	c.KeepIdle, c.MaxPeers = w.duration(10*time.Second), 4+int(w.id("peers", 2))
	if w.rarely("with grace") {
		c.Grace = w.duration(10 * time.Second)
	}
	return c
}

// same fails unless the Table's outcome is the model's.
func (w *twins) same(got any, err error, want string) {
	w.Helper()
	text := fmt.Sprint(got)
	if err != nil {
		text = err.Error()
	}
	if text != want {
		w.Fatalf("got %q, want %q", text, want)
	}
}

func (w *twins) acquire(*rapid.T) {
	id, name, count := w.peerID(), w.name(), w.count()
	token, err := w.table.Acquire(id, name, count, w.now)
	w.same(token, err, w.model.acquire(id, name, count, w.now))
}

func (w *twins) release(*rapid.T) {
	id, name := w.peerID(), w.name()
	if all := slices.Concat(w.model.held, w.model.queue); len(all) > 0 && !w.rarely("any") {
		l := rapid.SampledFrom(all).Draw(w.T, "lock")
		id, name = l.peer, l.sem
	}
	w.same("ok", w.table.Release(id, name, w.now), w.model.release(id, name, w.now))
}

func (w *twins) peer(*rapid.T) {
	id, d := w.peerID(), w.duration(20*time.Second)
	w.same("ok", w.table.AddPeer(id, d, w.now), w.model.addPeer(id, d, w.now))
}

func (w *twins) heartbeat(*rapid.T) {
	id, d := w.peerID(), w.duration(20*time.Second)
	broken, err := w.table.Heartbeat(id, d, w.now)
	w.same(broken, err, w.model.heartbeat(id, d, w.now))
}

func (w *twins) remove(*rapid.T) {
	if rapid.Bool().Draw(w.T, "sweep") {
		w.same(w.table.RemoveExpired(w.now), nil, w.model.sweep(w.now))
		return
	}
	id := w.peerID()
	w.same(w.table.RemovePeer(id, w.now), nil, w.model.removePeer(id, w.now))
}

// restore is often of what is held.
func (w *twins) restore(*rapid.T) {
	id, d := w.peerID(), w.duration(20*time.Second)
	var locks []Restored
	if rapid.Bool().Draw(w.T, "identical") {
		for _, l := range w.model.held {
			if l.peer == id {
				locks = append(locks, Restored{l.sem, l.count, l.token * w.id("with token", 1)})
			}
		}
	}
	for range w.id("others", 2) {
		r := Restored{Semaphore: w.name(), Count: w.count()}
		switch w.id("token", 5) {
		case 0:
			r.Token = w.id("old", 40)
		case 1:
			r.Token = w.model.next + w.id("new", 3)
		case 2:
			r.Token = restorable - 2 + w.id("border", 3)
		}
		locks = append(locks, r)
	}
	beyond, err := w.table.Restore(id, d, locks, w.now)
	w.same(beyond, err, w.model.restore(id, d, locks, w.now))
}

func (w *twins) breakLock(*rapid.T) {
	id, name, token := w.peerID(), w.name(), w.id("any token", 30)
	if i := lockIn(w.model.held, id, name); i >= 0 && !w.rarely("wrong") {
		token = w.model.held[i].token
	}
	_, err := w.table.Break(id, name, token, w.now)
	w.same("ok", err, w.model.breakLock(id, name, token, w.now))
}

func (w *twins) configure(*rapid.T) {
	c := w.config()
	for name, s := range c.Semaphores { // most stay as they are
		if old := w.model.sem(name); old != nil && !w.rarely("other") {
			c.Semaphores[name] = Semaphore{s.Max, old.level}
		}
	}
	if err := w.table.Configure(c, w.now); err != nil {
		w.Fatal(err)
	}
	w.model.advance(w.now)
	w.model.configure(c, w.now)
}

func (w *twins) tokens(*rapid.T) {
	k := Tokens{Next: w.id("next", 60), End: EndOfTokens}
	if rapid.Bool().Draw(w.T, "with end") {
		k.End = k.Next + w.id("block", 9)
	}
	w.table.AddTokens(k, w.now)
	w.model.addTokens(k, w.now)
}

func (w *twins) time(*rapid.T) {
	w.now = w.now.Add(time.Second * time.Duration(w.id("seconds", 12)))
	w.then()
}

// then is the first step at a new instant: each does by itself what is due.
func (w *twins) then() {
	steps := []func(*rapid.T){
		w.acquire, w.release, w.peer, w.heartbeat, w.remove, w.restore, w.breakLock, w.configure,
		w.tokens, w.ask, func(*rapid.T) { w.table.Advance(w.now); w.model.advance(w.now) },
	}
	rapid.SampledFrom(steps).Draw(w.T, "then")(w.T)
}

// expiry goes to the instant at which something is due, or to just before it.
func (w *twins) expiry(*rapid.T) {
	at := w.model.nextDue()
	if at.IsZero() || at.Before(w.now) {
		return
	}
	if before := at.Add(-1); before.After(w.now) && rapid.Bool().Draw(w.T, "before") {
		at = before
	}
	w.now = at
	w.then()
}

func (w *twins) ask(*rapid.T) {
	id, name, count := w.peerID(), w.name(), w.count()
	if all := slices.Concat(w.model.held, w.model.queue); len(all) > 0 && w.id("some", 3) == 0 {
		l := rapid.SampledFrom(all).Draw(w.T, "lock")
		id, name = l.peer, l.sem
	}
	switch w.id("what", 2) {
	case 0:
		is, err := w.table.Acquired(id, w.now)
		w.same(is, err, w.model.acquired(id, w.now))
	case 1:
		token, err := w.table.State(id, name, count, w.now)
		w.same(token, err, w.model.state(id, name, count, w.now))
	case 2:
		left, err := w.table.Remainder(name, w.now)
		w.same(left, err, w.model.remainder(name, w.now))
	}
}

// compare looks at all that can be seen.
func (w *twins) compare(*rapid.T) {
	m := w.model
	if next := w.table.Next(); !next.Equal(m.nextDue()) {
		w.Fatalf("next is %v, want %v", next, m.nextDue())
	}
	if !w.table.grace.Equal(m.grace) {
		w.Fatalf("grace ends %v, want %v", w.table.grace, m.grace)
	}
	if left := m.end - m.next; w.table.TokensLeft() != left && m.end >= m.next {
		w.Fatalf("%d tokens are left, want %d", w.table.TokensLeft(), left)
	}
	w.compareChanged()
	if m.wentBack || m.overFilled {
		w.Fatalf("a token went back: %v; more was granted than there is: %v", m.wentBack, m.overFilled)
	}
	m.advance(w.now) // reads also do what is due
	w.comparePeers()
	w.compareStats()
	w.compareChanged()
}

func (w *twins) compareChanged() {
	got := slices.Compact(slices.Sorted(slices.Values(w.table.Changed())))
	if want := slices.Sorted(maps.Keys(w.model.changed)); !slices.Equal(got, want) {
		w.Fatalf("changed are %v, want %v", got, want)
	}
	clear(w.model.changed)
}

func (w *twins) comparePeers() {
	ids := slices.Sorted(slices.Values(w.table.Peers(w.now)))
	var want []uint64
	for _, p := range w.model.peers {
		want = append(want, p.id)
	}
	slices.Sort(want)
	if !slices.Equal(ids, want) {
		w.Fatalf("peers are %v, want %v", ids, want)
	}
}

func (w *twins) compareStats() {
	stats := w.table.Stats(w.now)
	slices.SortFunc(stats, func(a, b SemaphoreStats) int { return strings.Compare(a.Name, b.Name) })
	if len(stats) != len(w.model.sems) {
		w.Fatalf("there are %d semaphores, want %d", len(stats), len(w.model.sems))
	}
	for i, got := range stats {
		if want := w.model.stats(i, w.now); fmt.Sprint(flat(got)) != want {
			w.Fatalf("statistics are\n%v, want\n%v", flat(got), want)
		}
		held, pending, _ := w.table.Locks(got.Name, 100, w.now)
		for _, list := range []struct {
			got  []Lock
			want []modelLock
		}{{held, w.model.held}, {pending, w.model.queue}} {
			if got, want := showLocks(list.got), w.model.show(list.want, got.Name); got != want {
				w.Fatalf("locks are %v, want %v", got, want)
			}
		}
	}
}

func flat(s SemaphoreStats) []any {
	n := s.Totals
	return []any{
		s.Name, s.Max, s.Level, s.Gone, s.Acquired, s.Pending, s.Holders, s.Waiters, s.LongestPending,
		n.Granted, n.Released, n.Expired, n.Broken, n.Restored, n.Beyond, n.Wait.Count, n.Hold.Count,
		fmt.Sprintf("%.3f %.3f", n.Wait.Sum, n.Hold.Sum),
	}
}

func (m *model) stats(i int, now time.Time) string {
	s := m.sems[i]
	held, holders := countOf(m.held, s.name)
	pending, waiters := countOf(m.queue, s.name)
	var longest time.Duration
	for _, l := range m.queue {
		if l.sem == s.name {
			longest = max(longest, now.Sub(l.since))
		}
	}
	return fmt.Sprint([]any{
		s.name, s.max, s.level, s.gone, held, pending, holders, waiters, longest, s.granted, s.released,
		s.expired, s.broken, s.restored, s.beyond, s.waitedFor, s.heldFor,
		fmt.Sprintf("%.3f %.3f", s.waited.Seconds(), s.heldTime.Seconds()),
	})
}

func showLocks(locks []Lock) string {
	all := []string{}
	for _, l := range locks {
		all = append(all, fmt.Sprint(l.Peer, l.Count, l.Token, l.Since, l.Expires))
	}
	return strings.Join(all, "; ")
}

func (m *model) show(locks []modelLock, name string) string {
	all := []string{}
	for _, l := range locks {
		if l.sem == name {
			all = append(all, fmt.Sprint(l.peer, l.count, l.token, l.since, m.peer(l.peer).expires))
		}
	}
	return strings.Join(all, "; ")
}
