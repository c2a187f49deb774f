package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// judged checks that no goal is missed on a fine record, and that each spoilt one misses exactly the goal
// that it is named after.
func judged[R any](t *testing.T, fine func() R, of func(R) section, spoilt map[string]func(*R)) {
	t.Helper()
	if s := of(fine()); s.missed() > 0 {
		t.Errorf("a fine record: %v", s.verdicts)
	}
	for name, spoil := range spoilt {
		r := fine()
		spoil(&r)
		var out bytes.Buffer
		s := of(r)
		s.print(&out)
		is := ""
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, "**MISSED**") {
				is += line
			}
		}
		if !strings.Contains(is, name) || s.missed() != strings.Count(is, "\n") ||
			s.missed() != 1+strings.Count(name, "\n") {
			t.Errorf("%s: missed is\n%sin\n%s", name, is, out.String())
		}
	}
}

func TestThroughputIsJudged(t *testing.T) {
	fine := func() raced {
		r := raced{rounds: 3, keys: 1000, arrived: 4000, admitted: 1000, remembered: 1000}
		for _, name := range []string{"quotient proxy", "bare", "nginx", "haproxy"} {
			r.contenders = append(r.contenders, contender{name: name, rate: []float64{98, 99, 100},
				keys: 1000, asked: 1000,
				p50: []time.Duration{1, 2, 3}, p99: []time.Duration{2000, 3000, 4000}})
		}
		r.contenders[1].rate = []float64{100, 100, 100}
		return r
	}
	judged(t, fine, raced.section, map[string]func(*raced){
		"requests/s, at least": func(r *raced) { r.contenders[0].rate = []float64{96, 96, 120} },
		"p99, at most 1.1": func(r *raced) {
			r.contenders[0].p99 = []time.Duration{2300, 3400,
				4000}
		},
		"as many as were sent":               func(r *raced) { r.arrived-- },
		"as many as quotient proxy received": func(r *raced) { r.admitted-- },
		"remembers":                          func(r *raced) { r.remembered = 1 },
		"nginx: distinct paths":              func(r *raced) { r.contenders[2].keys = 999 },
	})
	if s := (raced{}).section(); s.missed() == 0 {
		t.Error("nothing was measured, and nothing is missed")
	}
}

func TestOverheadIsJudged(t *testing.T) {
	us := time.Microsecond
	fine := func() costs {
		return costs{
			easy:  cost{quantiles{10, 20 * us, 100 * us}, quantiles{10, 10 * us, 50 * us}, 10},
			awake: cost{quantiles{10, 200 * us, 500 * us}, quantiles{10, 100 * us, 100 * us}, 10},
			bare:  quantiles{10, 10 * us, 50 * us},
		}
	}
	judged(t, fine, costs.section, map[string]func(*costs){
		"woken: p50":           func(r *costs) { r.awake.proxy.P50 = 201 * us },
		"woken: p99":           func(r *costs) { r.awake.proxy.P99 = 501 * us },
		"woken: requests":      func(r *costs) { r.awake.limiter.Count-- },
		"within limits: p50 b": func(r *costs) { r.easy.proxy.P50 = 41 * us },
		"within limits: p99 beside the limiter and a bare": func(r *costs) { r.easy.proxy.P99 = 501 * us },
		"within limits: requests":                          func(r *costs) { r.easy.asked++ },
	})
	if s := (costs{}).section(); s.missed() == 0 {
		t.Error("nothing was measured, and nothing is missed")
	}
}

func TestBlockedRequestsAreJudged(t *testing.T) {
	fine := func() held {
		return held{blocked: 1000, before: weight{20 << 20, 10 << 20, 50},
			full: weight{40 << 20, 30 << 20, 2050}, after: 60,
			answered: 1000 + blockedKeys, arrived: 1000 + blockedKeys}
	}
	judged(t, fine, held.section, map[string]func(*held){
		"resident memory":    func(r *held) { r.full.resident = 61 << 20 },
		"answered with 200":  func(r *held) { r.answered-- },
		"at the upstream th": func(r *held) { r.arrived++ },
		"order":              func(r *held) { r.disordered = 1 },
		"waiting":            func(r *held) { r.waiting = 1 },
		"whose clients had":  func(r *held) { r.reached = 1 },
		"goroutines":         func(r *held) { r.after = 50 + ofAnIdle*blockedKeys + mostMore + 1 },
	})
	if s := (held{}).section(); s.missed() == 0 {
		t.Error("nothing was measured, and nothing is missed")
	}
}

