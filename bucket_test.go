package quotient

import (
	"math"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

// dawn is an instant from which tests count seconds.
var dawn = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// sec is so many seconds after dawn.
func sec(s float64) time.Time { return dawn.Add(time.Duration(s * float64(time.Second))) }

// bucketOf returns a full bucket of so many events that fills at perSecond.
func bucketOf(perSecond, burst float64) *bucket {
	b := new(bucket)
	b.set(dawn, rate.Limit(perSecond*milli), thousandths(burst))
	b.fill(dawn, thousandths(burst))
	return b
}

// holds fails unless the bucket has n events at t seconds.
func (b *bucket) holds(t *testing.T, at, n float64) {
	t.Helper()
	if got := b.tokens(sec(at)) / milli; math.Abs(got-n) > 1e-6 {
		t.Errorf("at %v s: %v events, want %v", at, got, n)
	}
}

type taking struct {
	t, n float64 // seconds and events
	ok   bool
}

func TestBucketTake(t *testing.T) {
	for _, c := range []struct {
		name             string
		perSecond, burst float64
		asks             []taking
	}{
		{"one by one", 10, 2, []taking{
			{0, 1, true}, {0, 1, true}, {0, 1, false},
			{0.1, 1, true}, {0.1, 1, false},
			{0.15, 1, false}, {0.2, 1, true},
		}},
		{"never above the burst", 10, 3, []taking{
			{0, 3, true}, {1e9, 3, true}, {1e9, 1, false},
		}},
		{"fractional burst", 1, 20.0 / 3, []taking{
			{0, 6, true}, {0, 1, false}, {0.333, 1, false}, {0.334, 1, true},
			{1000, 6, true}, {1000, 0.666, true}, {1000, 0.001, false},
		}},
		{"half an event a second", 0.5, 1, []taking{
			{0, 1, true}, {1.999, 1, false}, {2, 1, true}, {3, 1, false}, {4, 1, true},
		}},
		{"more than the size waits for a full bucket and owes", 1, 2, []taking{
			{0, 5, true}, {3, 1, false}, {4, 1, true},
			{5, 5, false}, {5.999, 3, false}, {6, 3, true}, {7, 1, false}, {8, 1, true},
		}},
		{"nothing is taken by a refusal", 1, 3, []taking{
			{0, 2, true}, {0, 2, false}, {0, 2, false}, {0, 1, true}, {1, 1, true},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := bucketOf(c.perSecond, c.burst)
			for _, a := range c.asks {
				wait := b.until(sec(a.t), thousandths(a.n))
				if ok := b.take(sec(a.t), thousandths(a.n)); ok != a.ok || ok != (wait == 0) {
					t.Errorf("at %v s take %v: %v after a wait of %v, want %v", a.t, a.n, ok, wait, a.ok)
				}
			}
		})
	}
}

// Whoever waits as long as until says is admitted, and not before. Two nanoseconds are allowed for
// rounding: a deficit shorter than one is none.
func TestBucketUntilIsExact(t *testing.T) {
	for _, c := range []struct{ perSecond, burst, drained, n float64 }{
		{10, 2, 2, 1}, {3, 7, 7, 5}, {0.7, 1, 1, 1}, {1e6, 10, 10, 10}, {1.0 / 3600, 1, 1, 1}, {5, 2, 9, 2}, {1, 2, 2, 50},
	} {
		b := bucketOf(c.perSecond, c.burst)
		b.owe(dawn, thousandths(c.drained))
		d := b.until(dawn, thousandths(c.n))
		if d <= 0 || b.take(dawn.Add(d-2*time.Nanosecond), thousandths(c.n)) {
			t.Errorf("%+v: admitted before %v", c, d)
		}
		if !b.take(dawn.Add(d), thousandths(c.n)) {
			t.Errorf("%+v: not admitted after %v", c, d)
		}
	}
}

func TestBucketUntilNever(t *testing.T) {
	b := bucketOf(0, 2)
	b.owe(dawn, 2*milli)
	if d := b.until(dawn, milli); d != never {
		t.Errorf("a bucket that does not fill: %v", d)
	}
	b = bucketOf(1e-12, 2)
	b.owe(dawn, 2*milli)
	if d := b.until(dawn, milli); d != never {
		t.Errorf("longer than any Duration: %v", d)
	}
	if d := new(bucket).until(dawn, milli); d != 0 && d != never {
		t.Errorf("the zero value: %v", d)
	}
}

func TestBucketRefund(t *testing.T) {
	for _, c := range []struct{ taken, owed, refunded, left float64 }{
		{taken: 2, refunded: 1, left: 4},
		{taken: 2, refunded: 2, left: 5},
		{taken: 2, refunded: 9, left: 5}, // never above the size
		{taken: 0, refunded: 1, left: 5},
		{owed: 8, refunded: 2, left: -1}, // into a debt
		{owed: 8, refunded: 4, left: 1},
		{owed: 8, refunded: 1e9, left: 5},
		{owed: 1e12, refunded: 0, left: 5 - 1e12},
		{taken: 1, refunded: 0, left: 4},
		{taken: 1, refunded: -3, left: 4}, // no way to take
		{owed: -3, left: 5},
	} {
		b := bucketOf(1, 5)
		if !b.take(dawn, thousandths(c.taken)) {
			t.Errorf("%+v: not taken", c)
		}
		b.owe(dawn, thousandths(c.owed))
		b.refund(dawn, thousandths(c.refunded))
		b.holds(t, 0, c.left)
		b.holds(t, 1, min(c.left+1, 5))
	}
}

func TestBucketSet(t *testing.T) {
	b := bucketOf(1, 4)
	b.take(dawn, 3*milli)
	b.set(dawn, 10*milli, 100*milli)
	b.holds(t, 0, 1) // a raise brings nothing
	b.holds(t, 2, 21)
	b.holds(t, 1000, 100)
	b.set(sec(2), 10*milli, 5*milli)
	b.holds(t, 2, 5) // a cut takes what is above
	b.set(sec(2), 10*milli, 100*milli)
	b.holds(t, 2, 5) // and it does not come back
	b.owe(sec(2), 50*milli)
	b.set(sec(2), milli, milli)
	b.holds(t, 2, -45) // a debt stays
	b.holds(t, 48, 1)
}

func TestBucketWholeEvents(t *testing.T) {
	for _, c := range []struct {
		burst, owed float64
		want        int
	}{{3, 0, 3}, {3.999, 0, 3}, {3, 0.001, 2}, {3, 2.5, 0}, {3, 9, 0}} {
		b := bucketOf(1, c.burst)
		b.owe(dawn, int(math.Round(c.owed*milli)))
		if got := b.wholeEvents(dawn); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
	}
}

func TestBucketCopyIsEqualAndApart(t *testing.T) {
	b, c := bucketOf(3, 7), new(bucket)
	b.take(sec(0.123), 4*milli)
	c.copyFrom(b)
	for _, at := range []float64{0.2, 0.5, 9} {
		if b.tokens(sec(at)) != c.tokens(sec(at)) {
			t.Errorf("at %v s: %v and its copy %v", at, b.tokens(sec(at)), c.tokens(sec(at)))
		}
	}
	c.take(sec(0.2), milli)
	if b.tokens(sec(0.2))-c.tokens(sec(0.2)) != milli {
		t.Error("the copy is not apart")
	}
}

func TestThousandths(t *testing.T) {
	for _, c := range []struct {
		events float64
		want   int
	}{{0, 0}, {1, 1000}, {6.6669, 6666}, {0.0009, 0}, {-2, -2000}, {1e300, math.MaxInt / 4}, {math.Inf(1), math.MaxInt / 4}} {
		if got := thousandths(c.events); got != c.want {
			t.Errorf("%v events: %d thousandths, want %d", c.events, got, c.want)
		}
	}
}

// allowedAt is Allow of a caller that has read the clock at an instant.
func allowedAt(l *Limiter, key string, now time.Time) bool {
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now = s.tick(now)
	v := s.try(s.gate(key, now), now, &oneRequest)
	return v.reason == ReasonNone
}

// Failure mode 6: callers that come to the lock in another order than to the clock.
func TestTimestampsOutOfOrder(t *testing.T) {
	l := limiterOf(t, rated(perSecond(10, 20)))
	early, late := l.base.Add(time.Second), l.base.Add(3*time.Second)
	admitted := 0
	for range 1000 {
		for _, now := range []time.Time{late, early} {
			if allowedAt(l, "k", now) {
				admitted++
			}
		}
	}
	if admitted != 20 {
		t.Errorf("admitted %d at two instants in turn, want the burst, 20", admitted)
	}
}

// Failure mode 7: however long a machine slept, the burst is all that has been saved up.
func TestCreditAfterSuspend(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(100, 20), PerHour(3600*50)))
		wants(t, l, "k", 20)
		for _, d := range []time.Duration{time.Hour, 50 * year, 200 * year} {
			time.Sleep(d)
			wants(t, l, "k", 20)
		}
	})
}

