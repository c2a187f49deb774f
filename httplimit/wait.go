package httplimit

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/held"
	"github.com/quotient-go/quotient/internal/overdue"
	"github.com/quotient-go/quotient/internal/waited"
)

// limitUnread is limit for a request that may wait, and whose client's leaving would not be noticed meanwhile.
func (h *handler) limitUnread(
	w http.ResponseWriter, r *http.Request, key string, opts []quotient.CallOption, at *scratch,
) {
	decision := h.check(key, opts)
	if decision.OK || h.limiter.DryRun() { // in which no request waits
		permit, no := h.admitNow(key, opts)
		if no == nil {
			h.serve(w, r, at, admission{own: permit})
			return
		}
		decision = no.Decision // another came first
	}
	arrived := time.Now()
	most := min(h.maxWait, h.unreadBodyWait)
	body := buffer{room: &h.bodies, share: held.From(r.Context()), key: key}
	defer body.free()
	if h.mayCome(key, opts, decision) && !h.draining() {
		body.read(w, r, arrived.Add(most), h.drain)
	}
	if body.late {
		h.turnAway(w, r, at, h.late(key, opts))
		return
	}
	if body.complete {
		most = h.maxWait
	}
	permit, no := h.await(r, key, opts, arrived, most)
	h.answer(w, r, at, admission{own: permit}, no)
}

// mayCome reports whether the turn of a request that may not pass now may come while it waits. What others were told
// delays no turn: it is when a refused client should come again.
func (h *handler) mayCome(key string, opts []quotient.CallOption, d quotient.Decision) bool {
	if d.RetryAfter > h.maxWait {
		d = h.limiter.Explain(key, opts...).Next
	}
	switch d.Reason { // these do not pass with time: the request's body would be read for nothing
	case quotient.ReasonDenied, quotient.ReasonTooLarge, quotient.ReasonBadRequest, quotient.ReasonShare:
		return false
	}
	return d.RetryAfter <= h.maxWait
}

// await waits for a permit, from the arrival of a request on and for most at most.
func (h *handler) await(
	r *http.Request, key string, opts []quotient.CallOption, arrived time.Time, most time.Duration,
) (quotient.Permit, *refusal) {
	var p *patience // nil: ctx alone ends the wait
	ctx := r.Context()
	waiting := ctx
	if most < Forever || h.drain != nil || h.onWaited != nil {
		p = patiences.Get().(*patience)
		*p = patience{Context: ctx, arrived: arrived, most: most, drain: h.drain}
		defer p.end()
		waiting = p
	}
	if h.onWaited != nil {
		p.asked = time.Now()
	}
	permit, err := acquire(waiting, h.limiter, key, opts, h.plan != nil)
	if err == nil {
		h.admitted(r, p, arrived, permit)
		return permit, nil
	}
	if limited, ok := errors.AsType[*quotient.LimitedError](err); ok {
		d := limited.Decision
		if p.isTooShort(d) {
			d = h.overdue(key, opts, d)
		}
		return permit, refusalOf(d)
	}
	if ctx.Err() != nil { // the client has left
		return permit, &refusal{status: http.StatusServiceUnavailable}
	}
	return permit, h.late(key, opts)
}

// admitted calls the hook for a request that has waited in the limiter, or for its body. Should that panic, the
// permit is released.
func (h *handler) admitted(r *http.Request, p *patience, arrived time.Time, permit quotient.Permit) {
	if h.onWaited == nil || !p.waited && arrived.IsZero() {
		return
	}
	returned := false
	defer func() {
		if !returned {
			permit.Release()
		}
	}()
	now := time.Now()
	if arrived.IsZero() {
		arrived = p.asked
	}
	if !p.waited { // there was room when the body was there
		p.overhead = now.Sub(p.asked)
	}
	h.onWaited(r, now.Sub(arrived), p.overhead)
	returned = true
}

