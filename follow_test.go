package quotient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/policy"
)

// spoken is a source that reports what a test makes it report.
type spoken struct {
	report func(Pool, error)
	ended  chan error // what Follow returned
	cancel context.CancelFunc
}

func (s *spoken) Watch(ctx context.Context, report func(Pool, error)) error {
	s.report = report
	<-ctx.Done()
	return ctx.Err()
}

func (s *spoken) says(replicas int) { s.report(Pool{Replicas: replicas}, nil) }

func (s *spoken) saysPool(p Pool) { s.report(p, nil) }

func (s *spoken) fails(text string) { s.report(Pool{}, errors.New(text)) }

func (s *spoken) stops() (err error) { s.cancel(); return <-s.ended }

// cancelled ends a source, and reports the error that Follow returned.
func (s *spoken) cancelled() error {
	if err := s.stops(); err != nil {
		return fmt.Errorf("Follow returned %w", err)
	}
	return nil
}

// each says what a source reports, a second after the other.
func (s *spoken) each(reports string) {
	for _, r := range reports {
		switch r {
		case 'F':
			s.fails("SERVFAIL")
		case 'R':
			s.says(0)
		case 'G':
			s.says(5)
		}
		time.Sleep(time.Second)
	}
}

// following returns a source that the limiter follows, in a bubble: to the end of a test, but a property has
// to cancel it.
func following(t rapid.TB, l *Limiter) *spoken {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &spoken{ended: make(chan error, 1), cancel: cancel}
	if t, ok := t.(*testing.T); ok {
		t.Cleanup(cancel)
	}
	go func() { s.ended <- l.Follow(ctx, s) }()
	synctest.Wait()
	return s
}

// counted fails unless so many replicas share the limit.
func counted(t *testing.T, l *Limiter, n int) {
	t.Helper()
	if got := l.Stats().Pool.Replicas; got != n {
		t.Errorf("at %v: %d replicas count, want %d", time.Now().Format(time.TimeOnly), got, n)
	}
}

// replicas fails unless so many replicas share the limit, by the word of such a source.
func replicas(t *testing.T, l *Limiter, n int, source string) {
	t.Helper()
	synctest.Wait()
	if s := l.Stats().Pool; s.Replicas != n || s.Source != source {
		t.Errorf("%d replicas, %s; want %d, %s", s.Replicas, s.Source, n, source)
	}
}

func poolFor(t *testing.T, l *Limiter, n int, ttl time.Duration) {
	t.Helper()
	must(t, l.SetPool(Pool{Replicas: n}, ttl))
}

func TestFollowRefusesNil(t *testing.T) {
	says(t, limiterOf(t, Limit{}).Follow(t.Context(), nil), "Follow", "source", "nil")
}

// A source that changes its mind without end is remembered on the safe side, in bounded memory.
func TestFollowForgetsOnTheSafeSide(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		var d damper
		for n := 1000; n > 0; n-- {
			d.note(Pool{Replicas: n}, time.Now(), time.Minute)
			time.Sleep(10 * time.Millisecond)
		}
		if len(d.older) > maxPastSizes {
			t.Errorf("%d sizes are kept", len(d.older))
		}
		for range 100 {
			// All were reported within ten seconds; the first, and largest, is the first to be over.
			over := max(0, time.Since(d.since)-50*time.Second) / (10 * time.Millisecond)
			if got, least := d.pool(time.Now(), time.Minute).Replicas, max(1, 999-int(over)); got < least {
				t.Errorf("after %v %d replicas count, want %d at least", time.Since(d.since), got, least)
			}
			time.Sleep(time.Second)
		}
		if got := d.pool(time.Now(), time.Minute).Replicas; got != 1 {
			t.Errorf("%d count in the end", got)
		}
	})
}

// Failure mode 14: what is out of range, or fails, leaves the last good pool, and is counted.
func TestFollowKeepsTheLastGoodPool(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(8, 8)), Replicas(6))
		src := following(t, l)
		src.fails("no such host")
		src.says(0)
		replicas(t, l, 6, "configured")
		if age := l.Stats().Pool.Age; age != 0 {
			t.Errorf("the configured pool is %v old", age)
		}
		src.says(4)
		for _, p := range []Pool{{}, {Replicas: -2}, {Replicas: maxReplicas + 1}, {Replicas: 3, Ordinal: 9}} {
			src.saysPool(p)
			counted(t, l, 4)
		}
		src.fails("the network is down")
		time.Sleep(time.Hour)
		counted(t, l, 4)
		wants(t, l, "k", 2)
		st := l.Stats().Pool
		if st.Reports != 1 || st.Rejected != 5 || st.Errors != 2 || st.LastError != "the network is down" ||
			st.Age != time.Hour {
			t.Errorf("got %+v", st)
		}
	})
}

