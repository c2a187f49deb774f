package meter

import (
	"cmp"
	"math"
	"time"
)

// Bucket is a token bucket: the tokens that it holds, in events, and when they were counted. How fast it
// fills and how many it holds is the rule's (fill), so that a key keeps two words for it. The shard's lock
// guards it, and instants never go back. The zero value is empty.
//
// Its arithmetic is that of golang.org/x/time/rate, in events; a property compares the two. A rate.Limiter a key takes
// 80 bytes, has an int for a burst, and cannot be set to a number of tokens.
type Bucket struct {
	Tokens float64       // at the instant last; negative: owed
	Last   time.Duration // Instant.At
}

// Fill is how a bucket fills.
type Fill struct {
	Interval float64 // nanoseconds from one event to the next
	Size     float64 // events that it holds
}

// Has returns what the bucket holds; negative when it is in debt.
func (b *Bucket) Has(at time.Duration, f *Fill) float64 {
	return min(f.Size, b.Tokens+float64(at-b.Last)/f.Interval)
}

// TakeNow takes n if they are there, and reports whether they were. A deficit shorter than a nanosecond
// counts as no deficit.
func (b *Bucket) TakeNow(at time.Duration, f *Fill, n float64) bool {
	has := b.Has(at, f)
	if (n-has)*f.Interval >= 1 {
		return false
	}
	b.Tokens, b.Last = has-n, at
	return true
}

// Spend takes n tokens, there or not, or adds some, never above the size.
func (b *Bucket) Spend(at time.Duration, f *Fill, n float64) {
	b.Tokens, b.Last = min(f.Size, b.Has(at, f)-n), at
}

// UntilHas returns how long until the bucket would hold n, were it large enough. It is cut to whole nanoseconds.
func (b *Bucket) UntilHas(at time.Duration, f *Fill, n float64) time.Duration {
	return f.In(n - b.Has(at, f))
}

// In returns how long n tokens take to come, cut to whole nanoseconds.
func (f *Fill) In(n float64) time.Duration {
	if n <= 0 {
		return 0
	}
	if d := n * f.Interval; d < float64(Never) {
		return time.Duration(d)
	}
	return Never
}

// Until counts those ahead, and a full bucket for more than it holds.
func (b *Bucket) Until(t Instant, r *Rule, from time.Duration, ahead, n float64) time.Duration {
	return max(from, b.UntilHas(t.At, &r.Fill, ahead+min(n, r.Size)))
}

// Take may leave the bucket in debt.
func (b *Bucket) Take(t Instant, r *Rule, n float64) { b.Spend(t.At, &r.Fill, n) }

// Refund gives back what cannot have been refilled since, whatever was lent meanwhile. The headroom was no
// less than that at any instant since, so that nothing comes back twice.
func (b *Bucket) Refund(t Instant, taken time.Duration, r *Rule, n float64) {
	b.Spend(t.At, &r.Fill, -max(0, n-float64(t.At-taken)/cmp.Or(r.Fastest, r.Interval)))
}

// UpTo counts a deficit shorter than a nanosecond as none.
func (b *Bucket) UpTo(t Instant, r *Rule, n int) int {
	return b.Whole(t.At, &r.Fill, n)
}

// Whole returns how many of n events may be taken now one by one.
func (b *Bucket) Whole(at time.Duration, f *Fill, n int) int {
	most := math.Floor(max(0, b.Has(at, f)))
	if b.UntilHas(at, f, most+1) == 0 {
		most++ // a deficit shorter than a nanosecond counts as none
	}
	return int(min(float64(n), most))
}

// Left is what the bucket holds, of its size.
func (b *Bucket) Left(t Instant, r *Rule) (events, of float64, full time.Duration) {
	has := b.Has(t.At, &r.Fill)
	return has, r.Size, Saturated((r.Size - has) * r.Interval)
}

