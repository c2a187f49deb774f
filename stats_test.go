package quotient

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

func TestStates(t *testing.T) {
	row(t, "of all keys count calls", func(t *testing.T) {
		l := mustNew(t, Limit{Rates: []Rate{perSecond(4, 2), aligned(100, time.Minute)}, InFlight: 3},
			Replicas(2))
		took(t, l, "a")
		wants(t, l, "b", 1)
		c := asking(t, l, "b", Weight(1))
		stats(t, l, "Admitted", 2, "Waited", 1, "Waiting", 1, "Keys", 2, "InFlight", 1,
			"Refused", map[Reason]uint64{ReasonRate: 1})
		want := []RuleState{
			{Rule: Rule{Name: "second", Limit: 4, Share: 2, Window: time.Second}, Burst: 1, Left: 1},
			{Rule: Rule{Name: "w", Limit: 100, Share: 50, Window: time.Minute}, Left: 50, Reset: time.Minute},
			{Rule: Rule{Name: "in-flight", Limit: 3, Share: 1}, Left: 1},
		}
		is(t, "rules", fmt.Sprint(l.Stats().Rules), fmt.Sprint(want))
		got := map[string]string{}
		for ks := range l.Keys() {
			got[ks.Key] = fmt.Sprint(ks.InFlight, ks.Waiting)
		}
		is(t, "in flight and waiting", fmt.Sprint(got), "map[a:1 0 b:0 1]")
		c.cancel()
	})
	row(t, "of one key", func(t *testing.T) {
		l := mustNew(t, Limit{Rates: []Rate{perSecond(10, 20), aligned(60, time.Minute)}, InFlight: 4},
			Replicas(2))
		time.Sleep(15 * time.Second)
		took(t, l, "k")
		l.Allow("k")
		want := []RuleState{
			{Rule: Rule{Name: "second", Limit: 10, Share: 5, Window: time.Second}, Burst: 10, Left: 8, Reset: 400 * ms},
			{Rule: Rule{Name: "w", Limit: 60, Share: 30, Window: time.Minute}, Left: 28, Reset: 45 * time.Second},
			{Rule: Rule{Name: "in-flight", Limit: 4, Share: 2}, Left: 1},
		}
		is(t, "a key", fmt.Sprint(l.Explain("k").Rules), fmt.Sprint(want))
		got := l.Explain("new").Rules
		is(t, "left of a new key", fmt.Sprint(got[0].Left, got[1].Left, got[2].Left), "10 30 2")
		buf := make([]RuleState, 0, 4)
		is(t, "allocations", testing.AllocsPerRun(10, func() { l.Check("k", StateInto(&buf)) }), 0)
		setLimit(t, l, Limit{Deny: true})
		is(t, "under a limit that denies", len(l.Explain("k").Rules), 0)
	})
	row(t, "of one key are not known without a pool", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(10, 20)), AwaitPool(time.Minute), Replicas(4))
		into := []RuleState{{Rule: Rule{Name: "old"}}}
		refusedFor(t, l, ReasonPool, "k", StateInto(&into))
		is(t, "StateInto", len(into), 0)
		is(t, "Stats", len(l.Stats().Rules), 1)
	})
	row(t, "count no permit whose time is over, like Check", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 1}, MaxHold(time.Second))
		took(t, l, "k")
		time.Sleep(2 * time.Second)
		is(t, "left", l.Explain("k").Rules[0].Left, 1)
		is(t, "Check", l.Check("k").OK, true)
	})
	row(t, "of one key come with the decision, after a wait too", func(t *testing.T) {
		l := mustNew(t, Limit{Rates: []Rate{perSecond(1, 1)}, InFlight: 2}, Policy(policy.AIMD{}))
		for _, ask := range []func(CallOption){
			func(into CallOption) { l.Check("k", into) },
			func(into CallOption) { l.TryAcquire("k", into) },
			func(into CallOption) { l.TryAcquire("k", into) },
			func(into CallOption) { must(t, l.acquiring("k", into)(t.Context())) },
		} {
			into := []RuleState{{Rule: Rule{Name: "old"}}}
			ask(StateInto(&into))
			is(t, "StateInto", fmt.Sprint(into), fmt.Sprint(l.Explain("k").Rules))
			is(t, "rules", len(into), 4)
		}
	})
	row(t, "may be left early", func(t *testing.T) {
		l := mustNew(t, Rates(PerHour(1)))
		for i := range 10 {
			l.Allow(key(i))
		}
		n := 0
		for range l.Keys() {
			if n++; n == 3 {
				break
			}
		}
		is(t, "keys", n, 3)
	})
	// A waiter that is refused while its context ends is one call, and counted once.
	row(t, "refused and cancelled is one call", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 1})
		took(t, l, "k")
		panics(t, func() {
			_, _ = l.Acquire(&hooked{t.Context(), func() {
				setLimit(t, l, Limit{Deny: true}) // refuses the waiter whose context this is
				panic("hook")
			}}, "k")
		})
		s := l.Stats()
		n := s.Admitted + s.Cancelled
		for _, r := range s.Refused {
			n += r
		}
		is(t, "calls that were counted", n, 2)
	})
}

// A state under a version is that version's: else an ETag stands for a body of the version before.
func TestStatsAreOfTheirVersion(t *testing.T) {
	l := mustNew(t, Rates(perSecond(10, 10)))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for on := true; ; on = !on {
			select {
			case <-stop:
				return
			default:
				l.SetDryRun(on) // an odd version is a dry run
			}
		}
	}()
	wrong := 0
	for range 20000 {
		if s := l.Stats(); s.more.DryRun != (s.Version%2 == 1) {
			wrong++
		}
	}
	close(stop)
	<-done
	is(t, "of 20000 Stats that show the state of another version", wrong, 0)
}

