package httplimit

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/quotient-go/quotient"
)

// The problem types of draft-ietf-httpapi-ratelimit-headers.
const (
	quotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	reducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// refusal is an answer to a request that was not admitted.
type refusal struct {
	status            int
	quotient.Decision      // of no reason where the context of the request has ended
	forGood           bool // no waiting helps
}

// refusalOf turns a decision against a request into an answer.
func refusalOf(d quotient.Decision) *refusal {
	return &refusal{statusOf(d.Reason), d, d.Reason == quotient.ReasonDenied}
}

// refusalFor turns an error of Acquire into an answer: otherwise, if it does not
// come from a limit but from the end of a context.
func refusalFor(err error, otherwise refusal) *refusal {
	if limited, ok := errors.AsType[*quotient.LimitedError](err); ok {
		return refusalOf(limited.Decision)
	}
	return &otherwise
}

// statusOf is 503 when the reason lies in this replica, 429 when it lies in what
// the client asks for.
func statusOf(reason quotient.Reason) int {
	switch reason {
	case quotient.ReasonShare, quotient.ReasonKeys, quotient.ReasonPool:
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}

// problem is the body of a refusal, after RFC 9457.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies"`
}

// write sends the refusal. Fields that an outer handler has set for an answer of
// its own and that would be wrong here are removed.
func (no *refusal) write(w http.ResponseWriter) {
	h := w.Header()
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Expires"} {
		h.Del(name)
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Del("Retry-After")
	if !no.forGood {
		h.Set("Retry-After", strconv.FormatInt(wholeSeconds(no.RetryAfter), 10))
	}
	w.WriteHeader(no.status)
	_, _ = w.Write(no.body()) // a client that has left is no error
}

func (no *refusal) body() []byte {
	p := problem{quotaExceeded, "The quota is used up", no.status, []string{}}
	if no.status == http.StatusServiceUnavailable {
		p.Type, p.Title = reducedCapacity, "The capacity is reduced for a while"
	}
	if no.Rule != "" {
		p.Violated = append(p.Violated, no.Rule)
	}
	text, _ := json.Marshal(p) // strings and numbers cannot fail
	return text
}

// wholeSeconds rounds up, to at least 1: an unknown time is sent as 1 too.
func wholeSeconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return max(seconds, 1)
}
