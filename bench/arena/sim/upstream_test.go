package sim

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/policy"
)

// reference decides from the whole history how many more an upstream may admit now, as a real number.
func reference(u *Upstream, admitted []time.Duration, now time.Duration) float64 {
	without := func(whole float64, counts func(a time.Duration) bool) float64 {
		left := math.Floor(whole)
		for _, a := range admitted {
			if counts(a) {
				left--
			}
		}
		return left
	}
	switch u.kind {
	case Window1, Window60:
		window := func(t time.Duration) int64 { return int64((t + u.phase) / u.per()) }
		return without(u.limit*u.per().Seconds(), func(a time.Duration) bool { return window(a) == window(now) })
	case SlidingLog:
		return without(u.limit*10, func(a time.Duration) bool { return a > now-10*time.Second })
	case Concurrency:
		return without(u.limit*.2, func(a time.Duration) bool { return a+serviceTime > now })
	}
	// A bucket that starts full: in no span since an admission more than a burst and what has flowed in.
	burst := max(1, u.limit)
	if u.kind == GCRA {
		burst = max(2, u.limit/10)
	}
	left := burst
	for i, a := range admitted {
		left = min(left, burst+u.limit*(now-a).Seconds()-float64(len(admitted)-i))
	}
	return left
}

// TestUpstreamsKeepTheirLimit compares every kind with a reference that looks at the whole history.
func TestUpstreamsKeepTheirLimit(t *testing.T) {
	for kind := TokenBucket; kind <= Concurrency; kind++ {
		t.Run(kind.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				limit := rapid.Float64Range(.5, 60).Draw(t, "limit")
				u := NewUpstream(kind, AllFields, limit,
					time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "phase")))
				longest := 2 / limit * float64(time.Second)
				if rapid.Bool().Draw(t, "pauses") {
					longest *= 30
				}
				var now time.Duration
				var admitted []time.Duration
				held := 0
				for range rapid.IntRange(1, 150).Draw(t, "requests") {
					now += time.Duration(rapid.Int64Range(0, int64(longest)).Draw(t, "gap"))
					for ; kind == Concurrency && held < len(admitted) && admitted[held]+serviceTime <= now; held++ {
						u.Release()
					}
					left := reference(u, admitted, now)
					got := u.Admit(now)
					if math.Abs(left-1) > 1e-6 && got != (left >= 1) {
						t.Fatalf("at %v admitted: %v, but %v were left; limit %v, before it: %v", now, got, left,
							limit, admitted)
					}
					if got {
						admitted = append(admitted, now)
					}
				}
			})
		})
	}
}

// TestFieldsAreTrue: as many as remain are admitted at once and no more, and a client that waits for
// Retry-After is admitted.
func TestFieldsAreTrue(t *testing.T) {
	// A quota below one counts as none.
	for kind, least := range map[Kind]float64{TokenBucket: .05, GCRA: .05, Window1: 1, Window60: .02, SlidingLog: .1} {
		t.Run(kind.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				u := NewUpstream(kind, AllFields, rapid.Float64Range(least, 60).Draw(t, "limit"), 0)
				now := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "now"))
				for range rapid.IntRange(1, 50).Draw(t, "before") {
					u.Admit(now)
					now += time.Duration(rapid.Int64Range(0, int64(time.Second/10)).Draw(t, "gap"))
				}
				u.settle(now)
				q := u.Answer(now, true).Quotas[0]
				if !q.Known() || q.Remaining > q.Limit {
					t.Fatalf("said %+v", q)
				}
				for i := range int(q.Remaining) + 1 {
					if got := u.Admit(now); got != (float64(i) < q.Remaining) {
						t.Fatalf("request %d of %v left: admitted %v", i, q.Remaining, got)
					}
				}
				f := u.Answer(now, false)
				if f.Outcome != policy.Throttled || f.RetryAfter < time.Second || f.RetryAfter%time.Second != 0 {
					t.Fatalf("refused with %+v", f)
				}
				if !u.Admit(now + f.RetryAfter) {
					t.Fatalf("refused again after Retry-After: %v", f.RetryAfter)
				}
			})
		})
	}
}
