package sim

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

var tracking = Contender{Name: "tracking", Policy: func(*Scenario) policy.Policy { return policy.Tracking{} }}

// The same seed draws the same cells, which play the same runs; another seed draws others.
func TestFamiliesAreDrawnBySeed(t *testing.T) {
	const n = 42 // each lie twice, and each other kin seven times
	one, same, other := Families(n, 1), Families(n, 1), Families(n, 2)
	if len(one) != 4*n {
		t.Fatalf("%d cells, want %d", len(one), 4*n)
	}
	kin, moved := map[string]int{}, 0
	for i := range one {
		a, b := &one[i], &same[i]
		if a.Seed != b.Seed || a.Kind != b.Kind || a.Fields != b.Fields ||
			a.Scenario.Limit != b.Scenario.Limit {
			t.Fatalf("cell %d: %v and %v", i, a, b)
		}
		if other[i].Seed != a.Seed {
			moved++
		}
		kin[a.Family+": "+a.Kin]++
		if i%10 == 0 {
			r, again := Play(a.Scenario, a.Kind, a.Fields, tracking, a.Seed, 0),
				Play(b.Scenario, b.Kind, b.Fields, tracking, b.Seed, 0)
			if !reflect.DeepEqual(r, again) {
				t.Errorf("%s, %s: two runs differ", a.Family, a.Kin)
			}
		}
	}
	if moved != len(one) {
		t.Errorf("the other seed has %d cells of the first", len(one)-moved)
	}
	if want := len(liars) + 6 + 4 + 2; len(kin) != want {
		t.Errorf("%d kinds of cells, want %d: %v", len(kin), want, kin)
	}
}

// A lie changes what is reported and never what is admitted, and beside it nothing is reported.
func TestLiesAreLies(t *testing.T) {
	for _, c := range Families(len(liars), 3)[:len(liars)] {
		if b := c.Beside; b.Fields != NoFields || b.Scenario.Lie != nil || b.Kind != c.Kind ||
			b.Seed != c.Seed {
			t.Errorf("%s: beside it %+v", c.Kin, b)
		}
		lie, changed := c.Scenario.Lie(), false
		up := NewUpstream(Window60, c.Fields, c.Scenario.Limit, 0) // whose truth is not what any lie says
		for now := time.Second; now < 90*time.Second; now += 3 * time.Millisecond {
			f := up.Answer(now, up.Admit(now))
			a := Answer{f.Outcome, f.RetryAfter, f.Quotas[0]}
			lie(now, &a)
			if a.Outcome != f.Outcome {
				t.Fatalf("%s changes an outcome", c.Kin)
			}
			changed = changed || a.RetryAfter != f.RetryAfter || a.Quota != f.Quotas[0]
		}
		if !changed {
			t.Errorf("%s changes nothing", c.Kin)
		}
	}
}

// Upstreams with two limits hold both, over a second and over a minute or an hour.
func TestTwoLimitsAndGitHub(t *testing.T) {
	for _, c := range []struct {
		kind           Kind
		second, minute int // admitted at most after the burst
	}{{TwoLimits, 20, 600}, {GitHub, 10, 610}} {
		up, perSecond, total := NewUpstream(c.kind, AllFields, 10, 0), 0, 0
		for now := time.Duration(0); now < time.Minute; now += 5 * time.Millisecond {
			if now%time.Second == 0 {
				perSecond = 0
			}
			if up.Admit(now) {
				perSecond, total = perSecond+1, total+1
			}
			if now > 2*time.Second && perSecond > c.second+1 {
				t.Fatalf("%v: %d in a second at %v", c.kind, perSecond, now)
			}
		}
		if total > c.minute || total < c.minute-11 {
			t.Errorf("%v: %d in a minute, want %d", c.kind, total, c.minute)
		}
	}
	hub := NewUpstream(GitHub, AllFields, 10, 0)
	admitted := 0
	for now := time.Duration(0); now < 59*time.Minute; now += 50 * time.Millisecond {
		if hub.Admit(now) {
			admitted++
		}
	}
	if f := hub.Answer(59*time.Minute, false); admitted != 2500 || f.Quotas[0].Limit != 2500 ||
		f.RetryAfter != time.Minute {
		t.Errorf("an hour: %d admitted, %+v", admitted, f)
	}
}

// A fault hits the part of the requests that it says, as the outcome that it says, and only while it lasts.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		fault       Fault
		least, most float64 // served of what was sent while it lasted
	}{
		{Fault{Part: .5, Outcome: policy.Throttled}, .4, .6},
		{Fault{Part: 1, Outcome: policy.Failed, After: time.Second}, 0, 0},
		{Fault{Part: 1, Except: 5 * time.Second, Outcome: policy.Unavailable}, .01, .03},
	} {
		s := equal("", "", 1000, 1, 10, always(10))
		c.fault.From, c.fault.To = minutes, 2*minutes
		s.Faults = []Fault{c.fault}
		r := Play(s, TokenBucket, NoFields,
			Contender{Policy: func(*Scenario) policy.Policy { return policy.Fixed{} }}, 1, 0)
		sent, served := sum(r.Sent[60:120]), sum(r.Served[60:120])
		if part := float64(served) / float64(sent); part < c.least || part > c.most {
			t.Errorf("%+v: %d of %d served", c.fault, served, sent)
		}
		if refused := sum(r.Refusals); (refused > 0) != (c.fault.Outcome == policy.Throttled) {
			t.Errorf("%+v: %d refused", c.fault, refused)
		}
		if sum(r.Sent[:59])-sum(r.Served[:59]) > 2 { // some are under way
			t.Errorf("%+v: %d of %d served before it", c.fault, sum(r.Served[:59]), sum(r.Sent[:59]))
		}
	}
}

// An incident is judged by the counts by second and by replica.
func TestWantsAreCounted(t *testing.T) {
	r := Result{Served: make([]int, 240), Refusals: make([]int, 240), Sent: make([]int, 240),
		shares: make([][]float64, 24)}
	for i := range r.Served {
		r.Served[i], r.Refusals[i] = 10, 0
		if i >= 100 && i < 130 {
			r.Refusals[i] = 10
		}
	}
	for i := range r.shares {
		r.shares[i] = []float64{10, 10}
		if i >= 12 {
			r.shares[i][1] = 0
		}
	}
	s := Scenario{}
	for what, got := range map[string][2]float64{
		"used":             {r.Used(10*time.Second, 20*time.Second, 20), .5},
		"fair":             {r.Fair(0, 2*time.Minute), 1},
		"unfair":           {r.Fair(2*time.Minute, 4*time.Minute), .5},
		"the worst minute": {r.WorstMinute(&s), 1. / 3},
		"a minute of a fault": {
			r.WorstMinute(&Scenario{Faults: []Fault{{From: 90 * time.Second, To: 130 * time.Second}}}), 0},
	} {
		if math.Abs(got[0]-got[1]) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got[0], got[1])
		}
	}
	if w := (Want{Goal: 1, Most: true}); !w.Holds(1) || w.Holds(1.1) {
		t.Error("a goal that is the most")
	}
	if w := (Want{Goal: 1}); !w.Holds(1) || w.Holds(.9) {
		t.Error("a goal that is the least")
	}
}
