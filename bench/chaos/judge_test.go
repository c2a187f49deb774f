package main

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// peace is a run in which four replicas, who know it, do what they may on every path: for 20 s, or with gossip for
// 40 s, in which the first one alone is busy, from 12 s on.
func peace(gossip bool) record {
	r := record{config: config{Gossip: gossip}, Length: 20 * sec, limits: [paths]limit{
		{rate: 100, burst: 4}, {rate: 100, burst: 4}, {rate: 100, burst: 4}, {slots: 7}, {rate: 4, window: 1},
		{rate: 10, burst: 1}, {rate: 100, burst: 16}, {slots: 7}, {rate: 12, window: 120},
	}}
	if gossip {
		r.Length = 40 * sec
		r.Onsets = []onset{{At: 10 * sec}}
		r.Calms = []fact{{span{14 * sec, 40 * sec}, 1}}
	}
	for id := 1; id <= 4; id++ {
		r.Lives = append(r.Lives, &life{ID: id, Born: 1, Died: never, Ended: true})
	}
	for _, p := range r.paths() {
		r.Truth[p] = []fact{{N: 4}}
		for i, l := range r.Lives {
			l.Pools[p], l.Places[p] = []fact{{N: 4}}, []fact{{N: l.ID}}
			r.usual(p, i)
		}
	}
	return r
}

// usual is what one of four replicas does on a path.
func (r record) usual(p path, i int) {
	turn := time.Duration(i)
	switch {
	case p == onSlots:
		r.hold(p, i, 0, r.Length, 1+min(1, r.limits[p].slots%4/(i+1)))
	case p == onWindows:
		r.send(p, i, turn*windowPer, r.Length, 4*windowPer)
	case p == onTurns:
		r.send(p, i, turn*100*ms, r.Length, 400*ms)
	case !p.gossips():
		r.send(p, i, 0, r.Length, 40*ms)
	case i > 0:
	case p == onLent:
		r.send(p, i, 12*sec, r.Length, 10*ms)
	case p == onLentSlots:
		r.hold(p, i, 12*sec, r.Length, r.limits[p].slots)
	case p == onCounted:
		for from := 10 * sec; from < r.Length; from += countedPer {
			r.send(p, i, from+5*ms, from+time.Duration(r.limits[p].window)*20*ms, 20*ms)
		}
	}
}

// send adds requests of a replica to a path, one each gap, and hold permits that follow each other.
func (r record) send(p path, i int, from, to, gap time.Duration) {
	for t := from; t < to; t += gap {
		r.Lives[i].Admitted[p] = append(r.Lives[i].Admitted[p], span{t, t})
	}
}

func (r record) hold(p path, i int, from, to time.Duration, n int) {
	for t := from; t < to; t += 100 * ms {
		for range n {
			r.Lives[i].Admitted[p] = append(r.Lives[i].Admitted[p], span{t, min(to, t+100*ms)})
		}
	}
}

// silence takes requests of a replica out of a path.
func (r record) silence(p path, i int, from, to time.Duration) {
	l := r.Lives[i]
	l.Admitted[p] = slices.DeleteFunc(l.Admitted[p], func(e span) bool { return span{from, to}.holds(e.From) })
}

func (r record) believes(p path, i, n int, at time.Duration) {
	r.Lives[i].believes(p, fact{span{at, at}, n})
}

func (r *record) changed(p path, at time.Duration, n int) {
	r.Truth[p] = append(r.Truth[p], fact{span{at, at}, n})
	r.Changes[p] = append(r.Changes[p], change{At: at})
}

// joins lets a fifth replica join at 5 s, which the others notice so much later.
func (r *record) joins(p path, late time.Duration) {
	r.Lives = append(r.Lives, &life{ID: 5, Born: 5 * sec, Died: never, Ended: true})
	r.changed(p, 5*sec, 5)
	r.believes(p, 4, 5, 5*sec)
	for i := range 4 {
		r.believes(p, i, 5, 5*sec+late)
		r.silence(p, i, 5*sec+late, never)
		r.send(p, i, 5*sec+late+50*ms, r.Length, 50*ms)
	}
	r.send(p, 4, 5*sec+50*ms, r.Length, 50*ms)
}

func (r record) splits(from, to time.Duration) {
	for _, p := range r.paths() {
		for i := range 2 {
			r.believes(p, i, 2, from)
			r.believes(p, i, 4, to)
		}
	}
}

