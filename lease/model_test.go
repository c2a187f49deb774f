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

// model is a Table again, without haste: lists that are searched from end to end. It uses nothing of Table.
// Its steps return what is expected, as text.
type model struct {
	sems       []modelSem // by name
	peers      []modelPeer
	held       []modelLock // in the order of granting
	queue      []modelLock // in the order of asking
	next, end  uint64      // tokens
	grace      time.Time
	keep       time.Duration
	most       int // peers
	changed    map[uint64]bool
	lastToken  uint64
	wentBack   bool // a token was not above the last one
	overFilled bool // more was granted than there is
}

type modelSem struct {
	name                                 string
	max, level                           int64
	gone                                 bool
	granted, released, expired, broken   uint64
	restored, beyond, waitedFor, heldFor uint64 // the last two count times
	waited, heldTime                     time.Duration
}

type modelPeer struct {
	id      uint64
	expires time.Time
	broken  []string
	refused string // semaphore that was dropped from
	wanted  int64  // and how much of it
}

type modelLock struct {
	peer  uint64
	sem   string
	count int64
	token uint64
	since time.Time
}

func newModel(c Config, k Tokens, now time.Time) *model {
	m := &model{next: max(k.Next, 1), end: k.End, changed: map[uint64]bool{}}
	if c.Grace > 0 {
		m.grace = now.Add(c.Grace)
	}
	m.configure(c, now)
	return m
}

func (m *model) sem(name string) *modelSem {
	for i := range m.sems {
		if m.sems[i].name == name {
			return &m.sems[i]
		}
	}
	return nil
}

func (m *model) peer(id uint64) *modelPeer {
	for i := range m.peers {
		if m.peers[i].id == id {
			return &m.peers[i]
		}
	}
	return nil
}

// lock finds a lock of a peer in a list; -1 if there is none.
func lockIn(list []modelLock, id uint64, name string) int {
	return slices.IndexFunc(list, func(l modelLock) bool { return l.peer == id && l.sem == name })
}

func countOf(list []modelLock, name string) (sum int64, n int) {
	for _, l := range list {
		if l.sem == name {
			sum, n = sum+l.count, n+1
		}
	}
	return sum, n
}

func countOfPeer(list []modelLock, id uint64) (n int) {
	for _, l := range list {
		if l.peer == id {
			n++
		}
	}
	return n
}

// serve grants from the head of one semaphore's queue while it fits.
func (m *model) serve(name string, now time.Time) {
	s := m.sem(name)
	for s != nil && m.grace.IsZero() && m.next < m.end {
		i := slices.IndexFunc(m.queue, func(l modelLock) bool { return l.sem == name })
		if sum, _ := countOf(m.held, name); i < 0 || sum+m.queue[i].count > s.max {
			return
		}
		l := m.queue[i]
		m.queue = slices.Delete(m.queue, i, i+1)
		m.grant(l, now)
		m.changed[l.peer] = true
	}
}

func (m *model) grant(l modelLock, now time.Time) {
	s := m.sem(l.sem)
	s.granted++
	s.waitedFor++
	s.waited += now.Sub(l.since)
	l.token, l.since = m.next, now
	m.wentBack = m.wentBack || l.token <= m.lastToken
	m.lastToken = l.token
	m.next++
	m.held = append(m.held, l)
	if sum, _ := countOf(m.held, l.sem); sum > s.max {
		m.overFilled = true
	}
}

// giveUp takes a held lock away.
func (m *model) giveUp(i int, now time.Time) {
	s := m.sem(m.held[i].sem)
	s.heldFor++
	s.heldTime += now.Sub(m.held[i].since)
	m.held = slices.Delete(m.held, i, i+1)
}

// forget removes semaphores that are gone and not held.
func (m *model) forget() {
	m.sems = slices.DeleteFunc(m.sems, func(s modelSem) bool {
		_, n := countOf(m.held, s.name)
		return s.gone && n == 0
	})
}

