package quotient

import (
	"math"
	"testing"
	"time"
)

// dawn is an instant from which tests count seconds.
var dawn = sec(0)

// sec is so many seconds after dawn.
func sec(s float64) instant {
	wall := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()
	return instant{time.Hour, wall}.later(time.Duration(s * float64(time.Second)))
}

// fills is the rule of a bucket of so many events that fills at perSecond.
func fills(perSecond, burst float64) *rule {
	return &rule{fill: fill{interval: float64(time.Second) / perSecond, size: burst}}
}

// fullBucket returns a bucket that is full at dawn.
func fullBucket(r *rule) *bucket { return &bucket{tokens: r.size, last: dawn.at} }

// takes takes n as a gate does, and reports whether they pass, at once or at the instant of until.
func (b *bucket) takes(t *testing.T, now instant, r *rule, n float64) bool {
	t.Helper()
	wait := b.until(now, r, 0, 0, n)
	if b.takeNow(now.at, &r.fill, n) {
		is(t, []any{"until for", n, "events that are taken now"}, wait, 0)
		return true
	}
	if wait > 0 {
		return false
	}
	if n <= r.size {
		t.Errorf("%v events of %v are not taken now, and until says that they are there", n, r.size)
	}
	b.take(now, r, n)
	return true
}

// Behind others the wait is that for theirs too, and never shorter than from.
func TestBucketUntilBehindOthers(t *testing.T) {
	r := fills(10, 4)
	for _, c := range []struct {
		from     time.Duration
		ahead, n float64
		want     time.Duration
	}{
		{0, 0, 1, 0}, {0, 3, 1, 0}, {0, 4, 1, 100 * time.Millisecond}, {0, 40, 1, 3700 * time.Millisecond},
		{0, 4, 9, 400 * time.Millisecond}, // more than the size waits for a full bucket
		{time.Second, 0, 1, time.Second}, {time.Second, 40, 1, 3700 * time.Millisecond},
		{time.Second, 4, 1, time.Second},
	} {
		if d := fullBucket(r).until(dawn, r, c.from, c.ahead, c.n); d < c.want-1 || d > c.want {
			t.Errorf("%+v: %v", c, d)
		}
	}
}

func TestBucketUntilNever(t *testing.T) {
	for name, r := range map[string]*rule{
		"it does not fill": fills(0, 2), "longer than any Duration": fills(1e-12, 2),
	} {
		b := fullBucket(r)
		b.take(dawn, r, 2)
		is(t, name, b.until(dawn, r, 0, 0, 1), never)
		is(t, []any{name, "for nothing"}, b.until(dawn, r, 0, 0, 0), 0)
	}
	is(t, "the zero value, which is empty", new(bucket).until(instant{}, fills(1, 5), 0, 0, 3), 3*time.Second)
}

func TestBucketUpTo(t *testing.T) {
	for _, c := range []struct {
		perSecond, burst, owed float64
		n, want                int
	}{
		{1, 3, 0, 9, 3}, {1, 3, 0, 2, 2}, {1, 3.999, 0, 9, 3}, {1, 3, 0.001, 9, 2},
		{1, 3, 2.5, 9, 0}, {1, 3, 9, 9, 0},
		{1e6, 3, 0.0009, 9, 3}, {1e6, 3, 0.0011, 9, 2}, // a deficit shorter than a nanosecond counts as none
	} {
		r := fills(c.perSecond, c.burst)
		b := fullBucket(r)
		b.take(dawn, r, c.owed)
		got := b.upTo(dawn, r, c.n)
		is(t, c, got, c.want)
		for i := range c.want {
			if !b.takes(t, dawn, r, 1) {
				t.Errorf("%+v: refused the event %d of %d that upTo has found", c, i+1, got)
			}
		}
		if c.n > c.want && b.takes(t, dawn, r, 1) {
			t.Errorf("%+v: one more than the %d that upTo has found", c, got)
		}
	}
}

