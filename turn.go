package quotient

import (
	"math"
	"time"
)

// turn is the time slot in which a replica may admit an event of a paced rate. So the events of the fleet are
// evenly spaced, although no replica talks to another. The rate's bucket goes on to hold this replica's
// interval. So a step of the clock opens one turn at most, and a pool that changes needs no other state.
type turn struct {
	cycle int64   // ns from one turn of this replica to the next
	start int64   // ns from the begin of a cycle, counted from the Unix epoch, to this replica's turn
	open  int64   // ns that a turn lasts
	early float64 // part of an event that the bucket may be short of: what fills in while a turn is open
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
	if p.Ordinal == 0 || p.Replicas == 1 || interval < float64(minTurn) || cycle > float64(longWait)/2 {
		return nil
	}
	return &turn{
		cycle: int64(cycle), start: int64(interval * float64(p.Ordinal-1)),
		open: int64(interval * turnPart), early: turnPart / float64(p.Replicas),
	}
}

// turnBucket is the bucket of a paced rate whose replicas take turns. It admits one event at a time.
type turnBucket struct{ costBucket }

// until returns the time to this replica's turn in which the bucket has an event.
//
// An event at the end of one turn and one at the start of the next are closer than the interval of the
// bucket. So the bucket may be a little short.
func (b *turnBucket) until(t instant, r *rule, from time.Duration, ahead, _ float64) time.Duration {
	u := r.turn
	d := max(from, b.untilHas(t.at, &r.fill, 1-u.early))
	if d > longWait || ahead > float64(math.MaxInt64/4/u.cycle) {
		return never
	}
	if ahead > 0 { // each of those takes a turn, also while this one waits for other rates
		open, late := u.opens(t.wall, b.untilHas(t.at, &r.fill, 1-u.early))
		d = max(d, open-late+time.Duration(int64(ahead)*u.cycle))
	}
	open, _ := u.opens(t.wall, d)
	return open
}

// opens returns the time to the first instant from d on at which a turn is open, and for how long it is by
// then.
func (u *turn) opens(wall int64, d time.Duration) (open, late time.Duration) {
	at := wall + int64(d) - u.start
	into := at - floorDiv(at, u.cycle)*u.cycle
	if into > u.open {
		return d + time.Duration(u.cycle-into), 0
	}
	return d, time.Duration(into)
}

func (b *turnBucket) upTo(t instant, r *rule, n int) int {
	if b.until(t, r, 0, 0, 1) > 0 {
		return 0
	}
	return min(n, 1)
}

func (b *turnBucket) clone() stored { return &turnBucket{costBucket{bucket: b.bucket}} }

// minExpiring is the shortest interval of a paced rate whose permits expire: see wait.go.
const minExpiring = time.Second

// graceOf returns how late the caller of a rate may wake; 0 is as late as it likes.
func graceOf(r Rate) time.Duration {
	interval := float64(r.Per) / r.Events
	if r.Burst != 1 || r.Aligned || interval < float64(minExpiring) {
		return 0
	}
	return time.Duration(min(interval*turnPart, float64(longWait)))
}
