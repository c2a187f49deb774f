package httplimit

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient"
)

// Option changes how Middleware works. If two set the same, the last one counts.
type Option func(*middleware)

// defaultStreamLifetime is how long a connection that was taken over may hold its permit. It is longer than a
// usual page visit, and short enough that connections that are never closed do not use up a limit for good.
const defaultStreamLifetime = time.Hour

// defaultUnreadBodyWait is how long a request may wait when net/http cannot tell
// that its client has left. Ten seconds is about as long as a person waits.
const defaultUnreadBodyWait = 10 * time.Second

// Forever is for Wait: a request waits until it is admitted or its client leaves.
const Forever time.Duration = math.MaxInt64

// Wait makes a request that is over the limit wait for its turn, for max at most. Without Wait it is refused at once.
//
// Requests wait in order of arrival, within their priority. One whose turn is known to come after max is
// refused at once, with the time until that turn. A request that has waited for max is refused then: with
// 429, as one that did not wait, or 503 where this replica is still the reason. Its Retry-After counts from
// the refusal. With Forever a request waits for as long as its client stays.
//
// A refusal because of max has the reason of what the request waits for: quotient.ReasonRate or
// ReasonInFlight, with that rule, as one that does not wait. It has quotient.ReasonWait, without a rule, if
// there is room at that very instant.
//
// A short max undoes the promise of quotient.Priority that none starves. One of eight admissions goes to the
// request that has waited longest, and a low one may be at its max before that.
//
// The limiter's MaxWait and MaxWaiting bound all waits too; the shorter bound counts. A request whose context has a
// deadline of its own is refused at once if its turn is known to come after that. These have quotient.ReasonWait and
// ReasonDeadline. A request with a body may wait shorter, see UnreadBodyWait. Under SetDryRun no request waits.
//
// Among what the limiter counts, a request that is refused at once because of max has quotient.ReasonDeadline, and
// one that has waited for max is one of Stats.Cancelled. Wait panics if max is not above 0.
func Wait(max time.Duration) Option {
	mustBe(max > 0, "Wait is %v, want more than 0", max)
	return func(m *middleware) { m.maxWait = max }
}

// StreamLifetime caps how long a hijacked connection holds its permit: d from the hijack, 1 hour by default. The
// connection itself is not closed. StreamLifetime panics if d is not above 0.
func StreamLifetime(d time.Duration) Option {
	mustBe(d > 0, "StreamLifetime is %v, want more than 0", d)
	return func(m *middleware) { m.streamLifetime = d }
}

// UnreadBodyWait caps how long a request waits if Middleware cannot notice that its client has left, 10 s
// by default. Over HTTP/1 that is so if the request's body
//
//   - is longer than 64 KiB,
//   - is sent only on demand (Expect: 100-continue),
//   - has no room because other bodies are buffered (see Middleware), or
//   - has not arrived; the time until it arrives counts.
//
// After that time the request is refused. It is refused at once if its turn is known to come later. If a
// part of the body is missing then, the connection is closed. UnreadBodyWait changes nothing without Wait,
// and does not extend its max. It panics if d is not above 0.
func UnreadBodyWait(d time.Duration) Option {
	mustBe(d > 0, "UnreadBodyWait is %v, want more than 0", d)
	return func(m *middleware) { m.unreadBodyWait = d }
}

// Drain ends the waits of Wait when ctx ends, for the shutdown of a server. Waiting requests are then answered with
// 503, and so are later ones that would have to wait: with Retry-After: 1 and a problem of type
// temporary-reduced-capacity. Admitted requests continue. New requests for which there is room are still served until
// http.Server.Shutdown: cancel ctx just before that. A request that a limit refuses at once is refused as always.
//
// Only requests that wait pay for it. It changes nothing without Wait. Drain panics if ctx is nil.
func Drain(ctx context.Context) Option {
	mustBe(ctx != nil, "Drain: the context is nil")
	return func(m *middleware) { m.drain = ctx }
}

// OnWaited calls f for each request that is admitted after a wait, before the handler runs. waited is how
// long the request waited. overhead is the part of that after its tokens and slots were free. The time in
// which a body was read (UnreadBodyWait) is no overhead. f is called from many goroutines at a time.
// OnWaited changes nothing without Wait. It panics if f is nil.
func OnWaited(f func(r *http.Request, waited, overhead time.Duration)) Option {
	mustBe(f != nil, "OnWaited: the function is nil")
	return func(m *middleware) { m.onWaited = f }
}

// OnRefuse calls f for each request that is refused, to write another body, to log or to count.
//
// Retry-After, Cache-Control and the fields of SendFields are set before. The response has the status of the refusal,
// 429, 503 or 413, unless f calls WriteHeader with another one. If f writes nothing, the problem document follows as
// without f. The decision names the reason and the rule. Its Reason is quotient.ReasonNone where no limit refuses:
// the client has left, or Drain has begun. The request's body may have been read in part.
//
// f is called from many goroutines at a time. It must neither keep the writer nor hijack the connection. If
// it panics, so does Middleware; no permit is held. OnRefuse panics if f is nil.
func OnRefuse(f func(w http.ResponseWriter, r *http.Request, d quotient.Decision)) Option {
	mustBe(f != nil, "OnRefuse: the function is nil")
	return func(m *middleware) { m.onRefuse = f }
}

// CountGarbage adds to n how many fields and parameters about limits could not be read in the handler's own
// answers, and were ignored. Answers are read if the limiter's policy learns, or if the request asks for
// another protocol. CountGarbage panics if n is nil.
func CountGarbage(n *atomic.Uint64) Option {
	mustBe(n != nil, "CountGarbage: the counter is nil")
	return func(m *middleware) { m.garbage = n }
}

// mustBe panics for what cannot be meant, like http.ServeMux.Handle for a bad pattern: it is a mistake in the program.
func mustBe(meant bool, mistake string, args ...any) {
	if !meant {
		panic(fmt.Sprintf("httplimit: "+mistake, args...))
	}
}
