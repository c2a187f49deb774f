// Package quotient limits what a fleet of processes does: how often, and how much at the same time. It needs no store
// on the request's path, because each process makes a [Limiter] with the limit of the whole fleet and enforces its
// share, which is the limit divided by the number of replicas.
//
//	limiter, err := quotient.New(quotient.Rates(quotient.PerMinute(1200)), quotient.Replicas(4))
//	if err != nil {
//		log.Fatal(err)
//	}
//	if !limiter.Allow("tenant-7") {
//		fmt.Println("over the limit")
//	}
//
// Every key has the limit for itself, and a key is whatever you name: a tenant, an API token, a route, a host. Here
// each of four replicas admits 300 requests a minute from each tenant, so together they admit 1,200. A decision takes
// one clock read and one short lock, and no network. Where the limit is a constant of the program, [Must] spares you
// the error.
//
// Servers and clients of HTTP rarely call a Limiter themselves, since package httplimit has a middleware and a
// transport. Modules beside this one do the same for gin, echo, gRPC and Caddy, and the command quotient for programs
// in other languages.
//
// # Asking
//
// [Limiter.Allow] says whether a request may go ahead now. It suits rates; for work that takes a while, use
// [Limiter.TryAcquire], which returns a [Permit] and, if it refuses, a [Decision] with the reason and the time to come
// again:
//
//	permit, decision := limiter.TryAcquire("report")
//	if !decision.OK {
//		return decision.RetryAfter
//	}
//	defer permit.Release()
//
// [Limiter.Acquire] waits for its turn instead, and returns an error if the context ends before or if waiting cannot
// help:
//
//	permit, err := limiter.Acquire(ctx, "report")
//	if err != nil {
//		return err // a *LimitedError, or that of ctx
//	}
//	defer permit.Release()
//
// Waiters of a key are served in the order of arrival within their [Priority]. Release every permit, because its slot
// stays taken otherwise. [MaxHold] gives back the slots of permits that a bug has lost. [Do] acquires, calls a
// function and releases. [TryAcquireAll] asks several limiters at once, and [Limiter.TryAcquireUpTo] takes as much of
// a batch as there is room for.
//
// # Limits
//
// A [Limit] joins rates with a number of slots for calls in flight, and a call is admitted when all of them have room.
// The zero Limit limits nothing.
//
//	limit := quotient.Limit{
//		Rates: []quotient.Rate{
//			quotient.PerSecond(10), // a bucket: ten at once, and ten a second
//			{Name: "day", Events: 5000, Per: 24 * time.Hour, Kind: quotient.Window}, // from midnight UTC
//		},
//		InFlight: 20, // slots: permits that are not released yet
//	}
//
// The [Kind] of a [Rate] says when its events may come. A [Bucket] is the usual choice. [Paced], which [Every] makes,
// keeps requests evenly apart. [Window] counts by the wall clock, as many APIs do, and [CountedWindow] does it for all
// replicas together. A rate with a Unit counts something other than requests, such as tokens or bytes. A call says by
// [Cost] how many it takes, and if that was an estimate, [Permit.Correct] puts it right afterwards.
//
// [Limiter.SetLimit] changes the limit while callers wait. With [Limiter.SetDryRun] a limiter refuses no call, and
// counts those that it would have refused.
//
// # The replicas
//
// The division is right only while each process knows how many there are. [Replicas] is enough for a fleet that never
// changes. Otherwise follow a [Source]: the folder poolsize has some for DNS, Kubernetes, Redis, etcd, files and
// gossip, [Env] reads the environment, and one of your own needs one method.
//
//	limiter := quotient.Must(quotient.New(limit, quotient.Replicas(10), quotient.AwaitPool(time.Minute)))
//	go limiter.Follow(ctx, source)
//
// A larger count takes effect at once, because one that is too small lets the fleet exceed the limit. A smaller one
// waits for [HoldDown], in case the source has only lost sight of some. [AwaitPool] admits nothing before the first
// report; here for a minute at most, because Replicas says what to assume after it. Without AwaitPool a limiter starts
// with the count of Replicas, or with the whole limit if you gave none. [Limiter.SetPool] is for an operator who knows
// better. A program with several limiters makes them in a [Registry]. Its Follow tells the count to all of them, and
// packages admin and metrics show them.
//
// # Plans and overrides
//
// Keys that pay for more belong to a plan, which the call names. A single key gets a limit of its own by an override,
// for a while or for good:
//
//	limiter := quotient.Must(quotient.New(free, quotient.Plans(map[string]quotient.Limit{"paid": paid})))
//	_, decision := limiter.TryAcquire("customer-7", quotient.Plan("paid"))
//	fmt.Println(decision)
//	err := limiter.Override("customer-8", &paid, time.Hour)
//
// An override goes before any plan. Like every change of a limiter, an override or a changed plan counts only on the
// replica where it was made.
//
// # Upstreams that have a limit of their own
//
// A client whose API answers 429 can learn its rate from the answers. [Policy] sets how, and the caller tells what
// became of each request:
//
//	limiter := quotient.Must(quotient.New(limit, quotient.Policy(policy.Tracking{}), quotient.Replicas(10)))
//	permit, err := limiter.Acquire(ctx, "api.example.com")
//	if err != nil {
//		return err
//	}
//	// send the request, which is refused here
//	permit.Done(policy.Feedback{Outcome: policy.Throttled, RetryAfter: 2 * time.Second}) // releases it too
//
// No replica goes beyond its share unless [BeyondShare] allows it. The transport of httplimit reads the feedback from
// the answers.
//
// # Refusals
//
// A refusal of Acquire is a [*LimitedError]: a key and the same [Decision] that TryAcquire returns. errors.Is finds
// [ErrLimited] in it. The [Reason] tells what to do about it, and Decision.Rule which rate or slots stood in the way:
//
//	var refused *quotient.LimitedError
//	if errors.As(err, &refused) {
//		fmt.Println(refused.Key, refused.Reason, refused.RetryAfter.Round(time.Minute))
//	}
//
// [Limiter.Explain] says in words why a key waits or is refused, and takes nothing. [Limiter.Stats] and [Limiter.Keys]
// have the numbers.
//
// # Options of New
//
//   - The pool: [Replicas] or [StartPool] until a source reports, then [AwaitPool], [HoldDown] and [HintMaxAge].
//   - The division: [Demand] lends unused shares, [AtLeastOne] is for fewer slots than replicas, [StartEmpty] for
//     replicas that start while the fleet is busy.
//   - Classes and upstreams: [Plans], [Policy], [BeyondShare].
//   - Bounds: [MaxKeys], [MaxWaiting], [MaxWait], [MaxHold].
//   - Watching: [Logger], [OnAdmit], [OnHeldBack].
//
// # Options of a call
//
//   - What it takes: [Weight], [Cost].
//   - Who it is for: [Plan], [Priority.Option].
//   - What it returns: [Refundable], [StateInto].
//
// # What is bounded, and what is not done
//
// In any stretch of time the fleet admits at most the rate times that time, plus the larger of the burst and the
// number of replicas, as long as no replica counts too few. A limiter remembers 65,536 keys and has 10,000 callers
// wait for each, unless [MaxKeys] and [MaxWaiting] say otherwise. It forgets a key only when the key has nothing left
// to remember, so that its requests are admitted as before. The file docs/bounds.md lists every promise with the test
// that holds it.
//
// A share that a replica does not use is lost to the others unless [Demand] lends it, so spread a key's requests
// evenly over the replicas. State lives in memory: after a restart buckets are full, and what a policy has learned is
// gone. Nothing is retried.
//
// # Concurrency
//
// All methods of a [Limiter], a [Permit] and a [Registry] are safe for concurrent use. A Limiter needs no closing, and
// it starts a goroutine only to write what a call has to log. Follow runs in a goroutine of yours until its context
// ends.
package quotient
