package sim

import (
	"math"
	"reflect"
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

func find(t *testing.T, name string) Scenario {
	for _, s := range append(Given(), Own()...) {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no scenario %q", name)
	return Scenario{}
}

func TestSameSeedSameRun(t *testing.T) {
	for _, name := range []string{"S1", "S7", "S8", "S12a", "S15", "O3b", "O5", "O6"} {
		s := find(t, name)
		s.Length = 90 * time.Second
		kind := s.AllKinds()[0]
		for _, c := range []Contender{pacing(policy.AIMD{}), {Name: "oracle", Shared: true}} {
			a := Play(s, kind, AllFields, c, 5, 0)
			b := Play(s, kind, AllFields, c, 5, 0)
			if !reflect.DeepEqual(a, b) {
				t.Errorf("%s, %s: two runs of one seed differ", name, c.Name)
			}
			// The oracle sends the limit, whatever the seed.
			if !c.Shared && reflect.DeepEqual(a.Sent, Play(s, kind, AllFields, c, 6, 0).Sent) {
				t.Errorf("%s, %s: two seeds gave the same run", name, c.Name)
			}
		}
	}
}

// TestTraceChangesNothing, and it shows who runs and the limit.
func TestTraceChangesNothing(t *testing.T) {
	s := find(t, "O5")
	c := pacing(policy.AIMD{})
	a, b := Play(s, TokenBucket, NoFields, c, 1, 0), Play(s, TokenBucket, NoFields, c, 1, time.Second)
	trace := b.Trace
	b.Trace = nil
	if !reflect.DeepEqual(a, b) {
		t.Error("the trace changed the run")
	}
	if len(trace) < 230 {
		t.Fatalf("%d points in four minutes", len(trace))
	}
	for i, p := range trace {
		if p.At != time.Duration(i)*time.Second || p.Limit != 100 || len(p.Rates) != s.Replicas {
			t.Fatalf("point %d: %+v", i, p)
		}
		for k, x := range p.Rates {
			// A replica joins within 50 ms of its time.
			if live := s.Live(k, p.At-50*time.Millisecond) && s.Live(k, p.At); live && x <= 0 &&
				p.At > time.Second {
				t.Fatalf("at %v replica %d runs at %v", p.At, k, x)
			}
			if !s.Live(k, p.At-1) && !s.Live(k, p.At) && x != 0 {
				t.Fatalf("at %v replica %d is away and runs at %v", p.At, k, x)
			}
		}
	}
}

// TestPaceIsKept: over any run, no more is sent than the paces allow, and no more served than the upstream
// does.
func TestPaceIsKept(t *testing.T) {
	for _, p := range []float64{.5, 1, 3} {
		s := find(t, "S1")
		res := Play(s, TokenBucket, NoFields, pacing(part(p)), 3, 0)
		seconds := s.Length.Seconds()
		if sent := float64(sum(res.Sent)); sent > p*100*seconds+10*max(1, p) ||
			sent < .97*min(p*100, 200)*seconds {
			t.Errorf("%v of the share: %v sent in %v s", p, sent, seconds)
		}
		if served := float64(sum(res.Served)); served > 100*seconds+100 {
			t.Errorf("%v served", served)
		}
		if res.Wait99 > maxWait.Seconds() {
			t.Errorf("waited %v s", res.Wait99)
		}
	}
}

func TestMeterJain(t *testing.T) {
	for _, row := range []struct {
		served []float64
		group  func(int) bool
		want   float64
	}{
		{[]float64{5, 5}, nil, 1},
		{[]float64{3, 1}, nil, .8},
		{[]float64{4, 0, 0, 0}, nil, .25},
		{[]float64{90, 1, 1}, func(i int) bool { return i > 0 }, 1},
		{[]float64{0, 0}, nil, 1},
	} {
		s := Scenario{Replicas: len(row.served), Length: time.Minute, Group: row.group}
		m := newMeter(&s, 0)
		m.byReplica[0] = row.served
		if got := m.jain(0); math.Abs(got-row.want) > 1e-9 {
			t.Errorf("%v: %v, want %v", row.served, got, row.want)
		}
	}
}

// TestMeterConverges: the limit halves at 60 s, and what is sent follows after a while.
func TestMeterConverges(t *testing.T) {
	for _, row := range []struct {
		name            string
		late            int // seconds
		after           int // sent each second before it follows
		took, overshoot float64
	}{
		{"at once", 0, 100, 0, 1},
		{"after four seconds", 4, 100, 4, 2},
		{"a fifth too much in one of three seconds is near enough", 4, 60, 3, 1.2},
		{"a deep cut first", 10, 5, 10, 1},
		{"never", 1000, 100, 117, 2},
	} {
		s := equal("T", "", 100, 2, 100, nil)
		s.Length = 3 * time.Minute
		s.Limits = []Change{{time.Minute, 50}}
		s.Changes = []time.Duration{time.Minute}
		m := newMeter(&s, 0)
		for i := range m.sentBy {
			switch {
			case i < 60:
				m.sentBy[i] = 100
			case i < 60+row.late:
				m.sentBy[i] = row.after
			default:
				m.sentBy[i] = 50
			}
		}
		var res Result
		m.follows(&res)
		if res.Converged != row.took || res.Fell != row.took || res.Rose != 0 ||
			math.Abs(res.Overshoot-row.overshoot) > 1e-9 {
			t.Errorf("%s: %+v; want %v s and %v", row.name, res, row.took, row.overshoot)
		}
	}
}

// TestMeterTellsFallFromRise: the limit halves at 60 s and is followed after 4 s, and doubles at 120 s,
// followed after 10 s.
func TestMeterTellsFallFromRise(t *testing.T) {
	s := equal("T", "", 100, 2, 100, nil)
	s.Length = 3 * time.Minute
	s.Limits = []Change{{time.Minute, 50}, {2 * time.Minute, 100}}
	s.Changes = []time.Duration{time.Minute, 2 * time.Minute}
	m := newMeter(&s, 0)
	for i := range m.sentBy {
		m.sentBy[i] = 100
		if 64 <= i && i < 130 {
			m.sentBy[i] = 50
		}
	}
	var res Result
	m.follows(&res)
	if res.Fell != 4 || res.Rose != 10 || res.Converged != 7 || res.Overshoot != 2 {
		t.Errorf("%+v", res)
	}
}

func TestMeterSteady(t *testing.T) {
	s := equal("T", "", 100, 2, 100, nil)
	s.Changes = []time.Duration{2 * time.Minute}
	s.Faults = []Fault{{From: 3 * time.Minute, To: 3*time.Minute + 10*time.Second, Part: 1,
		Outcome: policy.Throttled}}
	for _, row := range []struct {
		second int
		counts bool
	}{{10, false}, {59, false}, {60, true}, {119, true}, {120, false}, {139, false}, {140, true},
		{180, false}, {209, false}, {210, true}} {
		m := newMeter(&s, 0)
		m.refusedBy[row.second] = 1
		m.servedBy[70] = 3
		if got := m.steady(); got != map[bool]float64{false: 0, true: .25}[row.counts] {
			t.Errorf("a refusal at %d s: steady %v", row.second, got)
		}
	}
}

func TestMeterUseful(t *testing.T) {
	s := equal("T", "", 10, 1, 20, nil)
	s.Length = 10 * time.Second
	s.Limits = []Change{{5 * time.Second, 30}}
	m := newMeter(&s, 0)
	for i := range m.arrivedBy {
		m.arrivedBy[i] = 19
	}
	if got := m.useful(0); got != 5*10+5*19 {
		t.Errorf("useful: %v", got)
	}
}

func TestScore(t *testing.T) {
	for _, row := range []struct {
		r    Result
		want float64
	}{
		{Result{Goodput: 1, Jain: 1}, 1},
		{Result{Goodput: 1.1, Jain: 1}, 1},
		{Result{Goodput: 1, Jain: 0}, .8},
		{Result{Goodput: .5, Refused: .5, Jain: 1}, .125},
	} {
		if got := row.r.Score(); math.Abs(got-row.want) > 1e-12 {
			t.Errorf("%+v: %v, want %v", row.r, got, row.want)
		}
	}
}

// TestScenariosAreSound: what a scenario says of itself fits together.
func TestScenariosAreSound(t *testing.T) {
	names := map[string]bool{}
	for _, s := range append(Given(), Own()...) {
		if names[s.Name] || s.Title == "" {
			t.Errorf("%q: a name twice, or no title", s.Name)
		}
		names[s.Name] = true
		for at := time.Duration(0); at < s.Length; at += time.Second {
			for i := range s.Replicas {
				if d := s.Demand(i, at); d < 0 || d > s.Most(i)+1e-9 {
					t.Fatalf("%s: replica %d wants %v at %v, at most %v", s.Name, i, d, at, s.Most(i))
				}
			}
		}
		for _, list := range [][]Change{s.Limits, s.Hints} {
			for k := range list {
				if list[k].Value < 0 || k > 0 && list[k].At <= list[k-1].At {
					t.Errorf("%s: changes out of order, or below zero: %+v", s.Name, list[k])
				}
			}
		}
		for _, c := range s.Changes {
			if c < 0 || c >= s.Length {
				t.Errorf("%s: a change at %v of %v", s.Name, c, s.Length)
			}
		}
	}
}

func TestRollingRestartKeepsTen(t *testing.T) {
	s := find(t, "O5")
	for at := time.Duration(0); at < s.Length; at += 500 * time.Millisecond {
		n := 0
		for i := range s.Replicas {
			if s.Live(i, at) {
				n++
			}
		}
		if n < 9 || n > 10 {
			t.Fatalf("%d run at %v", n, at)
		}
	}
}

func TestLies(t *testing.T) {
	refused := Answer{Outcome: policy.Throttled, RetryAfter: time.Second,
		Quota: policy.Quota{Limit: 100, Remaining: 0, Reset: time.Second}}
	for _, row := range []struct {
		name string
		lie  func(time.Duration, *Answer)
		at   time.Duration
		is   func(a Answer) bool
	}{
		{"a minute", lieRetryAfter, 0, func(a Answer) bool { return a.RetryAfter == time.Minute }},
		{"none", lieRetryAfter, 60 * time.Second, func(a Answer) bool { return a.RetryAfter == 0 }},
		{"a year", lieRetryAfter, 120 * time.Second,
			func(a Answer) bool { return a.RetryAfter > 1000*time.Hour }},
		{"negative", lieRetryAfter, 180 * time.Second, func(a Answer) bool { return a.RetryAfter < 0 }},
		{"half", lieConstant, 0, func(a Answer) bool { return a.Quota.Remaining == 50 }},
		{"another quota", lieOtherWindow, time.Minute,
			func(a Answer) bool { return a.Quota.Remaining == 994000 && a.Quota.Reset == 59*time.Minute }},
		{"off by two", lieOffByTwo, 0, func(a Answer) bool {
			return a.Quota.Remaining == 2 && a.Quota.Reset == 3*time.Second
		}},
	} {
		a := refused
		row.lie(row.at, &a)
		if !row.is(a) || a.Outcome != policy.Throttled {
			t.Errorf("%s: %+v", row.name, a)
		}
	}
}