// A wall clock that is set forward or back gives and takes nothing.
func TestCreditAfterClockStep(t *testing.T) {
	l := limiterOf(t, rated(perSecond(10, 20)))
	now := l.base.Add(time.Minute)
	for range 20 {
		allowedAt(l, "k", now)
	}
	for _, step := range []time.Duration{100 * time.Hour, -100 * time.Hour} {
		if allowedAt(l, "k", stepped(now, step)) {
			t.Errorf("admitted after a step of %v", step)
		}
	}
	if !allowedAt(l, "k", stepped(now.Add(100*time.Millisecond), -100*time.Hour)) {
		t.Error("refused a tenth of a second later")
	}
}

func TestBurstIsDividedInFractions(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(3, 20)), StartPool(Pool{Replicas: 3}))
		took(t, l, "k", Weight(6))
		has(t, l, "k", 0.666)
		time.Sleep(333 * time.Millisecond)
		wants(t, l, "k", 0)
		time.Sleep(2 * time.Millisecond)
		wants(t, l, "k", 1)
	})
}

func TestNoBucketIsSmallerThanOneEvent(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(10, 5)), StartPool(Pool{Replicas: 100}))
		wants(t, l, "k", 1)
		time.Sleep(10 * time.Second)
		wants(t, l, "k", 1)
	})
}

func TestPacedRatesSaveNothingUp(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(time.Second)))
		for range 5 {
			time.Sleep(time.Hour)
			wants(t, l, "k", 1)
		}
	})
}
