package quotient

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/internal/inside"
	"github.com/quotient-go/quotient/internal/meter"
)

// allowedAt is Allow of a caller that has read the clocks at an instant.
func allowedAt(l *Limiter, key string, now meter.Instant) bool {
	s, hash := l.lock(key)
	defer s.mu.Unlock()
	s.tick(now)
	return s.try(s.gate(hash, key, 0), &oneRequest).reason == ReasonNone
}

// Callers that come to the lock in another order than to the clock.
func TestTimestampsOutOfOrder(t *testing.T) {
	l := mustNew(t, Rates(perSecond(10, 20)))
	early, late := meter.Instant{At: time.Second}, meter.Instant{At: 3 * time.Second}
	admitted := 0
	for range 1000 {
		for _, now := range []meter.Instant{late, early} {
			if allowedAt(l, "k", now) {
				admitted++
			}
		}
	}
	is(t, "admitted at two instants in turn, the burst", admitted, 20)
	if later := (meter.Instant{At: 10 * time.Second}); !allowedAt(l, "k", later) {
		t.Error("refused with a full bucket")
	}
	for n := range 20 { // what was there at the latest instant is there for all
		is(t, n, allowedAt(l, "k", early), n < 19)
	}
}

// ordinals is a fleet of one limit, each replica with its weight and its ordinals, whose clocks are wrong by
// the skews.
func ordinals(t rapid.TB, limit Limit, weights []int, skews ...time.Duration) (fleet []*Limiter) {
	t.Helper()
	p := Pool{Ordinal: 1, Fixed: true}
	for _, w := range weights {
		p.Replicas += w
	}
	for i, w := range weights {
		p.Weight = w
		l := mustNew(t, limit, StartPool(p))
		if turn := l.newest().rules[0].Turn; turn != nil && len(skews) > 0 {
			turn.Start -= int64(skews[i%len(skews)]) // a clock that is fast sees its turn earlier
		}
		fleet, p.Ordinal = append(fleet, l), p.Ordinal+w
	}
	return fleet
}

// ones are the weights of n replicas.
func ones(n int) []int { return slices.Repeat([]int{1}, n) }

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

// Replicas whose clocks differ by 20 ms: the fleet's requests are at least .9 of the interval apart, less
// those 20 ms, and as many as the limit allows. Replicas of weights take all turns of theirs, and none that
// is another's.
func TestTurnsSpaceTheFleet(t *testing.T) {
	const interval, skew, rounds = 100 * ms, 20 * ms, 60
	for _, weights := range [][]int{ones(10), {1, 3, 2, 4}} {
		row(t, weights, func(t *testing.T) {
			var skews []time.Duration
			for i := range 10 {
				skews = append(skews, time.Duration(i*7%10)*skew/9-skew/2)
			}
			fleet := ordinals(t, Rates(Every(interval)), weights, skews...)
			at := saturate(fleet, 3, rounds*10*interval)
			if least := slices.Min(gaps(at)); least < interval*9/10-skew {
				t.Errorf("two requests %v apart", least)
			}
			within(t, "requests", 10*rounds-1, 10*rounds+1, len(at))
			for i, l := range fleet {
				w := weights[i] * rounds
				within(t, "requests of one", w-1, w+1, int(l.Stats().Admitted))
			}
		})
	}
}

// Without ordinals, with NoTurns, for intervals too short, alone, and under a policy that learns no caller
// waits for a turn.
func TestNoTurns(t *testing.T) {
	noTurns, second := Every(time.Second), Pool{Replicas: 3, Ordinal: 2}
	noTurns.NoTurns = true
	for name, c := range map[string]struct {
		rate Rate
		pool Pool
		want bool
	}{
		"paced":       {Every(time.Second), second, true},
		"several":     {Rate{Events: 20, Per: time.Second, Burst: 1, Kind: Paced}, second, true},
		"a bucket":    {perSecond(1, 1), second, false},
		"no ordinal":  {Every(time.Second), Pool{Replicas: 3}, false},
		"alone":       {Every(time.Second), Pool{Replicas: 1, Ordinal: 1}, false},
		"no turns":    {noTurns, second, false},
		"short":       {Every(49 * ms), second, false},
		"not paced":   {PerMinute(30), second, false},
		"for ever":    {Every(1 << 60), Pool{Replicas: 1000, Ordinal: 2}, false},
		"with bursts": {Rate{Events: 1, Per: time.Second, Burst: 2}, second, false},
	} {
		l := mustNew(t, Rates(c.rate), StartPool(c.pool))
		is(t, name, l.newest().rules[0].Turn != nil, c.want)
	}
}

