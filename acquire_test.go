package quotient

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/policy"
)

func TestTryAcquireUpTo(t *testing.T) {
	for _, c := range []struct {
		name    string
		limit   Limit
		n, want int
	}{
		{"all of it", Rates(perSecond(1, 10)), 7, 7},
		{"what there is", Rates(perSecond(1, 10)), 70, 10},
		{"nothing asked", Rates(perSecond(1, 10)), 0, 0},
		{"less than nothing", Rates(perSecond(1, 10)), -5, 0},
		{"no limit", Limit{}, 99, 99},
		{"slots", Limit{InFlight: 3}, 5, 3},
		{"the tightest", Limit{Rates: []Rate{perSecond(1, 10), PerHour(4)}, InFlight: 6}, 9, 4},
		{"another unit does not count", Rates(perSecond(1, 10), tokensPerMinute(1, 1)), 5, 5},
		{"a window", Rates(aligned(4, time.Second)), 9, 4},
		{"denied", Limit{Deny: true}, 5, 0},
	} {
		row(t, c.name, func(t *testing.T) {
			l := mustNew(t, c.limit)
			p := upTo(t, l, "k", c.n, c.want)
			if c.limit.InFlight > 0 {
				inFlight(t, l, c.want)
			}
			p.Release()
			inFlight(t, l, 0)
		})
	}
}

// Check and Explain answer what TryAcquire does, and take nothing, also where keys share a gate.
func TestCheckAnswersAsTryAcquire(t *testing.T) {
	five, slot := Rates(perSecond(1, 5)), Limit{InFlight: 1}
	nothing := func(*testing.T, *Limiter) {}
	for _, c := range []struct {
		name  string
		limit Limit
		setUp func(*testing.T, *Limiter)
		opts  []CallOption
	}{
		{"room", five, nothing, nil},
		{"not valid", five, nothing, []CallOption{Weight(-6)}},
		{"a slot that has come free by time", slot, func(t *testing.T, l *Limiter) {
			took(t, l, "k").ExpireIn(time.Second)
			time.Sleep(time.Minute)
		}, nil},
		{"too many keys", slot, func(t *testing.T, l *Limiter) {
			took(t, l, "busy")
			took(t, l, "late")
		}, nil},
		{"room, beside a busy overflow gate", slot, func(t *testing.T, l *Limiter) {
			idle := took(t, l, "idle")
			took(t, l, "late")
			idle.Release()
		}, nil},
	} {
		row(t, c.name, func(t *testing.T) {
			l := mustNew(t, c.limit, MaxKeys(1))
			c.setUp(t, l)
			before := l.Stats()
			looks := []Decision{l.Check("k", c.opts...), l.Explain("k", c.opts...).Next}
			if after := l.Stats(); after.Admitted != before.Admitted || after.InFlight != before.InFlight ||
				len(after.Refused) != len(before.Refused) {
				t.Errorf("Check counted or took something: %+v became %+v", before, after)
			}
			_, want := l.TryAcquire("k", c.opts...)
			for _, got := range looks {
				sameText := fmt.Sprint(got.bad) == fmt.Sprint(want.bad)
				if got.bad = want.bad; got != want || !sameText {
					t.Errorf("a look:    %+v\nTryAcquire %+v", got, want)
				}
			}
		})
	}
}

