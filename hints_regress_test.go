package quotient

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Each of these was wrong once.

// Turns of two paced rates, or of one beside windows, may never be open at one instant: somebody would wait for ever.
func TestTurnsThatNeverMeet(t *testing.T) {
	for name, c := range map[string]struct {
		rates []Rate
		pool  Pool
		step  time.Duration // a hundred of them are long enough
	}{
		"two paced rates": {[]Rate{{Name: "second", Events: 1, Per: time.Second, Burst: 1}, {Name: "minute", Events: 30, Per: time.Minute, Burst: 1}}, Pool{Replicas: 3, Ordinal: 2}, time.Second},
		"beside windows":  {[]Rate{Every(100 * time.Millisecond), {Name: "w", Events: 10, Per: time.Second, Aligned: true}}, Pool{Replicas: 20, Ordinal: 1}, time.Second},
		"for decades":     {[]Rate{Every(365 * 24 * time.Hour)}, Pool{Replicas: 40, Ordinal: 1}, 365 * 24 * time.Hour},
	} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, Limit{Rates: c.rates}, JoinPool(c.pool))
			call := asking(t, l, "k")
			for range 100 { // a century takes several sleeps
				if time.Sleep(c.step); call.ended() {
					break
				}
			}
			if !call.ended() || call.err != nil {
				t.Errorf("not served: %v", l.Check("k"))
				call.cancel()
			}
		})
	}
}

// What is corrected under turns does not bring back what has come back by itself.
func TestTurnIsNotTakenTwice(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{{Name: "t", Unit: "tokens", Events: 1, Per: time.Second, Burst: 1}}}, StartPool(Pool{Replicas: 2, Ordinal: 1}))
		a := took(t, l, "k", Cost("tokens", 1))
		time.Sleep(2 * time.Second)
		took(t, l, "k", Cost("tokens", 1))
		must(t, a.Correct("tokens", 0))
		if _, d := l.TryAcquire("k", Cost("tokens", 1)); d.OK {
			t.Error("two tokens in one turn")
		}
	})
}

// A permit that is corrected after all that was learned has been forgotten leaves no debt.
func TestGiveBackAfterForgetting(t *testing.T) {
	for _, unit := range []string{"", "tokens"} {
		row(t, "unit "+unit, func(t *testing.T) {
			l := limiterOf(t, Limit{Rates: []Rate{{Name: "r", Unit: unit, Events: 1000, Per: time.Second, Burst: 1000}}, InFlight: 1000},
				Policy(policy.Ramp{Start: .01, Over: 10 * time.Second}, CeilingShare))
			for range 20 { // to the top of the ramp
				took(t, l, "k", Cost(unit, 1)).Release()
				time.Sleep(time.Second)
			}
			p := took(t, l, "k", Cost(unit, 1))
			time.Sleep(time.Hour) // a long job
			must(t, p.Correct(unit, 0))
			p.Release()
			if _, d := l.TryAcquire("k", Cost(unit, 1)); !d.OK {
				t.Errorf("refused: %+v", d)
			}
		})
	}
}

// More than an int32 of requests may be given back.
func TestGiveBackOfBillions(t *testing.T) {
	for _, n := range []int{1 << 31, 3e9} {
		l := limiterOf(t, Limit{Rates: []Rate{{Events: 1e10, Per: time.Second, Burst: 1e10}}})
		correct(t, upTo(t, l, "k", n, n), 0)
		setLimit(t, l, Limit{InFlight: 5})
		for range 5 {
			took(t, l, "k")
		}
		if _, d := l.TryAcquire("k"); d.OK {
			t.Errorf("%d: a sixth of five slots", n)
		}
	}
}

// Any permit under an in-flight limit gives back to the rates too.
func TestPlainPermitGivesBackToRates(t *testing.T) {
	for name, rate := range map[string]Rate{"bucket": PerSecond(10), "window": {Events: 10, Per: time.Second, Aligned: true}} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, Limit{Rates: []Rate{rate}, InFlight: 20})
			time.Sleep(10 * time.Second)
			took(t, l, "k").Release()
			correct(t, took(t, l, "k", Weight(9)), 4)
			has(t, l, "k", 5)
		})
	}
}

// relents is a law whose pace falls to a fifth, or waits for a time, when it is refused.
type relents struct{ wait time.Duration }

