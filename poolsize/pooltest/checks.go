package pooltest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"go.uber.org/goleak"
)

const (
	never    = time.Hour              // no check takes as long
	holdDown = 100 * time.Millisecond // of the check that waits for it
	quiet    = 100 * time.Millisecond // in which something that is left behind shows itself
	held     = 10 * time.Millisecond  // a report that is held up, so that another can run into it
	poll     = 2 * time.Millisecond
)

// limiter returns one to follow a source, with a pool that is not set.
func limiter(t testing.TB, d time.Duration) *quotient.Limiter {
	l, err := quotient.New(quotient.Rates(quotient.PerSecond(1000)), quotient.HoldDown(d),
		quotient.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// sees waits for a report of n replicas. Errors may come before, and other sizes while the source catches
// up, but no pool that makes no sense.
func (s *watch) sees(n int) report {
	s.t.Helper()
	return s.await(fmt.Sprintf("a pool of %d", n), func(r report) bool {
		if r.err == nil && !r.good() {
			s.t.Errorf("reported %+v: %v", r.pool, invalid(r.pool))
		}
		return s.is(r, n)
	})
}

// is reports whether a report is good and of n replicas, and fails if a good one has another weight.
func (s *watch) is(r report, n int) bool {
	s.t.Helper()
	if want := max(1, s.w.Weight); r.good() && max(1, r.pool.Weight) != want {
		s.t.Errorf("reported %+v, want a weight of %d", r.pool, want)
	}
	return r.good() && r.pool.Replicas == n
}

// largestInForce fails unless the limiter divides by the largest size that was reported, as it must
// within the hold-down.
func (s *watch) largestInForce(when string) {
	s.t.Helper()
	if got := s.l.Stats().Pool.Replicas; got != s.largest {
		s.t.Errorf("%s: the pool in force is one of %d, want %d", when, got, s.largest)
	}
}

// sized makes the world one of so many replicas if that can be done, and starts a watch that sees how many there are.
func sized(t testing.TB, w World, want int, l *quotient.Limiter) (s *watch, n int) {
	t.Helper()
	n = w.set(t, want)
	s = start(t, w, w.Source(t), l)
	t.Cleanup(func() { s.cancel() }) // if it sees nothing
	s.sees(n)
	return s, n
}

func reportsSize(t testing.TB, w World) {
	s, _ := sized(t, w, 3, nil)
	s.stop()
}

func followsSize(t testing.TB, w World) {
	s, _ := sized(t, w, 3, nil)
	defer s.stop()
	for _, n := range []int{7, 2, 5} {
		w.set(t, n)
		s.changed()
		s.sees(n)
	}
}

func damps(t testing.TB, w World) {
	s, _ := sized(t, w, 3, limiter(t, never))
	defer s.stop()
	s.largestInForce("first")
	for _, n := range []int{7, 2} {
		w.set(t, n)
		s.changed()
		s.sees(n)
		s.largestInForce(fmt.Sprintf("after a report of %d", n))
	}
}

func holdsDown(t testing.TB, w World) {
	s, _ := sized(t, w, 5, limiter(t, holdDown))
	defer s.stop()
	w.set(t, 2)
	s.changed()
	first := s.sees(2).at
	deadline := time.After(w.within())
	for tick := time.Tick(poll); s.l.Stats().Pool.Replicas != 2; {
		select {
		case <-s.reports:
		case <-tick:
		case <-deadline:
			t.Fatalf("the pool in force is still one of %d, %v after a report of 2",
				s.l.Stats().Pool.Replicas, w.within())
		}
	}
	if d := time.Since(first); d < holdDown {
		t.Errorf("a report of 2 counts after %v, within the hold-down of %v", d, holdDown)
	}
}

func keepsWhenBroken(t testing.TB, w World)  { keeps(t, w, w.Break) }
func keepsWhenGarbage(t testing.TB, w World) { keeps(t, w, w.Garbage) }

// keeps harms the world. The first bad report shows that the source has noticed; from there on all must be
// bad until the world is healed.
func keeps(t testing.TB, w World, harm func(testing.TB)) {
	s, n := sized(t, w, 5, limiter(t, never))
	defer s.stop()
	before := s.l.Stats().Pool
	harm(t)
	heal := sync.OnceFunc(func() { w.Heal(t) })
	defer heal()
	s.changed()
	s.await("a failure", func(r report) bool {
		if r.good() && r.pool.Replicas != n {
			t.Errorf("reported %+v of a world of %d that fails", r.pool, n)
		}
		return !r.good()
	})
	for range 2 {
		if w.Once {
			break
		}
		if r := s.await("a failure again", func(report) bool { return true }); r.good() {
			t.Errorf("reported %+v while it fails", r.pool)
		}
	}
	s.largestInForce("while it fails")
	if after := s.l.Stats().Pool; after.Errors+after.Rejected == before.Errors+before.Rejected {
		t.Errorf("no failure was counted: %+v", after)
	}
	heal()
	s.changed()
	s.await(fmt.Sprintf("a pool of %d again", n), func(r report) bool { return s.is(r, n) }) // one more may have failed
	s.largestInForce("healed")
}

func reportsSerially(t testing.TB, w World) {
	n := w.set(t, 3)
	s := &watch{t: t, w: w, src: w.Source(t), hold: held}
	s.begin()
	defer s.stop()
	s.sees(n)
	for range 3 {
		if !w.Once {
			s.sees(n)
		}
	}
	if s.overlap.Load() {
		t.Error("report was called while another report was being made")
	}
}

func endsWithContext(t testing.TB, w World) {
	s, _ := sized(t, w, 3, nil)
	s.stop()
	s.ctx, s.cancel = context.WithDeadline(context.Background(), time.Now().Add(held))
	s.run()
	<-s.ctx.Done()
	s.stop()
	s.run() // in a context that has ended
	s.stop()
}

func endsWhenBroken(t testing.TB, w World) {
	s, _ := sized(t, w, 3, nil)
	w.Break(t)
	defer w.Heal(t)
	s.changed()
	s.await("a failure", func(r report) bool { return !r.good() })
	s.stop()
}

func leavesNothing(t testing.TB, w World) {
	s, n := sized(t, w, 3, nil) // what the first Watch starts for good is not a leak of each Watch
	s.stop()
	ignore := append([]goleak.Option{goleak.IgnoreCurrent()}, w.Ignore...)
	s.begin()
	s.sees(n)
	s.stop()
	w.set(t, 5)
	if time.Sleep(quiet); s.late.Load() {
		t.Error("reported after Watch had returned")
	}
	if err := goleak.Find(ignore...); err != nil {
		t.Errorf("Watch has returned and left %v", err)
	}
}

func watchesAgain(t testing.TB, w World) {
	s, n := sized(t, w, 3, nil)
	s.stop()
	s.begin()
	defer s.stop()
	s.sees(n)
}

// watchesTwice wants that each of two either sees the size or ends with an error of its own, and that
// one of them sees it.
func watchesTwice(t testing.TB, w World) {
	n := w.set(t, 3)
	src := w.Source(t)
	works := 0
	for _, s := range []*watch{start(t, w, src, nil), start(t, w, src, nil)} {
		defer s.cancel()
		if s.seesOrEnds(n) {
			works++
			defer s.stop()
		}
	}
	if works == 0 {
		t.Error("neither of two Watches at a time works")
	}
}

// seesOrEnds is sees for a Watch that may refuse.
func (s *watch) seesOrEnds(n int) bool {
	s.t.Helper()
	deadline := time.After(s.w.within())
	for {
		select {
		case r := <-s.reports:
			if r.good() && r.pool.Replicas == n {
				return true
			}
		case <-s.ended:
			if s.err == nil || errors.Is(s.err, context.Canceled) {
				s.t.Errorf("the second of two Watches ended with %v", s.err)
			}
			return false
		case <-deadline:
			s.t.Errorf("one of two Watches neither reported a pool of %d nor ended within %v", n, s.w.within())
			return false
		}
	}
}

// checked is a source whose settings can be wrong.
type checked interface {
	quotient.Source
	Validate() error
}

func refusesWrong(t testing.TB, w World) {
	if src, ok := w.Source(t).(checked); ok && src.Validate() != nil {
		t.Errorf("the right settings: Validate returned %v", src.Validate())
	}
	for want, src := range w.Wrong {
		v, ok := src.(checked)
		if !ok {
			t.Errorf("%s: the source has no method Validate", want)
			continue
		}
		err := v.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate returned %v, want an error that says %s", err, want)
		}
		s := start(t, w, src, nil)
		select {
		case <-s.ended:
		case <-time.After(w.within()):
			s.cancel()
			t.Fatalf("%s: Watch neither ended nor failed within %v", want, w.within())
		}
		s.cancel()
		if len(s.reports) > 0 || fmt.Sprint(s.err) != fmt.Sprint(err) {
			t.Errorf("%s: Watch made %d reports and returned %v, Validate %v", want, len(s.reports), s.err, err)
		}
	}
}
