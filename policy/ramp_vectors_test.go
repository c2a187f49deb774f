package policy_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// vector is a row of testdata/ramp-vectors.json: one pod of several that share a pool of one-second windows.
type vector struct {
	Test    string
	Max     float64 // tokens a second, over all pods
	Min     float64
	Ramp    float64 `json:"ramp_s"`
	Pods    int
	Mode    []any     // its name and its parameters
	Ask     [][2]*int // how many (null: all there are), and the seconds that pass afterwards
	Deposit []int     // given back right after each call
	Want    []int
}

func vectors(t *testing.T) (rows []vector) {
	data, err := os.ReadFile("testdata/ramp-vectors.json")
	if err == nil {
		err = json.Unmarshal(data, &rows)
	}
	if err != nil || len(rows) != 51 {
		t.Fatalf("%d rows of 51: %v", len(rows), err)
	}
	return rows
}

// ramp is the policy of a row.
func (v *vector) ramp(t *testing.T) policy.Ramp {
	r := policy.Ramp{Start: v.Min / v.Max, Over: seconds(v.Ramp)}
	percent := func(i int) float64 { return v.Mode[i].(float64) / 100 }
	switch v.Mode[0] {
	case "scheduled":
		r.Mode = policy.RampScheduled
	case "relaxed":
		r.Mode = policy.RampRelaxed
	case "only_if_used":
		r.Mode, r.Threshold = policy.RampOnlyIfUsed, percent(1)
	case "go_back_n":
		r.Mode, r.Threshold, r.Back = policy.RampGoBack, percent(3), percent(2)
		r.CoolDown = seconds(v.Mode[1].(float64))
	default:
		t.Fatalf("unknown mode %v", v.Mode)
	}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	return r
}

// windows is a pool of one-second windows on top of a controller. It asks the controller again when a second
// is over and a request comes, as a limiter does. An eager one also gives it a sample of each take and each
// gift, and of seconds in which nothing has happened.
type windows struct {
	ctrl    policy.Controller
	bounds  policy.Bounds
	eager   bool
	now     time.Duration
	until   time.Duration
	rate    float64
	left    int // whole tokens of this window
	granted int // in this window, less what was given back
	sample  policy.Sample
}

func newWindows(p policy.Policy, ceiling float64, at time.Duration, eager bool) *windows {
	w := &windows{ctrl: p.New(1), bounds: policy.Bounds{Share: ceiling, Ceiling: ceiling},
		eager: eager, now: at}
	w.open()
	return w
}

// tell is one sample. A controller that gets samples of seconds without a request opens no window.
func (w *windows) tell() {
	w.sample.Now, w.sample.Sent = w.now, w.now
	pace := w.ctrl.Next(w.sample, w.bounds)
	w.rate, w.until, w.sample = pace.Rate, pace.Until, policy.Sample{}
}

// open begins a window. The rest of the last one is lost.
func (w *windows) open() {
	w.tell()
	w.left, w.granted = int(math.Floor(w.rate*(1+1e-9))), 0
}

// take takes as many of n as there are.
func (w *windows) take(n int) int {
	if w.now >= w.until && w.until > 0 {
		w.open()
	}
	got := min(n, w.left)
	w.left, w.granted = w.left-got, w.granted+got
	w.sample.Taken += float64(got)
	w.sample.Paced = w.sample.Paced || got < n
	w.nothing()
	return got
}

// deposit gives n back, never more than was granted.
func (w *windows) deposit(n int) int {
	n = min(n, w.granted)
	w.left, w.granted = w.left+n, w.granted-n
	w.sample.Taken -= float64(n)
	w.nothing()
	return n
}

func (w *windows) nothing() {
	for range 3 {
		if w.eager {
			w.tell()
		}
	}
}

func (w *windows) pass(d time.Duration) {
	w.now += d
	if !w.eager {
		return
	}
	for at := w.until; at < w.now; at = w.until { // seconds without a call
		now := w.now
		w.now = at
		w.tell()
		w.now = now
	}
}

// play plays a row and returns what each call got.
func (v *vector) play(w *windows) (got []int) {
	for i, ask := range v.Ask {
		n := math.MaxInt32
		if ask[0] != nil {
			n = *ask[0]
		}
		got = append(got, w.take(n))
		w.deposit(v.Deposit[i])
		w.pass(time.Duration(*ask[1]) * time.Second)
	}
	return got
}

// All rows come out as they stand, whenever the clock began, and however often the controller is called in
// between.
func TestRampVectors(t *testing.T) {
	since1970 := 56 * 365 * 24 * time.Hour
	for i, v := range vectors(t) {
		for _, start := range []time.Duration{0, since1970, since1970 + 700*time.Millisecond} {
			for _, eager := range []bool{false, true} {
				w := newWindows(v.ramp(t), v.Max/float64(v.Pods), start, eager)
				if got := v.play(w); !slices.Equal(got, v.Want) {
					t.Errorf("row %d, %s, %v, %v to %v by %d, from %v on, eager %v:\ngot  %v\nwant %v",
						i, v.Test, v.Mode, v.Min, v.Max, v.Pods, start, eager, got, v.Want)
				}
			}
		}
	}
}

// The first deviation from the original: the clock starts at creation. With a clock that counts from 1970
// `scheduled` was at the maximum at once.
func TestRampClockStartsAtCreation(t *testing.T) {
	v := vector{Max: 20, Min: 10, Ramp: 10, Pods: 2, Mode: []any{"scheduled"}}
	for _, at := range []time.Duration{0, time.Hour, 56 * 365 * 24 * time.Hour} {
		w, got := newWindows(v.ramp(t), 10, at, false), ""
		for range 4 {
			got += fmt.Sprint(w.take(100), " ")
			w.pass(3 * time.Second)
		}
		if want := "5 6 8 9 "; got != want {
			t.Errorf("a controller made at %v grants %s, want %s", at, got, want)
		}
	}
}

// The second: a deposit never exceeds what was granted. The pool clamps it, and a controller that gets more
// stays sound.
func TestRampDepositIsClamped(t *testing.T) {
	p := policy.Ramp{Mode: policy.RampGoBack, Start: 0.5, Over: 10 * time.Second}
	w := newWindows(p, 10, 0, false)
	if w.take(2); w.deposit(100) != 2 || w.take(100) != 5 {
		t.Error("what was never granted came back")
	}
	l := rampOf(p, 10)
	l.second(5, false)
	l.second(-1e9, false) // nonsense for the pool above: nothing is used in the first second, and no more
	l.second(5, false)
	l.second(5, false)
	near(t, "two seconds of use later", l.Rate, 6)
}