func TestHintMaxAge(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{}, Replicas(6), HintMaxAge(time.Minute))
		src := following(t, l)
		src.says(4)
		time.Sleep(30 * time.Second)
		src.says(4) // good for another minute
		time.Sleep(40 * time.Second)
		src.fails("not usable")
		src.says(0)
		counted(t, l, 4)
		time.Sleep(20*time.Second - 1)
		counted(t, l, 4)
		time.Sleep(time.Nanosecond)
		replicas(t, l, 6, "configured")
		src.says(4) // it is back
		counted(t, l, 4)
	})
}

// An ordinal that is not fixed by construction counts as fixed when it was reported for one hold-down, and as
// none when it was not reported for as long.
func TestOrdinalBecomesFixed(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 8})
		src, of3 := following(t, l), func(ordinal int) Pool { return Pool{Replicas: 3, Ordinal: ordinal} }
		for _, c := range []struct {
			after    time.Duration
			reported Pool
			fixed    bool
			slots    int // of 8
		}{
			{0, of3(2), false, 2},
			{29, of3(2), false, 2},
			{1, Pool{}, false, 2}, // it takes a report, and not the time alone
			{0, of3(2), true, 3},
			{29, Pool{}, true, 3},
			{1, Pool{}, false, 2}, // by now it may be another's
			{0, of3(2), false, 2}, // and one word after a silence fixes nothing
			{29, of3(2), false, 2},
			{1, of3(2), true, 3},
			{1, of3(3), false, 2},
			{29, of3(2), false, 2}, // a change starts it again
			{29, of3(2), false, 2},
			{1, of3(2), true, 3},
			{0, Pool{Replicas: 5, Ordinal: 1, Fixed: true}, true, 2}, // by construction: at once,
			{1000, Pool{}, true, 2},                                  // and for good
		} {
			time.Sleep(c.after * time.Second)
			if c.reported != (Pool{}) {
				src.saysPool(c.reported)
			}
			synctest.Wait()
			if got := l.Stats().Pool.Fixed; got != c.fixed {
				t.Errorf("%+v: fixed %v", c, got)
			}
			p, n := l.TryAcquireUpTo("k", 100)
			if p.Release(); n != c.slots {
				t.Errorf("%+v: %d slots", c, n)
			}
		}
	})
}

// While a larger size of before counts, the ordinal in the smaller pool does not, unless it is fixed.
func TestOrdinalWhileThePoolShrinks(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{})
		src := following(t, l)
		for _, fixed := range []bool{true, false} {
			src.saysPool(Pool{Replicas: 4, Ordinal: 1, Fixed: fixed})
			src.saysPool(Pool{Replicas: 2, Ordinal: 1, Fixed: fixed})
			want := Pool{Replicas: 4}
			if fixed {
				want = Pool{Replicas: 4, Ordinal: 1, Fixed: true}
			}
			if got := l.Stats().Pool.Pool; got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			for range 2 {
				time.Sleep(defaultHoldDown / 2)
				src.saysPool(Pool{Replicas: 2, Ordinal: 1, Fixed: fixed})
			}
			synctest.Wait()
			if got, want := l.Stats().Pool.Pool, (Pool{Replicas: 2, Ordinal: 1, Fixed: true}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
	})
}

// Failure mode 41: nothing of a Follow is left when its context has ended.
func TestFollowEndsWithItsContext(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{}, HintMaxAge(time.Minute))
		src := following(t, l)
		src.says(8)
		src.says(4) // would count in half a minute
		must(t, src.cancelled())
		time.Sleep(time.Hour)
		counted(t, l, 8)
		src.says(9) // a source that does not end with its context
		counted(t, l, 8)
		if st := l.Stats().Pool; st.Reports != 2 {
			t.Errorf("got %+v", st)
		}
	})
}

// A Follow that begins again after a source failed holds down as before.
func TestFollowAgainKeepsTheHoldDown(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(PerSecond(10)))
		for _, n := range []int{8, 1} {
			src := following(t, l)
			src.says(n)
			must(t, src.cancelled())
			counted(t, l, 8)
		}
	})
}

