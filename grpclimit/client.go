package grpclimit

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/quotient-go/quotient"
)

// Client returns the options that make all calls and streams of a client wait for l, as UnaryClient and
// StreamClient do, and also whatever gRPC sends again for them. Both interceptors are chained behind the
// existing ones. Interceptors that are passed to grpc.NewClient before them run outside the limit, and later
// ones inside it. A stats.Handler and per-RPC credentials, without a secret, see gRPC's own attempts; the
// functions of the options are called for each. That costs a call some 2 µs.
//
// A call that waits nearly until its deadline is sent too late for an answer. So set Wait well below the
// timeouts of the calls, as UnaryClient explains.
func Client(l *quotient.Limiter, key KeyFunc, opts ...Option) []grpc.DialOption {
	g := newGuard("Client", l, key, Forever, opts)
	g.counts = true
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(g.unaryClient),
		grpc.WithChainStreamInterceptor(g.streamClient),
		grpc.WithStatsHandler(attempts{g}),
		grpc.WithPerRPCCredentials(attempts{g}),
	}
}

// UnaryClient returns an interceptor that makes a client's unary calls wait for l before they are sent, until their
// contexts end or for the max of Wait. With Also they do not wait: a call that is over a limit is refused at once. If
// the server enforces the limit, give l a policy that learns, and quotient.BeyondShare.
//
// A call whose turn is known to come after its deadline is refused at once: codes.ResourceExhausted, with
// quotient.ReasonDeadline. A call whose turn comes just before its deadline is sent, and has no time left for its
// answer. Many calls of a client that exceeds its limit end so, and each uses a part of the rate. So set Wait below
// the timeouts of the calls, by the time that an answer takes: Wait(200*time.Millisecond) for a timeout of 300 ms.
//
// What gRPC itself sends again is not limited: use Client, or pass grpc.WithDisableRetry.
func UnaryClient(l *quotient.Limiter, key KeyFunc, opts ...Option) grpc.UnaryClientInterceptor {
	return newGuard("UnaryClient", l, key, Forever, opts).unaryClient
}

func (g *guard) unaryClient(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	ctx, call, err := g.begin(Call{ctx, method, cc.Target()})
	if err != nil {
		return err
	}
	heard := failed // a panic
	defer func() { call.end(heard) }()
	err = invoke(ctx, method, req, reply, cc, opts...)
	heard = feedbackOf(err)
	return err
}

// StreamClient returns an interceptor that makes a client's streams wait for l before they are opened, as UnaryClient
// does. A stream holds its permit until it is over. That is so when Header, SendMsg or RecvMsg has failed, or when
// the context has ended. io.EOF of SendMsg does not end it, since RecvMsg then returns the reason. A method that does
// not stream answers is over when its only answer has arrived. gRPC itself requires each stream to end in one of
// these ways. quotient.MaxHold reclaims the permits of forgotten streams.
func StreamClient(l *quotient.Limiter, key KeyFunc, opts ...Option) grpc.StreamClientInterceptor {
	return newGuard("StreamClient", l, key, Forever, opts).streamClient
}

func (g *guard) streamClient(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer,
	opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	ctx, call, err := g.begin(Call{ctx, method, cc.Target()})
	if err != nil {
		return nil, err
	}
	s := &stream{call: call, once: !desc.ServerStreams}
	defer func() {
		if s.ClientStream == nil { // an error or a panic
			call.end(failed)
		}
	}()
	opened, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		call.end(feedbackOf(err))
		return nil, err
	}
	s.ClientStream = opened
	s.unwatch = context.AfterFunc(ctx, func() { call.end(failed) })
	return s, nil
}

// stream is a client's stream that holds its permits.
type stream struct {
	grpc.ClientStream
	call    *clientCall
	once    bool        // there is one answer
	unwatch func() bool // stops waiting for the end of the context
}

// finish ends the stream with the error of its last call.
func (s *stream) finish(err error) {
	s.unwatch()
	defer s.call.end(failed) // if the error's own methods panic
	switch {
	case err == io.EOF:
		s.call.end(feedbackOf(nil)) // the server's good end
	case !errors.Is(err, io.EOF): // else of the sending, after gRPC's last attempt
		s.call.end(feedbackOf(err))
	}
}

// RecvMsg reads an answer. Its error, and the answer if there is only one, end the stream.
func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil || s.once {
		s.finish(err)
	}
	return err
}

// SendMsg sends a request. Its error ends the stream, but for io.EOF: RecvMsg knows what has happened.
func (s *stream) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	if err != nil && !errors.Is(err, io.EOF) {
		s.finish(err)
	}
	return err
}

// Header waits for the answer's header. Its error ends the stream.
func (s *stream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	if err != nil {
		s.finish(err)
	}
	return md, err
}
