package quotient

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestPoolValidate(t *testing.T) {
	for _, c := range []struct {
		pool  Pool
		words []string // of the error; none: valid
	}{
		{Pool{Replicas: 1}, nil},
		{Pool{Replicas: mostReplicas, Ordinal: mostReplicas, Fixed: true}, nil},
		{Pool{}, []string{"Pool.Replicas", "0"}},
		{Pool{Replicas: -1}, []string{"Pool.Replicas", "-1"}},
		{Pool{Replicas: mostReplicas + 1}, []string{"Pool.Replicas", "1000001"}},
		{Pool{Replicas: math.MaxInt}, []string{"Pool.Replicas", "9223372036854775807"}},
		{Pool{Replicas: math.MinInt}, []string{"Pool.Replicas"}},
		{Pool{Replicas: 3, Ordinal: 4}, []string{"Pool.Ordinal", "4", "3 replicas"}},
		{Pool{Replicas: 3, Ordinal: -1}, []string{"Pool.Ordinal", "-1"}},
	} {
		err := c.pool.Validate()
		if len(c.words) > 0 {
			says(t, err, c.words...)
		} else if err != nil {
			t.Errorf("%+v: %v", c.pool, err)
		}
	}
}

// spoken is a source that says what a test makes it say.
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

// following returns a source that the limiter follows, in a bubble.
func following(t rapid.TB, l *Limiter) *spoken {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &spoken{ended: make(chan error, 1), cancel: cancel}
	go func() { s.ended <- l.Follow(ctx, s) }()
	synctest.Wait()
	return s
}

func (s *spoken) says(replicas int)  { s.report(Pool{Replicas: replicas}, nil) }
func (s *spoken) saysPool(p Pool)    { s.report(p, nil) }
func (s *spoken) fails(text string)  { s.report(Pool{}, errors.New(text)) }
func (s *spoken) stops() (err error) { s.cancel(); return <-s.ended }

// counted fails unless so many replicas share the limit.
func counted(t *testing.T, l *Limiter, n int) {
	t.Helper()
	if got := l.Pool().Replicas; got != n {
		t.Errorf("at %v: %d replicas count, want %d", time.Now().Format(time.TimeOnly), got, n)
	}
}

func TestStatic(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			time.Sleep(30 * time.Second)
			if got, want := l.Pool(), (Pool{Replicas: 5, Ordinal: 2, Fixed: true}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}()
		if err := l.Follow(ctx, Static(Pool{Replicas: 5, Ordinal: 2, Fixed: true})); err != context.DeadlineExceeded {
			t.Errorf("Follow returned %v", err)
		}
		if st := l.Stats().Pool; st.Source != "followed" || st.Reports != 1 || st.Age != time.Minute {
			t.Errorf("got %+v", st)
		}
	})
}

func TestEnv(t *testing.T) {
	for _, c := range []struct {
		replicas, ordinal string // "-": not set
		want              Pool
		words             []string
	}{
		{"4", "-", Pool{Replicas: 4}, nil},
		{"4", "0", Pool{Replicas: 4, Ordinal: 1, Fixed: true}, nil},
		{"4", "3", Pool{Replicas: 4, Ordinal: 4, Fixed: true}, nil},
		{"4", "4", Pool{}, []string{"Pool.Ordinal", "5"}},
		{"4", "-1", Pool{}, []string{"QUOTIENT_ORDINAL", `"-1"`}},
		{"4", "", Pool{}, []string{"QUOTIENT_ORDINAL", `""`}},
		{"4", "web-0", Pool{}, []string{"QUOTIENT_ORDINAL", `"web-0"`}},
		{"4", "9223372036854775807", Pool{}, []string{"Pool.Ordinal"}},
		{"-", "-", Pool{}, []string{"QUOTIENT_REPLICAS", `""`}},
		{"", "0", Pool{}, []string{"QUOTIENT_REPLICAS", `""`}},
		{"0", "-", Pool{}, []string{"Pool.Replicas", "0"}},
		{"-3", "-", Pool{}, []string{"Pool.Replicas", "-3"}},
		{"many", "-", Pool{}, []string{"QUOTIENT_REPLICAS", `"many"`}},
		{"4.0", "-", Pool{}, []string{"QUOTIENT_REPLICAS"}},
		{"NaN", "-", Pool{}, []string{"QUOTIENT_REPLICAS"}},
		{"1e3", "-", Pool{}, []string{"QUOTIENT_REPLICAS"}},
		{"99999999999999999999", "-", Pool{}, []string{"QUOTIENT_REPLICAS"}},
		{"1000001", "-", Pool{}, []string{"Pool.Replicas", "1000001"}},
	} {
		t.Run(c.replicas+" "+c.ordinal, func(t *testing.T) {
			for name, v := range map[string]string{envReplicas: c.replicas, envOrdinal: c.ordinal} {
				if v != "-" {
					t.Setenv(name, v)
				}
			}
			inFakeTime(t, func(t *testing.T) {
				l := limiterOf(t, Limit{}, StartPool(Pool{Replicas: 7}))
				ctx, cancel := context.WithCancel(t.Context())
				go l.Follow(ctx, Env()) //nolint:errcheck // the context's end
				synctest.Wait()
				cancel()
				if c.words == nil {
					if got := l.Pool(); got != c.want {
						t.Errorf("got %+v, want %+v", got, c.want)
					}
					return
				}
				counted(t, l, 7) // the configured size, never 1
				st := l.Stats().Pool
				says(t, errors.New(st.LastError), c.words...)
				if st.Errors+st.Rejected != 1 {
					t.Errorf("got %+v", st)
				}
			})
		})
	}
}

