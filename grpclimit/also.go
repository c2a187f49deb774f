package grpclimit

import (
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

// Also requires that l admits each call too, under the key that key returns. For example, a tenant's rate is the
// interceptor's own limiter, and a method's slots are l. All limiters admit a call or none takes anything
// (quotient.TryAcquireAll). Several options add up; their limiters are called in order, after the interceptor's own.
//
// A refusal is that of the first limiter that refuses: its reason, its rule and its RetryInfo. A call holds
// the permits of all limiters until it is over, and all policies that learn get its feedback. PriorityBy
// applies to the interceptor's own limiter.
//
// Calls do not wait: a client's call too is refused at once. Also panics if l or key is nil.
func Also(l *quotient.Limiter, key KeyFunc) Option {
	mustBe(l != nil, "Also: the limiter is nil")
	mustBe(key != nil, "Also: the key function is nil")
	return func(g *guard) { g.also = append(g.also, other{l, key}) }
}

// other is a limiter beside a guard's own.
type other struct {
	limiter *quotient.Limiter
	key     KeyFunc
}

// admission is what a call holds until it is over.
type admission struct {
	own quotient.Permit  // without Also
	all quotient.Permits // with Also; the first is the own limiter's
}

// Done tells the policies of all limiters, and gives all permits back.
func (a admission) Done(f policy.Feedback) {
	if a.all == nil {
		a.own.Done(f)
		return
	}
	defer a.all.Release() // also if a controller panics
	for _, p := range a.all {
		p.Report(f)
	}
}

// takeAll takes a permit of each limiter, or of none.
func (g *guard) takeAll(c Call, key string, class quotient.Priority) (admission, error) {
	if err := c.Context.Err(); err != nil {
		return admission{}, err // the client has left
	}
	claims := make([]quotient.Claim, 1, 1+len(g.also))
	claims[0] = quotient.Claim{Limiter: g.limiter, Key: key, Options: []quotient.CallOption{class.Option()}}
	for _, o := range g.also {
		claims = append(claims, quotient.Claim{Limiter: o.limiter, Key: bound(o.key(c))})
	}
	permits, refused, d := quotient.TryAcquireAll(make(quotient.Permits, 0, len(claims)), claims...)
	if !d.OK {
		return admission{}, &quotient.LimitedError{Key: claims[refused].Key, Decision: d}
	}
	return admission{all: permits}, nil
}
