package quotient

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

func override(t *testing.T, l *Limiter, key string, limit *Limit) {
	t.Helper()
	must(t, l.Override(key, limit, 0))
}

func ptr[T any](v T) *T { return &v }

var deny = &Limit{Deny: true}

func TestOverride(t *testing.T) {
	row(t, "reaches waiters", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 1)))
		wants(t, l, "k", 1)
		first, second := asking(t, l, "k"), asking(t, l, "k")
		override(t, l, "k", ptr(Rates(perSecond(10, 1))))
		time.Sleep(100 * ms)
		first.admittedAfter(t, 100*ms)
		second.waits(t)
		override(t, l, "k", deny)
		second.refusedAfter(t, 100*ms, ReasonDenied)
		refusedFor(t, l, ReasonDenied, "k")
		override(t, l, "k", nil)
		time.Sleep(time.Second)
		wants(t, l, "k", 1)
	})
	row(t, "brings its clock, or the wall's, where the limiter itself needs none", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 3})
		took(t, l, "k").Release()
		override(t, l, "k", ptr(Rates(perSecond(5, 5))))
		wants(t, l, "k", 5)
		time.Sleep(time.Second)
		wants(t, l, "k", 5)
		override(t, l, "k", ptr(Rates(aligned(7, time.Second))))
		time.Sleep(time.Second)
		wants(t, l, "k", 7)
		is(t, "under an aligned rate", l.clock.Load(), clockWall)
		override(t, l, "k", nil)
		is(t, "under slots alone", l.clock.Load(), clockNone)
		setLimit(t, l, Limit{InFlight: 2})
		is(t, "under other slots", l.clock.Load(), clockNone)
	})
	row(t, "may have a unit, which any key may ask for then", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(10, 10)))
		override(t, l, "k", ptr(Rates(tokensPerMinute(60, 60))))
		took(t, l, "k", Cost("tokens", 60))
		refusedFor(t, l, ReasonRate, "k", Cost("tokens", 1))
		took(t, l, "other", Cost("tokens", 1000))
	})
	row(t, "stands above a controller", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(10, 10)), Policy(policy.Tracking{}), BeyondShare())
		for _, c := range []struct {
			own  *Limit
			want string // the controllers' limits, by unit
		}{
			{ptr(Rates(perSecond(4, 4))), "4 "}, {&Limit{InFlight: 2}, "+Inf 2 in-flight"}, {nil, "10 "},
		} {
			override(t, l, "k", c.own)
			e, got := l.Explain("k"), []string{}
			for _, x := range e.ctrls() {
				got = append(got, fmt.Sprint(x.Limit, " ", x.Unit))
			}
			is(t, c.want, strings.Join(got, ""), c.want)
			is(t, "overridden", e.Overridden, c.own != nil)
		}
	})
	// The key would have its limit twice with a gate of its own. It goes back to that gate afterwards.
	row(t, "denies a key in the overflow gate, and nothing else", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 2}, MaxKeys(1))
		took(t, l, "busy")
		p := took(t, l, "k")
		took(t, l, "k")
		waiter, other := asking(t, l, "k"), asking(t, l, "other")
		says(t, l.Override("k", &Limit{InFlight: 2}, 0), "Override", `"k"`, "only be denied")
		override(t, l, "k", deny)
		refusedFor(t, l, ReasonDenied, "k")
		says(t, l.Override("k", &Limit{InFlight: 2}, 0), "only be denied")
		override(t, l, "k", nil)
		stats(t, l, "Keys", 1, "Overrides", 0)
		refusedFor(t, l, ReasonKeys, "k")
		p.Release()
		waiter.refusedAfter(t, 0, ReasonDenied)
		other.admittedAfter(t, 0)
	})
	// They are limited more than due.
	row(t, "is of one key, also where two of one hash share a gate", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 5)), WithHash(func(string) uint64 { return 7 }))
		took(t, l, "a")
		wants(t, l, "b", 4)
		time.Sleep(5 * time.Second)
		override(t, l, "b", deny)
		refusedFor(t, l, ReasonDenied, "b")
		for i := range 5 {
			is(t, i, l.Check("a").OK, true)
			took(t, l, "a")
		}
		refusedFor(t, l, ReasonKeys, "a") // through the gate of keys without room
		override(t, l, "b", nil)
		override(t, l, "a", ptr(Rates(perSecond(10, 20))))
		time.Sleep(5 * time.Second)
		wants(t, l, "a", 20)
		wants(t, l, "b", 5)
	})
}

