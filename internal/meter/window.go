package meter

import (
	"math"
	"math/bits"
	"time"
)

// Schedule is how many events each window allows this replica: "100 a minute from the full minute",
// divided so that fractions carry over from window to window.
type Schedule struct {
	Per      int64  // ns
	from     int64  // when window 0 begins, in ns since the Unix epoch
	events   uint64 // thousandths of events over the fleet in each window
	replicas uint64
	ordinal  uint64 // 1..replicas: the first of its own; 0 unknown
	weight   uint64 // how many are its own
	phase    int64  // without an ordinal, which of the sparse windows are ours
	Days     *Days  // that windows are made of; nil: periods by UTC
	Keeps    bool   // an event that a sparse window allows stays until it is used, so that it meets those of others
}

// NewSchedule returns the schedule of a replica: so many events over the fleet in each window of a period. Phase
// fixes which of the sparse windows are its own while it knows no ordinal.
func NewSchedule(per time.Duration, events float64, p Part, phase int64) *Schedule {
	return &Schedule{
		Per: int64(per), from: begin(per), events: thousandths(events),
		replicas: uint64(p.Replicas), ordinal: uint64(p.Ordinal), weight: uint64(p.Weight), phase: phase,
	}
}

// begin is when a window of the period begins: of weeks on a Monday, and the epoch was a Thursday.
func begin(per time.Duration) int64 {
	if per%(7*day) == 0 {
		return int64(4 * day)
	}
	return 0
}

// Milli is the number of parts that an event has in a schedule, so that its arithmetic is exact.
const Milli = 1000

// thousandths converts events, rounded down and saturated far inside an int64.
func thousandths(events float64) uint64 {
	const most = math.MaxInt64 / 4
	if t := events * Milli; t < most {
		return uint64(t)
	}
	return most
}

// index returns the number of the window at an instant.
func (c *Schedule) index(wall int64) int64 {
	if c.Days != nil {
		return floorDiv(c.Days.at(wall)-c.from/int64(day), c.Per/int64(day))
	}
	return floorDiv(wall-c.from, c.Per)
}

// start is when window k begins.
func (c *Schedule) start(k int64) int64 {
	if c.Days != nil {
		return c.Days.begin(k*(c.Per/int64(day)) + c.from/int64(day))
	}
	return k*c.Per + c.from
}

// quota is the number of whole events that this replica may do in window k.
//
// With an ordinal it is floor((k+1)E/N + i/N) - floor(kE/N + i/N), i = ordinal-1. Hermite's identity, floor(x) +
// floor(x+1/N) + … + floor(x+(N-1)/N) = floor(Nx), makes the sum over the replicas exactly floor((k+1)E) - floor(kE):
// nothing is lost and nothing is added. A replica of weight w has what its w ordinals have together. Without one it
// is floor(wE/N), or 1 in every ceil(N/(wE)) windows when that is 0.
func (c *Schedule) quota(k int64) int64 {
	if c.ordinal > 0 {
		cycle := int64(c.replicas * Milli) // the floors repeat after that many windows
		k -= floorDiv(k, cycle) * cycle
		each, more := c.until(uint64(k))
		eachThen, moreThen := c.until(uint64(k) + 1)
		return (eachThen-each)*int64(c.weight) + moreThen - more
	}
	if q := c.whole(); q > 0 {
		return int64(q)
	}
	return floorDiv(k+c.phase, c.every()) - floorDiv(k+c.phase-1, c.every())
}

// until is how many events this replica may do before window k of the cycle: so many for each of its
// ordinals, and one more for so many of them.
//
// Let x = floor(kE) be what the fleet may do before it, x = qN + r. Ordinal j+1 may do floor((x+j)/N) of it,
// since the fractions of kE carry no sum over a whole number. That is q, or q+1 where j >= N-r.
func (c *Schedule) until(k uint64) (each, more int64) {
	hi, lo := bits.Mul64(k, c.events)
	q, rest := bits.Div64(hi, lo, c.replicas*Milli)
	first, later := c.ordinal-1, c.replicas-rest/Milli
	return int64(q), int64(max(first+c.weight, later) - max(first, later))
}

// whole is the number of whole events that each window allows a replica without an ordinal.
func (c *Schedule) whole() uint64 {
	hi, lo := bits.Mul64(c.events, c.weight)
	q, _ := bits.Div64(hi, lo, c.replicas*Milli)
	return q
}

// parts is how many shares of this replica's size there are.
func (c *Schedule) parts() float64 { return float64(c.replicas) / float64(c.weight) }

// mean is the average quota.
func (c *Schedule) mean() float64 {
	return float64(c.events) * float64(c.weight) / Milli / float64(c.replicas)
}

