package meter

import (
	"time"
)

// Count is what the window of a counted rule knows of the events that the other replicas have admitted in it.
// A window that opens knows nothing, and is divided. The shard's lock guards it.
//
// A key has one count in all its plans. A replica without fresh reports has its share, but no more than was left when
// it last knew, so each adds at most its share. What an ended replica has counted stays, as far as others received it,
// less what a new one counts. A window that is counted no more has at most what was left of it. A clock that is set
// back opens a window again.
type Count struct {
	Index  int64         // of the window
	Others int64         // events that the others have admitted, as far as is known here
	Ends   time.Duration // Instant.At: from then on the reports are too old
	may    int64         // how many events this window allows here
	Back   int64         // events that were given back here since the count began
	Total  int64         // events that were taken here, once the window is over
}

// Counts reports whether something is known of the others' events in this window.
func (w *Window) Counts() bool { return w.Fleet != nil && w.Fleet.Index == w.Index }

// Fresh reports whether it is known by reports that are not too old.
func (w *Window) Fresh(t Instant) bool { return w.Counts() && t.At < w.Fleet.Ends }

// close notes what was taken in a window that is over.
func (w *Window) close() *Count {
	if w.Counts() {
		w.Fleet.Total = w.Used + w.Fleet.Back
	}
	return w.Fleet
}

// Learn has a window know how many events the others have admitted. The reports are fresh until an instant.
func (w *Window) Learn(t Instant, c *Schedule, others int64, ends time.Duration) {
	if !w.Counts() {
		w.Fleet = &Count{Index: w.Index, may: w.Quota}
	}
	w.Fleet.Others, w.Fleet.Ends = others, ends
	w.recount(t, c)
}

// recount works out what the window allows now. With fresh reports that is what the others have left of the limit.
// Without, it is the share, and no more than what they had left. Events used within it are not owed when it shrinks.
func (w *Window) recount(t Instant, c *Schedule) {
	f := w.Fleet
	if !w.Counts() {
		return
	}
	w.within = max(w.within, min(w.Used, f.may))
	whole := c.fleet()
	if f.may = max(0, whole.quota(w.Index)-f.Others); !w.Fresh(t) {
		f.may = min(f.may, w.Quota)
	}
	w.within = max(w.within, min(w.Used, f.may))
}

// CountAs has the window go on from that of the same rule in another plan of the key. What that has let through
// is not owed here.
func (w *Window) CountAs(t Instant, c *Schedule, o *Window) {
	w.Roll(t, c)
	if w.Index < o.Index { // it is in use, and goes on after a step of the clock
		*w = Window{Index: o.Index, Quota: c.quota(o.Index), opened: o.opened, Fleet: w.Fleet}
	}
	if w.Index > o.Index {
		return
	}
	w.Used, w.within = max(w.Used, o.Used), max(w.within, o.within, min(o.Used, o.allows()))
	if f, n := w.Fleet, o.Fleet; n != nil && f != nil && f.Index == n.Index {
		f.Others, f.Ends = max(f.Others, n.Others), max(f.Ends, n.Ends)
		f.Back, f.Total = max(f.Back, n.Back), max(f.Total, n.Total)
	} else if n != nil && (f == nil || f.Index < n.Index) {
		w.Fleet = o.Clone().(*Window).Fleet
	}
	w.recount(t, c)
}

// allows is how many events the window allows this replica.
func (w *Window) allows() int64 {
	if !w.Counts() {
		return w.Quota
	}
	return w.Fleet.may
}

// Busy reports whether half of the window's share is used.
func (w *Window) Busy() bool { return w.Used > 0 && 2*w.Used >= w.Quota }

// fleet is the schedule of the fleet.
func (c *Schedule) fleet() Schedule {
	return Schedule{Per: c.Per, from: c.from, Days: c.Days, events: c.events, replicas: 1, ordinal: 1, weight: 1}
}
