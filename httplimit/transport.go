package httplimit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

// defaultBodyTimeout is how long an answer may hold its permit: time for a large
// download, an end to those that were forgotten.
const defaultBodyTimeout = 5 * time.Minute

// Transport is an http.RoundTripper that takes a permit from a limiter before each request. It is safe for use by many
// goroutines; its fields must not change once it is used. The zero value refuses all requests: Limiter must be set.
//
// A request waits for its permit as long as its context lasts and the limiter's MaxWait and MaxWaiting
// allow; http.Client.Timeout ends the wait too. A request whose turn is known to come later than that is
// refused at once (quotient.ReasonDeadline). For a refused request RoundTrip returns the limiter's error
// (errors.Is quotient.ErrLimited) or the context's. The request is not sent, and its body is closed.
// Transport changes neither the request nor its headers, and never repeats a request. A caller that repeats
// a request needs another permit, so that retries never go past the limit: examples/retry shows one.
//
// The permit is held until the answer's body is at its end, fails or is closed. So a slot in flight is free only when
// the upstream's work is done. A body that is neither read nor closed releases its permit after BodyTimeout.
//
// A policy that learns gets every answer as soon as its head has arrived, or what the host's Profile.Judge reads of
// its body. 429 is policy.Throttled and 503 policy.Unavailable, both with Retry-After. Profile lists what else is no
// success. Every other answer is policy.Success, even if its body fails later. All of them include the quotas in the
// answer's fields. Profile.Feedback documents how they are read, and ProfileFor the differences between hosts. A
// request without an answer, such as a cancelled one, is policy.Failed.
//
// If the upstream enforces the limit, give the limiter such a policy and quotient.BeyondShare. If the
// upstream counts windows, a rate without Burst exceeds the limit: a full bucket and its refill are up to
// twice the limit in the first period. Set a smaller Burst, or make it a Window.
type Transport struct {
	// Base sends the requests that were admitted. Nil is http.DefaultTransport.
	Base http.RoundTripper
	// Limiter admits the requests. With nil every RoundTrip fails.
	Limiter *quotient.Limiter
	// Key returns the key that a request is limited by. Nil means the host of its URL, spelled as Host
	// does, also for a request that a reverse proxy forwards.
	Key KeyFunc
	// Priority returns the priority of a request. Nil means quotient.PriorityNormal for all. A value that
	// is no priority fails the request. If the request is sent for a client, as by a reverse proxy, do not
	// trust that client: see PriorityBy.
	Priority func(*http.Request) quotient.Priority
	// Weight returns as how many requests one counts, in all rates of requests and in slots. Nil means 1 for
	// all. Values below 1 count as 1.
	//
	// Weight, the functions of Cost and Plan are called once for each RoundTrip, before the permit is asked
	// for, from many goroutines at a time. They must not change the request, nor read its body. A client that
	// repeats a request, as http.Client does for a redirect, is another RoundTrip: it asks them again, and
	// pays again. What net/http repeats by itself on a broken connection is within one RoundTrip, and paid
	// once. A request that the limit never allows fails with quotient.ReasonTooLarge.
	Weight func(*http.Request) int
	// Cost returns, by unit, how many events a request costs in all rates that count the unit: tokens,
	// bytes, rows. Values below 0 count as 0. Without a function a request costs nothing in a unit. A unit
	// that no rate of the limiter has ever counted, the unit "" and a nil function fail every RoundTrip.
	//
	// The cost stays as it is. If the real one is known only with the answer, take the permit yourself, for
	// its Correct: examples/llm does.
	Cost map[string]func(*http.Request) int
	// Plan returns the plan of a request (quotient.Limiter.SetPlan). Nil and "" mean the limiter's own limit,
	// and so does a plan that the limiter does not have; Stats counts that as PlanBy says.
	Plan func(*http.Request) string
	// BodyTimeout caps how long an answer holds its permit after its headers have arrived. 0 means 5
	// minutes. If it is below 0 every RoundTrip fails. The body stays readable afterwards.
	BodyTimeout time.Duration
	// StreamLifetime replaces BodyTimeout for long answers: 101 Switching Protocols and text/event-stream.
	// 0 means 1 hour. If it is below 0 every RoundTrip fails.
	StreamLifetime time.Duration
	// Profile returns how to read the answers of a host, spelled as Host does. It is called for each answer
	// that a policy learns from, from many goroutines. Nil, and a nil result, mean ProfileFor. If it
	// panics, RoundTrip closes the answer, releases the permit and panics too.
	Profile func(host string) *Profile

	garbage atomic.Uint64
}

// Garbage returns the number of fields and parameters about limits that could not be read, in all answers
// that a policy learned from. They were ignored.
func (t *Transport) Garbage() uint64 { return t.garbage.Load() }

// RoundTrip sends one request when the limiter admits it. Its errors are those of
// the limiter, of the context, of the base, and of fields that are out of range.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	permit, err := t.admit(req)
	if err != nil {
		return nil, err
	}
	var unread io.Closer
	answered := false
	defer func() {
		if !answered { // an error or a panic of the base, or a panic of Profile
			defer permit.Done(policy.Feedback{Outcome: policy.Failed})
			if unread != nil {
				_ = unread.Close() // the caller does not get to see it
			}
		}
	}()
	resp, err := t.base().RoundTrip(req)
	if err != nil || resp == nil {
		return resp, err
	}
	if unread = resp.Body; unread != nil && unread != http.NoBody {
		permit.ExpireIn(t.lifetime(resp)) // from now on: a Judge may wait for the body
	}
	feedback := t.feedback(req, resp)
	answered = true
	t.holdFor(resp, permit, feedback)
	return resp, nil
}