// There are always three replicas. The source of the middle one reports once, or for a while, and then fails,
// while the others change places round it. They hold each ordinal once, and the limits too, whatever the
// middle one still believes.
func TestOrdinalThatHasGrownOld(t *testing.T) {
	for name, limit := range map[string]Limit{
		"slots":   {InFlight: 4},
		"windows": {Rates: []Rate{{Events: 10, Per: time.Second, Aligned: true}}},
	} {
		for reports := range 40 {
			row(t, name, func(t *testing.T) {
				var fleet []*Limiter
				var sources []*spoken
				for range 3 {
					l := limiterOf(t, limit)
					fleet, sources = append(fleet, l), append(sources, following(t, l))
				}
				for range reports {
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

// The only report of a source that reports once does not grow old. A known pool is not given up for one that
// was not configured.
func TestWhatDoesNotGrowOld(t *testing.T) {
	says5 := Pool{Replicas: 5, Ordinal: 2, Fixed: true}
	t.Setenv("QUOTIENT_REPLICAS", "5")
	t.Setenv("QUOTIENT_ORDINAL", "1")
	for name, src := range map[string]Source{
		"static":   steady(says5),
		"env":      Env(),
		"numbered": FixedOrdinal(2, steady(Pool{Replicas: 5})),
	} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, Rates(PerSecond(100)), Replicas(9), AwaitPool(), HintMaxAge(time.Minute))
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := l.Follow(ctx, src); err != nil {
				t.Error(err)
			}
			if l.Stats().Pool.Pool != says5 {
				t.Errorf("after an hour %+v", l.Stats().Pool)
			}
		})
	}
	row(t, "nothing configured", func(t *testing.T) {
		l := limiterOf(t, Rates(PerSecond(100)), HintMaxAge(time.Minute))
		src := following(t, l)
		src.says(20)
		time.Sleep(time.Hour)
		counted(t, l, 20)
	})
}

func TestAwaitPoolNeedsAnEnd(t *testing.T) {
	_, err := New(Rates(PerSecond(10)), AwaitPool())
	says(t, err, "HintMaxAge")
	_, err = New(Limit{}, AwaitPool(), Replicas(9))
	says(t, err, "AwaitPool", "StartPool", "Replicas")
}

// No caller waits where nothing is to be shared.
func TestAwaitPoolWithoutLimit(t *testing.T) {
	if !limiterOf(t, Limit{}, Replicas(9), AwaitPool(), HintMaxAge(time.Minute)).Allow("k") {
		t.Error("refused")
	}
}

// Nothing passes, whatever the limit is made of, before a source or SetPool brings the size of the pool.
func TestAwaitPool(t *testing.T) {
	thousand := PerSecond(1000)
	for _, limit := range []Limit{
		rated(thousand),
		rated(PerSecond(1e9)), // enough for the largest pool
		{InFlight: 10},
		{Rates: []Rate{thousand}, InFlight: 10},
		rated(aligned(1000, time.Second)),
		rated(thousand, Rate{Unit: "tokens", Events: 1000, Per: time.Second}),
	} {
		row(t, limit, func(t *testing.T) {
			l := limiterOf(t, limit, Replicas(9), AwaitPool(), HintMaxAge(time.Minute), AtLeastOne())
			src := following(t, l)
			time.Sleep(59 * time.Second)
			stopped(t, l, true)
			wants(t, l, "k", 0)
			upTo(t, l, "k", 5, 0)
			if d := l.Check("k"); d.OK || d.Reason != ReasonPool {
				t.Errorf("Check before the first hint: %+v", d)
			}
			waiter := asking(t, l, "k", Weight(2)) // above the share too, which is not known yet
			src.says(2)
			time.Sleep(time.Second) // a window that is open has nothing for it
			if !waiter.ended() || waiter.err != nil {
				t.Errorf("a second after the first hint: ended %v, %v", waiter.ended(), waiter.err)
			}
		})
	}
}

// What was not admitted while the pool was awaited is not saved up either.
func TestAwaitPoolStartsEmpty(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(PerSecond(1000)), AwaitPool(), StartEmpty(), HintMaxAge(time.Hour))
		time.Sleep(30 * time.Minute)
		setReplicas(t, l, 4)
		if _, n := l.TryAcquireUpTo("k", 1000); n > 2 {
			t.Errorf("%d at once", n)
		}
		time.Sleep(100 * time.Millisecond)
		if _, n := l.TryAcquireUpTo("other", 1000); n < 24 || n > 27 {
			t.Errorf("%d after .1 s at 250/s", n)
		}
	})
}