// A queue tells each caller its turn, and keeps the promise.
func TestTurnsArePromised(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		fleet := ordinals(t, Rates(Every(time.Second)), ones(4)) // fake time begins at a full hour
		for i, l := range fleet {
			d := l.Check("k")
			is(t, i, fmt.Sprint(d.OK, d.RetryAfter), fmt.Sprint(i == 0, time.Duration(i)*time.Second))
		}
		time.Sleep(3*time.Second + 40*ms) // the turn of the last is open
		last := fleet[3]
		upTo(t, last, "k", 3, 1)
		a, b := asking(t, last, "k"), asking(t, last, "k")
		is(t, "behind two", last.Check("k").RetryAfter, 12*time.Second-40*ms)
		time.Sleep(9 * time.Second)
		a.admittedAfter(t, 4*time.Second-40*ms)
		b.admittedAfter(t, 8*time.Second-40*ms)
		time.Sleep(3 * time.Second)
		is(t, "at 15.04 s, in its turn", last.Allow("k"), true)
		time.Sleep(4*time.Second + 60*ms - 1)
		is(t, "in the last nanosecond before 19.1 s", last.Check("k").OK, true)
		time.Sleep(ms + 1)
		is(t, "at 19.101 s, after its turn", last.Allow("k"), false)
	})
}

// spacedByTurns holds bound 2 for paced rates with ordinals, however busy the replicas are and however late
// their callers. Two requests of the fleet are at least .9 of the interval apart, less the skew of the
// clocks. In a cycle no replica admits more than its weight, but for a tenth of an interval's events.
func spacedByTurns(rt *rapid.T, most, heaviest int) {
	interval := time.Duration(rapid.IntRange(50, 5000).Draw(rt, "interval")) * ms
	drawn := func(most time.Duration, what string) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(most)).Draw(rt, what))
	}
	weights := rapid.SliceOfN(rapid.IntRange(1, heaviest), 2, most).Draw(rt, "weights")
	skew, n := drawn(interval/2, "skew"), 0
	var skews []time.Duration
	for _, w := range weights {
		skews, n = append(skews, drawn(skew, "skew of one")), n+w
	}
	fleet := ordinals(rt, Rates(Every(interval)), weights, skews...)
	var all []time.Time
	own := make([][]time.Time, len(fleet))
	for range rapid.IntRange(1, 80).Draw(rt, "steps") {
		who := rapid.IntRange(0, len(fleet)-1).Draw(rt, "who")
		if p, d := fleet[who].TryAcquire("k"); d.OK {
			p.Release()
			all, own[who] = append(all, time.Now()), append(own[who], time.Now())
		} else if rapid.Bool().Draw(rt, "waits") {
			time.Sleep(d.RetryAfter + drawn(interval/8, "late"))
		}
		time.Sleep(drawn(interval, "pause"))
	}
	if len(all) > 1 && slices.Min(gaps(all)) < interval*9/10-skew-1 {
		rt.Fatalf("two requests %v apart", slices.Min(gaps(all)))
	}
	slack := time.Duration(min(heaviest, 2)) // of rounding
	for i, at := range own {
		for j := weights[i]; j < len(at); j++ {
			if d := at[j].Sub(at[j-weights[i]]); d < time.Duration(n)*interval-interval/10-slack {
				rt.Fatalf("replica %d of %v: %v for more than its turns", i+1, weights, d)
			}
		}
	}
}

func TestPropertyTurns(t *testing.T) {
	property(t, func(rt *rapid.T) { spacedByTurns(rt, 8, 1) })
}

func TestPropertyTurnsOfWeights(t *testing.T) {
	property(t, func(rt *rapid.T) { spacedByTurns(rt, 6, 4) })
}

