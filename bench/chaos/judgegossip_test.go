package main

import (
	"testing"
	"time"
)

// calmGossip is a run of forty seconds of four replicas that gossip. The first one alone is busy, and has all
// there is from 12 s on.
func calmGossip() record {
	r := record{config: config{Duration: 40 * sec, Replicas: 4, Limit: 200, Burst: 4, Gossip: true},
		Length: 40 * sec}
	total := int64(0)
	for t := 12 * sec; t < r.Length; t += 10 * ms {
		r.Logs[onLent] = append(r.Logs[onLent], sentAt(1, t))
		total++
	}
	for range r.ctrl(onLentSlots).slots {
		for t := 12 * sec; t < r.Length; t += 100 * ms {
			r.Logs[onLentSlots] = append(r.Logs[onLentSlots], entry{1, t + 100*ms, t, t})
		}
	}
	for from := 10 * sec; from < r.Length; from += countedPer {
		for i := range time.Duration(r.ctrl(onCounted).window) {
			r.Logs[onCounted] = append(r.Logs[onCounted], sentAt(1, from+i*20*ms+5*ms))
		}
	}
	for id := 1; id <= 4; id++ {
		l := life{ID: id, Born: 1, Died: never, End: &ending{}}
		c := &counts{Members: 4, Sums: map[string]int64{toAll: total, counterOf(1): total}}
		if l.Counts = c; id == 1 {
			c.Added = total
			l.Parts[onLent] = []parted{{12 * sec, 1}}
		}
		for s := onLent; s < sources; s++ {
			l.believes(s, 4, 0, 0)
			l.Places[s] = []placed{{span{0, 0}, id}}
		}
		r.Lives = append(r.Lives, l)
	}
	for s := onLent; s < sources; s++ {
		r.Truth[s] = []turn{{0, 4}}
	}
	r.Onsets = []onset{{10 * sec, 1}}
	r.Calms = []stretch{{span{14 * sec, 40 * sec}, 1}}
	return r
}

// parted lets two replicas believe in two from one instant to another.
func (r *record) parted(from, to time.Duration) {
	for s := onLent; s < sources; s++ {
		for i := range 2 {
			r.Lives[i].believes(s, 2, from, from)
			r.Lives[i].believes(s, 4, to, to)
		}
	}
}

func TestJudgeGossip(t *testing.T) {
	const sum = "bounds 2, 3, 4 and 10, lent"
	for _, c := range []struct {
		name   string
		change func(*record)
		want   []string
	}{
		{"calm", func(*record) {}, nil},
		{"a burst too many", func(r *record) {
			r.send(onLent, 2, 30*sec, 30*sec+9*ms, ms)
			r.send(onLent, 3, 30*sec, 30*sec+9*ms, ms)
		}, []string{sum}},
		{"a lender begins to ask", func(r *record) {
			r.Onsets = append(r.Onsets, onset{25 * sec, 2})
			r.send(onLent, 2, 25*sec, 27*sec, 40*ms)
		}, nil},
		{"a lender begins to ask, and the borrower goes on", func(r *record) {
			r.Onsets = append(r.Onsets, onset{25 * sec, 2})
			r.send(onLent, 2, 25*sec, 30*sec, 40*ms)
		}, []string{sum}},
		{"two parts", func(r *record) {
			r.Faults[onLent] = []span{{23 * sec, 30 * sec}}
			r.parted(26*sec, 30*sec)
			r.send(onLent, 2, 26*sec, 30*sec, 20*ms)
		}, []string{"in the stretch without faults"}},
		{"two parts, before the hold-down", func(r *record) {
			r.Faults[onLent] = []span{{25500 * ms, 30 * sec}}
			r.parted(26*sec, 30*sec)
		}, []string{"in the stretch", "lent: from 26.000 s to 30.000 s one of 4 believes in 2"}},
		{"no parts", func(r *record) { r.parted(26*sec, 30*sec) },
			[]string{"in the stretch", "lent: from 26.000 s"}},
		{"a slot too many", func(r *record) {
			r.Logs[onLentSlots] = append(r.Logs[onLentSlots],
				entry{2, 30*sec + 60*ms, 30*sec + 10*ms, 30*sec + 10*ms})
		}, []string{"bound 5, lent-slots: 8 in flight at 30.010 s, 7 allowed"}},
		{"a slot too many as something begins", func(r *record) {
			r.Onsets = append(r.Onsets, onset{29 * sec, 2})
			r.Logs[onLentSlots] = append(r.Logs[onLentSlots],
				entry{2, 30*sec + 60*ms, 30*sec + 10*ms, 30*sec + 10*ms})
		}, nil},
		{"more than the window", func(r *record) { r.send(onCounted, 2, 19*sec, 19*sec+31*ms, ms) },
			[]string{"bound 14, counted: replica 2 has admitted 31 at 19.030 s"}},
		{"a share of the window", func(r *record) { r.send(onCounted, 2, 19*sec, 19*sec+30*ms, ms) }, nil},
		{"idle", func(r *record) { r.silence(onLentSlots, 1, span{20 * sec, 40 * sec}) },
			[]string{"one busy replica uses 23.1 % of the slots"}},
		{"its share", func(r *record) { r.Lives[0].Parts[onLent] = []parted{{12 * sec, .9}} },
			[]string{"one busy replica may use 90.0 % of the rate"}},
		{"another count", func(r *record) { r.Lives[2].Counts.Sums[counterOf(1)]-- },
			[]string{`counters: replica 3 says 2799 of "of-1", another one 2800`}},
		{"a count too low", func(r *record) { r.Lives[0].Counts.Added++ },
			[]string{"counters: all say that replica 1 has added 2800, and it says 2801"}},
		{"no count", func(r *record) { r.Lives[3].Counts = nil },
			[]string{"replica 4 did not say what it knows"}},
		{"one that is gone", func(r *record) { r.Lives[3].Died = 39 * sec },
			[]string{"3 replicas are there in the end, not 4"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := calmGossip()
			c.change(&r)
			finds(t, judge(r), c.want)
		})
	}
}
