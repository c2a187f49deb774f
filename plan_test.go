package quotient

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// admits fails unless so many calls of a plan are admitted at once, and no more.
func admits(t *testing.T, l *Limiter, key, plan string, n int) {
	t.Helper()
	for i := range n {
		if _, d := l.TryAcquire(key, Plan(plan)); !d.OK {
			t.Fatalf("%s in %q: refused after %d of %d: %+v", key, plan, i, n, d)
		}
	}
	if _, d := l.TryAcquire(key, Plan(plan)); d.OK {
		t.Fatalf("%s in %q: one more than %d is admitted", key, plan, n)
	}
}

// ofPlans is a limiter of 5 with plans of 10 and 100, each in as many seconds.
func ofPlans(t *testing.T, opts ...Option) *Limiter {
	t.Helper()
	plans := map[string]Limit{"free": rated(perSecond(1, 10)), "paid": rated(perSecond(1, 100))}
	return limiterOf(t, rated(perSecond(1, 5)), append([]Option{Plans(plans)}, opts...)...)
}

// Each call comes under the limit of its plan, and without one under the limiter's own.
func TestPlans(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := ofPlans(t)
		admits(t, l, "a", "free", 10)
		admits(t, l, "b", "paid", 100)
		admits(t, l, "c", "", 5)
		if _, n := l.TryAcquireUpTo("d", 99, Plan("free")); n != 10 {
			t.Errorf("TryAcquireUpTo: %d", n)
		}
		if _, n := l.TryAcquireUpTo("e", 99); n != 5 {
			t.Errorf("TryAcquireUpTo without a plan: %d", n)
		}
		for _, k := range slices.Collect(l.Keys()) {
			want := map[string]string{"a": "free", "b": "paid", "c": "", "d": "free", "e": ""}[k.Key]
			if k.Plan != want {
				t.Errorf("%s is in %q, want %q", k.Key, k.Plan, want)
			}
		}
		if e := l.Explain("b"); e.Plan != "paid" || e.Next.OK || e.Limit.Rates[0].Burst != 100 {
			t.Errorf("%+v", e)
		}
		if e := l.Explain("b", Plan("")); e.Plan != "" || e.Limit.Rates[0].Burst != 5 {
			t.Errorf("%+v", e)
		}
	})
}

// A plan's limit changes at once for all its keys, and for those that wait. A plan that is taken off leaves
// the limiter's own limit.
func TestSetPlan(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := ofPlans(t)
		admits(t, l, "a", "free", 10)
		got := make(chan string, 9)
		wait := func(plan string, weight int) {
			go func() {
				_, err := l.Acquire(t.Context(), "a", Plan(plan), Weight(weight))
				got <- fmt.Sprint(plan, " ", err)
			}()
			synctest.Wait()
		}
		wait("free", 6)
		wait("paid", 95)
		must(t, l.SetPlan("free", &Limit{}))
		synctest.Wait()
		if s := <-got; s != "free <nil>" || len(got) != 0 {
			t.Error(s, len(got))
		}
		must(t, l.SetPlan("paid", &Limit{Deny: true}))
		if s := <-got; !strings.Contains(s, "paid") || !strings.Contains(s, "denied") {
			t.Error(s)
		}
		limit := rated(perSecond(1, 7))
		must(t, l.SetPlan("free", &limit))
		admits(t, l, "b", "free", 7)
		must(t, l.SetPlan("free", nil))
		_, d := l.TryAcquire("b", Plan("free"))
		says(t, &LimitedError{Key: "b", Decision: d}, "Plan", `"free"`)
		if d.Reason != ReasonBadRequest {
			t.Error(d.Reason)
		}
		must(t, l.SetPlan("free", nil))
		must(t, l.SetPlan("none", nil))
		must(t, l.SetPlan("free", &limit))
		time.Sleep(2 * time.Second) // it was of 5 meanwhile
		admits(t, l, "c", "free", 7)
	})
}

