package quotient

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func named(name string, r Rate) Rate {
	r.Name = name
	return r
}

func aligned(events float64, per time.Duration) Rate {
	return Rate{Name: "w", Events: events, Per: per, Aligned: true}
}

// TestChangesBringNoTokens takes everything, changes the limit once or more in the same instant, and
// looks what the key may do then.
func TestChangesBringNoTokens(t *testing.T) {
	five, ten := perSecond(1, 5), perSecond(1, 10)
	for _, c := range []struct {
		name    string
		from    Limit
		changes []Limit
		want    int // admitted after the last change
	}{
		{"nothing changes", rated(five), []Limit{rated(five)}, 0},
		{"a raised burst", rated(five), []Limit{rated(ten)}, 0},
		{"up and down and up", rated(five), []Limit{rated(ten), rated(five), rated(ten)}, 0},
		{"a renamed rate", rated(five), []Limit{rated(named("new", five))}, 0},
		{"an added rate", rated(five), []Limit{rated(five, named("new", ten))}, 0},
		{"an added rate, then the old one goes", rated(five),
			[]Limit{rated(five, named("new", ten)), rated(named("new", ten))}, 0},
		{"another place", rated(five, named("b", ten)), []Limit{rated(named("b", ten), five)}, 0},
		{"a removed rate leaves the other", rated(five, named("b", ten)), []Limit{rated(named("b", ten))}, 5},
		{"slots come", rated(five), []Limit{{Rates: []Rate{five}, InFlight: 3}}, 0},
		{"a window of another length", rated(aligned(5, time.Minute)),
			[]Limit{rated(aligned(5, time.Hour))}, 0},
		{"a renamed window", rated(aligned(5, time.Minute)),
			[]Limit{rated(named("v", aligned(5, time.Minute)))}, 0},
		{"a raised window counts at once", rated(aligned(5, time.Minute)),
			[]Limit{rated(aligned(8, time.Minute))}, 3},
		{"up and down again", rated(aligned(5, time.Minute)),
			[]Limit{rated(aligned(8, time.Minute)), rated(aligned(5, time.Minute))}, 0},
	} {
		row(t, c.name, func(t *testing.T) {
			l := limiterOf(t, c.from)
			wants(t, l, "k", 5)
			for _, limit := range c.changes {
				setLimit(t, l, limit)
			}
			wants(t, l, "k", c.want)
		})
	}
}

// Bound 1 holds through every SetLimit: refusing all for an instant must not fill the buckets.
func TestDenyForAnInstantBringsNoTokens(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 5)))
		wants(t, l, "k", 5)
		setLimit(t, l, Limit{Deny: true})
		setLimit(t, l, rated(perSecond(1, 5)))
		wants(t, l, "k", 0)
	})
}

// A debt stays what it is under another name.
func TestRenamedRateKeepsItsDebt(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(tokensPerMinute(60, 100)))
		if err := took(t, l, "k", Cost("tokens", 100)).Correct("tokens", 150); err != nil {
			t.Fatal(err)
		}
		setLimit(t, l, rated(named("new", tokensPerMinute(60, 100))))
		has(t, l, "k", -50)
	})
}

// A rule keeps its state by name and unit also when it becomes aligned, or ceases to be.
func TestAlignedAndBackBringsNoTokens(t *testing.T) {
	bucket, window := named("w", perSecond(1, 5)), aligned(5, time.Hour)
	for _, c := range []struct {
		name  string
		rates []Rate
	}{
		{"a bucket becomes a window", []Rate{bucket, window}},
		{"a window becomes a bucket", []Rate{window, bucket}},
	} {
		row(t, c.name, func(t *testing.T) {
			l := limiterOf(t, rated(c.rates[0]))
			wants(t, l, "k", 5)
			setLimit(t, l, rated(c.rates[1]))
			wants(t, l, "k", 0)
		})
	}
}

func TestRateOfANewUnitStartsFull(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(1, 5)))
		wants(t, l, "k", 5)
		setLimit(t, l, rated(perSecond(1, 5), tokensPerMinute(60, 100)))
		if got := tokensOf(t, l, "k"); !slices.Equal(got, []float64{0, 100}) {
			t.Errorf("left %v", got)
		}
	})
}