// Each key begins with its share of the first pool. A call from before the stop goes on too, and so do a key
// with a limit of its own and one of a plan. The end of a stop brings no burst.
func TestAwaitPoolStartsFull(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Rates(PerHour(1000)), AwaitPool(), HintMaxAge(time.Minute),
			Plans(map[string]Limit{"paid": Rates(PerHour(5000))}))
		own := Rates(PerHour(3000))
		must(t, l.Override("own", &own))
		refusedFor(t, l, ReasonPool, "asked before")
		src := following(t, l)
		src.says(2)
		upTo(t, l, "asked before", 9999, 500)
		upTo(t, l, "new", 9999, 500)
		upTo(t, l, "own", 9999, 1500)
		upTo(t, l, "tenant", 9999, 2500, Plan("paid"))
		limit := Rates(PerHour(3600))
		must(t, l.Override("new", &limit))
		upTo(t, l, "new", 9999, 0)
		time.Sleep(2 * time.Minute)
		refusedFor(t, l, ReasonPool, "new")
		src.says(2)
		upTo(t, l, "asked before", 9999, 1)
		upTo(t, l, "later", 9999, 1)
		must(t, src.cancelled())
	})
}

// A source which never reports stops no replica for ever.
func TestAwaitPoolFallsBack(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 10}, Replicas(5), AwaitPool(), HintMaxAge(20*time.Second))
		following(t, l)
		waiter := asking(t, l, "k", Weight(2))
		time.Sleep(time.Minute)
		waiter.admittedAfter(t, 20*time.Second)
		replicas(t, l, 5, "configured")
	})
}

// While the pool is awaited no controller is called, so no timer is set for when one wants to be: it would
// go off again and again.
func TestNoTimerSpinsWhileThePoolIsAwaited(t *testing.T) {
	for mode := range policy.RampGoBack + 1 {
		row(t, mode, func(t *testing.T) {
			ramp := policy.Ramp{Mode: mode, Start: .2, Over: 5 * time.Second, CoolDown: 2 * time.Second}
			l := limiterOf(t, Limit{InFlight: 1}, Policy(ramp), BeyondShare(), AwaitPool(),
				HintMaxAge(time.Second), Replicas(2))
			poolFor(t, l, 1, 10*time.Second)
			time.Sleep(time.Second)
			took(t, l, "k")
			c := asking(t, l, "k")
			time.Sleep(time.Minute) // the pool is awaited again
			if n := CountsOf(l).Fired; n > 100 {
				t.Errorf("the timer has gone off %d times in a minute", n)
			}
			c.gaveUp(t)
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

// A source that ends again and again before HintMaxAge has passed does not stop a replica for ever.
func TestAwaitPoolOfASourceThatEnds(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 10}, Replicas(9), AwaitPool(), HintMaxAge(25*time.Second))
		for range 4 {
			says(t, l.Follow(t.Context(), ends{}), "connection lost")
		}
		took(t, l, "k")
	})
}

// AwaitPool's wait counts from the first Follow, also when a Follow begins again while a ttl of SetPool runs.
func TestAwaitCountsFromTheFirstFollow(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(60, 60)), AwaitPool(), HintMaxAge(time.Minute), Replicas(3))
		first := following(t, l)
		first.fails("down")
		time.Sleep(40 * time.Second)
		poolFor(t, l, 6, 30*time.Second)
		time.Sleep(10 * time.Second)
		must(t, first.cancelled())
		second := following(t, l)
		second.fails("down")
		time.Sleep(30 * time.Second) // 80 s after the first Follow began, and the word is over
		replicas(t, l, 3, "configured")
		must(t, second.cancelled())
	})
}

// The wait of AwaitPool is back when a ttl ends, but SetPool without a ttl ends it for good.
func TestEndOfATTLDoesNotAwaitAgain(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(60, 60)), AwaitPool(), HintMaxAge(time.Hour), Replicas(3))
		poolFor(t, l, 6, time.Minute)
		time.Sleep(time.Second)
		wants(t, l, "k", 10)
		time.Sleep(time.Minute)
		replicas(t, l, 3, "awaited")
		refusedFor(t, l, ReasonPool, "k")
		setReplicas(t, l, 10)
		time.Sleep(time.Minute)
		wants(t, l, "k", 6)
		poolFor(t, l, 20, time.Minute)
		time.Sleep(2 * time.Hour)
		took(t, l, "k")
	})
}

// A limit that refused everything when the pool became known keeps nothing of the wait: keys begin with the
// rules of the limit that comes next.
func TestAwaitPoolDenied(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		limit := Rates(PerHour(1000))
		l := limiterOf(t, limit, AwaitPool(), HintMaxAge(time.Hour))
		refusedFor(t, l, ReasonPool, "asked before")
		must(t, l.SetLimit(Limit{Deny: true}))
		setReplicas(t, l, 2)
		refusedFor(t, l, ReasonDenied, "asked before")
		must(t, l.SetLimit(limit))
		upTo(t, l, "asked before", 9999, 500)
		upTo(t, l, "new", 9999, 500)
	})
}

