package grpclimit

import (
	"context"

	"google.golang.org/grpc"

	"github.com/quotient-go/quotient"
)

// Server returns the options that put l in front of all methods of a server, unary and streaming. Both
// interceptors are chained behind the existing ones. Interceptors that are passed to grpc.NewServer before
// them run outside the limit, and later ones inside it. Except lets single methods pass.
func Server(l *quotient.Limiter, key KeyFunc, opts ...Option) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(UnaryServer(l, key, opts...)),
		grpc.ChainStreamInterceptor(StreamServer(l, key, opts...)),
	}
}

// UnaryServer returns an interceptor that puts l in front of a server's unary methods.
func UnaryServer(l *quotient.Limiter, key KeyFunc, opts ...Option) grpc.UnaryServerInterceptor {
	g := newGuard("UnaryServer", l, key, 0, opts)
	return func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (resp any, err error) {
		err = g.around(Call{Context: ctx, Method: info.FullMethod}, func() error {
			resp, err = handler(ctx, req)
			return err
		})
		return resp, err
	}
}

// StreamServer returns an interceptor that puts l in front of a server's streaming methods. A stream takes
// one permit, whatever is sent over it.
func StreamServer(l *quotient.Limiter, key KeyFunc, opts ...Option) grpc.StreamServerInterceptor {
	g := newGuard("StreamServer", l, key, 0, opts)
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		c := Call{Context: stream.Context(), Method: info.FullMethod}
		return g.around(c, func() error { return handler(srv, stream) })
	}
}
