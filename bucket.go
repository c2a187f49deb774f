package quotient

import (
	"math"
	"reflect"
	"time"

	"golang.org/x/time/rate"
)

// milli is the number of parts that an event has inside a bucket, so that a burst of 20
// over 3 replicas can be 6.666. All amounts in this file are in these thousandths.
const milli = 1000

// never is a wait that does not end by itself.
const never = time.Duration(math.MaxInt64)

// bucket is a token bucket. rate.Limiter does the token maths: it counts thousandths, and
// now is always an argument. A bucket has no lock of its own that matters: the shard's lock
// guards it, and now never goes back under it (shard.tick).
//
// The zero value is empty and does not fill until it is set.
type bucket struct{ lim rate.Limiter }

// set changes the fill rate (thousandths a second) and the size. Tokens that are there
// stay, up to the new size; a raise brings none at once, they come at the rate.
func (b *bucket) set(now time.Time, perSecond rate.Limit, burst int) {
	b.lim.SetLimitAt(now, perSecond)
	b.lim.SetBurstAt(now, burst)
}

// fill adds n to an empty or indebted bucket; it is for buckets that start.
func (b *bucket) fill(now time.Time, n int) {
	if n > 0 {
		b.lim.ReserveN(now, -n)
	}
}

// copyFrom makes b equal to o, to the last bit. Both are only ever used under their
// shard's lock, so that the mutex inside rate.Limiter is free and may be copied.
func (b *bucket) copyFrom(o *bucket) {
	reflect.ValueOf(&b.lim).Elem().Set(reflect.ValueOf(&o.lim).Elem())
}

// tokens is what the bucket holds; negative when it is in debt.
func (b *bucket) tokens(now time.Time) float64 { return b.lim.TokensAt(now) }

// take takes n if the bucket has room for it, and tells whether it had. More than the
// bucket's size waits for a full bucket and then owes the rest.
func (b *bucket) take(now time.Time, n int) bool {
	if b.lim.AllowN(now, n) {
		return true
	}
	if n <= b.lim.Burst() || b.until(now, n) > 0 {
		return false
	}
	b.owe(now, n)
	return true
}

// until is how long it takes, if nobody takes anything meanwhile, before take(n)
// succeeds: 0 when it does now, never when it cannot by waiting alone.
func (b *bucket) until(now time.Time, n int) time.Duration {
	return b.untilHas(now, float64(min(n, b.lim.Burst())))
}

// untilHas is how long until the bucket would hold n, were it large enough.
// It is cut to whole nanoseconds, as rate.Limiter does when it decides.
func (b *bucket) untilHas(now time.Time, n float64) time.Duration {
	missing := n - b.tokens(now)
	if missing <= 0 {
		return 0
	}
	perSecond := float64(b.lim.Limit())
	if perSecond <= 0 {
		return never
	}
	if d := missing / perSecond * float64(time.Second); d < float64(never) {
		return time.Duration(d)
	}
	return never
}

// owe takes n whether it is there or not.
func (b *bucket) owe(now time.Time, n int) {
	if n <= 0 {
		return
	}
	burst := b.lim.Burst()
	b.lim.SetBurstAt(now, max(burst, n)) // no reservation may exceed the size
	b.lim.ReserveN(now, n)
	b.lim.SetBurstAt(now, burst)
}

// refund gives n back, never above the size.
func (b *bucket) refund(now time.Time, n int) {
	if n <= 0 {
		return
	}
	b.lim.ReserveN(now, -n)
	b.lim.SetBurstAt(now, b.lim.Burst()) // cuts what is above the size
}

// thousandths converts events, rounded down and saturated far inside an int.
func thousandths(events float64) int {
	const most = math.MaxInt / 4
	if t := events * milli; t < most {
		return int(t)
	}
	return most
}

// wholeEvents is how many events could be taken now one by one.
func (b *bucket) wholeEvents(now time.Time) int {
	n := int(max(b.tokens(now), 0)) / milli
	if b.untilHas(now, float64(n+1)*milli) == 0 {
		n++ // a deficit shorter than a nanosecond is none
	}
	return n
}
