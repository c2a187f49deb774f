package quotient

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stopping is a limiter of four slots that stops a minute after the last hint, and what it has logged.
func stopping(t *testing.T, opts ...Option) (*Limiter, *bytes.Buffer) {
	log := new(bytes.Buffer)
	opts = append(opts, AwaitPool(), HintMaxAge(time.Minute), Logger(slog.New(slog.NewTextHandler(log, nil))))
	return limiterOf(t, Limit{InFlight: 4}, opts...), log
}

// stopped fails unless nothing is admitted and the limiter states why, or, with false, unless calls are.
func stopped(t *testing.T, l *Limiter, want bool) {
	t.Helper()
	synctest.Wait()
	p, d := l.TryAcquire("probe")
	p.Release()
	source := l.Stats().Pool.Source
	words := l.Explain("probe").String()
	if !want {
		if !d.OK || source == "awaited" || strings.Contains(words, "not known") {
			t.Errorf("%v: refused for %v, source %s, %s", time.Now().Format(time.TimeOnly), d.Reason,
				source, words)
		}
		return
	}
	if d.OK || d.Reason != ReasonPool || d.RetryAfter != 0 || source != "awaited" ||
		!strings.Contains(words, "the replica count is not known") {
		t.Errorf("%v: OK %v, refused for %v, source %s, %s", time.Now().Format(time.TimeOnly), d.OK, d.Reason,
			source, words)
	}
}

// A replica under AwaitPool without a configured pool admits nothing when its hints have grown old, until one
// comes again.
func TestStop(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, log := stopping(t)
		stopped(t, l, true)
		src := following(t, l)
		defer src.cancel()
		time.Sleep(time.Hour)
		stopped(t, l, true)
		src.says(2)
		stopped(t, l, false)
		time.Sleep(time.Minute - 1)
		stopped(t, l, false)
		time.Sleep(time.Nanosecond)
		stopped(t, l, true)
		if p := l.Stats().Pool; p.Replicas != 2 {
			t.Errorf("the last pool that was known is %+v", p)
		}
		src.fails("unreachable")
		time.Sleep(time.Hour)
		stopped(t, l, true)
		src.says(2)
		stopped(t, l, false)
		want := `level=WARN msg="pool not known: nothing is admitted" last="{Replicas:2 `
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("the log is %s, want %s", log, want)
		}
	})
}

// Callers wait through a stop, and those that hold a slot keep it.
func TestWaitersWaitThroughAStop(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, _ := stopping(t)
		src := following(t, l)
		defer src.cancel()
		src.says(2)
		a, b := took(t, l, "k"), took(t, l, "k")
		c, d := asking(t, l, "k"), asking(t, l, "k", Weight(2))
		time.Sleep(2 * time.Minute)
		stopped(t, l, true)
		a.Release()
		b.Release()
		synctest.Wait()
		if c.ended() || d.ended() {
			t.Fatalf("admitted, or refused, while it is stopped: %v, %v", c.err, d.err)
		}
		src.says(2)
		synctest.Wait()
		if !c.ended() || c.err != nil || d.ended() {
			t.Fatalf("the first: %v, %v; the second: %v", c.ended(), c.err, d.ended())
		}
		c.permit.Release()
		synctest.Wait()
		if !d.ended() || d.err != nil {
			t.Errorf("the second: %v", d.err)
		}
	})
}

// Events not admitted in a stop are not saved up.
func TestStopStartsEmpty(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(100, 100)), AwaitPool(), HintMaxAge(time.Minute))
		src := following(t, l)
		defer src.cancel()
		src.says(1)
		time.Sleep(time.Hour)
		src.says(1)
		if _, n := l.TryAcquireUpTo("k", 1000); n > 2 {
			t.Errorf("%d at once after a stop", n)
		}
	})
}

// SetPool ends a stop; with the end of its ttl the stop is back.
func TestSetPoolEndsAStop(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, _ := stopping(t)
		src := following(t, l)
		defer src.cancel()
		src.says(2)
		time.Sleep(2 * time.Minute)
		poolFor(t, l, 4, time.Minute)
		stopped(t, l, false)
		time.Sleep(time.Minute)
		stopped(t, l, true)
		poolFor(t, l, 4, 0)
		time.Sleep(time.Hour)
		stopped(t, l, false)
		src.says(3)
		stopped(t, l, false)
		time.Sleep(time.Minute)
		stopped(t, l, true)
	})
}

// Hints also grow old when Follow has ended, and while a source ends again and again.
func TestStopAfterFollowHasEnded(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, _ := stopping(t)
		src := following(t, l)
		src.says(2)
		time.Sleep(30 * time.Second)
		src.cancel()
		synctest.Wait()
		time.Sleep(30*time.Second - 1)
		stopped(t, l, false)
		time.Sleep(time.Nanosecond)
		stopped(t, l, true)
		again := following(t, l)
		again.says(2)
		stopped(t, l, false)
		again.cancel()
		synctest.Wait()
		for range 5 {
			_ = l.Follow(t.Context(), ends{})
		}
		stopped(t, l, false)
		time.Sleep(10 * time.Second)
		stopped(t, l, true)
	})
}

// A Follow that goes on where another has ended is not stopped by what the other has had reported.
func TestStopGoesByTheLastHint(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l, _ := stopping(t)
		first := following(t, l)
		first.says(2)
		first.cancel()
		synctest.Wait()
		second := following(t, l)
		defer second.cancel()
		for range 10 {
			time.Sleep(50 * time.Second)
			second.says(2)
			stopped(t, l, false)
		}
	})
}

// A single report of a source does not grow old, however often it is followed.
func TestStopSparesASteadySource(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		t.Setenv(envReplicas, "2")
		l, log := stopping(t)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			_ = l.Follow(ctx, Env())
			cancel()
			time.Sleep(3 * time.Minute)
			stopped(t, l, false)
		}
		if strings.Contains(log.String(), "pool not known") {
			t.Errorf("it has stopped: %s", log)
		}
	})
}

// A limiter that has nothing to go back to keeps what was reported, or what an operator has set, also when
// another Follow gets no report.
func TestSilenceIsNotOneReplica(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(60, 60)), HintMaxAge(time.Minute))
		first := following(t, l)
		first.says(4)
		first.cancel()
		synctest.Wait()
		second := following(t, l)
		time.Sleep(time.Hour)
		counted(t, l, 4)
		second.cancel()
		synctest.Wait()
		setReplicas(t, l, 6)
		third := following(t, l)
		defer third.cancel()
		time.Sleep(time.Hour)
		counted(t, l, 6)
	})
}

// Hints of a source that ends again and again grow old too: the configured pool counts.
func TestSourceThatEndsGrowsOld(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(perSecond(60, 60)), HintMaxAge(25*time.Second), Replicas(9))
		src := following(t, l)
		src.says(4)
		src.cancel()
		synctest.Wait()
		for range 4 {
			_ = l.Follow(t.Context(), ends{})
		}
		counted(t, l, 9)
	})
}
