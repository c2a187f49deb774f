package policy_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/policy"
)

// answered is one sample in seconds, and the rate that is wanted after it.
type answered struct {
	outcome   policy.Outcome
	now, sent float64
	paced     bool
	want      float64
}

func (h answered) sample() policy.Sample {
	at := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return policy.Sample{Outcome: h.outcome, Now: at(h.now), Sent: at(h.sent), Paced: h.paced}
}

func TestAIMD(t *testing.T) {
	const unknown, success, throttled = policy.Unknown, policy.Success, policy.Throttled
	inf := math.Inf(1)
	for _, c := range []struct {
		name   string
		ctrl   policy.AIMD
		bounds policy.Bounds
		rows   []answered
	}{
		{"starts at the share", policy.AIMD{}, policy.Bounds{Share: 20, Ceiling: 100},
			[]answered{{unknown, 0, 0, false, 20}}},
		{"starts at 5 where no share is known", policy.AIMD{}, policy.Bounds{Ceiling: inf},
			[]answered{{unknown, 0, 0, false, 5}}},
		{"never above the ceiling", policy.AIMD{}, policy.Bounds{Ceiling: 3},
			[]answered{{unknown, 0, 0, false, 3}}},
		{"halves and climbs by a twentieth of the share", policy.AIMD{},
			policy.Bounds{Share: 20, Ceiling: 40}, []answered{
				{unknown, 0, 0, false, 20}, {throttled, 1, 0.5, false, 10},
				{success, 2, 1.5, true, 11}, {success, 2.5, 2, true, 11.5},
			}},
		{"grows only when it held back", policy.AIMD{}, policy.Bounds{Share: 20, Ceiling: 40}, []answered{
			{unknown, 0, 0, false, 20}, {success, 1, 0, false, 20}, {success, 2, 0, true, 21},
			{success, 3, 0, false, 21},
		}},
		{"grows to the ceiling", policy.AIMD{Increase: 30}, policy.Bounds{Share: 20, Ceiling: 40}, []answered{
			{unknown, 0, 0, false, 20}, {success, 0.5, 0, true, 35}, {success, 1, 0, true, 40},
		}},
		{"a pause brings one second's growth", policy.AIMD{Increase: 2},
			policy.Bounds{Share: 20, Ceiling: 400}, []answered{
				{unknown, 0, 0, false, 20}, {success, 3600, 0, true, 22},
			}},
		{"grows by one where no share is known", policy.AIMD{}, policy.Bounds{Ceiling: inf}, []answered{
			{unknown, 0, 0, false, 5}, {success, 1, 0, true, 6},
		}},
		{"its own factors", policy.AIMD{Increase: 4, Decrease: 0.75}, policy.Bounds{Share: 20, Ceiling: 40},
			[]answered{
				{unknown, 0, 0, false, 20}, {throttled, 1, 0.5, false, 15}, {success, 1.5, 1, true, 17},
			}},
		{"factors that are none", policy.AIMD{Increase: inf, Decrease: math.NaN()},
			policy.Bounds{Share: 20, Ceiling: 40}, []answered{
				{unknown, 0, 0, false, 20}, {throttled, 1, 0.5, false, 10}, {success, 2, 1, true, 11},
			}},
		{"one cut for one round", policy.AIMD{}, policy.Bounds{Share: 20, Ceiling: 40}, []answered{
			{unknown, 0, 0, false, 20}, {throttled, 1, 0.5, false, 10},
			{throttled, 1.1, 0.6, false, 10}, {throttled, 1.2, 0.9, false, 10}, {throttled, 2, 1.5, false, 5},
		}},
		{"other outcomes say nothing of the rate", policy.AIMD{}, policy.Bounds{Share: 20, Ceiling: 40},
			[]answered{
				{unknown, 0, 0, false, 20}, {policy.Unavailable, 1, 0, true, 20},
				{policy.Failed, 2, 0, true, 20},
				{9, 3, 0, true, 20},
			}},
		{"never below a fiftieth of the share", policy.AIMD{Decrease: 0.01},
			policy.Bounds{Share: 20, Ceiling: 40}, []answered{
				{unknown, 0, 0, false, 20}, {throttled, 1, 0.5, false, 0.4}, {throttled, 2, 1.5, false, 0.4},
			}},
		{"never below a tenth where no share is known", policy.AIMD{Decrease: 0.01},
			policy.Bounds{Ceiling: inf}, []answered{
				{unknown, 0, 0, false, 5}, {throttled, 1, 0.5, false, 0.1}, {throttled, 2, 1.5, false, 0.1},
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctrl := c.ctrl.New(1)
			for i, h := range c.rows {
				if got := ctrl.Next(h.sample(), c.bounds).Rate; math.Abs(got-h.want) > 1e-9 {
					t.Errorf("row %d, %+v: got %v", i, h, got)
				}
			}
		})
	}
}