// A rule that stays keeps its own state wherever it moves to, also from the first place. Admissions by
// another rule of its unit are not taken from it. A change of its size counts as it does for a rule that
// stands still.
func TestRulesThatMoveKeepTheirState(t *testing.T) {
	bucket := Rate{Name: "bucket", Events: 10, Per: time.Hour, Burst: 10}
	window := Rate{Name: "window", Events: 20, Per: time.Hour, Aligned: true}
	other := Rate{Name: "other", Events: 5, Per: time.Hour, Burst: 5}
	larger, wider := bucket, window
	larger.Burst, wider.Events = 15, 30
	for _, c := range []struct {
		name          string
		before, after []Rate
		want          []float64 // left of each after, when 3 were taken before
	}{
		{"a bucket moves back", []Rate{bucket, other}, []Rate{other, bucket}, []float64{2, 7}},
		{"a bucket moves to the front", []Rate{other, bucket}, []Rate{bucket, other}, []float64{7, 2}},
		{"a bucket moves back and grows", []Rate{bucket, other}, []Rate{other, larger}, []float64{2, 7}},
		{"a bucket moves behind a new rule", []Rate{bucket, other}, []Rate{PerHour(3600e3), other, bucket},
			[]float64{2, 2, 7}},
		{"a window moves back", []Rate{window, other}, []Rate{other, window}, []float64{2, 17}},
		{"a window moves to the front", []Rate{other, window}, []Rate{window, other}, []float64{17, 2}},
		{"a window moves back and grows", []Rate{window, other}, []Rate{other, wider}, []float64{2, 27}},
		{"a window moves to the front and grows", []Rate{other, window}, []Rate{wider, other},
			[]float64{27, 2}},
		{"a window stays and grows", []Rate{window, other}, []Rate{wider, other}, []float64{27, 2}},
		{"a window and a bucket change places", []Rate{window, bucket}, []Rate{bucket, window},
			[]float64{7, 17}},
		{"two windows change places",
			[]Rate{window, {Name: "day", Events: 8, Per: 24 * time.Hour, Aligned: true}},
			[]Rate{{Name: "day", Events: 9, Per: 24 * time.Hour, Aligned: true}, wider}, []float64{6, 27}},
	} {
		row(t, c.name, func(t *testing.T) {
			l := limiterOf(t, rated(c.before...))
			took(t, l, "k", Weight(3))
			setLimit(t, l, rated(c.after...))
			l.Check("k")
			if got := tokensOf(t, l, "k"); !slices.Equal(got, c.want) {
				t.Errorf("left %v, want %v", got, c.want)
			}
		})
	}
}

// A setting is stricter where some who wait may have to be refused for good, whatever place the rule has.
func TestStricterSettings(t *testing.T) {
	a, b := Rate{Name: "a", Events: 1, Per: time.Second, Burst: 10},
		Rate{Name: "b", Events: 1, Per: time.Second, Burst: 20}
	lower, slower := a, a
	lower.Burst, slower.Events = 9, .5
	for _, c := range []struct {
		name          string
		before, after Limit
		want          bool
	}{
		{"nothing changes", rated(a, b), rated(a, b), false},
		{"the only rule stays", rated(a), rated(a), false},
		{"the first burst is lowered", rated(a, b), rated(lower, b), true},
		{"the last burst is lowered", rated(b, a), rated(b, lower), true},
		{"the first burst is raised", rated(lower, b), rated(a, b), false},
		{"a rate is slowed", rated(a), rated(slower), false},
		{"rules change places", rated(a, b), rated(b, a), false},
		{"rules change places, and a burst is lowered", rated(a, b), rated(b, lower), true},
		{"a new rule comes first", rated(a), rated(b, a), true},
		{"a new rule comes last", rated(a), rated(a, b), true},
		{"a rule goes", rated(a, b), rated(b), false},
		{"slots where there were none", rated(a), Limit{Rates: []Rate{a}, InFlight: 5}, true},
		{"fewer slots", Limit{InFlight: 5}, Limit{InFlight: 4}, true},
		{"as many slots", Limit{InFlight: 5}, Limit{InFlight: 5}, false},
		{"more slots", Limit{InFlight: 5}, Limit{InFlight: 6}, false},
		{"no slots any more", Limit{InFlight: 5}, Limit{}, false},
		{"deny", rated(a), Limit{Deny: true}, true},
		{"deny no more", Limit{Deny: true}, Limit{}, false},
	} {
		o, v := defaults(), belief{pool: Pool{Replicas: 1}}
		if got := o.resolve(c.after, v, nil, 0).stricter(o.resolve(c.before, v, nil, 0)); got != c.want {
			t.Errorf("%s: stricter %v, want %v", c.name, got, c.want)
		}
	}
}

