package main

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient/examples/fleet/upstream"
)

// holds adds a permit of a replica.
func (r *record) holds(id int, from, to time.Duration) {
	r.Logs[onSlots] = append(r.Logs[onSlots], entry{int32(id), to, from, from})
}

// hush lets the sources of a replica be silent.
func (r *record) hush(id int, in span) {
	for _, s := range hushed {
		r.Lives[id-1].Mutes[s] = []span{in}
	}
	f := fleet{record: *r}
	f.countSilences()
	*r = f.record
}

// steps steps the wall clock of a replica.
func (r *record) steps(id int, at, ahead time.Duration) {
	r.Lives[id-1].Steps = append(r.Lives[id-1].Steps, clockStep{span{at, at}, ahead})
}

// TestJudgeSlots is about bound 5: four replicas hold seven permits all the time.
func TestJudgeSlots(t *testing.T) {
	const tooMany = "bound 5, slots: 8 in flight at "
	for _, c := range []struct {
		name   string
		change func(*record)
		want   []string
	}{
		{"one too many", func(r *record) { r.holds(4, 5*sec+10*ms, 5*sec+50*ms) },
			[]string{tooMany + "5.010 s, 7 allowed, and too many for 0.040 s in all"}},
		{"another one's ordinal twice", func(r *record) {
			for at := 3 * sec; at < 5*sec; at += 100 * ms {
				r.holds(4, at, at+100*ms)
			}
		}, []string{tooMany + "3.000 s, 7 allowed, and too many for 2.000 s in all"}},
		{"before an ordinal may be another's", func(r *record) {
			r.happened(onSlots, 5*sec)
			r.holds(4, 6900*ms, 6950*ms)
		}, []string{tooMany}},
		{"as it may be another's", func(r *record) {
			r.happened(onSlots, 5*sec)
			r.holds(4, 7050*ms, 7300*ms)
		}, nil},
		{"when it is another's", func(r *record) {
			r.happened(onSlots, 5*sec)
			r.holds(4, 7200*ms, 7300*ms)
		}, []string{tooMany}},
		{"a join seen late", func(r *record) { joinedSlots(r, 400*ms); r.holds(5, 5200*ms, 6*sec) }, nil},
		{"a join that was seen", func(r *record) {
			joinedSlots(r, 400*ms)
			r.holds(5, 5700*ms, 6*sec)
		}, []string{tooMany}},
		{"a join seen later than allowed", func(r *record) {
			joinedSlots(r, 4*sec)
			r.holds(5, 8500*ms, 9*sec)
		}, []string{tooMany, "slots: from 7.700 s to 9.000 s not all of 5"}},
		{"under a permit that a stopped process has", func(r *record) {
			stoppedSlots(r)
			r.Lives[0].Stops = []span{{2 * sec, 4 * sec}}
		}, nil},
		{"under one that runs", stoppedSlots, []string{"bound 5, slots: 9 in flight"}},
		{"fewer than half", func(r *record) {
			r.silence(onSlots, 1, span{0, never})
			r.silence(onSlots, 2, span{0, never})
		}, []string{"slots: 42.9 % of the limit was used"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := calm()
			c.change(&r)
			finds(t, judge(r), c.want)
		})
	}
}

// joinedSlots lets a fifth replica join at 5 s, which the others notice so much later.
func joinedSlots(r *record, late time.Duration) {
	l := life{ID: 5, Born: 5 * sec, Died: never, End: &ending{}}
	l.believes(onSlots, 5, 5*sec, 5*sec)
	r.Lives = append(r.Lives, l)
	r.changed(onSlots, 5*sec, 5)
	for i := range r.Lives[:4] {
		r.Lives[i].believes(onSlots, 5, 5*sec, 5*sec+late)
	}
}

// stoppedSlots lets the first replica hold its two permits for two seconds, while another one has two more.
func stoppedSlots(r *record) {
	r.silence(onSlots, 1, span{1950 * ms, 4 * sec})
	for range 2 {
		r.holds(1, 2*sec-10*ms, 4*sec)
		r.holds(4, 2100*ms, 3900*ms)
	}
}

