package pooltest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
)

// report is one report of a source.
type report struct {
	pool quotient.Pool
	err  error
	at   time.Time
}

// good reports whether a Limiter would believe it.
func (r report) good() bool { return r.err == nil && invalid(r.pool) == nil }

// invalid is the error of a Limiter for a pool that is out of range.
func invalid(p quotient.Pool) error {
	_, err := quotient.New(quotient.Limit{}, quotient.StartPool(p))
	return err
}

// watch is a call of Watch, alone or through a Limiter that follows.
type watch struct {
	t   testing.TB
	w   World
	src quotient.Source
	l   *quotient.Limiter // nil: alone

	ctx     context.Context
	cancel  context.CancelFunc
	reports chan report
	ended   chan struct{} // closed when Watch has returned err
	err     error

	largest int           // of the good reports that were read
	hold    time.Duration // how long each report waits for another to run into it
	inside  atomic.Int32  // reports that are being made
	overlap atomic.Bool   // there were two at a time
	late    atomic.Bool   // there was one after Watch had returned
}

// backlog is how many reports may wait for a check; beyond it the source waits in report.
const backlog = 256

// start calls Watch, or Follow if there is a limiter, in a goroutine.
func start(t testing.TB, w World, src quotient.Source, l *quotient.Limiter) *watch {
	s := &watch{t: t, w: w, src: src, l: l}
	s.begin()
	return s
}

func (s *watch) begin() {
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.run()
}

// run is begin in a context that is set already.
func (s *watch) run() {
	s.reports, s.ended = make(chan report, backlog), make(chan struct{})
	go func() {
		defer close(s.ended)
		if s.l == nil {
			s.err = s.src.Watch(s.ctx, s.note(nil))
		} else {
			s.err = s.l.Follow(s.ctx, spied{s})
		}
	}()
}

// spied is the source of a watch as a Limiter follows it.
type spied struct{ s *watch }

// Watch passes on each report before it is noted.
func (f spied) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	return f.s.src.Watch(ctx, f.s.note(report))
}

// note returns the function that a source reports to.
func (s *watch) note(next func(quotient.Pool, error)) func(quotient.Pool, error) {
	ctx, reports, ended := s.ctx, s.reports, s.ended
	return func(p quotient.Pool, err error) {
		r := report{p, err, time.Now()}
		if s.inside.Add(1) > 1 {
			s.overlap.Store(true)
		}
		defer s.inside.Add(-1)
		select {
		case <-ended:
			s.late.Store(true)
			return
		default:
		}
		if next != nil {
			next(p, err)
		}
		time.Sleep(s.hold)
		select {
		case reports <- r:
		case <-ctx.Done():
		}
	}
}

// stop ends Watch and fails unless it returns its context's error in time.
func (s *watch) stop() {
	s.t.Helper()
	s.cancel()
	select {
	case <-s.ended:
		want := s.ctx.Err()
		if s.l != nil {
			want = nil
		}
		if !errors.Is(s.err, want) {
			s.t.Errorf("Watch returned %v, want %v", s.err, want)
		}
	case <-time.After(s.w.within()):
		s.t.Fatalf("Watch did not return within %v of its context's end", s.w.within())
	}
}

// changed must be called when the world has changed: a source that looks once looks again.
func (s *watch) changed() {
	s.t.Helper()
	if s.w.Once {
		s.stop()
		s.begin()
	}
}

// await reads reports until one is what the check waits for.
func (s *watch) await(what string, is func(report) bool) report {
	s.t.Helper()
	deadline := time.After(s.w.within())
	var last report
	for {
		select {
		case last = <-s.reports:
			if last.good() {
				s.largest = max(s.largest, last.pool.Replicas)
			}
			if is(last) {
				return last
			}
		case <-s.ended:
			s.t.Fatalf("Watch ended with %v before it reported %s", s.err, what)
		case <-deadline:
			s.t.Fatalf("%s was not reported within %v; the last report is %+v, %v",
				what, s.w.within(), last.pool, last.err)
		}
	}
}