// stops stops a replica from 5 s to 8 s; then it sends what it says was admitted since.
func (r *record) stops(since ...time.Duration) {
	l := r.Lives[0]
	l.Stops, l.Stalls = []span{{5 * sec, 8 * sec}}, []span{{5*sec - ms, 8*sec + ms}}
	for _, p := range r.paths() {
		r.silence(p, 0, 4950*ms, 8060*ms)
	}
	for _, from := range since {
		l.Admitted[fromFile] = append(l.Admitted[fromFile], span{from, 8 * sec})
	}
}

// TestJudge breaks one bound after the other: exactly what a row wants must be reported.
func TestJudge(t *testing.T) {
	const few, lent = "pools are right in time, file: from ", "bounds 2, 3, 4, 10, the fleet, lent"
	const many = "bounds 2, 3, the fleet, file"
	agree := func(p path, at string) string { return "pools are right in time, " + p.String() + ": from " + at }
	for _, c := range []struct {
		name   string
		gossip bool
		change func(*record)
		want   []string // begins of what is broken, in order; none: everything holds
	}{
		{"peace", false, func(*record) {}, nil},
		{"one too many", false, func(r *record) { r.send(fromDNS, 1, 3010*ms, 3011*ms, ms) },
			[]string{"bound 1, one replica, dns: replica 2: ", "bounds 2, 3, the fleet, dns: "}},
		{"all a little too fast", false, func(r *record) { r.send(fromRedis, 1, 0, 20*sec, 900*ms) },
			[]string{"bound 1, one replica, redis", "bounds 2, 3, the fleet, redis"}},
		{"asked for before there was a share", false, func(r *record) {
			r.joins(fromFile, 10*ms)
			r.Lives[4].Admitted[fromFile] = append(r.Lives[4].Admitted[fromFile], span{5*sec - 2*ms, 5*sec + ms})
		}, nil},
		{"before there was a share", false, func(r *record) {
			r.joins(fromFile, 10*ms)
			r.send(fromFile, 4, 4998*ms, 4999*ms, ms)
		}, []string{"bound 1, one replica, file: replica 5: 1 from 4.998 s to 4.998 s, 0.00 allowed"}},
		{"a claim to have been late", false, func(r *record) {
			r.Lives[0].Admitted[fromFile] = append(r.Lives[0].Admitted[fromFile], span{sec, 3010 * ms})
		}, []string{"bound 1, one replica, file: replica 1", many}},
		{"nobody admitted", false, func(r *record) {
			for i := range r.Lives {
				r.Lives[i].Admitted[fromFile] = nil
			}
		}, []string{"the limit is used, file: 0.0 %"}},
		{"a leak", false, func(r *record) { r.Lives[1].Text = "a leak: goroutine 7" },
			[]string{"processes end in order, file: replica 2: a leak: goroutine 7"}},
		{"no last words", false, func(r *record) { r.Lives[1].Ended = false },
			[]string{"processes end in order, file: replica 2 did not say"}},

		{"seen as of a look before there was a truth", false, func(r *record) { r.Truth[fromFile][0].From += 10 * ms }, nil},
		{"a join seen late", false, func(r *record) { r.joins(fromFile, 400*ms) }, nil},
		{"a join seen later than allowed", false, func(r *record) { r.joins(fromFile, 4*sec) }, []string{many, few}},
		{"fewer, out of nowhere", false, func(r *record) { r.believes(fromFile, 3, 3, 5*sec) }, []string{few + "5.000 s to 20.000 s not all of 4"}},
		{"a lie that is believed", false, func(r *record) {
			r.Faults[fromFile] = []span{{4 * sec, 7 * sec}}
			r.believes(fromFile, 3, 3, 5*sec)
			r.believes(fromFile, 3, 4, 6*sec)
		}, []string{few + "5.000 s"}},
		{"a lie to one that is new", false, func(r *record) {
			r.Faults[fromFile] = []span{{4 * sec, 5500 * ms}}
			r.joins(fromFile, 10*ms)
			r.Lives[4].Pools[fromFile] = []fact{{span{5 * sec, 5 * sec}, 1}, {span{5600 * ms, 5600 * ms}, 5}}
			r.send(fromFile, 4, 5*sec, 5600*ms, 20*ms)
		}, nil},
		{"a change while the source is broken", false, func(r *record) {
			r.Faults[fromFile] = []span{{sec, 6 * sec}}
			r.joins(fromFile, 3*sec)
		}, nil},
		{"the same, learned too late", false, func(r *record) {
			r.Faults[fromFile] = []span{{4 * sec, 5*sec + ms}}
			r.joins(fromFile, 4*sec)
		}, []string{many, few + "7.551 s"}},
		{"fewer than there were", false, func(r *record) {
			r.joins(fromFile, 400*ms)
			r.Lives[0].Pools[fromFile] = slices.Insert(r.Lives[0].Pools[fromFile], 1, fact{span{5100 * ms, 5100 * ms}, 3})
		}, []string{many, few + "5.100 s"}},

		{"stopped, and its bucket", false, func(r *record) { r.stops(8 * sec) }, nil},
		{"stopped, and one turn as it was", false, func(r *record) { r.stops(8*sec, 4990*ms) }, nil},
		{"stopped, and a burst", false, func(r *record) { r.stops(8*sec, 8*sec) },
			[]string{"bound 1, one replica, file: replica 1", many}},
		{"stopped, and a burst that says it was late", false, func(r *record) { r.stops(5*sec, 5500*ms, 6*sec, 6500*ms, 7*sec) },
			[]string{"bound 1, one replica, file: replica 1", many}},
		{"goes on with an old report", false, func(r *record) {
			r.Truth[fromFile] = []fact{{N: 4}, {span{3 * sec, 3 * sec}, 3}, {span{5 * sec, 5 * sec}, 4}}
			r.stops()
			r.Changes[fromFile] = []change{{At: 3 * sec}, {At: 5 * sec}, {At: 8 * sec, Slept: 3 * sec}}
			r.believes(fromFile, 0, 3, 4900*ms)
			r.believes(fromFile, 0, 4, 8300*ms)
		}, nil},

		{"a permit too many", false, func(r *record) { r.hold(onSlots, 3, 5010*ms, 5050*ms, 1) },
			[]string{"bounds 5, 10, in flight, slots: 8 in flight at 5.010 s, 7 allowed"}},
		{"as an ordinal becomes another's", false, func(r *record) {
			r.changed(onSlots, 5*sec, 4)
			r.hold(onSlots, 3, 7050*ms, 7100*ms, 1)
		}, nil},
		{"before it may", false, func(r *record) {
			r.changed(onSlots, 5*sec, 4)
			r.hold(onSlots, 3, 6900*ms, 6950*ms, 1)
		}, []string{"bounds 5, 10, in flight, slots"}},
		{"under a permit that a stopped process has", false, func(r *record) {
			r.stops()
			r.silence(onSlots, 0, 4850*ms, 5*sec)
			r.Lives[0].Admitted[onSlots] = append(r.Lives[0].Admitted[onSlots], span{4990 * ms, 8 * sec}, span{4990 * ms, 8 * sec})
			r.hold(onSlots, 3, 5100*ms, 7900*ms, 2)
		}, nil},

		{"a window too many", false, func(r *record) { r.send(onWindows, 1, 5260*ms, 5261*ms, ms) },
			[]string{"bound 11, one replica, windows: replica 2",
				"bound 11, the fleet, windows: 2 from 5.250 s to 5.500 s, 1.00 allowed"}},
		{"stuck", false, func(r *record) { r.silence(onTurns, 3, 6*sec, never) },
			[]string{"it goes on, turns: replica 4 got nothing from 5.900 s to 20.000 s"}},

		{"peace", true, func(*record) {}, nil},
		{"a burst too many", true, func(r *record) { r.send(onLent, 0, 30*sec, 30*sec+18*ms, ms) },
			[]string{"bound 1, one replica, lent: replica 1", lent}},
		{"a lender asks", true, func(r *record) {
			r.Onsets = append(r.Onsets, onset{At: 25 * sec})
			r.send(onLent, 1, 25*sec, 27*sec, 40*ms)
		}, nil},
		{"a lender asks, and the borrower goes on", true, func(r *record) {
			r.Onsets = append(r.Onsets, onset{At: 25 * sec})
			r.send(onLent, 1, 25*sec, 31*sec, 40*ms)
		}, []string{lent}},
		{"two parts", true, func(r *record) {
			for _, p := range r.paths() {
				r.Faults[p] = []span{{23 * sec, 30 * sec}}
			}
			r.splits(26*sec, 30*sec)
			r.send(onLent, 1, 26*sec, 30*sec, 20*ms)
		}, nil},
		{"two parts, before the hold-down", true, func(r *record) {
			r.Faults[onLent] = []span{{25500 * ms, 30 * sec}}
			r.splits(26*sec, 30*sec)
		}, []string{agree(onLent, "26.000 s"), agree(onLentSlots, "26.000 s"), agree(onCounted, "26.000 s")}},
		{"a lent permit too many", true, func(r *record) { r.hold(onLentSlots, 1, 30010*ms, 30060*ms, 1) },
			[]string{"bounds 5, 10, in flight, lent-slots: 8 in flight at 30.010 s, 7 allowed"}},
		{"the same as one begins", true, func(r *record) {
			r.Onsets = append(r.Onsets, onset{At: 29 * sec})
			r.hold(onLentSlots, 1, 30010*ms, 30060*ms, 1)
		}, nil},
		{"more than the counted window", true, func(r *record) { r.send(onCounted, 1, 19*sec, 19*sec+31*ms, ms) },
			[]string{"bound 14, the fleet, counted: replica 2 has admitted 31 at 19.030 s"}},
		{"a share of it", true, func(r *record) { r.send(onCounted, 1, 19*sec, 19*sec+30*ms, ms) }, nil},
		{"what is lent is not used", true, func(r *record) { r.silence(onLentSlots, 0, 20*sec, 40*sec) },
			[]string{"one uses what others lend, lent-slots: 23.1 %"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := peace(c.gossip)
			c.change(&r)
			verdicts, broken := judge(r)
			ok := len(broken) == len(c.want)
			for i := range min(len(broken), len(c.want)) {
				ok = ok && strings.HasPrefix(broken[i], c.want[i])
			}
			if !ok {
				t.Errorf("broken: %q, want %q", broken, c.want)
			}
			if s := report(r, verdicts, broken); (s.Missed() == 0) != (len(broken) == 0) {
				t.Error(s)
			}
		})
	}
}

