package quotient

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// brokenContext calls fail at the nth call of one of its methods.
type brokenContext struct {
	context.Context
	method string
	nth    int
	fail   func()
	calls  atomic.Int64 // of that method
}

func (c *brokenContext) meet(method string) {
	if c.method == method && c.calls.Add(1) == int64(c.nth) {
		c.fail()
	}
}

func (c *brokenContext) Deadline() (time.Time, bool) { c.meet("Deadline"); return c.Context.Deadline() }
func (c *brokenContext) Done() <-chan struct{}       { c.meet("Done"); return c.Context.Done() }
func (c *brokenContext) Err() error                  { c.meet("Err"); return c.Context.Err() }

// How a method of a context may fail.
var contextFailures = map[string]func(){
	"panics":     func() { panic(errBroken) },
	"ends there": runtime.Goexit, // as FailNow of a test does
}

var errBroken = errors.New("a broken context")

// callee is a call that is given a context.
type callee = func(context.Context) error

// brokenCall is a call under a broken context, in a goroutine of its own.
type brokenCall struct {
	ctx      *brokenContext
	cancel   context.CancelFunc
	returned bool // it came back by itself
	value    any  // of its panic
	done     chan struct{}
}

// underBroken starts a call whose context fails at the nth call of a method.
func underBroken(t *testing.T, parent context.Context, method string, nth int, fail func(),
	call callee) *brokenCall {
	t.Helper()
	inner, cancel := context.WithCancel(t.Context())
	if parent != nil {
		inner = parent
	}
	broken := &brokenContext{Context: inner, method: method, nth: nth, fail: fail}
	c := &brokenCall{ctx: broken, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		defer func() { c.value = recover() }()
		_ = call(c.ctx)
		c.returned = true
	}()
	synctest.Wait()
	return c
}

// brokeOff fails unless the call has ended by what its context did.
func (c *brokenCall) brokeOff(t *testing.T, how string) {
	t.Helper()
	synctest.Wait()
	select {
	case <-c.done:
		if c.returned || how == "panics" && c.value != errBroken {
			t.Errorf("returned %v, panicked with %v", c.returned, c.value)
		}
	default:
		t.Error("the call goes on")
	}
}

// contextCalls are the calls of a context's methods that a waiter makes, and whether it takes the context's
// end for them.
var contextCalls = []struct {
	method string
	nth    int
	ends   bool
}{{"Err", 1, false}, {"Err", 2, true}, {"Done", 1, false}}

// forEachContextFailure runs a test for each call that a waiter makes of its context, and each way in which
// that may fail.
func forEachContextFailure(t *testing.T,
	test func(t *testing.T, how string, start func(callee) *brokenCall)) {
	t.Helper()
	for how, fail := range contextFailures {
		for _, c := range contextCalls {
			row(t, []any{c.method, c.nth, how}, func(t *testing.T) {
				test(t, how, func(call callee) *brokenCall {
					b := underBroken(t, nil, c.method, c.nth, fail, call)
					if c.ends {
						b.cancel()
						synctest.Wait()
					}
					return b
				})
			})
		}
	}
}

// acquiring is a call of Acquire that keeps what it gets.
func (l *Limiter) acquiring(key string, opts ...CallOption) callee {
	return func(ctx context.Context) error { _, err := l.Acquire(ctx, key, opts...); return err }
}

// Failure mode 5: a context that fails takes its waiter out of the queue, and nothing is lost.
func TestBrokenContextLosesNothing(t *testing.T) {
	forEachContextFailure(t, func(t *testing.T, how string, start func(callee) *brokenCall) {
		l := limiterOf(t, Limit{InFlight: 1, Rates: []Rate{PerHour(1e6), tokensPerMinute(100, 100)}})
		held := took(t, l, "k")
		start(l.acquiring("k", Cost("tokens", 2))).brokeOff(t, how)
		if st := l.Stats(); st.Waiting != 0 || st.InFlight != 1 {
			t.Errorf("waiting %d, in flight %d, want 0 and 1", st.Waiting, st.InFlight)
		}
		next := asking(t, l, "k")
		next.waits(t)
		held.Release()
		next.admittedAfter(t, 0)
		next.permit.Release()
		if st := l.Stats(); st.Waiting != 0 || st.InFlight != 0 {
			t.Errorf("in the end waiting %d, in flight %d", st.Waiting, st.InFlight)
		}
		if got := tokensOf(t, l, "k")[1]; got != 100 {
			t.Errorf("%v of 100 tokens are left of a key that has used none", got)
		}
	})
}