// New bounds count from the next sample on, whatever it says.
func TestAIMDUnderNewBounds(t *testing.T) {
	ctrl := policy.AIMD{}.New(1)
	for _, c := range []struct{ share, ceiling, want float64 }{
		{20, 20, 20}, {5, 5, 5}, {20, 20, 5}, {1000, 1000, 20}, {20, 20, 20},
	} {
		got := ctrl.Next(policy.Sample{}, policy.Bounds{Share: c.share, Ceiling: c.ceiling}).Rate
		if got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func TestControllersOfAPolicyAreApart(t *testing.T) {
	p, b := policy.AIMD{}, policy.Bounds{Share: 10, Ceiling: 10}
	one, other := p.New(1), p.New(1)
	one.Next(policy.Sample{}, b)
	one.Next(answered{outcome: policy.Throttled, now: 1}.sample(), b)
	if got := other.Next(policy.Sample{}, b).Rate; got != 10 {
		t.Errorf("got %v, want 10", got)
	}
}

// number draws anything that a float64 can be.
func number(name string) func(*rapid.T) float64 {
	return func(t *rapid.T) float64 {
		return rapid.OneOf(rapid.SampledFrom(odd), rapid.Float64(), rapid.Float64Range(0, 100)).Draw(t, name)
	}
}

func anySample(t *rapid.T) policy.Sample {
	instant := rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, int64(time.Minute)))
	return policy.Sample{
		Outcome:    policy.Outcome(rapid.Uint8Range(0, 6).Draw(t, "outcome")),
		RetryAfter: time.Duration(rapid.Int64().Draw(t, "retry")),
		Now:        time.Duration(instant.Draw(t, "now")), Sent: time.Duration(instant.Draw(t, "sent")),
		Paced: rapid.Bool().Draw(t, "paced"),
	}
}

// Whatever samples a controller gets, it answers a rate: finite, positive, and not above the ceiling.
func TestPropertyAIMDAnswersARate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctrl := policy.AIMD{Increase: number("increase")(t), Decrease: number("decrease")(t)}.New(1)
		b := policy.Bounds{Share: number("share")(t), Ceiling: number("ceiling")(t)}
		for range rapid.IntRange(1, 30).Draw(t, "samples") {
			if rapid.IntRange(0, 9).Draw(t, "rebound") == 0 {
				b = policy.Bounds{Share: number("share")(t), Ceiling: number("ceiling")(t)}
			}
			got := ctrl.Next(anySample(t), b).Rate
			if !(got > 0) || math.IsInf(got, 1) || b.Ceiling > 0 && got > b.Ceiling {
				t.Fatalf("bounds %+v: got %v", b, got)
			}
		}
	})
}

// Within sane bounds no rate falls below the floor, and none grows without having held back.
func TestPropertyAIMDFloorAndGrowth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share := rapid.Float64Range(0.01, 1e9).Draw(t, "share")
		b := policy.Bounds{Share: share, Ceiling: share * rapid.Float64Range(1, 100).Draw(t, "room")}
		ctrl := policy.AIMD{}.New(1)
		last := ctrl.Next(policy.Sample{}, b).Rate
		for range rapid.IntRange(1, 50).Draw(t, "samples") {
			s := anySample(t)
			got := ctrl.Next(s, b).Rate
			if got < share*0.02*(1-1e-9) {
				t.Fatalf("%v is below a fiftieth of the share, %v", got, share)
			}
			if got > last && (!s.Paced || s.Outcome != policy.Success) {
				t.Fatalf("%+v let it grow from %v to %v", s, last, got)
			}
			if got-last > share/20*(1+1e-9) {
				t.Fatalf("one sample let it grow from %v to %v", last, got)
			}
			last = got
		}
	})
}

// Failure mode 25: however many refusals come, those of requests that were sent before a cut do not cut
// again.
func TestPropertyAIMDCutsOncePerRound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := policy.Bounds{Share: 1000, Ceiling: 1000}
		ctrl := policy.AIMD{}.New(1)
		last := ctrl.Next(policy.Sample{}, b).Rate
		cut, now := time.Duration(-1), time.Duration(0)
		for range rapid.IntRange(1, 50).Draw(t, "answers") {
			now += time.Duration(rapid.Int64Range(1, int64(time.Second)).Draw(t, "later"))
			sent := now - time.Duration(rapid.Int64Range(1, int64(now)).Draw(t, "latency"))
			got := ctrl.Next(policy.Sample{Outcome: policy.Throttled, Now: now, Sent: sent}, b).Rate
			if got < last {
				if sent < cut {
					t.Fatalf("a request sent at %v cut again after the cut at %v", sent, cut)
				}
				cut = now
			}
			last = got
		}
	})
}

func ExampleAIMD() {
	ctrl := policy.AIMD{Increase: 1}.New(1)
	bounds := policy.Bounds{Share: 10, Ceiling: 20}
	fmt.Println("start:", ctrl.Next(policy.Sample{}, bounds).Rate)
	refused := policy.Sample{Outcome: policy.Throttled, Now: time.Second, Sent: 900 * time.Millisecond}
	fmt.Println("after a 429:", ctrl.Next(refused, bounds).Rate)
	served := policy.Sample{Outcome: policy.Success, Now: 2 * time.Second, Sent: 1900 * time.Millisecond,
		Paced: true}
	fmt.Println("a second later:", ctrl.Next(served, bounds).Rate)
	// Output:
	// start: 10
	// after a 429: 5
	// a second later: 6
}
