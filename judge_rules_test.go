package quotient_test

import (
	"errors"
	"fmt"
	"math"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
)

// Checks of one replica.

// inOrder holds bound 8: no older waiter of the same class is left behind.
func (r *replica) inOrder(c *call) {
	if quotient.IsDry(c.permit) || r.conf.hooked {
		return
	}
	for _, o := range r.calls {
		if nameOf(o.key) == nameOf(c.key) && o.class == c.class && o.seq < c.seq {
			r.w.broken("bound 8: replica %d %s: call %d was admitted before call %d of its class, "+
				"which came first", r.id, c.key, c.seq, o.seq)
		}
	}
}

// forbids is why n must not be admitted; "" when nothing forbids it.
func (r *replica) forbids(m *model, key string, n amounts, at time.Time) string {
	limit := m.limit()
	if limit.Deny || m.awaiting && (len(limit.Rates) > 0 || limit.InFlight > 0) {
		return fmt.Sprintf("replica %d %s: admitted, but the limit is %s and the pool awaited is %v", r.id,
			key, describe(limit), m.awaiting)
	}
	if rule := m.lacks(n); rule != "" {
		return fmt.Sprintf("bound 1: replica %d %s: %v admitted, but %s has no room: %+v", r.id, key, n,
			rule, m.rules)
	}
	if s, used := r.mostSlots(m, key), r.used(key, at); s >= 0 && used+int(n[0]) > s {
		return fmt.Sprintf("bound 5: replica %d %s: %v slots taken beside %d, of %d", r.id, key,
			n[0], used, s)
	}
	return ""
}

// mostSlots is the slots that a key has in the model, or in the largest of its plans; -1 without a bound. If
// two callers go at one instant in different plans, either may be the first.
func (r *replica) mostSlots(m *model, key string) int {
	most := m.slots(r.conf.atLeastOne)
	for name, k := range r.keys {
		if most < 0 || nameOf(name) != nameOf(key) || name == key {
			continue
		}
		s := k.before(len(k.items)).slots(r.conf.atLeastOne)
		if most = max(most, s); s < 0 {
			most = -1
		}
	}
	return most
}

// used is the slots of a key that are held by permits whose time is not over.
func (r *replica) used(key string, at time.Time) int {
	n := 0
	for _, h := range r.kept {
		if nameOf(h.key) == nameOf(key) && !h.overAt(at) {
			n += h.slots
		}
	}
	return n
}

func (h *held) over() bool { return h.overAt(time.Now()) }

func (h *held) overAt(at time.Time) bool { return !h.ends.IsZero() && !h.ends.After(at) }

// refused judges a refusal, and one that makes a caller wait. With no waiter before it a rule must have no
// room, also if nothing had ever come back.
func (r *replica) refused(key string, n amounts, err error) {
	var limited *quotient.LimitedError
	if !errors.As(err, &limited) {
		return
	}
	switch limited.Reason {
	case quotient.ReasonTooLarge, quotient.ReasonShare, quotient.ReasonDenied, quotient.ReasonPool,
		quotient.ReasonBadRequest:
		return
	}
	for _, c := range r.calls {
		if nameOf(c.key) == nameOf(key) {
			return
		}
	}
	if r.certain(key, n) {
		r.w.broken("replica %d %s: %v refused though there is room: %v: %+v", r.id, key, n, err,
			r.key(key).lo.rules)
	}
}

// inOtherPlans reports whether something was taken for a key in another plan since it was last reset.
func (r *replica) inOtherPlans(key string) bool {
	for name, k := range r.keys {
		took := false
		for i := range k.items {
			took = took && k.items[i].never == nil || k.items[i].took != nil
		}
		if nameOf(name) == nameOf(key) && name != key && took {
			return true
		}
	}
	return false
}

// certain reports whether there is room for n for certain.
func (r *replica) certain(key string, n amounts) bool {
	if n := quotient.CountsOf(r.l); !r.exact || r.stepped || r.dry || r.awaiting ||
		n.Overflowed+n.Expired > 0 {
		return false
	}
	if r.inOtherPlans(key) {
		return false
	}
	_, lo := r.key(key).upToNow()
	limit := lo.limit()
	if limit.Deny || lo.turns() || lo.lacks(n) != "" {
		return false
	}
	for _, rate := range limit.Rates {
		most := float64(rate.Burst)
		if rate.Burst == 0 {
			most = max(1, rate.Events)
		}
		if rate.Aligned {
			most = rate.Events
		}
		if n[unitIndex(rate.Unit)] > most-1e-9 && n[unitIndex(rate.Unit)] != most {
			return false
		}
	}
	s := lo.slots(r.conf.atLeastOne)
	return s < 0 || r.used(key, time.Now())+int(n[0]) <= s
}

