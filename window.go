package quotient

import (
	"math"
	"math/bits"
	"time"
)

// schedule says how many events each aligned window allows this replica: "100 a minute from
// the full minute", divided so that fractions carry over from window to window.
type schedule struct {
	per      int64  // ns
	events   uint64 // thousandths of events over the fleet in each window
	replicas uint64
	ordinal  uint64 // 1..replicas; 0 unknown
	phase    int64  // without an ordinal, which of the sparse windows are ours
	keeps    bool   // an event that a sparse window allows stays until it is used; see setting.meet
	clock    wallClock
}

// wallClock is the wall-clock time of an instant, in nanoseconds since the Unix epoch. It is nil but in tests
// of clock steps.
type wallClock func(time.Time) int64

func (w wallClock) at(now time.Time) int64 {
	if w == nil {
		return now.UnixNano()
	}
	return w(now)
}

// index is the number of the window at an instant, counted from the Unix epoch.
func (c *schedule) index(now time.Time) int64 { return floorDiv(c.clock.at(now), c.per) }

// quota is the number of whole events that this replica may do in window k.
//
// With an ordinal it is floor((k+1)E/N + i/N) - floor(kE/N + i/N), i = ordinal-1. Hermite's
// identity, floor(x) + floor(x+1/N) + … + floor(x+(N-1)/N) = floor(Nx), makes the sum over
// the replicas exactly floor((k+1)E) - floor(kE): nothing is lost and nothing is added.
// Without one it is floor(E/N), or 1 in every ceil(N/E) windows when that is 0.
func (c *schedule) quota(k int64) int64 {
	if c.ordinal > 0 {
		cycle := int64(c.replicas * milli) // the floors repeat after that many windows
		k -= floorDiv(k, cycle) * cycle
		return int64(c.until(uint64(k)+1) - c.until(uint64(k)))
	}
	if q := c.events / (milli * c.replicas); q > 0 {
		return int64(q)
	}
	return floorDiv(k+c.phase, c.every()) - floorDiv(k+c.phase-1, c.every())
}

// until is how many events this replica may do before window k of the cycle.
func (c *schedule) until(k uint64) uint64 {
	hi, lo := bits.Mul64(k, c.events)
	lo, carry := bits.Add64(lo, (c.ordinal-1)*milli, 0)
	q, _ := bits.Div64(hi+carry, lo, c.replicas*milli)
	return q
}

// mean is the average quota.
func (c *schedule) mean() float64 {
	return float64(c.events) / milli / float64(c.replicas)
}

// sum is what the windows from k on and before end allow together.
func (c *schedule) sum(k, end int64) float64 {
	if c.ordinal > 0 {
		cycle := int64(c.replicas * milli)
		rounds := floorDiv(end, cycle) - floorDiv(k, cycle)
		part := int64(c.until(uint64(end-floorDiv(end, cycle)*cycle))) - int64(c.until(uint64(k-floorDiv(k, cycle)*cycle)))
		return float64(rounds)*float64(c.events) + float64(part)
	}
	if q := c.events / (milli * c.replicas); q > 0 {
		return float64(q) * float64(end-k)
	}
	every := c.every()
	return float64(floorDiv(end-1+c.phase, every) - floorDiv(k-1+c.phase, every))
}

// every is how many windows apart those are that an ordinal-less replica with less than
// one event a window has for its own.
func (c *schedule) every() int64 {
	return int64((milli*c.replicas + c.events - 1) / c.events)
}

// sparse reports whether some windows allow this replica nothing.
func (c *schedule) sparse() bool { return c.events < milli*c.replicas }