// The deadline is asked for under the lock when the turn of a call is known.
func TestBrokenDeadlineLosesNothing(t *testing.T) {
	for how, fail := range contextFailures {
		row(t, how, func(t *testing.T) {
			l := limiterOf(t, rated(perSecond(1, 1)), MaxWaiting(1, 1))
			wants(t, l, "k", 1)
			c := underBroken(t, nil, "Deadline", 1, fail, l.acquiring("k"))
			c.brokeOff(t, how)
			if st := l.Stats(); st.Waiting != 0 || st.Waited != 0 || l.waiting.Load() != 0 {
				t.Errorf("waiting %d, %d in all, waited %d", st.Waiting, l.waiting.Load(), st.Waited)
			}
			next := asking(t, l, "k") // there is one place, and one event in a second
			time.Sleep(time.Second)
			next.admittedAfter(t, time.Second)
		})
	}
}

// A call that is admitted before its context fails gives back all it took.
func TestBrokenContextAfterTheGrant(t *testing.T) {
	for how, fail := range contextFailures {
		row(t, how, func(t *testing.T) {
			var held Permit
			l := limiterOf(t, Limit{InFlight: 1, Rates: []Rate{tokensPerMinute(100, 100)}},
				OnWait(func(string, time.Duration) { held.Release() }))
			held = took(t, l, "k")
			underBroken(t, nil, "Done", 1, fail, l.acquiring("k", Cost("tokens", 2))).brokeOff(t, how)
			if st := l.Stats(); st.Waiting != 0 || st.InFlight != 0 || st.Cancelled != 1 {
				t.Errorf("waiting %d, in flight %d, cancelled %d", st.Waiting, st.InFlight, st.Cancelled)
			}
			if got := tokensOf(t, l, "k")[0]; got != 100 {
				t.Errorf("%v of 100 tokens are left of a key that has used none", got)
			}
			took(t, l, "k").Release()
		})
	}
}

// A waiter that has lost its turn asks its context again; if that fails then, the waiter that has taken its
// place is given up.
func TestBrokenContextAfterALostTurn(t *testing.T) {
	for how, fail := range contextFailures {
		row(t, how, func(t *testing.T) {
			l := limiterOf(t, Limit{InFlight: 1, Rates: []Rate{Every(time.Second)}})
			took(t, l, "k").Release()
			sleeps := &sleepy{t.Context(), naps(1500 * ms)}
			c := underBroken(t, sleeps, "Done", 2, fail, l.acquiring("k"))
			time.Sleep(1600 * ms)
			c.brokeOff(t, how)
			if st := l.Stats(); st.Waiting != 0 || st.InFlight != 0 || st.Expired != 1 {
				t.Errorf("waiting %d, in flight %d, expired %d", st.Waiting, st.InFlight, st.Expired)
			}
			next := asking(t, l, "k")
			time.Sleep(time.Second)
			next.admittedAfter(t, 400*ms)
		})
	}
}

// A semaphore loses nothing either.
func TestBrokenContextAtASemaphore(t *testing.T) {
	forEachContextFailure(t, func(t *testing.T, how string, start func(callee) *brokenCall) {
		s := semaphoreOf(t, 2)
		if !s.TryAcquire(2) {
			t.Fatal("no slots")
		}
		c := start(func(ctx context.Context) error { return s.Acquire(ctx, 1) })
		c.brokeOff(t, how)
		next := enter(t, s, 2)
		s.Release(2)
		if !next.ended() || next.err != nil {
			t.Errorf("the next one ended: %v, %v", next.ended(), next.err)
		}
		s.Release(2)
		if n, _ := s.Slots(); n != 0 {
			t.Errorf("%d slots are lost", n)
		}
	})
}

// endless is a context that says it is done, and has no error.
type endless struct{ context.Context }

func (endless) Err() error { return nil }

// A waiter that is given up gets an error, also where the context has none: or the caller would believe that
// it holds a permit.
func TestContextWithoutAnError(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		inner, cancel := context.WithCancel(t.Context())
		cancel()
		l := limiterOf(t, Limit{InFlight: 1})
		took(t, l, "k")
		if _, err := l.Acquire(endless{inner}, "k"); err != context.Canceled {
			t.Errorf("Limiter.Acquire: %v", err)
		}
		s := semaphoreOf(t, 0)
		if err := s.Acquire(endless{inner}, 1); err != context.Canceled {
			t.Errorf("Semaphore.Acquire: %v", err)
		}
	})
}

type badCtx struct{ context.Context }

func (badCtx) Deadline() (time.Time, bool) { panic("context") }

func TestDeadlineUnderLock(t *testing.T) {
	l := limiterOf(t, rated(perSecond(1, 1)))
	l.Allow("k")
	func() {
		defer func() { _ = recover() }()
		_, _ = l.Acquire(badCtx{context.Background()}, "k")
	}()
	if !l.shard("k").mu.TryLock() {
		t.Error("a caller's context method runs under the shard's lock")
	}
}