func (m *model) remove(id uint64, now time.Time, ended func(*modelSem)) {
	var names []string
	for i := 0; i < len(m.held); i++ {
		if l := m.held[i]; l.peer == id {
			names = append(names, l.sem)
			ended(m.sem(l.sem))
			m.giveUp(i, now)
			i--
		}
	}
	for i := 0; i < len(m.queue); i++ {
		if l := m.queue[i]; l.peer == id {
			names = append(names, l.sem)
			m.queue = slices.Delete(m.queue, i, i+1)
			i--
		}
	}
	m.peers = slices.DeleteFunc(m.peers, func(p modelPeer) bool { return p.id == id })
	for _, name := range names {
		m.serve(name, now)
	}
	m.forget()
	m.changed[id] = true
}

func (m *model) busy(id uint64) bool { return countOfPeer(m.held, id)+countOfPeer(m.queue, id) > 0 }

// due returns when a peer goes by itself.
func (m *model) due(p modelPeer) time.Time {
	if m.busy(p.id) {
		return p.expires
	}
	return p.expires.Add(m.keep)
}

func (m *model) advance(now time.Time) {
	for _, busy := range []bool{true, false} {
		for {
			var first *modelPeer
			for i, p := range m.peers {
				if m.busy(p.id) != busy || m.due(p).After(now) {
					continue
				}
				if first == nil || p.expires.Before(first.expires) || p.expires.Equal(first.expires) &&
					p.id < first.id {
					first = &m.peers[i]
				}
			}
			if first == nil {
				break
			}
			m.remove(first.id, now, func(s *modelSem) { s.expired++ })
		}
	}
	if !m.grace.IsZero() && !m.grace.After(now) {
		m.grace = time.Time{}
		m.serveAll(now)
	}
}

func (m *model) serveAll(now time.Time) {
	for _, s := range slices.Clone(m.sems) {
		m.serve(s.name, now)
	}
}

// due of the whole is when something is due by itself.
func (m *model) nextDue() time.Time {
	at := m.grace
	for _, p := range m.peers {
		if d := m.due(p); at.IsZero() || d.Before(at) {
			at = d
		}
	}
	return at
}

func (m *model) configure(c Config, now time.Time) {
	if m.keep = c.KeepIdle; m.keep == 0 {
		m.keep = 5 * time.Minute
	}
	if m.most = c.MaxPeers; m.most == 0 {
		m.most = 100_000
	}
	for i := range m.sems {
		if _, ok := c.Semaphores[m.sems[i].name]; !ok {
			m.sems[i].gone = true
			m.dropAbove(m.sems[i].name, 0)
		}
	}
	m.forget()
	for name, set := range c.Semaphores {
		if m.sem(name) == nil {
			m.sems = append(m.sems, modelSem{name: name})
		}
		s := m.sem(name)
		s.max, s.level, s.gone = set.Max, set.Level, false
		m.dropAbove(name, s.max)
	}
	slices.SortFunc(m.sems, func(a, b modelSem) int { return strings.Compare(a.name, b.name) })
	m.serveAll(now)
	m.advance(now)
}

func (m *model) dropAbove(name string, most int64) {
	m.queue = slices.DeleteFunc(m.queue, func(l modelLock) bool {
		drop := l.sem == name && l.count > most
		if drop {
			m.peer(l.peer).refused, m.peer(l.peer).wanted = name, l.count
			m.changed[l.peer] = true
		}
		return drop
	})
}

func (m *model) addTokens(k Tokens, now time.Time) {
	m.advance(now)
	if next := max(k.Next, 1); next < k.End && next >= m.next {
		m.next, m.end = next, k.End
		m.serveAll(now)
	}
}

func (m *model) addPeer(id uint64, expires time.Duration, now time.Time) string {
	m.advance(now)
	switch {
	case m.peer(id) != nil:
		return "Restore is not allowed to change existing peers."
	case len(m.peers) >= m.most:
		return "Too many peers."
	}
	m.peers = append(m.peers, modelPeer{id: id, expires: now.Add(expires)})
	return "ok"
}

func (m *model) heartbeat(id uint64, expires time.Duration, now time.Time) string {
	m.advance(now)
	p := m.peer(id)
	if p == nil {
		return "Unknown peer"
	}
	p.expires = now.Add(expires)
	return fmt.Sprint(p.broken)
}

func (m *model) removePeer(id uint64, now time.Time) string {
	m.advance(now)
	if m.peer(id) == nil {
		return "false"
	}
	m.remove(id, now, func(s *modelSem) { s.released++ })
	return "true"
}

