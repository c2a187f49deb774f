package main

import (
	"bytes"
	"io"
	"net"
	"net/rpc"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A teller is a replica that reports one pool size after the other.
type teller []int

func (s *teller) Report(_ struct{}, known *Report) error {
	known.Replicas, *s = (*s)[0], (*s)[1:]
	return nil
}

// TestEntitled: nothing before the first hint, and between two looks the larger share.
func TestEntitled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, its := net.Pipe()
		server := rpc.NewServer()
		if err := server.RegisterName("replica", &teller{0, 3, 3, 4, 2, 0}); err != nil {
			t.Fatal(err)
		}
		go server.ServeConn(its)
		p := &process{replica: rpc.NewClient(ours), steps: []step{{}}}
		f := &fleet{plan: plan{Limit: 120, Burst: 12}, up: newUpstream(120, 12, tellNothing), all: []*process{p}}
		for range 5 {
			if err := p.look(f); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * ms)
		}
		want := []step{{}, {0, 40, 4, 0}, {30 * ms, 30, 3, 0}, {30 * ms, 60, 6, 0}}
		if !slices.Equal(p.steps, want) {
			t.Errorf("%+v, want %+v", p.steps, want)
		}
		_ = p.replica.Close()
	})
}

// counted is a fleet that has run: two replicas, and a third that joined after a second and was killed after
// three. The last of them noticed a time after each, or, when that is longer than the phase, not at all.
func counted(pool string, join, kill time.Duration) *fleet {
	const second = time.Second
	knew := map[int]time.Duration{1: 5 * ms, 3: 5 * ms}
	f := &fleet{plan: plan{Limit: 100, Burst: 10, Replicas: 2, Pool: pool}, phases: []phase{
		{To: second, Alive: []int{1, 2}},
		{of: "join", From: second, said: second + 20*ms, To: 3 * second, Alive: []int{1, 2, 3}, knew: knew},
		{of: "kill", From: 3 * second, said: 3 * second, To: 8 * second, Alive: []int{2}, knew: map[int]time.Duration{}},
	}}
	for i, late := range []time.Duration{join, kill} {
		if ph := f.phases[i+1]; late < ph.To-ph.From {
			ph.knew[2] = late
		}
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
		{"static", 270 * ms, 250 * ms, 0, ""}, // the platform said it after 20 ms; 250 ms are the machine's
		{"static", 271 * ms, 251 * ms, 0, "join kill"},
		{"file", 670 * ms, 2650 * ms, 0, ""},
		{"file", 671 * ms, 2651 * ms, 0, "join kill"},
		{"file", 671 * ms, 2651 * ms, ms, ""},
		{"dns", 770 * ms, 2751 * ms, 0, "kill"},
		{"redis", 771 * ms, 3750 * ms, 0, "join"},
		{"redis", 500 * ms, 3751 * ms, 0, "kill"},
		{"redis", time.Minute, 3 * time.Second, 307 * ms, "join"}, // there were 1.98 s
		{"redis", time.Minute, 3 * time.Second, 308 * ms, "join?"},
		{"redis", 500 * ms, time.Minute, 312 * ms, "kill"}, // there were 5 s
		{"redis", 500 * ms, time.Minute, 313 * ms, "kill?"},
	} {
		f := counted(tt.pool, tt.join, tt.kill)
		f.stood = tt.stall
		var broken []string
		for _, c := range f.lateness() {
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

// TestTheLastToKnowIsCharged: the growth lasts until the last replica knew, by bound 3.
func TestTheLastToKnowIsCharged(t *testing.T) {
	got := counted("dns", 400*ms, 2200*ms).budget()
	want := budget{{0, 100, 10, 0}, {time.Second, 150, 10, 50}, {1400 * ms, 100, 10, 0}} // 100/s x 0.4 s x (3/2 - 1)
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestAFleetCounts plays each way to count, at first all at the same time. Their fleets have only the
// machine in common, which is too much for it now and then. Such a run may leave it open whether all was
// noticed in time. A replica that loses the processor between two readings of a clock is blamed for some
// milliseconds. So what is missing in a run is looked for twice more, one fleet at a time.
func TestAFleetCounts(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var again []string
	var running sync.WaitGroup
	for pool := range countings {
		running.Go(func() {
			if len(counts(t, pool)) > 0 {
				mu.Lock()
				defer mu.Unlock()
				again = append(again, pool)
			}
		})
	}
	running.Wait()
	for _, pool := range again {
		if len(counts(t, pool)) > 0 {
			if missing := counts(t, pool); len(missing) > 0 {
				t.Errorf("-pool %s: no good run in three, missing %q", pool, missing)
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
		"replica 4 joins, its bucket empty", "all know of the join: ",
		"replica 2 is killed", "all know of the kill: ", "held    the fleet", "held    replica 4",
		"held    join", "held    kill", "Every bound held.")
	if len(missing) > 0 {
		t.Logf("-pool %s\n%s", pool, said)
	}
	return missing
}

// TestSilence is the proof that the verdict on a change can fail: the platform falls silent before the join.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := parsePlan([]string{"-act", "division", "-kill", "0"}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		f := fake(p, newScreen(&out, p))
		if err := f.run(t.Context(), func(f *fleet) []moment {
			f.platform.say = func([]int) error { return nil }
			return division(f)
		}); err != nil {
			t.Fatal(err)
		}
		_, checks := f.ruling()
		if join := checks[len(checks)-1]; join.Of != "join" || join.Held || !strings.Contains(join.Text, "not noticed") {
			t.Errorf("a join that nobody heard of: %+v", join)
		}
		if b, end := f.budget(), f.phases[1].To; b[2].from != end {
			t.Errorf("%+v, want a growth that lasts to the end, %v", b, end)
		}
		if strings.Contains(out.String(), "all know") {
			t.Errorf("somebody noticed:\n%s", out.String())
		}
	})
}
