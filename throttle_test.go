package quotient

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// upstreamError is an error that has feedback of the upstream.
type upstreamError policy.Feedback

func (e upstreamError) Error() string             { return "the upstream said so" }
func (e upstreamError) Feedback() policy.Feedback { return policy.Feedback(e) }

func TestDoReturnsWhatItsFunctionReturns(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 1})
		broken := errors.New("broken")
		for _, want := range []error{nil, broken} {
			got, err := Do(t.Context(), l, "k", func(context.Context) (int, error) {
				inFlight(t, l, 1)
				return 42, want
			})
			if got != 42 || err != want {
				t.Errorf("got %d, %v, want 42, %v", got, err, want)
			}
			inFlight(t, l, 0)
		}
	})
}

func TestDoWaitsForItsTurn(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, rated(Every(3*time.Second)))
		start := time.Now()
		for i := range 4 {
			at, err := Do(t.Context(), l, "k", func(context.Context) (time.Duration, error) {
				return time.Since(start), nil
			})
			if want := time.Duration(3*i) * time.Second; at != want || err != nil {
				t.Errorf("call %d ran after %v with %v, want %v", i, at, err, want)
			}
		}
	})
}

func TestDoDoesNotCallWhenRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit Limit
		opts  []Option
		after time.Duration // the context's time
		want  error
	}{
		{"denied", Limit{Deny: true}, nil, time.Hour, ErrLimited},
		{"beyond the deadline", rated(Every(time.Hour)), nil, time.Minute, context.DeadlineExceeded},
		{"beyond the deadline, without a queue", rated(Every(time.Hour)), []Option{MaxWaiting(0, 0)},
			time.Minute, context.DeadlineExceeded},
		{"too late", rated(Every(time.Hour)), []Option{MaxWait(time.Minute)}, 2 * time.Hour, ErrLimited},
		{"denied, without a queue", Limit{Deny: true}, []Option{MaxWaiting(0, 0)}, time.Hour, ErrLimited},
	} {
		row(t, c.name, func(t *testing.T) {
			l := limiterOf(t, c.limit, c.opts...)
			l.Allow("k")
			ctx, cancel := context.WithTimeout(t.Context(), c.after)
			defer cancel()
			got, err := Do(ctx, l, "k", func(context.Context) (int, error) {
				t.Error("called")
				return 42, nil
			})
			if got != 0 || !errors.Is(err, c.want) {
				t.Errorf("got %d, %v, want 0, %v", got, err, c.want)
			}
		})
	}
}

func TestDoReleasesWhenItsFunctionPanics(t *testing.T) {
	l := limiterOf(t, Limit{InFlight: 1})
	func() {
		defer func() {
			if recover() != "fn" {
				t.Error("the panic does not reach the caller")
			}
		}()
		//nolint:errcheck // it panics
		Do(t.Context(), l, "k", func(context.Context) (int, error) { panic("fn") })
	}()
	inFlight(t, l, 0)
	took(t, l, "k")
}

func TestDoHandsFeedbackToThePolicy(t *testing.T) {
	throttled := upstreamError{Outcome: policy.Throttled, RetryAfter: time.Second}
	for _, c := range []struct {
		name string
		err  error
		want policy.Feedback
	}{
		{"no error", nil, policy.Feedback{Outcome: policy.Success}},
		{"an error that says nothing", errors.New("x"), policy.Feedback{Outcome: policy.Failed}},
		{"one that does", throttled, policy.Feedback(throttled)},
		{"deep in its chain", fmt.Errorf("a: %w", fmt.Errorf("b: %w", throttled)),
			policy.Feedback(throttled)},
		{"beside others", errors.Join(errors.New("x"), throttled), policy.Feedback(throttled)},
		{"the context", context.Canceled, policy.Feedback{Outcome: policy.Failed}},
	} {
		row(t, c.name, func(t *testing.T) {
			ctrl := new(spyController)
			l := limiterOf(t, rated(perSecond(5, 5)), Policy(ctrl))
			time.Sleep(time.Second)
			_, err := Do(t.Context(), l, "k", func(context.Context) (int, error) {
				time.Sleep(time.Minute)
				return 0, c.err
			})
			if err != c.err {
				t.Errorf("got %v", err)
			}
			got := ctrl.last
			now := 61 * time.Second
			if c.err == nil {
				now = time.Second // a success is dated by the admission
			}
			if got.Outcome != c.want.Outcome || got.RetryAfter != c.want.RetryAfter ||
				got.Sent != time.Second || got.Now != now {
				t.Errorf("the controller got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestDoReportsAPanicAsAFailure(t *testing.T) {
	ctrl := new(spyController)
	l := limiterOf(t, rated(perSecond(5, 5)), Policy(ctrl))
	func() {
		defer func() { _ = recover() }()
		//nolint:errcheck // it panics
		Do(t.Context(), l, "k", func(context.Context) (int, error) { panic("fn") })
	}()
	if got := ctrl.last.Outcome; got != policy.Failed {
		t.Errorf("the controller got %v", got)
	}
}

// Where no caller may queue, callers try again until they are admitted; no two in the same instant.
func TestPessimisticCallers(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		const callers = 20
		l := limiterOf(t, rated(Every(3*time.Second)), MaxWaiting(0, 0))
		start, ran := time.Now(), make(chan time.Duration, callers)
		for range callers {
			//nolint:errcheck // that it ran is noted
			go Do(t.Context(), l, "k", func(context.Context) (int, error) {
				ran <- time.Since(start)
				return 0, nil
			})
		}
		last := -3 * time.Second
		for range callers {
			at := <-ran
			if at-last < 3*time.Second || at-last > 5*time.Second {
				t.Errorf("%v after %v, want three seconds and a little between them", at, last)
			}
			last = at
			if got := l.Stats().Waiting; got != 0 {
				t.Errorf("%d are in a queue", got)
			}
		}
	})
}

func TestPessimisticCallerOfASlot(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 1}, MaxWaiting(0, 0))
		p := took(t, l, "k")
		done := make(chan error, 1)
		go func() {
			_, err := Do(t.Context(), l, "k", func(context.Context) (int, error) { return 0, nil })
			done <- err
		}()
		time.Sleep(time.Minute)
		if len(done) > 0 {
			t.Error("let in while the slot is taken")
		}
		p.Release()
		time.Sleep(lastBackOff)
		synctest.Wait()
		if len(done) != 1 || <-done != nil {
			t.Error("not let in after the slot came free")
		}
		inFlight(t, l, 0)
	})
}

// It is the same for a key that shares a gate because too many keys are busy.
func TestPessimisticCallerOfTheOverflowGate(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{InFlight: 1}, MaxKeys(1), MaxWaiting(0, 0))
		took(t, l, "busy")
		p := took(t, l, "late")
		done := make(chan error, 1)
		go func() {
			_, err := Do(t.Context(), l, "later", func(context.Context) (int, error) { return 0, nil })
			done <- err
		}()
		time.Sleep(time.Minute)
		if len(done) > 0 {
			t.Fatalf("gave up with %v, want it to try again", <-done)
		}
		p.Release()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
