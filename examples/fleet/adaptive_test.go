package main

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// flow is a time in which a replica sends evenly.
type flow struct {
	replica           int
	from, to          float64 // seconds
	accepted, refused float64 // requests a second
}

// logOf is what an upstream logs of flows.
func logOf(flows ...flow) (log []arrival) {
	for _, f := range flows {
		for _, part := range []struct {
			rate float64
			ok   bool
		}{{f.accepted, true}, {f.refused, false}} {
			n := int(math.Round((f.to - f.from) * part.rate))
			for k := range n {
				at := time.Duration((f.from + (float64(k)+0.5)/part.rate) * float64(time.Second))
				log = append(log, arrival{Replica: f.replica, Arrived: at, Accepted: part.ok})
			}
		}
	}
	slices.SortFunc(log, func(a, b arrival) int { return cmp.Compare(a.Arrived, b.Arrived) })
	return log
}

func TestFollowed(t *testing.T) {
	ph := phase{From: 10 * time.Second, To: 20 * time.Second, Limit: 50}
	for _, row := range []struct {
		name      string
		log       []arrival
		ok        bool
		took      float64 // seconds
		overshoot float64
	}{
		{"at once", logOf(flow{1, 0, 10, 100, 0}, flow{1, 10, 20, 50, 0}), true, 0, 1},
		{"at once, some refused", logOf(flow{1, 10, 20, 48, 4}), true, 0, 1.04},
		{"after three seconds", logOf(flow{1, 0, 13, 100, 0}, flow{1, 13, 20, 50, 0}), true, 2.7, 2},
		{"just too much", logOf(flow{1, 10, 20, 58, 0}), false, 0, 1.16},
		{"just too little", logOf(flow{1, 10, 20, 42, 0}), false, 0, 0.84},
		{"too late to be sure", logOf(flow{1, 10, 17.4, 100, 0}, flow{1, 17.4, 20, 50, 0}), false, 0, 2},
		{"only passing by", logOf(flow{1, 10, 13, 20, 0}, flow{1, 13, 15, 50, 0}, flow{1, 15, 20, 90, 0}),
			false, 0, 1.8},
		{"nothing sent", nil, false, 0, 0},
	} {
		took, ok := followed(row.log, ph)
		if ok != row.ok || math.Abs(took.Seconds()-row.took) > 0.11 {
			t.Errorf("%s: %v, %v, want %v s, %v", row.name, took, ok, row.took, row.ok)
		}
		if got := overshoot(row.log, ph); math.Abs(got-row.overshoot) > 0.03 {
			t.Errorf("%s: overshoot %v, want %v", row.name, got, row.overshoot)
		}
	}
}

// phasesOf are the phases of the adaptive act, from 0 on.
func phasesOf(p plan) (all []phase) {
	at := time.Duration(0)
	for _, s := range scenes {
		all = append(all, phase{scene: s, From: at, To: at + s.Length, Limit: s.Factor * p.Limit, Alive: []int{1, 2}})
		at += s.Length
	}
	return all
}

// TestScenesFitTheirBounds: a scene is long enough to show that its bound does not hold.
func TestScenesFitTheirBounds(t *testing.T) {
	for _, s := range scenes {
		if s.Within > 0 && s.Length < s.Within+time.Second+followWindow {
			t.Errorf("%s: %v is too short for a bound of %v", s.Title, s.Length, s.Within)
		}
	}
}

// TestEveryCheckCanFail: a fleet that does all as it should is content, and each fault breaks the checks that
// it should.
func TestEveryCheckCanFail(t *testing.T) {
	// Scenes change after 4, 10, 19 and 27 s, and the last one ends after 30.
	start, half, back := flow{1, 0, 4, 100, 0}, flow{1, 4, 10, 25, 1}, flow{1, 10, 19, 50, 0}
	half2, back2 := flow{2, 4, 10, 25, 1}, flow{2, 10, 19, 50, 0}
	busy, last := flow{1, 19, 27, 95, 0}, flow{1, 27, 30, 100, 0}
	for _, row := range []struct {
		name   string
		log    []arrival
		broken string
	}{
		{"as it should be", logOf(start, half, half2, back, back2, busy, last), ""},
		{"never cuts", logOf(start, flow{1, 4, 10, 25, 25}, flow{2, 4, 10, 25, 25}, back, back2, busy, last),
			"the limit halves, overshoot, 429s"},
		{"never climbs", logOf(start, half, half2, flow{1, 10, 19, 25, 0}, flow{2, 10, 19, 25, 0}, busy, last),
			"the limit is back"},
		{"never climbs at all", logOf(start, half, half2, flow{1, 10, 30, 20, 0}, flow{2, 10, 30, 20, 0}),
			"the limit is back, the busy one, goodput"},
		{"the wrong one is busy", logOf(start, half, half2, back, back2, flow{2, 19, 27, 95, 0}, last),
			"the busy one"},
		{"one takes all", logOf(start, half, half2, flow{1, 10, 19, 98, 0}, flow{2, 10, 19, 2, 0}, busy, last),
			"fairness"},
		{"nothing at all", nil, "the limit halves, the limit is back, the busy one, goodput"},
	} {
		checks := judge(row.log, phasesOf(plan{Limit: 100}))
		var broken []string
		for _, c := range checks {
			if !c.Held {
				broken = append(broken, c.Of)
			}
		}
		if got := strings.Join(broken, ", "); got != row.broken {
			t.Errorf("%s: broken %q, want %q", row.name, got, row.broken)
		}
	}
}