func (m *model) sweep(now time.Time) string {
	m.advance(now)
	n := 0
	for _, p := range slices.Clone(m.peers) {
		if !m.busy(p.id) && !p.expires.After(now) {
			m.remove(p.id, now, nil)
			n++
		}
	}
	return fmt.Sprint(n)
}

func (m *model) acquire(id uint64, name string, count int64, now time.Time) string {
	m.advance(now)
	s, p := m.sem(name), m.peer(id)
	i, j := lockIn(m.held, id, name), lockIn(m.queue, id, name)
	switch {
	case s == nil || s.gone && i < 0:
		return "Unknown semaphore"
	case count <= 0:
		return fmt.Sprintf("Lock count must be a positive number. Found: %d.", count)
	case i >= 0 || j >= 0:
		return m.again(id, name, count, now)
	case count > s.max:
		return never(count, s.max)
	case p == nil || now.After(p.expires):
		return "Unknown peer"
	case countOfPeer(m.queue, id) > 0:
		return "Already pending. Only one pendig lock per peer is allowed."
	}
	if low, any := m.lowest(id); any && s.level >= low {
		return fmt.Sprintf("Lock hierachy violation. This may deadlock. The current lock level is %d the\n"+
			"        requested lock level was %d.", low, s.level)
	}
	p.refused = ""
	p.broken = slices.DeleteFunc(p.broken, func(b string) bool { return b == name })
	l := modelLock{peer: id, sem: name, count: count, since: now}
	have, _ := countOf(m.held, name)
	want, _ := countOf(m.queue, name)
	if m.grace.IsZero() && m.next < m.end && have+want+count <= s.max {
		m.grant(l, now)
	} else {
		m.queue = append(m.queue, l)
	}
	return m.token(id, name)
}

func never(count, most int64) string {
	return fmt.Sprintf("Lock can never be acquired. Lock asks for count %d yet full count is only %d.",
		count, most)
}

func (m *model) lowest(id uint64) (level int64, any bool) {
	for _, l := range m.held {
		if s := m.sem(l.sem); l.peer == id && (!any || s.level < level) {
			level, any = s.level, true
		}
	}
	return level, any
}

// token is what a lock that is there has.
func (m *model) token(id uint64, name string) string {
	if i := lockIn(m.held, id, name); i >= 0 {
		return fmt.Sprint(m.held[i].token)
	}
	return "0"
}

// tooLarge is the error of asking for more than a lock has, or empty.
func (m *model) tooLarge(id uint64, name string, count int64) string {
	for _, l := range slices.Concat(m.held, m.queue) {
		if l.peer != id || l.sem != name || count <= l.count {
			continue
		}
		if most := m.sem(name).max; count > most {
			return never(count, most)
		}
		return fmt.Sprintf("Lock count can only shrink. The lock has count %d, asked for is %d.",
			l.count, count)
	}
	return ""
}

func (m *model) again(id uint64, name string, count int64, now time.Time) string {
	if refusal := m.tooLarge(id, name, count); refusal != "" {
		return refusal
	}
	for _, list := range [][]modelLock{m.held, m.queue} {
		if i := lockIn(list, id, name); i >= 0 {
			list[i].count = count
		}
	}
	m.serve(name, now)
	return m.token(id, name)
}

func (m *model) state(id uint64, name string, count int64, now time.Time) string {
	m.advance(now)
	if m.peer(id) == nil {
		return "Unknown peer"
	}
	if lockIn(m.held, id, name) >= 0 || lockIn(m.queue, id, name) >= 0 {
		if refusal := m.tooLarge(id, name, count); refusal != "" {
			return refusal
		}
		return m.token(id, name)
	}
	return m.missing(name, count)
}

func (m *model) missing(name string, count int64) string {
	switch s := m.sem(name); {
	case s == nil || s.gone:
		return "Unknown semaphore"
	case count > s.max:
		return never(count, s.max)
	}
	return "No such lock is held."
}