// Bound 11: a clock that steps, forwards or back, opens one turn at most, and none before the replica's own
// interval has passed.
func TestTurnsAndAClockThatSteps(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := ordinals(t, Rates(Every(time.Second)), ones(4))[0]
		turn := l.newest().rules[0].Turn
		steps := func() { turn.Start = time.Now().UnixNano() % turn.Cycle } // to the begin of a turn
		is(t, "in its turn", l.Allow("k"), true)
		for i := range 5 {
			time.Sleep(500 * ms)
			steps()
			is(t, i, l.Allow("k"), false)
		}
		time.Sleep(1400 * ms) // 3.9 s since the first: from a turn's end to the next one's start
		steps()
		is(t, "in its next turn", l.Allow("k"), true)
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
		"two paced rates": {[]Rate{Every(time.Second), {Name: "minute", Events: 30, Per: time.Minute, Kind: Paced}},
			Pool{Replicas: 3, Ordinal: 2}, time.Second},
		"beside windows": {[]Rate{Every(100 * ms), aligned(10, time.Second)}, Pool{Replicas: 20, Ordinal: 1},
			time.Second},
		"for decades": {[]Rate{Every(year)}, Pool{Replicas: 40, Ordinal: 1}, year},
	} {
		row(t, name, func(t *testing.T) {
			l := mustNew(t, Limit{Rates: c.rates}, StartPool(c.pool), StartEmpty())
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

// What is told is an instant at which every rule has room, to the nanosecond: a wait for a pace is cut to whole ones,
// and a window that opens within the rest of one is not open before.
func TestWhatIsToldIsWhenAWindowIsOpen(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		paced := Rate{Name: "a", Events: 1, Per: time.Second, Kind: Paced, NoTurns: true}
		l := mustNew(t, Rates(paced, Rate{Name: "b", Events: 1.5, Per: time.Second, Kind: CountedWindow}),
			StartPool(Pool{Replicas: 3, Ordinal: 1}), StartEmpty())
		time.Sleep(2500 * ms)
		_, d := l.TryAcquire("k")
		is(t, "told", d.RetryAfter, 500*ms)
		time.Sleep(d.RetryAfter)
		wants(t, l, "k", 1)
	})
}

func TestTurnIsTakenOnce(t *testing.T) {
	row(t, "a correction does not bring back what has come back by itself", func(t *testing.T) {
		l := mustNew(t, Rates(Rate{Unit: "tokens", Events: 1, Per: time.Second, Kind: Paced}), StartPool(Pool{Replicas: 2, Ordinal: 1}))
		a := took(t, l, "k", Cost("tokens", 1))
		time.Sleep(2 * time.Second)
		took(t, l, "k", Cost("tokens", 1))
		corrects(t, a, 0)
		refuses(t, l, "k", Cost("tokens", 1))
	})
	row(t, "an ordinal that goes and comes back brings none", func(t *testing.T) {
		l := mustNew(t, Rates(Every(time.Second)), StartPool(Pool{Replicas: 4, Ordinal: 1}))
		wants(t, l, "k", 1)
		for _, p := range []Pool{{Replicas: 4}, {Replicas: 4, Ordinal: 2}, {Replicas: 4, Ordinal: 1}} {
			must(t, l.SetPool(p, 0))
			wants(t, l, "k", 0)
		}
	})
	// A caller that gives up in its turn leaves it to the next one.
	row(t, "a rate that gets another name keeps the turn closed that was taken", func(t *testing.T) {
		paced := Every(time.Second)
		l := mustNew(t, Rates(paced), StartPool(Pool{Replicas: 10, Ordinal: 1, Weight: 3}))
		wants(t, l, "k", 1)
		time.Sleep(50 * ms)
		setLimit(t, l, Rates(PerHour(1e6), paced))
		wants(t, l, "k", 0)
		time.Sleep(950 * ms)
		p, _ := l.TryAcquireUpTo("k", 1)
		wants(t, l, "k", 0)
		correct(t, p, 0)
		wants(t, l, "k", 1)
	})
}

// A turn is promised for an instant at which the other rates have room, and not for the one at which it
// closes.
func TestTurnThatClosesWhenOthersHaveRoom(t *testing.T) {
	paced := Rate{Name: "paced", Unit: "tokens", Events: 1, Per: 10 * time.Second, Kind: Paced}
	for name, limit := range map[string]Limit{
		"first": Rates(paced, perSecond(2, 2)), "last": Rates(perSecond(2, 2), paced),
	} {
		row(t, name, func(t *testing.T) {
			l := mustNew(t, limit, StartPool(Pool{Replicas: 2, Ordinal: 1, Fixed: true}))
			took(t, l, "k") // the bucket is full again in a second, when the turn of a second closes
			d := l.Check("k", Cost("tokens", 1))
			is(t, "the next turn", fmt.Sprint(d.RetryAfter, " ", d.Rule.Name), "20s paced")
			time.Sleep(20 * time.Second)
			took(t, l, "k", Cost("tokens", 1))
		})
	}
}

// A caller that waits while a turn is open takes that turn. The one behind it gets the start of the next.
func TestTurnBehindOthers(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		paced := Rate{Name: "paced", Unit: "tokens", Events: 1, Per: 5 * time.Second, Kind: Paced}
		l := mustNew(t, Rates(paced, perSecond(10, 2)), StartPool(Pool{Replicas: 2, Ordinal: 1, Fixed: true}))
		time.Sleep(100 * ms)
		took(t, l, "k") // the bucket has another request in 200 ms
		first := asking(t, l, "k", Cost("tokens", 1))
		is(t, "the start of the next turn", l.Check("k", Cost("tokens", 1)).RetryAfter, 9900*ms)
		second := asking(t, l, "k", Cost("tokens", 1))
		time.Sleep(10 * time.Second)
		first.admittedAfter(t, 200*ms)
		second.admittedAfter(t, 9900*ms)
	})
}

