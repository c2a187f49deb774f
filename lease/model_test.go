package lease

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

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
