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
	heard  policy.Feedback // of the attempt, should another one follow
	err    error           // of the last attempt that was sent
}

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

// attempt takes what an attempt needs that is to be sent now.
func (c *clientCall) attempt(ctx context.Context) error {
	c.mu.Lock()
	use, heard, before := c.use, c.heard, c.err
	c.use = max(use, permitTaken)
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
	c.permit, c.use, c.heard = permit, permitTaken, failed
	c.mu.Unlock()
	if use < permitGone { // another attempt has got it while this one waited
		other.Done(failed)
	}
	if use == callOver {
		c.end(failed)
	}
	return nil
}

// attempted notes the end of an attempt. The policies are told of a refusal at once. Of any other outcome the call
// knows more, if no attempt follows: interceptors within the limit may have changed it.
func (c *clientCall) attempted(err error) {
	f := feedbackOf(err)
	c.mu.Lock()
	use := c.use
	switch {
	case use == permitTaken:
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

// callKey is the key of a clientCall in a context.
type callKey attempts

// GetRequestMetadata takes what an attempt holds. gRPC's own calls, such as of a health check, are not limited.
func (h attempts) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	if c, ok := ctx.Value(callKey(h)).(*clientCall); ok {
		return nil, c.attempt(ctx)
	}
	return nil, nil
}

// RequireTransportSecurity is for credentials.PerRPCCredentials: there is no secret.
func (attempts) RequireTransportSecurity() bool { return false }

// HandleRPC notes that an attempt is sent, and that it is over.
func (h attempts) HandleRPC(ctx context.Context, s stats.RPCStats) {
	c, ok := ctx.Value(callKey(h)).(*clientCall)
	if !ok {
		return
	}
	switch s := s.(type) {
	case *stats.OutHeader:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.use == permitTaken {
			c.use = permitSent
		}
	case *stats.End:
		c.attempted(s.Error)
	}
}

// TagRPC, TagConn and HandleConn are for stats.Handler.
func (attempts) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn adds nothing.
func (attempts) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (attempts) HandleConn(context.Context, stats.ConnStats) {}