// Those who left the pool have used their part of this window; those who came will want theirs.
func TestPoolChangesInAWindow(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(aligned(12, time.Minute)), Replicas(4))
		took(t, l, "k")
		setReplicas(t, l, 2)
		wants(t, l, "k", 2) // 3 as before
		time.Sleep(time.Minute)
		took(t, l, "k")
		setReplicas(t, l, 6)
		wants(t, l, "k", 1) // 2 at once
		time.Sleep(time.Minute)
		setReplicas(t, l, 12)
		setReplicas(t, l, 1)
		wants(t, l, "k", 1) // the least of the sizes in this window
	})
}

// It is the same for keys without a call in this window, or ever.
func TestPoolChangesInAWindowOfAnUntouchedKey(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(aligned(12, time.Minute)), Replicas(4))
		took(t, l, "k")
		time.Sleep(time.Minute)
		setReplicas(t, l, 2)
		wants(t, l, "k", 3)
		wants(t, l, "never seen", 3)
		time.Sleep(time.Minute)
		wants(t, l, "k", 6)
	})
}

func TestPoolChangesDivideABucketAnew(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(12, 24)), Replicas(2))
		took(t, l, "k", Weight(2))
		setReplicas(t, l, 4)
		has(t, l, "k", 6)
		setReplicas(t, l, 1)
		has(t, l, "k", 6)
		time.Sleep(time.Second)
		has(t, l, "k", 18)
		took(t, l, "never seen", Weight(18)) // a key that is new now is in no other position
	})
}

// Waiters keep their places when the rules change under them, and what is queued is counted again.
func TestRulesChangeUnderWaiters(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(time.Second)))
		wants(t, l, "k", 1)
		first, second := asking(t, l, "k"), asking(t, l, "k")
		setLimit(t, l, rated(PerHour(7200), named("new", Every(10*time.Second))))
		asking(t, l, "k").gaveUp(t)
		if d := refusedFor(t, l, ReasonRate, "k"); d.Rule != "new" || d.RetryAfter != 30*time.Second {
			t.Errorf("got %+v, want the turn behind two waiters, 30 s", d)
		}
		time.Sleep(20 * time.Second)
		first.admittedAfter(t, 10*time.Second)
		second.admittedAfter(t, 20*time.Second)
	})
}

// Permits of before a change are given back after it.
func TestLimitChangesUnderPermits(t *testing.T) {
	l := limiterOf(t, Limit{InFlight: 4})
	old := took(t, l, "k", Weight(3))
	setLimit(t, l, rated(perSecond(1, 5)))
	took(t, l, "k").Release()
	setLimit(t, l, Limit{InFlight: 2})
	refusedFor(t, l, ReasonInFlight, "k")
	old.Release()
	took(t, l, "k", Weight(2)).Release()
	inFlight(t, l, 0)
	if ks := gateOf(l, "k"); ks.used != 0 || ks.held != 0 {
		t.Errorf("%d used, %d held", ks.used, ks.held)
	}
}

// A SetLimit that changes nothing must not open the share that a smaller pool brings.
func TestSameLimitIsNoRaise(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		limit := rated(Rate{Name: "m", Events: 10, Per: time.Minute, Aligned: true})
		a := limiterOf(t, limit, StartPool(Pool{Replicas: 2, Ordinal: 1, Fixed: true}))
		b := limiterOf(t, limit, StartPool(Pool{Replicas: 2, Ordinal: 2, Fixed: true}))
		wants(t, a, "k", 5)
		wants(t, b, "k", 5) // b leaves
		if err := a.SetPool(Pool{Replicas: 1, Ordinal: 1, Fixed: true}, 0); err != nil {
			t.Fatal(err)
		}
		wants(t, a, "k", 0)
		setLimit(t, a, limit)
		wants(t, a, "k", 0)
	})
}

// The same for a new replica's first window.
func TestSameLimitDoesNotOpenANewReplica(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		limit := rated(Rate{Name: "m", Events: 10, Per: time.Minute, Aligned: true})
		a := limiterOf(t, limit, Replicas(2), StartEmpty())
		wants(t, a, "k", 0)
		setLimit(t, a, limit)
		wants(t, a, "k", 0)
	})
}

// StartEmpty with a limit that comes later.
func TestNewReplicaWithLateLimit(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Deny: true}, Replicas(2), StartEmpty())
		setLimit(t, l, rated(perSecond(10, 10)))
		wants(t, l, "k", 0)
	})
}

