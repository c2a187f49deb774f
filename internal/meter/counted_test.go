package meter

import (
	"testing"
	"time"
)

// quarter is one of four parts of a hundred events a minute, of which the fleet's count decides.
var quarter = &Rule{Schedule: NewSchedule(time.Minute, 100, Part{4, 1, 1}, 0), Counted: true}

// left fails unless a window has so many events left, of so many.
func left(t *testing.T, what string, w *Window, now Instant, r *Rule, n, of float64) {
	t.Helper()
	has, all, _ := w.Left(now, r)
	is(t, what, [2]float64{has, all}, [2]float64{n, of})
}

// A window knows nothing at first, and has its share. Reports open what the others have left; when they grow old it has
// its share of that, and what was used within them is not owed.
func TestCounted(t *testing.T) {
	now := sec(0)
	w, c, s := opened(now, quarter.Schedule), quarter.Schedule, func(s int) Instant { return sec(float64(s)) }
	left(t, "nothing is known", w, now, quarter, 25, 25)
	w.Learn(now, c, 30, sec(5).At)
	is(t, "fresh", w.Fresh(s(4)), true)
	left(t, "the others have used 30", w, now, quarter, 70, 70)
	w.Take(now, quarter, 40)
	left(t, "40 are used", w, now, quarter, 30, 70)
	is(t, "fresh at their end", w.Fresh(s(5)), false)
	left(t, "the reports are old", w, s(5), quarter, 0, 25)
	w.Learn(s(6), c, 95, s(9).At)
	left(t, "the others have used 95", w, s(6), quarter, 0, 5)
	w.Take(s(6), quarter, 3)
	left(t, "three too many", w, s(6), quarter, -3, 5)
	w.Refund(s(6), s(6).At, quarter, 3)
	is(t, "given back", w.Fleet.Back, 3)
	w.Learn(s(7), c, 120, s(9).At)
	left(t, "the others have used more than there is", w, s(7), quarter, 0, 0)
	left(t, "the next window owes nothing", w, s(60), quarter, 25, 25)
	is(t, "the last one's total", [2]int64{w.Fleet.Total, w.Fleet.Back}, [2]int64{43, 3})
	is(t, "a closed window counts", w.Counts(), false)
}

// A clock that goes back and forth comes into a window of which reports are known that have grown old.
func TestCountedAfterSteps(t *testing.T) {
	w := opened(sec(60), quarter.Schedule)
	w.Learn(sec(60), quarter.Schedule, 10, sec(61).At)
	left(t, "known", w, sec(60), quarter, 90, 90)
	w.Roll(sec(60.5).stepped(-time.Minute), quarter.Schedule)
	left(t, "back in it, when they are old", w, sec(62), quarter, 25, 25)
}

// Half of the share is used.
func TestBusy(t *testing.T) {
	w := opened(sec(0), quarter.Schedule)
	for n, want := range map[float64]bool{0: false, 12: false, 13: true, 25: true} {
		w := *w
		w.Take(sec(0), quarter, n)
		is(t, n, w.Busy(), want)
	}
	is(t, "a window of nothing that is not used", (&Window{}).Busy(), false)
}