func explained(t *testing.T, e Explanation, words ...string) {
	t.Helper()
	for _, w := range words {
		wrong(t, !strings.Contains(e.String(), w), "does not say %q:\n%s", w, e)
	}
}

func TestExplain(t *testing.T) {
	row(t, "explain", func(t *testing.T) {
		l := mustNew(t,
			Limit{Rates: []Rate{perSecond(10, 10), {Name: "w", Events: 100, Per: time.Minute, Kind: Window}},
				InFlight: 8},
			StartPool(Pool{Replicas: 2, Ordinal: 1, Fixed: true}))
		e := l.Explain("k")
		if e.Remembered || e.Overridden || !e.Next.OK || e.Next.RetryAfter != 0 || len(e.Rules) != 3 {
			t.Errorf("%+v", e)
		}
		explained(t, e, `"k": the next request is admitted at once`, "second: 10 per 1s",
			"2 replicas, ordinal 1", "start as a new one")
		stats(t, l, "Keys", 0)
		for range 4 {
			took(t, l, "k")
		}
		waiter := asking(t, l, "k")
		e = l.Explain("k")
		if e.first != ReasonInFlight || e.InFlight != 4 || e.Waiting != 1 || e.Rules[2].Left != 0 ||
			!e.Remembered || e.Next != l.Check("k") {
			t.Errorf("%+v", e)
		}
		if r := e.Rules[1]; r.Left != 46 || r.Reset != time.Minute || r.Share != 50 {
			t.Errorf("%+v", r)
		}
		explained(t, e, "has to wait (rate", "4 in flight, 1 waiting, the first of them for: in_flight.",
			"w: share 50 of 100 per 1m, 46 left, full in 1m0s")
		setLimit(t, l, Rates(perSecond(10, 10)))
		waiter.admittedAfter(t, 0)
		l.Allow("k")
		e = l.Explain("k", Weight(3))
		wrong(t, e.Next.Reason != ReasonRate || e.Next.RetryAfter != 600*time.Millisecond, "%+v", e)
		explained(t, e, "has to wait (rate, rule second) for 600ms, until 00:00:00")
		l.TryAcquire("k", Weight(10))
		wrong(t, e.Next != l.Explain("k", Weight(3)).Next, "what others were told is no wait")
		if e := l.Explain("k", Weight(0)); e.Next.Reason != ReasonBadRequest ||
			!strings.Contains(refusal("k", e.Next).Error(), "Weight") {
			t.Errorf("%+v", e)
		}
		explained(t, l.Explain("k", Weight(1000)), "is refused (too_large, rule second)")
		override(t, l, "k", ptr(Limit{Deny: true}))
		l.SetDryRun(true)
		e = l.Explain("k")
		wrong(t, !e.Overridden || !e.dryRun || !e.Limit.Deny, "%+v", e)
		explained(t, e, "is refused (denied); this is a dry run", "deny (its own)")
	})
	row(t, "as how many replicas this one counts", func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 10}, StartPool(Pool{Replicas: 10, Ordinal: 4, Weight: 3}))
		explained(t, l.Explain("k"), "10 replicas, of which this one is 3, ordinal 4")
	})
	row(t, "what was refused", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(2, 2)))
		wants(t, l, "k", 2)
		time.Sleep(time.Microsecond)
		explained(t, l.Explain("k"), "second: share 2 of 2 per 1s, 0 left")
		explained(t, l.Explain("k"), "has to wait (rate, rule second) for 500ms, until 00:00:00; 1 was refused in the last minute, "+
			"and 0 admitted since the first.")
		wants(t, l, "k", 0)
		time.Sleep(time.Second)
		took(t, l, "k")
		explained(t, l.Explain("k"), `"k": the next request is admitted at once, though 2 were refused in the last minute, `+
			"and 1 admitted since the first.")
		l.SetDryRun(true)
		explained(t, l.Explain("k"), "though 2 would have been refused in the last minute, and 1 admitted")
		l.SetDryRun(false)
		wrong(t, strings.Contains(l.Explain("x").String(), "refused"), "%s", l.Explain("x"))
	})
	row(t, "overflow", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 1)), MaxKeys(1))
		wants(t, l, "a", 1)
		wants(t, l, "b", 1)
		e := l.Explain("c")
		wrong(t, !e.Overflow || e.Next.Reason != ReasonKeys, "%+v", e)
		explained(t, e, "shares one limit with others", "(keys")
	})
	row(t, "what was learned", func(t *testing.T) {
		l := mustNew(t, Limit{Rates: []Rate{perSecond(100, 100)}, InFlight: 10}, Replicas(4),
			Policy(policy.Tracking{}), BeyondShare())
		e := l.Explain("k")
		if len(e.ctrls()) != 2 || e.ctrls()[0].Share != 25 || e.ctrls()[0].Limit != 100 ||
			e.ctrls()[0].ForgottenIn != 0 {
			t.Errorf("%+v", e.ctrls())
		}
		explained(t, e, "The policy allows 25 requests a second (share 25", "nothing has been learned yet",
			"The policy allows 2.5 in-flight (share 2.5")
		took(t, l, "k").Done(policy.Feedback{Outcome: policy.Success})
		e = l.Explain("k")
		is(t, "forgotten in", e.ctrls()[0].ForgottenIn, forgetAfter)
		explained(t, e, "forgotten in 10m")
		gateOf(l, "k").ext.learned.pacers[0].pausedUntil = time.Since(l.base) + 7*time.Second
		if e = l.Explain("k"); e.ctrls()[0].Reset != 7*time.Second || e.Next.RetryAfter != 7*time.Second {
			t.Errorf("%+v", e)
		}
		explained(t, e, "and nothing for 7s", "for 7s, until 00:00:07")
	})
}