func (p relents) New(uint64) policy.Law { return p }
func (p relents) Next(s policy.Sample, _ policy.Bounds) policy.Pace {
	pace := policy.Pace{Rate: 100, Saved: time.Second}
	switch {
	case s.Outcome != policy.Throttled:
	case p.wait > 0:
		pace.NotBefore = s.Now + p.wait
	default:
		pace.Rate = 20
	}
	return pace
}

// What was taken before a law stopped its key, or slowed it down, does not come back as a burst after that.
func TestGiveBackAfterRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		law  relents
		left int
	}{"a pace that falls": {relents{}, 20}, "a pause": {relents{300 * time.Millisecond}, 1}} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, Limit{Rates: []Rate{{Events: 100, Per: time.Second, Burst: 100}}}, Policy(c.law, CeilingShare))
			p := upTo(t, l, "k", 50, 50)
			time.Sleep(time.Second) // they have come back by themselves
			q := upTo(t, l, "k", 1, 1)
			q.Done(policy.Feedback{Outcome: policy.Throttled})
			time.Sleep(c.law.wait)
			upTo(t, l, "k", 100, c.left)
			correct(t, p, 0)
			upTo(t, l, "k", 100, 0)
		})
	}
}

// A key that was forgotten and kept is like one that was forgotten and dropped, whatever it had taken before.
func TestForgottenKeysAreLikeNew(t *testing.T) {
	for name, c := range map[string]struct {
		rate Rate
		ramp policy.Ramp
		join bool
	}{
		"what was taken": {PerSecond(100), policy.Ramp{Mode: policy.RampOnlyIfUsed, Start: .1, Over: 10 * time.Second}, false},
		"what is left":   {PerHour(6), policy.Ramp{Start: .1, Over: 10 * time.Second}, true},
	} {
		row(t, name, func(t *testing.T) {
			var answers [2]Decision
			var rates [2]float64
			for i, keys := range []int{1, 1000} {
				start := StartPool(Pool{Replicas: 1})
				if c.join {
					start = JoinPool(Pool{Replicas: 1})
				}
				l := limiterOf(t, Limit{Rates: []Rate{c.rate}}, Policy(c.ramp, CeilingShare), MaxKeys(keys), start)
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
				for k, ks := range l.Keys() {
					if k == "k" {
						rates[i] = ks.Rate
					}
				}
			}
			if answers[0] != answers[1] || rates[0] != rates[1] {
				t.Errorf("evicting %+v at %v/s, else %+v at %v/s", answers[0], rates[0], answers[1], rates[1])
			}
		})
	}
}

// ends is a source that fails after ten seconds.
type ends struct{}

func (ends) Watch(ctx context.Context, _ func(Pool, error)) error {
	select {
	case <-time.After(10 * time.Second):
	case <-ctx.Done():
	}
	return errors.New("connection lost")
}

// A source that ends again and again before HintMaxAge has passed does not shut a replica for ever.
func TestAwaitPoolOfASourceThatEnds(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 10}, StartPool(Pool{Replicas: 9}), AwaitPool(), HintMaxAge(25*time.Second))
		for range 4 {
			if l.Follow(t.Context(), ends{}) == nil {
				t.Error("no error")
			}
		}
		if d := l.Check("k"); !d.OK {
			t.Errorf("after 40 s: %+v", d)
		}
	})
}

// Check says what TryAcquire would, also under a law with a clock, and neither it nor a look at the keys keeps one.
func TestLooksUnderAClock(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 100}, Policy(policy.Ramp{Start: .01, Over: 10 * time.Second}, CeilingShare))
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
		if g := gateOf(l, "k"); g.more.learned.due != 0 {
			t.Error("it is remembered because somebody has looked")
		}
	})
}

// A turn that comes sooner than the present pace says is not refused for its deadline.
func TestDeadlineUnderAPaceThatRises(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{{Events: 1000, Per: time.Second, Burst: 1000}}},
			Policy(policy.Ramp{Start: .001, Over: 10 * time.Second}, CeilingShare))
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

// alwaysLate is a law whose pace is out of date when it says it.
type alwaysLate struct{ asked *atomic.Int64 }

func (p alwaysLate) New(uint64) policy.Law { return p }
func (p alwaysLate) Next(policy.Sample, policy.Bounds) policy.Pace {
	p.asked.Add(1)
	return policy.Pace{Rate: 1e-3, Until: 1}
}