func TestWindowsOfALimiter(t *testing.T) {
	row(t, "a batch gets also what has been carried over", func(t *testing.T) {
		l := mustNew(t, Rates(aligned(2.5, time.Second)), StartPool(Pool{Replicas: 1, Ordinal: 1}))
		sum := 0
		for range 100 {
			_, n := l.TryAcquireUpTo("k", 10)
			sum += n
			time.Sleep(time.Second)
		}
		is(t, "events in 100 windows of 2.5", sum, 250)
	})
	row(t, "a correction does not reach into the next window", func(t *testing.T) {
		l := mustNew(t, Rates(Rate{Unit: "tokens", Events: 100, Per: time.Minute, Kind: Window}))
		early := took(t, l, "k", Cost("tokens", 100))
		time.Sleep(time.Minute)
		took(t, l, "k", Cost("tokens", 100))
		corrects(t, early, 0)
		refuses(t, l, "k", Cost("tokens", 100))
	})
	row(t, "a day of a zone begins at its midnight", func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2000, 4, 2, 7, 0, 0, 0, time.UTC)))
		daily := Rate{Name: "day", Events: 5, Per: 24 * time.Hour, Kind: Window}
		l := mustNew(t, Rates(daily))
		wants(t, l, "k", 5)
		daily.Zone = "America/Los_Angeles"
		setLimit(t, l, Rates(daily)) // its day begins with what is left
		is(t, "retry after", refusedFor(t, l, ReasonRate, "k").RetryAfter, time.Hour)
		time.Sleep(time.Hour)
		wants(t, l, "k", 5)
		is(t, "of a day of 23 hours", refusedFor(t, l, ReasonRate, "k").RetryAfter, 23*time.Hour)
		is(t, "allocations", testing.AllocsPerRun(10, func() { l.Allow("k") }), 0)
		time.Sleep(23 * time.Hour)
		wants(t, l, "k", 5)
	})
	row(t, "another rate changes no window", func(t *testing.T) {
		for phase := range 2 { // of the sparse windows of three replicas every second one is ours
			l := mustNew(t, Rates(aligned(1, time.Second)), fix(func(c *inside.Chance) { c.Phase = int64(phase) }))
			left := func() float64 { return l.Explain("k").Rules[0].Left }
			l.Allow("k")
			time.Sleep(time.Second)
			left()
			setLimit(t, l, Limit{Deny: true})
			setReplicas(t, l, 3)
			setLimit(t, l, Rates(aligned(2, time.Second)))
			is(t, "left", left(), 1)
			setLimit(t, l, Rates(aligned(2, time.Second), PerMinute(100)))
			is(t, "left after the change of another rate", left(), 1)
			time.Sleep(time.Second) // the other phase's window
		}
	})
	// It may have done so just before a first aligned rate was set.
	row(t, "windows go on for a caller that has read the monotonic clock alone", func(t *testing.T) {
		l := mustNew(t, Rates(aligned(5, time.Hour)))
		for i := range 3 {
			wants(t, l, "k", 5)
			now := meter.Instant{At: l.shard("k").latest.At + time.Hour}
			for n := range 6 {
				is(t, []any{i, n}, allowedAt(l, "k", now), n < 5)
			}
			time.Sleep(2 * time.Hour)
		}
	})
	row(t, "a raised limit brings each replica whole events, beside those that were kept", func(t *testing.T) {
		var fleet []*Limiter
		sum := func() (n int) {
			for _, l := range fleet {
				n += admitted(l, "k")
			}
			return n
		}
		other := Rate{Name: "b", Unit: "tok", Events: 0.2, Per: 5 * time.Second, Kind: Window}
		for i := range 4 {
			fleet = append(fleet, mustNew(t, Rates(other, aligned(1, 5*time.Second)),
				StartPool(Pool{Replicas: 4, Ordinal: i + 1})))
		}
		sum()
		time.Sleep(20 * time.Second)
		is(t, "kept", sum(), 4)
		for _, l := range fleet {
			setLimit(t, l, Rates(other, aligned(10, 5*time.Second)))
		}
		is(t, "more", sum(), 4)
	})
	row(t, "one waits for the next window where that has the event which this one keeps", func(t *testing.T) {
		limit := Rates(aligned(2, time.Second),
			Rate{Name: "b", Unit: "tok", Events: 0.2, Per: 5 * time.Second, Kind: Window})
		l := mustNew(t, limit, StartPool(Pool{Replicas: 5, Ordinal: 2, Weight: 2, Fixed: true}))
		time.Sleep(time.Second) // the next window has two of its own, the one behind it none
		took(t, l, "k")
		c := asking(t, l, "k", Weight(2))
		time.Sleep(time.Second)
		c.admittedAfter(t, time.Second)
	})
}

