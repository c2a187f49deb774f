package quotient

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
	"pgregory.net/rapid"
)

// A request takes from a tenant's rate and from a route's slots, or from neither.
func TestTryAcquireAll(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		tenants, routes := limiterOf(t, rated(perSecond(1, 5))), limiterOf(t, Limit{InFlight: 2})
		claims := []Claim{{tenants, "a", nil}, {routes, "/x", nil}}
		var held []Permits
		for range 2 {
			ps, refused, d := TryAcquireAll(nil, claims...)
			if !d.OK || refused != -1 || len(ps) != 2 {
				t.Fatalf("%v %d %+v", ps, refused, d)
			}
			held = append(held, ps)
		}
		for range 9 {
			if ps, refused, d := TryAcquireAll(nil, claims...); d.Reason != ReasonInFlight || refused != 1 ||
				ps != nil {
				t.Fatalf("%v %d %+v", ps, refused, d)
			}
		}
		wants(t, tenants, "a", 3) // nothing is lost
		if _, refused, d := TryAcquireAll(nil, claims...); d.Reason != ReasonRate || refused != 0 {
			t.Errorf("%d %+v", refused, d)
		}
		held[0].Release()
		held[1].Done(policy.Feedback{})
		inFlight(t, routes, 0)
		if s := tenants.Stats(); s.Admitted != 5 || s.Cancelled != 9 || s.Refused[ReasonRate] != 2 {
			t.Errorf("%+v", s)
		}
		if s := routes.Stats(); s.Admitted != 2 || s.Cancelled != 0 || s.Refused[ReasonInFlight] != 9 {
			t.Errorf("%+v", s)
		}
		if ps, refused, d := TryAcquireAll(held[0]); !d.OK || refused != -1 || len(ps) != 2 {
			t.Errorf("%v %d %+v", ps, refused, d)
		}
		_, refused, d := TryAcquireAll(nil, Claim{tenants, "b", nil},
			Claim{tenants, "b", []CallOption{Weight(0)}})
		says(t, &LimitedError{Key: "b", Decision: d}, "Weight")
		if refused != 1 {
			t.Error(refused)
		}
		wants(t, tenants, "b", 5)
	})
}

// The events taken go back to a caller that waits for them.
func TestTryAcquireAllWakesWaiters(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		slots, denied := limiterOf(t, Limit{InFlight: 1}), limiterOf(t, Limit{Deny: true})
		got := make(chan error, 1)
		claims := []Claim{{slots, "k", nil}, {denied, "k", nil}}
		_, refused, d := TryAcquireAll(nil, claims...)
		if refused != 1 || d.Reason != ReasonDenied {
			t.Errorf("%d %+v", refused, d)
		}
		c := claimed{l: slots, key: "k"}
		c.try(nil)
		go func() { _, err := slots.Acquire(t.Context(), "k"); got <- err }()
		synctest.Wait()
		c.undo()
		synctest.Wait()
		if len(got) != 1 {
			t.Error("the caller still waits")
		}
	})
}

// A dry run of one limiter neither stops the others nor takes from it.
func TestTryAcquireAllInADryRun(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		dry, real := limiterOf(t, Limit{InFlight: 1}), limiterOf(t, rated(perSecond(1, 3)))
		dry.SetDryRun(true)
		for i := range 5 {
			ps, _, d := TryAcquireAll(nil, Claim{dry, "k", nil}, Claim{real, "k", nil})
			if d.OK != (i < 3) {
				t.Errorf("ask %d: %+v", i, d)
			}
			defer ps.Release()
		}
		s := dry.Stats()
		if s.Admitted != 3 || s.DryRunAdmitted[ReasonInFlight] != 2 || s.InFlight != 1 || s.Cancelled != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// Should a hook panic, nothing stays taken.
func TestTryAcquireAllWhoseHookPanics(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		slots := limiterOf(t, Limit{InFlight: 9})
		hooked := limiterOf(t, Limit{InFlight: 9},
			OnAdmit(func(string, time.Duration, time.Duration) { panic("hook") }))
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			TryAcquireAll(nil, Claim{slots, "a", nil}, Claim{hooked, "b", nil}, Claim{slots, "c", nil})
		}()
		inFlight(t, slots, 0)
		inFlight(t, hooked, 0)
		if n := slots.Stats().DoubleReleases + hooked.Stats().DoubleReleases; n != 0 {
			t.Errorf("%d permits were released twice", n)
		}
	})
}

