// Package grpclimit limits the methods of a gRPC server, and the calls of a client, with a quotient.Limiter.
//
// A server refuses a call that is over the limit at once. With the option Wait the call waits for its turn, in order
// of arrival. A client's call waits until it is admitted or its context ends, as with httplimit.Transport; Wait
// bounds that. With Also several limiters must admit a call, and calls of servers and clients do not wait. A call
// holds its permit until it is over: until a server's handler has returned or panicked, until a client has its
// answer, or until the end of a stream. Except lets calls pass without a permit, such as those of a health service.
//
// The functions that take a limiter panic if it or the key is nil, or if Wait is combined with Also. Their
// interceptors are safe for use by many goroutines.
//
// Interceptors that are passed to gRPC before those of this package run outside the limit. Interceptors
// that are passed after them run inside it. So if a key depends on a login, pass the check of the login first.
//
// A refused call fails with codes.ResourceExhausted. It fails with codes.Unavailable if the reason is this replica
// and not the rate: a share smaller than one request, no room for a new key, or an unknown pool. If the context ends,
// before the call or while it waits, the code is codes.Canceled or codes.DeadlineExceeded.
//
// Refused reads a refusal of this process or of a server. The status of a refusal has these details:
//
//   - ErrorInfo: the Reason as quotient.Reason spells it, in capitals (RATE, IN_FLIGHT), and Domain. The
//     reason names the exhausted resource, also when the max of Wait has ended the wait.
//   - QuotaFailure: the rule is the Subject of its only violation. It is absent if no single rule refused.
//   - RetryInfo: the time until a retry. It is a second if the time is not known, as for slots. It is
//     absent if waiting does not help.
//
// Neither a status nor the text of the error contains the key, and a status has no numbers of the rule. The
// *quotient.LimitedError in the error has both; errors.As finds it in this process.
//
// A policy that learns gets the outcome of every call. ResourceExhausted is policy.Throttled and
// Unavailable is policy.Unavailable, both with the status's RetryInfo (24 hours at most). Canceled,
// DeadlineExceeded and a panic are policy.Failed, and every other answer is policy.Success.
//
// Nothing here retries, but gRPC does, and no interceptor of a client sees it: by the retryPolicy of a service
// config, and without one if a server has not looked at a request. With Client each attempt that is sent takes
// its own permit, waits as the call did, and has its outcome told to the policy. Where it is refused the call
// ends, with an error that wraps that of the attempt before. UnaryClient and StreamClient alone count a call
// once, however often gRPC sends it: pass grpc.WithDisableRetry too. Calls are then sent twice at most, the
// second time if the server has not looked at the first. A server's interceptors see each attempt.
package grpclimit
