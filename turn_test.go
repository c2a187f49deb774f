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
			// A clock that is fast sees its turn earlier.
			l.shards[0].setting.rules[0].turn.start -= int64(skews[i%len(skews)])
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

// saturate has so many callers of each of the fleet ask one after the other for a while, and returns when
// they were admitted.
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

// Ten replicas whose clocks differ by 20 ms: the fleet's requests are at least .9 of the interval apart, less
// those 20 ms, and as many as the limit allows.
func TestTurnsSpaceTheFleet(t *testing.T) {
	const interval, skew, rounds = 100 * time.Millisecond, 20 * time.Millisecond, 60
	inFakeTime(t, func(t *testing.T) {
		var skews []time.Duration
		for i := range 10 {
			skews = append(skews, time.Duration(i*7%10)*skew/9-skew/2)
		}
		fleet := ordinals(t, Rates(Every(interval)), 10, skews...)
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

// Without ordinals, with NoTurns, for intervals too short, alone, and under a policy that learns no caller
// waits for a turn.
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
		l := limiterOf(t, Rates(c.rate), StartPool(c.pool))
		if got := l.shards[0].setting.rules[0].turn != nil; got != c.want {
			t.Errorf("%s: takes turns: %v", name, got)
		}
	}
}

// The turn behind others is counted from the begin of a turn, and that of a caller alone ends when it ends.
func TestTurnBucketUntil(t *testing.T) {
	const ms = time.Millisecond
	every := Every(time.Second) // ten seconds from one turn to the next, of which 100 ms are open
	r := fills(.1, 1)
	r.turn = newTurn(every, Pool{Replicas: 10, Ordinal: 3})
	begin := instant{at: time.Hour, wall: 1000*int64(time.Second) + r.turn.start}
	for _, c := range []struct {
		now    time.Duration // since the begin of a turn
		owed   float64       // of the one event
		from   time.Duration
		ahead  float64
		want   time.Duration
		within time.Duration // of rounding
	}{
		{now: 0, want: 0}, {now: 40 * ms, want: 0}, {now: 100 * ms, want: 0},
		{now: 101 * ms, want: 9899 * ms}, {now: 9 * time.Second, want: time.Second},
		{now: 0, ahead: 1, want: 10 * time.Second}, {now: 40 * ms, ahead: 2, want: 20*time.Second - 40*ms},
		{now: 5 * time.Second, ahead: 2, want: 25 * time.Second},
		{now: 0, owed: 1, want: 10 * time.Second}, // .99 of an event are there in 9.9 s
		{now: 99 * ms, owed: 1, want: 9901 * ms},
		{now: 0, owed: 1.005, want: 10 * time.Second}, // it is there within the next turn
		{now: 0, owed: 1.001, want: 10 * time.Second},
		{now: 5 * time.Second, owed: .5, ahead: 1, want: 15 * time.Second},
		{now: 5 * time.Second, owed: .515, want: 5050 * ms, within: 1}, // while a turn is open
		{now: 5 * time.Second, owed: .515, ahead: 1, want: 15 * time.Second},
		{now: 5 * time.Second, owed: .52, want: 5100 * ms, within: 1},
		{now: 5 * time.Second, owed: .5201, want: 15 * time.Second},
		{now: 0, from: 50 * ms, want: 50 * ms}, {now: 0, from: 150 * ms, want: 10 * time.Second},
		{now: 0, owed: 2e8, want: never}, {now: 0, ahead: 1e12, want: never},
	} {
		b := &turnBucket{costBucket: costBucket{bucket: bucket{tokens: 1 - c.owed, last: begin.at + c.now}}}
		now := begin.later(c.now)
		if d := b.until(now, r, c.from, c.ahead, 1); d < c.want-c.within || d > c.want+c.within {
			t.Errorf("%+v: %v", c, d)
		}
		if n := b.upTo(now, r, 5); c.from == 0 && c.ahead == 0 && (n == 1) != (c.want == 0) {
			t.Errorf("%+v: up to %d of five", c, n)
		}
	}
}

// A queue tells each caller its turn, and keeps the promise.
func TestTurnsArePromised(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		fleet := ordinals(t, Rates(Every(time.Second)), 4) // fake time begins at a full hour
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
		l := limiterOf(t, Rates(Every(time.Second)), Replicas(4))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var changing sync.WaitGroup
		defer changing.Wait()
		changing.Go(func() {
			pools := []Pool{
				{Replicas: 4, Ordinal: 3},
				{Replicas: 4, Ordinal: 1},
				{Replicas: 4},
				{Replicas: 5, Ordinal: 2},
				{Replicas: 4, Ordinal: 4},
			}
			for i := 0; ctx.Err() == nil; i++ {
				time.Sleep(time.Duration(700+i*131%900) * time.Millisecond)
				must(t, l.SetPool(pools[i%len(pools)], 0))
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

// Bound 2 for paced rates with ordinals, however busy the replicas are and however late their callers. Two
// requests of the fleet are at least .9 of the interval apart, less the skew of the clocks. No replica
// exceeds its own rate by more than a tenth of an interval's events.
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
		fleet := ordinals(rt, Rates(Every(interval)), n, offsets...)
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
				time.Sleep(d.RetryAfter +
					time.Duration(rapid.Int64Range(0, int64(interval)/8).Draw(rt, "late")))
			}
			time.Sleep(time.Duration(rapid.Int64Range(0, int64(interval)).Draw(rt, "pause")))
		}
		slices.SortStableFunc(all, func(a, b sent) int {
			return cmp.Compare(a.at.UnixNano(), b.at.UnixNano())
		})
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
		l := mustNew(rt, Rates(Every(interval)), StartPool(Pool{Replicas: n, Ordinal: ordinal}))
		if l.Check("k").OK {
			time.Sleep(interval / 2) // its turn is open, and may have been for a while
		}
		start := time.Now().Add(l.Check("k").RetryAfter)
		for k := range rapid.IntRange(2, 20).Draw(rt, "turns") {
			turn := start.Add(time.Duration(k) * time.Duration(n) * interval)
			time.Sleep(
				time.Until(turn.Add(time.Duration(rapid.Int64Range(0, int64(interval)/10).Draw(rt, "late")))))
			if !l.Allow("k") {
				rt.Fatalf("turn %d is lost: %+v", k, l.Check("k"))
			}
		}
	})
}