// TestOverrideEnds: a limit of a key's own ends as if it had been removed at that instant.
func TestOverrideEnds(t *testing.T) {
	pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() } // for the timer
	row(t, "and waiters are served, or refused, by the limiter's limit", func(t *testing.T) {
		log := recording()
		l := mustNew(t, Rates(perSecond(2, 3)), Logger(slog.New(log)))
		until := time.Now().Add(time.Minute)
		must(t, l.Override("k", &Limit{InFlight: 1}, time.Minute))
		defer took(t, l, "k").Release()
		first, second := asking(t, l, "k"), asking(t, l, "k")
		e := l.Explain("k")
		is(t, "Explain's end", e.Until, until)
		is(t, "the end in words", strings.Contains(e.String(), " (its own, until 00:01:00); "), true)
		is(t, "Overrides' end", l.Overrides()["k"].Until, until)
		stats(t, l, "Version", 1, "Overrides", 1)
		pass(time.Minute)
		first.admittedAfter(t, time.Minute)
		second.admittedAfter(t, time.Minute)
		is(t, "overridden", l.Explain("k").Overridden, false)
		is(t, "Explain's end after it", l.Explain("k").Until, time.Time{})
		is(t, "Overrides", len(l.Overrides()), 0)
		stats(t, l, "Version", 2, "Overrides", 0)
		must(t, l.Override("k", &Limit{InFlight: 4}, time.Minute))
		four := asking(t, l, "k", Weight(4))
		pass(time.Minute)
		four.refusedAfter(t, time.Minute, ReasonTooLarge)
		log.wrote(t, "0s INFO override set key=k limit=in flight: 1 until=2000-01-01 00:01:00 +0000 UTC was=none",
			"1m0s INFO override ended key=k limit=none was=in flight: 1",
			"1m0s INFO override set key=k limit=in flight: 4 until=2000-01-01 00:02:00 +0000 UTC was=none",
			"2m0s INFO override ended key=k limit=none was=in flight: 4")
	})
	row(t, "and waiters are served, or refused, by the one for good that it stands over", func(t *testing.T) {
		log := recording()
		l := mustNew(t, *deny, Logger(slog.New(log)))
		override(t, l, "k", ptr(Rates(perSecond(2, 3))))
		must(t, l.Override("k", &Limit{InFlight: 4}, time.Minute))
		defer took(t, l, "k", Weight(4)).Release()
		second, four := asking(t, l, "k"), asking(t, l, "k", Weight(4))
		const words = " (its own, until 00:01:00, then second: 2 per 1s, burst 3); "
		is(t, "what follows", strings.Contains(l.Explain("k").String(), words), true)
		pass(time.Minute)
		second.admittedAfter(t, time.Minute)
		four.refusedAfter(t, time.Minute, ReasonTooLarge)
		wants(t, l, "k", 2)
		stats(t, l, "Version", 3, "Overrides", 1)
		log.wrote(t, "0s INFO override set key=k limit=second: 2 per 1s, burst 3 was=none",
			"0s INFO override set key=k limit=in flight: 4 until=2000-01-01 00:01:00 +0000 UTC "+
				"was=second: 2 per 1s, burst 3",
			"1m0s INFO override ended key=k limit=second: 2 per 1s, burst 3 was=in flight: 4")
	})
	row(t, "and what it stands over has its clock then, and its units meanwhile", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 3})
		tokens := Rate{Unit: "tokens", Events: 7, Per: time.Second, Kind: Window}
		override(t, l, "k", ptr(Rates(tokens)))
		must(t, l.Override("k", &Limit{InFlight: 2}, 1500*ms))
		is(t, "the clock under slots", l.clock.Load(), clockNone)
		other := func(unit string) Rate { return Rate{Name: unit, Unit: unit, Events: 1, Per: time.Hour} }
		says(t, l.SetLimit(Rates(other("a"), other("b"), other("c"))), "one more than the 3 units", "tokens")
		pass(1500 * ms)
		is(t, "the clock under a window", l.clock.Load(), clockWall)
		for range 2 {
			took(t, l, "k", Cost("tokens", 7))
			refusedFor(t, l, ReasonRate, "k", Cost("tokens", 1))
			time.Sleep(500 * ms)
		}
		must(t, l.Override("k", deny, time.Second))
		pass(time.Second)
		took(t, l, "k", Cost("tokens", 7))
	})
	row(t, "as Overrides says also while the timer is late", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 9})
		override(t, l, "k", &Limit{InFlight: 2})
		for _, key := range []string{"k", "none"} {
			must(t, l.Override(key, &Limit{InFlight: 1}, time.Second))
		}
		l.overrides.timer.Stop()
		time.Sleep(time.Second)
		is(t, "Overrides", fmt.Sprint(l.Overrides()), fmt.Sprint(map[string]KeyLimit{"k": {Limit: Limit{InFlight: 2}}}))
		override(t, l, "k", nil)
		pass(0)
		stats(t, l, "Overrides", 0)
	})
	row(t, "over what has been set beneath it meanwhile", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 9})
		beneath := func(limit *Limit) { must(t, l.overrideBeneath("k", limit)) }
		slots := func(n int) *Limit { return &Limit{InFlight: n} }
		beneath(slots(1))
		beneath(slots(2))
		is(t, "for good", fmt.Sprint(l.Overrides()["k"]), fmt.Sprint(KeyLimit{Limit: *slots(2)}))
		must(t, l.Override("k", ptr(Rates(perSecond(1, 3))), time.Second))
		took(t, l, "k")
		beneath(nil)
		is(t, "none beneath", l.Explain("k").Then, nil)
		beneath(deny)
		beneath(slots(4))
		says(t, l.overrideBeneath("k", slots(-1)), "InFlight")
		wants(t, l, "k", 2)
		is(t, "beneath", l.Explain("k").Then.InFlight, 4)
		pass(time.Second)
		is(t, "after it", l.Explain("k").Limit.InFlight, 4)
		beneath(nil)
		stats(t, l, "Overrides", 0)
	})
	row(t, "and what was taken counts", func(t *testing.T) {
		l := mustNew(t, Rates(Rate{Events: 3, Per: time.Hour}))
		must(t, l.Override("k", ptr(Rates(Rate{Name: "own", Events: 30, Per: time.Hour})), time.Second))
		wants(t, l, "k", 30)
		pass(time.Second)
		refusedFor(t, l, ReasonRate, "k")
		wants(t, l, "other", 3)
	})
	row(t, "in the plan of the key", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 1)), Plans(map[string]Limit{"paid": Rates(perSecond(1, 5))}))
		must(t, l.Override("k", deny, time.Second))
		refusedFor(t, l, ReasonDenied, "k", Plan("paid"))
		pass(time.Second)
		is(t, "admitted", admitted(l, "k", Plan("paid")), 5)
	})
	// The slots of a key's own limits are 1, 2 and so on; -1 removes them.
	row(t, "when the last Override of the key says, each at its own instant", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 9})
		all := map[string]struct {
			ttls []time.Duration
			want string // slots at once and after each second, with those that follow after that
		}{
			"a": {ttls: []time.Duration{3}, want: "1, 1, 1, 9, 9"},
			"b": {ttls: []time.Duration{1, 2}, want: "2, 2, 9, 9, 9"},
			"c": {ttls: []time.Duration{2, 1}, want: "2, 9, 9, 9, 9"},
			"d": {ttls: []time.Duration{1, 0}, want: "2, 2, 2, 2, 2"},
			"e": {ttls: []time.Duration{0, 4}, want: "2 then 1, 2 then 1, 2 then 1, 2 then 1, 1"},
			"f": {ttls: []time.Duration{1, -1}, want: "9, 9, 9, 9, 9"},
			"g": {ttls: []time.Duration{0, 1, 2}, want: "3 then 1, 3 then 1, 1, 1, 1"},
			"h": {ttls: []time.Duration{0, 2, 1, 0}, want: "4, 4, 4, 4, 4"},
			"i": {ttls: []time.Duration{0, 1, -1}, want: "9, 9, 9, 9, 9"},
			"j": {ttls: []time.Duration{0, 2, 0, 1}, want: "4 then 3, 3, 3, 3, 3"},
		}
		words := func(slots Limit, then *Limit) string {
			if then == nil {
				return fmt.Sprint(slots.InFlight)
			}
			return fmt.Sprint(slots.InFlight, " then ", then.InFlight)
		}
		got := map[string][]string{}
		for key, c := range all {
			for i, ttl := range c.ttls {
				if ttl < 0 {
					override(t, l, key, nil)
				} else {
					must(t, l.Override(key, &Limit{InFlight: 1 + i}, ttl*time.Second))
				}
			}
		}
		for range 5 {
			for key := range all {
				e := l.Explain(key)
				if own, has := l.Overrides()[key]; has || e.Overridden {
					is(t, key, words(own.Limit, own.Then), words(e.Limit, e.Then))
				}
				got[key] = append(got[key], words(e.Limit, e.Then))
			}
			pass(time.Second)
		}
		for key, c := range all {
			is(t, key, strings.Join(got[key], ", "), c.want)
			override(t, l, key, nil)
		}
		is(t, "ends that are kept", len(l.overrides.ends), 0)
	})
	row(t, "refuses what makes no sense", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 1})
		says(t, l.Override("k", deny, -1), "quotient: Override: ttl: -1ns is below 0")
		says(t, l.Override("k", nil, time.Second), "quotient: Override: ttl: 1s beside no limit")
		stats(t, l, "Version", 0, "Keys", 0)
	})
}

