package quotient

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fleetOf is a fleet of one limit whose clocks are wrong by the skews.
func fleetOf(t rapid.TB, limit Limit, pools []Pool, skews []time.Duration) (fleet []*Limiter) {
	t.Helper()
	for i, p := range pools {
		l, err := New(limit, StartPool(p))
		if err != nil {
			t.Fatal(err)
		}
		if turn := l.shards[0].setting.rules[0].turn; turn != nil {
			turn.start -= int64(skews[i])
		}
		fleet = append(fleet, l)
	}
	return fleet
}

// Replicas of weights 1, 3, 2 and 4 take all the turns of ten, and none that is another's.
func TestTurnsOfWeights(t *testing.T) {
	const interval, skew, rounds = 100 * time.Millisecond, 20 * time.Millisecond, 60
	inFakeTime(t, func(t *testing.T) {
		pools := []Pool{
			{Replicas: 10, Ordinal: 1}, {Replicas: 10, Ordinal: 2, Weight: 3},
			{Replicas: 10, Ordinal: 5, Weight: 2}, {Replicas: 10, Ordinal: 7, Weight: 4},
		}
		fleet := fleetOf(t, Rates(Every(interval)), pools, []time.Duration{0, skew / 2, -skew / 2, 0})
		at := saturate(fleet, 3, rounds*10*interval)
		if least := slices.Min(gaps(at)); least < interval*9/10-skew {
			t.Errorf("two requests %v apart", least)
		}
		if n := len(at); n < 10*rounds-1 || n > 10*rounds+1 {
			t.Errorf("%d requests, want %d", n, 10*rounds)
		}
		for i, l := range fleet {
			if n, w := int(l.Stats().Admitted), pools[i].weight(); n < rounds*w-1 || n > rounds*w+1 {
				t.Errorf("replica %d: %d requests, want %d", i+1, n, rounds*w)
			}
		}
	})
}

// Bound 2 for paced rates with ordinals and weights: the fleet's requests are at least .9 of the interval
// apart, less the skew of the clocks. In N intervals no replica admits more than its weight.
func TestPropertyTurnsOfWeights(t *testing.T) {
	property(t, func(rt *rapid.T) {
		interval := time.Duration(rapid.IntRange(50, 5000).Draw(rt, "interval")) * time.Millisecond
		pools := drawFleet(rt, 6, 4)
		skew := time.Duration(rapid.Int64Range(0, int64(interval)/2).Draw(rt, "skew"))
		var skews []time.Duration
		for range pools {
			skews = append(skews, time.Duration(rapid.Int64Range(0, int64(skew)).Draw(rt, "skew of one")))
		}
		fleet := fleetOf(rt, Rates(Every(interval)), pools, skews)
		var all []time.Time
		own := make([][]time.Time, len(fleet))
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			who := rapid.IntRange(0, len(fleet)-1).Draw(rt, "who")
			if p, d := fleet[who].TryAcquire("k"); d.OK {
				p.Release()
				all, own[who] = append(all, time.Now()), append(own[who], time.Now())
			} else if rapid.Bool().Draw(rt, "waits") {
				time.Sleep(d.RetryAfter +
					time.Duration(rapid.Int64Range(0, int64(interval)/8).Draw(rt, "late")))
			}
			time.Sleep(time.Duration(rapid.Int64Range(0, int64(interval)).Draw(rt, "pause")))
		}
		if len(all) > 1 && slices.Min(gaps(all)) < interval*9/10-skew-1 {
			rt.Fatalf("two requests %v apart", slices.Min(gaps(all)))
		}
		for i, at := range own {
			w, cycle := pools[i].Weight, time.Duration(pools[i].Replicas)*interval
			for j := w; j < len(at); j++ {
				if d := at[j].Sub(at[j-w]); d < cycle-interval/10-2 {
					rt.Fatalf("%+v: %d requests in %v of a cycle of %v", pools[i], w+1, d, cycle)
				}
			}
		}
	})
}

