package proxy

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/cmd/quotient/internal/grpcanswer"
	"github.com/quotient-go/quotient/cmd/quotient/internal/upstream"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/internal/held"
)

// details are what a client reads beside the status. They name nothing of ours.
var details = map[int]string{
	http.StatusBadRequest:            "The request could not be read as it was sent.",
	http.StatusNotFound:              "No rule is for this request.",
	http.StatusMethodNotAllowed:      "The method is not passed on.",
	http.StatusRequestTimeout:        "The body of the request did not come in time.",
	http.StatusRequestEntityTooLarge: "The body of the request is longer than is passed on.",
	http.StatusBadGateway:            "The service broke off before it answered.",
	http.StatusServiceUnavailable:    "The service cannot be reached for the moment.",
	http.StatusGatewayTimeout:        "The service did not answer in time.",
}

// ofOtherAnswers are fields that may stand there for an answer of the upstream.
var ofOtherAnswers = []string{
	"Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Expires", "Trailer",
}

// writeProblem answers with a problem document (RFC 9457). After is how long the client should wait before it
// asks again, 0 for no such hint.
func writeProblem(w http.ResponseWriter, r *http.Request, status int, after time.Duration) {
	if after > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((after+time.Second-1)/time.Second), 10))
	}
	writeDetail(w, r, status, details[status])
}

// writeDetail is writeProblem with a detail of its own.
func writeDetail(w http.ResponseWriter, r *http.Request, status int, detail string) {
	h := w.Header()
	for _, name := range ofOtherAnswers {
		delete(h, name)
	}
	if grpcanswer.Write(w, r, status, detail) {
		return
	}
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/problem+json")
	text, _ := json.Marshal(struct { // strings and a number cannot fail
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{"about:blank", http.StatusText(status), status, detail})
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // a client that has left is no error
}

// refuse answers in the rule's own words. They take the place of 429 alone: any other status says that the limit is not
// what refuses.
func (r *route) refuse(w http.ResponseWriter, q *http.Request, d quotient.Decision, own *config.Refusal) {
	status, text := reasonOf(d)
	if status != http.StatusTooManyRequests {
		return
	}
	h := w.Header()
	for name, value := range own.Fields {
		h.Set(name, value)
	}
	if len(h[exposeHeaders]) > 0 && r.names != "" {
		h.Add(exposeHeaders, r.names)
	}
	if len(r.body) > 0 {
		h.Set("Content-Type", own.Type)
		h.Set("Content-Length", strconv.Itoa(len(r.body)))
		w.WriteHeader(own.Status)
		_, _ = w.Write(r.body) // a client that has left is no error
	} else if own.Status != status {
		writeDetail(w, q, own.Status, text)
	}
}

// refuseCall refuses a call of gRPC as one.
func refuseCall(w http.ResponseWriter, q *http.Request, d quotient.Decision) {
	status, text := reasonOf(d)
	grpcanswer.Write(w, q, status, text)
}

// reasonOf is the status of a refusal, and what it says.
func reasonOf(d quotient.Decision) (status int, text string) {
	status, text = http.StatusTooManyRequests, "The limit "+strconv.Quote(d.Rule.Name)+" is reached."
	if d.Rule.Name == "" {
		text = "The limit is reached."
	}
	switch d.Reason {
	case quotient.ReasonShare, quotient.ReasonKeys, quotient.ReasonPool, quotient.ReasonNone: // none: it shuts down
		status, text = http.StatusServiceUnavailable, "The service can accept no more requests for the moment."
	case quotient.ReasonDenied:
		text = "Requests of this client are refused. Trying again does not help."
	case quotient.ReasonTooLarge:
		status, text = http.StatusRequestEntityTooLarge, "The request is larger than the limit ever allows."
	}
	return status, text
}

// refuseBody answers a request whose body is too long. The rest of it is not read.
func refuseBody(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	writeProblem(w, r, http.StatusRequestEntityTooLarge, 0)
}

// fail answers a request that has no answer of the upstream. No policy learns from that.
func (p *Proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := flightOf(r)
	httplimit.NoAnswer(w)
	status, after := statusOf(err)
	left := status == 0 || f.Err() != nil // the client; should it read on, an empty 200 would be wrong
	if left {
		status, after = http.StatusServiceUnavailable, time.Second
	}
	if status >= http.StatusInternalServerError && !left {
		p.failures.log(p.log, f.route.spec.rule.Pattern, status, err)
	}
	if status == http.StatusRequestEntityTooLarge {
		refuseBody(w, r)
		return
	}
	if status == http.StatusRequestTimeout || status == http.StatusBadRequest {
		w.Header().Set("Connection", "close")
	}
	writeProblem(w, r, status, after)
}

// failures are logged once a second at most: an upstream that is down fails every request.
type failures struct {
	next     atomic.Int64 // when the next may be logged, in nanoseconds since 1970
	unlogged atomic.Uint64
}

func (l *failures) log(to *slog.Logger, rule string, status int, err error) {
	now, next := time.Now().UnixNano(), l.next.Load()
	if now < next || !l.next.CompareAndSwap(next, now+int64(time.Second)) {
		l.unlogged.Add(1)
		return
	}
	to.Warn("request failed", "rule", rule, "status", status, "error", err, "unlogged", l.unlogged.Swap(0))
}

// statusOf is the answer to an error of the transport, 0 for a client that has left.
func statusOf(err error) (status int, after time.Duration) {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return http.StatusRequestEntityTooLarge, 0
	}
	if err == errUpgrade {
		return http.StatusBadRequest, 0
	}
	switch upstream.Classify(err) {
	case upstream.Gone:
		return 0, 0
	case upstream.Body:
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return http.StatusRequestTimeout, 0
		}
		if errors.Is(err, held.ErrNoRoom) { // for its trailer
			return http.StatusServiceUnavailable, time.Second
		}
		return http.StatusBadRequest, 0
	case upstream.Unavailable:
		after = time.Second
		if e, ok := errors.AsType[*upstream.Error](err); ok {
			after = max(after, e.After)
		}
		return http.StatusServiceUnavailable, after
	case upstream.Timeout:
		return http.StatusGatewayTimeout, 0
	}
	return http.StatusBadGateway, 0
}
