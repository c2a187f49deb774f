package quotient_test

import (
	"time"

	"github.com/quotient-go/quotient"
)

// The judge's reading of what is lent: a part of a key's limit, in place of a share that is smaller, until an
// instant. Bursts, windows and turns stay as they are.

// loan is a part of the limit of a key on one replica. The zero value means no loan.
type loan struct {
	part float64
	ends time.Time
}

// holds reports whether the loan is in force at an instant.
func (n loan) holds(at time.Time) bool { return n.part > 0 && at.Before(n.ends) }

// lend puts the rates under what is lent now. Under Deny the rules stay as they were.
func (m *model) lend() {
	if m.limit().Deny {
		return
	}
	for i := range m.rules {
		r := &m.rules[i]
		if r.perSecond = r.own; m.loan.holds(m.at) && !r.rate.Aligned && r.loose == 0 {
			r.perSecond = max(r.own, m.loan.part*r.rate.Events/r.rate.Per.Seconds())
		}
	}
}

// advance lets time pass, over the end of a loan.
func (m *model) advance(to time.Time) {
	if n := m.loan; n.part > 0 && !to.Before(n.ends) {
		if n.ends.After(m.at) {
			m.pass(n.ends)
		}
		m.loan = loan{}
		m.lend()
	}
	m.pass(to)
}

// lentSlots is what is lent of the slots now.
func (m *model) lentSlots() int {
	if !m.loan.holds(m.at) {
		return 0
	}
	return int(m.loan.part * float64(m.limit().InFlight))
}

// lend has a replica borrow a part of a key's limit for a while.
func (w *world) lend(r *replica) {
	if w.plans || !w.lends {
		return
	}
	key := w.drawKey()
	n := loan{part: float64(pick(w.T, 0, 64, "part")) / 64}
	lasts := time.Duration(pick(w.T, 1, 5000, "loan")) * time.Millisecond
	n.ends = time.Now().Add(lasts)
	if !quotient.Lend(r.l, key, n.part, lasts) {
		return
	}
	w.tell("replica %d %s: %v is lent until %v", r.id, key, n.part, n.ends.Format("04:05.000000000"))
	k := r.key(key)
	k.items = append(k.items, item{at: time.Now(), loan: &n})
}