func TestAfterAnOverride(t *testing.T) {
	// Events taken under one limit are not given back under another, also where the key has refilled in between
	// and is back under the first: its era is the old one again.
	row(t, "override gives nothing back that it did not take", func(t *testing.T) {
		slow, fast := Rates(perSecond(1, 100)), Rates(perSecond(1e6, 100))
		for _, c := range [][3]*Limit{{&slow, &fast, nil}, {&fast, &slow, &slow}} { // at first, its own, and in the end
			l := mustNew(t, *c[0])
			p := upTo(t, l, "k", 100, 100)
			time.Sleep(ms)
			override(t, l, "k", c[1])
			time.Sleep(ms)
			override(t, l, "k", c[2])
			wants(t, l, "k", 100)
			correct(t, p, 0)
			wants(t, l, "k", 0)
		}
	})
	// A loan of slots has a controller, which the share, of no slot, has not.
	row(t, "an override after a loan", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 1}, Replicas(2), Policy(policy.AIMD{}))
		l.Allow("k")
		is(t, "is lent", l.lendKey("k", 1, time.Second), true)
		time.Sleep(2 * time.Second)
		must(t, l.Override("k", &Limit{InFlight: 4}, 0))
		is(t, "admits", l.Allow("k"), true)
	})
}

// Overridden keys are remembered beside MaxKeys, and count also while all others are busy.
func TestOverrideWhileAllKeysAreBusy(t *testing.T) {
	row(t, "before the override", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 1)), MaxKeys(4))
		for i := range 9 {
			l.Allow(key(i))
		}
		override(t, l, "evil", deny)
		override(t, l, "good", ptr(Rates(perSecond(1, 3))))
		refusedFor(t, l, ReasonDenied, "evil")
		says(t, l.Override("third", deny, 0), "Override", `"third"`, "2 keys")
		time.Sleep(time.Hour)
		for i := range 9 {
			l.Allow(key(i))
		}
		wants(t, l, "good", 3)
		refusedFor(t, l, ReasonDenied, "evil")
		if n := l.Stats().Keys; n > 6 {
			t.Errorf("%d keys, want at most 4 and 2", n)
		}
		override(t, l, "evil", nil)
		override(t, l, "third", deny)
		stats(t, l, "Overrides", 2)
		third := l.Explain("third")
		is(t, "third has its own limit and is denied", third.Overridden && third.Limit.Deny, true)
	})
	row(t, "after the override", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 1}, MaxKeys(4))
		override(t, l, "own1", deny)
		override(t, l, "own2", deny)
		for i := range 4 {
			l.TryAcquire(key(i))
		}
		stats(t, l, "Overflowed", 0, "Admitted", 4)
	})
}

// However often keys come and go, no more than MaxKeys and half of it are remembered.
func TestOverridesThatComeAndGo(t *testing.T) {
	l := mustNew(t, Rates(Rate{Events: 1, Per: time.Hour}), MaxKeys(10))
	refused := 0
	for i := range 100 {
		k := key(i)
		if l.Override(k, ptr(Rates(Rate{Events: 1, Per: time.Hour, Burst: 2})), 0) != nil {
			refused++
			continue
		}
		l.Allow(k)
		override(t, l, k, nil)
	}
	if n := l.Stats().Keys; n > 15 || refused == 0 {
		t.Errorf("%d keys, %d refused", n, refused)
	}
}

