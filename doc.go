// Package quotient holds one global limit over many replicas without a store on the request's path.
//
//	limiter, err := quotient.New(quotient.Rates(quotient.PerSecond(100)), quotient.Replicas(4))
//
// Every process makes a [Limiter] with the limit of the whole fleet and enforces its quotient of it, limit /
// replicas. It does so for each key on its own: a URL path, a tenant, an API token. A decision is local: one
// clock read, one short lock, no network.
//
// # What nine of ten programs use
//
//   - [New] makes a limiter, and [Must] panics in place of its error. [Replicas] is how many share its
//     limit, or [Limiter.Follow] follows a [Source] of hints: DNS, a file, Redis and more, under poolsize.
//     By default losing it stops no request.
//   - [Limiter.Acquire] waits for its turn, first in, first out, and returns a [Permit]; [Permit.Release]
//     gives it back. A slot in flight whose permit is forgotten is lost, unless [MaxHold] is set.
//   - [Limiter.Allow] is for a rate alone: one event, yes or no.
//   - Package httplimit does it for HTTP: its Middleware refuses at once with 429, its Transport waits.
//
// # The rest
//
//   - To call: [Limiter.TryAcquire] never waits and returns the reason, [Limiter.TryAcquireUpTo] takes what
//     a batch has room for, and [TryAcquireAll] takes from several limiters or from none. [Do] throttles a
//     plain function. A call may have a [Plan], a [Weight], a [Cost] in units of your own and a [Priority].
//   - To limit: a [Limit] joins up to 16 [Rate]s and slots in flight; a call takes from all or from none. A
//     rate is a token bucket, paced ([Every]), or a counter of aligned windows. [Plans] are classes of keys.
//     A [Policy] learns from what an upstream answers.
//   - To operate: a [Registry] holds limiters under names, for the packages admin and metrics. Its Options
//     and [Registry.Follow] apply to all of them. [Limiter.SetLimit], [Limiter.SetPlan], [Limiter.SetPool],
//     [Limiter.Override], [Limiter.Reset] and [Limiter.SetDryRun] change what is in force. [Limiter.Stats],
//     [Limiter.Explain] and [Limiter.Top] show it.
//
// # What is promised
//
// No replica may believe in fewer replicas than there are. The fleet then admits at most Events per Per
// times any window, plus the larger of the burst and the number of replicas. A key is forgotten only when
// that makes no difference. A raised limit admits waiters at once, a lowered one paces those that wait
// already, and a waiter whose context ends leaves no trace. docs/bounds.md has all promises and their tests.
//
// A Limiter starts no goroutine and needs no closing. One timer runs for each key that has waiters, each
// Follow of a limiter and each ttl of SetPool. A goroutine runs for each report of LeakCheck and each line in
// the log of a dry run.
package quotient
