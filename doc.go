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
//   - [New] makes a limiter. [Replicas] is how many processes share its limit.
//   - [Limit] joins rates ([PerSecond], [Every] …) and slots in flight.
//   - [Limiter.Allow] reports whether the rates of a key admit a request now.
//   - [Limiter.TryAcquire] returns a [Permit], or the reason for the refusal.
//   - [Limiter.Acquire] waits for its turn. Its refusal is a [LimitedError].
//   - [Permit.Release] frees the slot, which is lost otherwise: see [MaxHold].
//   - [Limiter.Follow] reads the replica count from a [Source]: see poolsize.
//   - [Policy] sets a policy that adapts to the answers of an upstream.
//   - [Registry] holds a process's limiters, for packages admin and metrics.
//   - Package httplimit has a Middleware for servers and a Transport for clients.
//
// # What is promised
//
// In any window the fleet admits at most the rate times the window, plus the larger of the burst and the number of
// replicas, unless a replica counts too few replicas. A key is forgotten only when that makes no difference. A raised
// limit admits waiters at once, a lowered one paces those that wait already. A waiter whose context ends leaves no
// trace. docs/bounds.md has all promises and their tests.
//
// A Limiter needs no closing and starts no goroutine, except for a line in the log that a call causes.
package quotient