// Changes between the take and the return, and keys that are gone by then.
func TestTryAcquireAllGivesBackLate(t *testing.T) {
	for name, c := range map[string]struct {
		between func(t *testing.T, l *Limiter)
		left    int
	}{
		"at once":        {func(*testing.T, *Limiter) {}, 5},
		"refilled since": {func(*testing.T, *Limiter) { time.Sleep(time.Second) }, 5},
		"another limit":  {func(t *testing.T, l *Limiter) { setLimit(t, l, rated(perSecond(1, 6))) }, 2},
		"forgotten": {func(t *testing.T, l *Limiter) {
			time.Sleep(time.Minute)
			for i := range 99 {
				l.Allow(fmt.Sprint(i % 2))
			}
		}, 5},
		"reset": {func(t *testing.T, l *Limiter) { l.Reset("k") }, 5},
	} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, rated(perSecond(1, 5)), few)
			x := claimed{l: l, key: "k"}
			if d := x.try([]CallOption{Weight(3)}); !d.OK {
				t.Fatal(d)
			}
			c.between(t, l)
			x.undo()
			upTo(t, l, "k", 99, c.left)
		})
	}
}

func TestTryAcquireAllAllocatesNothing(t *testing.T) {
	l, m := limiterOf(t, rated(perSecond(1e9, 1<<20))), limiterOf(t, Limit{InFlight: 1})
	none := limiterOf(t, Limit{Deny: true})
	var room [4]Permit
	if n := testing.AllocsPerRun(1000, func() {
		ps, _, _ := TryAcquireAll(room[:0], Claim{l, "k", nil}, Claim{m, "k", nil})
		ps.Release()
		TryAcquireAll(room[:0], Claim{l, "k", nil}, Claim{m, "k", nil}, Claim{none, "k", nil})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// All claims or none: as if each limiter were looked at first, and asked only when all have room.
func TestPropertyTryAcquireAll(t *testing.T) {
	property(t, func(rt *rapid.T) {
		var all, twins []*Limiter
		for range rapid.IntRange(1, 3).Draw(rt, "limiters") {
			limit, replicas := drawLimit(rt), Replicas(rapid.IntRange(1, 2).Draw(rt, "replicas"))
			all = append(all, mustNew(rt, limit, replicas, few, WithPhase(3)))
			twins = append(twins, mustNew(rt, limit, replicas, few, WithPhase(3)))
		}
		for range rapid.IntRange(1, 50).Draw(rt, "steps") {
			time.Sleep(drawPause(rt))
			var claims, twin []Claim
			for i := range all {
				opts := []CallOption{Weight(rapid.IntRange(1, 3).Draw(rt, "weight"))}
				key := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "key")
				claims, twin = append(claims, Claim{all[i], key, opts}),
					append(twin, Claim{twins[i], key, opts})
			}
			want := -1
			for i, c := range twin {
				if want < 0 && !c.Limiter.Check(c.Key, c.Options...).OK {
					want = i
				}
			}
			ps, refused, d := TryAcquireAll(nil, claims...)
			if refused != want || d.OK != (want < 0) {
				rt.Fatalf("claim %d was refused, want %d: %+v", refused, want, d)
			}
			if d.OK {
				for i, c := range twin {
					p, d := c.Limiter.TryAcquire(c.Key, c.Options...)
					if !d.OK {
						rt.Fatal(d)
					}
					if rapid.Bool().Draw(rt, "release") {
						p.Release()
						ps[i].Release()
					}
				}
			}
			for i, c := range twin {
				x, y := all[i].Explain(c.Key), twins[i].Explain(c.Key)
				same := x.InFlight == y.InFlight && len(x.Rules) == len(y.Rules)
				for i := range x.Rules {
					same = same && math.Abs(x.Rules[i].Left-y.Rules[i].Left) < 1e-6
				}
				if !same {
					rt.Fatalf("limiter %d is at\n%+v, want\n%+v", i, x, y)
				}
			}
		}
	})
}
