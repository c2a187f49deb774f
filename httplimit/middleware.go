package httplimit

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

// Middleware returns a function that puts l in front of a handler. A request takes one permit of the key
// that key returns, and releases it when the handler has returned or panicked, exactly once.
//
// A request that is over the limit is refused at once. With the option Wait it waits for its turn, in order
// of arrival. The status of a refusal is
//
//   - 429 as a rule;
//   - 503 if this replica's share is smaller than one request, if it has no room for a new key, or if it
//     does not know its pool yet;
//   - 503 if the request's context, or that of Drain, ends while the request waits;
//   - 413 if the request is larger than the limit ever allows (WeightBy, CostBy).
//
// A refusal has Retry-After in whole seconds, at least 1, which spreads the clients that obey (quotient.Decision),
// unless waiting does not help (413, quotient.Limit.Deny). It has Cache-Control: no-store and a body of type
// application/problem+json (RFC 9457). The detail is a sentence for a person, violated-policies names the rule, and
// retry-after-seconds repeats Retry-After. It does not contain the key. OnRefuse can replace the body.
//
// PriorityBy, WeightBy, CostBy and PlanBy set the options of a request's call. With Also other limiters
// must admit it too: either all admit it, or none takes anything.
//
// Clients may leave while their requests wait. With HTTP/1, net/http notices that only after the request's body has
// been read. So Middleware reads up to 64 KiB of the body before such a request waits, and the handler reads those
// bytes later. See UnreadBodyWait for longer bodies, and for those that do not arrive. Only bytes that have arrived
// count. One Middleware buffers at most 64 MiB. A key may buffer as much as it leaves free: half, if it is the only
// key. The first 512 bytes of each body are not counted. Also, net/http does not notice that a client has gone which
// has already sent its next request (pipelining). The max of Wait bounds the wait of such a request.
//
// The handler gets the server's own http.ResponseWriter, unless the limiter's policy learns
// (quotient.Limiter.Learns) or the request asks for another protocol (Upgrade or CONNECT). Then it gets a
// wrapper with Unwrap. The wrapper implements http.Flusher, http.Hijacker, http.Pusher and io.ReaderFrom
// exactly if the original does; http.ResponseController works as before.
//
// With the wrapper a policy learns from the handler's own refusals, and from the Retry-After and RateLimit fields of
// its answers, when the handler has returned. They are read as ProfileFor reads those of an unknown host, without
// their bodies (see CountGarbage). A panic before any answer counts as policy.Failed. A hijacked connection counts as
// policy.Success. It holds its permit until it is closed, or for StreamLifetime at most.
//
// Work that goes on when the handler has returned holds no permit. Behind Middleware, http.TimeoutHandler
// returns while its handler still works, and the next request is admitted beside it. So put TimeoutHandler
// around Middleware, and anything else that gives up its handler: the permit is then held until the work is
// done. Nor does a connection that is hijacked from a request for no other protocol hold one.
//
// Middlewares may be nested. A policy does not learn from the answers of another Middleware: a request that
// an inner one refused counts as policy.Failed.
//
// The returned handler is safe for use by many goroutines. Middleware panics if l or key is nil, if CostBy names a unit
// that l does not know, and if Wait is combined with Also. The function that it returns panics if the handler is nil.
func Middleware(l *quotient.Limiter, key KeyFunc, opts ...Option) func(http.Handler) http.Handler {
	m := newMiddleware("Middleware", l, opts)
	mustBe(key != nil, "Middleware: the key function is nil")
	m.key = key
	return func(next http.Handler) http.Handler {
		mustBe(next != nil, "Middleware: the handler is nil: nothing would be served behind the limit")
		return &handler{m, next}
	}
}

// Around returns a function that does for one request what Middleware does, under a key that the caller names: for
// frameworks whose handlers are no http.Handler. next is called at most once, and before the function returns; if it
// was not called, the request has been answered with a refusal. A key of more than 256 bytes is hashed.
//
// The returned function is safe for use by many goroutines. Make it once: each has its own bound on buffered
// bodies. Around panics if l is nil.
func Around(l *quotient.Limiter, opts ...Option) func(
	w http.ResponseWriter, r *http.Request, key string, next http.Handler,
) {
	m := newMiddleware("Around", l, opts)
	return func(w http.ResponseWriter, r *http.Request, key string, next http.Handler) {
		h := handler{m, next}
		h.limit(w, r, bound(key))
	}
}

func newMiddleware(name string, l *quotient.Limiter, opts []Option) *middleware {
	mustBe(l != nil, "%s: the limiter is nil", name)
	m := &middleware{
		limiter:        l,
		feedback:       l.Learns(),
		streamLifetime: defaultStreamLifetime,
		unreadBodyWait: defaultUnreadBodyWait,
		garbage:        new(atomic.Uint64),
	}
	for _, opt := range opts {
		opt(m)
	}
	m.bare = len(m.perCall) == 0 && m.plan == nil && m.sender == nil && len(m.also) == 0
	for _, o := range m.also {
		m.feedback = m.feedback || o.limiter.Learns()
	}
	mustBe(m.maxWait == 0 || len(m.also) == 0,
		"%s: Wait and Also exclude each other: requests of several limiters do not wait", name)
	return m
}

