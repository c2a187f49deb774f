package quotient

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// ordinals is a fleet of n replicas of one limit, each with its ordinal, whose clocks are wrong by the skews.
func ordinals(t rapid.TB, limit Limit, n int, skews ...time.Duration) []*Limiter {
	t.Helper()
	fleet := make([]*Limiter, n)
	for i := range fleet {
		l, err := New(limit, StartPool(Pool{Replicas: n, Ordinal: i + 1, Fixed: true}))
		if err != nil {
			t.Fatal(err)
		}
		if len(skews) > 0 {
			l.shards[0].setting.rations[0].turn.start -= int64(skews[i%len(skews)]) // a clock that is fast sees its turn earlier
		}
		fleet[i] = l
	}
	return fleet
}

// gaps are the times between the instants, in order.
func gaps(at []time.Time) []time.Duration {
	slices.SortFunc(at, time.Time.Compare)
	var d []time.Duration
	for i := range at[1:] {
		d = append(d, at[i+1].Sub(at[i]))
	}
	return d
}

// saturate has so many callers of each of the fleet ask one after the other for a while, and returns when they were admitted.
func saturate(fleet []*Limiter, callers int, life time.Duration) []time.Time {
	ctx, cancel := context.WithTimeout(context.Background(), life)
	defer cancel()
	got := make(chan []time.Time)
	for i := range len(fleet) * callers {
		go func() {
			var at []time.Time
			for {
				if _, err := fleet[i%len(fleet)].Acquire(ctx, "k"); err != nil {
					got <- at
					return
				}
				at = append(at, time.Now())
			}
		}()
	}
	var all []time.Time
	for range len(fleet) * callers {
		all = append(all, <-got...)
	}
	return all
}

// Ten replicas whose clocks differ by 20 ms: the fleet's requests are at least .9 of the interval apart, less those 20 ms, and
// as many as the limit allows.
func TestTurnsSpaceTheFleet(t *testing.T) {
	const interval, skew, rounds = 100 * time.Millisecond, 20 * time.Millisecond, 60
	inFakeTime(t, func(t *testing.T) {
		var skews []time.Duration
		for i := range 10 {
			skews = append(skews, time.Duration(i*7%10)*skew/9-skew/2)
		}
		fleet := ordinals(t, Limit{Rates: []Rate{Every(interval)}}, 10, skews...)
		at := saturate(fleet, 2, rounds*10*interval)
		if least := slices.Min(gaps(at)); least < interval*9/10-skew {
			t.Errorf("two requests %v apart", least)
		}
		if n := len(at); n < 10*rounds-1 || n > 10*rounds+1 {
			t.Errorf("%d requests, want %d", n, 10*rounds)
		}
		t.Logf("smallest gap %v, interval %v, skew %v", slices.Min(gaps(at)), interval, skew)
	})
}

// Without ordinals, with NoTurns, for intervals too short, alone, and under a policy that learns nobody waits for a turn.
func TestNoTurns(t *testing.T) {
	noTurns := Every(time.Second)
	noTurns.NoTurns = true
	for name, c := range map[string]struct {
		rate Rate
		pool Pool
		want bool
	}{
		"paced":       {Every(time.Second), Pool{Replicas: 3, Ordinal: 2}, true},
		"burst 1":     {Rate{Events: 20, Per: time.Second, Burst: 1}, Pool{Replicas: 3, Ordinal: 2}, true},
		"no ordinal":  {Every(time.Second), Pool{Replicas: 3}, false},
		"alone":       {Every(time.Second), Pool{Replicas: 1, Ordinal: 1}, false},
		"no turns":    {noTurns, Pool{Replicas: 3, Ordinal: 2}, false},
		"short":       {Every(49 * time.Millisecond), Pool{Replicas: 3, Ordinal: 2}, false},
		"not paced":   {PerMinute(30), Pool{Replicas: 3, Ordinal: 2}, false},
		"for ever":    {Every(1 << 60), Pool{Replicas: 1000, Ordinal: 2}, false},
		"with bursts": {Rate{Events: 1, Per: time.Second, Burst: 2}, Pool{Replicas: 3, Ordinal: 2}, false},
	} {
		l := limiterOf(t, Limit{Rates: []Rate{c.rate}}, StartPool(c.pool))
		if got := l.shards[0].setting.rations[0].turn != nil; got != c.want {
			t.Errorf("%s: takes turns: %v", name, got)
		}
	}
}