// TestJudgeSilence is about a source that says nothing.
func TestJudgeSilence(t *testing.T) {
	const from = 2 * sec
	for _, c := range []struct {
		name   string
		change func(*record)
		want   []string
	}{
		{"past the hold-down", func(r *record) { r.hush(2, span{from, from + 4*sec}) }, nil},
		{"past HintMaxAge, and nothing follows", func(r *record) { r.hush(2, span{from, from + 6*sec}) },
			[]string{"slots: replica 2 believes in 4 at 7.150 s: silent for longer than 5s, when 6 count"}},
		{"past HintMaxAge", func(r *record) {
			r.Lives[1].believes(onSlots, 6, 7*sec, 7*sec+ms)
			r.Lives[1].believes(onSlots, 4, 8*sec+200*ms, 8*sec+200*ms)
			r.hush(2, span{from, from + 6*sec})
		}, nil},
		{"one that does not speak again", func(r *record) {
			r.Lives[1].believes(onSlots, 6, 7*sec, 7*sec+ms)
			r.hush(2, span{from, never})
		}, nil},
		{"the fallback without a silence", func(r *record) {
			r.Lives[1].believes(onSlots, 6, 7*sec, 7*sec)
			r.Lives[1].believes(onSlots, 4, 8*sec, 8*sec)
		}, []string{"slots: from 7.000 s to 8.000 s"}},
		{"the fallback for too long", func(r *record) {
			r.Lives[1].believes(onSlots, 6, 3*sec, 3*sec)
			r.hush(2, span{-2 * sec, 4 * sec})
		}, []string{"slots: from 6.700 s to 10.000 s"}},
		{"a join meanwhile, learned when it is over", func(r *record) {
			joined(r, 3*sec)
			r.hush(1, span{4 * sec, 7900 * ms})
		}, nil},
		{"a join meanwhile, learned too late", func(r *record) {
			joined(r, 4*sec)
			r.hush(1, span{4 * sec, 5900 * ms})
		}, []string{"bounds 2 and 3, file", "file: from"}},
		{"fewer than there were", func(r *record) {
			r.Lives[1].believes(fromFile, 3, 5*sec, 5*sec)
			r.Lives[1].believes(fromFile, 4, 6*sec, 6*sec)
			r.hush(2, span{from, from + 4*sec})
		}, []string{"file: from 5.000 s to 6.000 s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := calm()
			c.change(&r)
			finds(t, judge(r), c.want)
		})
	}
}

// TestJudgeFailover: a failover excuses what changes meanwhile, and no smaller pool.
func TestJudgeFailover(t *testing.T) {
	for _, c := range []struct {
		n    int
		to   time.Duration
		want []string
	}{
		{4, 6 * sec, nil},
		{5, 8 * sec, nil},
		{1, 6 * sec, []string{"bounds 2 and 3, cluster",
			"cluster: from 5.500 s to 6.000 s not all of 4 replicas agree with the truth, one " +
				"believes in 1"}},
	} {
		r := calm()
		r.Faults[fromCluster] = []span{{3 * sec, 5 * sec}}
		r.Events = []event{{At: 5 * sec, Kind: kindFailover, Mend: true,
			On: [sources]bool{fromCluster: true}}}
		if c.n == 5 { // one of five has died
			r.Truth[fromCluster] = []turn{{0, 5}, {4 * sec, 4}}
			r.Events = slices.Insert(r.Events, 0, event{At: 4 * sec, Kind: kindKill, On: counting})
			for i := range r.Lives {
				r.Lives[i].Beliefs[fromCluster][0].Replicas = 5
				r.Lives[i].believes(fromCluster, 4, c.to, c.to)
				r.silence(fromCluster, i+1, span{0, never})
				r.send(fromCluster, i+1, 0, r.Length, 50*ms)
			}
		} else {
			r.Lives[2].believes(fromCluster, c.n, 5500*ms, 5500*ms)
			r.Lives[2].believes(fromCluster, 4, c.to, c.to)
		}
		if c.n == 1 {
			r.silence(fromCluster, 3, span{5400 * ms, 6 * sec})
			r.send(fromCluster, 3, 5500*ms, 6*sec, 10*ms)
		}
		finds(t, judge(r), c.want)
	}
}

// TestJudgeWindows is about bound 11: four replicas share one event in each window, in turns.
func TestJudgeWindows(t *testing.T) {
	// the quota of one window in each
	again := func(r *record) { r.send(onWindows, 2, 5500*ms, 8*sec, windowPer) }
	for _, c := range []struct {
		name   string
		change func(*record)
		want   []string
	}{
		{"one more than there is", func(r *record) { r.send(onWindows, 2, 5260*ms, 5261*ms, ms) },
			[]string{"bound 11, windows, replica 2",
				"bound 11, windows: 2 left from 5.250 s to 5.500 s, 1.00 allowed"}},
		{"a step opens one", func(r *record) {
			r.steps(2, 5*sec, -time.Hour)
			r.send(onWindows, 2, 5010*ms, 5011*ms, ms)
		}, nil},
		{"and no two", func(r *record) {
			r.steps(2, 5*sec, -time.Hour)
			r.send(onWindows, 2, 5010*ms, 5012*ms, ms)
		}, []string{"5.250 s, 7.75 allowed, with one window more for each of 1 steps of its clock"}},
		{"two steps open two", func(r *record) {
			r.steps(2, 5*sec, -time.Hour)
			r.steps(2, 5100*ms, 0)
			r.send(onWindows, 2, 5010*ms, 5012*ms, ms)
		}, nil},
		{"a step that opens one after the other", func(r *record) { r.steps(2, 5*sec, -time.Hour); again(r) },
			[]string{"bound 11, windows, replica 2"}},
		{"another's step", func(r *record) { r.steps(3, 5*sec, -time.Hour); again(r) },
			[]string{"bound 11, windows, replica 2"}},
		{"two in one window", func(r *record) { shifted(r, 0) }, []string{"bound 11, windows: 2 left"}},
		{"two in one window whose clocks differ", func(r *record) {
			shifted(r, 0)
			r.steps(3, 0, windowPer)
		}, nil},
		{"two in one window whose clocks were stepped alike", func(r *record) {
			shifted(r, 0)
			for id := 1; id <= 4; id++ {
				r.steps(id, 0, time.Hour)
			}
		}, []string{"bound 11, windows: 2 left"}},
		{"two with one ordinal", func(r *record) {
			shifted(r, 0)
			r.Lives[2].Places[onWindows][0].Ordinal = 2
		}, nil},
		{"that left in one window, but could before", func(r *record) { shifted(r, windowPer-10*ms) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := calm()
			c.change(&r)
			finds(t, judge(r), c.want)
		})
	}
}

