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

// Wait makes a call that is over the limit wait for its turn, for max at most. Without Wait a server
// refuses it at once, and a client's call waits until its context ends, as with Forever.
//
// Calls wait in order of arrival, within their priority. A call whose turn is known to come after max, or
// after the deadline of its context, is refused at once, with the time until that turn. A call that has
// waited for max is refused then. The limiter's MaxWait and MaxWaiting bound all waits too; the shorter
// bound counts. Under SetDryRun no call waits. With Also no call waits either.
//
// A refusal because of max has the reason of what the call waits for, quotient.ReasonRate or
// ReasonInFlight, with that rule, as without Wait. It is quotient.ReasonWait, without a rule, if there is
// room at that very instant. If the limiter's MaxWait is the bound, it is ReasonWait too. If the deadline
// of the call is the bound, it is ReasonDeadline.
//
// The queue of a rate holds about max x rate / replicas calls: with a max of 200 ms, 20 a second on two
// replicas are two. In so short a queue a call of low priority hardly ever has a place while calls of high
// priority use the whole rate. Its turn, behind all of them, would come after max.
//
// A short max also defeats the promise of quotient.Priority that no class starves. One of eight admissions
// goes to the call that has waited longest, and a call of low priority may reach its max before that.
//
// In Stats a call that is refused at once because of max has quotient.ReasonDeadline. A call that has
// waited for max is one of Stats.Cancelled. Wait panics if max is not above 0.
func Wait(max time.Duration) Option {
	mustBe(max > 0, fmt.Sprintf("Wait is %v, want more than 0", max))
	return func(g *guard) { g.maxWait = max }
}

// PriorityBy gives each call the priority that f returns for it, such as by its method or by its context;
// without it all are quotient.PriorityNormal. f is called once a call, from many goroutines at a time.
// Values out of range count as the nearest priority.
//
// f must not trust clients. If it returns what a client sends in its metadata, every client can be first.
// PriorityBy panics if f is nil.
func PriorityBy(f func(Call) quotient.Priority) Option {
	mustBe(f != nil, "PriorityBy: the function is nil")
	return func(g *guard) { g.priority = f }
}

// Except lets the calls for which f reports true pass without a limiter, such as those of a server's health
// service. They hold no permit, and the policy learns nothing from them. Several options add up. f is
// called once a call, before the key function, from many goroutines at a time. Except panics if f is nil.
//
// A client chooses its metadata: decide by Call.Method, or by the result of a check of your own.
func Except(f func(Call) bool) Option {
	mustBe(f != nil, "Except: the function is nil")
	return func(g *guard) { g.except = append(g.except, f) }
}

// mustBe panics for what cannot be meant: it is a mistake in the program.
func mustBe(meant bool, mistake string) {
	if !meant {
		panic("grpclimit: " + mistake)
	}
}
