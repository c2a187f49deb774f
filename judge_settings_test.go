package quotient_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
)

// The steps of TestPropertyEverything that change what a limiter or the fleet is set to.

// drawUnit is the index of a unit that calls use.
func (w *world) drawUnit() int {
	if w.chance(8, "another unit") {
		return 2
	}
	return 1
}

func (w *world) drawRate(label string) quotient.Rate {
	t := w.T
	r := quotient.Rate{Name: among(t, []string{"a", "b", "c"}, label+" name")}
	if w.costs {
		r.Unit = among(t, w.units, label+" unit")
	}
	kind := pick(t, 0, 9, label+" kind")
	switch {
	case kind < w.windows:
		r.Aligned = true
		r.Events = w.drawEvents(label)
		r.Per = time.Duration(among(t, []int{1, 5, 10, 60}, label+" per")) * time.Second
		r.Counted = w.counted > 0 && pick(t, 0, 9, label+" counted") < w.counted
	case kind < w.windows+w.paced:
		r.Events, r.Burst = 1, 1
		r.Per = time.Duration(among(t, []int{30, 100, 1000, 5000}, label+" per")) * time.Millisecond
		r.NoTurns = w.chance(3, label+" no turns")
	default:
		r.Events = float64(pick(t, 1, 20, label+" events"))
		r.Per = time.Duration(among(t, w.pers, label+" per")) * time.Millisecond
		r.Burst = among(t, w.bursts, label+" burst")
	}
	return r
}

func (w *world) drawLimit(label string) quotient.Limit {
	var limit quotient.Limit
	for i := range pick(w.T, 0, w.rates, label+" rates") {
		r := w.drawRate(fmt.Sprint(label, " ", i))
		if !slices.ContainsFunc(limit.Rates, func(o quotient.Rate) bool {
			return o.Name == r.Name && o.Unit == r.Unit
		}) {
			limit.Rates = append(limit.Rates, r)
		}
	}
	if pick(w.T, 0, 9, label+" has slots") < w.slots {
		limit.InFlight = pick(w.T, 1, 7, label+" slots")
	}
	return limit
}

func (w *world) limit(r *replica) {
	limit := w.drawLimit("limit")
	if w.counted > 0 && coin(w.T, "only other windows") {
		limit = w.otherWindows(r.limit)
	}
	if w.chance(10, "deny") {
		limit = quotient.Limit{Deny: true}
	}
	for _, o := range w.fleet {
		if o == r || w.fleet[0].conf.awaits || w.chance(4, "all") {
			w.setLimit(o, limit)
		}
	}
}

func (w *world) setLimit(r *replica, limit quotient.Limit) {
	w.tell("replica %d: limit %s", r.id, describe(limit))
	if err := r.l.SetLimit(limit); err != nil {
		w.Fatal(err)
	}
	r.limit = limit
	r.learn(limit)
	r.note(item{at: time.Now(), base: &limit})
	w.changes()
}

// setPlan gives a plan another limit.
func (w *world) setPlan(r *replica, plan string, limit quotient.Limit) {
	w.tell("replica %d: plan %s %s", r.id, plan, describe(limit))
	if err := r.l.SetPlan(plan, &limit); err != nil {
		w.Fatal(err)
	}
	r.learn(limit)
	r.note(item{at: time.Now(), base: &limit, plan: plan})
	w.changes()
}

func (w *world) override(o op, r *replica) {
	key := nameOf(w.drawKey())
	var own *quotient.Limit
	switch {
	case o == opDeny:
		limit := quotient.Limit{Deny: true}
		own = &limit
	case w.chance(2, "own"):
		limit := w.drawLimit("own")
		own = &limit
	}
	if own == nil && r.limit.Deny {
		return // which rules are in force then is not promised
	}
	if known := r.known; own != nil && !r.learn(*own) {
		r.known = known
		return // to learn a unit is a change of the limiter's limit too, at the same instant
	}
	err := r.l.Override(key, own)
	text := "none"
	if own != nil {
		text = describe(*own)
	}
	w.tell("replica %d %s: its own limit %s: %v", r.id, key, text, err)
	k := r.key(key)
	if err != nil || own == nil && !k.owned {
		return
	}
	k.owned = own != nil
	k.items = append(k.items, item{at: time.Now(), setsOwn: true, own: own})
	w.changes()
}

// reset forgives a key. Its history starts fresh but for the slots of permits that are out. It gives what was
// not there, so that the fleet's bound starts fresh for the key too.
func (w *world) reset(r *replica) {
	key := nameOf(w.drawKey())
	known := r.l.Reset(key)
	w.tell("replica %d %s: reset: %v", r.id, key, known)
	if remembered := r.l.Explain(key).Remembered; known != remembered {
		w.broken("replica %d %s: remembered is %v, and Reset reports %v", r.id, key, remembered, known)
	}
	if !known {
		return
	}
	for _, plan := range planNames {
		k := r.key(strings.TrimSuffix(key+"/"+plan, "/"))
		k.items = append(k.items, item{at: time.Now(), never: slices.Clone(r.base)})
	}
	w.events = slices.DeleteFunc(w.events, func(e fleetEvent) bool { return e.key == key })
}

func (w *world) drawPool() quotient.Pool {
	p := quotient.Pool{Replicas: pick(w.T, 1, 7, "replicas")}
	weight := pick(w.T, 1, min(w.heavy, p.Replicas), "weight of a replica")
	p.Ordinal = pick(w.T, 0, p.Replicas-weight+1, "ordinal")
	p.Weight = plain(weight)
	p.Fixed = p.Ordinal > 0 && coin(w.T, "fixed")
	return p
}