// What an aligned rate has let through is not owed after a cut of limit or share.
func TestALowerLimitOwesNothing(t *testing.T) {
	for name, lower := range map[string]func(l *Limiter) error{
		"limit": func(l *Limiter) error { return l.SetLimit(Rates(aligned(10, time.Minute))) },
		"pool":  func(l *Limiter) error { return l.SetPool(Pool{Replicas: 10}, 0) },
	} {
		row(t, name, func(t *testing.T) {
			l := mustNew(t, Rates(aligned(100, time.Minute)))
			wants(t, l, "k", 100)
			must(t, lower(l))
			wants(t, l, "k", 0)
			time.Sleep(time.Minute)
			wants(t, l, "k", 10) // the window is new
		})
	}
}

// A limit that gets its first aligned rate long after the start goes by the wall clock of then. The clock may
// have been set since the limiter was made, and calls have not read it.
func TestFirstAlignedRateReadsTheWallClock(t *testing.T) {
	for _, step := range []time.Duration{1000 * time.Hour, -1000 * time.Hour} {
		row(t, step, func(t *testing.T) {
			wrong := step // the wall clock is wrong by so much
			wall := func(t time.Time) int64 { return t.Add(wrong).UnixNano() }
			l := mustNew(t, Rates(perSecond(1, 5)), fix(func(c *inside.Chance) { c.Wall = wall }))
			r := aligned(5, 10*time.Hour)
			wants(t, l, "k", 5)
			wrong = 0
			time.Sleep(time.Hour)
			l.Allow("other") // at the instant of the change
			setLimit(t, l, Rates(r))
			wants(t, l, "k", 5) // of a window that the key has taken nothing of
			for name, g := range map[string]*gate{
				"a key never seen": l.shard("k").unseen(0), "a key": gateOf(l, "k"),
			} {
				is(t, name, g.ext.rest[0].(*meter.Window).Index, time.Now().UnixNano()/int64(r.Per))
			}
		})
	}
}

// Two sparse windows of different lengths, or of different numbers of events, are open at one instant before
// long: also for the replica whose own windows never coincide. One alone keeps its fleet's total exact.
func TestSparseWindowsMeet(t *testing.T) {
	second := Rate{Name: "second", Events: 1, Per: time.Second, Kind: Window}
	for name, other := range map[string]Rate{
		"another length": {Unit: "tokens", Events: 1, Per: 10 * time.Second, Kind: Window},
		"another number": {Unit: "tokens", Events: 2, Per: time.Second, Kind: Window},
		"half a window":  {Unit: "tokens", Events: .5, Per: 7 * time.Second, Kind: Window},
	} {
		row(t, name, func(t *testing.T) {
			cycle := time.Duration(60 / other.Events * float64(other.Per))
			var calls []*call
			for i := range 60 {
				l := mustNew(t, Rates(second, other), StartPool(Pool{Replicas: 60, Ordinal: i + 1}),
					StartEmpty())
				calls = append(calls, asking(t, l, "k", Cost("tokens", 1)))
			}
			time.Sleep(2 * max(cycle, time.Minute))
			for i, c := range calls {
				if !c.ended() || c.err != nil {
					t.Errorf("replica %d waits after two cycles", i+1)
					c.cancel()
				}
			}
		})
	}
}

