package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quotient-go/quotient/bench/rig"
)

const (
	// A fleet has to do more than hold its bounds: a fleet that admits nothing exceeds nothing. What faults take from
	// a healthy fleet is some percent of the limit. With lending one busy replica has all of it without faults.
	leastUsed = .5
	// stuckAfter is how long a replica may be admitted nothing. Each has a window or a turn of its own every two or
	// four seconds at the latest, and changes meanwhile may cost it one or two.
	stuckAfter = 10 * sec
	// clocksDiffer is by how much the clocks of processes on one machine may.
	clocksDiffer = ms
)

// A finding is what a bound allows and what was seen of one path; broken are the times when that was too much.
type finding struct {
	bound, seen string
	broken      []string
}

func (f *finding) breaks(format string, args ...any) {
	f.broken = append(f.broken, fmt.Sprintf(format, args...))
}

// bounds are all that is judged, each by a function of the record alone. Numbers are those of docs/bounds.md.
var bounds = []struct {
	name  string
	on    []path
	judge func(r record, p path, states []state) finding
}{
	{"bound 1, one replica", []path{fromFile, fromDNS, fromRedis, onTurns, onLent}, record.one},
	{"bounds 2, 3, the fleet", []path{fromFile, fromDNS, fromRedis, onTurns}, record.all},
	{"bounds 2, 3, 4, 10, the fleet", []path{onLent}, record.all},
	{"bounds 5, 10, in flight", []path{onSlots, onLentSlots}, record.inFlight},
	{"bound 11, one replica", []path{onWindows}, record.one},
	{"bound 11, the fleet", []path{onWindows}, record.exact},
	{"bound 14, the fleet", []path{onCounted}, record.windows},
	{"pools are right in time", []path{fromFile, fromDNS, fromRedis, onSlots, onWindows, onTurns, onLent, onLentSlots, onCounted}, record.agree},
	{"it goes on", []path{onWindows, onTurns}, record.goesOn},
	{"the limit is used", []path{fromFile, fromDNS, fromRedis, onSlots, onWindows, onTurns}, record.used},
	{"one uses what others lend", []path{onLent, onLentSlots}, record.used},
	{"processes end in order", []path{fromFile, onLent}, record.ends},
}

// judge judges a run. It returns a verdict for each bound and path, and what was broken.
func judge(r record) (verdicts []rig.Verdict, broken []string) {
	for _, p := range r.paths() {
		states := r.states(p)
		for _, b := range bounds {
			if !slices.Contains(b.on, p) {
				continue
			}
			f, name := b.judge(r, p, states), b.name+", "+p.String()
			verdicts = append(verdicts, rig.Verdict{Name: name, Bound: f.bound, Seen: f.seen, OK: f.broken == nil})
			for _, text := range f.broken {
				broken = append(broken, name+": "+text)
			}
		}
	}
	return verdicts, broken
}

func (r record) one(p path, _ []state) (f finding) {
	worst := window{Allowed: 1}
	for _, l := range r.Lives {
		w := r.ceiling(l, p).worst(l.departures(p))
		if w.broken() {
			f.breaks("replica %d: %s", l.ID, w)
		}
		if w.excess() > worst.excess() {
			worst = w
		}
	}
	f.bound, f.seen = worst.texts()
	return f
}

// ceiling is what a replica may do by what it believes: nothing before it knows. With lending it may have all.
//
// Any span touches as many aligned windows as fit in, and two more. The quotas of windows that follow each other are
// the mean, E/n, and less than one event more, in all. Where the sequence of windows breaks, by another pool,
// there is one such fraction more, and one window, which was open.
func (r record) ceiling(l *life, p path) budget {
	limit, paces, breaks := r.limits[p], []pace{{}}, []growth{}
	if p.gossips() {
		return budget{append(paces, pace{l.first(p), limit.rate, float64(limit.burst)}), nil}
	}
	for _, f := range l.Pools[p] {
		paces = append(paces, pace{f.From, limit.rate / float64(f.N), r.bucket(p, f.N)})
	}
	if p != onWindows {
		return budget{paces, nil}
	}
	split := func(in span, extra float64) {
		breaks = append(breaks, growth{span{in.From - lateness, in.To + lateness}, extra})
	}
	for i, f := range l.Pools[p] {
		mean := float64(limit.window) / float64(f.N)
		if paces[i+1].burst = 2*mean + 1; i > 0 {
			split(span{f.From, f.From}, mean+1)
		}
	}
	for _, f := range l.Places[p] {
		split(f.span, 1)
	}
	return budget{paces, breaks}
}

