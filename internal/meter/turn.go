package meter

import (
	"math"
	"time"
)

// Turn is the time slot in which a replica may admit an event of a paced rate. So the events of the fleet are
// evenly spaced, although no replica talks to another. The rate's bucket goes on to hold this replica's
// interval. So a step of the clock opens one turn at most, and a pool that changes needs no other state.
type Turn struct {
	Cycle int64   // ns in which each ordinal of the pool has one turn
	Start int64   // ns from the begin of a cycle, counted from the Unix epoch, to this replica's first turn
	own   int64   // turns of this replica in a cycle, one for each of its ordinals
	step  float64 // ns from one of them to the next
	open  int64   // ns that a turn lasts
	early float64 // part of an event that the bucket may be short of: what fills in while a turn is open
	Size  float64 // of the bucket: what it must hold before a cycle's first turn, so that all of them follow
}

// TurnPart is the part of the interval that a turn lasts: a caller that wakes late does not come too close to
// the next replica.
const TurnPart = 0.1

// minTurn is the shortest interval in which replicas take turns. Clocks that NTP keeps differ by some milliseconds,
// and timers on a busy machine are as late: a tenth of anything shorter would be missed too often.
const minTurn = 50 * time.Millisecond

// NewTurn returns the turn of a replica under a paced rate with so many nanoseconds from one event to the next, or nil
// where there is none to take.
func NewTurn(interval float64, p Part) *Turn {
	cycle := math.Ceil(interval * float64(p.Replicas))
	alone := p.Replicas == p.Weight
	if p.Ordinal == 0 || alone || interval < float64(minTurn) || cycle > float64(LongWait)/2 {
		return nil
	}
	parts := float64(p.Replicas) / float64(p.Weight)
	return &Turn{
		Cycle: int64(cycle), Start: int64(interval * float64(p.Ordinal-1)),
		own: int64(p.Weight), step: interval,
		open: int64(interval * TurnPart), early: TurnPart / parts,
		Size: 1 + float64(p.Weight-1)*(1-1/parts),
	}
}

// TurnBucket is the bucket of a paced rate whose replicas take turns. It admits one event at a time. Under a
// weight it holds what several turns in a row admit, and each of them admits one.
type TurnBucket struct {
	CostBucket
	Closed time.Duration // Instant.At until which there is no turn: the latest is taken
}

// gap is the least time from one event to the next.
func (u *Turn) gap() time.Duration { return time.Duration(int64(u.step) - u.open) }

// Take also closes the turn.
func (b *TurnBucket) Take(t Instant, r *Rule, n float64) {
	b.CostBucket.Take(t, r, n)
	b.Closed = t.At + r.Turn.gap()
}

// Refund also opens the turn again if it is the latest one. All earlier ones are at least as far away.
func (b *TurnBucket) Refund(t Instant, taken time.Duration, r *Rule, n float64) {
	b.CostBucket.Refund(t, taken, r, n)
	if taken+r.Turn.gap() == b.Closed {
		b.Closed = 0
	}
}

// untilHas returns the time until the bucket has an event for another turn.
//
// An event at the end of one turn and one at the start of the next are closer than the interval of the
// bucket. So the bucket may be a little short.
func (b *TurnBucket) untilHas(t Instant, r *Rule) time.Duration {
	return max(b.Closed-t.At, b.CostBucket.UntilHas(t.At, &r.Fill, 1-r.Turn.early))
}

// Until returns the time to this replica's turn in which the bucket has an event.
func (b *TurnBucket) Until(t Instant, r *Rule, from time.Duration, ahead, _ float64) time.Duration {
	u, has := r.Turn, b.untilHas(t, r)
	d := max(from, has)
	if d > LongWait || ahead > float64(math.MaxInt64/4/u.Cycle) {
		return Never
	}
	if ahead > 0 { // each of those takes a turn, also while this one waits for other rates
		open, late, i := u.opens(t.Wall, has)
		d = max(d, open-late+u.after(i, int64(ahead)))
	}
	open, _, _ := u.opens(t.Wall, d)
	return open
}

// opens returns the time to the first instant from d on at which a turn is open, and for how long it is by
// then. It also returns which one of the cycle it is, from 0.
func (u *Turn) opens(wall int64, d time.Duration) (open, late time.Duration, i int64) {
	at := wall + int64(d) - u.Start
	into := at - floorDiv(at, u.Cycle)*u.Cycle
	i = min(int64(float64(into)/u.step), u.own-1)
	if late = time.Duration(into) - u.after(0, i); int64(late) <= u.open {
		return d, late, i
	}
	return d + u.after(i, 1) - late, 0, (i + 1) % u.own
}

// after returns the time from the begin of turn i of a cycle to that of the n-th turn after it.
func (u *Turn) after(i, n int64) time.Duration {
	begin := func(i int64) int64 { return i/u.own*u.Cycle + int64(float64(i%u.own)*u.step) }
	return time.Duration(begin(i+n) - begin(i))
}

// UpTo is one event at most, while the turn is open.
func (b *TurnBucket) UpTo(t Instant, r *Rule, n int) int {
	if b.Until(t, r, 0, 0, 1) > 0 {
		return 0
	}
	return min(n, 1)
}

// Clone has the tokens, the turn, and nothing to give back.
func (b *TurnBucket) Clone() Stored { return &TurnBucket{CostBucket{Bucket: b.Bucket}, b.Closed} }