// A key takes the three that it may at once. What it has taken is not forgotten where everything is denied,
// also where nothing else was ever allowed.
func TestWhatWasTakenIsKeptUnderDeny(t *testing.T) {
	deny, three := Limit{Deny: true}, Rates(Rate{Events: 3, Per: time.Minute})
	plan := func(limit Limit) Option { return Plans(map[string]Limit{"p": limit}) }
	ask := func(l *Limiter, plan string) (n int) {
		for range 9 {
			if _, d := l.TryAcquire("k", Plan(plan)); d.OK {
				n++
			}
		}
		return n
	}
	for _, row := range []struct {
		name     string
		limit    Limit
		opts     []Option
		own      bool
		from, to string // plans
		then     func(*testing.T, *Limiter)
	}{
		{name: "its own limit, before the first pool", limit: three, own: true,
			opts: []Option{AwaitPool(time.Minute)}},
		{name: "its own limit", limit: deny, own: true},
		{name: "its own limit, then a plan", limit: deny, own: true, opts: []Option{plan(three)}, to: "p"},
		{name: "its own limit, a reset of another key", limit: deny, own: true,
			then: func(_ *testing.T, l *Limiter) { l.Reset("another") }},
		{name: "its own limit, set twice", limit: deny, own: true, then: func(t *testing.T, l *Limiter) {
			must(t, l.Override("k", &deny, 0))
			must(t, l.Override("k", nil, 0))
		}},
		{name: "its own limit, and a pool", limit: deny, own: true, then: func(t *testing.T, l *Limiter) {
			must(t, l.SetPool(Pool{Replicas: 1, Ordinal: 1}, 0))
		}},
		{name: "the limiter's, then a plan that denied", limit: three, opts: []Option{plan(deny)}, to: "p"},
		{name: "the limiter's, and back from such a plan", limit: three, opts: []Option{plan(deny)}, to: "p",
			then: func(_ *testing.T, l *Limiter) { ask(l, "p"); ask(l, "") }},
		{name: "a plan, then a limiter that denied", limit: deny, opts: []Option{plan(three)}, from: "p"},
	} {
		t.Run(row.name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T) {
				l := mustNew(t, row.limit, row.opts...)
				if l.belief.awaits {
					must(t, l.SetLimit(deny))
					must(t, l.SetPool(Pool{Replicas: 1}, 0))
				}
				if row.own {
					must(t, l.Override("k", &three, 0))
				}
				is(t, "at first", ask(l, row.from), 3)
				if must(t, l.Override("k", nil, 0)); row.then != nil {
					row.then(t, l)
				}
				if row.to == "" || row.limit.Deny == false {
					is(t, "denied", ask(l, row.to), 0)
				}
				if row.to == "" {
					must(t, l.SetLimit(three))
				} else {
					must(t, l.SetPlan(row.to, &three))
				}
				is(t, "then", ask(l, row.to), 0)
				time.Sleep(time.Minute)
				is(t, "a minute later", ask(l, row.to), 3)
			})
		})
	}
}

// admits fails unless so many calls of a plan are admitted at once, and no more.
func admits(t *testing.T, l *Limiter, key, plan string, n int) {
	t.Helper()
	for i := range n {
		if _, d := l.TryAcquire(key, Plan(plan)); !d.OK {
			t.Fatalf("%s in %q: refused after %d of %d: %+v", key, plan, i, n, d)
		}
	}
	refuses(t, l, key, Plan(plan))
}

// ofPlans is a limiter of 5 with plans of 10 and 100, each in as many seconds.
func ofPlans(t *testing.T, opts ...Option) *Limiter {
	t.Helper()
	plans := map[string]Limit{"free": Rates(perSecond(1, 10)), "paid": Rates(perSecond(1, 100))}
	return mustNew(t, Rates(perSecond(1, 5)), append([]Option{Plans(plans)}, opts...)...)
}

// Each call comes under the limit of its plan, and without one under the limiter's own.
func TestPlans(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := ofPlans(t)
		admits(t, l, "a", "free", 10)
		admits(t, l, "b", "paid", 100)
		admits(t, l, "c", "", 5)
		upTo(t, l, "d", 99, 10, Plan("free"))
		upTo(t, l, "e", 99, 5)
		for k := range l.Keys() {
			is(t, k.Key, k.Plan, map[string]string{"a": "free", "b": "paid", "d": "free"}[k.Key])
		}
		if e := l.Explain("b"); e.Plan != "paid" || e.Next.OK || e.Limit.Rates[0].Burst != 100 {
			t.Errorf("%+v", e)
		}
		if e := l.Explain("b", Plan("")); e.Plan != "" || e.Limit.Rates[0].Burst != 5 {
			t.Errorf("%+v", e)
		}
		free := Plan("free")
		is(t, "allocations", testing.AllocsPerRun(1000, func() { l.TryAcquire("k", free) }), 0)
	})
}