// A window goes on from that of the same rule in another plan: by what either has used and heard, each only if it is of
// the same window.
func TestCountAs(t *testing.T) {
	c, now := quarter.Schedule, sec(0)
	used := func(at Instant, n float64, others int64) *Window {
		w := opened(at, c)
		w.Take(at, quarter, n)
		if others > 0 {
			w.Learn(at, c, others, at.At+time.Duration(time.Second))
		}
		return w
	}
	late, old := used(sec(-60), 0, 60), used(sec(-60), 0, 60)
	late.Roll(now, c)
	old.Roll(now, c)
	for name, row := range map[string]struct {
		w, from  *Window
		has, all float64
	}{
		"nothing is known":           {used(now, 3, 0), used(now, 20, 0), 5, 25},
		"it has used more":           {used(now, 21, 0), used(now, 20, 0), 4, 25},
		"what was let through":       {used(now, 0, 0), used(now, 40, 30), 30, 70},
		"it has heard more":          {used(now, 0, 60), used(now, 9, 30), 31, 40},
		"only it has heard":          {used(now, 3, 30), used(now, 9, 0), 61, 70},
		"of another window":          {late, used(now, 9, 30), 61, 70},
		"of the last window":         {used(now, 0, 30), old, 70, 70},
		"the other one is too early": {used(now, 3, 0), used(sec(-60), 20, 30), 22, 25},
		"the other one is ahead":     {used(now, 3, 0), used(sec(60), 20, 0), 5, 25},
	} {
		row.w.CountAs(now, c, row.from)
		left(t, name, row.w, now, quarter, row.has, row.all)
	}
	w, o := used(now, 0, 0), used(now, 0, 30)
	w.CountAs(now, c, o)
	o.Learn(now, c, 90, now.At+time.Duration(time.Second))
	left(t, "they are apart", w, now, quarter, 70, 70)
}

// A raise counts at once but for fractions, a larger share of a smaller pool with the next window, and a cut at once.
// No window owes what an earlier limit or pool has let through.
func TestWindowFollows(t *testing.T) {
	rule := func(events float64, p Part) *Rule {
		return &Rule{Schedule: NewSchedule(time.Minute, events, p, 0)}
	}
	for name, row := range map[string]struct {
		old, new       *Rule
		used           float64
		now, next, all float64
	}{
		"a raise":                     {rule(100, Part{2, 1, 1}), rule(300, Part{2, 1, 1}), 50, 100, 150, 150},
		"a raise by less than one":    {rule(2, Part{4, 1, 1}), rule(3, Part{4, 1, 1}), 0, 0, 1, 0},
		"a cut":                       {rule(100, Part{2, 1, 1}), rule(20, Part{2, 1, 1}), 30, 0, 10, 10},
		"a cut, less was used":        {rule(100, Part{2, 1, 1}), rule(20, Part{2, 1, 1}), 7, 3, 10, 10},
		"a smaller pool":              {rule(100, Part{2, 1, 1}), rule(100, Part{1, 1, 1}), 30, 20, 100, 50},
		"a larger pool":               {rule(100, Part{1, 1, 1}), rule(100, Part{4, 1, 1}), 60, 0, 25, 25},
		"the same":                    {rule(100, Part{2, 1, 1}), rule(100, Part{2, 1, 1}), 60, -10, 40, 50},
		"several ordinals are raised": {rule(8, Part{4, 1, 3}), rule(16, Part{4, 1, 3}), 6, 6, 12, 12},
		"a pool that just has grown":  {rule(100, Part{1, 1, 1}), rule(100, Part{2, 1, 1}), 100, 0, 50, 50},
		"counted no more":             {quarter, rule(100, Part{4, 1, 1}), 30, 0, 25, 25},
	} {
		w := opened(sec(0), row.old.Schedule)
		if row.old.Counted {
			w.Learn(sec(0), row.old.Schedule, 30, sec(9).At)
		}
		w.Take(sec(0), row.old, row.used)
		w.Follow(sec(0), row.old, row.new)
		left(t, name, w, sec(0), row.new, row.now, row.all)
		next, _, _ := w.Left(sec(60), row.new)
		is(t, []any{name, "the next window"}, next, row.next)
	}
	larger := &Rule{Schedule: NewSchedule(time.Minute, 100, Part{8, 1, 1}, 0), Counted: true}
	w := opened(sec(0), quarter.Schedule)
	w.Learn(sec(0), quarter.Schedule, 30, sec(9).At)
	w.Follow(sec(0), quarter, larger)
	left(t, "reports of another pool do not count", w, sec(0), larger, 12, 12)
}
