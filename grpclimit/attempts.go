package grpclimit

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc/stats"

	"github.com/quotient-go/quotient/policy"
)

// clientCall is a client's call. It holds a permit while none of its attempts does: before the first one, and
// after one that was not sent or whose outcome is the call's to tell.
type clientCall struct {
	Call
	guard *guard

	mu     sync.Mutex
	permit admission
	kept   bool            // there is a permit
	sent   bool            // an attempt was sent under it
	heard  policy.Feedback // of that attempt, should another one follow
	over   bool
	err    error // of the last attempt that was sent
}

// begin admits a client's call. Its attempts find it in the context.
func (g *guard) begin(c Call) (context.Context, *clientCall, error) {
	permit, err := g.admit(c)
	if err != nil {
		return nil, nil, err
	}
	call := &clientCall{Call: c, guard: g, permit: permit, kept: true}
	if !g.counts {
		return c.Context, call, nil
	}
	return context.WithValue(c.Context, callKey{g}, call), call, nil
}

// end tells the policies and gives the permits back, once.
func (c *clientCall) end(f policy.Feedback) {
	c.mu.Lock()
	permit, kept := c.permit, c.kept
	c.kept, c.over = false, true
	c.mu.Unlock()
	if kept {
		permit.Done(f)
	}
}

// keep takes over the permit of an attempt.
func (c *clientCall) keep(permit admission, sent bool, f policy.Feedback) {
	c.mu.Lock()
	full := c.over || c.kept // of attempts at a time, as of an interceptor that hedges, one
	if !full {
		c.permit, c.kept, c.sent, c.heard = permit, true, sent, f
	}
	c.mu.Unlock()
	if full {
		permit.Done(f)
	}
}

// take returns the permit under which an attempt may be sent.
func (c *clientCall) take(ctx context.Context) (admission, error) {
	c.mu.Lock()
	permit, kept, sent, heard, before := c.permit, c.kept, c.sent, c.heard, c.err
	c.kept = false
	c.mu.Unlock()
	if kept && !sent {
		return permit, nil
	}
	if kept {
		permit.Done(heard)
	}
	permit, err := c.guard.admit(Call{ctx, c.Method, c.Target})
	if err != nil && before != nil {
		err = fmt.Errorf("%w, after an attempt has failed: %w", err, before)
	}
	return permit, err
}

// attempt is an attempt to make a call. Its fields are the call's mutex's.
type attempt struct {
	call   *clientCall
	permit admission
	held   bool // there is a permit
	sent   bool
}

// finish gives the permit back. The policies are told of a refusal at once. For any other outcome the call
// knows better, if no attempt follows: interceptors within the limit may have changed it.
func (a *attempt) finish(err error) {
	c, f := a.call, feedbackOf(err)
	c.mu.Lock()
	permit, held, sent := a.permit, a.held, a.sent
	a.held = false
	if sent && err != nil {
		c.err = err
	}
	c.mu.Unlock()
	if err == nil { // if another attempt follows, it was the end of the sending alone
		f.Outcome = policy.Failed
	}
	switch {
	case !held:
	case sent && (f.Outcome == policy.Throttled || f.Outcome == policy.Unavailable):
		permit.Done(f)
	default:
		c.keep(permit, sent, f)
	}
}

// attempts gives each attempt of a client's calls a permit of its own. gRPC retries below the interceptors: by
// the policy of its service config, and where a server has not seen a request. But it calls a stats.Handler
// with each attempt, and credentials before each that is sent, which may wait and fail.
type attempts struct{ *guard }

type (
	callKey    attempts // of a clientCall, in a context
	attemptKey attempts // of an attempt
)

// TagRPC puts a new attempt into its context.
func (h attempts) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	if c, ok := ctx.Value(callKey(h)).(*clientCall); ok {
		return context.WithValue(ctx, attemptKey(h), &attempt{call: c})
	}
	return ctx
}

// GetRequestMetadata takes what an attempt holds, just before it is sent.
func (h attempts) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	a, ok := ctx.Value(attemptKey(h)).(*attempt)
	if !ok {
		return nil, nil // gRPC's own, such as of a health check
	}
	permit, err := a.call.take(ctx)
	if err != nil {
		return nil, err
	}
	a.call.mu.Lock()
	defer a.call.mu.Unlock()
	a.permit, a.held = permit, true
	return nil, nil
}

// RequireTransportSecurity is for credentials.PerRPCCredentials: there is no secret.
func (attempts) RequireTransportSecurity() bool { return false }

// HandleRPC notes that an attempt is sent, and that it is over.
func (h attempts) HandleRPC(ctx context.Context, s stats.RPCStats) {
	switch s := s.(type) {
	case *stats.OutHeader:
		if a, ok := ctx.Value(attemptKey(h)).(*attempt); ok {
			a.call.mu.Lock()
			defer a.call.mu.Unlock()
			a.sent = true
		}
	case *stats.End:
		if a, ok := ctx.Value(attemptKey(h)).(*attempt); ok {
			a.finish(s.Error)
		}
	}
}

// TagConn and HandleConn are for stats.Handler: connections are nothing to it.
func (attempts) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (attempts) HandleConn(context.Context, stats.ConnStats) {}
