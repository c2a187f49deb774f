package grpclimit

import (
	"cmp"
	"errors"
	"math"
	"strings"
	"unicode"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	"github.com/quotient-go/quotient"
)

// Refused reports whether err is a refusal by a limiter of quotient, and returns the decision. The limiter
// may be in this process, or in the server whose status err holds. A server may also forward the refusal of
// another server. A nil err is no refusal.
//
// RetryAfter is the time until a retry: a second if that is not known, as for slots, and 0 if waiting does
// not help or the server names no time. From a server it is 24 hours at most. Reason is quotient.ReasonNone
// if this version does not know the server's reason.
//
// A server reports Reason, Rule and RetryAfter, and no numbers of the rule. Its Rule is empty if no single
// rule refused, is cut after 128 bytes, and has no control characters.
func Refused(err error) (d quotient.Decision, ok bool) {
	if limited, ok := errors.AsType[*quotient.LimitedError](err); ok {
		if limited == nil {
			return d, false
		}
		d = limited.Decision
		d.RetryAfter = waitOf(limited)
		return d, true
	}
	if sent, ok := errors.AsType[withStatus](err); ok {
		return decisionOf(sent.GRPCStatus())
	}
	return d, false
}

// withStatus is an error that has a status.
type withStatus interface {
	error
	GRPCStatus() *status.Status
}

// decisionOf is the decision in the status of a refusal, if it is one. A status that has come may hold anything.
func decisionOf(s *status.Status) (d quotient.Decision, ok bool) {
	var info *errdetails.ErrorInfo
	for _, detail := range s.Details() {
		switch m := detail.(type) {
		case *errdetails.ErrorInfo:
			if info == nil && m.GetDomain() == Domain {
				info = m
			}
		case *errdetails.QuotaFailure:
			for _, v := range m.GetViolations() {
				d.Rule.Name = cmp.Or(d.Rule.Name, cut(v.GetSubject()))
			}
		}
	}
	if info == nil {
		return quotient.Decision{}, false
	}
	d.Reason, d.RetryAfter = reasonNamed(info.GetReason()), retryAfter(s)
	return d, true
}

// nameOf is how a status spells a reason.
func nameOf(r quotient.Reason) string { return strings.ToUpper(r.String()) }

// reasonNamed is the reason that nameOf spells like this; ReasonNone if this version has none.
func reasonNamed(name string) quotient.Reason {
	for r := quotient.ReasonRate; r.String() != unnamed; r++ {
		if nameOf(r) == name {
			return r
		}
	}
	return quotient.ReasonNone
}

// unnamed is the name of every number beyond the reasons.
var unnamed = quotient.Reason(math.MaxUint8).String()

// longest is how many bytes of a name are believed.
const longest = 128

// cut shortens a name that is too long, and takes out what is no text: names come into logs.
func cut(name string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(name[:min(len(name), longest)], ""))
}

// valid is a text that a status can hold.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