func (w *world) pool(o op, r *replica) {
	p := w.drawPool()
	w.lied, r.words = w.lied || p.Fixed, true
	if o == opPool {
		w.setPool(r, p)
		return
	}
	ttl := time.Duration(pick(w.T, 1, 9, "ttl"))*time.Second + 17
	w.tell("replica %d: SetPool %+v %v", r.id, p, ttl)
	if err := r.l.SetPool(p, ttl); err != nil {
		w.Fatal(err)
	}
}

func (w *world) setPool(r *replica, p quotient.Pool) {
	w.tell("replica %d: SetPool %+v", r.id, p)
	if err := r.l.SetPool(p, 0); err != nil {
		w.Fatal(err)
	}
}

// truth is what a source reports to a replica that sees the fleet as it is.
func (w *world) truth(r *replica) quotient.Pool {
	p := quotient.Pool{Replicas: w.total(), Ordinal: 1, Fixed: w.fixed, Weight: plain(r.weight)}
	for _, o := range w.fleet[:slices.Index(w.fleet, r)] {
		p.Ordinal += o.weight
	}
	if w.fixed {
		p.Ordinal = r.first
		p.Replicas = max(p.Replicas, p.Ordinal+r.weight-1)
	}
	return p
}

// hint has a replica's source say something. A replica that has none follows one from now on.
func (w *world) hint(o op, r *replica) {
	if r.source == nil {
		ctx, cancel := context.WithCancel(context.Background())
		r.source = &source{cancel: cancel, ended: make(chan error, 1)}
		go func(s *source) { s.ended <- r.l.Follow(ctx, s) }(r.source)
		synctest.Wait()
	}
	switch o {
	case opTell:
		for _, x := range w.fleet {
			if x == r || x.source != nil && w.chance(2, "all get it") {
				w.report(x, w.truth(x))
			}
		}
	case opLie:
		p := w.truth(r)
		p.Replicas = max(p.Ordinal+r.weight-1, pick(w.T, 1, 9, "lie"))
		w.report(r, p)
	case opGarbage:
		bad := among(w.T, []quotient.Pool{
			{},
			{Replicas: -3},
			{Replicas: 1 << 40},
			{Replicas: 2, Ordinal: 3},
			{Replicas: 2, Ordinal: -1},
			{Replicas: 2, Weight: 3},
			{Replicas: 2, Weight: -1},
			{Replicas: 4, Ordinal: 4, Weight: 2},
		}, "garbage")
		before := r.l.Stats().Pool
		w.tell("replica %d gets %+v", r.id, bad)
		var err error
		if w.chance(2, "fails") {
			bad, err = w.truth(r), errors.New("no answer")
		}
		r.source.report(bad, err)
		after := r.l.Stats().Pool
		if after.Pool != before.Pool || after.Errors+after.Rejected != before.Errors+before.Rejected+1 {
			w.broken("bound 9: %+v, after garbage %+v", before, after)
		}
	}
}

func (w *world) report(r *replica, p quotient.Pool) {
	w.tell("replica %d gets %+v", r.id, p)
	r.seen = append(r.seen, report{time.Now(), p})
	r.source.report(p, nil)
}

// stepClock sets the wall clock of a replica.
func (w *world) stepClock(r *replica) {
	by := time.Duration(among(w.T, []int{-3600, -60, -10, -3, -1, 1, 3, 10, 60, 3600}, "step")) * time.Second
	by += time.Duration(among(w.T, []int{0, 0, 1, 500, 999}, "step ms")) * time.Millisecond
	offset := r.clock.set(by)
	w.tell("replica %d: the wall clock is set by %v, to %v off", r.id, by, offset)
	r.stepped = true
	r.note(item{at: time.Now(), step: &offset})
	w.changes()
}

func (w *world) membership(o op, r *replica) {
	if o == opLeave {
		if len(w.fleet) == 1 {
			return
		}
		if w.fixed {
			r = w.fleet[len(w.fleet)-1]
		}
		w.tell("replica %d leaves", r.id)
		for _, c := range r.calls {
			c.cancel()
		}
		if r.source != nil {
			r.source.cancel()
		}
		_ = r.l.SetPool(quotient.Pool{Replicas: 1}, 0)
		synctest.Wait()
		w.fleet = slices.DeleteFunc(w.fleet, func(o *replica) bool { return o == r })
		if w.fixed {
			w.born = r.id
		}
		w.changes()
		return
	}
	if len(w.fleet) == w.replicas {
		return
	}
	weight := pick(w.T, 1, w.heavy, "weight of a replica")
	p := quotient.Pool{Replicas: w.total() + weight, Weight: plain(weight)}
	if last := w.fleet[len(w.fleet)-1]; w.fixed {
		p.Ordinal, p.Fixed = last.first+last.weight, true
		p.Replicas = max(p.Replicas, p.Ordinal+weight-1)
	}
	x := w.start(w.fleet[0].limit, w.fleet[0].conf, p, true)
	w.begin(x)
}

func (w *world) setHook(r *replica) {
	if !r.conf.hooked || r.dry {
		return
	}
	var h hook
	switch pick(w.T, 0, 4, "hook") {
	case 0, 1:
		h.sleepOnWait = among(w.T, []time.Duration{40 * time.Millisecond, time.Second, 5 * time.Second},
			"slow")
	case 2:
		h.panicOnAdmit = true
	case 3:
		h.panicOnWait = true
	}
	r.hang(h)
	for _, c := range r.calls {
		c.slow = c.slow || h != hook{}
	}
	w.tell("replica %d: hooks %+v", r.id, h)
}