func TestSetPoolFor(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(60, 60)), Replicas(3))
		poolFor(t, l, 6, time.Minute)
		replicas(t, l, 6, "set")
		if until := l.Stats().Pool.Until; !until.Equal(time.Now().Add(time.Minute)) {
			t.Errorf("until %v", until)
		}
		time.Sleep(time.Minute - 1)
		replicas(t, l, 6, "set")
		time.Sleep(time.Nanosecond)
		replicas(t, l, 3, "configured")
		if s := l.Stats(); s.Version != 2 || !s.Pool.Until.IsZero() {
			t.Error(s.Version, s.Pool.Until)
		}
	})
}

func TestSetPoolForHoldsAgainstHints(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(60, 60)), Replicas(3), HoldDown(0))
		src := following(t, l)
		src.says(4)
		replicas(t, l, 4, "followed")
		poolFor(t, l, 9, time.Minute)
		src.says(12)
		replicas(t, l, 9, "set")
		src.says(5)
		replicas(t, l, 9, "set")
		time.Sleep(time.Minute)
		replicas(t, l, 5, "followed")
		if l.Stats().Version != 2 {
			t.Error("a hint counts as a change of configuration")
		}
	})
}

func TestSetPoolForIsReplaced(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(60, 60)), Replicas(3))
		poolFor(t, l, 6, time.Minute)
		first := l.Stats().Pool.Until
		time.Sleep(30 * time.Second)
		poolFor(t, l, 7, time.Minute)
		l.ttlEnds(first) // its timer went off just before it was stopped
		time.Sleep(59 * time.Second)
		replicas(t, l, 7, "set")
		time.Sleep(time.Second)
		replicas(t, l, 3, "configured")
		poolFor(t, l, 6, time.Minute)
		setReplicas(t, l, 8)
		time.Sleep(time.Hour)
		replicas(t, l, 8, "set") // it has no end
		poolFor(t, l, 6, time.Minute)
		time.Sleep(time.Minute)
		replicas(t, l, 3, "configured") // not the 8: after the ttl no one must remember what was set before
	})
}

// The end of a ttl does not leave a replica the whole limit when all pools that were ever set are larger.
func TestEndOfATTLIsNotTheWholeLimit(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(100, 100)))
		setReplicas(t, l, 10)
		poolFor(t, l, 20, time.Minute)
		time.Sleep(time.Minute + time.Second)
		if n := l.Stats().Pool.Replicas; n == 1 {
			t.Error("SetPool set 10, and 20 for a time, nothing is configured, and one replica counts")
		}
	})
}

// A pool that SetPool has set counts at once, and until the source reports something new.
func TestSetPoolStaysUntilTheSourceReportsSomethingNew(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{})
		src := following(t, l)
		src.says(4)
		setReplicas(t, l, 2)
		replicas(t, l, 2, "set")
		if age := l.Stats().Pool.Age; age != 0 {
			t.Errorf("%v old", age)
		}
		for range 10 {
			time.Sleep(10 * time.Second)
			src.says(4)
			counted(t, l, 2)
		}
		src.says(5)
		counted(t, l, 5)
	})
}

func TestSetPoolRefuses(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(6, 6)), Replicas(3))
		for _, p := range []Pool{{}, {Replicas: -1}, {Replicas: math.MaxInt}, {Replicas: 2, Ordinal: 3}} {
			says(t, l.SetPool(p, 0), "Pool.")
		}
		says(t, l.SetPool(Pool{Replicas: 3}, -time.Second), "SetPool", "ttl", "-1s")
		says(t, l.SetPool(Pool{Replicas: -3}, time.Second), "Replicas", "-3")
		replicas(t, l, 3, "configured")
		wants(t, l, "k", 2)
		if s := l.Stats(); s.Pool.Rejected != 5 || s.Version != 0 {
			t.Errorf("got %+v", s)
		}
	})
}

// stopping is a limiter of four slots that stops a minute after the last hint, and what it has logged.
func stopping(t *testing.T, opts ...Option) (*Limiter, *bytes.Buffer) {
	log := new(bytes.Buffer)
	opts = append(opts, AwaitPool(), HintMaxAge(time.Minute), Logger(slog.New(slog.NewTextHandler(log, nil))))
	return limiterOf(t, Limit{InFlight: 4}, opts...), log
}

