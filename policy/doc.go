// Package policy adapts a limiter to an upstream that has a limit of its own. The upstream's answers go in as
// feedback, and a pace comes out: how many requests a second, or how many at a time, a key may send.
//
//	limiter := quotient.Must(quotient.New(limit, quotient.Policy(policy.Tracking{}), quotient.Replicas(4)))
//	client := &http.Client{Transport: &httplimit.Transport{Limiter: limiter}}
//
// Each of four replicas has such a client. It slows down when the upstream answers 429, and does not exceed a quarter
// of the limit.
//
// # Which policy
//
//   - [Fixed], the default, never learns. It is right for a server that protects itself, because there is no answer
//     to learn from.
//   - [Tracking] is for clients of an upstream that refuses what is too much. It finds the rate by the answers, obeys
//     announced pauses, and needs to know neither the limit nor the number of clients.
//   - [Ramp] opens a limit step by step and reads no answers. It is for upstreams with cold caches, or that grow with
//     their load.
//   - [AIMD] is the controller of textbooks, here for comparison.
//
// # Beyond the share
//
// A policy that learns moves a replica between zero and its share. As long as the limit and the number of replicas are
// right, the upstream then refuses nothing, but what idle replicas leave is lost. With quotient.BeyondShare a replica
// may go up to the whole limit, or without end if the limit has no rates. It uses what the others leave, and finds the
// limit by exceeding it now and then. Use it unless the upstream punishes those who exceed. docs/adaptive.md compares
// the two by their figures, and has a recipe for each kind of upstream.
//
// # Feedback
//
// [Feedback] is what became of one admitted request. The transport of httplimit reads it from the answer. Any other
// caller hands it to the permit, with whatever the answer says:
//
//	permit.Done(policy.Feedback{
//		Outcome:    policy.Throttled, // 429, RESOURCE_EXHAUSTED
//		RetryAfter: 2 * time.Second,
//		Quotas:     [policy.MaxQuotas]policy.Quota{{Limit: 100, Remaining: 0, Reset: time.Minute}},
//	})
//
// Tell of successes too, since a rate grows by them alone. An answer that says nothing about the rate is a [Success],
// also if it is an error of another kind. [Unavailable] is for an upstream that cannot serve now, and [Failed] for a
// request without an answer.
//
// # A policy of your own
//
// A [Policy] makes a [Controller] for each key. Its one method takes a [Sample] and returns the [Pace] from then on.
// This one runs at the share, and stops for as long as the upstream demands:
//
//	type obedient struct{}
//
//	func (obedient) New(uint64) policy.Controller { return new(obeying) }
//
//	type obeying struct{ until time.Duration }
//
//	func (c *obeying) Next(s policy.Sample, b policy.Bounds) policy.Pace {
//		if s.Outcome == policy.Throttled {
//			c.until = max(c.until, s.Now+s.RetryAfter)
//		}
//		return policy.Pace{Rate: cmp.Or(b.Share, 1), NotBefore: c.until} // the share is 0 where it is not known
//	}
//
// A controller has no clock, no lock and no goroutine: time is an argument, so you can test it, simulate it and
// replay it at any speed. The limiter calls Next with the key's lock held, by one goroutine at a time, so it must
// return at once. A controller that also is a [Reporter] gets the sums of the whole fleet. The policies themselves
// are plain values, which any number of limiters can share.
package policy