// A replica that is served late in each of its turns, but not too late, misses none.
func TestPropertyNoTurnOfAWeightIsLost(t *testing.T) {
	property(t, func(rt *rapid.T) {
		interval := time.Duration(rapid.IntRange(50, 5000).Draw(rt, "interval")) * time.Millisecond
		n := rapid.IntRange(2, 300).Draw(rt, "replicas")
		p := Pool{Replicas: n, Weight: rapid.IntRange(1, min(n-1, 20)).Draw(rt, "weight")}
		p.Ordinal = rapid.IntRange(1, n-p.Weight+1).Draw(rt, "ordinal")
		l := mustNew(rt, Rates(Every(interval)), StartPool(p))
		cycle := time.Duration(n) * interval
		// cycles count from the Unix epoch
		start := time.Now().Add(-time.Duration(time.Now().UnixNano()) % cycle)
		start = start.Add(time.Duration(p.Ordinal-1) * interval)
		for start.Before(time.Now()) {
			start = start.Add(cycle)
		}
		for k := range rapid.IntRange(2, 60).Draw(rt, "turns") {
			if rapid.IntRange(0, 9).Draw(rt, "idle") == 0 {
				continue
			}
			turn := start.Add(time.Duration(k/p.Weight)*cycle + time.Duration(k%p.Weight)*interval)
			time.Sleep(
				time.Until(turn.Add(1 +
					time.Duration(rapid.Int64Range(0, int64(interval)/10-2).Draw(rt, "late")))))
			if !l.Allow("k") {
				rt.Fatalf("turn %d is lost: %+v", k, l.Check("k"))
			}
			if l.Allow("k") {
				rt.Fatalf("turn %d is there twice", k)
			}
		}
	})
}

// The turns of a weight are promised one by one, those of a cycle in a row.
func TestTurnsOfAWeightArePromised(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Rates(Every(time.Second)), StartPool(Pool{Replicas: 5, Ordinal: 2, Weight: 2}))
		var calls []*call
		for range 5 {
			calls = append(calls, asking(t, l, "k"))
		}
		if d := l.Check("k"); d.RetryAfter != 12*time.Second { // the second turn of the third cycle
			t.Errorf("behind five: %+v", d)
		}
		if left := l.Stats().Rules[0].Left; left > 1 {
			t.Errorf("%v events may come at once", left)
		}
		time.Sleep(time.Minute)
		for i, want := range []time.Duration{1, 2, 6, 7, 11} {
			calls[i].admittedAfter(t, want*time.Second)
		}
	})
}

// A clock that steps to the begin of a turn again and again opens one each time at most. In all it opens no
// more than the share and what the turns of one cycle take.
func TestTurnsOfAWeightAndAClockThatSteps(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Rates(Every(time.Second)), StartPool(Pool{Replicas: 10, Ordinal: 1, Weight: 3}))
		turn, all := l.shards[0].setting.rules[0].turn, 0
		for i := range 200 {
			turn.start = time.Now().UnixNano() % turn.cycle
			n := 0
			for l.Allow("k") {
				n++
			}
			all += n
			if most := 2.5 + .3*float64(i)/10; n > 1 || float64(all) > most {
				t.Fatalf("after %d tenths of a second: %d at once, %d in all, at most %v", i, n, all, most)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if all < 7 {
			t.Errorf("%d in 20 s", all)
		}
	})
}

// A caller that gives up in its turn leaves it to the next one, and a rate that gets another name keeps the
// turn closed that was taken.
func TestTurnOfAWeightIsTakenOnce(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		paced := Every(time.Second)
		l := limiterOf(t, Rates(paced), StartPool(Pool{Replicas: 10, Ordinal: 1, Weight: 3}))
		wants(t, l, "k", 1)
		time.Sleep(50 * time.Millisecond)
		setLimit(t, l, Rates(PerHour(1e6), paced))
		wants(t, l, "k", 0)
		time.Sleep(950 * time.Millisecond)
		p, _ := l.TryAcquireUpTo("k", 1)
		wants(t, l, "k", 0)
		correct(t, p, 0)
		wants(t, l, "k", 1)
	})
}