// stopped fails unless nothing is admitted and the limiter states why, or, with false, unless calls are.
func stopped(t *testing.T, l *Limiter, want bool) {
	t.Helper()
	synctest.Wait()
	p, d := l.TryAcquire("probe")
	p.Release()
	source := l.Stats().Pool.Source
	words := l.Explain("probe").String()
	if !want {
		if !d.OK || source == "awaited" || strings.Contains(words, "not known") {
			t.Errorf("%v: refused for %v, source %s, %s", time.Now().Format(time.TimeOnly), d.Reason,
				source, words)
		}
		return
	}
	if d.OK || d.Reason != ReasonPool || d.RetryAfter != 0 || source != "awaited" ||
		!strings.Contains(words, "the replica count is not known") {
		t.Errorf("%v: OK %v, refused for %v, source %s, %s", time.Now().Format(time.TimeOnly), d.OK, d.Reason,
			source, words)
	}
}

// A replica under AwaitPool without a configured pool admits nothing when its hints have grown old, until one
// comes again.
func TestStop(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, log := stopping(t)
		stopped(t, l, true)
		src := following(t, l)
		time.Sleep(time.Hour)
		stopped(t, l, true)
		src.says(2)
		stopped(t, l, false)
		time.Sleep(time.Minute - 1)
		stopped(t, l, false)
		time.Sleep(time.Nanosecond)
		stopped(t, l, true)
		if p := l.Stats().Pool; p.Replicas != 2 {
			t.Errorf("the last pool that was known is %+v", p)
		}
		src.fails("unreachable")
		time.Sleep(time.Hour)
		stopped(t, l, true)
		src.says(2)
		stopped(t, l, false)
		want := `level=WARN msg="pool not known: nothing is admitted" last="{Replicas:2 `
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("the log is %s, want %s", log, want)
		}
	})
}

// Callers wait through a stop, and those that hold a slot keep it.
func TestWaitersWaitThroughAStop(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, _ := stopping(t)
		src := following(t, l)
		src.says(2)
		a, b := took(t, l, "k"), took(t, l, "k")
		c, d := asking(t, l, "k"), asking(t, l, "k", Weight(2))
		time.Sleep(2 * time.Minute)
		stopped(t, l, true)
		a.Release()
		b.Release()
		c.waits(t)
		d.waits(t)
		src.says(2)
		c.admittedAfter(t, 2*time.Minute)
		d.waits(t)
		c.permit.Release()
		d.admittedAfter(t, 2*time.Minute)
	})
}

// Events not admitted in a stop are not saved up.
func TestStopStartsEmpty(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(100, 100)), AwaitPool(), HintMaxAge(time.Minute))
		src := following(t, l)
		src.says(1)
		time.Sleep(time.Hour)
		src.says(1)
		if _, n := l.TryAcquireUpTo("k", 1000); n > 2 {
			t.Errorf("%d at once after a stop", n)
		}
	})
}

// SetPool ends a stop; with the end of its ttl the stop is back.
func TestSetPoolEndsAStop(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, _ := stopping(t)
		src := following(t, l)
		src.says(2)
		time.Sleep(2 * time.Minute)
		poolFor(t, l, 4, time.Minute)
		stopped(t, l, false)
		time.Sleep(time.Minute)
		stopped(t, l, true)
		poolFor(t, l, 4, 0)
		time.Sleep(time.Hour)
		stopped(t, l, false)
		src.says(3)
		stopped(t, l, false)
		time.Sleep(time.Minute)
		stopped(t, l, true)
	})
}

// Hints also grow old when Follow has ended, and while a source ends again and again.
func TestStopAfterFollowHasEnded(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, _ := stopping(t)
		src := following(t, l)
		src.says(2)
		time.Sleep(30 * time.Second)
		src.cancel()
		synctest.Wait()
		time.Sleep(30*time.Second - 1)
		stopped(t, l, false)
		time.Sleep(time.Nanosecond)
		stopped(t, l, true)
		again := following(t, l)
		again.says(2)
		stopped(t, l, false)
		again.cancel()
		synctest.Wait()
		for range 5 {
			_ = l.Follow(t.Context(), ends{})
		}
		stopped(t, l, false)
		time.Sleep(10 * time.Second)
		stopped(t, l, true)
	})
}

// A Follow that goes on where another has ended is not stopped by what the other has had reported.
func TestStopGoesByTheLastHint(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, _ := stopping(t)
		first := following(t, l)
		first.says(2)
		first.cancel()
		synctest.Wait()
		second := following(t, l)
		for range 10 {
			time.Sleep(50 * time.Second)
			second.says(2)
			stopped(t, l, false)
		}
	})
}

// A single report of a source does not grow old, however often it is followed.
func TestStopSparesASteadySource(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		t.Setenv(envReplicas, "2")
		l, log := stopping(t)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			_ = l.Follow(ctx, Env())
			cancel()
			time.Sleep(3 * time.Minute)
			stopped(t, l, false)
		}
		if strings.Contains(log.String(), "pool not known") {
			t.Errorf("it has stopped: %s", log)
		}
	})
}