func TestAllOrNone(t *testing.T) {
	// A request takes from a tenant's rate and from a route's slots, or from neither, and each counts it.
	row(t, "try acquire all", func(t *testing.T) {
		tenants, routes := mustNew(t, Rates(perSecond(1, 5))), mustNew(t, Limit{InFlight: 1})
		claims := []Claim{{tenants, "a", nil}, {routes, "/x", nil}}
		held, _, d := TryAcquireAll(nil, claims...)
		is(t, "admitted", d, Decision{OK: true})
		for range 9 {
			_, refused, d := TryAcquireAll(nil, claims...)
			is(t, "refused by slots", [2]int{refused, int(d.Reason)}, [2]int{1, int(ReasonInFlight)})
		}
		wants(t, tenants, "a", 4) // nothing is lost
		_, refused, d := TryAcquireAll(nil, claims...)
		is(t, "refused by the rate", [2]int{refused, int(d.Reason)}, [2]int{0, int(ReasonRate)})
		held.Done(policy.Feedback{})
		inFlight(t, routes, 0)
		stats(t, tenants, "Admitted", 5, "Cancelled", 9, "Refused", map[Reason]uint64{ReasonRate: 2})
		stats(t, routes, "Admitted", 1, "Cancelled", 0, "Refused", map[Reason]uint64{ReasonInFlight: 9})
		ps, refused, d := TryAcquireAll(held)
		is(t, "none to claim", fmt.Sprint(len(ps), refused, d.OK), "2 -1 true")
		_, refused, d = TryAcquireAll(nil, Claim{tenants, "b", nil},
			Claim{tenants, "b", []CallOption{Weight(0)}})
		says(t, &LimitedError{Key: "b", Decision: d}, "Weight")
		is(t, "refused", refused, 1)
		wants(t, tenants, "b", 5)
	})
	// The events taken go back to a caller that waits for them.
	row(t, "wakes waiters", func(t *testing.T) {
		slots, denied := mustNew(t, Limit{InFlight: 1}), mustNew(t, Limit{Deny: true})
		_, refused, d := TryAcquireAll(nil, Claim{slots, "k", nil}, Claim{denied, "k", nil})
		wrong(t, refused != 1 || d.Reason != ReasonDenied, "%d %+v", refused, d)
		c := claimed{l: slots, key: "k"}
		c.try(nil)
		waiter := asking(t, slots, "k")
		c.undo()
		waiter.admittedAfter(t, 0)
	})
	// A dry run of one limiter neither stops the others nor takes from it.
	row(t, "in a dry run", func(t *testing.T) {
		dry, real := mustNew(t, Limit{InFlight: 1}), mustNew(t, Rates(perSecond(1, 3)))
		dry.SetDryRun(true)
		for i := range 5 {
			ps, _, d := TryAcquireAll(nil, Claim{dry, "k", nil}, Claim{real, "k", nil})
			wrong(t, d.OK != (i < 3), "ask %d: %+v", i, d)
			defer ps.Release()
		}
		s := dry.Stats()
		if s.Admitted != 3 || s.DryRunAdmitted[ReasonInFlight] != 2 || s.InFlight != 1 || s.Cancelled != 2 {
			t.Errorf("%+v", s)
		}
	})
	// Should a hook panic, nothing stays taken.
	row(t, "whose hook panics", func(t *testing.T) {
		slots := mustNew(t, Limit{InFlight: 9})
		hooked := mustNew(t, Limit{InFlight: 9},
			OnAdmit(func(string, time.Duration, time.Duration) { panic("hook") }))
		panics(t, func() {
			TryAcquireAll(nil, Claim{slots, "a", nil}, Claim{hooked, "b", nil}, Claim{slots, "c", nil})
		})
		inFlight(t, slots, 0)
		inFlight(t, hooked, 0)
		if n := slots.Stats().DoubleReleases + hooked.Stats().DoubleReleases; n != 0 {
			t.Errorf("%d permits were released twice", n)
		}
	})
}

// Changes between the take and the return, and keys that are gone by then.
func TestTryAcquireAllGivesBackLate(t *testing.T) {
	for name, c := range map[string]struct {
		between func(t *testing.T, l *Limiter)
		left    int
	}{
		"at once":        {func(*testing.T, *Limiter) {}, 5},
		"refilled since": {func(*testing.T, *Limiter) { time.Sleep(time.Second) }, 5},
		"another limit":  {func(t *testing.T, l *Limiter) { setLimit(t, l, Rates(perSecond(1, 6))) }, 2},
		"forgotten": {func(t *testing.T, l *Limiter) {
			time.Sleep(time.Minute)
			for i := range 99 {
				l.Allow(fmt.Sprint(i % 2))
			}
		}, 5},
		"reset": {func(t *testing.T, l *Limiter) { l.Reset("k") }, 5},
	} {
		row(t, name, func(t *testing.T) {
			l := mustNew(t, Rates(perSecond(1, 5)), few)
			x := claimed{l: l, key: "k"}
			if d := x.try([]CallOption{Weight(3)}); !d.OK {
				t.Fatal(d)
			}
			c.between(t, l)
			x.undo()
			upTo(t, l, "k", 99, c.left)
		})
	}
}

