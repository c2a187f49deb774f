package quotient

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

func named(name string, r Rate) Rate {
	r.Name = name
	return r
}

func aligned(events float64, per time.Duration) Rate {
	return Rate{Name: "w", Events: events, Per: per, Kind: Window}
}

// A key takes everything, the limit changes once or more in the same instant, and the key asks again. Bound 1
// holds through every SetLimit.
func TestChangesBringNoTokens(t *testing.T) {
	five, ten, window := perSecond(1, 5), perSecond(1, 10), aligned(5, time.Minute)
	b, renamed, deny := named("b", ten), named("new", five), Limit{Deny: true}
	slots := Limit{Rates: []Rate{five}, InFlight: 3}
	for _, c := range []struct {
		name    string
		from    Limit
		changes []Limit
		want    int // admitted after the last change
	}{
		{"nothing changes", Rates(five), []Limit{Rates(five)}, 0},
		{"a raised burst", Rates(five), []Limit{Rates(ten)}, 0},
		{"up and down and up", Rates(five), []Limit{Rates(ten), Rates(five), Rates(ten)}, 0},
		{"a renamed rate", Rates(five), []Limit{Rates(renamed)}, 0},
		{"an added rate", Rates(five), []Limit{Rates(five, b)}, 0},
		{"an added rate, then the old one goes", Rates(five), []Limit{Rates(five, b), Rates(b)}, 0},
		{"another place", Rates(five, b), []Limit{Rates(b, five)}, 0},
		{"a removed rate leaves the other", Rates(five, b), []Limit{Rates(b)}, 5},
		{"slots come", Rates(five), []Limit{slots}, 0},
		{"deny for an instant", Rates(five), []Limit{deny, Rates(five)}, 0},
		{"a window of another length", Rates(window), []Limit{Rates(aligned(5, time.Hour))}, 0},
		{"a renamed window", Rates(window), []Limit{Rates(named("v", window))}, 0},
		{"a raised window counts at once", Rates(window), []Limit{Rates(aligned(8, time.Minute))}, 3},
		{"up and down again", Rates(window), []Limit{Rates(aligned(8, time.Minute)), Rates(window)}, 0},
		{"a bucket becomes a window", Rates(named("w", five)), []Limit{Rates(window)}, 0},
		{"a window becomes a bucket", Rates(window), []Limit{Rates(named("w", five))}, 0},
	} {
		row(t, c.name, func(t *testing.T) {
			l := mustNew(t, c.from)
			wants(t, l, "k", 5)
			for _, limit := range c.changes {
				setLimit(t, l, limit)
			}
			wants(t, l, "k", c.want)
		})
	}
}

// A debt stays what it is under another name, and where a bucket becomes a window or a window a bucket.
func TestRenamedRateKeepsItsDebt(t *testing.T) {
	bucket := tokensPerMinute(100, 100)
	window := Rate{Name: "w", Unit: "tokens", Events: 100, Per: time.Minute, Kind: Window}
	for name, c := range map[string][2]Rate{
		"a bucket": {bucket, named("new", bucket)}, "a window": {window, named("new", window)},
		"a window, then a bucket": {window, named("new", bucket)},
		"a bucket, then a window": {bucket, window},
	} {
		row(t, name, func(t *testing.T) {
			l := mustNew(t, Rates(c[0]))
			must(t, took(t, l, "k", Cost("tokens", 100)).Correct("tokens", 250))
			setLimit(t, l, Rates(c[1]))
			has(t, l, "k", -150)
		})
	}
}

