package lease

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
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
	for range 6 { // what is rare needs several hundred
		rapid.Check(t, playTwins)
	}
}

func playTwins(rt *rapid.T) {
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
		w.same(nil, w.table.AddPeer(id+1, time.Minute, w.now), w.twin().addPeer(id+1, time.Minute))
	}
	for range 3 { // longer histories
		rt.Repeat(map[string]func(*rapid.T){
			"": w.compare, "acquire": w.acquire, "acquire2": w.acquire, "acquire3": w.acquire,
			"release": w.release, "peer": w.peer, "heartbeat": w.heartbeat, "heartbeat2": w.heartbeat,
			"remove": w.remove, "restore": w.restore, "break": w.breakLock, "configure": w.configure,
			"tokens": w.tokens, "time": w.time, "ask": w.ask, "expiry": w.expiry,
		})
	}
}

// twin is the model once it has done what is due.
func (w *twins) twin() *model {
	w.model.now = w.now
	w.model.advance()
	return w.model
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

func (w *twins) seconds(most uint64) time.Duration {
	return time.Second * time.Duration(w.id("seconds", most))
}

func (w *twins) config() Config {
	c := Config{Semaphores: map[string]Semaphore{}}
	for _, name := range []string{"A", "B", "C"} {
		if !w.rarely("missing") {
			c.Semaphores[name] = Semaphore{Max: 1 + int64(w.id("max", 4)), Level: int64(w.id("level", 2))}
		}
	}
	c.KeepIdle, c.MaxPeers = w.seconds(10), 4+int(w.id("peers", 2))
	if w.rarely("with grace") {
		c.Grace = w.seconds(10)
	}
	return c
}

// aLock is often one that is there, or was refused.
func (w *twins) aLock(label string) (id uint64, name string) {
	all := slices.Clone(w.model.locks)
	for _, id := range slices.Sorted(maps.Keys(w.model.peers)) {
		if p := w.model.peers[id]; p.refused != "" {
			all = append(all, &modelLock{peer: id, sem: p.refused})
		}
	}
	if len(all) == 0 || w.rarely(label) {
		return w.peerID(), w.name()
	}
	l := rapid.SampledFrom(all).Draw(w.T, "lock")
	return l.peer, l.sem
}

// same fails unless the Table's outcome is the model's.
func (w *twins) same(got any, err error, want any) {
	w.Helper()
	if err != nil {
		got = err
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.Fatalf("got %v, want %v", got, want)
	}
}

func (w *twins) acquire(*rapid.T) {
	id, name, count := w.peerID(), w.name(), w.count()
	token, err := w.table.Acquire(id, name, count, w.now)
	w.same(token, err, w.twin().acquire(id, name, count))
}

func (w *twins) release(*rapid.T) {
	id, name := w.aLock("any")
	w.same(nil, w.table.Release(id, name, w.now), w.twin().release(id, name))
}

func (w *twins) peer(*rapid.T) {
	id, d := w.peerID(), w.seconds(20)
	w.same(nil, w.table.AddPeer(id, d, w.now), w.twin().addPeer(id, d))
}

func (w *twins) heartbeat(*rapid.T) {
	id, d := w.peerID(), w.seconds(20)
	broken, err := w.table.Heartbeat(id, d, w.now)
	w.same(broken, err, w.twin().heartbeat(id, d))
}

func (w *twins) remove(*rapid.T) {
	if rapid.Bool().Draw(w.T, "sweep") {
		w.same(w.table.RemoveExpired(w.now), nil, w.twin().sweep())
		return
	}
	id := w.peerID()
	w.same(w.table.RemovePeer(id, w.now), nil, w.twin().removePeer(id))
}

// restore is often of what is held.
func (w *twins) restore(*rapid.T) {
	id, d := w.peerID(), w.seconds(20)
	var locks []Restored
	if rapid.Bool().Draw(w.T, "identical") {
		for _, l := range w.model.locks {
			if l.peer == id && l.token != 0 {
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
			r.Token = uint64(w.now.Add(ahead).UnixNano()) - 2 + w.id("border", 3)
		}
		locks = append(locks, r)
	}
	beyond, err := w.table.Restore(id, d, locks, w.now)
	w.same(beyond, err, w.twin().restore(id, d, locks))
}

func (w *twins) breakLock(*rapid.T) {
	id, name, token := w.peerID(), w.name(), w.id("any token", 30)
	if l := w.model.lock(id, name); l != nil && l.token != 0 && !w.rarely("wrong") {
		token = l.token
	}
	_, err := w.table.Break(id, name, token, w.now)
	w.same(nil, err, w.twin().breakLock(id, name, token))
}

func (w *twins) configure(*rapid.T) {
	c := w.config()
	for name, s := range c.Semaphores { // most stay as they are
		if old := w.model.sems[name]; old != nil && !w.rarely("other") {
			c.Semaphores[name] = Semaphore{s.Max, old.Level}
		}
	}
	if err := w.table.Configure(c, w.now); err != nil {
		w.Fatal(err)
	}
	w.twin().configure(c)
}

func (w *twins) tokens(*rapid.T) {
	k := Tokens{Next: w.id("next", 60), End: EndOfTokens}
	if rapid.Bool().Draw(w.T, "with end") {
		k.End = k.Next + w.id("block", 9)
	}
	w.table.AddTokens(k, w.now)
	w.twin().addTokens(k)
}

func (w *twins) time(*rapid.T) {
	w.now = w.now.Add(w.seconds(12))
	if w.id("all but never", 63) == 63 {
		w.now = w.now.Add(2 * time.Hour) // beyond the last bucket
	}
	w.then()
}

// then is the first step at a new instant: each does by itself what is due.
func (w *twins) then() {
	steps := []func(*rapid.T){
		w.acquire, w.release, w.peer, w.heartbeat, w.remove, w.restore, w.breakLock, w.configure,
		w.tokens, w.ask, func(*rapid.T) { w.table.Advance(w.now); w.twin() },
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
	id, name := w.aLock("some")
	count := w.count()
	switch w.id("what", 2) {
	case 0:
		is, err := w.table.Acquired(id, w.now)
		w.same(is, err, w.twin().acquired(id))
	case 1:
		token, err := w.table.State(id, name, count, w.now)
		w.same(token, err, w.twin().state(id, name, count))
	case 2:
		left, err := w.table.Remainder(name, w.now)
		w.same(left, err, w.twin().remainder(name))
	}
}

// compare looks at all that can be seen.
func (w *twins) compare(*rapid.T) {
	m := w.model
	if next := w.table.Next(); !next.Equal(m.nextDue()) || !w.table.grace.Equal(m.grace) {
		w.Fatalf("next is %v, grace ends %v, want %v and %v", next, w.table.grace, m.nextDue(), m.grace)
	}
	if left := m.end - m.next; w.table.TokensLeft() != left && m.end >= m.next {
		w.Fatalf("%d tokens are left, want %d", w.table.TokensLeft(), left)
	}
	w.compareChanged()
	m = w.twin() // reads also do what is due
	ids := slices.Sorted(slices.Values(w.table.Peers(w.now)))
	if want := slices.Sorted(maps.Keys(m.peers)); !slices.Equal(ids, want) {
		w.Fatalf("peers are %v, want %v", ids, want)
	}
	stats := w.table.Stats(w.now)
	if len(stats) != len(m.sems) {
		w.Fatalf("there are %d semaphores, want %d", len(stats), len(m.sems))
	}
	for _, got := range stats {
		if want := m.stats(got.Name); got != want {
			w.Fatalf("statistics are\n%+v, want\n%+v", got, want)
		}
		held, pending, _ := w.table.Locks(got.Name, 100, w.now)
		if h, p := m.show(got.Name, true), m.show(got.Name, false); !slices.Equal(held, h) || !slices.Equal(pending, p) {
			w.Fatalf("locks are %v and %v, want %v and %v", held, pending, h, p)
		}
	}
	w.compareChanged()
}

func (w *twins) compareChanged() {
	got := slices.Compact(slices.Sorted(slices.Values(w.table.Changed())))
	if want := slices.Sorted(maps.Keys(w.model.changed)); !slices.Equal(got, want) {
		w.Fatalf("changed are %v, want %v", got, want)
	}
	clear(w.model.changed)
}

// model is a Table again, without haste: a list of locks that is searched from end to end. It uses nothing of
// Table but its types of values. Its steps return what is expected: an error, or a value.
type model struct {
	now       time.Time
	sems      map[string]*modelSem
	peers     map[uint64]*modelPeer
	locks     []*modelLock // those that are held in the order of granting, the others in that of asking
	next, end uint64       // tokens
	passed    uint64       // the clock has passed this restored one when the grace time is over
	grace     time.Time
	keep      time.Duration
	most      int // peers
	changed   map[uint64]bool
}

type modelSem struct {
	Semaphore
	Totals
	gone bool
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
	token uint64 // 0: pending
	since time.Time
}

func newModel(c Config, k Tokens, now time.Time) *model {
	m := &model{now: now, next: max(k.Next, 1), end: k.End, changed: map[uint64]bool{},
		sems: map[string]*modelSem{}, peers: map[uint64]*modelPeer{}}
	if c.Grace > 0 {
		m.grace = now.Add(c.Grace)
	}
	m.configure(c)
	return m
}

func (m *model) those(fits func(*modelLock) bool) (list []*modelLock) {
	for _, l := range m.locks {
		if fits(l) {
			list = append(list, l)
		}
	}
	return list
}

// of returns the locks of a semaphore that are held, or pending, and the sum of their counts.
func (m *model) of(name string, held bool) (list []*modelLock, sum int64) {
	list = m.those(func(l *modelLock) bool { return l.sem == name && (l.token != 0) == held })
	for _, l := range list {
		sum += l.count
	}
	return list, sum
}

func (m *model) ofPeer(id uint64) []*modelLock {
	return m.those(func(l *modelLock) bool { return l.peer == id })
}

func (m *model) lock(id uint64, name string) *modelLock {
	for _, l := range m.ofPeer(id) {
		if l.sem == name {
			return l
		}
	}
	return nil
}

func (m *model) waits(id uint64) bool {
	return slices.ContainsFunc(m.ofPeer(id), func(l *modelLock) bool { return l.token == 0 })
}

func (m *model) stats(name string) SemaphoreStats {
	s := m.sems[name]
	held, acquired := m.of(name, true)
	queue, pending := m.of(name, false)
	st := SemaphoreStats{Name: name, Semaphore: s.Semaphore, Gone: s.gone, Acquired: acquired, Pending: pending,
		Holders: len(held), Waiters: len(queue), Totals: s.Totals}
	for _, l := range queue {
		st.LongestPending = max(st.LongestPending, m.now.Sub(l.since))
	}
	return st
}

func (m *model) show(name string, held bool) (locks []Lock) {
	list, _ := m.of(name, held)
	for _, l := range list {
		locks = append(locks, Lock{l.peer, l.count, l.token, l.since, m.peers[l.peer].expires})
	}
	return locks
}

// grants reports whether a lock could be granted now, if it fitted.
func (m *model) grants() bool { return m.grace.IsZero() && m.next < m.end }

// serve grants from the head of one semaphore's queue while it fits.
func (m *model) serve(name string) {
	for m.grants() {
		queue, _ := m.of(name, false)
		if _, sum := m.of(name, true); len(queue) == 0 || sum+queue[0].count > m.sems[name].Max {
			return
		}
		m.unlist(queue[0])
		m.grant(queue[0])
		m.changed[queue[0].peer] = true
	}
}

func (m *model) serveAll() {
	for _, name := range slices.Sorted(maps.Keys(m.sems)) {
		m.serve(name)
	}
}

func (m *model) unlist(l *modelLock) {
	m.locks = slices.DeleteFunc(m.locks, func(o *modelLock) bool { return o == l })
}

func (m *model) grant(l *modelLock) {
	s := m.sems[l.sem]
	s.Granted++
	counted(&s.Wait, m.now.Sub(l.since))
	l.token, l.since = m.next, m.now
	m.next++
	m.locks = append(m.locks, l)
}

// take takes a lock away, and counts it if it was held.
func (m *model) take(l *modelLock, total *uint64) {
	m.unlist(l)
	if s := m.sems[l.sem]; l.token == 0 {
		m.changed[l.peer] = true
	} else {
		*total++
		counted(&s.Hold, m.now.Sub(l.since))
	}
	m.serve(l.sem)
	m.forget()
}

// counted counts a duration, also in the first bucket that is not below it.
func counted(h *Histogram, d time.Duration) {
	h.Count++
	h.Sum += d.Seconds()
	if i := slices.IndexFunc(Bounds[:], func(most time.Duration) bool { return most >= d }); i >= 0 {
		h.Buckets[i]++
	}
}

func (m *model) forget() {
	maps.DeleteFunc(m.sems, func(name string, s *modelSem) bool {
		held, _ := m.of(name, true)
		return s.gone && len(held) == 0
	})
}

// remove takes a peer away, and counts each lock that it held where total says.
func (m *model) remove(id uint64, total func(*modelSem) *uint64) {
	for _, l := range m.ofPeer(id) {
		m.take(l, total(m.sems[l.sem]))
	}
	delete(m.peers, id)
	m.changed[id] = true
}

// due returns when a peer goes by itself.
func (m *model) due(p *modelPeer) time.Time {
	if len(m.ofPeer(p.id)) > 0 {
		return p.expires
	}
	return p.expires.Add(m.keep)
}

// nextDue is when something is due by itself.
func (m *model) nextDue() time.Time {
	at := m.grace
	for _, p := range m.peers {
		if d := m.due(p); at.IsZero() || d.Before(at) {
			at = d
		}
	}
	return at
}

// expired returns the first peer, with locks or without, whose time is over; nil if there is none.
func (m *model) expired(busy bool) (first *modelPeer) {
	for _, p := range m.peers {
		if (len(m.ofPeer(p.id)) > 0) != busy || m.due(p).After(m.now) {
			continue
		}
		if first == nil || cmp.Or(p.expires.Compare(first.expires), cmp.Compare(p.id, first.id)) < 0 {
			first = p
		}
	}
	return first
}

func (m *model) advance() {
	for _, busy := range []bool{true, false} {
		for p := m.expired(busy); p != nil; p = m.expired(busy) {
			m.remove(p.id, func(s *modelSem) *uint64 { return &s.Expired })
		}
	}
	if !m.grace.IsZero() && !m.grace.After(m.now) {
		m.grace, m.next = time.Time{}, max(m.next, m.passed+1)
		m.serveAll()
	}
}

func (m *model) configure(c Config) {
	m.keep, m.most = cmp.Or(c.KeepIdle, 5*time.Minute), cmp.Or(c.MaxPeers, 100_000)
	for name := range c.Semaphores {
		if m.sems[name] == nil {
			m.sems[name] = &modelSem{}
		}
	}
	for name, s := range m.sems {
		set, stays := c.Semaphores[name]
		if s.gone = !stays; stays {
			s.Semaphore = set
		}
		queue, _ := m.of(name, false)
		for _, l := range queue {
			if l.count > set.Max {
				m.unlist(l)
				m.peers[l.peer].refused, m.peers[l.peer].wanted = name, l.count
				m.changed[l.peer] = true
			}
		}
	}
	m.forget()
	m.serveAll()
	m.advance()
}

func (m *model) addTokens(k Tokens) {
	if next := max(k.Next, 1); next < k.End && next >= m.next && next > m.passed {
		m.next, m.end = next, k.End
		m.serveAll()
	}
}

func (m *model) addPeer(id uint64, expires time.Duration) any {
	switch {
	case m.peers[id] != nil:
		return ErrRestoreChanges
	case len(m.peers) >= m.most:
		return ErrTooManyPeers
	}
	m.peers[id] = &modelPeer{id: id, expires: m.now.Add(expires)}
	return nil
}

func (m *model) heartbeat(id uint64, expires time.Duration) any {
	p := m.peers[id]
	if p == nil {
		return ErrUnknownPeer
	}
	p.expires = m.now.Add(expires)
	return p.broken
}

func (m *model) removePeer(id uint64) bool {
	if m.peers[id] == nil {
		return false
	}
	m.remove(id, func(s *modelSem) *uint64 { return &s.Released })
	return true
}

func (m *model) sweep() (n int) {
	for id, p := range m.peers {
		if len(m.ofPeer(id)) == 0 && !p.expires.After(m.now) {
			m.remove(id, nil)
			n++
		}
	}
	return n
}

func (m *model) acquire(id uint64, name string, count int64) any {
	s, p, l := m.sems[name], m.peers[id], m.lock(id, name)
	switch {
	case s == nil || s.gone && l == nil:
		return ErrUnknownSemaphore
	case count <= 0:
		return &CountError{count}
	case l != nil:
		if err := m.tooLarge(l, count); err != nil {
			return err
		}
		l.count = count
		m.serve(name)
		return l.token
	case count > s.Max:
		return &NeverError{count, s.Max}
	case p == nil:
		return ErrUnknownPeer
	case m.waits(id):
		return ErrAlreadyPending
	}
	lowest := int64(1 << 40)
	for _, l := range m.ofPeer(id) {
		lowest = min(lowest, m.sems[l.sem].Level)
	}
	if s.Level >= lowest {
		return &LevelError{lowest, s.Level}
	}
	p.refused = ""
	p.broken = slices.DeleteFunc(p.broken, func(b string) bool { return b == name })
	_, have := m.of(name, true)
	_, want := m.of(name, false)
	l = &modelLock{peer: id, sem: name, count: count, since: m.now}
	if m.grants() && have+want+count <= s.Max {
		m.grant(l)
	} else {
		m.locks = append(m.locks, l)
	}
	return l.token
}

// tooLarge is the error of asking for more than a lock has, or nil.
func (m *model) tooLarge(l *modelLock, count int64) error {
	switch most := m.sems[l.sem].Max; {
	case count <= l.count:
		return nil
	case count > most:
		return &NeverError{count, most}
	}
	return &GrowError{l.count, count}
}

func (m *model) state(id uint64, name string, count int64) any {
	l := m.lock(id, name)
	switch {
	case m.peers[id] == nil:
		return ErrUnknownPeer
	case l == nil:
		return m.missing(name, count)
	}
	if err := m.tooLarge(l, count); err != nil {
		return err
	}
	return l.token
}

func (m *model) missing(name string, count int64) error {
	switch s := m.sems[name]; {
	case s == nil || s.gone:
		return ErrUnknownSemaphore
	case count > s.Max:
		return &NeverError{count, s.Max}
	}
	return ErrNotHeld
}

func (m *model) release(id uint64, name string) any {
	p, l := m.peers[id], m.lock(id, name)
	switch {
	case p == nil:
		return ErrUnknownPeer
	case l != nil:
		m.take(l, &m.sems[name].Released)
		return nil
	case p.refused == name:
		p.refused = ""
	}
	if s := m.sems[name]; s == nil || s.gone {
		return ErrUnknownSemaphore
	}
	return nil
}

func (m *model) breakLock(id uint64, name string, token uint64) any {
	p, l := m.peers[id], m.lock(id, name)
	switch {
	case p == nil:
		return ErrUnknownPeer
	case l == nil || l.token == 0 || l.token != token:
		return ErrNotHeld
	case !slices.Contains(p.broken, name):
		p.broken = append(p.broken, name)
	}
	m.take(l, &m.sems[name].Broken)
	return nil
}

func (m *model) acquired(id uint64) any {
	p := m.peers[id]
	switch {
	case p == nil:
		return ErrUnknownPeer
	case p.refused != "":
		return m.missing(p.refused, p.wanted)
	}
	return !m.waits(id)
}

func (m *model) remainder(name string) any {
	s := m.sems[name]
	if s == nil || s.gone {
		return ErrUnknownSemaphore
	}
	_, sum := m.of(name, true)
	return s.Max - sum
}

func (m *model) restore(id uint64, expires time.Duration, locks []Restored) any {
	if err := m.unrestorable(id, locks); err != nil {
		return err
	}
	beyond := []string{}
	if p := m.peers[id]; p != nil {
		p.expires = m.now.Add(expires)
		return beyond
	}
	if err := m.tokensMissing(locks); err != nil {
		return err
	}
	if err := m.addPeer(id, expires); err != nil {
		return err
	}
	for _, r := range locks {
		if at := time.Unix(0, int64(r.Token)+1); r.Token >= m.next && at.After(m.now) {
			m.passed = max(m.passed, r.Token)
			if m.grace.Before(at) {
				m.grace = at
			}
		} else {
			m.next = max(m.next, r.Token+1)
		}
	}
	for _, r := range locks {
		if r.Token == 0 {
			r.Token = m.next
			m.next++
		}
		m.locks = append(m.locks, &modelLock{id, r.Semaphore, r.Count, r.Token, m.now})
		s := m.sems[r.Semaphore]
		s.Restored++
		if _, sum := m.of(r.Semaphore, true); sum > s.Max {
			s.Beyond++
			beyond = append(beyond, r.Semaphore)
		}
	}
	return beyond
}

func (m *model) unrestorable(id uint64, locks []Restored) error {
	for i, r := range locks {
		s := m.sems[r.Semaphore]
		switch {
		case s == nil || s.gone && m.lock(id, r.Semaphore) == nil:
			return ErrUnknownSemaphore
		case r.Count <= 0:
			return &CountError{r.Count}
		case slices.ContainsFunc(locks[:i], func(o Restored) bool { return o.Semaphore == r.Semaphore }):
			return ErrRestoreChanges
		}
	}
	if m.peers[id] == nil {
		return nil
	}
	held := m.those(func(l *modelLock) bool { return l.peer == id && l.token != 0 })
	same := len(held) == len(locks)
	for _, r := range locks {
		same = same && slices.ContainsFunc(held, func(l *modelLock) bool {
			return l.sem == r.Semaphore && l.count == r.Count && (r.Token == 0 || r.Token == l.token)
		})
	}
	if !same {
		return ErrRestoreChanges
	}
	return nil
}

func (m *model) tokensMissing(locks []Restored) error {
	fresh := uint64(0)
	for _, r := range locks {
		if r.Token == 0 {
			fresh++
		}
		unknown := m.end != 1<<63 || r.Token >= 1<<63 || time.Unix(0, int64(r.Token)).Sub(m.now) > time.Minute
		if r.Token >= m.next && unknown {
			return &TokenError{r.Token}
		}
	}
	if fresh > 0 && m.next+fresh > m.end {
		return ErrNoTokens
	}
	return nil
}
