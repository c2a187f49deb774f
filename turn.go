package quotient

import (
	"math"
	"time"
)

// turn says when a replica may let an event of a paced rate through, so that the events of the fleet are evenly spaced without a word
// between replicas. It is a gate before the rate's bucket, which goes on to hold this replica's interval: so a clock step opens
// one turn at most, and a pool that changes needs no other state.
type turn struct {
	cycle int64   // ns from one turn of this replica to the next
	start int64   // ns from the begin of a cycle, counted from the Unix epoch, to this replica's turn
	open  int64   // ns that a turn lasts
	early float64 // thousandths of an event that the bucket may be short of: what fills in while a turn is open
	clock wallClock
}

// turnPart is the part of the interval that a turn lasts: who wakes up late does not come too close to the next replica.
const turnPart = 0.1

// leastTurn is the shortest interval in which replicas take turns. Clocks that NTP keeps differ by some milliseconds, and timers on a busy
// machine are as late: a tenth of anything shorter would be missed too often.
const leastTurn = 50 * time.Millisecond

// turnOf is the turn of a replica under a paced rate, or nil where there is none to take.
func (o *options) turnOf(r Rate, p Pool) *turn {
	interval := float64(r.Per) / r.Events
	cycle := math.Ceil(interval * float64(p.Replicas))
	if p.Ordinal == 0 || p.Replicas == 1 || interval < float64(leastTurn) || cycle > float64(longWait)/2 {
		return nil
	}
	return &turn{
		cycle: int64(cycle), start: int64(interval * float64(p.Ordinal-1)),
		open: int64(interval * turnPart), early: turnPart * milli / float64(p.Replicas), clock: o.wall,
	}
}

// oneTurn leaves the turns of the slowest paced rate: those of two might never be open at one instant, nor those of
// one while an aligned window has room, which is why there are none beside a window.
func (st *setting) oneTurn() {
	var slowest *ration
	windows := false
	for i := range st.rations {
		r := &st.rations[i]
		windows = windows || r.window != nil
		if r.turn != nil && (slowest == nil || r.turn.cycle > slowest.turn.cycle) {
			slowest = r
		}
	}
	for i := range st.rations {
		if r := &st.rations[i]; windows || r != slowest {
			r.turn = nil
		}
	}
}

// until is how long it takes until this replica's turn in which the bucket has an event, behind so many others and from an
// instant on that is so far away; 0 when it is now.
// An event at the end of one turn and one at the begin of the next are closer than the interval of the
// bucket, which is therefore allowed to be a little short.
func (t *turn) until(now time.Time, b *bucket, ahead int, from time.Duration) time.Duration {
	d := max(from, b.untilHas(now, milli-t.early))
	if d > longWait || int64(ahead) > math.MaxInt64/4/t.cycle {
		return never
	}
	at := t.clock.at(now.Add(d)) - t.start
	late := at - floorDiv(at, t.cycle)*t.cycle
	switch {
	case late > t.open:
		d += time.Duration(t.cycle - late)
	case ahead > 0:
		d -= time.Duration(late)
	}
	return d + time.Duration(int64(ahead)*t.cycle)
}
