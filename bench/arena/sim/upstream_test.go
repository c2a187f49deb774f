package sim

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/policy"
)

// reference decides from the whole history what an upstream should say: how many more it may admit at now,
// as a real number.
func reference(u *Upstream, admitted []time.Duration, now time.Duration) float64 {
	count := func(fits func(a time.Duration) bool) (n float64) {
		for _, a := range admitted {
			if fits(a) {
				n++
			}
		}
		return n
	}
	switch u.kind {
	case Window1, Window60:
		window := func(t time.Duration) int64 { return int64((t + u.phase) / u.per()) }
		return math.Floor(u.limit*u.per().Seconds()) -
			count(func(a time.Duration) bool { return window(a) == window(now) })
	case SlidingLog:
		return math.Floor(u.limit*10) - count(func(a time.Duration) bool { return a > now-10*time.Second })
	case Concurrency:
		return math.Floor(u.limit*.2) - count(func(a time.Duration) bool { return a+serviceTime > now })
	}
	// A bucket that starts full: in no span since an admission more than a burst and what has flowed in.
	left := u.burst()
	for i, a := range admitted {
		left = min(left, u.burst()+u.limit*(now-a).Seconds()-float64(len(admitted)-i))
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
					for kind == Concurrency && held < len(admitted) && admitted[held]+serviceTime <= now {
						u.inFlight--
						held++
					}
					left := reference(u, admitted, now)
					got := u.Admit(now)
					if math.Abs(left-1) > 1e-6 && got != (left >= 1) {
						t.Fatalf("at %v admitted: %v, but %v were left; limit %v, before it: %v", now, got,
							left, limit, admitted)
					}
					if got {
						admitted = append(admitted, now)
					}
				}
			})
		})
	}
}

// TestUpstreamsByHand has rows that can be followed with a finger: + is an admission, at multiples of a tenth
// of a second.
func TestUpstreamsByHand(t *testing.T) {
	for _, row := range []struct {
		name  string
		kind  Kind
		limit float64
		at    []int // tenths of a second
		want  string
	}{
		{"a full bucket holds a second", TokenBucket, 2, []int{0, 0, 0}, "++-"},
		{"and refills one in half a second", TokenBucket, 2, []int{0, 0, 4, 5, 5}, "++-+-"},
		{"and never holds more", TokenBucket, 2, []int{100, 100, 100}, "++-"},
		{"GCRA holds two at least", GCRA, 5, []int{0, 0, 0, 2, 2}, "++-+-"},
		{"GCRA holds a tenth", GCRA, 30, []int{0, 0, 0, 0, 1, 1, 1, 1}, "+++-+++-"},
		{"a window forgets at its edge", Window1, 2, []int{8, 9, 9, 10, 10, 10}, "++-++-"},
		{"a minute's window too", Window60, .05, []int{0, 10, 590, 599, 600, 600}, "+++-++"},
		{"a log forgets after ten seconds", SlidingLog, .2, []int{0, 50, 99, 100, 101, 150}, "++-+-+"},
		{"slots are held", Concurrency, 10, []int{0, 0, 0, 1}, "++--"},
		{"a stick table forgets bit by bit", StickTable, 2, []int{0, 0, 11, 16, 18}, "++++-"},
		{"and counts refusals", StickTable, 2, []int{0, 0, 0, 12, 20, 20, 30, 45}, "++--+--+"},
		{"and starts anew after two seconds", StickTable, 2, []int{0, 0, 20, 25, 29, 30}, "++++--"},
	} {
		u := NewUpstream(row.kind, NoFields, row.limit, 0)
		got := ""
		for _, at := range row.at {
			got += map[bool]string{false: "-", true: "+"}[u.Admit(time.Duration(at)*100*time.Millisecond)]
		}
		if got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}

// TestFieldsAreTrue: as many as remain are admitted at once and no more, and a client that waits for
// Retry-After is admitted.
func TestFieldsAreTrue(t *testing.T) {
	// A quota below one counts as none.
	for kind, least := range map[Kind]float64{
		TokenBucket: .05, GCRA: .05, Window1: 1, Window60: .02, SlidingLog: .1, StickTable: 1,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				limit := rapid.Float64Range(least, 60).Draw(t, "limit")
				u := NewUpstream(kind, AllFields, limit, 0)
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
				if f.Outcome != policy.Throttled || f.RetryAfter < time.Second ||
					f.RetryAfter%time.Second != 0 {
					t.Fatalf("refused with %+v", f)
				}
				if !u.Admit(now + f.RetryAfter) {
					t.Fatalf("refused again after Retry-After: %v", f.RetryAfter)
				}
			})
		})
	}
}

func TestLevelsOfFields(t *testing.T) {
	for _, row := range []struct {
		fields       Fields
		retry, quota bool
	}{{NoFields, false, false}, {RetryAfter, true, false}, {AllFields, true, true}} {
		f := NewUpstream(TokenBucket, row.fields, 1, 0).Answer(0, false)
		if f.RetryAfter > 0 != row.retry || f.Quotas[0].Known() != row.quota {
			t.Errorf("%s: %+v", row.fields, f)
		}
	}
}

func TestLimitFalls(t *testing.T) {
	u := NewUpstream(TokenBucket, NoFields, 100, 0)
	u.SetLimit(0, 2)
	n := 0
	for range 10 {
		if u.Admit(0) {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d admitted after the limit fell to 2", n)
	}
}

func TestHeapOrders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h heap
		in, out := map[event]int{}, map[event]int{}
		last := time.Duration(math.MinInt64)
		for i := range rapid.IntRange(1, 200).Draw(t, "n") {
			if len(h) > 0 && rapid.IntRange(0, 3).Draw(t, "pop") == 0 {
				e := h.pop()
				out[e]++
				last = e.at
			} else {
				e := event{at: max(0, last) + time.Duration(rapid.Int64Range(0, 20).Draw(t, "at")),
					who: int32(i)}
				in[e]++
				h.push(e)
			}
		}
		for len(h) > 0 {
			e := h.pop()
			if e.at < last {
				t.Fatalf("%v after %v", e.at, last)
			}
			last = e.at
			out[e]++
		}
		if len(in) != len(out) {
			t.Fatalf("%d events in, %d out", len(in), len(out))
		}
		for e := range in {
			if in[e] != out[e] {
				t.Fatalf("%v: %d in, %d out", e, in[e], out[e])
			}
		}
	})
}
