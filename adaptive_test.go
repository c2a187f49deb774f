package quotient

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// spyController is a policy, and the only controller of it. It notes its samples and answers what the test
// sets.
type spyController struct {
	last  policy.Sample
	start float64 // 0: the share
	next  float64 // in answer to feedback; 0: the share
}

func (s *spyController) New(uint64) policy.Controller { return s }

func (s *spyController) Next(x policy.Sample, b policy.Bounds) policy.Pace {
	answer := s.next
	if x.Outcome == policy.Unknown {
		answer = s.start
	} else {
		s.last = x
	}
	if answer == 0 {
		return policy.Pace{Rate: b.Share}
	}
	return policy.Pace{Rate: answer}
}

var (
	throttled = policy.Feedback{Outcome: policy.Throttled}
	success   = policy.Feedback{Outcome: policy.Success}
)

// learning returns a limiter of 20 a second and two replicas under AIMD.
func learning(t *testing.T, c bool, opts ...Option) *Limiter {
	t.Helper()
	return limiterOf(t, rated(perSecond(20, 40)), append(opts, policyOf(policy.AIMD{}, c), Replicas(2))...)
}

// paces fails unless the policy lets so many events a second through for the key.
func paces(t *testing.T, l *Limiter, key string, want float64) {
	t.Helper()
	for ks := range l.Keys() {
		k := ks.Key
		if k == key {
			if math.Abs(ks.pace()-want) > want/100 {
				t.Errorf("key %q is paced at %v, want %v", key, ks.pace(), want)
			}
			return
		}
	}
	t.Errorf("key %q is not remembered", key)
}

// sends takes a permit, waiting if need be, and hands back what the upstream said a moment later.
func sends(t *testing.T, l *Limiter, key string, f policy.Feedback) {
	t.Helper()
	p, err := l.Acquire(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Millisecond)
	p.Done(f)
}

func TestPolicyStartsAtTheShare(t *testing.T) {
	for _, c := range []bool{withinShare, beyondShare} {
		row(t, c, func(t *testing.T) {
			l := learning(t, c)
			sends(t, l, "k", policy.Feedback{})
			paces(t, l, "k", 10)
			if !l.Stats().Learns {
				t.Error("no feedback is needed")
			}
		})
	}
	if limiterOf(t, Limit{}).Stats().Learns {
		t.Error("Fixed needs feedback")
	}
}

// A key's use of its pace counts as its use of its limit does.
func TestPaceIsUsed(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := learning(t, beyondShare)
		sends(t, l, "k", throttled) // a pace of 5, of which one may come at once
		time.Sleep(time.Second)
		for _, want := range []float64{0, 1} {
			k := l.Top(1)[0]
			if ctrl := k.Rules[1]; k.Used != want || ctrl.Burst != 1 || ctrl.Left != 1-want {
				t.Errorf("used %v, want %v; the pace has %v left of %v", k.Used, want, ctrl.Left, ctrl.Burst)
			}
			l.Allow("k") // refused in the end
		}
	})
}

func TestRefusalCutsTheRate(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := learning(t, beyondShare)
		sends(t, l, "k", throttled)
		paces(t, l, "k", 5)
		sends(t, l, "k", throttled)
		paces(t, l, "k", 2.5)
		sends(t, l, "other", success)
		paces(t, l, "other", 10)
		if got := l.Stats().Throttled; got != 2 {
			t.Errorf("counted %d", got)
		}
		start := time.Now()
		for range 11 { // one burst of one event, then the pace
			sends(t, l, "k", policy.Feedback{Outcome: policy.Unavailable})
		}
		if d := time.Since(start); d < 4*time.Second || d > 4500*time.Millisecond {
			t.Errorf("10 events at 2.5 a second took %v", d)
		}
	})
}

// Failure mode 25: refusals of requests that were sent before a cut say nothing new.
func TestOneCutForOneCongestedPeriod(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Rates(perSecond(1000, 1000)), Policy(policy.AIMD{}))
		var permits []Permit
		for range 50 {
			permits = append(permits, took(t, l, "k"))
		}
		time.Sleep(100 * time.Millisecond)
		for _, p := range permits {
			p.Done(throttled)
		}
		paces(t, l, "k", 500)
	})
}

