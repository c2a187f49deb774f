package quotient

import (
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

func explained(t *testing.T, e Explanation, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(e.String(), w) {
			t.Errorf("does not say %q:\n%s", w, e)
		}
	}
}

func TestExplain(t *testing.T) {
	row(t, "explain", func(t *testing.T) {
		l := mustNew(t,
			Limit{Rates: []Rate{perSecond(10, 10), {Name: "w", Events: 100, Per: time.Minute, Aligned: true}},
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
		if e.First != ReasonInFlight || e.InFlight != 4 || e.Waiting != 1 || e.Rules[2].Left != 0 ||
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
		if e.Next.Reason != ReasonRate || e.Next.RetryAfter != 600*time.Millisecond {
			t.Errorf("%+v", e)
		}
		explained(t, e, "has to wait (rate, rule second) for 600ms, until 00:00:00")
		l.TryAcquire("k", Weight(10))
		if e.Next != l.Explain("k", Weight(3)).Next {
			t.Error("what others were told is no wait")
		}
		if e := l.Explain("k", Weight(0)); e.Next.Reason != ReasonBadRequest ||
			!strings.Contains(refusal("k", e.Next).Error(), "Weight") {
			t.Errorf("%+v", e)
		}
		explained(t, l.Explain("k", Weight(1000)), "is refused (too_large, rule second)")
		override(t, l, "k", ptr(Limit{Deny: true}))
		l.SetDryRun(true)
		e = l.Explain("k")
		if !e.Overridden || !e.DryRun || !e.Limit.Deny {
			t.Errorf("%+v", e)
		}
		explained(t, e, "is refused (denied); this is a dry run", "deny (its own)")
	})
	row(t, "overflow", func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(1, 1)), MaxKeys(1))
		wants(t, l, "a", 1)
		wants(t, l, "b", 1)
		e := l.Explain("c")
		if !e.Overflow || e.Next.Reason != ReasonKeys {
			t.Errorf("%+v", e)
		}
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