// A queue tells each caller its turn, and keeps the promise.
func TestTurnsArePromised(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		fleet := ordinals(t, Limit{Rates: []Rate{Every(time.Second)}}, 4) // fake time begins at a full hour
		for i, l := range fleet {
			if d := l.Check("k"); d.OK != (i == 0) || d.RetryAfter != time.Duration(i)*time.Second {
				t.Errorf("replica %d at its start: %+v", i+1, d)
			}
		}
		time.Sleep(3*time.Second + 40*time.Millisecond) // the turn of the last is open
		last := fleet[3]
		if p, n := last.TryAcquireUpTo("k", 3); n != 1 {
			t.Errorf("%d in an open turn", n)
		} else {
			p.Release()
		}
		a, b := asking(t, last, "k"), asking(t, last, "k")
		if d := last.Check("k"); d.RetryAfter != 12*time.Second-40*time.Millisecond {
			t.Errorf("behind two: %+v", d)
		}
		time.Sleep(9 * time.Second)
		a.admittedAfter(t, 4*time.Second-40*time.Millisecond)
		b.admittedAfter(t, 8*time.Second-40*time.Millisecond)
		time.Sleep(3 * time.Second) // 15.04: its turn
		if !last.Allow("k") {
			t.Error("refused in its turn")
		}
		time.Sleep(4*time.Second + 61*time.Millisecond) // 19.101
		if last.Allow("k") {
			t.Error("admitted after its turn")
		}
	})
}

// A replica that gets an ordinal, loses it, or sees the pool change keeps to its own interval meanwhile.
func TestTurnsThroughPoolChanges(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{Every(time.Second)}}, StartPool(Pool{Replicas: 4}))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var changing sync.WaitGroup
		defer changing.Wait()
		changing.Go(func() {
			pools := []Pool{{Replicas: 4, Ordinal: 3}, {Replicas: 4, Ordinal: 1}, {Replicas: 4}, {Replicas: 5, Ordinal: 2}, {Replicas: 4, Ordinal: 4}}
			for i := 0; ctx.Err() == nil; i++ {
				time.Sleep(time.Duration(700+i*131%900) * time.Millisecond)
				must(t, l.SetPool(pools[i%len(pools)]))
			}
		})
		var at []time.Time
		for {
			if _, err := l.Acquire(ctx, "k"); err != nil {
				break
			}
			at = append(at, time.Now())
		}
		if least := slices.Min(gaps(at)); least < 3900*time.Millisecond {
			t.Errorf("two requests %v apart", least)
		}
	})
}

// Bound 2 for paced rates with ordinals: however busy the replicas are and however late their callers, two requests of the
// fleet are at least .9 of the interval apart, less the skew of the clocks, and no replica exceeds its own rate by more than a tenth of an
// interval's events.
func TestPropertyTurns(t *testing.T) {
	property(t, func(rt *rapid.T) {
		interval := time.Duration(rapid.IntRange(50, 5000).Draw(rt, "interval")) * time.Millisecond
		n := rapid.IntRange(2, 8).Draw(rt, "replicas")
		skew := time.Duration(rapid.Int64Range(0, int64(interval)/2).Draw(rt, "skew"))
		skews := rapid.SliceOfN(rapid.Int64Range(0, int64(skew)), n, n).Draw(rt, "skews")
		var offsets []time.Duration
		for _, s := range skews {
			offsets = append(offsets, time.Duration(s))
		}
		fleet := ordinals(rt, Limit{Rates: []Rate{Every(interval)}}, n, offsets...)
		type sent struct {
			at  time.Time
			who int
		}
		var all []sent
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			who := rapid.IntRange(0, n-1).Draw(rt, "who")
			if p, d := fleet[who].TryAcquire("k"); d.OK {
				p.Release()
				all = append(all, sent{time.Now(), who})
			} else if rapid.Bool().Draw(rt, "waits") {
				time.Sleep(d.RetryAfter + time.Duration(rapid.Int64Range(0, int64(interval)/8).Draw(rt, "late")))
			}
			time.Sleep(time.Duration(rapid.Int64Range(0, int64(interval)).Draw(rt, "pause")))
		}
		slices.SortStableFunc(all, func(a, b sent) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
		last := map[int]time.Time{}
		for i, s := range all {
			if i > 0 && s.at.Sub(all[i-1].at) < interval*9/10-skew-1 {
				rt.Fatalf("%v apart", s.at.Sub(all[i-1].at))
			}
			if own := s.at.Sub(last[s.who]); own < time.Duration(n)*interval-interval/10-1 {
				rt.Fatalf("replica %d: %v apart", s.who+1, own)
			}
			last[s.who] = s.at
		}
	})
}