// drawFleet is the pools of a fleet of replicas with weights, with ordinals in a row.
func drawFleet(t *rapid.T, most, heaviest int) []Pool {
	fleet := make([]Pool, rapid.IntRange(1, most).Draw(t, "replicas"))
	n := 0
	for i := range fleet {
		w := rapid.IntRange(1, heaviest).Draw(t, "weight")
		fleet[i] = Pool{Ordinal: n + 1, Fixed: true, Weight: w}
		n += w
	}
	for i := range fleet {
		fleet[i].Replicas = n
	}
	return fleet
}

// singles are the pools of the replicas that one of a weight stands for.
func (p Pool) singles() (all []Pool) {
	for i := range p.weight() {
		all = append(all, Pool{Replicas: p.Replicas, Ordinal: p.Ordinal + i, Fixed: p.Fixed})
	}
	return all
}

// without is the pool without its ordinal.
func (p Pool) without() Pool { return Pool{Replicas: p.Replicas, Weight: p.Weight} }

// ruleOf is the share of the only rate of a limit that a replica has.
func ruleOf(r Rate, p Pool) rule {
	o := defaults()
	return o.resolve(Rates(r), belief{pool: p, sized: true}, []string{""}, 0).rules[0]
}

// A replica of weight w has the shares of w replicas, and those of a fleet add up to the limit.
func TestPropertyWeights(t *testing.T) {
	property(t, func(rt *rapid.T) {
		fleet := drawFleet(rt, 6, rapid.SampledFrom([]int{1, 3, 50}).Draw(rt, "heaviest"))
		weighsBuckets(rt, fleet)
		weighsSlots(rt, fleet)
	})
}

func weighsBuckets(rt *rapid.T, fleet []Pool) {
	rate := Rate{Events: float64(rapid.IntRange(1, 1000).Draw(rt, "events")), Per: time.Second,
		Burst: rapid.IntRange(2, 500).Draw(rt, "burst")}
	perSecond, most, share := 0.0, 0.0, 0.0
	for _, p := range fleet {
		x, one := ruleOf(rate, p), ruleOf(rate, p.singles()[0])
		perSecond, most, share = perSecond+1e9/x.Interval, most+x.Size, share+x.share
		if w := float64(p.Weight); math.Abs(x.Interval*w/one.Interval-1) > 1e-12 || x.Size < one.Size ||
			x.Size > one.Size*w*(1+1e-12) {
			rt.Fatalf("%+v: an event every %v ns, and %v at once; one replica %v, %v", p, x.Interval, x.Size,
				one.Interval, one.Size)
		}
	}
	bound := math.Max(float64(rate.Burst), float64(fleet[0].Replicas))
	if most > bound*(1+1e-9) || math.Abs(perSecond/rate.Events-1) > 1e-9 ||
		math.Abs(share/rate.Events-1) > 1e-9 {
		rt.Fatalf("%+v: %v a second, share %v, %v at once, of %+v", fleet, perSecond, share, most, rate)
	}
}

func weighsSlots(rt *rapid.T, fleet []Pool) {
	o := defaults()
	global := rapid.IntRange(1, 400).Draw(rt, "slots")
	exact, mixed := 0, 0
	for _, p := range fleet {
		sum := 0
		for _, one := range p.singles() {
			sum += o.slots(global, one)
		}
		own, least := o.slots(global, p), o.slots(global, p.without())
		if own != sum || least > own {
			rt.Fatalf("%+v: %d of %d slots, %d without an ordinal; its singles have %d", p, own, global,
				least, sum)
		}
		larger := p
		if larger.Replicas += rapid.IntRange(0, 9).Draw(rt, "more"); o.slots(global, larger) > own {
			rt.Fatalf("%d slots in %+v, and %d in %+v", own, p, o.slots(global, larger), larger)
		}
		if exact += own; rapid.Bool().Draw(rt, "without ordinal") {
			own = least
		}
		mixed += own
	}
	if exact != global || mixed > global {
		rt.Fatalf("%+v: %d of %d slots, and some without ordinals %d", fleet, exact, global, mixed)
	}
}