func TestChangesWhileInUse(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{perSecond(1000, 10)}, InFlight: 5})
		for i := range 20 {
			go func() {
				for range 50 {
					if p, err := l.Acquire(t.Context(), fmt.Sprint(i%3)); err == nil {
						time.Sleep(time.Millisecond)
						p.Release()
					}
				}
			}()
		}
		for i := range 200 {
			setLimit(t, l, Limit{Rates: []Rate{perSecond(float64(1000+i), 10)}, InFlight: 1 + i%5})
			setReplicas(t, l, 1+i%2)
			time.Sleep(time.Millisecond)
		}
		setLimit(t, l, Limit{InFlight: 100})
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := l.Stats(); st.Waiting != 0 || st.InFlight != 0 || st.DoubleReleases != 0 ||
			st.Limit.InFlight != 100 {
			t.Errorf("got %+v", st)
		}
	})
}

// The debt of a window stays under another name, or as a bucket.
func TestRenamedWindowKeepsItsDebt(t *testing.T) {
	window := Rate{Name: "w", Unit: "tokens", Events: 100, Per: time.Minute, Aligned: true}
	for name, next := range map[string]Rate{
		"a window": named("new", window),
		"a bucket": named("new", tokensPerMinute(100, 100)),
	} {
		row(t, name, func(t *testing.T) {
			l := limiterOf(t, rated(window))
			if err := took(t, l, "k", Cost("tokens", 100)).Correct("tokens", 250); err != nil {
				t.Fatal(err)
			}
			setLimit(t, l, rated(next))
			has(t, l, "k", -150)
		})
	}
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(tokensPerMinute(100, 100)))
		if err := took(t, l, "k", Cost("tokens", 100)).Correct("tokens", 250); err != nil {
			t.Fatal(err)
		}
		setLimit(t, l, rated(window))
		has(t, l, "k", -150)
	})
}

// Bound 1 holds through every SetLimit: rules that overlap as they come and go do not fill each other up.
func TestRulesThatComeAndGoBringNoTokens(t *testing.T) {
	a, b, window := perSecond(1, 5), named("b", perSecond(1, 10)), aligned(5, time.Hour)
	for _, c := range []struct {
		name  string
		cycle []Limit
		most  int // in one instant, however often the cycle is run
	}{
		{"two buckets", []Limit{rated(a), rated(a, b), rated(b), rated(b, a)}, 10},
		{"a bucket and a window", []Limit{rated(a), rated(a, window), rated(window), rated(window, a)}, 5},
		{"two windows", []Limit{rated(window), rated(window, named("v", window)), rated(named("v", window)),
			rated(named("v", window), window)}, 5},
		{"a bucket and no", []Limit{rated(a), Limit{Deny: true}}, 5},
		{"two buckets and no", []Limit{rated(a), Limit{Deny: true}, rated(b), Limit{Deny: true}}, 10},
		{"other units between", []Limit{rated(a, tokensPerMinute(60, 60)), rated(a)}, 5},
		{"slots between", []Limit{rated(a), {Rates: []Rate{a}, InFlight: 3}}, 5},
	} {
		row(t, c.name, func(t *testing.T) {
			l := limiterOf(t, c.cycle[0])
			n := 0
			for range 5 {
				for _, limit := range c.cycle {
					setLimit(t, l, limit)
					for n < 1000 && l.Allow("k") {
						n++
					}
				}
			}
			if n > c.most {
				t.Errorf("%d were admitted in one instant, at most %d may", n, c.most)
			}
		})
	}
}

// A gate keeps nothing of rates that are gone.
func TestGatesForgetRatesThatAreGone(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(10, 10), PerHour(1000)))
		took(t, l, "k")
		setLimit(t, l, rated(perSecond(10, 10)))
		took(t, l, "k")
		if g := gateOf(l, "k"); g.ext == nil || len(g.ext.rest) > 0 {
			t.Errorf("the extension of a gate with one rate: %+v", g.ext)
		}
	})
}

// A gate with one rate needs no extension, however often the limit changes.
func TestGatesStaySmall(t *testing.T) {
	l := limiterOf(t, rated(perSecond(10, 10)))
	took(t, l, "k")
	setLimit(t, l, rated(PerHour(20)))
	l.Allow("k")
	if g := gateOf(l, "k"); g.ext != nil {
		t.Errorf("the gate has an extension: %+v", g.ext)
	}
}

// A new window is whole where the rates before it have more left.
func TestNewWindowBesideALargeBucket(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		hour := Rate{Name: "hour", Events: 100, Per: time.Hour, Burst: 100}
		l := limiterOf(t, rated(hour))
		took(t, l, "k")
		setLimit(t, l, rated(hour, Rate{Name: "minute", Events: 5, Per: time.Minute, Aligned: true}))
		wants(t, l, "k", 5)
	})
}