// A unit that no limit has any more gives up its place when another one needs it.
func TestUnitsTakePlaces(t *testing.T) {
	inUnits := func(units ...string) (limit Limit) {
		for _, unit := range units {
			limit.Rates = append(limit.Rates, Rate{Unit: unit, Events: 5, Per: time.Hour})
		}
		return limit
	}
	for name, set := range map[string]func(*Limiter, Limit) error{
		"SetLimit": (*Limiter).SetLimit,
		"SetPlan":  func(l *Limiter, limit Limit) error { return l.SetPlan("p", &limit) },
		"Override": func(l *Limiter, limit Limit) error { return l.Override("k", &limit, 0) },
	} {
		row(t, name, func(t *testing.T) {
			l, plan := mustNew(t, Limit{}, Plans(map[string]Limit{"p": {}})), CallOption{}
			if name == "SetPlan" {
				plan = Plan("p")
			}
			for i := range 20 {
				if i == 3 {
					took(t, l, "k", plan, Cost("u0", 9)) // known, though nothing counts it now
				}
				unit := fmt.Sprint("u", i)
				must(t, set(l, inUnits(unit)))
				took(t, l, "k", plan, Cost(unit, 2))
				took(t, l, "k", plan, Cost(unit, 3))
				refusedFor(t, l, ReasonRate, "k", plan, Cost(unit, 1))
			}
			refusedFor(t, l, ReasonBadRequest, "k", plan, Cost("u0", 1))
			before := l.Stats().Version
			says(t, set(l, inUnits("a", "b", "c", "d")), "quotient: ", "].Unit", "3 units")
			stats(t, l, "Version", before)
		})
	}
	row(t, "not those of other limits", func(t *testing.T) {
		l := mustNew(t, inUnits("a"), Plans(map[string]Limit{"p": inUnits("b")}))
		override(t, l, "k", ptr(inUnits("c")))
		says(t, l.SetPlan("q", ptr(inUnits("d"))), "Rates[0].Unit", `"d"`, `"a" "b" "c"`)
		must(t, l.SetPlan("p", ptr(inUnits("d"))))
		override(t, l, "k", ptr(inUnits("d")))
		override(t, l, "k", ptr(inUnits("e")))
		setLimit(t, l, *deny)
		must(t, l.SetPlan("q", ptr(inUnits("f"))))
	})
	row(t, "those of a plan that is off", func(t *testing.T) {
		l := mustNew(t, inUnits("a", "b", "c"), Plans(map[string]Limit{"p": {}}))
		must(t, l.SetPlan("p", nil))
		setLimit(t, l, inUnits("d", "e", "f"))
	})
	// Rules that are kept under a limit that denies go on counting their units, wherever those are.
	row(t, "and is counted in another place", func(t *testing.T) {
		for _, ended := range []bool{false, true} {
			l := mustNew(t, inUnits("a", "b", "c"), Plans(map[string]Limit{"q": inUnits("a", "b", "c")}))
			if ended {
				l.chance.Plans = 1 // so that the limiter's own limit keeps the rules of this one
			}
			first := took(t, l, "k", Cost("c", 1), Plan(map[bool]string{true: "q"}[ended]))
			setLimit(t, l, *deny)
			must(t, l.SetPlan("q", nil))
			must(t, l.SetPlan("p", ptr(inUnits("d"))))
			says(t, refusal("k", refusedFor(t, l, ReasonBadRequest, "k", Cost("a", 1))), `"a"`)
			must(t, first.Correct("d", 5))
			must(t, l.SetPlan("p", ptr(inUnits("d", "a"))))
			took(t, l, "k", Plan("p"), Cost("a", 5))
			setLimit(t, l, inUnits("a"))
			refusedFor(t, l, ReasonRate, "k", Cost("a", 1))
		}
	})
	row(t, "nor what is asked for and taken of the old one", func(t *testing.T) {
		l := mustNew(t, inUnits("a", "b", "c"))
		p := took(t, l, "k", Cost("a", 5))
		c := asking(t, l, "k", Cost("a", 4))
		setLimit(t, l, inUnits("d", "b", "c"))
		c.admittedAfter(t, 0)
		must(t, p.Correct("d", 0))
		has(t, l, "k", 5)
		must(t, c.permit.Correct("d", 2))
		has(t, l, "k", 3)
		says(t, p.Correct("a", 1), `"a"`)
	})
}

