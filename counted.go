package quotient

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"time"
)

// count is what the window of a counted rule knows of the events that the other replicas have admitted in it.
// A window that opens knows nothing, and is divided. The shard's lock guards it.
type count struct {
	index  int64         // of the window
	others int64         // events that the others have admitted, as far as is known here
	ends   time.Duration // instant.at: from then on the reports are too old
	may    int64         // how many events this window allows here
	back   int64         // events that were given back here since the count began
	total  int64         // events that were taken here, once the window is over
}

// counts reports whether something is known of the others' events in this window.
func (w *window) counts() bool { return w.fleet != nil && w.fleet.index == w.index }

// fresh reports whether it is known by reports that are not too old.
func (w *window) fresh(t instant) bool { return w.counts() && t.at < w.fleet.ends }

// close notes what was taken in a window that is over.
func (w *window) close() *count {
	if w.counts() {
		w.fleet.total = w.used + w.fleet.back
	}
	return w.fleet
}

// learn has a window know how many events the others have admitted. The reports are fresh until an instant.
func (w *window) learn(t instant, c *schedule, others int64, ends time.Duration) {
	if !w.counts() {
		w.fleet = &count{index: w.index, may: w.quota}
	}
	w.fleet.others, w.fleet.ends = others, ends
	w.recount(t, c)
}

// recount works out what the window allows now. With fresh reports that is what the others have left of the
// limit. Without, it is the share, and no more than what they had left. Events used within it are not owed
// when it shrinks.
func (w *window) recount(t instant, c *schedule) {
	f := w.fleet
	if !w.counts() {
		return
	}
	w.within = max(w.within, min(w.used, f.may))
	whole := c.fleet()
	if f.may = max(0, whole.quota(w.index)-f.others); !w.fresh(t) {
		f.may = min(f.may, w.quota)
	}
	w.within = max(w.within, min(w.used, f.may))
}

// countAs has the window go on from that of the same rule in another plan of the key. What that has let through
// is not owed here.
func (w *window) countAs(t instant, c *schedule, o *window) {
	w.roll(t, c)
	if w.index < o.index { // it is in use, and goes on after a step of the clock
		*w = window{index: o.index, quota: c.quota(o.index), opened: o.opened, fleet: w.fleet}
	}
	if w.index > o.index {
		return
	}
	w.used, w.within = max(w.used, o.used), max(w.within, o.within, min(o.used, o.allows()))
	if f, n := w.fleet, o.fleet; n != nil && f != nil && f.index == n.index {
		f.others, f.ends = max(f.others, n.others), max(f.ends, n.ends)
		f.back, f.total = max(f.back, n.back), max(f.total, n.total)
	} else if n != nil && (f == nil || f.index < n.index) {
		w.fleet = o.clone().(*window).fleet
	}
	w.recount(t, c)
}

// counting returns the counted rule of that countedID, and the key's window, in the plan that the key is in. If
// that has none, it is of the plan that was left last: the fleet counts on. They are nil if there is none.
func (g *gate) counting(rule uint64) (r *rule, w *window) {
	for _, other := range append(slices.Clip(g.others()), g) {
		if o := other.setting.counting(rule); o != nil {
			r, w = o, other.windowOf(o)
		}
	}
	return r, w
}

// countAs has the gate count on from another one of its key, of another plan: a counted rule has one count in
// all of them.
func (g *gate) countAs(t instant, other *gate) {
	for i := range g.setting.rules {
		r := &g.setting.rules[i]
		if r.counted == 0 {
			continue
		}
		if o := other.setting.counting(r.counted); o != nil {
			w := other.windowOf(o)
			w.roll(t, o.schedule)
			g.windowOf(r).countAs(t, r.schedule, w)
		}
	}
}

// allows is how many events the window allows this replica.
func (w *window) allows() int64 {
	if !w.counts() {
		return w.quota
	}
	return w.fleet.may
}

// busy reports whether half of the window's share is used.
func (w *window) busy() bool { return w.used > 0 && 2*w.used >= w.quota }

// fleet is the schedule of the fleet.
func (c *schedule) fleet() schedule {
	return schedule{per: c.per, events: c.events, replicas: 1, ordinal: 1, weight: 1}
}

// countedID tells the counted rules of a fleet apart by 64 bits. It is never 0.
func countedID(x id) uint64 {
	h := fnv.New64a()
	var text []byte
	for _, s := range []string{x.name, x.unit} {
		text = append(binary.AppendUvarint(text, uint64(len(s))), s...)
	}
	_, _ = h.Write(binary.AppendVarint(text, x.per)) // it never fails
	return h.Sum64() | 1
}

// counting returns the counted rule of that countedID, or nil.
func (st *setting) counting(rule uint64) *rule {
	for i := range st.rules {
		if r := &st.rules[i]; r.counted == rule {
			return r
		}
	}
	return nil
}

// windowOf returns the window of a counted rule.
func (g *gate) windowOf(r *rule) *window { return g.resource(r).(*window) }
