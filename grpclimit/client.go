package grpclimit

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

// Client returns the options that make all calls and streams of a client wait for l, as UnaryClient and
// StreamClient do. Both interceptors are chained behind the existing ones. Interceptors that are passed to
// grpc.NewClient before them run outside the limit, and later ones inside it.
//
// A call that waits nearly until its deadline is sent too late for an answer. So set Wait well below the
// timeouts of the calls, as UnaryClient explains. Client panics if l or key is nil, or if Wait is combined
// with Also.
func Client(l *quotient.Limiter, key KeyFunc, opts ...Option) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(UnaryClient(l, key, opts...)),
		grpc.WithChainStreamInterceptor(StreamClient(l, key, opts...)),
	}
}

// UnaryClient returns an interceptor that makes a client's unary calls wait for l before they are sent,
// until their contexts end or for the max of Wait. With Also they do not wait: a call that is over a limit
// is refused at once. If the server enforces the limit, give l a policy that learns, and
// quotient.BeyondShare.
//
// A call whose turn is known to come after its deadline is refused at once: codes.ResourceExhausted, with
// quotient.ReasonDeadline. A call whose turn comes just before its deadline is sent, and has no time left
// for its answer. Many calls of a client that exceeds its limit end so, and each uses a part of the rate.
// So set Wait below the timeouts of the calls, by the time that an answer takes: Wait(200*time.Millisecond)
// for a timeout of 300 ms.
//
// It is safe for use by many goroutines. UnaryClient panics if l or key is nil, or if Wait is combined with
// Also.
func UnaryClient(l *quotient.Limiter, key KeyFunc, opts ...Option) grpc.UnaryClientInterceptor {
	g := newGuard("UnaryClient", l, key, Forever, opts)
	return func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		return g.around(Call{ctx, method, cc.Target()}, func() error {
			return invoke(ctx, method, req, reply, cc, opts...)
		})
	}
}

// StreamClient returns an interceptor that makes a client's streams wait for l before they are opened, as
// UnaryClient does. A stream holds its permit until it is over. That is so when Header, SendMsg or RecvMsg
// has failed, or when the context has ended. io.EOF of SendMsg does not end it, since RecvMsg then returns
// the reason. A method that does not stream answers is over when its only answer has arrived. gRPC itself
// requires each stream to end in one of these ways. quotient.MaxHold reclaims the permits of forgotten
// streams.
//
// It is safe for use by many goroutines. StreamClient panics if l or key is nil, or if Wait is combined
// with Also.
func StreamClient(l *quotient.Limiter, key KeyFunc, opts ...Option) grpc.StreamClientInterceptor {
	g := newGuard("StreamClient", l, key, Forever, opts)
	return func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer,
		opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		held, err := g.admit(Call{ctx, method, cc.Target()})
		if err != nil {
			return nil, err
		}
		s := &stream{held: held, once: !desc.ServerStreams}
		defer func() {
			if s.ClientStream == nil { // an error or a panic
				s.end(policy.Feedback{Outcome: policy.Failed})
			}
		}()
		opened, err := open(ctx, desc, cc, method, opts...)
		if err != nil {
			s.end(feedbackOf(err))
			return nil, err
		}
		s.ClientStream = opened
		s.unwatch = context.AfterFunc(ctx, func() { s.end(policy.Feedback{Outcome: policy.Failed}) })
		return s, nil
	}
}

// stream is a client's stream that holds its permits.
type stream struct {
	grpc.ClientStream
	held    admission
	once    bool // there is one answer
	over    atomic.Bool
	unwatch func() bool // stops waiting for the end of the context
}

// end tells the policies and gives the permits back, once.
func (s *stream) end(f policy.Feedback) {
	if s.over.CompareAndSwap(false, true) {
		s.held.Done(f)
	}
}

// finish ends the stream with the error of its last call.
func (s *stream) finish(err error) {
	s.unwatch()
	defer s.end(policy.Feedback{Outcome: policy.Failed}) // if the error's own methods panic
	if errors.Is(err, io.EOF) {
		err = nil // the server's good end
	}
	s.end(feedbackOf(err))
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
