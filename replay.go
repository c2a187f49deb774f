package quotient

import "time"

// sync brings the gate up to the newest setting, replaying each that it has missed.
func (g *gate) sync(newest *setting) {
	if g.setting.own != nil {
		g.syncOwn(newest)
		return
	}
	for g.setting != newest {
		g.apply(g.setting.next)
	}
}

// apply puts the gate under st, which follows the setting that it is under, at the
// instant st came into force.
func (g *gate) apply(st *setting) {
	old := g.setting
	for i := range old.rations {
		if c := old.rations[i].window; c != nil {
			g.more.windows[i].roll(st.at, c) // what opened before the change has the quota from before it
		}
	}
	if st.reshaped {
		g.reshape(old, st)
	}
	for i := range st.rations {
		r := &st.rations[i]
		if r.window == nil {
			g.bucket(i).set(st.at, r.perSecond, r.burst)
		} else if j := indexOfRation(old.rations, r); j >= 0 {
			g.more.windows[i].reset(st.at, old.rations[j].window, r.window)
		}
	}
	g.forgetLows(st)
	g.applyLaws(st)
	g.setting = st
	g.resize()
	if st.reshaped && g.more != nil {
		g.countAhead()
	}
}

// begin puts an empty gate under its first setting: full, or empty on a replica that joins
// a pool which others use already. An empty window opens with the next one.
func (g *gate) begin(st *setting) {
	g.setting = &setting{}
	g.reshape(g.setting, st)
	g.applyLaws(st)
	g.setting = st
	g.resize()
}

// reshape gives the gate the buckets and windows of st's rations. A rule that stays keeps its
// state, wherever it stands. A new one starts with the least that the old ones of its unit would still
// let through, so that renaming brings no tokens; and full where the old ones are.
func (g *gate) reshape(old, st *setting) {
	buckets := make([]bucket, max(1, len(st.rations)))
	var windows []window
	for i := range st.rations {
		r := &st.rations[i]
		if r.window != nil && windows == nil {
			windows = make([]window, len(st.rations))
		}
		switch j := indexOfRation(old.rations, r); {
		case j >= 0 && r.window != nil:
			windows[i] = g.more.windows[j]
		case j >= 0:
			buckets[i].copyFrom(g.bucket(j))
		case r.window != nil:
			windows[i] = g.newWindow(old, st, r)
		default:
			g.newBucket(&buckets[i], old, st, r)
		}
	}
	g.first.copyFrom(&buckets[0])
	if len(buckets) > 1 || windows != nil || g.more != nil {
		m := g.extra()
		if m.rest, m.windows = nil, windows; len(buckets) > 1 {
			m.rest = buckets[1:]
		}
	}
}

func (g *gate) newWindow(old, st *setting, r *ration) window {
	w := openWindow(st.at, r.window)
	if left, ok := g.least(old, r.unit, st.at); ok {
		w.used = max(0, w.quota-floorDiv(int64(left), milli))
	} else if st.joins && !old.counts(r.unit) {
		w.quota = 0
	}
	return w
}

func (g *gate) newBucket(b *bucket, old, st *setting, r *ration) {
	b.set(st.at, r.perSecond, r.burst)
	start := r.burst
	if left, ok := g.least(old, r.unit, st.at); ok {
		start = min(start, left)
	} else if st.joins && !old.counts(r.unit) {
		start = 0
	}
	b.fill(st.at, start)
	b.owe(st.at, -start)
}

// roundOff is how far, in thousandths, a full bucket may seem not to be: a millionth of an event.
const roundOff = 1e-3

// least is the least that the rules of a unit would let through now, in thousandths, negative for a
// debt. It tells whether any of them has let anything through that it still knows of.
func (g *gate) least(old *setting, unit string, now time.Time) (left int, used bool) {
	left = thousandths(maxBurst)
	for i := range old.rations {
		r := &old.rations[i]
		if r.unit != unit {
			continue
		}
		if r.window != nil {
			w := &g.more.windows[i]
			left, used = min(left, int(w.quota-w.used)*milli), used || w.used > 0
		} else {
			has := g.bucket(i).tokens(now) + roundOff
			left, used = min(left, int(has)), used || has < float64(r.burst)
		}
	}
	return left, used
}

func indexOfRation(list []ration, r *ration) int {
	for i := range list {
		if list[i].is(r) {
			return i
		}
	}
	return -1
}

// sameShape tells whether both settings have the same rules in the same places.
func sameShape(a, b *setting) bool {
	if len(a.rations) != len(b.rations) {
		return false
	}
	for i := range a.rations {
		if !a.rations[i].is(&b.rations[i]) {
			return false
		}
	}
	return true
}