func TestTryAcquireAllAllocatesNothing(t *testing.T) {
	l, m := mustNew(t, Rates(perSecond(1e9, 1<<20))), mustNew(t, Limit{InFlight: 1})
	none := mustNew(t, Limit{Deny: true})
	var room [4]Permit
	if n := testing.AllocsPerRun(1000, func() {
		ps, _, _ := TryAcquireAll(room[:0], Claim{l, "k", nil}, Claim{m, "k", nil})
		ps.Release()
		TryAcquireAll(room[:0], Claim{l, "k", nil}, Claim{m, "k", nil}, Claim{none, "k", nil})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

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
			wrong(t, got != 0 || !errors.Is(err, c.want), "got %d, %v, want 0, %v", got, err, c.want)
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

// A slot that is free is not taken past a waiter that needs another one beside it.
func TestFreeSlotIsNotOvertaken(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := mustNew(t, Limit{InFlight: 2})
		held := took(t, l, "k")
		large, small := asking(t, l, "k", Weight(2)), asking(t, l, "k")
		small.waits(t)
		held.Release()
		large.admittedAfter(t, 0)
		small.waits(t)
		large.permit.Release()
		small.admittedAfter(t, 0)
	})
}

// Acquire takes a slot that is free in one piece. What it does is what TryAcquire does, whatever has changed before.
func TestPropertyAcquireIsTryAcquire(t *testing.T) {
	second := Rates(Every(time.Second))
	limits := []*Limit{nil, {}, {InFlight: 1}, {InFlight: 3}, {Deny: true}, {InFlight: 2, Rates: second.Rates}, &second}
	property(t, func(rt *rapid.T) {
		hooked := [2]int{}
		with, l := rapid.IntRange(0, 7).Draw(rt, "with"), [2]*Limiter{}
		for i := range l {
			opts := []Option{MaxHold(time.Minute), OnAdmit(func(string, time.Duration, time.Duration) { hooked[i]++ })}
			l[i] = mustNew(rt, Limit{InFlight: 2}, append(opts[min(with, 2):], few, MaxWaiting(0, 0))...)
		}
		var held [][2]Permit
		both := func(do func(l *Limiter) error) {
			if a, b := do(l[0]), do(l[1]); (a == nil) != (b == nil) {
				rt.Fatalf("%v, %v", a, b)
			}
		}
		for range rapid.IntRange(1, 200).Draw(rt, "steps") {
			limit := limits[rapid.IntRange(0, len(limits)-1).Draw(rt, "limit")]
			k := key(max(0, rapid.IntRange(-20, 9).Draw(rt, "key")))
			switch what := rapid.IntRange(0, 19).Draw(rt, "what"); what {
			case 0:
				both(func(l *Limiter) error { return l.SetPlan("p", limit) })
			case 1:
				both(func(l *Limiter) error { return l.Override(k, limit, 0) })
			case 2:
				if limit != nil {
					both(func(l *Limiter) error { return l.SetLimit(*limit) })
				}
			case 3, 4:
				time.Sleep(time.Duration(rapid.IntRange(0, 40).Draw(rt, "s")) * time.Second)
			case 5, 6, 7, 8:
				if n := len(held); n > 0 {
					i := rapid.IntRange(0, n-1).Draw(rt, "which")
					for _, p := range held[i] {
						if what == 5 {
							p.ExpireIn(time.Second)
						} else {
							p.Release()
						}
					}
				}
			default:
				var opts []CallOption
				if what < 13 {
					opts = []CallOption{Plan("p")}
				}
				p, err := l[0].Acquire(context.Background(), k, opts...)
				q, d := l[1].TryAcquire(k, opts...)
				if held = append(held, [2]Permit{p, q}); (err == nil) != d.OK {
					rt.Fatalf("%q: %v, %+v", k, err, d)
				}
			}
			a, b := l[0].Stats(), l[1].Stats()
			a.Refused, b.Refused = nil, nil // Acquire is refused a place in the queue
			if !reflect.DeepEqual(a, b) || hooked[0] != hooked[1] {
				rt.Fatalf("%v hooks, after Acquire\n%+v\nand after TryAcquire\n%+v", hooked, a, b)
			}
		}
	})
}