// A law that is always out of date is asked a thousand times a second at most.
func TestPaceThatIsAlwaysOutOfDate(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		asked := new(atomic.Int64)
		l := limiterOf(t, Limit{Rates: []Rate{PerSecond(1)}}, Policy(alwaysLate{asked}, CeilingShare))
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

// Three replicas always; the middle one's source says a thing once, or for a while, and then fails, while the others change places
// round it: they hold each ordinal once, and the limits too, whatever the middle one still believes.
func TestOrdinalThatHasGrownOld(t *testing.T) {
	for name, limit := range map[string]Limit{"slots": {InFlight: 4}, "windows": {Rates: []Rate{{Events: 10, Per: time.Second, Aligned: true}}}} {
		for heard := range 40 {
			row(t, name, func(t *testing.T) {
				var fleet []*Limiter
				var sources []*spoken
				for range 3 {
					l := limiterOf(t, limit)
					fleet, sources = append(fleet, l), append(sources, following(t, l))
					defer sources[len(sources)-1].cancel()
				}
				for range heard {
					sources[0].saysPool(Pool{Replicas: 3, Ordinal: 1})
					time.Sleep(time.Second)
				}
				sources[0].saysPool(Pool{Replicas: 3, Ordinal: 1})
				for i := range 70 {
					sources[0].fails("SERVFAIL")
					sources[1].saysPool(Pool{Replicas: 3, Ordinal: 1})
					sources[2].saysPool(Pool{Replicas: 3, Ordinal: 3})
					time.Sleep(time.Second)
					sum := 0
					for _, l := range fleet {
						p, n := l.TryAcquireUpTo("k", 100)
						defer p.Release()
						if sum += n; limit.InFlight > 0 {
							p.Release()
						}
					}
					if most := max(limit.InFlight, 10); sum > most && (limit.InFlight > 0 || i > 30) {
						t.Fatalf("%d after %d s", sum, i)
					}
				}
			})
		}
	}
}

// What says its only word at the start does not grow old, and what is known is not given up for a pool that nobody has configured.
func TestWhatDoesNotGrowOld(t *testing.T) {
	says5 := Pool{Replicas: 5, Ordinal: 2, Fixed: true}
	t.Setenv("QUOTIENT_REPLICAS", "5")
	t.Setenv("QUOTIENT_ORDINAL", "1")
	for name, src := range map[string]Source{"static": Static(says5), "env": Env(), "numbered": FixedOrdinal(2, Static(Pool{Replicas: 5}))} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, Limit{Rates: []Rate{PerSecond(100)}}, StartPool(Pool{Replicas: 9}), AwaitPool(), HintMaxAge(time.Minute))
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := l.Follow(ctx, src); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if l.Pool() != says5 {
				t.Errorf("after an hour %+v", l.Stats().Pool)
			}
		})
	}
	row(t, "nothing configured", func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{PerSecond(100)}}, HintMaxAge(time.Minute))
		src := following(t, l)
		defer src.cancel()
		src.says(20)
		time.Sleep(time.Hour)
		counted(t, l, 20)
	})
	_, err := New(Limit{}, AwaitPool(), HintMaxAge(time.Minute))
	says(t, err, "AwaitPool", "StartPool")
}

// A source that ends before its time is logged: nobody else may look at Follow's error.
func TestFollowLogsASourceThatEnds(t *testing.T) {
	var log strings.Builder
	l := limiterOf(t, Limit{}, Logger(slog.New(slog.NewTextHandler(&log, nil))))
	if l.Follow(t.Context(), FixedOrdinal(0, Static(Pool{Replicas: 3}))) == nil || !strings.Contains(log.String(), "FixedOrdinal") {
		t.Errorf("the log says %q", log.String())
	}
}

// Who looks at a key changes nothing, also where a law is asked again as time goes by: what was missed is made up for.
func TestLooksChangeNothing(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		ramp := Policy(policy.Ramp{Start: .1, Over: 10 * time.Second}, CeilingShare)
		var got []int
		for _, looks := range []bool{true, false} {
			l := limiterOf(t, Limit{Rates: []Rate{{Events: 100, Per: time.Second, Burst: 1000}}}, ramp)
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