// shifted lets the third replica have the windows of the second, where it had room for so long.
func shifted(r *record, room time.Duration) {
	for i := range r.Logs[onWindows] {
		if e := &r.Logs[onWindows][i]; e.Replica == 3 {
			e.Sent -= windowPer
			e.Admitted = e.Sent
			e.Could = e.Sent - room
		}
	}
}

// TestJudgeGoesOn: windows and turns must not stop for good.
func TestJudgeGoesOn(t *testing.T) {
	for _, s := range []source{onWindows, onTurns} {
		for _, c := range []struct {
			in     span
			change func(*life)
			want   []string
		}{
			{span{5 * sec, 13 * sec}, func(*life) {}, nil},
			{span{5 * sec, 16 * sec}, func(*life) {},
				[]string{s.String() + ": replica 4 got nothing from 4."}},
			{span{15 * sec, never}, func(l *life) {
				l.Steps = []clockStep{{span{15 * sec, 15 * sec}, -time.Hour}}
			}, []string{"to 30.000 s, believes in 4, its clock is ahead by -1h0m0s"}},
			{span{5 * sec, 16 * sec}, func(l *life) { l.Stops = []span{{6 * sec, 10 * sec}} }, nil},
			{span{15 * sec, never}, func(l *life) { l.Died = 20 * sec }, nil},
		} {
			r := calmFor(30 * sec)
			r.silence(s, 4, c.in)
			c.change(&r.Lives[3])
			v := judge(r)
			v.Broken = slices.DeleteFunc(v.Broken, func(text string) bool {
				return !strings.HasPrefix(text, s.String()+": replica")
			})
			finds(t, v, c.want)
		}
	}
}

// TestWhatIsLeftOutIsSaid: a machine without redis-server has no Cluster, and one without Go no clocks that
// can be stepped.
func TestWhatIsLeftOutIsSaid(t *testing.T) {
	r := calm()
	r.Logs[fromCluster], r.Absent[fromCluster] = nil, "no server"
	r.Skip[laneCluster], r.Skip[laneClock] = "no server", errNoBuild.Error()
	v := judge(r)
	finds(t, v, nil)
	text := v.text(r)
	for _, want := range []string{
		"There is no Redis Cluster: no server.", "Failovers were left out: no server.",
		"0 wall clocks stepped",
		"left out: it takes the go command",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "| cluster |") {
		t.Error(text)
	}
}

// TestCommands: a replica does what it is ordered to, and reports it.
func TestCommands(t *testing.T) {
	var said bytes.Buffer
	r := &replica{clock: upstream.NewClock(), out: json.NewEncoder(&said)}
	r.config = config{Replicas: 4, Limit: 100, Burst: 4}
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	if r.paths[fromCluster] != nil {
		t.Error("a path without a Cluster")
	}
	var ahead atomicStep
	t.Cleanup(func() { stepWall = nil })
	stepWall = ahead.set
	r.obey(
		json.NewDecoder(
			strings.NewReader(`{"Mute":[0,4,3,-1,99]} {"Speak":[0]} {"Step":-3600000000000} broken`)))
	if !r.paths[onSlots].silent.Load() || r.paths[fromFile].silent.Load() || ahead.ns != -int64(time.Hour) {
		t.Errorf("slots are silent: %v, the file: %v, the clock is ahead by %d",
			r.paths[onSlots].silent.Load(), r.paths[fromFile].silent.Load(), ahead.ns)
	}
	begin := r.clock.Now()
	p := process{since: func(at int64) time.Duration { return time.Duration(at - begin + int64(time.Hour)) }}
	for dec := json.NewDecoder(&said); dec.More(); {
		var m message
		if err := dec.Decode(&m); err != nil {
			t.Fatal(err)
		}
		p.note(m)
	}
	l := p.life
	if m := l.Mutes[fromFile]; len(m) != 1 || m[0].To == never {
		t.Errorf("%+v", m)
	}
	if m := l.Mutes[onSlots]; len(m) != 1 || m[0].To != never || len(l.Mutes[fromCluster]) != 0 {
		t.Errorf("%+v", l.Mutes)
	}
	if len(l.Steps) != 1 || l.ahead(math.MaxInt64) != -time.Hour || l.ahead(0) != 0 {
		t.Errorf("%+v", l.Steps)
	}
}

type atomicStep struct{ ns int64 }

func (s *atomicStep) set(ns int64) { s.ns = ns }