func TestSetPlan(t *testing.T) {
	// A plan's limit changes at once for all its keys, and for those that wait. A plan that is taken off leaves
	// the limiter's own limit.
	row(t, "set plan", func(t *testing.T) {
		l := ofPlans(t)
		admits(t, l, "a", "free", 10)
		free := asking(t, l, "a", Plan("free"), Weight(6))
		paid := asking(t, l, "a", Plan("paid"), Weight(95))
		must(t, l.SetPlan("free", &Limit{}))
		free.admittedAfter(t, 0)
		paid.waits(t)
		must(t, l.SetPlan("paid", &Limit{Deny: true}))
		paid.refusedAfter(t, 0, ReasonDenied)
		limit := Rates(perSecond(1, 7))
		must(t, l.SetPlan("free", &limit))
		admits(t, l, "b", "free", 7)
		must(t, l.SetPlan("free", nil))
		says(t, refusal("b", refusedFor(t, l, ReasonBadRequest, "b", Plan("free"))), "Plan", `"free"`)
		must(t, l.SetPlan("free", nil))
		must(t, l.SetPlan("none", nil))
		must(t, l.SetPlan("free", &limit))
		time.Sleep(2 * time.Second) // it was of 5 meanwhile
		admits(t, l, "c", "free", 7)
	})
	// Callers that wait in a plan that is taken off come under the limiter's own limit.
	row(t, "plan taken off while callers wait", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 5)), Plans(map[string]Limit{"slow": {InFlight: 1}}))
		p := took(t, l, "k", Plan("slow"))
		var calls []*call
		for range 6 {
			calls = append(calls, asking(t, l, "k", Plan("slow")))
		}
		must(t, l.SetPlan("slow", nil))
		time.Sleep(time.Second)
		for i, c := range calls {
			c.admittedAfter(t, time.Duration(i/5)*time.Second)
		}
		p.Release()
		inFlight(t, l, 0)
	})
	// Where the limiter denies, a key whose own limit was removed goes when it is as good as new.
	row(t, "lapsed limits make room", func(t *testing.T) {
		limit := Rates(Rate{Events: 5, Per: time.Second})
		l := mustNew(t, Limit{Deny: true}, Plans(map[string]Limit{"p": limit}), MaxKeys(100))
		for i := range 300 {
			key := fmt.Sprint(i)
			must(t, l.Override(key, &limit, 0))
			l.Allow(key)
			must(t, l.Override(key, nil, 0))
			time.Sleep(time.Hour)
			for j := range 20 {
				l.TryAcquire(fmt.Sprint("other", j), Plan("p"))
			}
		}
	})
}

// Keys of a plan that was taken off are in none until it is back, also where its limit was the limiter's own.
func TestKeysOfAPlanThatIsOff(t *testing.T) {
	own := Rates(perSecond(1, 5))
	l := mustNew(t, own, Plans(map[string]Limit{"same": own, "other": Rates(perSecond(1, 9))}))
	for _, name := range []string{"same", "other"} {
		took(t, l, "k", Plan(name))
		explained(t, l.Explain("k"), "(plan "+name+")")
		must(t, l.SetPlan(name, nil))
		is(t, "a plan that is off", strings.Contains(l.Explain("k").String(), "plan"), false)
		is(t, "the plan that the key is in", l.Explain("k").Plan, "")
		must(t, l.SetPlan(name, &own))
		is(t, "the plan that is back", l.Explain("k").Plan, name)
	}
}

func TestSetPlanRefuses(t *testing.T) {
	l := ofPlans(t)
	before := fmt.Sprint(l.Stats().Plans)
	for _, name := range []string{"", "Paid", strings.Repeat("a", 65)} {
		says(t, l.SetPlan(name, &Limit{}), "SetPlan", "name", "a-z")
	}
	says(t, l.SetPlan("free", &Limit{InFlight: -1}), "SetPlan", "InFlight", "-1")
	limit := Rates(perSecond(1, 10))
	must(t, l.SetPlan("free", &limit))
	is(t, "plans", fmt.Sprint(l.Stats().Plans), before)
	stats(t, l, "Version", 1)
	for i := range maxPlans - 2 {
		must(t, l.SetPlan(fmt.Sprint("p", i), &limit))
	}
	says(t, l.SetPlan("more", &limit), "SetPlan", `"more"`, "64")
	_, err := New(Limit{}, Plans(map[string]Limit{"Bad": {}}))
	says(t, err, "name", `"Bad"`)
	_, err = New(Limit{}, Plans(map[string]Limit{"bad": {InFlight: -1}}))
	says(t, err, "InFlight")
}

