package quotient

import "time"

// turnOf is when d's turn would come behind all that wait in its class and above, as far as rates alone decide: of those
// below some may come first too, and nobody who comes later goes before the others. Rates give a lower bound; slots that are taken come free nobody knows when.
func (g *gate) turnOf(now time.Time, d *demand) verdict {
	st := g.setting
	if st.shut {
		return verdict{ReasonPool, ruleNone, never}
	}
	turn := verdict{ReasonRate, ruleNone, 0}
	for i := range st.rations {
		r := &st.rations[i]
		n := d.of(r.unitID)
		if n == 0 || i == st.strict {
			continue
		}
		var w time.Duration
		switch {
		case r.window != nil:
			w = g.more.windows[i].until(now, int64(g.queued(i, d.class)/milli), int64(n), r.window, 0)
		default:
			w = g.bucket(i).untilHas(now, float64(g.queued(i, d.class)+min(n*milli, r.burst)))
		}
		if w > turn.wait {
			turn.rule, turn.wait = int16(i), w
		}
	}
	turn = g.strictly(now, d, g.queued(st.strict, d.class), turn)
	if v := g.pacingBehind(now, d); v.wait > turn.wait {
		turn = v
	}
	if turn.wait == 0 && st.limit.InFlight > 0 {
		turn = verdict{ReasonInFlight, ruleInFlight, never}
	}
	return turn
}

// queued is what those who wait in a class and above ask of rate i, in thousandths; of requests for i = len(rations).
func (g *gate) queued(i int, class Priority) int {
	if i < 0 || g.more == nil || g.more.ahead == nil {
		return 0
	}
	kinds, sum := len(g.setting.rations)+1, 0
	for c := class; c <= PriorityCritical; c++ {
		sum += g.more.ahead[int(c-PriorityLow)*kinds+i]
	}
	return thousandths(float64(sum))
}

// newAhead is what is queued of each kind in each class: nothing.
func (st *setting) newAhead() []int { return make([]int, numClasses*(len(st.rations)+1)) }

// count adds what d asks for to what is queued, or takes it off.
func (g *gate) count(d *demand, sign int) {
	kinds := len(g.setting.rations) + 1
	ahead := g.more.ahead[int(d.class-PriorityLow)*kinds:][:kinds]
	for i := range g.setting.rations {
		ahead[i] += sign * d.of(g.setting.rations[i].unitID)
	}
	ahead[kinds-1] += sign * d.weight
}

// countAhead counts anew, after the rules have changed.
func (g *gate) countAhead() {
	if g.more.queue.len == 0 {
		g.more.ahead = nil
		return
	}
	g.more.ahead = g.setting.newAhead()
	for w := g.more.queue.head; w != nil; w = w.next {
		g.count(&w.d, 1)
	}
}