// sum is what the windows from k on and before end allow together.
func (c *Schedule) sum(k, end int64) float64 {
	if c.ordinal > 0 {
		cycle := int64(c.replicas * Milli)
		rounds := floorDiv(end, cycle) - floorDiv(k, cycle)
		eachLast, moreLast := c.until(uint64(end - floorDiv(end, cycle)*cycle))
		each, more := c.until(uint64(k - floorDiv(k, cycle)*cycle))
		all := float64(rounds)*float64(c.events) + float64(eachLast-each)
		return all*float64(c.weight) + float64(moreLast-more)
	}
	if q := c.whole(); q > 0 {
		return float64(q) * float64(end-k)
	}
	every := c.every()
	return float64(floorDiv(end-1+c.phase, every) - floorDiv(k-1+c.phase, every))
}

// every is how many windows apart those are that an ordinal-less replica with less than
// one event a window has for its own.
func (c *Schedule) every() int64 {
	own := c.events * c.weight // thousandths of the fleet's windows: few, since whole is checked
	return int64((Milli*c.replicas + own - 1) / own)
}

// Sparse reports whether some windows allow this replica nothing. The ordinals that have one event more than
// the others in a window are in a row too, and may all be others'.
func (c *Schedule) Sparse() bool {
	if c.ordinal > 0 {
		return c.events/Milli+c.weight <= c.replicas
	}
	return c.whole() == 0
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// Window counts the events of one key in the present window of a rate.
//
// It follows the wall clock, and a step of the clock opens one window at most. A step forward opens the
// window that it leads to. After a step back a window that is in use goes on until its period has passed by
// the monotonic clock, and then the window by the wall clock follows. So the quota of a sparse window is not
// there again in each period until the wall clock has caught up.
type Window struct {
	Index  int64
	Quota  int64
	Used   int64         // may exceed quota
	within int64         // of used, what was within the quota of its time: that is not owed after a cut
	opened time.Duration // Instant.At at which the window was opened here
	Fleet  *Count        // of this window or one before; nil while nothing is known
}

// OpenWindow returns a fresh window.
func OpenWindow(t Instant, c *Schedule) Window {
	k := c.index(t.Wall)
	return Window{Index: k, Quota: c.quota(k), opened: t.At}
}

// Roll opens the window that now lies in, if it is another one.
func (w *Window) Roll(t Instant, c *Schedule) {
	k := c.index(t.Wall)
	if k == w.Index || k < w.Index && w.Used > 0 && t.At-w.opened < time.Duration(c.Per) {
		w.recount(t, c)
		return
	}
	owed, spare := w.carry(t, k, c)
	quota := c.quota(k)
	if c.Keeps && spare {
		quota = max(quota, 1)
	}
	*w = Window{Index: k, Quota: quota, Used: owed, opened: t.At, Fleet: w.close()}
	w.recount(t, c) // a clock that has stepped may come back to a window of which something is known
}

// room is how many events are left. A negative rest is owed by the windows that follow. That is what was
// used above the largest quota that the window has had: by a large call, or a cost that was corrected.
func (w *Window) room() int64 {
	may := w.allows()
	if w.Used <= may {
		return may - w.Used
	}
	return min(0, max(may, w.within)-w.Used)
}

// over is what is left for the windows that follow, negative for a debt: the fleet's events are not kept.
func (w *Window) over() int64 { return min(w.room(), max(0, w.Quota-w.Used)) }

// carried is what is left for the next window after one that has so many events: nothing, unless events are kept.
func (c *Schedule) carried(left, events int64) int64 {
	if left += events; c.Keeps {
		return left
	}
	return min(0, left)
}

// carry returns what is taken over into window k: what was used above the quotas of the windows before it,
// or whether they have left an event. If a step of the clock has skipped windows, only those of them count that time
// has passed for by the clock as it is now. Some days are shorter than a period.
func (w *Window) carry(t Instant, k int64, c *Schedule) (owed int64, spare bool) {
	skipped := max(0, k-max(w.Index, c.index(t.Wall-int64(t.At-w.opened)))-1)
	if w.room() == 0 && skipped == 0 {
		return 0, false
	}
	left := float64(w.over())
	if skipped > 0 {
		left += c.sum(k-skipped, k)
	}
	return int64(max(0, -left)), left >= 1
}

// Until lets a call above the quota of a fresh window in, which then owes.
func (w *Window) Until(t Instant, r *Rule, from time.Duration, ahead, n float64) time.Duration {
	c, before, wanted := r.Schedule, int64(ahead), int64(n)
	w.Roll(t, c)
	k := c.index(t.Wall)
	j := c.index(t.Wall+int64(from)) - k
	if j == 0 && (wanted <= w.room()-before || !w.Counts() && fits(w.Used+before, wanted, w.Quota)) {
		return from
	}
	const looked = 64 // windows; beyond them the caller asks again when they have passed
	all := *c
	if w.Counts() {
		all = c.fleet() // at the soonest
	}
	left := w.over() - before
	early := float64(-left) - float64(all.weight-1) // ordinals in a row may each have one before their mean has
	j = max(j, 1+int64(min(max(0, early/all.mean()-2), math.MaxInt32)))
	left = c.carried(left, int64(min(all.sum(k+1, k+j), 1<<53)))
	for range looked {
		q := all.quota(k + j)
		if c.Keeps && left > 0 {
			q = max(q, 1)
		}
		if fits(max(0, -left), wanted, q) {
			break
		}
		left = c.carried(left, all.quota(k+j))
		j++
	}
	return max(from, c.startsIn(t.Wall, k, j))
}

// fits reports whether a window of the quota has room for n more events.
func fits(used, n, quota int64) bool {
	return used+n <= quota || used <= 0 && quota > 0 && n > quota
}

// startsIn returns the time to the start of the window that comes ahead windows after k.
func (c *Schedule) startsIn(wall, k, ahead int64) time.Duration {
	if ahead > math.MaxInt64/c.Per {
		return Never
	}
	return time.Duration(max(c.start(k+ahead)-wall, 1))
}

// Take may take more than there is: the windows that follow owe it.
func (w *Window) Take(t Instant, r *Rule, n float64) {
	w.Roll(t, r.Schedule)
	w.Used += int64(n)
}

// Refund gives back what was admitted in this window. Admissions of an earlier window do not come back.
func (w *Window) Refund(t Instant, taken time.Duration, r *Rule, n float64) {
	if w.Roll(t, r.Schedule); taken >= w.opened {
		back := min(w.Used, int64(n))
		w.Used -= back
		w.within = min(w.within, w.Used)
		if w.Counts() {
			w.Fleet.Back += back
		}
	}
}

// UpTo is what the window has left.
func (w *Window) UpTo(t Instant, r *Rule, n int) int {
	w.Roll(t, r.Schedule)
	return int(min(int64(n), w.room()))
}

// Left counts the time to the end of the window.
func (w *Window) Left(t Instant, r *Rule) (events, of float64, full time.Duration) {
	w.Roll(t, r.Schedule)
	full = time.Duration(r.Schedule.start(r.Schedule.index(t.Wall)+1) - t.Wall)
	return float64(w.room()), float64(w.allows()), full
}

// Age is Never: a window saves nothing up.
func (w *Window) Age(Instant, *Rule) time.Duration { return Never }

// State has -1 where something is known of the others, since a key never seen knows nothing.
func (w *Window) State(t Instant, r *Rule) State {
	if w.Roll(t, r.Schedule); w.Counts() {
		return State{Has: -1, index: w.Index, Used: w.Used}
	}
	return State{Has: float64(w.Quota), index: w.Index, Used: w.Used}
}

// Follow puts the window under another schedule; under an equal one it stays as it is. Events that the limit
// has gained count at once, but for fractions. A share that grew because the pool shrank counts from the next
// window on, since the replicas that left have used their part of this one. After a cut the windows that follow
// owe nothing of what the old quota had let through: it was within the limit.
func (w *Window) Follow(t Instant, old, r *Rule) {
	w.Roll(t, old.Schedule)
	if !r.Counted {
		w.Quota, w.Fleet = min(w.Quota, w.allows()), nil // no more than the others have left
	}
	if *r.Schedule == *old.Schedule {
		return
	}
	w.requota(old.Schedule, r.Schedule, r.Schedule.index(t.Wall))
	if w.Fleet != nil && r.Schedule.parts() != old.Schedule.parts() {
		w.Fleet.Ends = 0 // the reports are not of this pool
	}
	w.recount(t, r.Schedule)
}

func (w *Window) requota(old, c *Schedule, k int64) {
	q := c.quota(k)
	if c.events > old.events { // the limit, then, and not the pool
		w.Quota = max(w.Quota, min(c.atOnce(q), w.Quota+q-old.quota(k)))
		return
	}
	if c.Keeps {
		q = max(q, 1)
	}
	w.within = max(w.within, min(w.Used, w.Quota))
	w.Quota = min(w.Quota, q)
}

// atOnce is what a raised limit allows in a window of the quota that has begun: whole events for each ordinal. The
// fractions may be others' under the old limit and have been used, or an event may have been kept.
func (c *Schedule) atOnce(quota int64) int64 {
	if each := int64(c.events / (c.replicas * Milli)); each > 0 {
		return each * int64(c.weight)
	}
	return quota
}

// Clone copies what is known of the others, too.
func (w *Window) Clone() Stored {
	c := *w
	if w.Fleet != nil {
		f := *w.Fleet
		c.Fleet = &f
	}
	return &c
}
