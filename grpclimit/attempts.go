package grpclimit

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc/stats"

	"github.com/quotient-go/quotient/policy"
)

// clientCall is a client's call with its permit. Its attempts come one after the other. Those of an interceptor that
// hedges are each counted, and share the slot of the last one.
type clientCall struct {
	Call
	guard *guard

	mu     sync.Mutex
	permit admission
	use    permitUse
	user   *attempt        // for which the permit is
	heard  policy.Feedback // of the attempt, should another one follow
	err    error           // of the last attempt that was sent
}

// attempt is one that gRPC makes of a call. Others of the same call may run beside it.
type attempt struct{ *clientCall }

// permitUse is what has been done under the permit of a call.
type permitUse uint8

const (
	permitUnused permitUse = iota // no attempt, or none that was sent
	permitTaken                   // by an attempt
	permitSent                    // the attempt was sent
	permitGone                    // the permit was given back
	callOver                      // and so is the call
)

// begin admits a client's call. Its attempts find it in the context.
func (g *guard) begin(c Call) (context.Context, *clientCall, error) {
	permit, err := g.admit(c)
	if err != nil {
		return nil, nil, err
	}
	call := &clientCall{Call: c, guard: g, permit: permit, heard: failed}
	if !g.counts {
		return c.Context, call, nil
	}
	return context.WithValue(c.Context, callKey{g}, call), call, nil
}

// end tells the policies and gives the permits back, once.
func (c *clientCall) end(f policy.Feedback) { c.leave(callOver, f) }

// leave gives back what the call holds, if anything.
func (c *clientCall) leave(next permitUse, f policy.Feedback) {
	c.mu.Lock()
	permit, use := c.permit, c.use
	c.use = max(use, next)
	c.mu.Unlock()
	if use < permitGone {
		permit.Done(f)
	}
}

// take takes what an attempt needs that is to be sent now.
func (a *attempt) take(ctx context.Context) error {
	c := a.clientCall
	c.mu.Lock()
	use, heard, before := c.use, c.heard, c.err
	if use == permitUnused {
		c.use, c.user = permitTaken, a
	}
	c.mu.Unlock()
	if use == permitUnused {
		return nil
	}
	c.leave(permitGone, heard)
	permit, err := c.guard.admit(Call{ctx, c.Method, c.Target})
	if err != nil && before != nil {
		return fmt.Errorf("%w, after an attempt has failed: %w", err, before)
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	other, use := c.permit, c.use
	c.permit, c.use, c.user, c.heard = permit, permitTaken, a, failed
	c.mu.Unlock()
	if use < permitGone { // another attempt has got it while this one waited
		other.Done(failed)
	}
	if use == callOver {
		c.end(failed)
	}
	return nil
}

// sent notes that an attempt was sent.
func (a *attempt) sent() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.user == a && a.use == permitTaken {
		a.use = permitSent
	}
}

// over notes the end of an attempt. The policies are told of a refusal at once. Of any other outcome the call
// knows more, if no attempt follows: interceptors within the limit may have changed it.
func (a *attempt) over(err error) {
	f, c := feedbackOf(err), a.clientCall
	c.mu.Lock()
	use := c.use
	switch {
	case use == permitTaken && c.user == a: // not sent: the permit is for the next one
		c.use = permitUnused
	case use == permitSent && err != nil: // else the sending has ended, of which there is no outcome
		c.heard, c.err = f, err
	}
	c.mu.Unlock()
	if use == permitSent && (f.Outcome == policy.Throttled || f.Outcome == policy.Unavailable) {
		c.leave(permitGone, f)
	}
}

// attempts limits each attempt of a client's calls. gRPC retries below the interceptors: by the policy of its service
// config, and where a server has not seen a request. But it tells a stats.Handler, and asks credentials before each
// attempt that is sent, which may wait and fail.
type attempts struct{ *guard }

// callKey is the key of a clientCall in a context, and in that of an attempt of the attempt.
type callKey attempts

// GetRequestMetadata takes what an attempt holds. gRPC's own calls, such as of a health check, are not limited.
func (h attempts) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	if a, ok := ctx.Value(callKey(h)).(*attempt); ok {
		return nil, a.take(ctx)
	}
	return nil, nil
}

// RequireTransportSecurity is for credentials.PerRPCCredentials: there is no secret.
func (attempts) RequireTransportSecurity() bool { return false }

// HandleRPC notes that an attempt is sent, and that it is over.
func (h attempts) HandleRPC(ctx context.Context, s stats.RPCStats) {
	a, ok := ctx.Value(callKey(h)).(*attempt)
	if !ok {
		return
	}
	switch s := s.(type) {
	case *stats.OutHeader:
		a.sent()
	case *stats.End:
		a.over(s.Error)
	}
}

// TagRPC tells the attempts of a call apart.
func (h attempts) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	if c, ok := ctx.Value(callKey(h)).(*clientCall); ok {
		return context.WithValue(ctx, callKey(h), &attempt{c})
	}
	return ctx
}

// TagConn adds nothing.
func (attempts) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (attempts) HandleConn(context.Context, stats.ConnStats) {}
