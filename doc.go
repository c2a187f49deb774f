// Package quotient enforces one limit over many replicas, without a store on the request's path.
//
//	limiter, err := quotient.New(quotient.Rates(quotient.PerSecond(100)), quotient.Replicas(4))
//
// Each process makes a [Limiter] with the limit of the whole fleet, and enforces its share: limit / replicas.
// Each key has the limit for itself: a URL path, a tenant, an API token. A decision takes one clock read and
// one short lock, and no network.
//
// # The names to know first
//
//   - [New] makes a limiter. [Replicas] is the number of processes that share its limit.
//   - [Limit] joins rates and slots in flight. [PerSecond], [PerMinute], [PerHour] and [Every] make rates.
//   - [Limiter.Allow] reports whether the rates of a key admit one request now.
//   - [Limiter.TryAcquire] never waits. It returns a [Permit], or the reason for the refusal.
//   - [Limiter.Acquire] waits for its turn, first in, first out. Its refusal is a [LimitedError].
//   - [Permit.Release] frees the slot. A slot that is never released is lost, unless [MaxHold] is set.
//   - [Limiter.Follow] reads the number of replicas from a [Source]: DNS, a file, Redis and more, under
//     poolsize. By default no request stops when the source fails.
//   - [Policy] sets a policy that adapts to the answers of an upstream.
//   - [Registry] holds the limiters of a process by name, for the packages admin and metrics.
//   - Package httplimit has a Middleware for servers, which refuses with 429, and a Transport for clients,
//     which waits.
//   - [Limiter.SetLimit], [Limiter.SetPool] and others change a running limiter. [Limiter.Stats],
//     [Limiter.Explain] and [Limiter.Keys] show its state.
//
// # What is promised
//
// In any window the fleet admits at most the rate times the window, plus the larger of the burst and the
// number of replicas. This requires that no replica counts too few replicas. A key is forgotten only when
// that makes no difference. A raised limit admits waiters at once, a lowered one paces those that wait
// already. A waiter whose context ends leaves no trace. docs/bounds.md has all promises and their tests.
//
// A Limiter needs no closing and starts no goroutine, except for a line in the log that a call causes. It
// uses one timer per key with waiters, one per Follow and one per SetPool with a ttl.
package quotient
