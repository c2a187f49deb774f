package quotient

import "time"

// sync brings the gate up to the newest setting, replaying each that it has missed.
func (g *gate) sync(newest *setting) {
	for g.setting != newest {
		g.apply(g.setting.next)
	}
}

// apply puts the gate under st, which follows the setting that it is under, at the
// instant st came into force.
func (g *gate) apply(st *setting) {
	old := g.setting
	if st.reshaped {
		g.reshape(old, st)
	}
	for i := range st.rations {
		r := &st.rations[i]
		if r.window != nil {
			w := &g.more.windows[i]
			w.roll(st.at, r.window)
			w.reset(st.at, r.window, st.raised)
		} else {
			g.bucket(i).set(st.at, r.perSecond, r.burst)
		}
	}
	g.applyLaw(st)
	g.setting, g.size = st, int32(st.slots)
	if st.reshaped && g.more != nil {
		g.countAhead()
	}
}

// begin puts an empty gate under its first setting: full, or empty on a replica that joins
// a pool which others use already. An empty window opens with the next one.
func (g *gate) begin(st *setting, full bool) {
	g.setting = &setting{}
	g.reshape(g.setting, st)
	for i := range st.rations {
		r := &st.rations[i]
		if r.window != nil {
			w := &g.more.windows[i]
			if !full {
				w.quota = 0
			}
			continue
		}
		b := g.bucket(i)
		b.set(st.at, r.perSecond, r.burst)
		if !full {
			b.owe(st.at, r.burst)
		}
	}
	g.setting, g.size = st, int32(st.slots)
	if g.applyLaw(st); st.law != nil && !full {
		g.more.pacer = newPacer(st.law, st.at, false)
	}
}

// reshape gives the gate the buckets and windows of st's rations. A rule that stays
// keeps its state. A new bucket starts with what the emptiest bucket of its unit holds, so
// that renaming a rule brings no tokens, and full where its unit was not limited before.
func (g *gate) reshape(old, st *setting) {
	buckets := make([]bucket, max(1, len(st.rations)))
	var windows []window
	for i := range st.rations {
		r := &st.rations[i]
		j := indexOfRation(old.rations, r)
		if r.window != nil {
			if windows == nil {
				windows = make([]window, len(st.rations))
			}
			if j >= 0 {
				windows[i] = g.more.windows[j]
			} else {
				windows[i] = openWindow(st.at, r.window)
				windows[i].used = g.mostUsed(old, r.unit)
			}
			continue
		}
		if j >= 0 {
			buckets[i].copyFrom(g.bucket(j))
			continue
		}
		buckets[i].set(st.at, r.perSecond, r.burst)
		buckets[i].fill(st.at, min(r.burst, g.least(old, r.unit, st.at)))
	}
	g.first.copyFrom(&buckets[0])
	if len(buckets) > 1 || windows != nil || g.more != nil {
		m := g.extra()
		m.rest, m.windows = buckets[1:], windows
	}
}

// least is what the emptiest bucket of a unit holds; very much when it was not limited.
func (g *gate) least(old *setting, unit string, now time.Time) int {
	least := thousandths(maxBurst)
	for i := range old.rations {
		if r := &old.rations[i]; r.unit == unit && r.window == nil {
			least = min(least, int(g.bucket(i).tokens(now)))
		}
	}
	return least
}

// mostUsed is the most that a window of a unit has let through.
func (g *gate) mostUsed(old *setting, unit string) int64 {
	most := int64(0)
	for i := range old.rations {
		if r := &old.rations[i]; r.unit == unit && r.window != nil {
			most = max(most, g.more.windows[i].used)
		}
	}
	return most
}

func openWindow(at time.Time, c *schedule) window {
	k := c.index(at.UnixNano())
	return window{index: k, quota: c.quota(k), opened: at}
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
