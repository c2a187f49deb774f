package quotient

import (
	"fmt"
	"testing"
	"time"
	"unsafe"
)

// lately is what a key shows of its calls in the last minute.
func lately(l *Limiter, key string) string {
	e := l.Explain(key)
	return fmt.Sprintf("%d of %d refused", e.Refused, e.Admitted+e.Refused)
}

func TestCallsOfTheLastMinute(t *testing.T) {
	one, slot := Rates(perSecond(1, 1)), Limit{InFlight: 1}
	gold := Plans(map[string]Limit{"gold": Rates(perSecond(5, 5))})
	for _, tt := range []struct {
		name  string
		limit Limit
		opts  []Option
		play  func(t *testing.T, l *Limiter)
		want  string
	}{
		{"never refused", one, nil, func(_ *testing.T, l *Limiter) { l.Allow("k") }, "0 of 0 refused"},
		{"from the first refusal on", one, nil, func(t *testing.T, l *Limiter) {
			wants(t, l, "k", 1)
			refusedFor(t, l, ReasonRate, "k")
			time.Sleep(time.Second)
			wants(t, l, "k", 1)
			time.Sleep(time.Second)
			upTo(t, l, "k", 9, 1)
			upTo(t, l, "k", 9, 0)
		}, "4 of 6 refused"},
		{"50 seconds at least", one, nil, func(t *testing.T, l *Limiter) {
			time.Sleep(9999 * ms)
			wants(t, l, "k", 1)
			time.Sleep(49 * time.Second)
			wants(t, l, "k", 1)
		}, "2 of 3 refused"},
		{"60 seconds at most", one, nil, func(t *testing.T, l *Limiter) {
			wants(t, l, "k", 1)
			time.Sleep(30 * time.Second)
			wants(t, l, "k", 1)
			time.Sleep(30 * time.Second)
		}, "1 of 2 refused"},
		{"none after a minute without a refusal", one, nil, func(t *testing.T, l *Limiter) {
			wants(t, l, "k", 1)
			for range 6 {
				time.Sleep(10 * time.Second)
				took(t, l, "k")
			}
			wrong(t, gateOf(l, "k").ext != nil, "what was counted is kept")
		}, "0 of 0 refused"},
		{"another time", one, nil, func(t *testing.T, l *Limiter) {
			wants(t, l, "k", 1)
			time.Sleep(time.Hour)
			wants(t, l, "k", 1)
		}, "1 of 1 refused"},
		{"for slots alone, where no call has read a clock", slot, nil, func(t *testing.T, l *Limiter) {
			p := took(t, l, "k")
			time.Sleep(time.Hour)
			refusedFor(t, l, ReasonInFlight, "k")
			p.Release()
			time.Sleep(30 * time.Second)
			took(t, l, "k")
			time.Sleep(20 * time.Second)
		}, "1 of 2 refused"},
		{"of a key that was last seen long ago by the clock of the shard", slot, []Option{MaxKeys(8)},
			func(t *testing.T, l *Limiter) {
				time.Sleep(time.Hour)
				refusedFor(t, l, ReasonTooLarge, "k", Weight(2))
				for range 100 { // and sweeps
					l.Allow("x")
				}
			}, "1 of 1 refused"},
		{"for whatever reason", Limit{Rates: one.Rates, InFlight: 3}, []Option{Replicas(2), MaxWaiting(1, 9)},
			func(t *testing.T, l *Limiter) {
				took(t, l, "k")
				refusedFor(t, l, ReasonShare, "k", Weight(2))
				refusedFor(t, l, ReasonTooLarge, "k", Weight(4))
				askingUntil(t, l, ms, "k").refusedAfter(t, 0, ReasonDeadline)
				c := asking(t, l, "k")
				asking(t, l, "k").refusedAfter(t, 0, ReasonQueue)
				setLimit(t, l, Limit{Deny: true})
				c.refusedAfter(t, 0, ReasonDenied)
				wants(t, l, "k", 0)
			}, "6 of 6 refused"},
		{"not of calls that are not valid", one, nil, func(t *testing.T, l *Limiter) {
			refusedFor(t, l, ReasonBadRequest, "k", Weight(-1))
		}, "0 of 0 refused"},
		{"waiters when they return", slot, nil, func(t *testing.T, l *Limiter) {
			p := took(t, l, "k")
			before := asking(t, l, "k")
			refusedFor(t, l, ReasonInFlight, "k")
			after := asking(t, l, "k")
			asking(t, l, "k").gaveUp(t)
			is(t, "while two wait, and one has given up", lately(l, "k"), "2 of 2 refused")
			p.Release()
			before.admittedAfter(t, 0)
			before.permit.Release()
			after.admittedAfter(t, 0)
		}, "2 of 4 refused"},
		{"claims when all are admitted", Limit{InFlight: 2}, nil, func(t *testing.T, l *Limiter) {
			refusedFor(t, l, ReasonTooLarge, "k", Weight(3))
			claim, large := Claim{Limiter: l, Key: "k"}, Claim{Limiter: l, Key: "x", Options: []CallOption{Weight(3)}}
			for _, claims := range [][]Claim{{claim, large}, {claim, claim}, {claim}} {
				TryAcquireAll(nil, claims...)
			}
		}, "2 of 4 refused"},
		{"what a dry run spares", one, nil, func(_ *testing.T, l *Limiter) {
			l.SetDryRun(true)
			l.Allow("k")
			l.Allow("k")
			TryAcquireAll(nil, Claim{Limiter: l, Key: "k"})
			_, _ = l.Acquire(t.Context(), "k")
		}, "3 of 3 refused"},
		{"in all plans", one, []Option{gold}, func(t *testing.T, l *Limiter) {
			wants(t, l, "k", 1)
			refusedFor(t, l, ReasonTooLarge, "k", Weight(6), Plan("gold"))
			time.Sleep(time.Second)
			took(t, l, "k", Plan("gold"))
			override(t, l, "k", ptr(Limit{Deny: true}))
			refusedFor(t, l, ReasonDenied, "k")
		}, "3 of 4 refused"},
		{"not after a reset", one, nil, func(t *testing.T, l *Limiter) {
			wants(t, l, "k", 1)
			l.Reset("k")
			wrong(t, gateOf(l, "k").ext != nil, "what was counted is kept")
			took(t, l, "k")
		}, "0 of 0 refused"},
		{"not after it was dropped as idle", one, []Option{MaxKeys(1)}, func(t *testing.T, l *Limiter) {
			wants(t, l, "k", 1)
			time.Sleep(time.Second)
			took(t, l, "x")
			time.Sleep(time.Second)
			took(t, l, "k")
		}, "0 of 0 refused"},
		{"of all in the overflow gate", one, []Option{MaxKeys(1)}, func(t *testing.T, l *Limiter) {
			wants(t, l, "x", 1)
			wants(t, l, "y", 1)
			wants(t, l, "k", 0)
		}, "2 of 2 refused"},
	} {
		row(t, tt.name, func(t *testing.T) {
			l := mustNew(t, tt.limit, tt.opts...)
			tt.play(t, l)
			is(t, "of the last minute", lately(l, "k"), tt.want)
			for k := range l.Keys() {
				if e := l.Explain(k.Key); k.Key == "k" && (k.Admitted != e.Admitted || k.Refused != e.Refused) {
					t.Errorf("Keys has %d and %d, Explain %d and %d", k.Admitted, k.Refused, e.Admitted, e.Refused)
				}
			}
		})
	}
}

