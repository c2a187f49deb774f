package grpclimit

import (
	"fmt"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
)

// Option changes how an interceptor works. If two set the same, the last one counts.
type Option func(*guard)

// Forever is for Wait: a call waits until it is admitted or its context ends.
const Forever = httplimit.Forever

// Wait makes a call that is over the limit wait for its turn, for max at most. Without Wait a server refuses
// it at once, and a client's call waits until its context ends, as with Forever.
//
// Calls wait in order of arrival, within their priority. One whose turn is known to come after max, or after
// the deadline of its context, is refused at once, with the time until that turn. A call that has waited for
// max is refused then. The limiter's MaxWait and MaxWaiting bound all waits too; the shorter bound counts.
// Under SetDryRun no call waits, and no call of several limiters does: see Also.
//
// A refusal because of max has the reason of what the call waits for: quotient.ReasonRate or ReasonInFlight,
// with that rule, as a call that does not wait. It has quotient.ReasonWait, without a rule, if there is room
// at that very instant. Where the limiter's MaxWait is the bound it is ReasonWait as well, and where the
// deadline of the call is, ReasonDeadline.
//
// The queue of a rate holds about max x rate / replicas calls: 200 ms of 20 a second on two replicas are two.
// In so short a queue a call of a low class hardly ever has a place while a high class asks for all there is.
// Its turn, behind all of those, comes after max.
//
// A short max undoes the promise of quotient.Priority that none starves. One of eight admissions goes to the
// call that has waited longest, and a low one may be at its max before that.
//
// Among what the limiter counts, a call that is refused at once because of max has quotient.ReasonDeadline,
// and one that has waited for max is one of Stats.Cancelled. Wait panics if max is not above 0.
func Wait(max time.Duration) Option {
	if max <= 0 {
		panic(fmt.Sprintf("grpclimit: Wait is %v, want more than 0", max))
	}
	return func(g *guard) { g.maxWait = max }
}

// PriorityBy gives each call the priority that f returns for it, such as by its method or by what its
// context holds; without it all are quotient.PriorityNormal. f is called once a call, from many goroutines
// at a time. Values beyond the classes count as the nearest one.
//
// Whom to believe is f's decision. Metadata that a client has sent is no more than its wish: a function that
// believes a client lets every client be the first. PriorityBy panics if f is nil.
func PriorityBy(f func(Call) quotient.Priority) Option {
	if f == nil {
		panic("grpclimit: PriorityBy: the function is nil")
	}
	return func(g *guard) { g.priority = f }
}

// Except lets the calls for which f reports true pass without asking any limiter, such as those of a server's
// health service. They hold no permit, and the policy learns nothing of them. Several options add up. f is
// called once a call, before the key is asked for, from many goroutines at a time. Except panics if f is nil.
//
// A client can put into its metadata what it likes: go by Call.Method, or by what a check of yours has found.
func Except(f func(Call) bool) Option {
	if f == nil {
		panic("grpclimit: Except: the function is nil")
	}
	return func(g *guard) { g.except = append(g.except, f) }
}