// TestPropertyWorst holds the one pass against all windows.
func TestPropertyWorst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		instant := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(0, 10_000).Draw(t, "ms")) * ms
		})
		paces := []pace{{rate: 10, burst: 3}}
		for _, at := range slices.Sorted(slices.Values(rapid.SliceOfN(instant, 0, 4).Draw(t, "paces"))) {
			rate, burst := rapid.Float64Range(0, 50).Draw(t, "rate"), rapid.Float64Range(0, 10).Draw(t, "burst")
			paces = append(paces, pace{from: at, rate: rate, burst: burst})
		}
		var growths []growth
		for range rapid.IntRange(0, 4).Draw(t, "growths") { // they may overlap
			from, to := instant.Draw(t, "from"), instant.Draw(t, "to")
			extra := rapid.Float64Range(0, 20).Draw(t, "extra")
			growths = append(growths, growth{span: span{min(from, to), max(from, to)}, extra: extra})
		}
		b := budget{paces, growths}
		var sent []span
		for _, left := range slices.Sorted(slices.Values(rapid.SliceOfN(instant, 1, 30).Draw(t, "left"))) {
			late := time.Duration(rapid.IntRange(0, 500).Draw(t, "late")) * ms
			sent = append(sent, span{max(0, left-late), left})
		}
		most, opens := math.Inf(-1), begins(sent)
		for i := range sent {
			for j := i; j < len(sent); j++ {
				most = max(most, float64(j-i+1)-b.slowly(opens[i], sent[j].To))
			}
		}
		if got := b.worst(sent); math.Abs(got.excess()-most) > 1e-6 {
			t.Fatalf("worst is %v with an excess of %v, want %v", got, got.excess(), most)
		}
	})
}

// slowly is allowed, written as the words of budget have it.
func (b budget) slowly(from, to time.Duration) float64 {
	_, n := b.at(from)
	for i, s := range b.paces {
		in := span{s.from, never}
		if i+1 < len(b.paces) {
			in.To = b.paces[i+1].from
		}
		n += s.rate * in.overlap(span{from, to}).Seconds()
	}
	for _, g := range b.growths {
		if g.From <= to && g.To >= from {
			n += g.extra
		}
	}
	return n
}
