package quotient

import (
	"cmp"
	"math"
	"time"
)

// bucket is a token bucket: the tokens that it holds, in events, and when they were counted. How fast it
// fills and how many it holds is the rule's (fill), so that a key keeps two words for it. The shard's lock
// guards it, and instants never go back. The zero value is empty.
//
// Its arithmetic is that of golang.org/x/time/rate, in events: see docs/decisions.md, 37.
type bucket struct {
	tokens float64       // at the instant last; negative: owed
	last   time.Duration // instant.at
}

// fill is how a bucket fills.
type fill struct {
	interval float64 // nanoseconds from one event to the next
	size     float64 // events that it holds
}

// has returns what the bucket holds; negative when it is in debt.
func (b *bucket) has(at time.Duration, f *fill) float64 {
	return min(f.size, b.tokens+float64(at-b.last)/f.interval)
}

// takeNow takes n if they are there, and reports whether they were. A deficit shorter than a nanosecond
// counts as no deficit.
func (b *bucket) takeNow(at time.Duration, f *fill, n float64) bool {
	has := b.has(at, f)
	if (n-has)*f.interval >= 1 {
		return false
	}
	b.tokens, b.last = has-n, at
	return true
}

// spend takes n tokens, there or not, or adds some, never above the size.
func (b *bucket) spend(at time.Duration, f *fill, n float64) {
	b.tokens, b.last = min(f.size, b.has(at, f)-n), at
}

// untilHas returns how long until the bucket would hold n, were it large enough. It is cut to whole
// nanoseconds.
func (b *bucket) untilHas(at time.Duration, f *fill, n float64) time.Duration {
	return f.in(n - b.has(at, f))
}

// in returns how long n tokens take to come, cut to whole nanoseconds.
func (f *fill) in(n float64) time.Duration {
	if n <= 0 {
		return 0
	}
	if d := n * f.interval; d < float64(never) {
		return time.Duration(d)
	}
	return never
}

func (b *bucket) until(t instant, r *rule, from time.Duration, ahead, n float64) time.Duration {
	return max(from, b.untilHas(t.at, &r.fill, ahead+min(n, r.size)))
}

func (b *bucket) take(t instant, r *rule, n float64) { b.spend(t.at, &r.fill, n) }

// refund gives back what cannot have been refilled since, whatever was lent meanwhile. The headroom was no
// less than that at any instant since, so that nothing comes back twice.
func (b *bucket) refund(t instant, taken time.Duration, r *rule, n float64) {
	b.spend(t.at, &r.fill, -max(0, n-float64(t.at-taken)/cmp.Or(r.fastest, r.interval)))
}

func (b *bucket) upTo(t instant, r *rule, n int) int {
	return b.whole(t.at, &r.fill, n)
}

// whole returns how many of n events may be taken now one by one.
func (b *bucket) whole(at time.Duration, f *fill, n int) int {
	most := math.Floor(max(0, b.has(at, f)))
	if b.untilHas(at, f, most+1) == 0 {
		most++ // a deficit shorter than a nanosecond counts as none
	}
	return int(min(float64(n), most))
}

func (b *bucket) left(t instant, r *rule) (events, of float64, full time.Duration) {
	has := b.has(t.at, &r.fill)
	return has, r.size, saturated((r.size - has) * r.interval)
}

func (b *bucket) age(t instant, r *rule) time.Duration {
	return saturated(b.has(t.at, &r.fill) * r.interval)
}

func (b *bucket) state(t instant, r *rule) state { return state{has: b.has(t.at, &r.fill)} }

// follow keeps the tokens that are there, up to the new size. A raise brings none at once: they come at the
// rate.
func (b *bucket) follow(t instant, old, _ *rule) {
	b.tokens, b.last = b.has(t.at, &old.fill), t.at
}

func (b *bucket) clone() stored { c := *b; return &c }

// costBucket is the bucket of a unit. Its events are costs, which may be corrected later, and then the exact
// part comes back. Had n events not been taken, the bucket would hold up to n more now, but not what it
// would have lost by being full meanwhile. That is min(n, the least headroom since they were taken), where
// headroom is size less tokens. The bucket is a reflected process, and a refund must not bring back its
// reflection. Events taken under another limit or pool are never refunded.
type costBucket struct {
	bucket
	minima minima // of the headroom
}

func (b *costBucket) take(t instant, r *rule, n float64) {
	b.minima.note(t.at, b.headroom(t, r)) // it is lowest just before something is taken
	b.bucket.take(t, r, n)
}

// refund lowers each headroom since by what comes back, so that the same one is not given back twice.
func (b *costBucket) refund(t instant, taken time.Duration, r *rule, n float64) {
	if back := min(n, b.headroom(t, r), b.minima.since(taken)); back > 0 {
		b.spend(t.at, &r.fill, -back)
		b.minima.lower(taken, back)
	}
}

// headroom returns what is missing to a full bucket.
func (b *costBucket) headroom(t instant, r *rule) float64 { return r.size - b.has(t.at, &r.fill) }

func (b *costBucket) follow(t instant, old, r *rule) {
	b.bucket.follow(t, old, r)
	if r.fastest == 0 || old.fastest == 0 || old.size != r.size { // else the part that is lent is another
		b.minima = nil
	}
}

func (b *costBucket) clone() stored { return &costBucket{bucket: b.bucket} }

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