// A plan that is taken off gives up its place when another one needs it. Whoever is in it then comes under the
// limiter's own limit, with what is used.
func TestPlansTakePlaces(t *testing.T) {
	hourly, fast := Rates(Rate{Events: 5, Per: time.Hour}), Rates(perSecond(1000, 1000))
	renames := func(t *testing.T, l *Limiter, old, name string, limit Limit) {
		must(t, l.SetPlan(old, nil))
		must(t, l.SetPlan(name, &limit))
	}
	only := func(t *testing.T, own, a Limit) *Limiter {
		return mustNew(t, own, Plans(map[string]Limit{"a": a}), WithMostPlans(1))
	}
	row(t, "again and again", func(t *testing.T) {
		l := mustNew(t, fast, Plans(map[string]Limit{"p0": hourly}))
		upTo(t, l, "k", 5, 5, Plan("p0"))
		for i := range 3 * maxPlans {
			name := fmt.Sprint("p", i+1)
			renames(t, l, fmt.Sprint("p", i), name, hourly)
			upTo(t, l, "k", 9, 0, Plan(name))
			upTo(t, l, name, 9, 5, Plan(name))
		}
		s, h := l.lock("k")
		is(t, "that the key was in", len(s.find(h).ext.plans) <= maxPlans, true)
		s.mu.Unlock()
	})
	for _, own := range []Limit{hourly, {Deny: true}} {
		row(t, "a key that is in it, beside "+own.String(), func(t *testing.T) {
			l := only(t, own, hourly)
			upTo(t, l, "k", 5, 5, Plan("a"))
			renames(t, l, "a", "b", fast)
			is(t, "the plan of the key", l.Explain("k").Plan, "")
			time.Sleep(time.Minute)
			setLimit(t, l, hourly)
			upTo(t, l, "k", 9, 0)
			renames(t, l, "b", "c", hourly)
			upTo(t, l, "k", 9, 0, Plan("c"))
		})
	}
	row(t, "a key that was in it, and in none", func(t *testing.T) {
		for _, last := range []string{"", "a", "z"} {
			two := Rates(Rate{Events: 2, Per: time.Hour})
			l := mustNew(t, hourly, Plans(map[string]Limit{"a": two, "z": fast}), WithMostPlans(2))
			upTo(t, l, "k", 1, 1)
			upTo(t, l, "k", 2, 2, Plan("a"))
			l.TryAcquire("k", Plan(last))
			renames(t, l, "a", "b", fast)
			upTo(t, l, "k", 9, 0)
			time.Sleep(12 * time.Minute)
			upTo(t, l, "k", 9, 1)
		}
	})
	row(t, "callers that wait", func(t *testing.T) {
		l := only(t, hourly, hourly)
		upTo(t, l, "k", 5, 5, Plan("a"))
		waiter, large := asking(t, l, "k", Plan("a")), asking(t, l, "k", Plan("a"), Weight(5))
		renames(t, l, "a", "b", fast)
		time.Sleep(time.Hour + 12*time.Minute)
		waiter.admittedAfter(t, 12*time.Minute)
		large.admittedAfter(t, time.Hour+12*time.Minute)
	})
	row(t, "a permit that is corrected", func(t *testing.T) {
		l := only(t, tokenLimit(1, 10), tokenLimit(1, 100))
		p := took(t, l, "k", Plan("a"), Cost("tokens", 1))
		renames(t, l, "a", "b", tokenLimit(1, 100))
		must(t, p.Correct("tokens", 11))
		is(t, "the plan of the key", l.Explain("k").Plan, "")
		is(t, "room", l.Check("k", Cost("tokens", 1)).OK, false)
	})
}

// A key that changes its plan keeps what it has used.
func TestPlansKeepWhatIsUsed(t *testing.T) {
	type play = func(t *testing.T, l *Limiter)
	rates := [2]Limit{Rates(perSecond(1, 10)), Rates(perSecond(1, 100))}
	tokens := [2]Limit{tokenLimit(1, 10), tokenLimit(1, 100)}
	paid := func(n int) play { return func(t *testing.T, l *Limiter) { upTo(t, l, "k", n, n, Plan("paid")) } }
	priced := func(t *testing.T, l *Limiter, plan string, cost, used int) {
		p := took(t, l, "k", Plan(plan), Cost("tokens", cost))
		must(t, p.Correct("tokens", used))
	}
	free := func(l *Limiter, n int) Decision { return l.Check("k", Plan("free"), Cost("tokens", n)) }
	for _, c := range []struct {
		name        string
		plans       [2]Limit // free and paid
		play        play
		free, more  int // that are left in free, and in paid then
		least, none int // tokens that free has, and has not; 0: not looked at
	}{
		{"a downgrade with much left", rates, paid(50), 10, 40, 0, 0},
		{"a downgrade with little left", rates, paid(96), 4, 0, 0, 0},
		{"an upgrade", rates, func(t *testing.T, l *Limiter) { upTo(t, l, "k", 10, 10, Plan("free")) },
			0, 90, 0, 0},
		{"there and back", rates, func(t *testing.T, l *Limiter) {
			upTo(t, l, "k", 10, 10, Plan("free"))
			upTo(t, l, "k", 40, 40, Plan("paid"))
		}, 0, 50, 0, 0},
		{"other names", [2]Limit{Rates(PerMinute(10)), Rates(PerHour(1000))}, func(t *testing.T, l *Limiter) {
			upTo(t, l, "k", 999, 999, Plan("paid")).Release()
			upTo(t, l, "k", 1, 1, Plan("free")).Release()
			time.Sleep(time.Minute) // free is full by now, and paid has got 16 back
			for range 9999 {
				l.Allow("other") // so that free would be forgotten
			}
		}, 10, 6, 0, 0},
		{"slots", [2]Limit{{InFlight: 3}, {InFlight: 5}}, paid(2), 1, 2, 0, 0},
		{"windows", [2]Limit{Rates(aligned(10, time.Minute)), Rates(aligned(100, time.Minute))}, paid(95),
			5, 0, 0, 0},
		{"a correction", tokens, func(t *testing.T, l *Limiter) { priced(t, l, "paid", 1, 95) },
			99, 99, 5, 6},
		{"a correction that counts in both", tokens, func(t *testing.T, l *Limiter) {
			took(t, l, "k", Plan("free"), Cost("tokens", 1))
			priced(t, l, "paid", 1, 97)
		}, 99, 99, 0, 3},
		{"a correction in another plan", [2]Limit{tokens[0], Rates(perSecond(1, 5))},
			func(t *testing.T, l *Limiter) {
				p := took(t, l, "k", Plan("free"), Cost("tokens", 0))
				took(t, l, "k", Plan("paid")) // which counts no tokens
				must(t, p.Correct("tokens", 9))
			}, 99, 4, 0, 2},
		{"more than there is", tokens, func(t *testing.T, l *Limiter) {
			priced(t, l, "paid", 1, 120)
			time.Sleep(10 * time.Second)
			is(t, "retry after", free(l, 1).RetryAfter, 11*time.Second)
		}, 99, 99, 0, 1},
	} {
		row(t, c.name, func(t *testing.T) {
			plans := Plans(map[string]Limit{"free": c.plans[0], "paid": c.plans[1]})
			l := mustNew(t, Rates(perSecond(1, 1)), plans, few)
			if c.play(t, l); c.none > 0 {
				is(t, "no room in free", free(l, c.none).OK, false)
				is(t, "room in free", c.least == 0 || free(l, c.least).OK, true)
			}
			upTo(t, l, "k", 99, c.free, Plan("free"))
			upTo(t, l, "k", 99, c.more, Plan("paid"))
		})
	}
}

