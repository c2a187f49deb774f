package quotient

import (
	"math"
	"time"
)

// turn is the time slot in which a replica may admit an event of a paced rate. So the events of the fleet are
// evenly spaced, although no replica talks to another. The rate's bucket goes on to hold this replica's
// interval. So a step of the clock opens one turn at most, and a pool that changes needs no other state.
type turn struct {
	cycle int64   // ns in which each ordinal of the pool has one turn
	start int64   // ns from the begin of a cycle, counted from the Unix epoch, to this replica's first turn
	own   int64   // turns of this replica in a cycle, one for each of its ordinals
	step  float64 // ns from one of them to the next
	open  int64   // ns that a turn lasts
	early float64 // part of an event that the bucket may be short of: what fills in while a turn is open
	size  float64 // of the bucket: what it must hold before a cycle's first turn, so that all of them follow
}

// turnPart is the part of the interval that a turn lasts: a caller that wakes late does not come too close to
// the next replica.
const turnPart = 0.1

// minTurn is the shortest interval in which replicas take turns. Clocks that NTP keeps differ by some
// milliseconds, and timers on a busy machine are as late: a tenth of anything shorter would be missed too
// often.
const minTurn = 50 * time.Millisecond

// newTurn returns the turn of a replica under a paced rate, or nil where there is none to take.
func newTurn(r Rate, p Pool) *turn {
	interval := float64(r.Per) / r.Events
	cycle := math.Ceil(interval * float64(p.Replicas))
	alone := p.Replicas == p.weight()
	if p.Ordinal == 0 || alone || interval < float64(minTurn) || cycle > float64(longWait)/2 {
		return nil
	}
	return &turn{
		cycle: int64(cycle), start: int64(interval * float64(p.Ordinal-1)),
		own: int64(p.weight()), step: interval,
		open: int64(interval * turnPart), early: turnPart / p.parts(),
		size: 1 + float64(p.weight()-1)*(1-1/p.parts()),
	}
}

// turnBucket is the bucket of a paced rate whose replicas take turns. It admits one event at a time. Under a
// weight it holds what several turns in a row admit, and each of them admits one.
type turnBucket struct {
	costBucket
	closed time.Duration // instant.at until which there is no turn: the latest is taken
}

// gap is the least time from one event to the next.
func (u *turn) gap() time.Duration { return time.Duration(int64(u.step) - u.open) }

// take also closes the turn.
func (b *turnBucket) take(t instant, r *rule, n float64) {
	b.costBucket.take(t, r, n)
	b.closed = t.at + r.turn.gap()
}

// refund also opens the turn again if it is the latest one. All earlier ones are at least as far away.
func (b *turnBucket) refund(t instant, taken time.Duration, r *rule, n float64) {
	b.costBucket.refund(t, taken, r, n)
	if taken+r.turn.gap() == b.closed {
		b.closed = 0
	}
}

// untilHas returns the time until the bucket has an event for another turn.
//
// An event at the end of one turn and one at the start of the next are closer than the interval of the
// bucket. So the bucket may be a little short.
func (b *turnBucket) untilHas(t instant, r *rule) time.Duration {
	return max(b.closed-t.at, b.costBucket.untilHas(t.at, &r.fill, 1-r.turn.early))
}

// until returns the time to this replica's turn in which the bucket has an event.
func (b *turnBucket) until(t instant, r *rule, from time.Duration, ahead, _ float64) time.Duration {
	u, has := r.turn, b.untilHas(t, r)
	d := max(from, has)
	if d > longWait || ahead > float64(math.MaxInt64/4/u.cycle) {
		return never
	}
	if ahead > 0 { // each of those takes a turn, also while this one waits for other rates
		open, late, i := u.opens(t.wall, has)
		d = max(d, open-late+u.after(i, int64(ahead)))
	}
	open, _, _ := u.opens(t.wall, d)
	return open
}

// opens returns the time to the first instant from d on at which a turn is open, and for how long it is by
// then. It also returns which one of the cycle it is, from 0.
func (u *turn) opens(wall int64, d time.Duration) (open, late time.Duration, i int64) {
	at := wall + int64(d) - u.start
	into := at - floorDiv(at, u.cycle)*u.cycle
	i = min(int64(float64(into)/u.step), u.own-1)
	if late = time.Duration(into) - u.after(0, i); int64(late) <= u.open {
		return d, late, i
	}
	return d + u.after(i, 1) - late, 0, (i + 1) % u.own
}

// after returns the time from the begin of turn i of a cycle to that of the n-th turn after it.
func (u *turn) after(i, n int64) time.Duration {
	begin := func(i int64) int64 { return i/u.own*u.cycle + int64(float64(i%u.own)*u.step) }
	return time.Duration(begin(i+n) - begin(i))
}

func (b *turnBucket) upTo(t instant, r *rule, n int) int {
	if b.until(t, r, 0, 0, 1) > 0 {
		return 0
	}
	return min(n, 1)
}

func (b *turnBucket) clone() stored { return &turnBucket{costBucket{bucket: b.bucket}, b.closed} }

// minExpiring is the shortest interval of a paced rate whose permits expire: see wait.go.
const minExpiring = time.Second

// graceOf returns how late the caller of a rate may wake; 0 is as late as it likes.
func graceOf(r Rate) time.Duration {
	interval := float64(r.Per) / r.Events
	if r.Kind != Paced || interval < float64(minExpiring) {
		return 0
	}
	return time.Duration(min(interval*turnPart, float64(longWait)))
}