// waitingIsRight checks that no caller waits while the next of its key could be admitted.
func (r *replica) waitingIsRight() {
	byKey := map[string][]*call{}
	for _, c := range r.calls {
		if c.slow {
			return // it may not have looked yet
		}
		byKey[nameOf(c.key)] = append(byKey[nameOf(c.key)], c)
	}
	for key, calls := range byKey {
		all := true
		for _, c := range calls {
			all = all && r.certain(c.key, c.n)
		}
		if all {
			r.w.broken("bound 7: replica %d %s: %d wait though there is room for each: %v: %+v", r.id, key,
				len(calls), calls[0].n, r.key(key).lo.rules)
		}
	}
}

// believesIsRight holds what is in force against the reports.
func (r *replica) believesIsRight() {
	p := r.l.Stats().Pool.Pool
	if !r.awaiting && p != r.pool {
		r.w.broken("replica %d believes %+v, and has logged %+v", r.id, p, r.pool)
	}
	now, parts := time.Now(), 0.0
	if r.conf.stops && !r.words {
		old := len(r.seen) == 0 || now.Sub(r.seen[len(r.seen)-1].at) >= r.conf.hintMaxAge
		if old != r.awaiting {
			r.w.broken("replica %d awaits the pool: %v, and its hints have grown old: %v: %+v", r.id,
				r.awaiting, old, r.seen)
		}
	}
	if r.words || len(r.seen) == 0 || r.conf.hintMaxAge > 0 {
		return
	}
	for i, s := range r.seen {
		if i+1 == len(r.seen) || now.Sub(r.seen[i+1].at) < r.conf.holdDown {
			parts = max(parts, shares(s.p))
		}
	}
	last := r.seen[len(r.seen)-1].p
	if most := int(math.Ceil(parts*float64(max(1, last.Weight)) - 1e-9)); p.Replicas != most ||
		p.Weight != last.Weight {
		r.w.broken("replica %d believes in %+v, and the smallest share within the hold-down is that of "+
			"one in %d: %+v", r.id, p, most, r.seen)
	}
	if want := r.ordinal(now, shares(last) < parts-1e-9); p.Fixed && want == 0 {
		r.w.broken("bound 5: replica %d holds ordinal %d for fixed, which was not reported again and again "+
			"for one hold-down: %+v", r.id, p.Ordinal, r.seen)
	}
}

// shares is how many shares of a replica's size its pool has.
func shares(p quotient.Pool) float64 { return float64(p.Replicas) / float64(max(1, p.Weight)) }

// ordinal is the one that may count for slots: said to be fixed, or said again and again for one hold-down
// and nothing else meanwhile. It does not count while the share of another pool does.
func (r *replica) ordinal(now time.Time, other bool) int {
	last := r.seen[len(r.seen)-1]
	if last.p.Fixed {
		return last.p.Ordinal
	}
	if other || now.Sub(last.at) >= r.conf.holdDown {
		return 0
	}
	first := last.at
	for i := len(r.seen) - 2; i >= 0; i-- {
		s := r.seen[i]
		if s.p != last.p || first.Sub(s.at) >= r.conf.holdDown {
			break
		}
		first = s.at
	}
	if last.at.Sub(first) < r.conf.holdDown {
		return 0
	}
	return last.p.Ordinal
}

// spinsNot checks that timers fire for something: for a waiter, and else now and then, since the windows of
// a sparse rate are looked at some at a time. Controllers want to be called as often as every millisecond.
func (r *replica) spinsNot() {
	n := quotient.CountsOf(r.l).Fired
	passed := time.Since(r.judged)
	most := 64 + 8*uint64(r.served+len(r.calls)) + uint64(passed/time.Second)
	if r.conf.learns {
		most += uint64(passed / time.Millisecond)
	}
	if n-r.fired > most {
		r.w.broken("replica %d: timers have fired %d times in %v, in which %d calls ended", r.id, n-r.fired,
			passed, r.served)
	}
	r.fired, r.judged, r.served = n, time.Now(), 0
}

// countsAreRight counts for itself.
func (r *replica) countsAreRight() {
	r.l.Stats() // gives back what was held for too long, so that others may go
	synctest.Wait()
	r.collect()
	s := r.l.Stats()
	r.reap()
	refused := uint64(0)
	for _, n := range s.Refused {
		refused += n
	}
	dry := uint64(0)
	for _, n := range s.DryRunAdmitted {
		dry += n
	}
	inFlight := 0
	for _, h := range r.kept {
		inFlight += h.weight
	}
	got := fmt.Sprint(s.Admitted, refused+s.Cancelled, dry, s.InFlight)
	want := fmt.Sprint(r.counts.admitted, r.counts.refused+r.counts.cancelled, r.counts.dry, inFlight)
	if !r.slow() && !r.blurred && got != want {
		r.w.broken("replica %d: counts admitted, refused or cancelled, admitted in a dry run, in flight: "+
			"%s, want %s", r.id, got, want)
	}
	if !r.slow() && s.Waiting != len(r.calls) {
		r.w.broken("replica %d: counts %d waiting, and %d wait", r.id, s.Waiting, len(r.calls))
	}
	if most := r.conf.maxKeys + s.Overrides; s.Keys > most && s.Overrides == 0 && r.overrides() == 0 {
		r.w.broken("replica %d: remembers %d keys of %d", r.id, s.Keys, most)
	}
}