func TestRateGrowsOnlyWhenItHeldBack(t *testing.T) {
	for _, c := range []struct {
		ceiling bool
		most    float64
	}{{withinShare, 10}, {beyondShare, 20}} {
		row(t, c, func(t *testing.T) {
			l := learning(t, c.ceiling)
			sends(t, l, "k", throttled)
			for range 20 { // seldom: nothing held them back
				time.Sleep(time.Second)
				sends(t, l, "k", success)
			}
			paces(t, l, "k", 5)
			for start := time.Now(); time.Since(start) < 5*time.Second; {
				sends(t, l, "k", success)
			}
			paces(t, l, "k", 7.5) // a twentieth of the share in each second
			for start := time.Now(); time.Since(start) < time.Minute; {
				sends(t, l, "k", success)
			}
			paces(t, l, "k", c.most)
		})
	}
}

// A reader of batches is held back as well when it gets less than it asked for.
func TestRateGrowsForReadersOfBatches(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := learning(t, withinShare)
		sends(t, l, "k", throttled)
		for range 50 {
			p, _ := l.TryAcquireUpTo("k", 100)
			time.Sleep(100 * time.Millisecond)
			p.Done(success)
		}
		for ks := range l.Keys() {
			if ks.pace() <= 5.1 {
				t.Errorf("after 5 s of batches that were cut short the rate is %v, want it to grow",
					ks.pace())
			}
		}
	})
}

func TestSharesBoundThePolicy(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		ctrl := &spyController{next: 1e6}
		l := limiterOf(t, rated(perSecond(20, 2)), Policy(ctrl), Replicas(2))
		sends(t, l, "k", success)
		paces(t, l, "k", 10)
		start, n := time.Now(), 0
		for time.Since(start) < 10*time.Second {
			if l.Allow("k") {
				n++
			}
			time.Sleep(time.Millisecond)
		}
		if n > 101 {
			t.Errorf("%d in 10 s at a share of 10 a second", n)
		}
	})
}

func TestPoolChangesMoveAKeysBounds(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := learning(t, withinShare)
		sends(t, l, "k", throttled)
		sends(t, l, "new", success)
		setReplicas(t, l, 8)
		paces(t, l, "k", 2.5)
		setReplicas(t, l, 2)
		paces(t, l, "k", 2.5) // what it learned stays
		sends(t, l, "unlearned", policy.Feedback{})
		paces(t, l, "unlearned", 10)
	})
}

// A key that has learned is not dropped for ten minutes.
func TestLearnedKeysStay(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := learning(t, beyondShare, MaxKeys(1))
		sends(t, l, "learned", throttled)
		for range 9 {
			time.Sleep(time.Minute)
			took(t, l, "another").Release()
			paces(t, l, "learned", 5)
		}
		time.Sleep(time.Minute)
		paces(t, l, "learned", 10) // as if never seen
		took(t, l, "another").Release()
		if gateOf(l, "learned") != nil {
			t.Error("a key that has forgotten is still there")
		}
	})
}

// Refusing all for a while forgets nothing either.
func TestDenyKeepsWhatWasLearned(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		slow := rated(Rate{Events: 0.01, Per: time.Second})
		l := limiterOf(t, slow, Policy(policy.AIMD{}))
		sends(t, l, "k", throttled)
		paces(t, l, "k", 0.005)
		setLimit(t, l, Limit{Deny: true})
		setLimit(t, l, slow)
		paces(t, l, "k", 0.005)
	})
}

func TestFeedbackKeepsWhatWasLearned(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := learning(t, beyondShare)
		sends(t, l, "k", throttled)
		for range 30 {
			time.Sleep(9 * time.Minute)
			sends(t, l, "k", success)
		}
		paces(t, l, "k", 5)
	})
}

// A controller that answers nonsense to feedback changes nothing.
func TestControllerThatAnswersNonsense(t *testing.T) {
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1} {
		row(t, x, func(t *testing.T) {
			l := limiterOf(t, rated(perSecond(20, 40)), Policy(&spyController{next: x}), BeyondShare(),
				Replicas(2))
			for range 5 {
				sends(t, l, "k", success)
			}
			paces(t, l, "k", 10)
		})
	}
}

// Nor is one whose rate to start at is nonsense.
func TestControllerThatStartsWithNonsense(t *testing.T) {
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1} {
		row(t, x, func(t *testing.T) {
			l := limiterOf(t, rated(tokensPerMinute(60, 60)), Policy(&spyController{start: x}), BeyondShare())
			n := 0
			for n < 10_000 && l.Allow("k") {
				n++
			}
			time.Sleep(time.Hour)
			if more := l.Allow("k"); n == 0 || n == 10_000 || !more {
				t.Errorf("a start of %v: %d requests at once, and one more an hour later: %v", x, n, more)
			}
		})
	}
}

