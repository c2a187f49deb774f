package lease

import (
	"fmt"
	"slices"
	"time"
)

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
