package quotient

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// hourly is a policy whose controllers want to be called again every second, whatever the feedback. It
// allows one part more of the ceiling each time, and notes its samples.
type hourly struct {
	parts   float64
	samples *[]policy.Sample
	panics  *bool
	bad     error
}

func (h hourly) New(uint64) policy.Controller { return &hourlyController{hourly: h} }
func (h hourly) Validate() error              { return h.bad }

type hourlyController struct {
	hourly
	n float64
}

func (l *hourlyController) Next(s policy.Sample, b policy.Bounds) policy.Pace {
	if l.panics != nil && *l.panics {
		panic("broken")
	}
	if l.n++; l.samples != nil && s.Now > 0 {
		*l.samples = append(*l.samples, s)
	}
	return policy.Pace{
		Rate: b.Ceiling * min(1, l.n/l.parts), Saved: time.Second,
		Until: s.Now.Truncate(time.Second) + time.Second,
	}
}

// The first call starts a controller whose pace expires. The first call after the expiry asks it again,
// without any feedback. Its sample has what was taken and given back, and whether it has held a call back.
func TestControllersAreConsultedAgain(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		var samples []policy.Sample
		l := limiterOf(t, Rates(Rate{Events: 100, Per: time.Second, Burst: 100}),
			Policy(hourly{parts: 10, samples: &samples}))
		time.Sleep(1500 * time.Millisecond)
		p := upTo(t, l, "k", 100, 10) // an untouched key has saved up a second's events at the start
		upTo(t, l, "k", 1, 0)
		correct(t, p, 4)
		p.Release()
		time.Sleep(400 * time.Millisecond)
		upTo(t, l, "k", 3, 3).Release()
		time.Sleep(200 * time.Millisecond) // 2.1 s
		l.Allow("k")
		at := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
		for i, want := range []policy.Sample{
			{Now: at(1.5), Sent: at(1.5)}, {Now: at(1.5), Sent: at(1.5)},
			{Now: at(2), Sent: at(2), Taken: 7, Paced: true},
		} {
			if i >= len(samples) || samples[i] != want {
				t.Fatalf("got %+v, want %+v at %d", samples, want, i)
			}
		}
	})
}

// A pace that rises admits a waiter, though no feedback and no other call comes.
func TestWaitersSeeAPaceThatRises(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Rates(Rate{Events: 100, Per: time.Second, Burst: 100}), Policy(hourly{parts: 100}))
		upTo(t, l, "k", 100, 1).Release()
		c := asking(t, l, "k", Weight(100)) // at 1/s it would take 99 s; at 3, 4, 5/s and so on it takes 12
		time.Sleep(20 * time.Second)
		if !c.ended() || c.err != nil || c.took > 15*time.Second {
			t.Errorf("ended %v, %v after %v", c.ended(), c.err, c.took)
		}
	})
}

// Such a controller's knowledge is forgotten like anything learned, so that the key can go. It begins again
// afterwards.
func TestConsultedControllersAreForgotten(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Rates(Rate{Events: 100, Per: time.Second, Burst: 100}), Policy(hourly{parts: 10}),
			MaxKeys(1))
		for range 20 {
			l.Allow("k")
			time.Sleep(time.Second)
		}
		rateOf := func() float64 {
			for ks := range l.Keys() {
				return ks.pace()
			}
			return 0
		}
		if got := rateOf(); got != 100 {
			t.Errorf("after 20 s the pace is %v, want the ceiling", got)
		}
		time.Sleep(forgetAfter)
		if got := rateOf(); got != 10 {
			t.Errorf("after ten minutes the pace is %v, want the start", got)
		}
		l.Allow("k")
		if got := rateOf(); got != 20 { // begun, and asked once more
			t.Errorf("a new life at %v", got)
		}
	})
}

// A controller that panics when it is called again is dropped: the caller has nothing to do with it, and no
// lock is kept.
func TestConsultedControllerThatPanics(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		panics := false
		l := limiterOf(t, Rates(Rate{Events: 10, Per: time.Second, Burst: 10}),
			Policy(hourly{parts: 1, panics: &panics}))
		l.Allow("k")
		panics = true
		time.Sleep(2 * time.Second)
		for range 2 {
			if !l.Allow("k") {
				t.Error("refused")
			}
		}
	})
}

// A turn that comes sooner than the present pace says is not refused for its deadline.
func TestDeadlineUnderAPaceThatRises(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Rates(Rate{Events: 1000, Per: time.Second, Burst: 1000}),
			Policy(policy.Ramp{Start: .001, Over: 10 * time.Second}))
		l.Allow("k")
		for range 20 { // at 1/s they would take twenty seconds
			asking(t, l, "k")
		}
		c := askingUntil(t, l, 10*time.Second, "k")
		time.Sleep(5 * time.Second)
		if !c.ended() || c.err != nil {
			t.Errorf("ended %v: %v", c.ended(), c.err)
		}
	})
}

// alwaysLate is a controller whose pace is out of date when it says it.
type alwaysLate struct{ asked *atomic.Int64 }

func (p alwaysLate) New(uint64) policy.Controller { return p }
func (p alwaysLate) Next(policy.Sample, policy.Bounds) policy.Pace {
	p.asked.Add(1)
	return policy.Pace{Rate: 1e-3, Until: 1}
}

