package grpclimit

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

// Domain is the domain of the ErrorInfo in the status of a refusal.
const Domain = "github.com/quotient-go/quotient"

const (
	// unknownWait is sent where a call may come again and it is not known when, as the least Retry-After of
	// httplimit.
	unknownWait = time.Second
	// maxRetryAfter caps what a server's RetryInfo may ask for, as in httplimit: more is a mistake or an attack.
	maxRetryAfter = 24 * time.Hour
)

// refusal is a refusal of the limiter with its status.
type refusal struct {
	*quotient.LimitedError
	status *status.Status
}

// Error does not name the key, as LimitedError does: of an error that wraps this one gRPC sends the text.
func (r *refusal) Error() string { return "quotient: " + r.Decision.String() }

// GRPCStatus is for status.FromError.
func (r *refusal) GRPCStatus() *status.Status { return r.status }

// Unwrap is for errors.As.
func (r *refusal) Unwrap() error { return r.LimitedError }

// errorOf is the error of a call that was not admitted.
func errorOf(err error) error {
	limited, ok := errors.AsType[*quotient.LimitedError](err)
	if !ok {
		return status.FromContextError(err).Err()
	}
	return &refusal{limited, statusOf(limited)}
}

// statusOf is the status of a refusal. It does not name the key, which may be another party's secret.
func statusOf(limited *quotient.LimitedError) *status.Status {
	reason, rule, what := limited.Reason.String(), valid(limited.Rule.Name), "the limit"
	details := []protoadapt.MessageV1{
		&errdetails.ErrorInfo{Reason: nameOf(limited.Reason), Domain: Domain},
	}
	if rule != "" {
		what = fmt.Sprintf("the limit %q", rule)
		details = append(details, &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{
			{Subject: rule, Description: reason},
		}})
	}
	if wait := waitOf(limited); wait > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	s := status.New(codeOf(limited.Reason), what+" is reached: "+reason)
	detailed, _ := s.WithDetails(details...) // it refuses OK and what is not UTF-8
	return detailed
}

// codeOf is Unavailable when the reason lies in this replica, as 503 in httplimit.
func codeOf(reason quotient.Reason) codes.Code {
	switch reason {
	case quotient.ReasonShare, quotient.ReasonKeys, quotient.ReasonPool:
		return codes.Unavailable
	}
	return codes.ResourceExhausted
}

// waitOf is when to come again; 0 if waiting does not help.
func waitOf(limited *quotient.LimitedError) time.Duration {
	switch limited.Reason {
	case quotient.ReasonDenied, quotient.ReasonTooLarge, quotient.ReasonBadRequest:
		return 0
	}
	if limited.RetryAfter <= 0 {
		return unknownWait
	}
	return limited.RetryAfter
}

// failed is what proves nothing about the upstream.
var failed = policy.Feedback{Outcome: policy.Failed}

// feedbackOf is what the end of a call tells a policy. A refusal by a limiter behind this one proves nothing
// about the upstream, which was not called.
func feedbackOf(err error) policy.Feedback {
	if errors.Is(err, quotient.ErrLimited) {
		return failed
	}
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err) // as gRPC answers a handler's error that is no status
	}
	switch s.Code() {
	case codes.ResourceExhausted:
		if tooLarge(s) {
			break
		}
		return policy.Feedback{Outcome: policy.Throttled, RetryAfter: retryAfter(s)}
	case codes.Unavailable:
		return policy.Feedback{Outcome: policy.Unavailable, RetryAfter: retryAfter(s)}
	case codes.Canceled, codes.DeadlineExceeded:
		return failed
	}
	return policy.Feedback{Outcome: policy.Success}
}

// tooLarge reports whether a call failed for the size of a message, for which gRPC itself, on both sides, has
// the code of a used up quota.
func tooLarge(s *status.Status) bool {
	return len(s.Proto().GetDetails()) == 0 && strings.Contains(s.Message(), "larger than max")
}

// retryAfter is the time of the first RetryInfo that makes sense.
func retryAfter(s *status.Status) time.Duration {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok && info.GetRetryDelay().IsValid() {
			return min(max(info.GetRetryDelay().AsDuration(), 0), maxRetryAfter)
		}
	}
	return 0
}
