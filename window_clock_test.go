package quotient

import (
	"testing"
	"time"
)

// Bound 11: a step of the wall clock opens at most one window, and a step back opens none at once.
func TestClockStepOpensOneWindow(t *testing.T) {
	for step, most := range map[time.Duration]int64{
		time.Second: 5, time.Hour: 5, 10_000 * time.Hour: 5, -time.Second: 0, -time.Hour: 0,
		-10_000 * time.Hour: 0,
	} {
		now := realNow()
		w := opened(now, fiveASecond)
		w.used = 5
		n := int64(0)
		for w.uses(now.stepped(step), 1, fiveASecond) {
			n++
		}
		if n != most {
			t.Errorf("a step of %v let %d through, want %d", step, n, most)
		}
	}
}

// However the wall clock swings, no more windows open than real time has room for, plus one.
func TestClockThatSwingsOpensNoWindows(t *testing.T) {
	start := realNow()
	w := opened(start, fiveASecond)
	n := 0
	for i := range 1000 {
		now := start.later(time.Duration(i) * time.Millisecond)
		swing := time.Duration(i%2) * time.Hour
		for w.uses(now.stepped(swing), 1, fiveASecond) {
			n++
		}
	}
	if n > 15 {
		t.Errorf("%d events in one second, want at most those of three windows", n)
	}
}

// After a step back one window opens each period, and it is the one by the wall clock.
func TestClockThatWasAheadGoesOn(t *testing.T) {
	start := realNow()
	w := opened(start, fiveASecond)
	for i := range 60 {
		now := start.later(time.Duration(i) * time.Second).stepped(-time.Hour)
		if !w.uses(now, 5, fiveASecond) {
			t.Errorf("second %d: no window opened", i)
		}
		if w.uses(now, 1, fiveASecond) {
			t.Errorf("second %d: a second window opened", i)
		}
		if want := fiveASecond.index(now.wall); w.index != want {
			t.Errorf("second %d: window %d, want %d", i, w.index, want)
		}
	}
}

// A step forward repays no debt: only windows that time has passed for do.
func TestStepForwardRepaysNothing(t *testing.T) {
	start := realNow()
	w := opened(start, fiveASecond)
	if !w.uses(start, 50, fiveASecond) {
		t.Fatal("a large ask does not fit a fresh window")
	}
	if w.uses(start.stepped(time.Hour), 1, fiveASecond) {
		t.Error("the debt of nine windows was repaid by a step")
	}
	if !w.uses(start.later(11*time.Second).stepped(time.Hour), 1, fiveASecond) {
		t.Error("the debt of nine windows was not repaid in eleven")
	}
}

// A limit that gets its first aligned rate long after the start goes by the wall clock of then. The clock may
// have been set since the limiter was made, and calls have not read it.
func TestFirstAlignedRateReadsTheWallClock(t *testing.T) {
	for _, step := range []time.Duration{1000 * time.Hour, -1000 * time.Hour} {
		row(t, step, func(t *testing.T) {
			wrong := step // the wall clock is wrong by so much
			wall := func(t time.Time) int64 { return t.Add(wrong).UnixNano() }
			l := limiterOf(t, rated(perSecond(1, 5)), WithWallClock(wall))
			r := Rate{Name: "w", Events: 5, Per: 10 * time.Hour, Aligned: true}
			wants(t, l, "k", 5)
			wrong = 0
			time.Sleep(time.Hour)
			l.Allow("other") // at the instant of the change
			setLimit(t, l, rated(r))
			wants(t, l, "k", 5) // of a window that the key has taken nothing of
			want := time.Now().UnixNano() / int64(r.Per)
			for name, g := range map[string]*gate{
				"a key never seen": l.shard("k").untouched, "a key": gateOf(l, "k"),
			} {
				if got := g.ext.rest[0].(*window).index; got != want {
					t.Errorf("the window of %s is %d, and it is %d now", name, got, want)
				}
			}
		})
	}
}

// A caller may have read the monotonic clock alone, just before a first aligned rate was set. Windows go on
// all the same.
func TestMonotonicTimeUnderAnAlignedRate(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(aligned(5, time.Hour)))
		for i := range 3 {
			wants(t, l, "k", 5)
			now := instant{at: l.shard("k").latest.at + time.Hour}
			for n := range 6 {
				if got := allowedAt(l, "k", now); got != (n < 5) {
					t.Errorf("hour %d: ask %d: %v", i, n+1, got)
				}
			}
			time.Sleep(2 * time.Hour)
		}
	})
}