func TestPlansCount(t *testing.T) {
	row(t, "all that the key was in, when a plan is new to it", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 3)),
			Plans(map[string]Limit{"a": Rates(perSecond(1, 2)), "b": Rates(perSecond(1, 3))}))
		upTo(t, l, "k", 1, 1)
		upTo(t, l, "k", 1, 1, Plan("a"))
		upTo(t, l, "k", 9, 1, Plan("b"))
		upTo(t, l, "k", 9, 0)
	})
	// Though another plan still misses it.
	row(t, "nothing again that has come back", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 1)), Plans(map[string]Limit{
			"fast":  Rates(perSecond(10, 5)),
			"daily": Rates(Rate{Events: 5, Per: 24 * time.Hour}),
		}))
		for range 5 {
			upTo(t, l, "k", 9, 5, Plan("fast"))
			upTo(t, l, "k", 9, 0, Plan("daily"))
			time.Sleep(time.Second)
			l.TryAcquire("k", Plan("fast"), Weight(9)) // is in the plan, and takes nothing
			upTo(t, l, "k", 9, 0, Plan("daily"))
		}
	})
}

func TestPlansAnd(t *testing.T) {
	// It goes before any plan, and is counted in the plans that the key was in.
	row(t, "a limit of its own", func(t *testing.T) {
		l := ofPlans(t)
		upTo(t, l, "k", 90, 90, Plan("paid"))
		override(t, l, "k", ptr(Rates(Rate{Name: "own", Events: 1, Per: time.Hour, Burst: 1000})))
		upTo(t, l, "k", 20, 10, Plan("free"))
		if e := l.Explain("k", Plan("paid")); !e.Overridden || e.Plan != "" ||
			e.Limit.Rates[0].Name != "own" {
			t.Errorf("%+v", e)
		}
		override(t, l, "k", nil)
		upTo(t, l, "k", 99, 0, Plan("paid"))
		upTo(t, l, "k", 99, 0)
		time.Sleep(3 * time.Second)
		upTo(t, l, "k", 99, 3, Plan("free"))
		upTo(t, l, "k", 99, 0, Plan("paid"))
		override(t, l, "k", deny)
		is(t, "denied", l.Check("k", Plan("paid")).Reason, ReasonDenied)
	})
	row(t, "a key that is forgiven, in all plans", func(t *testing.T) {
		l := ofPlans(t)
		upTo(t, l, "k", 99, 99, Plan("paid"))
		upTo(t, l, "k", 9, 1, Plan("free"))
		resets(t, l, "k")
		upTo(t, l, "k", 10, 10, Plan("free"))
		upTo(t, l, "k", 99, 90, Plan("paid"))
	})
	row(t, "the overflow gate, whose rest a key starts with in all plans", func(t *testing.T) {
		l := ofPlans(t, MaxKeys(1))
		upTo(t, l, "busy", 1, 1, Plan("paid")).Release()
		upTo(t, l, "k", 100, 100, Plan("paid")).Release()
		upTo(t, l, "k", 9, 0, Plan("free"))
		time.Sleep(2 * time.Second)
		upTo(t, l, "k", 100, 2, Plan("paid"))
		stats(t, l, "Overflowed", 2, "Evicted", 1)
	})
	row(t, "a queue, where each comes under its own plan, in order", func(t *testing.T) {
		l := ofPlans(t)
		upTo(t, l, "k", 10, 10, Plan("free"))
		var calls []*call
		for _, plan := range []string{"free", "paid", "paid"} {
			calls = append(calls, asking(t, l, "k", Plan(plan)))
		}
		time.Sleep(time.Second / 2)
		setLimit(t, l, Rates(perSecond(1, 6))) // the queue is looked at again
		time.Sleep(time.Second / 2)
		for _, c := range calls {
			c.admittedAfter(t, time.Second)
		}
	})
	// Looks in another plan change nothing.
	row(t, "a controller's knowledge, which stays", func(t *testing.T) {
		l := ofPlans(t, Policy(policy.AIMD{}))
		for range 3 {
			took(t, l, "k", Plan("paid")).Done(policy.Feedback{Outcome: policy.Throttled})
			time.Sleep(time.Minute)
		}
		took(t, l, "k", Plan("paid"))
		waiter := asking(t, l, "k", Plan("paid"), Weight(100))
		before := fmt.Sprintf("%+v", l.Explain("k"))
		for _, plan := range []string{"free", "", "paid"} {
			l.Check("k", Plan(plan))
			l.Explain("k", Plan(plan))
		}
		is(t, "after a look", fmt.Sprintf("%+v", l.Explain("k")), before)
		waiter.gaveUp(t)
		a, b := l.Explain("k", Plan("paid")).Rules[1], l.Explain("k", Plan("free")).Rules[1]
		if a.ForgottenIn == 0 || a.ForgottenIn != b.ForgottenIn || a.Pace != b.Pace || a.Pace >= 1 {
			t.Errorf("%+v in one plan, %+v in the other", a, b)
		}
	})
	row(t, "statistics, by name, with where a key never seen stands", func(t *testing.T) {
		log := recording()
		l := ofPlans(t, Logger(slog.New(log)), Replicas(2))
		log.wrote(t)
		all := l.Stats().Plans
		if free, paid := all["free"], all["paid"]; len(all) != 2 || len(paid.Rules) == 0 ||
			paid.Rules[0].Left != 50 || free.Limit.Rates[0].Burst != 10 {
			t.Fatalf("%+v", all)
		}
		stats(t, l, "Version", 0)
		must(t, l.SetPlan("paid", nil))
		delete(all, "paid")
		is(t, "without a plan", fmt.Sprint(l.Stats().Plans), fmt.Sprint(all))
		logged(t, log, "plan set plan=paid")
	})
}

