package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/bench/rig"
	"github.com/quotient-go/quotient/internal/needed"
)

// TestMain lets the test program be what it starts: a server.
func TestMain(m *testing.M) {
	serveSelf()
	const fasthttp = "github.com/valyala/fasthttp." // ends what it has started some time later
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(fasthttp+"(*HostClient).connsCleaner"),
		goleak.IgnoreAnyFunction(fasthttp+"updateServerDate.func1"))
}

// TestPartsPlay plays each part small. Only counts are held: a busy machine misses times.
func TestPartsPlay(t *testing.T) {
	if testing.Short() {
		t.Skip("short: real processes")
	}
	if got := command([]string{"more"}, io.Discard, io.Discard); got != 2 {
		t.Errorf("an argument too many: exit status %d", got)
	}
	if _, err := rig.Find("redis-server"); err != nil {
		needed.Without(t, "redis-server", err.Error())
	}
	brief := fleetLoad{unit: "year", window: time.Second, windows: 1, every: 20 * time.Millisecond}
	b := &bench{rounds: 1, keys: 100, slice: 50 * time.Millisecond, fleet: brief, dir: t.TempDir()}
	for _, part := range b.parts() {
		s, err := part.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range s.Verdicts {
			if !v.OK && !strings.Contains(v.Name, "beside") && !strings.Contains(v.Name, "in the window with") {
				t.Error(v)
			}
		}
		if len(s.Rows) < 1 || t.Failed() {
			t.Error(s)
		}
	}
}

// TestJudge holds that good figures miss no goal, and that each one which is spoilt misses one.
func TestJudge(t *testing.T) {
	names := []string{"requests/s beside nothing", "p99 beside nothing", "requests/s beside Redis"}
	for spoilt, want := range append([]string{""}, names...) {
		r := race{crowds: []crowd{{conns, 1}}}
		for _, rate := range []float64{100, 85, 80, 50} {
			f := &figures{rate: []float64{rate}, p50: []float64{1}, p99: []float64{100}, cpu: []float64{1}}
			r.all = append(r.all, &contender{by: map[crowd]*figures{r.crowds[0]: f}})
		}
		of := func(i int) *figures { return r.all[i].by[r.crowds[0]] }
		[]func(){func() {}, func() { of(0).rate[0] = 101 }, func() { of(1).p99[0] = 131 }, func() { of(3).rate[0] = 57 }}[spoilt]()
		missed(t, want, r.service().Verdicts)
	}
	steady := func(n int, from, every time.Duration) (all []time.Duration) {
		for i := range n {
			all = append(all, from+time.Duration(i)*every)
		}
		return all
	}
	good := admissions{steady(200, 0, 100*time.Millisecond), steady(50, 0, time.Second), steady(50, 0, time.Second)}
	two := minutes
	two.windows = 1
	for name, n := range map[string]int{"": 206, "with the fewest": 193, "with the most": 207} {
		times := slices.Clone(good)
		times[0] = steady(n, 0, 100*time.Millisecond)
		missed(t, name, two.report(times).Verdicts)
	}
	if got := good.bound(); got != limit+40+4 {
		t.Errorf("bound %d: in 4 s the first admits 40, and one of the others 4", got)
	}
}

// missed holds that one goal is missed, whose name has these words; none where there are no words.
func missed(t *testing.T, words string, verdicts []rig.Verdict) {
	t.Helper()
	n := 0
	for _, v := range verdicts {
		if v.OK {
			continue
		}
		if n++; words == "" || !strings.Contains(v.Name, words) {
			t.Errorf("%q: missed %q: %s", words, v.Name, v.Seen)
		}
	}
	if words != "" && n != 1 {
		t.Errorf("%q: missed %d goals", words, n)
	}
}

// TestALostQuestionIsSeen holds that no crowd is content when a question is not answered.
func TestALostQuestionIsSeen(t *testing.T) {
	lost := errors.New("lost")
	open := func() (asker, io.Closer, error) {
		return func(_ context.Context, key int) (bool, error) {
			if key == 1 {
				return false, lost
			}
			return key == 2, nil
		}, closer(func() error { return nil }), nil
	}
	for keys, want := range []error{1: nil, 2: lost} {
		if keys == 0 {
			continue
		}
		if _, err := (crowd{2, 2}).run(t.Context(), open, keys, time.Second, true); !errors.Is(err, want) {
			t.Errorf("%d keys: %v", keys, err)
		}
	}
}