func TestFollowRefusesNil(t *testing.T) {
	says(t, limiterOf(t, Limit{}).Follow(t.Context(), nil), "Follow", "source", "nil")
}

// Failure mode 15: a larger pool counts at once, a smaller one after the hold-down.
func TestFollowDamps(t *testing.T) {
	type said struct{ at, n, counts int } // at so many seconds; n 0: nothing is said
	for _, c := range []struct {
		name string
		rows []said
	}{
		{"grows at once", []said{{0, 4, 4}, {1, 8, 8}, {2, 9, 9}}},
		{"shrinks after the hold-down", []said{{0, 8, 8}, {10, 4, 8}, {39, 0, 8}, {40, 0, 4}, {100, 0, 4}}},
		{"the first word counts at once", []said{{0, 2, 2}}},
		{"shrinks in steps", []said{{0, 8, 8}, {5, 6, 8}, {10, 3, 8}, {34, 0, 8}, {35, 0, 6}, {39, 0, 6}, {40, 0, 3}}},
		{"said again and again", []said{{0, 8, 8}, {10, 4, 8}, {20, 4, 8}, {30, 4, 8}, {39, 4, 8}, {40, 0, 4}}},
		{"flaps", []said{{0, 8, 8}, {10, 4, 8}, {20, 8, 8}, {30, 4, 8}, {40, 8, 8}, {50, 4, 8}, {79, 0, 8}, {80, 0, 4}}},
		{"a dip that ends", []said{{0, 8, 8}, {10, 4, 8}, {11, 8, 8}, {60, 0, 8}}},
		{"grows while it shrinks", []said{{0, 8, 8}, {10, 4, 8}, {20, 6, 8}, {40, 0, 6}, {100, 0, 6}}},
		{"grows beyond while it shrinks", []said{{0, 8, 8}, {10, 4, 8}, {20, 9, 9}, {60, 0, 9}}},
	} {
		row(t, c.name, func(t *testing.T) {
			l := limiterOf(t, Limit{}, StartPool(Pool{Replicas: 100}))
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
			d.say(Pool{Replicas: n}, time.Now(), time.Minute)
			time.Sleep(10 * time.Millisecond)
		}
		if len(d.older) > mostOpinions {
			t.Errorf("%d opinions are kept", len(d.older))
		}
		for range 100 {
			// All were said within ten seconds; the first, and largest, is the first to be over.
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
		for _, p := range []Pool{{}, {Replicas: -2}, {Replicas: mostReplicas + 1}, {Replicas: 3, Ordinal: 9}} {
			src.saysPool(p)
			counted(t, l, 4)
		}
		src.fails("the network is down")
		time.Sleep(time.Hour)
		counted(t, l, 4)
		wants(t, l, "k", 2)
		st := l.Stats().Pool
		if st.Reports != 1 || st.Rejected != 4 || st.Errors != 1 || st.LastError != "the network is down" || st.Age != time.Hour {
			t.Errorf("got %+v", st)
		}
		src.cancel()
	})
}

func TestFollowThatNeverHears(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{}, StartPool(Pool{Replicas: 6}))
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
		l := limiterOf(t, Limit{}, StartPool(Pool{Replicas: 6}), HintMaxAge(time.Minute))
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

// An ordinal that is not fixed by construction counts as fixed when it was said for one hold-down, and as none when it was not said
// for as long.
func TestOrdinalBecomesFixed(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 8})
		src := following(t, l)
		for _, c := range []struct {
			after time.Duration
			said  Pool
			fixed bool
			slots int // of 8
		}{
			{0, Pool{Replicas: 3, Ordinal: 2}, false, 2},
			{29, Pool{Replicas: 3, Ordinal: 2}, false, 2},
			{1, Pool{}, false, 2}, // it takes a word, and not the time alone
			{0, Pool{Replicas: 3, Ordinal: 2}, true, 3},
			{29, Pool{}, true, 3},
			{1, Pool{}, false, 2},                        // by now it may be another's
			{0, Pool{Replicas: 3, Ordinal: 2}, false, 2}, // and one word after a silence fixes nothing
			{29, Pool{Replicas: 3, Ordinal: 2}, false, 2},
			{1, Pool{Replicas: 3, Ordinal: 2}, true, 3},
			{1, Pool{Replicas: 3, Ordinal: 3}, false, 2},
			{29, Pool{Replicas: 3, Ordinal: 2}, false, 2}, // a change starts anew
			{29, Pool{Replicas: 3, Ordinal: 2}, false, 2},
			{1, Pool{Replicas: 3, Ordinal: 2}, true, 3},
			{0, Pool{Replicas: 5, Ordinal: 1, Fixed: true}, true, 2}, // by construction: at once,
			{1000, Pool{}, true, 2},                                  // and for good
		} {
			time.Sleep(c.after * time.Second)
			if c.said != (Pool{}) {
				src.saysPool(c.said)
			}
			synctest.Wait()
			if got := l.Pool().Fixed; got != c.fixed {
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
			if got := l.Pool(); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			for range 2 {
				time.Sleep(defaultHoldDown / 2)
				src.saysPool(Pool{Replicas: 2, Ordinal: 1, Fixed: fixed})
			}
			synctest.Wait()
			if got, want := l.Pool(), (Pool{Replicas: 2, Ordinal: 1, Fixed: true}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
		src.cancel()
	})
}