// left is how long the window in which now lies still lasts.
func (c *schedule) left(now time.Time) time.Duration {
	return time.Duration((c.index(now)+1)*c.per - c.clock.at(now))
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// window counts the events of one key in the present window of an aligned rate.
//
// It follows the wall clock, and a step of it opens one window at most. A step forward opens the window that
// it leads to. After a step back a window that is in use goes on until its period has passed by the monotonic
// clock, and then the one by the wall follows: a sparse window's quota is not there again in each period
// until the wall has caught up.
type window struct {
	index  int64
	quota  int64
	used   int64     // may exceed quota: the rest is owed by the windows that follow
	opened time.Time // when the window was opened here
}

// openWindow is a fresh window.
func openWindow(now time.Time, c *schedule) window {
	k := c.index(now)
	return window{index: k, quota: c.quota(k), opened: now}
}

// roll opens the window that now lies in, if it is another one.
func (w *window) roll(now time.Time, c *schedule) {
	k := c.index(now)
	if k == w.index || k < w.index && w.used > 0 && now.Sub(w.opened) < time.Duration(c.per) {
		return
	}
	owed, spare := w.carry(now, k, c)
	quota := c.quota(k)
	if c.keeps && spare {
		quota = max(quota, 1)
	}
	w.index, w.quota, w.used, w.opened = k, quota, owed, now
}

// carry is what is taken over into window k: what was used above the quotas of the windows before it, or
// whether they have left an event. Of windows that a step of the clock has skipped no more count than time
// has passed for.
func (w *window) carry(now time.Time, k int64, c *schedule) (owed int64, spare bool) {
	skipped := min(max(0, k-w.index-1), int64(now.Sub(w.opened)/time.Duration(c.per)))
	if w.used == w.quota && skipped == 0 {
		return 0, false
	}
	left := float64(w.quota - w.used)
	if skipped > 0 {
		left += c.sum(k-skipped, k)
	}
	return int64(max(0, -left)), left >= 1
}

// until is how long until the windows have room for n events behind ahead others, from an instant on that is
// so far away; 0 when the present one has. An ask above the quota of a fresh window is let in and then owes.
func (w *window) until(now time.Time, ahead, n int64, c *schedule, from time.Duration) time.Duration {
	w.roll(now, c)
	k := c.index(now)
	j := c.index(now.Add(from)) - k
	if j == 0 && fits(w.used+ahead, n, w.quota) {
		return from
	}
	const looked = 64 // windows; beyond them the caller asks again when they have passed
	owed := float64(w.used+ahead) - float64(w.quota)
	j = max(j, 1+int64(min(max(0, owed/c.mean()-2), math.MaxInt32)))
	owed = max(0, owed-c.sum(k+1, k+j))
	for range looked {
		q := c.quota(k + j)
		if fits(int64(owed), n, q) {
			break
		}
		owed = max(0, owed-float64(q))
		j++
	}
	return max(from, c.startsIn(now, k, j))
}

// fits tells whether a window of the quota has room for n more events.
func fits(used, n, quota int64) bool {
	return used+n <= quota || used <= 0 && quota > 0 && n > quota
}

// startsIn is the time to the start of the window that comes ahead windows after k.
func (c *schedule) startsIn(now time.Time, k, ahead int64) time.Duration {
	if ahead > math.MaxInt64/c.per {
		return never
	}
	d := ahead*c.per - (c.clock.at(now) - k*c.per)
	return time.Duration(max(d, 1))
}

// giveBack takes back n events that were let through at an instant, if that was in this window: what a window
// that has passed had let through does not come back.
func (w *window) giveBack(now, taken time.Time, n int64, c *schedule) {
	if w.roll(now, c); !taken.Before(w.opened) {
		w.used = max(0, w.used-n)
	}
}

// reset puts the window under another schedule. Events that the limit has gained count at once; a share that
// grew because the pool shrank counts from the next window on, since those who left have
// used their part of this one.
func (w *window) reset(now time.Time, old, c *schedule) {
	k := c.index(now)
	q := c.quota(k)
	if c.events > old.events { // the limit, then, and not the pool
		w.quota += max(0, q-old.quota(k))
		return
	}
	if c.keeps {
		q = max(q, 1)
	}
	w.quota = min(w.quota, q)
}