// A replica that is served late in each turn, but not too late, misses none.
func TestPropertyNoTurnIsLost(t *testing.T) {
	property(t, func(rt *rapid.T) {
		interval := time.Duration(rapid.IntRange(50, 5000).Draw(rt, "interval")) * time.Millisecond
		n := rapid.IntRange(2, 2000).Draw(rt, "replicas")
		ordinal := rapid.IntRange(1, n).Draw(rt, "ordinal")
		l := mustNew(rt, Limit{Rates: []Rate{Every(interval)}}, StartPool(Pool{Replicas: n, Ordinal: ordinal}))
		if l.Check("k").OK {
			time.Sleep(interval / 2) // its turn is open, nobody knows how long already
		}
		start := time.Now().Add(l.Check("k").RetryAfter)
		for k := range rapid.IntRange(2, 20).Draw(rt, "turns") {
			turn := start.Add(time.Duration(k) * time.Duration(n) * interval)
			time.Sleep(time.Until(turn.Add(time.Duration(rapid.Int64Range(0, int64(interval)/10).Draw(rt, "late")))))
			if !l.Allow("k") {
				rt.Fatalf("turn %d is lost: %+v", k, l.Check("k"))
			}
		}
	})
}

// Bound 11: a clock that steps, forwards or back, opens one turn at most, and none before the replica's own interval has passed.
func TestTurnsAndAClockThatSteps(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := ordinals(t, Limit{Rates: []Rate{Every(time.Second)}}, 4)[0]
		turn := l.shards[0].setting.rations[0].turn
		if !l.Allow("k") {
			t.Fatal("refused in its turn")
		}
		for i := range 5 {
			time.Sleep(500 * time.Millisecond)
			turn.start = time.Now().UnixNano() % turn.cycle // the clock steps to the begin of a turn
			if l.Allow("k") {
				t.Errorf("another one after step %d", i)
			}
		}
		time.Sleep(1400 * time.Millisecond) // 3.9 s since the first: what a turn's end and the next one's begin are apart
		turn.start = time.Now().UnixNano() % turn.cycle
		if !l.Allow("k") {
			t.Error("refused in its next turn")
		}
	})
}

// Turns of two paced rates, or of one beside windows, may never be open at one instant: somebody would wait for ever.
func TestTurnsThatNeverMeet(t *testing.T) {
	for name, c := range map[string]struct {
		rates []Rate
		pool  Pool
		step  time.Duration // a hundred of them are long enough
	}{
		"two paced rates": {[]Rate{{Name: "second", Events: 1, Per: time.Second, Burst: 1}, {Name: "minute", Events: 30, Per: time.Minute, Burst: 1}}, Pool{Replicas: 3, Ordinal: 2}, time.Second},
		"beside windows":  {[]Rate{Every(100 * time.Millisecond), {Name: "w", Events: 10, Per: time.Second, Aligned: true}}, Pool{Replicas: 20, Ordinal: 1}, time.Second},
		"for decades":     {[]Rate{Every(365 * 24 * time.Hour)}, Pool{Replicas: 40, Ordinal: 1}, 365 * 24 * time.Hour},
	} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, Limit{Rates: c.rates}, JoinPool(c.pool))
			call := asking(t, l, "k")
			for range 100 { // a century takes several sleeps
				if time.Sleep(c.step); call.ended() {
					break
				}
			}
			if !call.ended() || call.err != nil {
				t.Errorf("not served: %v", l.Check("k"))
				call.cancel()
			}
		})
	}
}

// What is corrected under turns does not bring back what has come back by itself.
func TestTurnIsNotTakenTwice(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{{Name: "t", Unit: "tokens", Events: 1, Per: time.Second, Burst: 1}}}, StartPool(Pool{Replicas: 2, Ordinal: 1}))
		a := took(t, l, "k", Cost("tokens", 1))
		time.Sleep(2 * time.Second)
		took(t, l, "k", Cost("tokens", 1))
		must(t, a.Correct("tokens", 0))
		if _, d := l.TryAcquire("k", Cost("tokens", 1)); d.OK {
			t.Error("two tokens in one turn")
		}
	})
}
