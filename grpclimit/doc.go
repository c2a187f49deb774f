// Package grpclimit puts a quotient.Limiter in front of the methods of a gRPC server, and behind those of a
// client.
//
// A server refuses a call that is over the limit, at once. With the option Wait the call waits for its turn,
// in order of arrival. A client's call always waits until it is admitted or its context ends, as with
// httplimit.Transport; Wait bounds that. With Also a call must be admitted by several limiters, and does not
// wait, a client's neither. The permit is held until the call is over: until a server's handler has returned
// or panicked, until a client has its answer, and for a stream until its end. Calls that Except names, such
// as those of a health service, pass without a permit.
//
// Interceptors that are passed to gRPC before those of this package run outside of the limit, and those that
// are passed after them run inside. So a check of the login that a key goes by is passed before them.
//
// A call that is refused fails with codes.ResourceExhausted. It fails with codes.Unavailable if not its rate
// but this replica is the reason. That is a share smaller than one request, no room for a new key, or a pool
// that is not known yet. A context that has ended, before the call or while it waits, is codes.Canceled or
// codes.DeadlineExceeded.
//
// Refused reads a refusal, that of this process and that of a server. A refusal's status has these details:
//
//   - ErrorInfo: the Reason as quotient.Reason spells it, in capitals (RATE, IN_FLIGHT), and Domain. The reason
//     is what is short, also when Wait has ended.
//   - QuotaFailure: the rule is the Subject of its only violation. It is absent where no single rule refused.
//   - RetryInfo: when to come again. That is a second if it is not known, as for slots. It is absent if
//     waiting does not help.
//
// Neither a status nor the text of the error names the key, and a status has no numbers of the rule. The
// *quotient.LimitedError in the error has both; errors.As finds it in this process.
//
// A policy that learns reads the outcome of every call. ResourceExhausted is policy.Throttled and Unavailable
// is policy.Unavailable, both with the status's RetryInfo (24 hours at most). Canceled, DeadlineExceeded and
// a panic are policy.Failed, and every other answer is policy.Success.
//
// Nothing here retries.
package grpclimit
