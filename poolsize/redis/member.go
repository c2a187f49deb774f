package redis

import (
	"time"

	"github.com/quotient-go/quotient"
)

// member is what one processor knows of its fleet. It is a pure state machine: the store's answers in, pools out.
type member struct {
	expiry time.Duration
	weight int  // as how many processors it counts
	heard  bool // the store has answered before, and has missed no sync since unless used
	used   bool // an answer was for use
	size   int  // what counts
	// report is what is sent to the store next: the living of its last answer; if it has forgotten them, the size
	report int
	agreed bool      // the last answer did
	lost   bool      // the store has forgotten this processor, and surely others, or may have
	forgot time.Time // until then others whom the store has forgotten may come back
	keep   time.Time // until then a size smaller than the one that counts does not count while lost, or in disagreement
}

// newMember returns a member of a weight that the store has not answered yet.
func newMember(expiry time.Duration, weight int) member {
	return member{expiry: expiry, weight: weight, report: weight, agreed: true}
}

// learn takes in an answer of the store and returns the pool that counts from now on. The first answer is not
// for use: the others do not know of this processor until they have synced too. If the store has forgotten it
// since, the next is a first one too.
func (m *member) learn(a answer, now time.Time) (p quotient.Pool, usable bool) {
	usable = m.heard && (m.used || a.known)
	switch {
	case m.heard && !a.known: // all that live will be back before they would have expired
		m.lost, m.keep, m.forgot = true, now.Add(m.expiry), now.Add(m.expiry)
	case m.agreed && !a.agreed && !m.lost:
		m.keep = now.Add(m.expiry)
	}
	m.lost = m.lost && now.Before(m.keep)
	told := max(a.largest, a.living)
	if now.Before(m.keep) && (m.lost || !a.agreed) {
		told = max(told, m.size)
	}
	m.heard, m.used = true, m.used || usable
	m.agreed, m.size, m.report = a.agreed, told, a.living
	if now.Before(m.forgot) { // for those who start meanwhile: they remember nothing
		m.report = m.size
	}
	p.Replicas = m.size
	if m.weight > 1 {
		p.Weight = m.weight
	}
	if a.agreed && m.size == a.living {
		p.Ordinal = a.rank + 1
	}
	return p, usable
}

// missed takes in that a sync has failed. It may have reached a store that had forgotten all, and the next
// answer would not show that.
func (m *member) missed(now time.Time) {
	if m.used {
		m.lost, m.keep = true, now.Add(m.expiry)
	} else {
		m.heard = false
	}
}