// Keys of a plan that was taken off are in none until it is back, also where its limit was the limiter's own.
func TestKeysOfAPlanThatIsOff(t *testing.T) {
	own := rated(perSecond(1, 5))
	l := limiterOf(t, own, Plans(map[string]Limit{"same": own, "other": rated(perSecond(1, 9))}))
	for _, name := range []string{"same", "other"} {
		l.TryAcquire("k", Plan(name))
		explained(t, l.Explain("k"), "(plan "+name+")")
		must(t, l.SetPlan(name, nil))
		if e := l.Explain("k"); e.Plan != "" || strings.Contains(e.String(), "plan") {
			t.Errorf("%s is off, and the key is in %q: %s", name, e.Plan, e)
		}
		must(t, l.SetPlan(name, &own))
		if k := l.Top(1)[0]; k.Plan != name {
			t.Errorf("%s is back, and the key is in %q", name, k.Plan)
		}
	}
}

// Callers that wait in a plan that is taken off come under the limiter's own limit.
func TestPlanTakenOffWhileCallersWait(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 5)), Plans(map[string]Limit{"slow": {InFlight: 1}}))
		p, d := l.TryAcquire("k", Plan("slow"))
		if !d.OK {
			t.Fatal(d)
		}
		got := make(chan error, 9)
		for range 6 {
			go func() { _, err := l.Acquire(t.Context(), "k", Plan("slow")); got <- err }()
		}
		synctest.Wait()
		must(t, l.SetPlan("slow", nil))
		synctest.Wait()
		if len(got) != 5 {
			t.Errorf("%d of 6 go at once, want 5", len(got))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(got) != 6 {
			t.Errorf("%d of 6 went within a second", len(got))
		}
		p.Release()
		inFlight(t, l, 0)
	})
}

func TestSetPlanRefuses(t *testing.T) {
	l := ofPlans(t)
	before := fmt.Sprint(l.Stats().Plans, l.Stats().Version)
	for _, name := range []string{"", "Paid", strings.Repeat("a", 65)} {
		says(t, l.SetPlan(name, &Limit{}), "SetPlan", "name", "a-z")
	}
	says(t, l.SetPlan("free", &Limit{InFlight: -1}), "SetPlan", "InFlight", "-1")
	for _, u := range []string{"a", "b", "c", "d"} {
		limit := rated(Rate{Unit: u, Events: 1, Per: time.Second})
		if err := l.SetPlan("free", &limit); u == "d" {
			says(t, err, "SetPlan", "Unit", `"d"`)
		}
	}
	limit := rated(perSecond(1, 10))
	must(t, l.SetPlan("free", &limit))
	if after := fmt.Sprint(l.Stats().Plans, l.Stats().Version-4); after != before {
		t.Errorf("%s, was %s", after, before)
	}
	for i := range maxPlans - 2 {
		must(t, l.SetPlan(fmt.Sprint("p", i), &limit))
	}
	says(t, l.SetPlan("more", &limit), "SetPlan", `"more"`, "64")
	_, err := New(Limit{}, Plans(map[string]Limit{"Bad": {}}))
	says(t, err, "name", `"Bad"`)
	_, err = New(Limit{}, Plans(map[string]Limit{"bad": {InFlight: -1}}))
	says(t, err, "InFlight")
}