// A limiter that has nothing to go back to keeps what was reported, or what an operator has set, also when
// another Follow gets no report.
func TestSilenceIsNotOneReplica(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(60, 60)), HintMaxAge(time.Minute))
		first := following(t, l)
		first.says(4)
		first.cancel()
		synctest.Wait()
		second := following(t, l)
		time.Sleep(time.Hour)
		counted(t, l, 4)
		second.cancel()
		synctest.Wait()
		setReplicas(t, l, 6)
		following(t, l)
		time.Sleep(time.Hour)
		counted(t, l, 6)
	})
}

// Hints of a source that ends again and again grow old too: the configured pool counts.
func TestSourceThatEndsGrowsOld(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(60, 60)), HintMaxAge(25*time.Second), Replicas(9))
		src := following(t, l)
		src.says(4)
		src.cancel()
		synctest.Wait()
		for range 4 {
			_ = l.Follow(t.Context(), ends{})
		}
		counted(t, l, 9)
	})
}

// recorded is a handler that keeps the lines of a log, with the second of each.
type recorded struct {
	began time.Time
	with  []slog.Attr
	log   *lines
}

type lines struct {
	mu  sync.Mutex
	all []string
}

func recording() *recorded { return &recorded{began: time.Now(), log: new(lines)} }

func (r *recorded) Enabled(context.Context, slog.Level) bool { return true }

func (r *recorded) Handle(_ context.Context, rec slog.Record) error {
	line := fmt.Sprintf("%v %v %s", time.Since(r.began), rec.Level, rec.Message)
	add := func(a slog.Attr) bool { line += " " + a.String(); return true }
	for _, a := range r.with {
		add(a)
	}
	rec.Attrs(add)
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.log.all = append(r.log.all, line)
	return nil
}

func (r *recorded) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &recorded{r.began, append(r.with[:len(r.with):len(r.with)], attrs...), r.log}
}

func (r *recorded) WithGroup(string) slog.Handler { return r }

// take returns the lines since it was last called.
func (r *recorded) take() []string {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	all := r.log.all
	r.log.all = nil
	return all
}

// wrote fails unless the lines are these.
func (r *recorded) wrote(t *testing.T, want ...string) {
	t.Helper()
	got, wanted := strings.Join(r.take(), "\n"), strings.Join(want, "\n")
	if got != wanted {
		t.Errorf("the log says\n%s\nwant\n%s", got, wanted)
	}
}

// Each line of a limiter that has a name says whose it is.
func TestNameIsLogged(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		var r Registry
		log := recording()
		logger := Logger(slog.New(log))
		limit := rated(PerHour(1))
		byItself, err := r.Limiter("api", limit, logger)
		must(t, err)
		web, err := r.Limiter("web", limit, logger)
		must(t, err)
		own := limiterOf(t, limit, Logger(slog.New(log).With("limiter", "own")))
		nameless := limiterOf(t, limit, logger)
		must(t, r.Add("added", nameless))
		limiters := map[string]*Limiter{"api": byItself, "web": web, "own": own, "": nameless}
		for want, l := range limiters {
			saysEverything(t, l)
			all := log.take()
			if len(all) < 10 {
				t.Errorf("%q: %d lines", want, len(all))
			}
			for _, line := range all {
				names, right := strings.Count(line, " limiter="), strings.Count(line, " limiter="+want+" ")
				if names != min(len(want), 1) || right != names {
					t.Errorf("%q is not named: %s", want, line)
				}
			}
		}
	})
}

// saysEverything makes a limiter write each of its lines.
func saysEverything(t *testing.T, l *Limiter) {
	setLimit(t, l, rated(PerHour(2)))
	must(t, l.Override("k", &Limit{InFlight: 1}))
	must(t, l.SetPool(Pool{Replicas: 4}, time.Second))
	time.Sleep(2 * time.Second)
	l.SetDryRun(true)
	for range 9 {
		l.Allow("busy")
	}
	time.Sleep(time.Second)
	l.SetDryRun(false)
	src := following(t, l)
	src.says(5)
	src.says(-5)
	src.fails("SERVFAIL")
	src.says(5)
	must(t, src.cancelled())
	if l.Follow(t.Context(), FixedOrdinal(0, steady(Pool{Replicas: 3}))) == nil {
		t.Error("no error")
	}
}