// late is the answer to a request whose wait we have ended.
func (h *handler) late(key string, opts []quotient.CallOption) *refusal {
	if h.draining() { // another replica may serve it
		return &refusal{
			status: http.StatusServiceUnavailable, Decision: quotient.Decision{RetryAfter: time.Second},
		}
	}
	return refusalOf(h.overdue(key, opts, quotient.Decision{}))
}

// draining reports whether Drain's context has ended.
func (m *middleware) draining() bool { return m.drain != nil && m.drain.Err() != nil }

// overdue is the decision against a request that has waited for as long as it may, or whose turn, if it is
// known, comes later than that.
func (h *handler) overdue(key string, opts []quotient.CallOption, turn quotient.Decision) quotient.Decision {
	return overdue.Decision(h.check(key, opts), turn)
}

// patience is the context of a request that waits for a bounded time. Most requests do not wait: a context
// with a timer is made only when one does. It belongs to one goroutine.
type patience struct {
	context.Context           // the request's
	arrived         time.Time // zero: at the first look at the deadline
	most            time.Duration
	drain           context.Context // nil: only the two above end the wait
	bounded         context.Context // nil until the request waits
	cancel          context.CancelFunc
	stop            func() bool // of the watch of drain
	asked           time.Time   // when the limiter was, for OnWaited
	waited          bool        // the limiter has admitted the request after a wait
	overhead        time.Duration
}

// Value has the limiter say that it has admitted the request after a wait.
func (p *patience) Value(key any) any {
	if key == (waited.Key{}) {
		return waited.Hook(p.admitted)
	}
	return p.Context.Value(key)
}

func (p *patience) admitted(_, overhead time.Duration) { p.waited, p.overhead = true, overhead }

// patiences are kept, so that a request that does not wait allocates nothing. Nothing refers to one when
// Acquire has returned: the bounded context is a child of the request's.
var patiences = sync.Pool{New: func() any { return new(patience) }}

func (p *patience) end() {
	if p.stop != nil {
		p.stop()
	}
	if p.cancel != nil {
		p.cancel()
	}
	*p = patience{}
	patiences.Put(p)
}

// own is the end of the patience.
func (p *patience) own() time.Time {
	if p.arrived.IsZero() {
		p.arrived = time.Now()
	}
	return p.arrived.Add(p.most)
}

// Deadline is the sooner one of the request's and the end of the patience.
func (p *patience) Deadline() (time.Time, bool) {
	if p.most == Forever {
		return p.Context.Deadline()
	}
	own := p.own()
	if end, ok := p.Context.Deadline(); ok && end.Before(own) {
		return end, true
	}
	return own, true
}

// Done is called when the request waits.
func (p *patience) Done() <-chan struct{} {
	switch {
	case p.bounded != nil:
	case p.most < Forever:
		p.bounded, p.cancel = context.WithDeadline(p.Context, p.own())
	default:
		p.bounded, p.cancel = context.WithCancel(p.Context)
	}
	if p.drain != nil && p.stop == nil {
		if p.drain.Err() != nil {
			p.cancel() // at once, and not soon
		}
		p.stop = context.AfterFunc(p.drain, p.cancel)
	}
	return p.bounded.Done()
}

func (p *patience) Err() error {
	if p.bounded == nil {
		return p.Context.Err()
	}
	return p.bounded.Err()
}

// isTooShort reports whether a decision is for a turn beyond the end of the patience, and not beyond a
// deadline of the request.
func (p *patience) isTooShort(d quotient.Decision) bool {
	if p == nil || p.most == Forever || d.Reason != quotient.ReasonDeadline {
		return false
	}
	end, ok := p.Context.Deadline()
	return !ok || !end.Before(p.own())
}

// hidesLeaving reports whether net/http would not notice that the client leaves
// while the request waits: HTTP/1 with a body that is not read.
func hidesLeaving(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.ContentLength != 0 && r.Body != nil && r.Body != http.NoBody
}
