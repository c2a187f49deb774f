package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestKnew(t *testing.T) {
	beliefs := []belief{{3, 0, 10 * ms}, {4, 100 * ms, 110 * ms}, {3, 500 * ms, 520 * ms}}
	for _, tt := range []struct {
		n        int
		from, to time.Duration
		want     time.Duration
		ok       bool
	}{
		{3, 0, 1000 * ms, 10 * ms, true},
		{3, 50 * ms, 1000 * ms, 50 * ms, true},
		{3, 109 * ms, 1000 * ms, 109 * ms, true}, // until something else was seen
		{3, 110 * ms, 1000 * ms, 520 * ms, true},
		{4, 0, 1000 * ms, 110 * ms, true},
		{4, 200 * ms, 1000 * ms, 200 * ms, true},
		{4, 600 * ms, 1000 * ms, 1000 * ms, false},
		{4, 0, 110 * ms, 110 * ms, false},
		{3, 110 * ms, 520 * ms, 520 * ms, false},
		{5, 0, 1000 * ms, 1000 * ms, false},
	} {
		if got, ok := knew(beliefs, tt.n, tt.from, tt.to); got != tt.want || ok != tt.ok {
			t.Errorf("%d from %v to %v: %v, %v, want %v, %v", tt.n, tt.from, tt.to, got, ok, tt.want, tt.ok)
		}
	}
	if got, ok := knew(nil, 3, ms, 2*ms); got != 2*ms || ok {
		t.Errorf("nobody believes anything: %v, %v", got, ok)
	}
}

// TestEntitled: nothing before the first hint, and between two looks the larger share.
func TestEntitled(t *testing.T) {
	beliefs := []belief{{3, 0, 10 * ms}, {4, 100 * ms, 110 * ms}, {2, 500 * ms, 520 * ms}}
	f := &fleet{plan: plan{Limit: 120, Burst: 12}, all: []*process{{state: message{Beliefs: beliefs}}, {}}}
	f.settle()
	want := []step{{}, {0, 40, 4}, {110 * ms, 30, 3}, {500 * ms, 60, 6}}
	if got := f.all[0].steps; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := f.all[1].steps; !slices.Equal(got, []step{{}}) {
		t.Errorf("without a belief: %+v", got)
	}
}

// counted is a fleet that has run: two replicas, and a third that joined after a second and was killed after
// three. The last of them noticed a time after each.
func counted(pool string, join, kill time.Duration) *fleet {
	p := plan{Limit: 100, Burst: 10, Replicas: 2, Pool: pool}
	f := &fleet{plan: p, up: newUpstream(p.Limit, p.Burst, p.Tell)}
	second := time.Second
	all := []belief{{2, 0, 5 * ms}, {3, second, second + 5*ms}, {2, 3 * second, 3*second + 2100*ms}}
	late := []belief{all[0], {3, second, second + join}, {2, 3 * second, 3*second + kill}}
	f.all = []*process{
		{id: 1, state: message{Beliefs: all}},
		{id: 2, state: message{Beliefs: late}},
		{id: 3, state: message{Beliefs: []belief{{3, second, second + 5*ms}}}},
	}
	f.platform = &platform{}
	f.phases = []phase{
		{To: second, Alive: []int{1, 2}},
		{of: "join", From: second, said: second + 20*ms, To: 3 * second, Alive: []int{1, 2, 3}},
		{of: "kill", From: 3 * second, said: 3 * second, To: 8 * second, Alive: []int{1, 2}},
	}
	return f
}

func TestLateness(t *testing.T) {
	for _, tt := range []struct {
		pool       string
		join, kill time.Duration
		stall      time.Duration
		broken     string // or, with a question mark, left open
	}{
		{"file", 200 * ms, 2200 * ms, 0, ""},
		{"file", 670 * ms, 2650 * ms, 0, ""}, // the platform said it after 20 ms; 250 ms are the machine's
		{"file", 671 * ms, 2651 * ms, 0, "join kill"},
		{"file", 671 * ms, 2651 * ms, ms, ""},
		{"dns", 770 * ms, 2751 * ms, 0, "kill"},
		{"redis", 771 * ms, 3750 * ms, 0, "join"},
		{"redis", 500 * ms, 3751 * ms, 0, "kill"},
		{"redis", 2 * time.Second, 3 * time.Second, 0, "join"},    // just when the next change came
		{"redis", time.Minute, 3 * time.Second, 307 * ms, "join"}, // there were 1.98 s
		{"redis", time.Minute, 3 * time.Second, 308 * ms, "join?"},
		{"redis", 500 * ms, time.Minute, 312 * ms, "kill"}, // there were 5 s
		{"redis", 500 * ms, time.Minute, 313 * ms, "kill?"},
	} {
		var broken []string
		for _, c := range counted(tt.pool, tt.join, tt.kill).lateness(tt.stall) {
			switch {
			case strings.Contains(c.Text, "too short a time"):
				broken = append(broken, c.Of+"?")
			case !c.Held:
				broken = append(broken, c.Of)
			}
		}
		if got := strings.Join(broken, " "); got != tt.broken {
			t.Errorf("%s, %v and %v late, stall %v: broken %q, want %q", tt.pool, tt.join, tt.kill, tt.stall,
				got, tt.broken)
		}
	}
}