func TestWaitersAndChanges(t *testing.T) {
	// A SetLimit that changes nothing must not open the share that a smaller pool brings.
	row(t, "same limit is no raise", func(t *testing.T) {
		limit := Rates(aligned(10, time.Minute))
		a := mustNew(t, limit, StartPool(Pool{Replicas: 2, Ordinal: 1, Fixed: true}))
		b := mustNew(t, limit, StartPool(Pool{Replicas: 2, Ordinal: 2, Fixed: true}))
		wants(t, a, "k", 5)
		wants(t, b, "k", 5) // b leaves
		must(t, a.SetPool(Pool{Replicas: 1, Ordinal: 1, Fixed: true}, 0))
		wants(t, a, "k", 0)
		setLimit(t, a, limit)
		wants(t, a, "k", 0)
	})
	// No key, however long untouched, holds on to more than so many changes.
	row(t, "many changes are replayed", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 5)), MaxKeys(4096))
		for i := range 500 {
			took(t, l, fmt.Sprint(i))
		}
		for i := range catchUp {
			setLimit(t, l, Rates(perSecond(float64(1+i%2), 5)))
		}
		for i := range 500 {
			key := fmt.Sprint(i)
			if g := gateOf(l, key); g != nil && g.setting != l.newest() {
				t.Fatalf("key %q holds on to an old setting", key)
			}
		}
		wants(t, l, "7", 4)
	})
}

// Permits of before a change are given back after it.
func TestLimitChangesUnderPermits(t *testing.T) {
	l := mustNew(t, Limit{InFlight: 4})
	old := took(t, l, "k", Weight(3))
	setLimit(t, l, Rates(perSecond(1, 5)))
	took(t, l, "k").Release()
	setLimit(t, l, Limit{InFlight: 2})
	refusedFor(t, l, ReasonInFlight, "k")
	old.Release()
	took(t, l, "k", Weight(2)).Release()
	inFlight(t, l, 0)
	if ks := gateOf(l, "k"); ks.used != 0 || ks.held != 0 {
		t.Errorf("%d used, %d held", ks.used, ks.held)
	}
}

// A gate keeps nothing of rates that are gone, and needs no extension for one rate, however often it changes.
func TestGatesStaySmall(t *testing.T) {
	l := mustNew(t, Rates(perSecond(10, 10), PerHour(1000)))
	took(t, l, "many")
	setLimit(t, l, Rates(perSecond(10, 10)))
	took(t, l, "many")
	took(t, l, "one")
	setLimit(t, l, Rates(PerHour(20)))
	l.Allow("one")
	if g := gateOf(l, "many"); g.ext == nil || len(g.ext.rest) > 0 {
		t.Errorf("the extension of a gate with one rate: %+v", g.ext)
	}
	is(t, "the extension of a gate", gateOf(l, "one").ext, nil)
}

func TestManyChangesReachTheOverflowGate(t *testing.T) {
	l := mustNew(t, Rates(PerHour(1)), MaxKeys(1))
	wants(t, l, "busy", 1)
	wants(t, l, "late", 1)
	for i := range catchUp {
		setLimit(t, l, Rates(PerHour(float64(1+i%2))))
	}
	if s := l.shard("late"); s.overflow.gate == nil || s.overflow.gate.setting != s.newest(0) {
		t.Error("the overflow gate holds on to an old setting")
	}
	wants(t, l, "late", 0)
}

