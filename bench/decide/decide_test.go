package main

import (
	"context"
	"errors"
	"io"
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
	b := &bench{rounds: 1, keys: 100, slice: 20 * time.Millisecond, fleet: brief, dir: t.TempDir()}
	for _, part := range b.parts() {
		s, err := part.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range s.Verdicts {
			if !v.OK && !strings.Contains(v.Name, "beside") && !strings.Contains(v.Name, "in window") {
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
	for name, spoil := range map[string]func(r *race){
		"":                        func(*race) {},
		"service beside nothing":  func(r *race) { r.all[0].together.rate[0] = 101 },
		"p99 beside nothing":      func(r *race) { r.all[1].together.p99[0] = 121 },
		"requests/s beside Redis": func(r *race) { r.all[3].together.rate[0] = 57 },
	} {
		r := &race{}
		for _, rate := range []float64{100, 85, 80, 50} {
			one := []float64{1}
			f := figures{rate: []float64{rate}, p50: one, p99: []float64{100}, cpu: one}
			r.all = append(r.all, &contender{alone: f, together: f})
		}
		spoil(r)
		missed(t, name, r.price())
	}
	one := minutes
	one.windows = 1
	for n, name := range map[int]string{200: "", 194: "", 206: "", 193: "in window 1", 207: "in window 1"} {
		missed(t, name, one.report([][]int{{n}, {50}, {50}}))
	}
}

// missed holds that one goal is missed, whose name has these words; none where there are no words.
func missed(t *testing.T, words string, s rig.Section) {
	t.Helper()
	n := 0
	for _, v := range s.Verdicts {
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

// TestALostQuestionIsSeen holds that a crowd counts what is over a limit, and is not content without an answer.
func TestALostQuestionIsSeen(t *testing.T) {
	lost := errors.New("lost")
	open := func() (asker, func(), error) {
		return func(_ context.Context, key int) (bool, error) {
			if key == 6 {
				return false, lost
			}
			return key%2 == 1, nil
		}, func() {}, nil
	}
	for keys, want := range map[int]error{6: nil, 7: lost} {
		c := &contender{open: open, times: 1}
		if err := c.play(t.Context(), 2, keys, 0, true); !errors.Is(err, want) {
			t.Errorf("%d keys: %v", keys, err)
		}
		if want == nil && (c.over != 3 || c.asked != 2+keys) {
			t.Errorf("%d of %d are over: each key is asked about once, and each connection asks first", c.over, c.asked)
		}
	}
}
