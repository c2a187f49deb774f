package httplimit

import (
	"encoding/json"
	"fmt"
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
	quotient.Decision      // of no reason where no limit refuses: the client has left, or Drain has begun
	forGood           bool // no waiting helps
}

// refusalOf turns a decision against a request into an answer.
func refusalOf(d quotient.Decision) *refusal {
	forGood := d.Reason == quotient.ReasonDenied || d.Reason == quotient.ReasonTooLarge
	return &refusal{statusOf(d.Reason), d, forGood}
}

// seconds is after how many whole seconds the client may ask again, at least 1; 0 if no waiting helps.
func (no *refusal) seconds() int64 {
	if no.forGood {
		return 0
	}
	return wholeSeconds(no.RetryAfter)
}

// statusOf is 503 when the reason lies in this replica, and 429 or 413 when it lies in what the client asks for.
func statusOf(reason quotient.Reason) int {
	switch reason {
	case quotient.ReasonShare, quotient.ReasonKeys, quotient.ReasonPool:
		return http.StatusServiceUnavailable
	case quotient.ReasonTooLarge:
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusTooManyRequests
}

// problem is the body of a refusal, after RFC 9457.
type problem struct {
	Type       string   `json:"type"`
	Title      string   `json:"title"`
	Status     int      `json:"status"`
	Detail     string   `json:"detail"`
	Violated   []string `json:"violated-policies"`
	RetryAfter int64    `json:"retry-after-seconds,omitempty"` // absent: no waiting helps
}

// ofOtherAnswers are fields that say something of another answer, as net/http keeps their names.
var ofOtherAnswers = [...]string{
	"Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Expires", "Retry-After",
}

// write sends the refusal. Fields that an outer handler has set for an answer of
// its own and that would be wrong here are removed.
func (no *refusal) write(
	w http.ResponseWriter, r *http.Request, hook func(http.ResponseWriter, *http.Request, quotient.Decision),
) {
	h := w.Header()
	for _, name := range ofOtherAnswers {
		delete(h, name)
	}
	h.Set("Cache-Control", "no-store")
	if seconds := no.seconds(); seconds > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	if hook != nil {
		own := &refusalWriter{ResponseWriter: w, status: no.status}
		if hook(own, r, no.Decision); own.written {
			return
		}
	}
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(no.status)
	_, _ = w.Write(no.body()) // a client that has left is no error
}

func (no *refusal) body() []byte {
	p := problem{
		Type: quotaExceeded, Title: "The quota is used up",
		Status: no.status, Detail: no.detail(), Violated: []string{}, RetryAfter: no.seconds(),
	}
	switch {
	case no.status == http.StatusServiceUnavailable:
		p.Type, p.Title = reducedCapacity, "The capacity is reduced for a while"
	case no.status == http.StatusRequestEntityTooLarge:
		p.Title = "The request is larger than the quota"
	case no.Reason == quotient.ReasonDenied: // there is no quota
		p.Type, p.Title = "about:blank", http.StatusText(no.status)
	}
	if no.Rule.Name != "" {
		p.Violated = append(p.Violated, no.Rule.Name)
	}
	text, _ := json.Marshal(p) // strings and numbers cannot fail
	return text
}

// detail is what has happened in a sentence or two. It names the rule, and neither the key nor the numbers of
// the limit.
func (no *refusal) detail() string {
	text := "The service can accept no more requests for the moment."
	switch no.Reason {
	case quotient.ReasonDenied:
		return "Requests of this client are refused. Trying again does not help."
	case quotient.ReasonTooLarge:
		return fmt.Sprintf("The request is larger than %s ever allows. A smaller request may pass.", no.ruleName())
	case quotient.ReasonRate:
		text = fmt.Sprintf("The quota of %s is used up.", no.ruleName())
	case quotient.ReasonInFlight:
		text = "The limit of concurrent requests is reached."
	case quotient.ReasonQueue:
		text = "Too many requests are waiting already."
	case quotient.ReasonWait, quotient.ReasonDeadline:
		text = "The request would have to wait longer than allowed."
	}
	seconds := no.seconds()
	if seconds == 1 {
		return text + " Try again in 1 second."
	}
	return fmt.Sprintf("%s Try again in %d seconds.", text, seconds)
}

// ruleName is what a client calls the rule.
func (no *refusal) ruleName() string {
	switch {
	case no.Rule.Name == "": // no single one
		return "the limit"
	case no.Unit != "":
		return fmt.Sprintf("the limit %q of %s", no.Rule.Name, no.Unit)
	}
	return fmt.Sprintf("the limit %q", no.Rule.Name)
}

// refusalWriter is what OnRefuse writes to. The status is that of the refusal unless another one is written.
type refusalWriter struct {
	http.ResponseWriter
	status  int
	written bool
}

func (w *refusalWriter) WriteHeader(status int) {
	w.written = w.written || status >= 200
	w.ResponseWriter.WriteHeader(status)
}

func (w *refusalWriter) Write(p []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(p)
}

// FlushError is how http.ResponseController flushes.
func (w *refusalWriter) FlushError() error {
	w.begin()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (w *refusalWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *refusalWriter) begin() {
	if !w.written {
		w.WriteHeader(w.status)
	}
}

// wholeSeconds rounds up, to at least 1: an unknown time is sent as 1 too.
func wholeSeconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return max(seconds, 1)
}