func TestDryRun(t *testing.T) {
	row(t, "dry run", func(t *testing.T) {
		l := mustNew(t, Limit{Rates: []Rate{perSecond(1, 1), tokensPerMinute(60, 60)}, InFlight: 1})
		l.SetDryRun(true)
		p := took(t, l, "k")
		for range 3 {
			q := asking(t, l, "k", Cost("tokens", 9))
			q.admittedAfter(t, 0)
			must(t, q.permit.Correct("tokens", 5))
			q.permit.Release()
			took(t, l, "k")
			is(t, "goes on", l.Allow("k"), true)
			upTo(t, l, "k", 7, 7)
		}
		inFlight(t, l, 1)
		p.Release()
		setLimit(t, l, Limit{Deny: true})
		took(t, l, "k")
		asking(t, l, "k").admittedAfter(t, 0)
		refusedFor(t, l, ReasonBadRequest, "k", Weight(-1))
		is(t, "dry run", l.DryRun(), true)
		stats(t, l, "Admitted", 15, "Refused", map[Reason]uint64{ReasonBadRequest: 1},
			"DryRunAdmitted", map[Reason]uint64{ReasonInFlight: 12, ReasonDenied: 2})
		l.SetDryRun(false)
		refusedFor(t, l, ReasonDenied, "k")
	})
	row(t, "dry run lets waiters go", func(t *testing.T) {
		l := mustNew(t, Limit{Rates: []Rate{perSecond(1, 1)}, InFlight: 5})
		took(t, l, "k")
		var calls []*call
		for range 200 {
			calls = append(calls, asking(t, l, "k"))
		}
		l.SetDryRun(true)
		synctest.Wait()
		for _, c := range calls {
			c.admittedAfter(t, 0)
			c.permit.Release()
		}
		inFlight(t, l, 1)
		is(t, "let go", l.Stats().DryRunAdmitted[ReasonRate], 200)
		l.SetDryRun(false)
		time.Sleep(time.Second)
		wants(t, l, "k", 1)
		l = mustNew(t, Limit{InFlight: 1}) // one whose context fails then has come and gone
		took(t, l, "k")
		panics(t, func() {
			_, _ = l.Acquire(&hooked{t.Context(), func() { l.SetDryRun(true); panic("hook") }}, "k")
		})
		stats(t, l, "Admitted", 1, "Cancelled", 1, "DryRunAdmitted", map[Reason]uint64{})
	})
	row(t, "dry run while pool is awaited", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 1)), AwaitPool(time.Minute), Replicas(2))
		refusedFor(t, l, ReasonPool, "k")
		l.SetDryRun(true)
		took(t, l, "k")
		is(t, "let through", l.Stats().DryRunAdmitted[ReasonPool], 1)
	})
	// A dry run decides as always: TryAcquireUpTo takes what the real one would, and runs no bucket into debt.
	row(t, "dry run of try acquire up to owes nothing", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(100, 100)), Replicas(10))
		l.SetDryRun(true)
		l.TryAcquireUpTo("k", 100) // the real one: 10
		time.Sleep(time.Second)    // 10 more
		for range 10 {
			l.Allow("k")
		}
		is(t, "stopped though the real limiter admits", l.Stats().DryRunAdmitted[ReasonRate], 0)
	})
}

// A setting is stricter where some who wait may have to be refused for good, whatever place the rule has.
func TestStricterSettings(t *testing.T) {
	a, b := Rate{Name: "a", Events: 1, Per: time.Second, Burst: 10},
		Rate{Name: "b", Events: 1, Per: time.Second, Burst: 20}
	lower, slower := a, a
	lower.Burst, slower.Events = 9, .5
	for _, c := range []struct {
		name          string
		before, after Limit
		want          bool
	}{
		{"nothing changes", Rates(a, b), Rates(a, b), false},
		{"the only rule stays", Rates(a), Rates(a), false},
		{"the first burst is lowered", Rates(a, b), Rates(lower, b), true},
		{"the last burst is lowered", Rates(b, a), Rates(b, lower), true},
		{"the first burst is raised", Rates(lower, b), Rates(a, b), false},
		{"a rate is slowed", Rates(a), Rates(slower), false},
		{"rules change places", Rates(a, b), Rates(b, a), false},
		{"rules change places, and a burst is lowered", Rates(a, b), Rates(b, lower), true},
		{"a new rule comes first", Rates(a), Rates(b, a), true},
		{"a new rule comes last", Rates(a), Rates(a, b), true},
		{"a rule goes", Rates(a, b), Rates(b), false},
		{"slots where there were none", Rates(a), Limit{Rates: []Rate{a}, InFlight: 5}, true},
		{"fewer slots", Limit{InFlight: 5}, Limit{InFlight: 4}, true},
		{"as many slots", Limit{InFlight: 5}, Limit{InFlight: 5}, false},
		{"more slots", Limit{InFlight: 5}, Limit{InFlight: 6}, false},
		{"no slots any more", Limit{InFlight: 5}, Limit{}, false},
		{"deny", Rates(a), Limit{Deny: true}, true},
		{"deny no more", Limit{Deny: true}, Limit{}, false},
	} {
		o, v := defaults(), belief{pool: Pool{Replicas: 1}}
		if got := o.resolve(c.after, v, nil, 0).stricter(o.resolve(c.before, v, nil, 0)); got != c.want {
			t.Errorf("%s: stricter %v, want %v", c.name, got, c.want)
		}
	}
}

