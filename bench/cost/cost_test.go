package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// small is enough to see that a figure measures what it says.
func small() config {
	return config{rounds: 2, slice: time.Millisecond, cpus: []int{1, 2}, scale: 100}
}

func TestKeysAreDistinct(t *testing.T) {
	for _, ac := range allowCases {
		keys := max(1, ac.keys/10)
		tr, err := ac.traffic(keys)
		if err != nil {
			t.Fatal(err)
		}
		if len(tr.keys) != keys || len(tr.keys[0]) != keyLen {
			t.Errorf("%s: %d keys of %d bytes", ac.name, len(tr.keys), len(tr.keys[0]))
		}
		visited := make(map[string]bool)
		v := &tr.visitors(1)[0]
		v.run(func(k string) bool { visited[k] = true; return true }, drawn)
		if len(visited) != tr.distinct || tr.distinct < len(tr.keys)/4 {
			t.Errorf("%s: visited %d keys, said %d, of %d", ac.name, len(visited), tr.distinct, len(tr.keys))
		}
	}
}

func TestCheckKeysRefuses(t *testing.T) {
	key := makeKey("k-", 1)
	for _, bad := range [][]string{{""}, {key, key}, {key, key + "x"}} {
		if checkKeys(bad) == nil {
			t.Errorf("checkKeys(%q) = nil, want an error", bad)
		}
	}
}

func TestRaceRefusesRefusals(t *testing.T) {
	calls := 0
	third := contender{name: "admits two of three", run: func(_, n int) int {
		return count(n, func() bool { calls++; return calls%3 != 0 })
	}}
	if _, err := race(small(), 1, []contender{third}); err == nil ||
		!strings.Contains(err.Error(), third.name) {
		t.Errorf("race = %v, want an error that names the contender", err)
	}
}

func TestRaceRunsTheCheck(t *testing.T) {
	bad := errors.New("holds too little")
	who := contender{name: "x", run: func(_, n int) int { return n }, check: func() error { return bad }}
	if _, err := race(small(), 1, []contender{who}); !errors.Is(err, bad) {
		t.Errorf("race = %v, want %v", err, bad)
	}
}

func TestKeyedContendersEnforce(t *testing.T) {
	for _, m := range keyedPeers() {
		k, err := m.make(quota{burst: 5, per: time.Hour}, 1000, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range makeKeys("tenant-", 10) {
			if got := count(20, func() bool { return k.allow(key) }); got != 5 {
				t.Errorf("%s: %d of 20 admitted for %s, want 5", m.name, got, key)
			}
		}
		if err := k.holds(10); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if k.close != nil {
			k.close()
		}
	}
}

func TestSlotContendersBound(t *testing.T) {
	for _, s := range slotPeers() {
		got, err := fight(s, 20*time.Millisecond) // fails above the capacity
		if err != nil {
			t.Error(err)
		} else if got.spread < 1 || got.ns <= 0 {
			t.Errorf("%s: %+v", s.name, got)
		}
	}
}

func TestAttack(t *testing.T) {
	for _, m := range keyedPeers() {
		for _, hostile := range []int{attackKeys, 4 * attackKeys} {
			beyond, err := attack(m, hostile)
			if err != nil {
				t.Fatal(err)
			}
			// A plain LRU must fall for it, or the attack proves nothing.
			fooled := m.name == nameRateInLRU || m.name == nameThrottled
			if want := (attackVisits - 1) * attackBurst; fooled && beyond != want || !fooled && beyond != 0 {
				t.Errorf("%s, %d hostile keys: +%d (a plain LRU gives +%d)", m.name, hostile, beyond, want)
			}
		}
	}
}

func TestWeigh(t *testing.T) {
	const n = 20_000
	for _, m := range keyedPeers() {
		var w weighed
		if err := w.weighLive(m, n); err != nil {
			t.Errorf("%s: %v", m.name, err)
		} else if w.live < keyLen || w.live > 1000 {
			t.Errorf("%s: %v bytes a key, more than the key's %d and less than 1000 are plausible", m.name,
				w.live, keyLen)
		}
	}
}

func TestCrowd(t *testing.T) {
	for _, how := range []ending{wakeByRaise, wakeByCancel} {
		if _, err := quotientCrowd(500, how); err != nil {
			t.Errorf("ending %d: %v", how, err)
		}
	}
	if n, err := countTimers(500); n != 1 || err != nil {
		t.Errorf("%d timers for 500 waiters (%v), want 1", n, err)
	}
}

// TestFigures runs the timed figures on a small scale. Their goals are not judged here: times need a
// quiet machine and more rounds.
func TestFigures(t *testing.T) {
	for _, f := range figures() {
		if f.name == "memory" || f.name == "fairness" {
			// these take their time on any scale; TestWeigh and TestSlotContendersBound have their pieces
			continue
		}
		tables, err := f.run(small())
		if err != nil {
			t.Errorf("%s: %v", f.name, err)
			continue
		}
		for _, tb := range tables {
			var b strings.Builder
			tb.print(&b)
			if len(tb.rows) == 0 || len(tb.verdicts) == 0 || !strings.Contains(b.String(), tb.rows[0][0]) {
				t.Errorf("%s: incomplete table\n%s", f.name, &b)
			}
		}
	}
}

func TestVerdicts(t *testing.T) {
	all := []series{
		{"a", []sample{{100, 0}, {300, 0}, {200, 0}}},
		{"b", []sample{{50, 2}, {100, 2}, {100, 2}}},
	}
	for _, tt := range []struct {
		goal goal
		want float64
		met  bool
	}{
		{goal{"a", "b", times, 2}, 2, true}, // the median of 2, 3 and 2
		{goal{"a", "b", times, 1.9}, 2, false},
		{goal{"a", "", nanos, 200}, 200, true},
		{goal{"a", "b", nanos, 99}, 100, false},
		{goal{"b", "a", allocsEach, 2}, 2, true},
		{goal{"b", "", allocsEach, 1}, 2, false},
	} {
		if v := tt.goal.judge(all); v.value != tt.want || v.met() != tt.met {
			t.Errorf("%+v: %+v", tt.goal, v)
		}
	}
}

// TestTimeQuantile: of two seconds, one is spent in one long wait, one in a thousand short ones.
func TestTimeQuantile(t *testing.T) {
	waits := make([]time.Duration, 1000, 1001)
	for i := range waits {
		waits[i] = time.Millisecond
	}
	waits = append(waits, time.Second)
	for _, tt := range []struct {
		beyond float64
		want   time.Duration
	}{
		{0.25, 500 * time.Millisecond}, // half a second of arrivals waits longer than half a second
		{0.05, 900 * time.Millisecond},
		{0.0005, 999 * time.Millisecond},
	} {
		if got := timeQuantile(waits, tt.beyond); got != tt.want {
			t.Errorf("timeQuantile(%v) = %v, want %v", tt.beyond, got, tt.want)
		}
	}
}