// A controller that is always out of date is called at most a thousand times a second.
func TestPaceThatIsAlwaysOutOfDate(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		asked := new(atomic.Int64)
		l := limiterOf(t, Rates(PerSecond(1)), Policy(alwaysLate{asked}))
		l.Allow("k")
		c := asking(t, l, "k")
		asked.Store(0)
		if time.Sleep(100 * time.Microsecond); asked.Load() > 1 {
			t.Errorf("asked %d times in .1 ms", asked.Load())
		} else if time.Sleep(10 * time.Millisecond); asked.Load() < 5 || asked.Load() > 15 {
			t.Errorf("asked %d times in 10 ms", asked.Load())
		}
		c.cancel()
		time.Sleep(time.Second)
	})
}

// Check says what TryAcquire would, also under a controller with a clock, and neither it nor a look at the
// keys keeps one.
func TestLooksUnderAClock(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 100}, Policy(policy.Ramp{Start: .01, Over: 10 * time.Second}))
		took(t, l, "k").Release()
		time.Sleep(time.Minute)
		if c, d := l.Check("k", Weight(50)), (Decision{OK: true}); c != d {
			t.Errorf("%+v", c)
		}
		for range 15 {
			time.Sleep(time.Minute)
			l.Check("k")
			for range l.Keys() {
			}
		}
		if g := gateOf(l, "k"); g.ext.learned.due != 0 {
			t.Error("it is remembered because of a look at it")
		}
	})
}

// A look at a key changes nothing, also where a controller is called again as time goes by: what was missed
// is made up for.
func TestLooksChangeNothing(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		ramp := Policy(policy.Ramp{Start: .1, Over: 10 * time.Second})
		var got []int
		for _, looks := range []bool{true, false} {
			l := limiterOf(t, Rates(Rate{Events: 100, Per: time.Second, Burst: 1000}), ramp)
			l.Allow("k")
			time.Sleep(900 * time.Millisecond)
			upTo(t, l, "k", 100, 10)
			for range 6 {
				if time.Sleep(100 * time.Millisecond); looks {
					l.Check("k")
				}
			}
			_, n := l.TryAcquireUpTo("k", 1000)
			got = append(got, n)
		}
		if got[0] != got[1] {
			t.Errorf("looked at: %d, left alone: %d", got[0], got[1])
		}
	})
}

// A key that was forgotten and kept is like one that was forgotten and dropped, whatever it had taken before.
func TestForgottenKeysAreLikeNew(t *testing.T) {
	for name, c := range map[string]struct {
		rate Rate
		ramp policy.Ramp
		join bool
	}{
		"what was taken": {PerSecond(100),
			policy.Ramp{Mode: policy.RampOnlyIfUsed, Start: .1, Over: 10 * time.Second}, false},
		"what is left": {PerHour(6), policy.Ramp{Start: .1, Over: 10 * time.Second}, true},
	} {
		row(t, name, func(t *testing.T) {
			var answers [2]Decision
			var rates [2]float64
			for i, keys := range []int{1, 1000} {
				start := Replicas(1)
				if c.join {
					start = together(Replicas(1), StartEmpty())
				}
				l := limiterOf(t, Rates(c.rate), Policy(c.ramp), MaxKeys(keys), start)
				if keys > 1 {
					l.shards[0].evictNothing()
				}
				for range 20 {
					l.TryAcquireUpTo("k", 10)
					time.Sleep(time.Second)
				}
				time.Sleep(20 * time.Minute)
				l.Allow("other")
				time.Sleep(30 * time.Minute)
				answers[i] = l.Check("k")
				l.Allow("k")
				time.Sleep(time.Second)
				l.Allow("k")
				for ks := range l.Keys() {
					k := ks.Key
					if k == "k" {
						rates[i] = ks.pace()
					}
				}
			}
			if answers[0] != answers[1] || rates[0] != rates[1] {
				t.Errorf("evicting %+v at %v/s, else %+v at %v/s", answers[0], rates[0], answers[1], rates[1])
			}
		})
	}
}

// A success is dated by what came before it. A correction that has asked the controllers again comes before
// it too.
func TestSamplesOfAControllerAreInOrder(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		var samples []policy.Sample
		l := limiterOf(t, rated(perSecond(100, 100)), Policy(hourly{parts: 10, samples: &samples}))
		time.Sleep(1500 * time.Millisecond)
		p := upTo(t, l, "k", 4, 4)
		time.Sleep(time.Second)
		correct(t, p, 3)
		p.Done(success)
		if last := samples[len(samples)-1]; last.Outcome != policy.Success ||
			last.Now != 2500*time.Millisecond {
			t.Errorf("the success is dated %v, want the correction at 2.5s: %+v", last.Now, samples)
		}
	})
}

// A success after a look at the key is not dated back, or the ramp would count the same second twice.
func TestLookBetweenAdmissionAndSuccess(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		ramp := Policy(policy.Ramp{Start: .2, Over: 5 * time.Second})
		looked, left := limiterOf(t, rated(PerSecond(100)), ramp), limiterOf(t, rated(PerSecond(100)), ramp)
		for range 4 {
			p, q := upTo(t, looked, "k", 1, 1), upTo(t, left, "k", 1, 1)
			time.Sleep(time.Second)
			looked.Check("k")
			p.Done(policy.Feedback{Outcome: policy.Success})
			q.Done(policy.Feedback{Outcome: policy.Success})
			time.Sleep(time.Millisecond)
			for i, x := range left.Explain("k").Rules {
				if got := looked.Explain("k").Rules[i].Pace; got != x.Pace {
					t.Fatalf("a key that is looked at gets %v a second, one that is left alone %v",
						got, x.Pace)
				}
			}
		}
	})
}