// resets fails unless Reset of the key reports that it is remembered.
func resets(t *testing.T, l *Limiter, key string) {
	t.Helper()
	is(t, "remembered", l.Reset(key), true)
}

func TestReset(t *testing.T) {
	row(t, "reset", func(t *testing.T) {
		log := recording()
		l := mustNew(t, Rates(perSecond(1, 5), Rate{Name: "hour", Events: 3600, Per: time.Hour, Burst: 8}),
			Logger(slog.New(log)))
		log.take() // the hour's rate never decides
		is(t, "a key never seen is forgiven", l.Reset("k"), false)
		stats(t, l, "Keys", 0, "Version", 0)
		wants(t, l, "k", 5)
		wants(t, l, "other", 5)
		resets(t, l, "k")
		wants(t, l, "k", 5)
		refusedFor(t, l, ReasonRate, "other")
		stats(t, l, "Version", 1)
		log.wrote(t, "0s INFO key reset key=k")
	})
	// A key that was forgiven equals one never seen, and is dropped as soon as nothing of it is out.
	row(t, "and eviction", func(t *testing.T) {
		l := mustNew(t, Limit{Rates: []Rate{{Events: 1, Per: time.Hour, Burst: 2}}, InFlight: 2},
			MaxKeys(1))
		p := took(t, l, "k")
		resets(t, l, "k")
		refusedFor(t, l, ReasonTooLarge, "other", Weight(3)) // looks for room
		is(t, "a key whose permit is out was dropped", gateOf(l, "k") == nil, false)
		p.Release()
		took(t, l, "other").Release()
		is(t, "a key that has nothing out was dropped", gateOf(l, "k") == nil, true)
	})
}

func TestResetKeeps(t *testing.T) {
	row(t, "the ends of permits", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 1}, MaxHold(time.Second))
		took(t, l, "k")
		resets(t, l, "k")
		c := asking(t, l, "k")
		time.Sleep(time.Second)
		c.admittedAfter(t, time.Second)
	})
	row(t, "turns", func(t *testing.T) {
		l := mustNew(t, Rates(Every(time.Second)), StartPool(Pool{Replicas: 4, Ordinal: 1, Fixed: true}))
		c := asking(t, l, "k")
		time.Sleep(4 * time.Second)
		is(t, "a turn came", c.ended(), true)
		time.Sleep(500 * ms) // the turn is over, and the next is not yet
		resets(t, l, "k")
		time.Sleep(refusedFor(t, l, ReasonRate, "k").RetryAfter)
		took(t, l, "k")
		if at := time.Now().UnixNano() % int64(4*time.Second); at > int64(100*ms) {
			t.Errorf("%v into the cycle is no turn", time.Duration(at))
		}
	})
	// The controller of a key that was forgiven is seeded as that of its gate was.
	row(t, "the seed of controllers", func(t *testing.T) {
		l := learning(t, withinShare)
		sends(t, l, "k", success)
		for _, own := range []*Limit{nil, ptr(Rates(perSecond(8, 8)))} {
			override(t, l, "k", own)
			before := gateOf(l, "k").ext.learned.seed
			resets(t, l, "k")
			if seed := gateOf(l, "k").ext.learned.seed; seed != before || seed == 0 {
				t.Errorf("seed %d, before %d", seed, before)
			}
		}
	})
}

func TestResetServesWaiters(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 3)))
		wants(t, l, "k", 3)
		first, second := asking(t, l, "k", Weight(2)), asking(t, l, "k")
		third, low := asking(t, l, "k"), asking(t, l, "k", PriorityLow.Option())
		time.Sleep(100 * ms)
		resets(t, l, "k")
		first.admittedAfter(t, 100*ms)
		second.admittedAfter(t, 100*ms)
		time.Sleep(time.Minute)
		third.admittedAfter(t, 1100*ms)
		low.admittedAfter(t, 2100*ms)
	})
}