// TestCostOfCounting: a key that was never refused has no more than its gate, and another one a few bytes, once.
func TestCostOfCounting(t *testing.T) {
	if a, b := unsafe.Sizeof(gate{}), unsafe.Sizeof(extension{}); a > 64 || b > 192 {
		t.Errorf("a gate has %d bytes, and its extension %d", a, b)
	}
	is(t, "the least bytes to allocate for counts", unsafe.Sizeof(recent{}) <= 64, true)
	for _, limit := range []Limit{Rates(perSecond(1000, 1000)), {InFlight: 1000}} {
		row(t, limit, func(t *testing.T) {
			l := mustNew(t, limit, MaxWaiting(0, 0))
			l.Allow("k")
			wrong(t, gateOf(l, "k").ext != nil, "a key that was never refused has more than its gate")
			large := []CallOption{Weight(1001)}
			for range 2 {
				is(t, "allocations", testing.AllocsPerRun(100, func() {
					l.Allow("k")
					l.TryAcquire("k", large...)
				}), 0)
				time.Sleep(time.Minute)
			}
		})
	}
}

func TestCallsOfPlans(t *testing.T) {
	gold := Rates(perSecond(2, 2))
	row(t, "add up", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 1)), Plans(map[string]Limit{"gold": gold, "tin": {Deny: true}}))
		calls := func(want string) {
			t.Helper()
			s := l.Stats()
			got := fmt.Sprint(s.PlanStats.Admitted, s.PlanStats.Refused)
			for _, name := range []string{"gold", "tin", "new"} {
				got += fmt.Sprint(" ", s.Plans[name].Admitted, s.Plans[name].Refused)
			}
			is(t, "of the limiter's own, gold, tin and a new plan", got, want)
		}
		wants(t, l, "a", 1)
		refusedFor(t, l, ReasonBadRequest, "a", Plan("none"))
		took(t, l, "b", Plan("gold"))
		took(t, l, "b", Plan("gold"))
		refusedFor(t, l, ReasonRate, "b", Plan("gold"))
		refusedFor(t, l, ReasonDenied, "a", Plan("tin"))
		override(t, l, "o", ptr(Limit{Deny: true}))
		refusedFor(t, l, ReasonDenied, "o", Plan("tin"))
		calls("1 2 2 1 0 2 0 0")
		waiter := asking(t, l, "b", Plan("gold"))
		calls("1 2 2 1 0 2 0 0")
		time.Sleep(500 * ms)
		waiter.admittedAfter(t, 500*ms)
		TryAcquireAll(nil, Claim{l, "c", []CallOption{Plan("gold")}}, Claim{l, "a", []CallOption{Plan("tin")}})
		TryAcquireAll(nil, Claim{l, "c", []CallOption{Plan("gold")}}, Claim{l, "d", nil})
		l.SetDryRun(true)
		took(t, l, "a", Plan("tin"))
		l.SetDryRun(false)
		calls("2 2 4 1 1 3 0 0")
		must(t, l.SetPlan("gold", nil))
		calls("2 2 0 0 1 3 0 0")
		must(t, l.SetPlan("gold", &gold))
		calls("2 2 4 1 1 3 0 0")
	})
	row(t, "of a plan that has given up its place", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 1)), WithMostPlans(1), Plans(map[string]Limit{"gold": gold}))
		took(t, l, "k", Plan("gold"))
		took(t, l, "k", Plan("gold"))
		waiter := asking(t, l, "k", Plan("gold"))
		must(t, l.SetPlan("gold", nil))
		must(t, l.SetPlan("new", &gold))
		took(t, l, "x", Plan("new"))
		time.Sleep(time.Second)
		waiter.admittedAfter(t, time.Second)
		s := l.Stats()
		is(t, "admitted, under the own limit and a new plan", fmt.Sprint(s.Admitted, s.PlanStats.Admitted,
			s.Plans["new"].Admitted), "4 1 1")
	})
}
