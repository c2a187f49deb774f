package quotient

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A limit of its own goes before any plan, and is counted in the plans that the key was in.
func TestPlanAndOverride(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := ofPlans(t)
		upTo(t, l, "k", 90, 90, Plan("paid"))
		own := rated(Rate{Name: "own", Events: 1, Per: time.Hour, Burst: 1000})
		must(t, l.Override("k", &own))
		upTo(t, l, "k", 20, 10, Plan("free"))
		if e := l.Explain("k", Plan("paid")); !e.Overridden || e.Plan != "" ||
			e.Limit.Rates[0].Name != "own" {
			t.Errorf("%+v", e)
		}
		must(t, l.Override("k", nil))
		upTo(t, l, "k", 99, 0, Plan("paid"))
		upTo(t, l, "k", 99, 0)
		time.Sleep(3 * time.Second)
		upTo(t, l, "k", 99, 3, Plan("free"))
		upTo(t, l, "k", 99, 0, Plan("paid"))
		must(t, l.Override("k", &Limit{Deny: true}))
		if d := l.Check("k", Plan("paid")); d.Reason != ReasonDenied {
			t.Errorf("%+v", d)
		}
	})
}

// A key that is forgiven has used nothing in any plan.
func TestPlansAndReset(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := ofPlans(t)
		upTo(t, l, "k", 99, 99, Plan("paid"))
		upTo(t, l, "k", 9, 1, Plan("free"))
		if !l.Reset("k") {
			t.Error("not remembered")
		}
		upTo(t, l, "k", 10, 10, Plan("free"))
		upTo(t, l, "k", 99, 90, Plan("paid"))
	})
}

// A dry run admits what a plan would refuse, and counts it.
func TestPlanInADryRun(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := ofPlans(t)
		l.SetDryRun(true)
		for range 15 {
			if _, d := l.TryAcquire("k", Plan("free")); !d.OK {
				t.Fatal(d)
			}
		}
		if n := l.Stats().DryRunAdmitted[ReasonRate]; n != 5 {
			t.Errorf("%d asks would have been refused, want 5", n)
		}
		l.SetDryRun(false)
		if _, n := l.TryAcquireUpTo("k", 999, Plan("paid")); n != 90 {
			t.Errorf("paid has %d left, want 90", n)
		}
	})
}

// Keys without room share one gate, whatever their plans: together they get no more than the largest plan.
func TestPlansInTheOverflowGate(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := ofPlans(t, MaxKeys(1))
		upTo(t, l, "busy", 100, 100, Plan("paid"))
		sum := 0
		for i := range 60 {
			_, n := l.TryAcquireUpTo(fmt.Sprint(i%7), 9, Plan([]string{"paid", "free", ""}[i%3]))
			sum += n
		}
		if sum > 100 || sum < 90 {
			t.Errorf("%d admitted through the overflow gate, of 100", sum)
		}
		time.Sleep(200 * time.Second)
		admits(t, l, "new", "paid", 100)
	})
}

// A key that gets room again starts with what the overflow gate has left, of all plans.
func TestPlansLeaveTheOverflowGate(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := ofPlans(t, MaxKeys(1))
		upTo(t, l, "busy", 1, 1, Plan("paid")).Release()
		upTo(t, l, "k", 100, 100, Plan("paid")).Release()
		upTo(t, l, "k", 9, 0, Plan("free"))
		time.Sleep(2 * time.Second)
		upTo(t, l, "k", 100, 2, Plan("paid"))
		if s := l.Stats(); s.Overflowed != 2 || s.Evicted != 1 {
			t.Errorf("%d overflowed, %d evicted", s.Overflowed, s.Evicted)
		}
	})
}

// Each of those that wait comes under its own plan, in order.
func TestPlansInOneQueue(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := ofPlans(t)
		upTo(t, l, "k", 10, 10, Plan("free"))
		went := make(chan string, 9)
		for _, plan := range []string{"free", "paid", "paid"} {
			go func() {
				if _, err := l.Acquire(t.Context(), "k", Plan(plan)); err == nil {
					went <- plan
				}
			}()
			synctest.Wait()
		}
		time.Sleep(time.Second / 2)
		setLimit(t, l, rated(perSecond(1, 6))) // the queue is looked at again
		synctest.Wait()
		if len(went) != 0 {
			t.Errorf("%s went before its turn", <-went)
		}
		time.Sleep(time.Second / 2)
		synctest.Wait()
		if len(went) != 3 {
			t.Errorf("%d of 3 went", len(went))
		}
	})
}
