package grpclimit

import (
	"context"

	"google.golang.org/grpc"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

// UnaryServer returns an interceptor that puts l in front of a server's unary methods. It is safe for use by many goroutines. UnaryServer
// panics if l or key is nil.
func UnaryServer(l *quotient.Limiter, key KeyFunc) grpc.UnaryServerInterceptor {
	g := newGuard("UnaryServer", l, key)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		err = g.around(Call{Context: ctx, Method: info.FullMethod}, func() error {
			resp, err = handler(ctx, req)
			return err
		})
		return resp, err
	}
}

// StreamServer returns an interceptor that puts l in front of a server's streaming methods: a stream takes one permit, whatever is
// sent over it. It is safe for use by many goroutines. StreamServer panics if l or key is nil.
func StreamServer(l *quotient.Limiter, key KeyFunc) grpc.StreamServerInterceptor {
	g := newGuard("StreamServer", l, key)
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return g.around(Call{Context: stream.Context(), Method: info.FullMethod}, func() error { return handler(srv, stream) })
	}
}

// guard is a limiter with the keys of its calls.
type guard struct {
	limiter *quotient.Limiter
	key     KeyFunc
}

func newGuard(name string, l *quotient.Limiter, key KeyFunc) guard {
	if l == nil {
		panic("grpclimit: " + name + ": the limiter is nil")
	}
	if key == nil {
		panic("grpclimit: " + name + ": the key function is nil")
	}
	return guard{l, key}
}

// admit takes the permit of a call. Its error is a status.
func (g guard) admit(c Call) (quotient.Permit, error) {
	key := httplimit.Constant(g.key(c))(nil) // which hashes it if it is too long
	permit, err := g.limiter.Acquire(c.Context, key)
	if err != nil {
		return permit, errorOf(err)
	}
	return permit, nil
}

// around calls f with a permit, and tells the policy what became of it.
func (g guard) around(c Call, f func() error) error {
	permit, err := g.admit(c)
	if err != nil {
		return err
	}
	heard := policy.Feedback{Outcome: policy.Failed} // a panic
	defer func() { permit.Done(heard) }()
	err = f()
	heard = feedbackOf(err)
	return err
}