// Bound 11: a clock that steps, forwards or back, opens one turn at most, and none before the replica's own
// interval has passed.
func TestTurnsAndAClockThatSteps(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := ordinals(t, Rates(Every(time.Second)), 4)[0]
		turn := l.shards[0].setting.rules[0].turn
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
		// 3.9 s since the first: from a turn's end to the next one's start
		time.Sleep(1400 * time.Millisecond)
		turn.start = time.Now().UnixNano() % turn.cycle
		if !l.Allow("k") {
			t.Error("refused in its next turn")
		}
	})
}

// Turns of two paced rates, or of one beside windows, may never be open at one instant: a caller would wait
// for ever.
func TestTurnsThatNeverMeet(t *testing.T) {
	for name, c := range map[string]struct {
		rates []Rate
		pool  Pool
		step  time.Duration // a hundred of them are long enough
	}{
		"two paced rates": {[]Rate{{Name: "second", Events: 1, Per: time.Second, Burst: 1},
			{Name: "minute", Events: 30, Per: time.Minute, Burst: 1}}, Pool{Replicas: 3, Ordinal: 2},
			time.Second},
		"beside windows": {[]Rate{Every(100 * time.Millisecond),
			{Name: "w", Events: 10, Per: time.Second, Aligned: true}}, Pool{Replicas: 20, Ordinal: 1},
			time.Second},
		"for decades": {[]Rate{Every(365 * 24 * time.Hour)}, Pool{Replicas: 40, Ordinal: 1},
			365 * 24 * time.Hour},
	} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, Limit{Rates: c.rates}, StartPool(c.pool), StartEmpty())
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

// A correction under turns does not bring back what has come back by itself.
func TestTurnIsNotTakenTwice(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Rates(Rate{Name: "t", Unit: "tokens", Events: 1, Per: time.Second, Burst: 1}),
			StartPool(Pool{Replicas: 2, Ordinal: 1}))
		a := took(t, l, "k", Cost("tokens", 1))
		time.Sleep(2 * time.Second)
		took(t, l, "k", Cost("tokens", 1))
		must(t, a.Correct("tokens", 0))
		if _, d := l.TryAcquire("k", Cost("tokens", 1)); d.OK {
			t.Error("two tokens in one turn")
		}
	})
}

// A turn is promised for an instant at which the other rates have room, and not for the one at which it
// closes.
func TestTurnThatClosesWhenOthersHaveRoom(t *testing.T) {
	paced := Rate{Name: "paced", Unit: "tokens", Events: 1, Per: 10 * time.Second, Burst: 1}
	for name, limit := range map[string]Limit{
		"first": rated(paced, perSecond(2, 2)),
		"last":  rated(perSecond(2, 2), paced),
	} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, limit, StartPool(Pool{Replicas: 2, Ordinal: 1, Fixed: true}))
			took(t, l, "k") // the bucket is full again in a second, when the turn of a second closes
			if d := l.Check("k", Cost("tokens", 1)); d.RetryAfter != 20*time.Second || d.Rule != "paced" {
				t.Errorf("told %+v, want the next turn", d)
			}
			time.Sleep(20 * time.Second)
			took(t, l, "k", Cost("tokens", 1))
		})
	}
}

// Callers that wait take their turns while they wait for a slower rate: the two waits do not add up.
func TestTurnBehindASlowerRate(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		slower := Rate{Name: "slower", Events: 1, Per: 10 * time.Second, Burst: 2}
		l := limiterOf(t, rated(Every(5*time.Second), slower),
			StartPool(Pool{Replicas: 2, Ordinal: 1, Fixed: true}))
		took(t, l, "k")
		for i := range 4 {
			turn := time.Duration(i+1) * 20 * time.Second
			if d := l.Check("k"); d.RetryAfter != turn {
				t.Errorf("%d wait: told %v, want %v", i, d.RetryAfter, turn)
			}
			defer askingUntil(t, l, turn+time.Second, "k").admittedAfter(t, turn)
		}
		time.Sleep(80 * time.Second)
	})
}

// A caller that waits while a turn is open takes that turn. The one behind it gets the start of the next.
func TestTurnBehindOneThatIsOpen(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		paced := Rate{Name: "paced", Unit: "tokens", Events: 1, Per: 5 * time.Second, Burst: 1}
		l := limiterOf(t, rated(paced, perSecond(10, 2)),
			StartPool(Pool{Replicas: 2, Ordinal: 1, Fixed: true}))
		time.Sleep(100 * time.Millisecond)
		took(t, l, "k") // the bucket has another request in 200 ms
		first := asking(t, l, "k", Cost("tokens", 1))
		if d := l.Check("k", Cost("tokens", 1)); d.RetryAfter != 9900*time.Millisecond {
			t.Errorf("told %v, want the start of the next turn", d.RetryAfter)
		}
		second := asking(t, l, "k", Cost("tokens", 1))
		time.Sleep(10 * time.Second)
		first.admittedAfter(t, 200*time.Millisecond)
		second.admittedAfter(t, 9900*time.Millisecond)
	})
}