func (r record) all(p path, states []state) (f finding) {
	burst := r.limits[p].burst
	for _, st := range states {
		burst = max(burst, st.Running)
	}
	growths := r.growths(p, states, float64(burst))
	w := budget{[]pace{{rate: r.limits[p].rate, burst: float64(burst)}}, growths}.worst(r.departures(p))
	if w.broken() {
		f.breaks("%s", w)
	}
	f.bound, f.seen = w.texts()
	return f
}

// inFlight judges the permits that were issued while all was settled. Those issued before count until they are
// released. The permits of a process that is stopped do not count: it does nothing under them.
func (r record) inFlight(p path, states []state) (f finding) {
	unsettled, most := r.unsettled(p, states), r.limits[p].slots
	var steps []fact
	for _, l := range r.Lives {
		for _, in := range l.Admitted[p] {
			for _, stop := range l.Stops {
				if in.overlap(stop) > 0 {
					in.To = max(in.From, stop.From)
				}
			}
			if in.To > in.From && !within(unsettled, in.From) {
				steps = append(steps, fact{span{From: in.From}, 1}, fact{span{From: in.To}, -1})
			}
		}
	}
	slices.SortFunc(steps, func(a, b fact) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.N, b.N)) })
	n, worst := 0, fact{}
	for _, s := range steps {
		if n += s.N; n > worst.N {
			worst = fact{s.span, n}
		}
	}
	if worst.N > most {
		f.breaks("%d in flight at %.3f s, %d allowed", worst.N, worst.From.Seconds(), most)
	}
	f.bound, f.seen = fmt.Sprint(most), fmt.Sprintf("%d, of %d permits", worst.N, len(steps)/2)
	return f
}

// unsettled are the times whose permits do not count for bound 5. A replica may believe in fewer than there are. For a
// hold-down after each change, one replica's ordinal may end as another one's begins. A process that was stopped may
// take as long to learn that its ordinal is another's. With lending something may be known to some and not to others
// for as long as reports count.
func (r record) unsettled(p path, states []state) (all []span) {
	add := func(from, to time.Duration) {
		if from < r.Length {
			all = append(all, span{from - lateness, to + r.slack(p, to)})
		}
	}
	for _, st := range states {
		if st.Running > st.Least && st.Excused {
			add(st.From, st.To)
		}
	}
	if !p.gossips() {
		for _, c := range r.Changes[p] {
			if c.Slept > 0 {
				add(c.At, c.At+p.looks())
			} else {
				add(c.At+holdDown, c.At+holdDown)
			}
		}
		return all
	}
	for _, o := range r.onsets() {
		add(o.At, o.At+newsCount)
	}
	for _, l := range r.Lives {
		add(l.Died, min(l.Died, r.Length)+newsCount)
		for _, f := range slices.Concat(l.Pools[p], l.Places[p]) {
			add(f.From, f.To+newsCount)
		}
		for _, s := range l.Stops {
			add(s.From, s.From+newsCount)
		}
	}
	return all
}

// exact judges the aligned windows of the fleet in which nothing has changed since the one before. Requests that left
// at another time than there was room do not count.
func (r record) exact(p path, states []state) (f finding) {
	most, windows := r.limits[p].window, 0
	worst := window{Allowed: float64(most)}
	for _, st := range states {
		ok := r.placesAgree(p, st.From)
		from := st.From + windowPer + lateness
		from += windowPer - (time.Duration(r.Epoch)+from)%windowPer
		for ; ok && from+windowPer <= st.To-lateness; from += windowPer {
			w := window{span{from, from + windowPer}, 0, float64(most)}
			for _, l := range r.Lives {
				for _, e := range l.Admitted[p] {
					w.Sent += map[bool]int{true: 1}[w.holds(e.To) && e.From >= w.From-clocksDiffer]
				}
			}
			if windows++; w.Sent > worst.Sent {
				worst = w
			}
		}
	}
	if worst.broken() {
		f.breaks("%s, where all agree", worst)
	}
	f.bound, f.seen = fmt.Sprint(most), fmt.Sprintf("%d in one of %d windows in which nothing changed", worst.Sent, windows)
	return f
}