// saying writes lines out: "60s F 59" is a failure, R a refusal, and "61s back 60 59s" the end of sixty.
func saying(short ...string) (lines []string) {
	const refusal = "quotient: Pool.Replicas: 0 is not between 1 and 1000000"
	for _, s := range short {
		w := strings.Fields(s)
		switch w[1] {
		case "F":
			s = w[0] + " WARN pool hint failed error=SERVFAIL failures=" + w[2]
		case "R":
			s = w[0] + " WARN pool hint refused error=" + refusal + " failures=" + w[2]
		case "back":
			s = w[0] + " INFO pool hints are back failures=" + w[2] + " lasted=" + w[3]
		}
		lines = append(lines, s)
	}
	return lines
}

// A source that fails again and again is one line at once, one a minute, and one when it is good again.
func TestHintFailuresAreDamped(t *testing.T) {
	many := strings.Repeat
	for name, c := range map[string]struct {
		reports string // one a second
		want    []string
	}{
		"good all the time": {many("G", 300), nil},
		"once":              {"GFGG", saying("1s F 1", "2s back 1 1s")},
		"for long": {many("F", 150) + "G",
			saying("0s F 1", "1m0s F 60", "2m0s F 60", "2m30s back 150 2m30s")},
		"of both kinds": {"FRRF" + many("FR", 60) + "G",
			saying("0s F 1", "1s R 1", "1m0s F 30", "1m1s R 30", "2m0s F 30", "2m1s R 30",
				"2m4s back 124 2m4s")},
		"again, much later": {"F" + many("G", 99) + "FG",
			saying("0s F 1", "1s back 1 1s", "1m40s F 1", "1m41s back 1 1s")},
		"a relapse": {"FGF" + many("G", 70), saying("0s F 1", "1s back 1 1s", "2s F 1", "1m2s back 2 3s")},
		"now and then": {many("GF", 90),
			saying("1s F 1", "2s back 1 1s", "3s F 1", "1m3s F 30", "2m3s F 30")},
		"now and then, then never": {many("FG", 31) + many("G", 60),
			saying("0s F 1", "1s back 1 1s", "2s F 1", "2m0s back 31 1m1s")},
	} {
		row(t, name, func(t *testing.T) {
			log := recording()
			l := limiterOf(t, Limit{}, Replicas(5), Logger(slog.New(log)))
			src := following(t, l)
			src.each(c.reports)
			log.wrote(t, c.want...)
			must(t, src.cancelled())
		})
	}
}

// A limit of fewer slots than replicas is warned of, whatever brings it.
func TestLogsThatNoSlotIsLeft(t *testing.T) {
	few, rate := Limit{InFlight: 20}, Rates(PerSecond(1))
	plan := Plans(map[string]Limit{"paid": few})
	nothing := func(*Limiter) error { return nil }
	pool := func(n int) func(*Limiter) error {
		return func(l *Limiter) error { return l.SetPool(Pool{Replicas: n}, 0) }
	}
	limit := func(l *Limiter) error { return l.SetLimit(few) }
	setPlan := func(l *Limiter) error { return l.SetPlan("p", &few) }
	await, many := together(AwaitPool(), HintMaxAge(time.Hour)), Replicas(21)
	for name, tt := range map[string]struct {
		limit Limit
		opt   Option
		do    func(*Limiter) error
		want  string
	}{
		"the pool grows": {few, Replicas(1), pool(21), "refused\" in_flight=20"},
		"it is the same": {few, Replicas(10), pool(10), ""},
		"as many":        {Limit{InFlight: 21}, Replicas(1), pool(21), ""},
		"at least one":   {few, AtLeastOne(), pool(21), ""},
		"no slots":       {rate, Replicas(1), pool(21), ""},
		"of a plan":      {rate, plan, pool(21), "plan=paid in_flight=20"},
		"the pool comes": {few, await, pool(21), "in_flight=20"},
		"from the start": {few, many, nothing, "in_flight=20"},
		"a limit":        {Limit{}, many, limit, "in_flight=20"},
		"a plan":         {Limit{}, many, setPlan, "plan=p in_flight=20"},
		"awaited":        {few, await, nothing, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			l := limiterOf(t, tt.limit, tt.opt, Logger(slog.New(slog.NewTextHandler(&log, nil))))
			must(t, tt.do(l))
			n := strings.Count(log.String(), "no slot here")
			if want := min(1, len(tt.want)); n != want || !strings.Contains(log.String(), tt.want) {
				t.Errorf("warned %d times, want %d with %q: %s", n, want, tt.want, log.String())
			}
			if name == "the pool comes" && !strings.Contains(log.String(), `old="not known"`) {
				t.Errorf("the end of the wait is not logged: %s", log.String())
			}
		})
	}
}