// A waiter that a reset has let through, and that gives up, returns what it took. A call admitted before the
// reset does not.
func TestResetAndWaitersThatGiveUp(t *testing.T) {
	for name, left := range map[string]float64{"let through by it": 2, "let through before it": 1} {
		row(t, name, func(t *testing.T) {
			l := mustNew(t, Rates(perSecond(1, 2)))
			wants(t, l, "k", 2)
			s := l.shard("k")
			s.mu.Lock()
			g, w := s.find(l.hash("k")), newWaiter(oneRequest)
			w.key, w.since = "k", s.now().At
			l.waiting.Add(1)
			s.enqueue(g, w, s.latest)
			s.mu.Unlock()
			resets(t, l, "k")
			if left == 1 {
				resets(t, l, "k")
				took(t, l, "k")
			}
			s.mu.Lock()
			s.cancelAndUnlock(g, w)
			has(t, l, "k", left)
		})
	}
}

// A gate that keys share is not forgiven for one of them: that of keys without room, and that of one hash.
func TestResetOfAGateThatIsShared(t *testing.T) {
	row(t, "for want of room", func(t *testing.T) {
		l := mustNew(t, Limit{Rates: []Rate{perSecond(1, 5)}, InFlight: 9}, MaxKeys(1))
		took(t, l, "busy")
		took(t, l, "late", Weight(5))
		is(t, "forgiven", l.Reset("late"), false)
		refusedFor(t, l, ReasonKeys, "other")
		resets(t, l, "busy")
		has(t, l, "busy", 5)
		refusedFor(t, l, ReasonKeys, "late")
	})
	row(t, "for one hash", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 5)), WithHash(func(string) uint64 { return 7 }))
		wants(t, l, "a", 5)
		is(t, "forgiven", l.Reset("b"), false)
		refusedFor(t, l, ReasonRate, "a")
		resets(t, l, "a")
		wants(t, l, "b", 5)
	})
}

// A reset forgets what was learned, pauses too. A permit that is out brings back feedback later; it is
// learned from as always, and not for a time long past.
func TestResetForgetsWhatWasLearned(t *testing.T) {
	row(t, "of a rate", func(t *testing.T) {
		l := learning(t, withinShare)
		time.Sleep(time.Hour)
		sends(t, l, "k", policy.Feedback{Outcome: policy.Throttled, RetryAfter: time.Minute})
		paces(t, l, "k", 5)
		c := asking(t, l, "k")
		c.waits(t)
		resets(t, l, "k")
		c.admittedAfter(t, 0)
		paces(t, l, "k", 10)
		is(t, "forgotten in", l.Explain("k").ctrls()[0].ForgottenIn, 0)
		resets(t, l, "k")
		c.permit.Done(success)
		is(t, "forgotten in", l.Explain("k").ctrls()[0].ForgottenIn, forgetAfter)
	})
	row(t, "of slots", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 8}, policyOf(&spyController{start: 8, next: 2}, withinShare))
		sends(t, l, "k", success)
		time.Sleep(time.Second)
		p := took(t, l, "k")
		time.Sleep(time.Second)
		refusedFor(t, l, ReasonInFlight, "k", Weight(7))
		resets(t, l, "k")
		took(t, l, "k", Weight(7)).Release()
		p.Release()
		inFlight(t, l, 0)
	})
}

// What a change comes to is the same for all shards: it is worked out once, however many there are.
func TestAChangeIsWorkedOutOnce(t *testing.T) {
	one, three := Rates(PerSecond(9)), Rates(PerSecond(9), PerMinute(99), tokensPerMinute(60, 60))
	allocs := func(keys int) float64 {
		l := mustNew(t, one, MaxKeys(keys))
		return testing.AllocsPerRun(50, func() {
			must(t, l.SetLimit(three))
			must(t, l.SetPool(Pool{Replicas: 2}, 0))
			must(t, l.SetLimit(one))
			must(t, l.SetPool(Pool{Replicas: 3}, 0))
		})
	}
	is(t, "allocations with 64 shards", allocs(defaultMaxKeys), allocs(keysPerShard))
}