// An operator's word counts at once, and until the source says something new.
func TestSetPoolStaysUntilTheSourceSaysSomethingNew(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{})
		src := following(t, l)
		src.says(4)
		setReplicas(t, l, 2)
		counted(t, l, 2)
		if got := l.Stats().Pool; got.Source != "set" || got.Age != 0 {
			t.Errorf("got %+v", got)
		}
		for range 10 {
			time.Sleep(10 * time.Second)
			src.says(4)
			counted(t, l, 2)
		}
		src.says(5)
		counted(t, l, 5)
		src.cancel()
	})
}

func TestSetPoolRefuses(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(6, 6)), StartPool(Pool{Replicas: 3}))
		for _, p := range []Pool{{}, {Replicas: -1}, {Replicas: math.MaxInt}, {Replicas: 2, Ordinal: 3}} {
			says(t, l.SetPool(p), "Pool.")
		}
		counted(t, l, 3)
		wants(t, l, "k", 2)
		if st := l.Stats().Pool; st.Rejected != 4 || st.Source != "configured" {
			t.Errorf("got %+v", st)
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
		if err := src.stops(); err != context.Canceled {
			t.Errorf("Follow returned %v", err)
		}
		time.Sleep(time.Hour)
		counted(t, l, 8)
		src.says(9) // a source that does not end with its context
		counted(t, l, 8)
		if st := l.Stats().Pool; st.Reports != 2 {
			t.Errorf("got %+v", st)
		}
	})
}