// A key that starts as a copy of the overflow gate has learned nothing, and must not be kept for it.
func TestKeyFromTheOverflowGateCanBecomeIdle(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1000, 1000)), Policy(policy.AIMD{}), MaxKeys(1))
		took(t, l, "busy")
		sends(t, l, "late", throttled) // the overflow gate has learned
		for k := range l.Keys() {
			if k.Key == "late" {
				t.Fatal("the key is not in the overflow gate")
			}
		}
		l.shard("busy").free(holdingOf(l, "busy"))
		time.Sleep(time.Second)
		took(t, l, "late").Release() // has a gate of its own now
		if gateOf(l, "late") == nil {
			t.Fatal("the key has no gate of its own")
		}
		time.Sleep(time.Hour)
		l.TryAcquire("another")
		if gateOf(l, "late") != nil {
			t.Error("a key that learned nothing and did nothing for an hour is still not idle")
		}
	})
}

// holdingOf is a permit of the key that is out.
func holdingOf(l *Limiter, key string) *holding {
	for _, block := range l.shard(key).permits.blocks {
		for i := range block {
			if h := &block[i]; h.out() && h.gate == gateOf(l, key) {
				return h
			}
		}
	}
	return nil
}

// Report hands feedback to the policy, and keeps the permit. Feedback after the release counts for nothing.
func TestReportKeepsThePermit(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(10, 10)}, InFlight: 1}, Policy(policy.AIMD{}))
		p := took(t, l, "k")
		time.Sleep(time.Millisecond)
		p.Report(throttled)
		paces(t, l, "k", 5)
		inFlight(t, l, 1)
		p.Release()
		p.Report(throttled)
		p.Done(throttled)
		paces(t, l, "k", 5)
		if st := l.Stats(); st.InFlight != 0 || st.Throttled != 1 || st.DoubleReleases != 1 {
			t.Errorf("in flight %d, throttled %d, double releases %d", st.InFlight, st.Throttled,
				st.DoubleReleases)
		}
		Permit{}.Report(throttled)
	})
}

// Under Fixed there is no controller for the feedback.
func TestReportUnderFixed(t *testing.T) {
	l := limiterOf(t, Limit{InFlight: 1})
	p := took(t, l, "k")
	p.Report(throttled)
	inFlight(t, l, 1)
	p.Done(throttled)
	inFlight(t, l, 0)
}

// A learned rate that is forgotten after 10 minutes must wake the head.
func TestForgetWakesTheHead(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Rate{Name: "r", Events: 1, Per: time.Minute, Burst: 20}),
			Policy(policy.AIMD{Decrease: 0.02}))
		p := took(t, l, "k")
		time.Sleep(time.Second)
		p.Done(policy.Feedback{Outcome: policy.Throttled}) // one in 50 min from now on
		learned := func() (x float64) {
			for ks := range l.Keys() {
				x = ks.pace()
			}
			return x
		}
		w := asking(t, l, "k")
		time.Sleep(12 * time.Minute)
		if !w.ended() {
			t.Errorf("still queued 12 min after the last feedback; it was forgotten after 10, and the rate "+
				"is one a minute again: %v/s", learned())
			for d := range 60 {
				if time.Sleep(time.Minute); w.ended() {
					t.Logf("admitted only %d min later", d+1)
					break
				}
			}
		}
		w.cancel()
		synctest.Wait()
	})
}

// A policy that has no controller for a while crashes no process.
func TestPolicyWithoutControllerAtAChange(t *testing.T) {
	l := limiterOf(t, rated(perSecond(20, 40)), Policy(fickle{new(int)}))
	setReplicas(t, l, 2)
	if !l.Allow("k") {
		t.Error("refused")
	}
}

func TestPolicyIsValidated(t *testing.T) {
	bad := errors.New("hourly.bad: true")
	_, err := New(Limit{}, Policy(hourly{bad: bad}))
	if !errors.Is(err, bad) {
		t.Errorf("got %v", err)
	}
	_, err = New(Limit{}, Policy(policy.Ramp{Start: 2}))
	says(t, err, "quotient: Policy", "Ramp.Start", "2")
}

// A call and its feedback allocate nothing: what goes to a controller stays on the stack.
func TestFeedbackAllocatesNothing(t *testing.T) {
	for _, c := range doneLimits() {
		for _, f := range []policy.Feedback{success, throttled, {Outcome: policy.Failed}} {
			l := limiterOf(t, c.limit, Policy(still{}))
			once := func() {
				p, d := l.TryAcquire("k", c.opts...)
				if !d.OK {
					t.Fatal(d)
				}
				p.Done(f)
			}
			once() // the controller begins, and the first block of permits is made
			if n := testing.AllocsPerRun(100, once); n != 0 {
				t.Errorf("%s, %v: %v allocations", c.name, f.Outcome, n)
			}
		}
	}
}
