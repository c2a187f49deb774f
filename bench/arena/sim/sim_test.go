package sim

import (
	"math"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// part is a policy whose controllers run at a part of the share.
type part float64

func (p part) New(uint64) policy.Controller { return p }
func (p part) Next(_ policy.Sample, b policy.Bounds) policy.Pace {
	return policy.Pace{Rate: float64(p) * b.Share}
}

func pacing(p policy.Policy) Contender {
	return Contender{Name: "test", Policy: func(*Scenario) policy.Policy { return p }}
}

func find(name string) Scenario {
	return Scenarios[slices.IndexFunc(Scenarios, func(s Scenario) bool { return s.Name == name })]
}

// TestSameSeedSameRun: two runs of one seed are equal, and of two seeds are not. Gossip draws nothing from the
// stream of a run: a controller that ignores it plays as without.
func TestSameSeedSameRun(t *testing.T) {
	for _, name := range strings.Fields("S1 S2 S8 S12a S15 O2 O3a O3b O3c O5 O6 O9") {
		s, alone, oracle := find(name), pacing(policy.AIMD{}), Contender{Shared: true}
		s.Length = 90 * time.Second
		gossips := Contender{Policy: alone.Policy, Gossip: true}
		play := func(c Contender, seed uint64) Result { return Play(s, s.Kinds[0], AllFields, c, seed) }
		run := play(alone, 5)
		if !reflect.DeepEqual(run, play(alone, 5)) || !reflect.DeepEqual(play(oracle, 5), play(oracle, 5)) {
			t.Errorf("%s: two runs of one seed differ", name)
		}
		if reflect.DeepEqual(run.Sent, play(alone, 6).Sent) {
			t.Errorf("%s: two seeds gave the same run", name)
		}
		if !reflect.DeepEqual(run, play(gossips, 5)) {
			t.Errorf("%s: gossip gave another run", name)
		}
	}
}

// TestPaceIsKept: over any run, no more is sent than the paces allow. In an outage nothing is served.
func TestPaceIsKept(t *testing.T) {
	for _, p := range []float64{.5, 1, 3} {
		s := find("S1")
		res := Play(s, TokenBucket, NoFields, pacing(part(p)), 3)
		seconds := s.Length.Seconds()
		if sent := float64(sum(res.Sent)); sent > p*100*seconds+10*max(1, p) || sent < .97*min(p*100, 200)*seconds {
			t.Errorf("%v of the share: %v sent in %v s", p, sent, seconds)
		}
	}
	r := Play(find("O4"), TokenBucket, NoFields, pacing(part(1)), 3)
	if a, b, c := sum(r.Served[50:60]), sum(r.Served[60:80]), sum(r.Served[81:91]); a < 900 || b > 0 || c < 900 {
		t.Errorf("an outage of 20 s: %d served in the ten seconds before, %d in it, %d in ten after", a, b, c)
	}
}

// TestMeter: figures of counts that are made by hand. The limit halves at 60 s and is followed after 4 s, and
// doubles at 120 s, followed after 10 s.
func TestMeter(t *testing.T) {
	s := equal("T", "", 100, 3, 100, nil)
	s.Length, s.Group = 3*time.Minute, func(i int) bool { return i > 0 }
	s.Limits = []Change{{time.Minute, 50}, {2 * time.Minute, 100}}
	s.Changes = []time.Duration{time.Minute, 2 * time.Minute}
	m := newMeter(&s)
	for i := range 180 {
		if m.Sent[i] = 100; 64 <= i && i < 130 {
			m.Sent[i] = 50
		}
		m.Served[i] = min(m.Sent[i], int(s.limitAt(time.Duration(i)*time.Second)))
		m.refused[i] = m.Sent[i] - m.Served[i]
		m.shares[i/60] = []float64{1000, 30, 10}
		m.waits = append(m.waits, time.Duration(i)*time.Second)
	}
	m.refused[100] = 10 // the only one that is not soon after a change
	got := m.result().Of
	for what, x := range map[string][2]float64{
		"goodput": {got[Goodput], 14500. / 15000}, "refused": {got[Refused], 210. / 14710}, "Jain": {got[Jain], .8},
		"steady": {got[Steady], 10. / 6010}, "fell": {got[Fell], 4}, "rose": {got[Rose], 10}, "both": {got[Converged], 7},
		"overshoot": {got[Overshoot], 2}, "wait": {got[Wait99], 178}, "score": {got[Score], score(29./30, 21./1471, .8)},
		"best score": {score(1.1, 0, 1), 1}, "a bad score": {score(.5, .5, 0), .1},
	} {
		if math.Abs(x[0]-x[1]) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, x[0], x[1])
		}
	}
}