// A key that changes its plan keeps what it has used.
func TestPlansKeepWhatIsUsed(t *testing.T) {
	slots := func(n int) Limit { return Limit{InFlight: n} }
	tokens := func(burst int) Limit {
		return rated(Rate{Name: "t", Unit: "tok", Events: 1, Per: time.Second, Burst: burst})
	}
	window := func(n float64) Limit {
		return rated(Rate{Name: "w", Events: n, Per: time.Minute, Aligned: true})
	}
	for _, c := range []struct {
		name        string
		free, paid  Limit
		play        func(t *testing.T, l *Limiter)
		free2, more int // that are left in free, and in paid then
	}{
		{"a downgrade with much left", rated(perSecond(1, 10)), rated(perSecond(1, 100)),
			func(t *testing.T, l *Limiter) { upTo(t, l, "k", 50, 50, Plan("paid")) }, 10, 40},
		{"a downgrade with little left", rated(perSecond(1, 10)), rated(perSecond(1, 100)),
			func(t *testing.T, l *Limiter) { upTo(t, l, "k", 96, 96, Plan("paid")) }, 4, 0},
		{"an upgrade", rated(perSecond(1, 10)), rated(perSecond(1, 100)),
			func(t *testing.T, l *Limiter) { upTo(t, l, "k", 10, 10, Plan("free")) }, 0, 90},
		{"there and back", rated(perSecond(1, 10)), rated(perSecond(1, 100)), func(t *testing.T, l *Limiter) {
			upTo(t, l, "k", 10, 10, Plan("free"))
			upTo(t, l, "k", 40, 40, Plan("paid"))
		}, 0, 50},
		{"other names", rated(PerMinute(10)), rated(PerHour(1000)), func(t *testing.T, l *Limiter) {
			upTo(t, l, "k", 999, 999, Plan("paid")).Release()
			upTo(t, l, "k", 1, 1, Plan("free")).Release()
			time.Sleep(time.Minute) // free is full by now, and paid has got 16 back
			for range 9999 {
				l.Allow("other") // so that free would be forgotten
			}
		}, 10, 6},
		{"slots", slots(3), slots(5), func(t *testing.T, l *Limiter) {
			upTo(t, l, "k", 2, 2, Plan("paid"))
		}, 1, 2},
		{"windows", window(10), window(100), func(t *testing.T, l *Limiter) {
			upTo(t, l, "k", 95, 95, Plan("paid"))
		}, 5, 0},
		{"a correction", tokens(10), tokens(100), func(t *testing.T, l *Limiter) {
			p, _ := l.TryAcquire("k", Plan("paid"), Cost("tok", 1))
			must(t, p.Correct("tok", 95))
			d := l.Check("k", Plan("free"), Cost("tok", 6))
			if e := l.Check("k", Plan("free"), Cost("tok", 5)); d.OK || !e.OK {
				t.Errorf("%+v, %+v", d, e)
			}
		}, 99, 99},
		{"a correction that counts in both", tokens(10), tokens(100), func(t *testing.T, l *Limiter) {
			l.TryAcquire("k", Plan("free"), Cost("tok", 1))
			p, _ := l.TryAcquire("k", Plan("paid"), Cost("tok", 1))
			must(t, p.Correct("tok", 97))
			if d := l.Check("k", Plan("free"), Cost("tok", 3)); d.OK {
				t.Errorf("%+v", d)
			}
		}, 99, 99},
		{"a correction in another plan", tokens(10), rated(perSecond(1, 5)), func(t *testing.T, l *Limiter) {
			p, _ := l.TryAcquire("k", Plan("free"), Cost("tok", 0))
			l.TryAcquire("k", Plan("paid")) // which counts no tokens
			must(t, p.Correct("tok", 9))
			if d := l.Check("k", Plan("free"), Cost("tok", 2)); d.OK {
				t.Errorf("%+v", d)
			}
		}, 99, 4},
		{"more than there is", tokens(10), tokens(100), func(t *testing.T, l *Limiter) {
			p, _ := l.TryAcquire("k", Plan("paid"), Cost("tok", 1))
			must(t, p.Correct("tok", 120))
			time.Sleep(10 * time.Second)
			if d := l.Check("k", Plan("free"), Cost("tok", 1)); d.OK || d.RetryAfter != 11*time.Second {
				t.Errorf("%+v", d)
			}
		}, 99, 99},
	} {
		row(t, c.name, func(t *testing.T) {
			plans := Plans(map[string]Limit{"free": c.free, "paid": c.paid})
			l := limiterOf(t, rated(perSecond(1, 1)), plans, few)
			c.play(t, l)
			if _, n := l.TryAcquireUpTo("k", 99, Plan("free")); n != c.free2 {
				t.Errorf("free has %d left, want %d", n, c.free2)
			}
			if _, n := l.TryAcquireUpTo("k", 99, Plan("paid")); n != c.more {
				t.Errorf("paid has %d left, want %d", n, c.more)
			}
		})
	}
}

// A plan that is new to a key counts what the key has taken in all that it was in.
func TestThirdPlanCountsAll(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 3)),
			Plans(map[string]Limit{"a": rated(perSecond(1, 2)), "b": rated(perSecond(1, 3))}))
		upTo(t, l, "k", 1, 1)
		upTo(t, l, "k", 1, 1, Plan("a"))
		upTo(t, l, "k", 9, 1, Plan("b"))
		upTo(t, l, "k", 9, 0)
	})
}

// Events taken in a plan that have come back there are not taken off it again because another plan still
// misses them.
func TestPlansDoNotEcho(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		daily := Plans(map[string]Limit{
			"fast":  rated(perSecond(10, 5)),
			"daily": rated(Rate{Events: 5, Per: 24 * time.Hour}),
		})
		l := limiterOf(t, rated(perSecond(1, 1)), daily)
		for range 5 {
			upTo(t, l, "k", 9, 5, Plan("fast"))
			upTo(t, l, "k", 9, 0, Plan("daily"))
			time.Sleep(time.Second)
			l.TryAcquire("k", Plan("fast"), Weight(9)) // is in the plan, and takes nothing
			upTo(t, l, "k", 9, 0, Plan("daily"))
		}
	})
}