// middleware is what all handlers of one Middleware share.
type middleware struct {
	limiter        *quotient.Limiter
	key            KeyFunc
	maxWait        time.Duration // 0: a request does not wait; Forever: as long as its client stays
	feedback       bool          // the limiter's policy learns
	streamLifetime time.Duration
	unreadBodyWait time.Duration
	perCall        []callOption               // besides one request
	priced         bool                       // the handler gets the permit
	plan           func(*http.Request) string // nil: none
	bare           bool                       // a request is just one, and its client gets no fields
	also           []other                    // limiters beside limiter
	severals       sync.Pool                  // of *several, for also
	drain          context.Context            // nil: no wait is ended
	sender         *sender                    // nil: no fields are sent
	garbage        *atomic.Uint64             // see CountGarbage
	bodies         bodies                     // of waiting requests

	onRefuse func(w http.ResponseWriter, r *http.Request, d quotient.Decision) // nil: none
	onWaited func(r *http.Request, waited, overhead time.Duration)             // nil: none
}

// handler is one handler behind the limiter.
type handler struct {
	*middleware
	next http.Handler
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.limit(w, r, bound(h.key(r)))
}

// limit answers one request under its key.
func (h *handler) limit(w http.ResponseWriter, r *http.Request, key string) {
	if h.bare {
		h.decide(w, r, key, nil, nil)
		return
	}
	at := newScratch()
	opts := at.opts[1:1]
	if h.sender != nil {
		opts = at.opts[:1]
	}
	for i := range h.perCall {
		opts = append(opts, h.perCall[i].of(r))
	}
	if h.plan != nil {
		opts = append(opts, quotient.Plan(h.plan(r))) // the last: see planless
	}
	if len(h.also) > 0 {
		held, no := h.admitBySeveral(r, key, opts, at)
		h.answer(w, r, at, held, no)
		return
	}
	h.decide(w, r, key, opts, at)
}

// decide has the limiter decide on a request.
func (h *handler) decide(
	w http.ResponseWriter, r *http.Request, key string, opts []quotient.CallOption, at *scratch,
) {
	if h.maxWait == 0 {
		permit, no := h.admitNow(key, opts)
		h.answer(w, r, at, admission{own: permit}, no)
		return
	}
	if hidesLeaving(r) {
		h.limitUnread(w, r, key, opts, at)
		return
	}
	permit, no := h.await(r, key, opts, time.Time{}, h.maxWait)
	h.answer(w, r, at, admission{own: permit}, no)
}

// admitNow takes a permit for a request at once, or refuses it. One of an unknown plan asks without a plan.
func (h *handler) admitNow(key string, opts []quotient.CallOption) (quotient.Permit, *refusal) {
	permit, d := h.limiter.TryAcquire(key, opts...)
	if d.Reason == quotient.ReasonBadRequest && h.plan != nil {
		permit, d = h.limiter.TryAcquire(key, planless(opts)...)
	}
	if !d.OK {
		return permit, refusalOf(d)
	}
	return permit, nil
}

// answer serves a request that has its permit, and turns another one away.
func (h *handler) answer(
	w http.ResponseWriter, r *http.Request, at *scratch, held admission, no *refusal,
) {
	if no != nil {
		h.turnAway(w, r, at, no)
		return
	}
	h.serve(w, r, at, held)
}

// serve runs the handler with what was taken for the request.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, at *scratch, held admission) {
	if h.priced {
		r = r.WithContext(context.WithValue(r.Context(), permitKey{}, held.own))
	}
	upgrades := r.Method == http.MethodConnect || len(r.Header["Upgrade"]) > 0 // it may take the connection over
	if !h.feedback && !upgrades {
		if held.also == nil {
			defer held.own.Release()
		} else {
			defer held.also.release()
		}
		h.tell(w, at, nil)
		h.next.ServeHTTP(w, r)
		return
	}
	held.keep()
	tracked := &tracker{of: h.middleware, inner: w, held: held}
	tracked.heard.Outcome = policy.Failed // until something was answered
	defer tracked.finish()
	for _, name := range setNames { // what is there before the handler runs: another Middleware has sent it
		for _, value := range w.Header()[name] {
			tracked.ours = append(tracked.ours, line{name, value})
		}
	}
	h.tell(tracked, at, nil)
	h.next.ServeHTTP(wrap(tracked), r)
	tracked.header(http.StatusOK) // what the server sends for a handler that wrote nothing
}

// turnAway answers a request that was not admitted.
func (h *handler) turnAway(w http.ResponseWriter, r *http.Request, at *scratch, no *refusal) {
	if seconds := no.seconds(); seconds > 0 {
		lowerResets(w.Header(), seconds) // before our own, which agree
	}
	h.tell(w, at, no)
	trackers(w, (*tracker).refuse)
	no.write(w, r, h.onRefuse)
}

// tell sends the fields of SendFields, of a refusal unless no is nil.
func (h *handler) tell(w http.ResponseWriter, at *scratch, no *refusal) {
	if h.sender != nil {
		h.sender.send(w, at, no)
	}
	if at != nil {
		at.free()
	}
}
