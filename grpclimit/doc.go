// Package grpclimit puts a quotient.Limiter in front of the methods of a gRPC server, and behind those of a
// client.
//
// A server refuses a call that is over the limit, at once. With the option Wait the call waits for its turn,
// in order of arrival. A client's call always waits until it is admitted or its context ends, as with
// httplimit.Transport; Wait bounds that. With Also a call must be admitted by several limiters, and does not
// wait, a client's neither. The permit is held until the call is over: until a server's handler has returned
// or panicked, until a client has its answer, and for a stream until its end.
//
// A call that is refused fails with codes.ResourceExhausted. It fails with codes.Unavailable if not its rate
// but this replica is the reason. That is a share smaller than one request, no room for a new key, or a pool
// that is not known yet. Its status names the reason as quotient.Reason spells it, in capitals (ErrorInfo:
// RATE, IN_FLIGHT), the rule (QuotaFailure), and when to come again (RetryInfo). That is a second if it is not
// known, as for slots, and there is none if waiting does not help. The reason is what is short, also when Wait
// has ended. errors.As finds the *quotient.LimitedError in it. A context that has ended, before the call or
// while it waits, is codes.Canceled or codes.DeadlineExceeded.
//
// A policy that learns reads the outcome of every call. ResourceExhausted is policy.Throttled and Unavailable
// is policy.Unavailable, both with the status's RetryInfo (24 hours at most). Canceled, DeadlineExceeded and
// a panic are policy.Failed, and every other answer is policy.Success.
//
// Nothing here retries.
package grpclimit