func (m *model) release(id uint64, name string, now time.Time) string {
	m.advance(now)
	p := m.peer(id)
	if p == nil {
		return "Unknown peer"
	}
	if i := lockIn(m.held, id, name); i >= 0 {
		m.sem(name).released++
		m.giveUp(i, now)
		m.serve(name, now)
		m.forget()
		return "ok"
	}
	if i := lockIn(m.queue, id, name); i >= 0 {
		m.queue = slices.Delete(m.queue, i, i+1)
		m.changed[id] = true
		m.serve(name, now)
		return "ok"
	}
	if p.refused == name {
		p.refused = ""
	}
	if s := m.sem(name); s == nil || s.gone {
		return "Unknown semaphore"
	}
	return "ok"
}

func (m *model) breakLock(id uint64, name string, token uint64, now time.Time) string {
	m.advance(now)
	p, i := m.peer(id), lockIn(m.held, id, name)
	switch {
	case p == nil:
		return "Unknown peer"
	case i < 0 || m.held[i].token != token:
		return "No such lock is held."
	}
	if !slices.Contains(p.broken, name) {
		p.broken = append(p.broken, name)
	}
	m.sem(name).broken++
	m.giveUp(i, now)
	m.serve(name, now)
	m.forget()
	return "ok"
}

func (m *model) acquired(id uint64, now time.Time) string {
	m.advance(now)
	p := m.peer(id)
	switch {
	case p == nil:
		return "Unknown peer"
	case p.refused != "":
		return m.missing(p.refused, p.wanted)
	}
	return fmt.Sprint(countOfPeer(m.queue, id) == 0)
}

func (m *model) remainder(name string, now time.Time) string {
	m.advance(now)
	s := m.sem(name)
	if s == nil || s.gone {
		return "Unknown semaphore"
	}
	sum, _ := countOf(m.held, name)
	return fmt.Sprint(s.max - sum)
}

func (m *model) restore(id uint64, expires time.Duration, locks []Restored, now time.Time) string {
	m.advance(now)
	if refusal := m.unrestorable(id, locks); refusal != "" {
		return refusal
	}
	if p := m.peer(id); p != nil {
		p.expires = now.Add(expires)
		return "[]"
	}
	if refusal := m.tokensMissing(locks); refusal != "" {
		return refusal
	}
	if refusal := m.addPeer(id, expires, now); refusal != "ok" {
		return refusal
	}
	for _, r := range locks {
		m.next = max(m.next, r.Token+1)
	}
	beyond := []string{}
	for _, r := range locks {
		l := modelLock{id, r.Semaphore, r.Count, r.Token, now}
		if l.token == 0 {
			l.token = m.next
			m.next++
		}
		m.held = append(m.held, l)
		s := m.sem(l.sem)
		s.restored++
		if sum, _ := countOf(m.held, l.sem); sum > s.max {
			s.beyond++
			beyond = append(beyond, l.sem)
		}
	}
	return fmt.Sprint(beyond)
}

func (m *model) unrestorable(id uint64, locks []Restored) string {
	changes := "Restore is not allowed to change existing peers."
	for i, r := range locks {
		s := m.sem(r.Semaphore)
		switch {
		case s == nil || s.gone && lockIn(m.held, id, r.Semaphore) < 0:
			return "Unknown semaphore"
		case r.Count <= 0:
			return fmt.Sprintf("Lock count must be a positive number. Found: %d.", r.Count)
		}
		for _, o := range locks[:i] {
			if o.Semaphore == r.Semaphore {
				return changes
			}
		}
	}
	if m.peer(id) == nil {
		return ""
	}
	for _, r := range locks {
		i := lockIn(m.held, id, r.Semaphore)
		if i < 0 || m.held[i].count != r.Count || r.Token != 0 && r.Token != m.held[i].token {
			return changes
		}
	}
	if countOfPeer(m.held, id) != len(locks) {
		return changes
	}
	return ""
}

func (m *model) tokensMissing(locks []Restored) string {
	fresh, top := uint64(0), m.next
	for _, r := range locks {
		if r.Token == 0 {
			fresh++
		}
		if r.Token >= m.next && (m.end != 1<<63 || r.Token >= 1<<63-1<<40) {
			return fmt.Sprintf("Token %d was never given.", r.Token)
		}
		top = max(top, r.Token+1)
	}
	if fresh > 0 && top+fresh > m.end {
		return "No fencing tokens are left."
	}
	return ""
}
