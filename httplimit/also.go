package httplimit

import (
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

// Also requires that l admits each request too, under the key that key returns: a tenant's rate is the Middleware's
// own limiter, and a route's slots are l. All limiters admit a request or none takes anything
// (quotient.TryAcquireAll). Several options add up; their limiters are called in order, behind the Middleware's own.
//
// A refusal is that of the first limiter that refuses: its reason, its rule and its Retry-After. The
// limiters before it take back their permits, and count the request as cancelled. SendFields sends the rules
// of all limiters in order, as if they were one limiter's: give them different names. PriorityBy, WeightBy,
// CostBy, PlanBy and PermitFrom concern the Middleware's own limiter; a request counts as one in the others.
// Policies that learn get the feedback of a request in each of the limiters.
//
// Requests do not wait: Middleware panics if Wait comes with Also. Also panics if l or key is nil.
func Also(l *quotient.Limiter, key KeyFunc) Option {
	mustBe(l != nil, "Also: the limiter is nil")
	mustBe(key != nil, "Also: the key function is nil")
	return func(m *middleware) { m.also = append(m.also, other{l, key}) }
}

// other is a limiter beside a Middleware's own.
type other struct {
	limiter *quotient.Limiter
	key     KeyFunc
}

// admission is what a request holds until its permit is released.
type admission struct {
	own  quotient.Permit // of the Middleware's own limiter
	also *several        // nil without Also
}

// Release releases all permits.
func (a admission) Release() {
	if a.also != nil {
		a.also.release()
		return
	}
	a.own.Release()
}

// Report tells the policies of all limiters.
func (a admission) Report(f policy.Feedback) { a.each(func(p quotient.Permit) { p.Report(f) }) }

// ExpireIn is that of all permits.
func (a admission) ExpireIn(d time.Duration) { a.each(func(p quotient.Permit) { p.ExpireIn(d) }) }

func (a admission) each(do func(quotient.Permit)) {
	do(a.own)
	if a.also != nil {
		for _, p := range a.also.permits[1:] {
			do(p)
		}
	}
}

// keep is for permits that may be used when they have been released.
func (a admission) keep() {
	if a.also != nil {
		a.also.pool = nil
	}
}

// several is what a request of several limiters needs. The first is the Middleware's own.
type several struct {
	claims  []quotient.Claim
	permits quotient.Permits
	opts    []quotient.CallOption  // by limiter but the first, StateInto
	rules   [][]quotient.RuleState // where they say it
	pool    *sync.Pool             // where it goes when its permits are released; nil: nowhere
	room    struct {               // for as many as most have
		claims  [usualLimiters]quotient.Claim
		permits [usualLimiters]quotient.Permit
		opts    [usualLimiters]quotient.CallOption
		rules   [usualLimiters][]quotient.RuleState
	}
}

// usualLimiters is up to how many limiters of a request fit in one allocation.
const usualLimiters = 3

// newSeveral returns one for the limiters of a Middleware.
func (m *middleware) newSeveral() *several {
	n := 1 + len(m.also)
	s := &several{pool: &m.severals}
	s.claims = slices.Grow(s.room.claims[:0], n)[:n]
	s.permits = slices.Grow(quotient.Permits(s.room.permits[:0]), n)
	s.opts = slices.Grow(s.room.opts[:0], n)[:n]
	s.rules = slices.Grow(s.room.rules[:0], n)[:n]
	s.claims[0].Limiter = m.limiter
	for i, o := range m.also {
		s.claims[i+1].Limiter = o.limiter
		if m.sender != nil {
			s.opts[i+1] = quotient.StateInto(&s.rules[i+1])
			s.claims[i+1].Options = s.opts[i+1 : i+2]
		}
	}
	return s
}

// release releases all permits.
func (s *several) release() {
	s.permits.Release()
	s.free()
}

func (s *several) free() {
	if s.pool != nil {
		clear(s.permits)
		s.pool.Put(s)
	}
}

// admitBySeveral takes a permit of each limiter, or of none.
func (h *handler) admitBySeveral(
	r *http.Request, key string, opts []quotient.CallOption, at *scratch,
) (admission, *refusal) {
	s, _ := h.severals.Get().(*several)
	if s == nil {
		s = h.newSeveral()
	}
	s.claims[0].Key, s.claims[0].Options = key, opts
	for i, o := range h.also {
		s.claims[i+1].Key = bound(o.key(r))
	}
	permits, refused, d := quotient.TryAcquireAll(s.permits[:0], s.claims...)
	if d.Reason == quotient.ReasonBadRequest && h.plan != nil {
		s.claims[0].Options = planless(opts)
		permits, refused, d = quotient.TryAcquireAll(s.permits[:0], s.claims...)
	}
	if h.sender != nil {
		at.join(s, refused)
	}
	for i := range s.claims { // a pool keeps no key alive
		s.claims[i].Key = ""
	}
	s.claims[0].Options = nil // they go with at
	if s.permits = permits; !d.OK {
		s.free()
		return admission{}, refusalOf(d)
	}
	return admission{permits[0], s}, nil
}

// join puts together where the keys of a request stand, in all limiters. The state that limiters before the
// refusing one reported is over, and those behind it were not called.
func (at *scratch) join(s *several, refused int) {
	for i := range s.claims {
		if refused >= 0 && i != refused {
			c := &s.claims[i]
			c.Limiter.Check(c.Key, c.Options...) // which says again where the key stands
		}
	}
	if at.rules = ofLimit(at.rules); refused == 0 {
		at.refusing.to = len(at.rules)
	}
	for i := range s.claims[1:] {
		from := len(at.rules)
		at.rules = append(at.rules, ofLimit(s.rules[i+1])...)
		if i+1 == refused {
			at.refusing = span{from, len(at.rules)}
		}
	}
}

// span is a part of the rules in the fields, from one to before another.
type span struct{ from, to int }

// all is the span of all rules.
var all = span{0, math.MaxInt}

func (s span) holds(i int) bool { return s.from <= i && i < s.to }
