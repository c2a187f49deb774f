package grpclimit

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/internal/overdue"
)

// guard is a limiter with what it is asked for each call.
type guard struct {
	limiter  *quotient.Limiter
	key      KeyFunc
	maxWait  time.Duration                // 0: a call does not wait; Forever: as long as its context lasts
	priority func(Call) quotient.Priority // nil: all are normal
	also     []other                      // limiters beside limiter
	except   []func(Call) bool            // calls that no limiter is used for
	counts   bool                         // each attempt of a client's call
}

// newGuard returns a guard whose calls wait for maxWait unless an option says otherwise. Calls of several
// limiters do not wait.
func newGuard(name string, l *quotient.Limiter, key KeyFunc, maxWait time.Duration, opts []Option) *guard {
	mustBe(l != nil, name+": the limiter is nil")
	mustBe(key != nil, name+": the key function is nil")
	g := &guard{limiter: l, key: key}
	for _, opt := range opts {
		opt(g)
	}
	mustBe(g.maxWait == 0 || len(g.also) == 0,
		name+": Wait and Also exclude each other: calls of several limiters do not wait")
	g.maxWait = cmp.Or(g.maxWait, maxWait)
	return g
}

// bound hashes a key that is too long.
func bound(key string) string { return httplimit.Constant(key)(nil) }

// admit takes what a call holds. Its error is a status.
func (g *guard) admit(c Call) (a admission, err error) {
	for _, passes := range g.except {
		if passes(c) {
			return admission{}, nil
		}
	}
	key, class := bound(g.key(c)), quotient.PriorityNormal
	if g.priority != nil {
		class = min(max(g.priority(c), quotient.PriorityLow), quotient.PriorityCritical)
	}
	if len(g.also) > 0 {
		a, err = g.takeAll(c, key, class)
	} else {
		a.own, err = g.take(c.Context, key, class.Option())
	}
	if err != nil {
		return admission{}, errorOf(err)
	}
	return a, nil
}

// take takes a permit, and waits for it if calls may.
func (g *guard) take(ctx context.Context, key string, opt quotient.CallOption) (quotient.Permit, error) {
	switch g.maxWait {
	case Forever:
		return g.limiter.Acquire(ctx, key, opt)
	case 0:
		if err := ctx.Err(); err != nil {
			return quotient.Permit{}, err // the client has left
		}
		permit, decision := g.limiter.TryAcquire(key, opt)
		if !decision.OK {
			return permit, &quotient.LimitedError{Key: key, Decision: decision}
		}
		return permit, nil
	}
	return g.wait(ctx, key, opt)
}

// wait waits for a permit for maxWait at most. If that ends first, it is not the call's time that is short:
// the refusal names what is.
func (g *guard) wait(ctx context.Context, key string, opt quotient.CallOption) (quotient.Permit, error) {
	bounded, cancel := context.WithTimeout(ctx, g.maxWait)
	defer cancel()
	permit, err := g.limiter.Acquire(bounded, key, opt)
	limited, ok := errors.AsType[*quotient.LimitedError](err)
	switch {
	case err == nil:
		return permit, nil
	case ok && limited.Reason == quotient.ReasonDeadline && sooner(bounded, ctx):
		limited.Decision = g.overdue(key, opt, limited.Decision)
	case !ok && ctx.Err() == nil:
		err = &quotient.LimitedError{Key: key, Decision: g.overdue(key, opt, quotient.Decision{})}
	}
	return permit, err
}

// sooner reports whether a context has a deadline before that of another one.
func sooner(a, b context.Context) bool {
	end, ok := a.Deadline()
	other, bounded := b.Deadline()
	return ok && (!bounded || end.Before(other))
}

// overdue is the decision against a call that has waited for maxWait, or whose turn, if it is known, comes
// later than that.
func (g *guard) overdue(key string, opt quotient.CallOption, turn quotient.Decision) quotient.Decision {
	return overdue.Decision(g.limiter.Check(key, opt), turn)
}

// around calls f with what it holds, and tells the policy what became of it.
func (g *guard) around(c Call, f func() error) error {
	held, err := g.admit(c)
	if err != nil {
		return err
	}
	heard := failed // a panic
	defer func() { held.Done(heard) }()
	err = f()
	heard = feedbackOf(err)
	return err
}