// A look in another plan changes nothing.
func TestPlanLooksChangeNothing(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := ofPlans(t, Policy(policy.AIMD{}))
		p, _ := l.TryAcquire("k", Plan("paid"))
		go func() { _, _ = l.Acquire(t.Context(), "k", Plan("paid"), Weight(100)) }()
		synctest.Wait()
		p.Report(policy.Feedback{Outcome: policy.Throttled})
		before := fmt.Sprintf("%+v", l.Explain("k"))
		for _, plan := range []string{"free", "", "paid"} {
			l.Check("k", Plan(plan))
			l.Explain("k", Plan(plan))
		}
		l.AppendState(nil, "k")
		if after := fmt.Sprintf("%+v", l.Explain("k")); after != before {
			t.Errorf("%s\nwas\n%s", after, before)
		}
	})
}

// A controller's knowledge stays when its key changes plans.
func TestPlansAndControllers(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := ofPlans(t, Policy(policy.AIMD{}))
		for range 3 {
			p, d := l.TryAcquire("k", Plan("paid"))
			if !d.OK {
				t.Fatal(d)
			}
			p.Done(policy.Feedback{Outcome: policy.Throttled})
			time.Sleep(time.Minute)
		}
		paid := l.Explain("k").Rules
		free := l.Explain("k", Plan("free")).Rules
		if a, b := paid[1], free[1]; a.ForgottenIn == 0 || a.ForgottenIn != b.ForgottenIn ||
			a.Pace != b.Pace || a.Pace >= 1 {
			t.Errorf("%+v in one plan, %+v in the other", a, b)
		}
	})
}

// An aligned rate of a plan has the wall clock read, also where nothing else needs a clock.
func TestPlanNeedsAClock(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 2})
		window := rated(Rate{Events: 3, Per: time.Minute, Aligned: true})
		must(t, l.SetPlan("window", &window))
		for range 3 {
			admits(t, l, "k", "window", 3)
			time.Sleep(time.Minute)
		}
	})
}

// Plans are listed by name, with where a key never seen stands.
func TestPlanStats(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		log := recording()
		l := ofPlans(t, Logger(slog.New(log)), Replicas(2))
		log.wrote(t)
		list := l.Stats().Plans
		if len(list) != 2 || list[0].Name != "free" || list[1].Name != "paid" ||
			list[1].Rules[0].Left != 50 ||
			list[0].Limit.Rates[0].Burst != 10 || l.Stats().Version != 0 {
			t.Errorf("%+v", list)
		}
		must(t, l.SetPlan("paid", nil))
		if list = l.Stats().Plans; len(list) != 1 || list[0].Name != "free" {
			t.Errorf("%+v", list)
		}
		logged(t, log, "plan set plan=paid")
	})
}

// A change of plan allocates only when a key changes.
func TestPlansAllocateNothing(t *testing.T) {
	l := ofPlans(t)
	free := Plan("free")
	if n := testing.AllocsPerRun(1000, func() { l.TryAcquire("k", free) }); n != 0 {
		t.Errorf("%v allocations an ask", n)
	}
}

// Changes of plans, of the limit and of the pool while callers of all plans wait: no caller is left.
func TestPlansWhileAllMoves(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := ofPlans(t, MaxKeys(3))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		done := make(chan error, 300)
		for i := range 300 {
			go func() {
				_, err := l.Acquire(ctx, fmt.Sprint(i%5), Plan([]string{"free", "paid", ""}[i%3]))
				done <- err
			}()
		}
		for i := range 40 {
			limit := rated(perSecond(float64(1+i%3), 1+i%9))
			must(t, l.SetPlan("free", &limit))
			if i%4 == 0 {
				must(t, l.SetPlan("paid", &limit))
			}
			setReplicas(t, l, 1+i%3)
			if i%5 == 0 {
				setLimit(t, l, limit)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if len(done) != 300 {
			t.Errorf("%d of 300 went", len(done))
		}
		for range len(done) {
			must(t, <-done)
		}
	})
}
