// Package httplimit puts a quotient.Limiter in front of an HTTP server or client. [Middleware] limits what a handler
// serves:
//
//	perKey := quotient.Must(quotient.New(quotient.Rates(quotient.PerSecond(10))))
//	handler := httplimit.Middleware(perKey, httplimit.Credential("X-API-Key"))(api)
//
// [Transport] limits what a client sends:
//
//	perHost := quotient.Must(quotient.New(quotient.Rates(quotient.PerSecond(5))))
//	client := &http.Client{Transport: &httplimit.Transport{Limiter: perHost}}
//
// The limits are those of the whole fleet: see package quotient for how each replica enforces its share.
//
// # Keys
//
// A [KeyFunc] decides which requests share a quota, so it must return nothing that a client can vary for free. Each
// function here documents what a client can vary in it, and any function of yours will do:
//
//   - [Path]: the URL's path, one key for all of its spellings.
//   - [Pattern] and [MethodPattern]: the route that a ServeMux chooses.
//   - [ClientAddr]: the client's address, through the proxies that you trust. [ClientAddrConfig] can also read a field
//     such as X-Real-IP, count a whole network as one client, and trust the peers of Unix sockets.
//   - [Credential]: a secret in a field, such as a token, which the key shows as a hash.
//   - [Header]: the value of any other field, such as a tenant.
//   - [Host]: the host, which is what Transport limits by if you set no Key.
//   - [Constant]: one quota for everything.
//
// # Waiting
//
// Middleware refuses a request over the limit at once. With [Wait] the request waits for its turn, in order of
// arrival:
//
//	patient := httplimit.Middleware(limiter, httplimit.Path(), httplimit.Wait(time.Second))(hello)
//
// A client that leaves gives up its place. Over HTTP/1 the server notices this only once the request's body has been
// read, so Middleware reads up to 64 KiB of it before the wait. If it cannot read the whole body, the request waits no
// longer than [UnreadBodyWait]. [Drain] ends all waits when the server shuts down.
//
// # Refusals
//
// A refusal is usually 429. It is 413 if the request is larger than the limit ever allows, and 503 if this replica
// cannot serve, because it has no share or no room for the key, does not know its pool yet, or shuts down. The answer
// has Retry-After, Cache-Control: no-store and a problem document (RFC 9457), which names the rule and not the key.
// [OnRefuse] writes another body, or counts. With [SendFields] every answer tells its client the limit and what is
// left of it:
//
//	RateLimit-Policy: "minute";q=100;w=60, "in-flight";q=10;qu="concurrent-requests"
//	RateLimit: "minute";r=99;t=1, "in-flight";r=9
//
// # How long a permit is held
//
// Middleware holds a permit until the handler returns. An http.TimeoutHandler returns while its handler still works,
// so put it around the Middleware and not inside:
//
//	handler := http.TimeoutHandler(slots(slow), 10*time.Millisecond, "too slow")
//
// Transport holds a permit until the answer's body is read to its end or closed, because the upstream works until
// then. So close every body, as net/http asks anyway. One that is forgotten gives its permit back after
// Transport.BodyTimeout, five minutes unless you set it.
//
// # Clients that are refused
//
// A request waits in Transport as long as its context lasts and the limiter allows. One that cannot be sent in time
// fails at once, and does not reach the upstream:
//
//	resp, err := client.Get(url)
//	if errors.Is(err, quotient.ErrLimited) {
//		return err // our own limit
//	}
//
// Nothing is ever sent twice. If you retry, each attempt is a request that takes a permit of its own, so retries never
// exceed the limit either; examples/retry has one with a budget.
//
// # Upstreams that have a limit of their own
//
// Where the limiter has a policy that learns, Transport reports every answer to it: 429 and 503, Retry-After, the
// RateLimit fields, and what GitHub, OpenAI, AWS and others send in their place. [ProfileFor] lists the hosts that it
// knows. A [Profile] describes one more, and its Judge may look into bodies.
//
//	limiter := quotient.Must(quotient.New(limit, quotient.Policy(policy.Tracking{}), quotient.Replicas(4)))
//	client := &http.Client{Transport: &httplimit.Transport{Limiter: limiter}}
//
// # Options of Middleware
//
//   - Waiting: [Wait], [UnreadBodyWait], [Drain], [OnWaited].
//   - What a request counts as: [WeightBy], [CostBy], [PlanBy], [PriorityBy].
//   - What it gives back: [Refundable]. The handler gets the permit from [PermitFrom], as it does with CostBy.
//   - What else must admit it: [Also].
//   - Answers: [SendFields], [OnRefuse].
//   - Connections that a handler hijacks: [StreamLifetime].
//   - Policies that learn from the handler's answers: [CountGarbage], and [NoAnswer] for a handler that forwards
//     requests.
//
// Transport has fields for the same. [Around] is Middleware for frameworks whose handlers are no http.Handler, and the
// modules ginlimit, echolimit (v5) and echolimit-v4 are made of it. For gRPC there is grpclimit.
//
// Everything here is safe for use by many goroutines, and nothing starts one.
package httplimit
