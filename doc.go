// Package quotient holds one global limit over many replicas without a store on the
// request's path.
//
// Every process makes a [Limiter] with the limit of the whole fleet and enforces its
// quotient of it, limit / replicas, for each key on its own: a URL path, a tenant, an API token. A decision
// is local: one clock read, one short lock, no network. How many replicas there are comes from the
// configuration, from [Limiter.SetPool], or from a [Source] of hints (DNS, a file, Redis: the packages under poolsize) that is checked
// and damped; losing it never stops a request.
//
// # Which verb to use
//
//   - [Limiter.Acquire] waits for its turn, first in, first out, and returns a [Permit] to release.
//   - [Limiter.TryAcquire] admits now or refuses now, with the reason and when to come back.
//   - [Limiter.TryAcquireUpTo] takes as much of a batch as there is room for.
//   - [Limiter.Allow] is for a rate alone: one event, yes or no.
//   - [Do] and [Wrap] throttle plain functions and release for you.
//
// Release every permit: with an in-flight limit a permit that is forgotten is a slot that is lost, unless
// [MaxHold] is set.
//
// # What is limited
//
// A [Limit] joins any number of [Rate]s, in requests or in units of your own (see [Cost]), and a number of
// slots in flight. All hold at once, and an ask takes from all or from none. A rate is a token
// bucket that x/time/rate does the maths of, a paced rate ([Every]), or a counter of aligned windows.
//
// # Who operates it
//
// A [Registry] holds the limiters of a process under names, for the packages admin and metrics. [Limiter.Override] gives one key a limit of its
// own, [Limiter.SetDryRun] shows what a limit would do, [Limiter.Explain] tells why an ask waits, [Limiter.Top] which keys are hot, and
// [Limiter.SetPoolFor] takes an operator's word for a while. An ask may carry a [Priority]; queues serve higher ones first.
//
// # What is promised
//
// While no replica believes in fewer replicas than there are, the fleet admits at most
// Events per Per times any window, plus the larger of the burst and the number of replicas. A key
// is forgotten only when that cannot be noticed: an idle key is equal to one never seen. A raised limit
// lets waiters through at once, a lowered one paces those who wait already, and a waiter whose context ends
// leaves no trace. docs/bounds.md has all promises, each with the property test that holds it.
//
// A Limiter starts no goroutine and needs no closing. What runs by itself is one timer for each key that has
// waiters, which ends with the queue, one for each Follow, one for a SetPoolFor, and a goroutine for each report of LeakCheck and
// for a line in the log that tells of a dry run, at most one a second.
package quotient
