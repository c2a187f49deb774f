package quotient

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

func override(t *testing.T, l *Limiter, key string, limit *Limit) {
	t.Helper()
	must(t, l.Override(key, limit))
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
		says(t, l.Override("k", &Limit{InFlight: 2}), "Override", `"k"`, "only be denied")
		override(t, l, "k", deny)
		refusedFor(t, l, ReasonDenied, "k")
		says(t, l.Override("k", &Limit{InFlight: 2}), "only be denied")
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

func TestAfterAnOverride(t *testing.T) {
	// Events taken under one limit are not given back under another, also where the key has refilled in between
	// and is back under the first: its era is the old one again.
	row(t, "override gives nothing back that it did not take", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 100)))
		p := upTo(t, l, "k", 100, 100)
		override(t, l, "k", ptr(Rates(perSecond(1e6, 100))))
		time.Sleep(ms)
		override(t, l, "k", nil)
		wants(t, l, "k", 100)
		correct(t, p, 0)
		wants(t, l, "k", 0)
	})
	// A loan of slots has a controller, which the share, of no slot, has not.
	row(t, "an override after a loan", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 1}, Replicas(2), Policy(policy.AIMD{}))
		l.Allow("k")
		is(t, "is lent", Lend(l, "k", 1, time.Second), true)
		time.Sleep(2 * time.Second)
		must(t, l.Override("k", &Limit{InFlight: 4}))
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
		says(t, l.Override("third", deny), "Override", `"third"`, "2 keys")
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
	l := mustNew(t, Rates(Rate{Events: 1, Per: time.Hour, Burst: 1, NoTurns: true}), MaxKeys(10))
	refused := 0
	for i := range 100 {
		k := key(i)
		if l.Override(k, ptr(Rates(Rate{Events: 1, Per: time.Hour, Burst: 2}))) != nil {
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
			opts: []Option{AwaitPool(), HintMaxAge(time.Minute)}},
		{name: "its own limit", limit: deny, own: true},
		{name: "its own limit, then a plan", limit: deny, own: true, opts: []Option{plan(three)}, to: "p"},
		{name: "its own limit, a reset of another key", limit: deny, own: true,
			then: func(_ *testing.T, l *Limiter) { l.Reset("another") }},
		{name: "its own limit, set twice", limit: deny, own: true, then: func(t *testing.T, l *Limiter) {
			must(t, l.Override("k", &deny))
			must(t, l.Override("k", nil))
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
					must(t, l.Override("k", &three))
				}
				is(t, "at first", ask(l, row.from), 3)
				if must(t, l.Override("k", nil)); row.then != nil {
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