// A call that names an unknown plan is warned of, whichever verb asks, and at most once a second. Other
// calls that are not valid are not, nor are mere looks.
func TestUnknownPlanIsWarnedOf(t *testing.T) {
	long := strings.Repeat("x", 65)
	for name, ask := range map[string]func(*Limiter, ...CallOption){
		"Acquire": func(l *Limiter, opts ...CallOption) {
			_ = l.acquiring("k", opts...)(context.Background())
		},
		"TryAcquire":     func(l *Limiter, opts ...CallOption) { l.TryAcquire("k", opts...) },
		"TryAcquireAll":  func(l *Limiter, opts ...CallOption) { TryAcquireAll(nil, Claim{l, "k", opts}) },
		"TryAcquireUpTo": func(l *Limiter, opts ...CallOption) { l.TryAcquireUpTo("k", 1, opts...) },
	} {
		row(t, name, func(t *testing.T) {
			var r Registry
			log := recording()
			l := limiterIn(t, &r, "api", Logger(slog.New(log)))
			must(t, l.SetPlan("paid", &Limit{}))
			ask(l, Plan("paid"))
			ask(l, Plan(""))
			ask(l, Cost("nothing", 1), Weight(1))
			l.Check("k", Plan("gold"))
			l.Explain("k", Plan("gold"))
			synctest.Wait()
			logged(t, log, "plan set limiter=api")
			must(t, l.SetPlan("paid", nil))
			log.take()
			for _, plan := range []string{"gold", "silver", "paid", long} {
				ask(l, Plan(plan), Weight(1))
			}
			time.Sleep(999 * ms)
			ask(l, Plan("silver"), Weight(1))
			time.Sleep(ms)
			ask(l, Plan(long), Weight(1))
			synctest.Wait()
			const text = "WARN a call names a plan that the limiter does not have limiter=api plan="
			log.wrote(t, "0s "+text+"gold", "1s "+text+long[:64]+"…")
			is(t, "refused", l.Stats().Refused[ReasonBadRequest], 7)
		})
	}
}

// admitted is how many of 20 calls are admitted.
func admitted(l *Limiter, key string, opts ...CallOption) (n int) {
	for range 20 {
		if _, d := l.TryAcquire(key, opts...); d.OK {
			n++
		}
	}
	return n
}

// TestNothingIsForgottenOnTheWay: what a key took counts after plans, limits of its own and a limiter that denies.
func TestNothingIsForgottenOnTheWay(t *testing.T) {
	hourly := func(unit string, n float64) Limit {
		return Rates(Rate{Name: "r" + unit, Unit: unit, Events: n, Per: time.Hour})
	}
	deny, slow, fast := Limit{Deny: true}, hourly("", 5), Rates(Rate{Name: "r", Events: 5, Per: time.Second})
	for name, more := range map[string]func(t *testing.T) int{
		"a lapsed limit, and a plan that has ended": func(t *testing.T) int {
			l := mustNew(t, deny, Plans(map[string]Limit{"q": fast, "p": slow}), WithMostPlans(2))
			admitted(l, "k", Plan("q"))
			must(t, l.Override("k", &slow, 0))
			time.Sleep(2 * time.Hour)
			admitted(l, "k")
			must(t, l.SetPlan("q", nil))
			must(t, l.Override("k", nil, 0))
			must(t, l.SetPlan("z", &slow))
			admitted(l, "k")
			time.Sleep(time.Second)
			must(t, l.SetLimit(slow))
			admitted(l, "k", Plan("p"))
			return admitted(l, "k")
		},
		"the place of a plan that ended under Deny is taken": func(t *testing.T) int {
			x := hourly("x", 3)
			l := mustNew(t, hourly("", 10), Plans(map[string]Limit{"p": x}), WithMostPlans(1))
			must(t, l.SetLimit(deny))
			admitted(l, "k", Plan("p"), Cost("x", 1))
			must(t, l.SetPlan("p", nil))
			must(t, l.SetPlan("z", &x))
			must(t, l.SetLimit(x))
			return admitted(l, "k", Cost("x", 1))
		},
		"a limit of its own that denies, removed under Deny": func(t *testing.T) int {
			l := mustNew(t, slow, Plans(map[string]Limit{"p": deny}))
			admitted(l, "k")
			l.TryAcquire("k", Plan("p"))
			must(t, l.Override("k", &deny, 0))
			must(t, l.SetLimit(deny))
			must(t, l.Override("k", nil, 0))
			must(t, l.SetLimit(slow))
			return admitted(l, "k")
		},
		"a plan begins to count": func(t *testing.T) int {
			c := Rate{Name: "w", Events: 10, Per: time.Minute, Kind: CountedWindow}
			counted := Rates(c)
			plans := Plans(map[string]Limit{"p": deny, "c": counted})
			l := mustNew(t, Limit{}, Replicas(2), Demand(5, time.Hour), plans)
			l.TryAcquire("k", Plan("c"))
			l.reportKey("k", c, 0, time.Hour)
			admitted(l, "k", Plan("c"))
			l.TryAcquire("k", Plan("p"))
			must(t, l.SetPlan("p", &counted))
			l.reportKey("k", c, 0, time.Hour)
			return admitted(l, "k", Plan("p"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T) {
				if n := more(t); n != 0 {
					t.Errorf("%d more are admitted", n)
				}
			})
		})
	}
}