func TestHostilePathsAreJudged(t *testing.T) {
	fine := func() attacked {
		q := quantiles{10, 100, 1000}
		return attacked{distinct: 1000, asked: 1000, quiet: q, ordinary: q, bad: quantiles{10, 100, 2900},
			windows: 3, least: goodLimit, most: goodLimit,
			before: memory{own: 10 << 20}, own: 80 << 20, peak: 100 << 20, bound: 20 << 20, keys: hostileKeys}
	}
	judged(t, fine, attacked.section, map[string]func(*attacked){
		"memory at its most":    func(r *attacked) { r.own = 85 << 20 },
		"a good path":           func(r *attacked) { r.least-- },
		"a good path gets":      func(r *attacked) { r.most++ },
		"exactly 8":             func(r *attacked) { r.windows = 0 },
		"beside a quiet run":    func(r *attacked) { r.quiet.P99 = 900 },
		"beside as much ordina": func(r *attacked) { r.ordinary.P99 = 900 },
		"distinct hostile":      func(r *attacked) { r.distinct-- },
		"keys":                  func(r *attacked) { r.keys++ },
	})
	if s := (attacked{}).section(); s.missed() == 0 {
		t.Error("nothing was measured, and nothing is missed")
	}
}

func TestReloadsAreJudged(t *testing.T) {
	fine := func() reloaded {
		all := func(statuses ...int) seen {
			s := seen{statuses: make(map[int]int)}
			for _, status := range statuses {
				s.asked, s.statuses[status] = s.asked+10, 10
			}
			return s
		}
		r := reloaded{asked: 10, good: 9, broken: 1, applied: 9, failed: 2, steady: all(200),
			moved: all(200, 429), once: all(200, 429),
			steadyPace: 1, movedPace: 1, onceAll: onceLimit}
		for range 10 {
			r.weights = append(r.weights, weight{50 << 20, 20 << 20, 100})
		}
		return r
	}
	judged(t, fine, reloaded.section, map[string]func(*reloaded){
		"every broken one":       func(r *reloaded) { r.failed = 0 },
		"every good file":        func(r *reloaded) { r.applied = 8 },
		"put in force":           func(r *reloaded) { r.broken = 0 },
		"steady: every request":  func(r *reloaded) { r.steady.lost, r.steady.asked = 1, 11 },
		"moving: every request":  func(r *reloaded) { r.moved.statuses = map[int]int{200: 10, 502: 10} },
		"once: every request":    func(r *reloaded) { r.once = seen{} },
		"steady: requests for a": func(r *reloaded) { r.steadyPace = 1.02 },
		"moving: requests for a": func(r *reloaded) { r.movedPace = 1.02 },
		"once: requests":         func(r *reloaded) { r.onceAll++ },
		"resident memory": func(r *reloaded) {
			r.weights[8].resident, r.weights[9].resident = 56<<20,
				56<<20
		},
		"heap of": func(r *reloaded) {
			r.weights[8].heap, r.weights[9].heap = 23<<20,
				23<<20
		},
		"goroutines of the last ": func(r *reloaded) {
			r.weights[8].goroutines, r.weights[9].goroutines = 109,
				109
		},
	})
	if s := (reloaded{}).section(); s.missed() == 0 {
		t.Error("nothing was measured, and nothing is missed")
	}
}

func TestFleetsAreJudged(t *testing.T) {
	fine := func() shifts {
		f := &trio{paths: []string{"/a"}, seen: seen{asked: 10, statuses: map[int]int{200: 10}}}
		for i, want := range []int{0, 99, 99, 0, 100} {
			f.tallies = append(f.tallies, tally{name: fmt.Sprint("window ", i), least: max(90, want),
				most: max(90, want), latest: time.Second, window: time.Minute, want: want,
				atMost: fleetLimit})
		}
		return shifts{f}
	}
	judged(t, fine, func(fs shifts) section { return fs.section(time.Minute) }, map[string]func(*shifts){
		"window 1: exactly": func(fs *shifts) { (*fs)[0].tallies[1].least-- },
		"window 2: exactly": func(fs *shifts) { (*fs)[0].tallies[2].most++ },
		"window 4: exactly": func(fs *shifts) { (*fs)[0].tallies[4].latest = 55 * time.Second },
		"window 3: never":   func(fs *shifts) { (*fs)[0].tallies[3].most = 101 },
		"window 0: never":   func(fs *shifts) { (*fs)[0].tallies[0].most = 101 },
		"every request":     func(fs *shifts) { (*fs)[0].seen.statuses = map[int]int{200: 9, 502: 1} },
	})
}
