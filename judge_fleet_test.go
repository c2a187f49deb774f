package quotient_test

import (
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
)

// Checks of the fleet as a whole.

// judge takes up what has happened since the last step, and holds it against the models.
func (w *world) judge() {
	for _, r := range w.fleet {
		r.collect()
	}
	for _, r := range w.fleet {
		r.waitingIsRight()
		r.believesIsRight()
		r.spinsNot()
	}
	w.slotsOfTheFleet()
	if pick(w.T, 0, 3, "count") == 0 {
		for _, r := range w.fleet {
			r.countsAreRight()
		}
	}
}

// slotsOfTheFleet is bound 5. While no replica believes in fewer replicas than there are, the parts of the
// slots add up to the limit at most. The slots held by permits that are younger than the last change do too.
func (w *world) slotsOfTheFleet() {
	limit := w.fleet[0].limit
	if w.lied || w.plans || limit.Deny || limit.InFlight == 0 || !w.agrees() {
		return
	}
	sum, atLeastOne := 0, false
	for _, r := range w.fleet {
		m := model{pool: r.pool, awaiting: r.awaiting, base: limit}
		sum += m.slots(false)
		atLeastOne = atLeastOne || r.conf.atLeastOne
	}
	if sum > limit.InFlight {
		pools := ""
		for _, r := range w.fleet {
			pools += fmt.Sprintf(" %d: %+v", r.id, r.pool)
		}
		w.broken("bound 5: %d replicas have %d slots of %d:%s", len(w.fleet), sum, limit.InFlight, pools)
	}
	bound := limit.InFlight
	if atLeastOne {
		bound = max(bound, w.total())
	}
	held := map[string]int{}
	for _, r := range w.fleet {
		if r.overrides() > 0 {
			return
		}
		for _, h := range r.kept {
			if h.over() {
				continue
			}
			if h.seq < w.changed {
				return
			}
			held[h.key] += h.slots
		}
	}
	for key, n := range held {
		if n > bound {
			w.broken("bound 5: %s: %d in flight over the fleet, of %d", key, n, limit.InFlight)
		}
	}
}

// agrees reports whether all replicas have one limit, bounded by their share, and none believes in fewer than
// there are, or that it counts as more than it does.
func (w *world) agrees() bool {
	if w.lends {
		return false
	}
	for _, r := range w.fleet {
		if r.conf.ceiling || describe(r.limit) != describe(w.fleet[0].limit) ||
			!r.awaiting && (r.pool.Replicas < w.total() || r.pool.Weight > r.weight) {
			return false
		}
	}
	return true
}

// fleetAdmitted is bound 2, and holds while no replica believes in fewer than there are. The fleet then
// admits in any window at most the rate times the window and max(burst, replicas). The debt of single calls
// that were larger than a replica's bucket comes on top.
func (w *world) fleetAdmitted(r *replica, key string, t *taking, n, due amounts) {
	limit := r.limit
	if w.plans || !w.agrees() || r.dry || r.overrides() > 0 {
		w.events = nil
		return
	}
	e := fleetEvent{key, r, t, n, due}
	place := len(w.events)
	for place > 0 && w.events[place-1].t.at.After(t.at) {
		place-- // calls that waited are taken up replica by replica
	}
	w.events = slices.Insert(w.events, place, e)
	for _, rate := range limit.Rates {
		if !rate.Aligned {
			w.holdFleet(key, rate, place)
		}
	}
}

// holdFleet holds every window that the event at a place is in.
func (w *world) holdFleet(key string, rate quotient.Rate, place int) {
	u := unitIndex(rate.Unit)
	perSecond := rate.Events / rate.Per.Seconds()
	burst := float64(rate.Burst)
	if rate.Burst == 0 {
		burst = max(1, rate.Events)
	}
	burst = max(burst, float64(w.total()))
	for last := place; last < len(w.events); last++ {
		sum, owed := 0.0, map[*replica]float64{}
		for i := last; i >= 0; i-- {
			e := &w.events[i]
			if e.key != key {
				continue
			}
			sum += min(e.n[u], e.t.net[u])
			owed[e.by] = max(owed[e.by], e.due[u])
			debt := .1 * float64(len(w.fleet))
			for _, d := range owed {
				debt += d
			}
			passed := w.events[last].t.at.Sub(e.t.at)
			if most := perSecond*passed.Seconds() + burst + debt + slack; i <= place && sum > most {
				w.broken("bound 2: %s, %+v: the fleet has admitted %.3f in %v, of %.3f", key, rate, sum,
					passed, most)
			}
		}
	}
}

// finish checks that no caller waits for ever.
func (w *world) finish() {
	w.tell("the end")
	for _, r := range w.fleet {
		r.hang(hook{})
		if r.dry {
			r.l.SetDryRun(false)
			r.dry = false
		}
		synctest.Wait()
		r.drain()
		if r.conf.stops && r.source != nil { // else its hints grow old after SetPool
			r.source.cancel()
			time.Sleep(r.conf.hintMaxAge)
			synctest.Wait()
		}
		w.setPool(r, quotient.Pool{Replicas: w.total(), Ordinal: 0})
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	for _, r := range w.fleet {
		r.drain()
	}
	for range 40 {
		for _, r := range w.fleet {
			r.drain()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
	}
	for _, r := range w.fleet {
		r.drain()
		if !r.conf.learns && len(r.calls) > 0 {
			c := r.calls[0]
			e := r.l.Explain(nameOf(c.key))
			w.broken("bound 7: replica %d %s: %d wait for ever, the first for %v: %s", r.id, c.key,
				len(r.calls), c.n, strings.ReplaceAll(e.String(), "\n", " "))
		}
		r.fired = quotient.CountsOf(r.l).Fired
		w.setLimit(r, quotient.Limit{})
		for plan := range r.plans {
			w.setPlan(r, plan, quotient.Limit{})
		}
		for key := range r.l.Overrides() {
			if err := r.l.Override(key, nil); err != nil {
				w.Fatal(err)
			}
		}
		synctest.Wait()
		r.drain()
		if len(r.calls) > 0 {
			w.broken("bound 7: replica %d: %d wait under no limit", r.id, len(r.calls))
		}
	}
}