// TestScenariosAreSound: what a scenario says of itself fits together.
func TestScenariosAreSound(t *testing.T) {
	for _, s := range Scenarios {
		for at := time.Duration(0); at < s.Length; at += time.Second {
			live := 0
			for i := range s.Replicas {
				if d := s.demand(i, at); d < 0 || d > s.Most(i)+1e-9 {
					t.Fatalf("%s: replica %d wants %v at %v, at most %v", s.Name, i, d, at, s.Most(i))
				}
				if s.Live(i, at) {
					live++
				}
			}
			if live == 0 || s.Name == "O5" && live != 9 && live != 10 || s.limitAt(at) <= 0 != s.Outage.Has(at) {
				t.Fatalf("%s: %d run at %v, with a limit of %v", s.Name, live, at, s.limitAt(at))
			}
		}
	}
}

// TestHintTooHighLeavesClientsEqual: four equal clients of 100 requests a second start with 1.5 to 4 times
// their share. After two minutes they are served equally: nine tenths in each run, and more in the mean.
func TestHintTooHighLeavesClientsEqual(t *testing.T) {
	info, _ := debug.ReadBuildInfo()
	if slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("one goroutine, and minutes under the race detector")
	}
	const seeds = 10
	for _, kind := range []Kind{TokenBucket, GCRA} {
		for _, times := range []float64{1.5, 2, 4} {
			s := equal("", "", full, 4, times*full/4, always(times*full/4))
			mean := 0.0
			for seed := range uint64(seeds) {
				r := Play(s, kind, NoFields, pacing(policy.Tracking{}), seed)
				served := make([]float64, s.Replicas)
				for _, row := range r.shares[2:] {
					for i, x := range row {
						served[i] += x
					}
				}
				jain := Fairness(served)
				if mean += jain / seeds; !(jain >= .9) {
					t.Errorf("%s, %v shares, seed %d: Jain's index is %.3f", kind, times, seed, jain)
				}
			}
			if mean < .97 {
				t.Errorf("%s, %v shares: the mean of Jain's index is %.3f", kind, times, mean)
			}
		}
	}
}

// listener is a controller that always wants ten, and keeps the reports.
type listener struct{ news policy.Fleet }

func (l *listener) New(uint64) policy.Controller { return l }

func (l *listener) Next(_ policy.Sample, b policy.Bounds) policy.Pace {
	if l.news = (policy.Fleet{}); b.Fleet != nil {
		l.news = *b.Fleet
	}
	return policy.Pace{Rate: 10}
}

func (l *listener) Report(time.Duration) policy.Report {
	return policy.Report{Wanting: true, Rate: 10, Refused: 1}
}

// TestGossipSums: all reports are summed exactly, by each, though one packet of twenty is lost.
func TestGossipSums(t *testing.T) {
	for name, n := range map[string]float64{"S1": 10, "S6": 50, "S3": 20} {
		var all []*listener
		Play(find(name), TokenBucket, NoFields, Contender{Gossip: true, Policy: func(*Scenario) policy.Policy {
			all = append(all, &listener{})
			return all[len(all)-1]
		}}, 1)
		if len(all) != int(n) {
			t.Errorf("%s: %d controllers", name, len(all))
		}
		for i, l := range all {
			want := policy.Fleet{Weight: n, Wanting: n, Rate: 10 * n, Refused: n, Limit: l.news.Limit}
			if l.news != want {
				t.Errorf("%s: replica %d knows %+v at the end, want %+v", name, i, l.news, want)
			}
		}
	}
}
