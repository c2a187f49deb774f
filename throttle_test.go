package quotient

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// upstreamError is an error that has feedback of the upstream.
type upstreamError policy.Feedback

func (e upstreamError) Error() string             { return "the upstream said so" }
func (e upstreamError) Feedback() policy.Feedback { return policy.Feedback(e) }

// does calls Do with a function that does nothing.
func does(ctx context.Context, l *Limiter, key string) error {
	_, err := Do(ctx, l, key, func(context.Context) (int, error) { return 0, nil })
	return err
}

func TestDoDoesNotCallWhenRefused(t *testing.T) {
	hourly, noQueue := Rates(Every(time.Hour)), []Option{MaxWaiting(0, 0)}
	for _, c := range []struct {
		name  string
		limit Limit
		opts  []Option
		after time.Duration // the context's time
		want  error
	}{
		{"denied", Limit{Deny: true}, nil, time.Hour, ErrLimited},
		{"beyond the deadline", hourly, nil, time.Minute, context.DeadlineExceeded},
		{"beyond the deadline, without a queue", hourly, noQueue, time.Minute, context.DeadlineExceeded},
		{"too late", hourly, []Option{MaxWait(time.Minute)}, 2 * time.Hour, ErrLimited},
		{"denied, without a queue", Limit{Deny: true}, noQueue, time.Hour, ErrLimited},
	} {
		row(t, c.name, func(t *testing.T) {
			l := mustNew(t, c.limit, c.opts...)
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

// A panic reaches the caller, as a failure for the controller, and the slot is free.
func TestDoReleasesWhenItsFunctionPanics(t *testing.T) {
	ctrl := new(spyController)
	l := mustNew(t, Limit{InFlight: 1, Rates: []Rate{perSecond(5, 5)}}, Policy(ctrl))
	func() {
		defer func() { is(t, "the panic", recover(), any("fn")) }()
		//nolint:errcheck // it panics
		Do(t.Context(), l, "k", func(context.Context) (int, error) { panic("fn") })
	}()
	inFlight(t, l, 0)
	is(t, "the controller got", ctrl.last.Outcome, policy.Failed)
}

func TestDoHandsFeedbackToThePolicy(t *testing.T) {
	throttled := upstreamError{Outcome: policy.Throttled, RetryAfter: time.Second}
	failed := policy.Feedback{Outcome: policy.Failed}
	deep := fmt.Errorf("a: %w", fmt.Errorf("b: %w", throttled))
	for _, c := range []struct {
		name string
		err  error
		want policy.Feedback
	}{
		{"no error", nil, policy.Feedback{Outcome: policy.Success}},
		{"an error that says nothing", errors.New("x"), failed},
		{"one that does", throttled, policy.Feedback(throttled)},
		{"deep in its chain", deep, policy.Feedback(throttled)},
		{"beside others", errors.Join(errors.New("x"), throttled), policy.Feedback(throttled)},
		{"the context", context.Canceled, failed},
	} {
		row(t, c.name, func(t *testing.T) {
			ctrl := new(spyController)
			l := mustNew(t, Rates(perSecond(5, 5)), Policy(ctrl))
			time.Sleep(time.Second)
			_, err := Do(t.Context(), l, "k", func(context.Context) (int, error) {
				time.Sleep(time.Minute)
				return 0, c.err
			})
			is(t, "error", err, c.err)
			got, now := ctrl.last, 61*time.Second
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

// Where no caller may queue, callers try again until they are admitted; no two in the same instant.
func TestPessimisticCallers(t *testing.T) {
	row(t, "of a rate", func(t *testing.T) {
		const callers = 20
		l := mustNew(t, Rates(Every(3*time.Second)), MaxWaiting(0, 0))
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
			stats(t, l, "Waiting", 0)
		}
	})
	row(t, "that have no time for the turn that they are told", func(t *testing.T) {
		l := mustNew(t, Rates(Every(3*time.Second)), MaxWaiting(0, 0))
		for range 50 {
			l.TryAcquire("k") // and obeys nothing
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must(t, does(ctx, l, "k"))
	})
	// It is the same for a key that shares a gate because too many keys are busy.
	for name, key := range map[string]string{"of a slot": "k", "of the overflow gate": "later"} {
		row(t, name, func(t *testing.T) {
			l := mustNew(t, Limit{InFlight: 1}, MaxKeys(1), MaxWaiting(0, 0))
			p := took(t, l, "k")
			if key == "later" {
				p = took(t, l, "late")
			}
			done := make(chan error, 1)
			go func() { done <- does(t.Context(), l, key) }()
			time.Sleep(time.Minute)
			is(t, "let in, or given up, while the slot is taken", len(done), 0)
			p.Release()
			time.Sleep(lastBackOff)
			must(t, <-done)
		})
	}
}
