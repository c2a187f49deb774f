package quotient

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// scripted is a source that reports what a test makes it report.
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

func (s *spoken) says(replicas int)  { s.report(Pool{Replicas: replicas}, nil) }
func (s *spoken) saysPool(p Pool)    { s.report(p, nil) }
func (s *spoken) fails(text string)  { s.report(Pool{}, errors.New(text)) }
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

// following returns a source that the limiter follows, in a bubble.
func following(t rapid.TB, l *Limiter) *spoken {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &spoken{ended: make(chan error, 1), cancel: cancel}
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

func TestFollowRefusesNil(t *testing.T) {
	says(t, limiterOf(t, Limit{}).Follow(t.Context(), nil), "Follow", "source", "nil")
}

// Failure mode 15: a larger pool counts at once, a smaller one after the hold-down.
func TestFollowDamps(t *testing.T) {
	type report struct{ at, n, counts int } // at so many seconds; n 0: no report
	for _, c := range []struct {
		name string
		rows []report
	}{
		{"grows at once", []report{{0, 4, 4}, {1, 8, 8}, {2, 9, 9}}},
		{"shrinks after the hold-down", []report{{0, 8, 8}, {10, 4, 8}, {39, 0, 8}, {40, 0, 4}, {100, 0, 4}}},
		{"the first report counts at once", []report{{0, 2, 2}}},
		{"shrinks in steps", []report{{0, 8, 8}, {5, 6, 8}, {10, 3, 8}, {34, 0, 8}, {35, 0, 6}, {39, 0, 6},
			{40, 0, 3}}},
		{"reported again and again",
			[]report{{0, 8, 8}, {10, 4, 8}, {20, 4, 8}, {30, 4, 8}, {39, 4, 8}, {40, 0, 4}}},
		{"flaps", []report{{0, 8, 8}, {10, 4, 8}, {20, 8, 8}, {30, 4, 8}, {40, 8, 8}, {50, 4, 8}, {79, 0, 8},
			{80, 0, 4}}},
		{"a dip that ends", []report{{0, 8, 8}, {10, 4, 8}, {11, 8, 8}, {60, 0, 8}}},
		{"grows while it shrinks", []report{{0, 8, 8}, {10, 4, 8}, {20, 6, 8}, {40, 0, 6}, {100, 0, 6}}},
		{"grows beyond while it shrinks", []report{{0, 8, 8}, {10, 4, 8}, {20, 9, 9}, {60, 0, 9}}},
	} {
		row(t, c.name, func(t *testing.T) {
			l := limiterOf(t, Limit{}, Replicas(100))
			src, start := following(t, l), time.Now()
			for _, r := range c.rows {
				time.Sleep(time.Until(start.Add(time.Duration(r.at) * time.Second)))
				if r.n > 0 {
					src.says(r.n)
				}
				synctest.Wait()
				counted(t, l, r.counts)
			}
			src.cancel()
		})
	}
}

func TestHoldDownOfNothing(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{}, HoldDown(0))
		src := following(t, l)
		for _, n := range []int{8, 4, 9, 1} {
			src.says(n)
			counted(t, l, n)
		}
		src.cancel()
	})
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
		l := limiterOf(t, rated(perSecond(8, 8)))
		src := following(t, l)
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
		if st.Reports != 1 || st.Rejected != 4 || st.Errors != 1 || st.LastError != "the network is down" ||
			st.Age != time.Hour {
			t.Errorf("got %+v", st)
		}
		src.cancel()
	})
}

func TestFollowOfASourceThatFails(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{}, Replicas(6))
		src := following(t, l)
		src.fails("no such host")
		src.says(0)
		counted(t, l, 6)
		if st := l.Stats().Pool; st.Source != "configured" || st.Age != 0 {
			t.Errorf("got %+v", st)
		}
		src.cancel()
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
		synctest.Wait()
		counted(t, l, 6)
		if got := l.Stats().Pool.Source; got != "configured" {
			t.Errorf("source %q", got)
		}
		src.says(4) // it is back
		counted(t, l, 4)
		src.cancel()
	})
}

// An ordinal that is not fixed by construction counts as fixed when it was reported for one hold-down, and as
// none when it was not reported for as long.
func TestOrdinalBecomesFixed(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 8})
		src := following(t, l)
		for _, c := range []struct {
			after    time.Duration
			reported Pool
			fixed    bool
			slots    int // of 8
		}{
			{0, Pool{Replicas: 3, Ordinal: 2}, false, 2},
			{29, Pool{Replicas: 3, Ordinal: 2}, false, 2},
			{1, Pool{}, false, 2}, // it takes a report, and not the time alone
			{0, Pool{Replicas: 3, Ordinal: 2}, true, 3},
			{29, Pool{}, true, 3},
			{1, Pool{}, false, 2},                        // by now it may be another's
			{0, Pool{Replicas: 3, Ordinal: 2}, false, 2}, // and one word after a silence fixes nothing
			{29, Pool{Replicas: 3, Ordinal: 2}, false, 2},
			{1, Pool{Replicas: 3, Ordinal: 2}, true, 3},
			{1, Pool{Replicas: 3, Ordinal: 3}, false, 2},
			{29, Pool{Replicas: 3, Ordinal: 2}, false, 2}, // a change starts it again
			{29, Pool{Replicas: 3, Ordinal: 2}, false, 2},
			{1, Pool{Replicas: 3, Ordinal: 2}, true, 3},
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
		src.cancel()
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
		src.cancel()
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

// Follow again after a source failed: hold-down must still hold.
func TestFollowAgainKeepsTheHoldDown(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(PerSecond(10)))
		once := func(n int) {
			ctx, cancel := context.WithCancel(t.Context())
			go func() { synctest.Wait(); cancel() }()
			_ = l.Follow(ctx, steady(Pool{Replicas: n}))
		}
		once(8)
		if l.Stats().Pool.Replicas != 8 {
			t.Fatal(l.Stats().Pool.Pool)
		}
		once(1)
		if got := l.Stats().Pool.Replicas; got != 8 {
			t.Errorf("pool %d right after a restart of Follow, want 8 within the hold-down", got)
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
					defer sources[len(sources)-1].cancel()
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
		defer src.cancel()
		src.says(20)
		time.Sleep(time.Hour)
		counted(t, l, 20)
	})
	_, err := New(Limit{}, AwaitPool(), Replicas(9))
	says(t, err, "AwaitPool", "StartPool", "Replicas")
}