// placesAgree reports whether all replicas that run believe in as many, each with an ordinal of its own.
func (r record) placesAgree(p path, t time.Duration) bool {
	places, pools := map[int]bool{}, map[int]bool{}
	running := 0
	for _, l := range r.Lives {
		if l.runs(p, t) {
			running++
			places[at(l.Places[p], t)], pools[l.pool(p, t)] = true, true
		}
	}
	return pools[running] && len(pools) == 1 && len(places) == running && !places[0]
}

// windows judges bound 14, of windows whose limit is E. A replica that has used up its share may go on only while two
// numbers are within E together: what it has admitted, and what the others had by the time of the oldest report that
// counts. That is so while no replica believes in fewer than there are.
func (r record) windows(p path, states []state) (f finding) {
	var log []admission
	for _, l := range r.Lives {
		for _, e := range l.Admitted[p] {
			log = append(log, admission{e.To, l})
		}
	}
	slices.SortFunc(log, func(a, b admission) int { return cmp.Compare(a.at, b.at) })
	most, worst, windows := r.limits[p].window, 0, 0
	for ; len(log) > 0; windows++ {
		from := log[0].at - (time.Duration(r.Epoch)+log[0].at)%countedPer
		in := span{from, from + countedPer}
		n, until := 0, in.To-clocksDiffer
		for n < len(log) && log[n].at < in.To {
			n++
		}
		for _, st := range states {
			if st.overlap(in) > 0 && st.Least < st.Running {
				until = min(until, st.From-lateness)
			}
		}
		r.windowOf(p, span{from, until}, log[:n], &f)
		worst = max(worst, n)
		log = log[n:]
	}
	f.bound = fmt.Sprintf("%d, and what others admit until a report", most)
	f.seen = fmt.Sprintf("%d in one of %d windows", worst, windows)
	return f
}

func (r record) windowOf(p path, in span, log []admission, f *finding) {
	most, byTime := r.limits[p].window, map[*life][]time.Duration{}
	for _, a := range log {
		if a.at < in.From+clocksDiffer || a.at >= in.To {
			continue // it may be of the last window
		}
		others, known := 0, a.at-newsMaxAge-newsCount-r.slack(p, a.at)
		for l, times := range byTime {
			if l != a.life && !r.forgotten(l, a.at) {
				i, _ := slices.BinarySearch(times, known)
				others += i
			}
		}
		byTime[a.life] = append(byTime[a.life], a.at)
		least := cmp.Or(a.pool(p, in.From), math.MaxInt) // the smallest pool that it believes in, in the window
		for _, pool := range a.Pools[p] {
			if pool.From >= in.From && pool.From <= a.at {
				least = min(least, pool.N)
			}
		}
		if own := len(byTime[a.life]); own+others > most && own > (most+least-1)/least {
			f.breaks("replica %d has admitted %d at %.3f s, of a window that began at %.3f s, and the others %d by %.3f s; %d allowed",
				a.ID, own, a.at.Seconds(), in.From.Seconds(), others, known.Seconds(), most)
			return
		}
	}
}

// forgotten reports whether a replica died before an instant, and another one came after it. Its admissions of the
// window before are not separated then from those of the new one.
func (r record) forgotten(l *life, before time.Duration) bool {
	return l.Died < before && slices.ContainsFunc(r.onsets(), func(o onset) bool { return o.At >= l.Died && o.At < before })
}

type admission struct {
	at time.Duration
	*life
}