// TestSettleChargesTheLastToKnow: the growth lasts until the last replica knew, by bound 3.
func TestSettleChargesTheLastToKnow(t *testing.T) {
	f := counted("dns", 400*ms, 2200*ms)
	f.settle()
	if g := f.growth; g.from != time.Second || g.to != 1400*ms || g.extra < 19.99 || g.extra > 20.01 {
		t.Errorf("%+v, want 1 s to 1.4 s and 100/s x 0.4 s x (3/2 - 1)", g)
	}
	if got, want := f.all[2].steps, []step{{}, f.share(time.Second, 3)}; !slices.Equal(got, want) {
		t.Errorf("the joiner's steps: %+v, want %+v", got, want)
	}
}

// TestAFleetCounts plays each way to count, at first all at the same time. Their fleets have only the
// machine in common, which is too much for it now and then. Such a run may leave it open whether all was
// noticed in time. A replica that loses the processor between two readings of a clock is blamed for some
// milliseconds. So what is missing in a run is looked for twice more, one fleet at a time.
func TestAFleetCounts(t *testing.T) {
	t.Parallel()
	plays := map[string]func() []string{"a platform that falls silent": func() []string { return silence(t) }}
	for pool := range countings {
		plays["-pool "+pool] = func() []string { return counts(t, pool) }
	}
	var mu sync.Mutex
	again := map[string]func() []string{}
	var running sync.WaitGroup
	for what, play := range plays {
		running.Go(func() {
			if missing := play(); len(missing) > 0 {
				mu.Lock()
				defer mu.Unlock()
				again[what] = play
			}
		})
	}
	running.Wait()
	for what, play := range again {
		if len(play()) > 0 {
			if missing := play(); len(missing) > 0 {
				t.Errorf("%s: no good run in three, missing %q", what, missing)
			}
		}
	}
}

// counts plays a run whose phases are just long enough for all that has to be noticed in them, and returns what is
// missing in what it says.
func counts(t *testing.T, pool string) (missing []string) {
	status, said := play("-act", "division", "-pool", pool, "-join", "500ms", "-kill", "2500ms", "-duration", "8s",
		"-limit", "50", "-burst", "6", "-want", "30")
	if status == exitFailed {
		t.Logf("-pool %s:\n%s", pool, said)
		return []string{"a run"}
	}
	if strings.Contains(said, "Every bound held.") != (status == exitHeld) {
		t.Errorf("-pool %s: exit status %d\n%s", pool, status, said)
	}
	missing = lacks(said, "3 replicas know how many they are",
		"replica 4 joins, its bucket empty; no replica is notified", "all know of the join; noticed: ",
		"replica 2 is killed", "all know of the kill; noticed: ", "held    the fleet", "held    replica 4",
		"held    join", "held    kill", "Every bound held.")
	if len(missing) > 0 {
		t.Logf("-pool %s\n%s", pool, said)
	}
	return missing
}

// silence is the proof that the verdict can fail: the platform falls silent before the join.
func silence(t *testing.T) (missing []string) {
	p, err := parsePlan([]string{"-pool", "file", "-join", "500ms", "-kill", "0", "-duration", "4s"}, io.Discard)
	if err != nil {
		t.Error(err)
		return nil
	}
	var out bytes.Buffer
	f, err := runFleet(t.Context(), p, newScreen(&out, p), func(f *fleet) []moment {
		f.platform.say = func([]int) error { return nil }
		return division(f)
	})
	if err != nil {
		t.Error(err)
		return nil
	}
	r := f.ruling()
	if join := r.Checks[len(r.Checks)-1]; join.Of != "join" || !strings.Contains(join.Text, "not noticed") {
		t.Errorf("a join that nobody heard of: %+v", join)
	}
	if g, end := f.growth, f.phases[1].To; g.to != end {
		t.Errorf("growth %+v, want one that lasts to the end, %v", g, end)
	}
	if strings.Contains(out.String(), "all know") {
		t.Errorf("somebody noticed:\n%s", out.String())
	}
	if held(r.Checks) {
		missing = append(missing, "a broken bound")
	}
	return missing
}