// CloseIdleConnections does so in the base, for http.Client.CloseIdleConnections.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// admit takes the permit of a request, or closes the request's body.
func (t *Transport) admit(req *http.Request) (permit quotient.Permit, err error) {
	admitted := false
	defer func() {
		if !admitted && req.Body != nil { // a refusal, or a panic of a function of ours
			_ = req.Body.Close() // the caller gets the refusal
		}
	}()
	if err := t.check(); err != nil {
		return permit, err
	}
	key := target
	if t.Key != nil {
		key = t.Key
	}
	if t.Priority == nil && t.Weight == nil && len(t.Cost) == 0 && t.Plan == nil {
		permit, err = t.Limiter.Acquire(req.Context(), bound(key(req)))
	} else {
		permit, err = t.acquire(req, bound(key(req)))
	}
	admitted = err == nil
	return permit, err
}

// acquire takes the permit of a request that is not just one.
func (t *Transport) acquire(req *http.Request, key string) (quotient.Permit, error) {
	var room [mostOptions]quotient.CallOption
	opts := room[:0]
	if t.Priority != nil {
		opts = append(opts, t.Priority(req).Option())
	}
	if t.Weight != nil {
		opts = append(opts, weight(t.Weight(req)))
	}
	for unit, cost := range t.Cost {
		if unit == "" || cost == nil {
			return quotient.Permit{}, fmt.Errorf(
				"httplimit: Transport.Cost[%q]: want a unit and a function; Weight is for requests", unit)
		}
		opts = append(opts, costIn(unit, cost(req)))
	}
	if t.Plan != nil {
		opts = append(opts, quotient.Plan(t.Plan(req))) // the last: see planless
	}
	return acquire(req.Context(), t.Limiter, key, opts, t.Plan != nil)
}

// check refuses a Transport that cannot work.
func (t *Transport) check() error {
	if t.Limiter == nil {
		return errors.New("httplimit: Transport.Limiter is nil")
	}
	if t.BodyTimeout < 0 {
		return fmt.Errorf("httplimit: Transport.BodyTimeout is %v, want 0 or more", t.BodyTimeout)
	}
	if t.StreamLifetime < 0 {
		return fmt.Errorf("httplimit: Transport.StreamLifetime is %v, want 0 or more", t.StreamLifetime)
	}
	return nil
}

// feedback is what the policy learns from an answer. A limiter that does not learn gets nothing.
func (t *Transport) feedback(req *http.Request, resp *http.Response) policy.Feedback {
	if !t.Limiter.Learns() {
		return policy.Feedback{}
	}
	var p *Profile
	host := target(req)
	if t.Profile != nil {
		p = t.Profile(host)
	}
	if p == nil {
		p = profileOf(host)
	}
	f, garbage := p.FeedbackOf(resp)
	if garbage > 0 {
		t.garbage.Add(uint64(garbage))
	}
	return f
}

// holdFor lets the answer's body hold the permit. An answer without a body is at its end already.
func (t *Transport) holdFor(resp *http.Response, permit quotient.Permit, feedback policy.Feedback) {
	if resp.Body == nil || resp.Body == http.NoBody {
		permit.Done(feedback)
		return
	}
	body := &heldBody{ReadCloser: resp.Body, hold: hold{held: admission{own: permit}}}
	told := false
	defer func() {
		if !told { // a controller has panicked: the caller gets no answer to close
			_ = body.Close()
		}
	}()
	permit.Report(feedback) // now: the body may take its time
	told = true
	resp.Body = body
	if stream, ok := body.ReadCloser.(io.Writer); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = holdStream(body, stream)
	}
}

// lifetime is how long an answer may hold its permit.
func (t *Transport) lifetime(resp *http.Response) time.Duration {
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	stream := strings.EqualFold(strings.TrimSpace(media), "text/event-stream")
	if stream || resp.StatusCode == http.StatusSwitchingProtocols { // it is meant to last
		return cmp.Or(t.StreamLifetime, defaultStreamLifetime)
	}
	return cmp.Or(t.BodyTimeout, defaultBodyTimeout)
}

// heldBody is the body of an answer; it holds the permit until its end.
type heldBody struct {
	io.ReadCloser
	hold hold
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.hold.end()
	}
	return n, err
}

func (b *heldBody) Close() error {
	defer b.hold.end()
	return b.ReadCloser.Close()
}

// heldStream is the body of 101: a connection in both directions. Its end is
// Close alone, since one can still write when there is nothing more to read.
type heldStream struct {
	*heldBody
	io.Writer
}

func (s heldStream) Read(p []byte) (int, error) { return s.ReadCloser.Read(p) }

// holdStream keeps CloseWrite if the stream has it.
func holdStream(body *heldBody, stream io.Writer) io.ReadWriteCloser {
	held := heldStream{body, stream}
	if half, ok := stream.(closeWriter); ok {
		return struct {
			heldStream
			closeWriter
		}{held, half}
	}
	return held
}