// agree judges whether a replica was wrong for longer than is allowed. A pool counts from the look before it was seen,
// which may have been before there was a truth.
func (r record) agree(p path, states []state) (f finding) {
	wrong, since := time.Duration(0), never
	for i, st := range states {
		bad := !st.Right && !st.Excused && at(r.Truth[p], st.From) > 0
		if !st.Right {
			wrong += st.length()
		}
		if since = min(since, st.From); bad && (i == len(states)-1 || states[i+1].Right || states[i+1].Excused) {
			f.breaks("from %.3f s to %.3f s not all of %d agree with the truth, one believes in %d, and no change of the last %v excuses that",
				since.Seconds(), st.To.Seconds(), st.Running, st.Least, p.allowed())
		}
		if !bad {
			since = never
		}
	}
	f.bound, f.seen = fmt.Sprintf("%.2f s after a change", p.allowed().Seconds()), fmt.Sprintf("wrong for %.1f s in all", wrong.Seconds())
	return f
}

// goesOn judges whether windows and turns have stopped for good: each replica that runs is admitted something once in
// a while.
func (r record) goesOn(p path, _ []state) (f finding) {
	var longest time.Duration
	for _, l := range r.Lives {
		last := l.first(p)
		for _, d := range append(l.departures(p), span{To: min(l.Died, r.Length)}) {
			gap := span{min(last, d.To), d.To}
			last = d.To
			nothing := l.own(gap) - l.stood(gap)
			if longest = max(longest, nothing); nothing > stuckAfter {
				f.breaks("replica %d got nothing from %.3f s to %.3f s", l.ID, gap.From.Seconds(), gap.To.Seconds())
			}
		}
	}
	f.bound, f.seen = fmt.Sprintf("something in %v", stuckAfter), fmt.Sprintf("nothing for %.2f s", longest.Seconds())
	return f
}

// used judges how much of the limit is used: by all in the whole run, or with lending by the one that is busy in the
// times without faults.
func (r record) used(p path, _ []state) (f finding) {
	times, limit := []fact{{span{0, r.Length}, 0}}, r.limits[p]
	if p.gossips() {
		times = r.Calms
	}
	var uses []float64
	for _, in := range times {
		admitted, held := 0., time.Duration(0)
		for _, l := range r.Lives {
			for _, e := range l.Admitted[p] {
				if in.N == 0 || in.N == l.ID {
					held += in.overlap(e)
					admitted += map[bool]float64{true: 1}[in.holds(e.To)]
				}
			}
		}
		use := admitted / (limit.rate * in.length().Seconds())
		if limit.slots > 0 {
			use = held.Seconds() / (float64(limit.slots) * in.length().Seconds())
		}
		uses = append(uses, use)
	}
	use := 100 * rig.Quantile(uses, .5)
	if use < 100*leastUsed {
		f.breaks("%.1f %% of the limit was used, and it takes %.0f", use, 100*leastUsed)
	}
	f.bound, f.seen = fmt.Sprintf("at least %.0f %%", 100*leastUsed), fmt.Sprintf("%.1f %%", use)
	return f
}

// ends judges how processes ended. Those that were killed cannot say.
func (r record) ends(path, []state) (f finding) {
	ended := 0
	for _, l := range r.Lives {
		switch {
		case l.Ended && l.Text != "":
			f.breaks("replica %d: %s", l.ID, l.Text)
		case l.Ended:
			ended++
		case l.Died == never:
			f.breaks("replica %d did not say how it ended", l.ID)
		}
	}
	f.bound, f.seen = "no errors, no leaks", fmt.Sprintf("%d did, of %d", ended, len(r.Lives))
	return f
}

// report is a run's faults, and what it was judged by.
func report(r record, verdicts []rig.Verdict, broken []string) rig.Section {
	title := map[bool]string{false: "A fleet with sources", true: "A fleet that gossips"}[r.Gossip]
	s := rig.Section{Title: title, Verdicts: verdicts, Table: rig.Table{Header: []string{"fault", "times"}}}
	s.Note = fmt.Sprintf("%d processes for %v, seed %d: %d broken\n\n%s", replicas, r.Duration, r.Seed, len(broken),
		strings.Join(broken[:min(len(broken), 20)], "\n"))
	for _, name := range slices.Sorted(maps.Keys(r.Struck)) {
		s.Add(name, r.Struck[name])
	}
	return s
}
