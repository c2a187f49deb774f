package sim

import (
	"fmt"
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
		"steady": {got[Steady], 10. / 6010}, "fell": {got[Fell], 4}, "both": {got[Converged], 7},
		"overshoot": {got[Overshoot], 2}, "wait": {got[Wait99], 178}, "score": {got[Score], score(29./30, 21./1471, .8)},
		"best score": {score(1.1, 0, 1), 1}, "a bad score": {score(.5, .5, 0), .1},
	} {
		if math.Abs(x[0]-x[1]) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, x[0], x[1])
		}
	}
}

// TestPauses: a pause of more than a second runs for as long as it was announced, ten minutes at most, and ends with
// the first request that is served in it. No later one has to be waited out.
func TestPauses(t *testing.T) {
	const second = time.Second
	refused := func(after time.Duration) policy.Feedback {
		return policy.Feedback{Outcome: policy.Throttled, RetryAfter: after}
	}
	served := policy.Feedback{Outcome: policy.Success}
	p := pause{}
	for i, x := range []struct {
		reached time.Duration
		policy.Feedback
		runs, ends time.Duration // the last instant at which it runs; 0: it does not
	}{
		{10 * second, refused(second), 0, 10 * second},
		{20 * second, refused(5 * second), 25 * second, 26 * second},
		{19 * second, served, 25 * second, 26 * second}, // it came before the refusal
		{21 * second, refused(2 * second), 25 * second, 26 * second},
		{25 * second, served, 25 * second, 26 * second}, // an end may be rounded up
		{1000 * second, refused(365 * 24 * 3600 * second), 1600 * second, 1601 * second},
		{1500 * second, served, 0, 1500 * second},
		{1700 * second, refused(60 * second), 0, 1701 * second},
	} {
		p.note(&request{reached: x.reached, Feedback: x.Feedback}, x.reached+second/2)
		if x.runs > 0 && !p.runs(x.runs) || p.runs(x.ends) {
			t.Errorf("answer %d: %+v", i, p)
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

// underRace: what has one goroutine is not played under the race detector, which would take minutes.
func underRace(t *testing.T) {
	if info, _ := debug.ReadBuildInfo(); slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("one goroutine, and minutes under the race detector")
	}
}

// TestEqualClientsBecomeEqual: equal clients are served equally, in each run and more so in the mean, whatever each
// has lived through. Four that start with 1.5 to 4 times their share have two minutes for that; twenty that start a
// factor of a hundred apart, with a right share or none, have one.
func TestEqualClientsBecomeEqual(t *testing.T) {
	underRace(t)
	const seeds = 8
	play := func(p policy.Policy, s Scenario, kind Kind, from int, each, mean float64) {
		sum := 0.0
		for seed := range uint64(seeds) {
			r := Play(s, kind, NoFields, pacing(p), seed)
			served := make([]float64, s.Replicas)
			for _, row := range r.shares[from:] {
				for i, x := range row {
					served[i] += x
				}
			}
			jain := Fairness(served)
			if sum += jain / seeds; !(jain >= each) {
				t.Errorf("%T, %s, %s, seed %d: Jain's index is %.3f", p, s.Title, kind, seed, jain)
			}
		}
		if sum < mean {
			t.Errorf("%T, %s, %s: the mean of Jain's index is %.3f", p, s.Title, kind, sum)
		}
	}
	for _, times := range []float64{1.5, 2, 4} {
		s := equal("", fmt.Sprint(times, " shares"), full, 4, times*full/4, always(times*full/4))
		play(policy.Tracking{}, s, TokenBucket, 2, .9, .97)
		play(policy.Tracking{}, s, GCRA, 2, .9, .97)
	}
	for title, hints := range map[string][]Change{"a share": always(full / 20), "no share": nil} {
		s := equal("", title, full, 20, 2*full/20, hints)
		s.Length = 6 * minutes
		s.Start = func(i int) float64 { return full / 20 / 10 * math.Pow(100, float64(i)/19) }
		play(policy.AIMD{}, s, TokenBucket, 1, .92, .95)
		play(policy.Tracking{}, s, TokenBucket, 1, .92, .95)
	}
}

// TestRefusedForEver: while everything is refused for long, single probes go on; a minute after the upstream is back
// its limit is used again.
func TestRefusedForEver(t *testing.T) {
	underRace(t)
	for _, n := range []int{1, 5} {
		for _, hints := range [][]Change{nil, always(50 / float64(n))} {
			for _, used := range []int{1, 10} {
				for _, dark := range []int{2, 10, 30} { // minutes
					s := equal("", "", 50, n, 75/float64(n), hints)
					s.Outage = Span{time.Duration(used) * minutes, time.Duration(used+dark) * minutes}
					s.Length = s.Outage.To + 2*minutes
					r := Play(s, TokenBucket, NoFields, pacing(policy.Tracking{}), 1)
					for k := used + 1; k < used+dark; k++ {
						if probes := float64(sum(r.Sent[60*k:60*k+60])) / float64(n); probes < 5 || probes > 12 {
							t.Errorf("%d replicas, hints %v: %v probes of each in minute %d, dark since %d", n, hints, probes, k, used)
						}
					}
					back := 60 * (used + dark + 1)
					if served := float64(sum(r.Served[back:back+15])) / 15 / 50; served < .9 || served > 1.1 {
						t.Errorf("%d replicas, hints %v: %v of the limit, a minute after %d dark ones", n, hints, served, dark)
					}
				}
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