// Failure mode 17: what is left of a division goes to the lowest fixed ordinals, one each.
func TestSlotsAreDivided(t *testing.T) {
	for _, c := range []struct {
		global int
		pool   Pool
		strict int // slots of this replica
		least  int // with AtLeastOne
	}{
		{10, Pool{Replicas: 1}, 10, 10},
		{10, Pool{Replicas: 4}, 2, 2},
		{10, Pool{Replicas: 4, Ordinal: 1}, 2, 2}, // not fixed
		{10, Pool{Replicas: 4, Ordinal: 1, Fixed: true}, 3, 3},
		{10, Pool{Replicas: 4, Ordinal: 2, Fixed: true}, 3, 3},
		{10, Pool{Replicas: 4, Ordinal: 3, Fixed: true}, 2, 2},
		{10, Pool{Replicas: 4, Fixed: true}, 2, 2}, // fixed, and not known
		{3, Pool{Replicas: 4}, 0, 1},
		{3, Pool{Replicas: 4, Ordinal: 3, Fixed: true}, 1, 1},
		{3, Pool{Replicas: 4, Ordinal: 4, Fixed: true}, 0, 1},
		{maxInFlight, Pool{Replicas: 1}, maxInFlight, maxInFlight},
	} {
		for i, opts := range [][]Option{{StartPool(c.pool)}, {StartPool(c.pool), AtLeastOne()}} {
			want := []int{c.strict, c.least}[i]
			l := limiterOf(t, Limit{InFlight: c.global}, opts...)
			if _, n := l.TryAcquireUpTo("k", math.MaxInt); n != want {
				t.Errorf("%+v: %d slots, want %d", c, n, want)
			}
			if want == 0 {
				refusedFor(t, l, ReasonShare, "k")
			}
		}
	}
}

func TestSlotsOfAFleetAddUp(t *testing.T) {
	for _, global := range []int{1, 2, 7, 10, 64, 1001} {
		for _, replicas := range []int{1, 2, 3, 7, 10, 64} {
			sum := 0
			for i := range replicas {
				l := limiterOf(t, Limit{InFlight: global}, MaxKeys(1), StartPool(Pool{Replicas: replicas, Ordinal: i + 1, Fixed: true}))
				_, n := l.TryAcquireUpTo("k", global)
				sum += n
			}
			if sum != global {
				t.Errorf("%d replicas have %d of %d slots", replicas, sum, global)
			}
		}
	}
}

// Failure mode 16: a joiner starts empty and fills at its share.
func TestJoinerStartsEmpty(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(8, 40)), JoinPool(Pool{Replicas: 4}))
		wants(t, l, "k", 0)
		time.Sleep(time.Second)
		wants(t, l, "k", 2)
		wants(t, l, "another, never seen", 2)
		time.Sleep(time.Hour)
		wants(t, l, "k", 10)
	})
}

func TestJoinerWaitsForTheNextWindow(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Rate{Events: 8, Per: time.Minute, Aligned: true}), JoinPool(Pool{Replicas: 4}))
		wants(t, l, "k", 0)
		time.Sleep(time.Minute)
		wants(t, l, "k", 2)
		wants(t, l, "another, never seen", 2)
	})
}

// The ordinal stays the replica's own whatever the source makes of it, and counts only in pools that are large enough.
func TestFixedOrdinal(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, src := limiterOf(t, Limit{}), &spoken{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Follow(ctx, FixedOrdinal(3, src)) }()
		synctest.Wait()
		for _, c := range []struct{ says, want Pool }{
			{Pool{Replicas: 2, Ordinal: 1}, Pool{Replicas: 2}},
			{Pool{Replicas: 5, Ordinal: 1}, Pool{Replicas: 5, Ordinal: 3, Fixed: true}},
			{Pool{Replicas: 9}, Pool{Replicas: 9, Ordinal: 3, Fixed: true}},
		} {
			if src.saysPool(c.says); l.Pool() != c.want {
				t.Errorf("%+v became %+v, want %+v", c.says, l.Pool(), c.want)
			}
		}
		src.fails("no answer")
		src.says(0)
		if st := l.Stats().Pool; st.Errors != 1 || st.Rejected != 1 || st.Replicas != 9 {
			t.Errorf("got %+v", st)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow returned %v", err)
		}
		says(t, l.Follow(t.Context(), FixedOrdinal(0, src)), "FixedOrdinal", "0")
		says(t, l.Follow(t.Context(), FixedOrdinal(1, nil)), "FixedOrdinal", "nil")
	})
}