// Age is how long what is there took to fill in.
func (b *Bucket) Age(t Instant, r *Rule) time.Duration {
	return Saturated(b.Has(t.At, &r.Fill) * r.Interval)
}

// State is what the bucket holds.
func (b *Bucket) State(t Instant, r *Rule) State { return State{Has: b.Has(t.At, &r.Fill)} }

// Follow keeps the tokens that are there, up to the new size. A raise brings none at once: they come at the rate.
func (b *Bucket) Follow(t Instant, old, _ *Rule) {
	b.Tokens, b.Last = b.Has(t.At, &old.Fill), t.At
}

// Clone is a copy.
func (b *Bucket) Clone() Stored { c := *b; return &c }

// CostBucket is the bucket of a unit. Its events are costs, which may be corrected later, and then the exact
// part comes back. Had n events not been taken, the bucket would hold up to n more now, but not what it
// would have lost by being full meanwhile. That is min(n, the least headroom since they were taken), where
// headroom is size less tokens. The bucket is a reflected process, and a refund must not bring back its
// reflection. Events taken under another limit or pool are never refunded.
type CostBucket struct {
	Bucket
	minima minima // of the headroom
}

// Take notes the headroom before it takes.
func (b *CostBucket) Take(t Instant, r *Rule, n float64) {
	b.minima.note(t.At, b.headroom(t, r)) // it is lowest just before something is taken
	b.Bucket.Take(t, r, n)
}

// Refund lowers each headroom since by what comes back, so that the same one is not given back twice.
func (b *CostBucket) Refund(t Instant, taken time.Duration, r *Rule, n float64) {
	if back := min(n, b.headroom(t, r), b.minima.since(taken)); back > 0 {
		b.Spend(t.At, &r.Fill, -back)
		b.minima.lower(taken, back)
	}
}

// headroom returns what is missing to a full bucket.
func (b *CostBucket) headroom(t Instant, r *Rule) float64 { return r.Size - b.Has(t.At, &r.Fill) }

// Follow forgets the headroom, unless only the part that is lent is another.
func (b *CostBucket) Follow(t Instant, old, r *Rule) {
	b.Bucket.Follow(t, old, r)
	if r.Fastest == 0 || old.Fastest == 0 || old.Size != r.Size { // else the part that is lent is another
		b.minima = nil
	}
}

// Clone has the tokens, and nothing to give back.
func (b *CostBucket) Clone() Stored { return &CostBucket{Bucket: b.Bucket} }

// minima are the suffix minima of a headroom: for each instant the least that was noted after it. The oldest
// comes first and is the lowest.
type minima []minimum

type minimum struct {
	at   time.Duration
	room float64 // the least since the minimum before this one
}

// maxMinima bounds the list. The oldest is merged into the next, at the lower of both: the safe side.
const maxMinima = 32

// note adds a headroom.
func (m *minima) note(at time.Duration, room float64) {
	s := *m
	for len(s) > 0 && s[len(s)-1].room >= room {
		s = s[:len(s)-1]
	}
	if len(s) == maxMinima {
		s[1].room = s[0].room
		s = append(s[:0], s[1:]...)
	}
	*m = append(s, minimum{at, room})
}

// since returns the least headroom that was noted after an instant. A note of that very instant was made
// before the take, or is no less than it.
func (m minima) since(taken time.Duration) float64 {
	for _, v := range m {
		if v.at > taken {
			return v.room
		}
	}
	return math.Inf(1)
}

// lower takes a refund off all that was noted after an instant. A minimum that is then no less than a later
// one is dropped.
func (m *minima) lower(taken time.Duration, refund float64) {
	kept := (*m)[:0]
	for _, v := range *m {
		if v.at > taken {
			v.room = max(0, v.room-refund)
		}
		for len(kept) > 0 && kept[len(kept)-1].room >= v.room {
			kept = kept[:len(kept)-1]
		}
		kept = append(kept, v)
	}
	*m = kept
}