// The time until all is there, and for how long what was just taken had been there.
func TestBucketTimes(t *testing.T) {
	for _, c := range []struct {
		perSecond, burst, taken float64
		full, age               time.Duration
	}{
		{1, 5, 0, 0, 5 * time.Second}, {1, 5, 2, 2 * time.Second, 3 * time.Second},
		{1, 5, 9, 9 * time.Second, 0},
		{1e-13, 5, 5, 1 << 62, 0}, {1e-13, 5, 0, 0, 1 << 62}, // longer than any Duration
		{0, 5, 5, 1 << 62, 0}, {0, 5, 0, 0, 1 << 62}, // it does not fill
	} {
		r := fills(c.perSecond, c.burst)
		b := fullBucket(r)
		b.take(dawn, r, c.taken)
		_, _, full := b.left(dawn, r)
		is(t, []any{c, "full in"}, full, c.full)
		is(t, []any{c, "there for"}, b.age(dawn, r), c.age)
	}
}

func TestBucketCloneIsEqualAndApart(t *testing.T) {
	r := fills(3, 7)
	r.turn = newTurn(Every(time.Second), Pool{Replicas: 3, Ordinal: 2})
	for name, b := range map[string]stored{
		"bucket": fullBucket(r), "cost": &costBucket{bucket: *fullBucket(r)},
		"turn": &turnBucket{costBucket: costBucket{bucket: *fullBucket(r)}},
	} {
		b.take(sec(0.123), r, 4)
		c := b.clone()
		for _, at := range []float64{0.2, 0.5, 9} {
			is(t, []any{name, at}, c.state(sec(at), r), b.state(sec(at), r))
		}
		c.take(sec(0.2), r, 1)
		was, _, _ := b.left(sec(0.2), r)
		is, _, _ := c.left(sec(0.2), r)
		if math.Abs(was-is-1) > 1e-9 {
			t.Errorf("%s: the copy is not apart: %v and %v", name, was, is)
		}
	}
}

func TestThousandths(t *testing.T) {
	for _, c := range []struct {
		events float64
		want   uint64
	}{
		{0, 0}, {1, 1000}, {6.6669, 6666}, {0.0009, 0},
		{1e300, math.MaxInt64 / 4}, {math.Inf(1), math.MaxInt64 / 4},
	} {
		is(t, c.events, thousandths(c.events), c.want)
	}
}

// allowedAt is Allow of a caller that has read the clocks at an instant.
func allowedAt(l *Limiter, key string, now instant) bool {
	s, hash := l.lock(key)
	defer s.mu.Unlock()
	now = s.tick(now)
	return s.try(s.gate(hash, key, now, 0), now, &oneRequest).reason == ReasonNone
}

// Failure mode 6: callers that come to the lock in another order than to the clock.
func TestTimestampsOutOfOrder(t *testing.T) {
	l := mustNew(t, Rates(perSecond(10, 20)))
	early, late := instant{at: time.Second}, instant{at: 3 * time.Second}
	admitted := 0
	for range 1000 {
		for _, now := range []instant{late, early} {
			if allowedAt(l, "k", now) {
				admitted++
			}
		}
	}
	is(t, "admitted at two instants in turn, the burst", admitted, 20)
	if later := (instant{at: 10 * time.Second}); !allowedAt(l, "k", later) {
		t.Error("refused with a full bucket")
	}
	for n := range 20 { // what was there at the latest instant is there for all
		is(t, n, allowedAt(l, "k", early), n < 19)
	}
}

// Failure mode 7: however long a machine slept, the burst is all that has been saved up.
func TestCreditAfterSuspend(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(100, 20), PerHour(3600*50)))
		wants(t, l, "k", 20)
		for _, d := range []time.Duration{time.Hour, 50 * year, 200 * year} {
			time.Sleep(d)
			wants(t, l, "k", 20)
		}
	})
}

func TestBurstIsDividedInFractions(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := mustNew(t, Rates(perSecond(3, 20)), Replicas(3))
		took(t, l, "k", Weight(6))
		has(t, l, "k", 0.666)
		time.Sleep(333 * time.Millisecond)
		wants(t, l, "k", 0)
		time.Sleep(2 * time.Millisecond)
		wants(t, l, "k", 1)
	})
}
