package grpclimit

import (
	"cmp"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/quotient-go/quotient/policy"
)

// A stream of a client holds its permit until it is over, and its outcome is heard.
func TestClientStreamsHoldTheirPermit(t *testing.T) {
	type duplexClient = pb.TestService_FullDuplexCallClient
	readOn := func(s duplexClient, _ func()) {
		_ = s.CloseSend()
		_, _ = s.Recv()
		_, _ = s.Recv() // is no second end
	}
	for name, tt := range map[string]struct {
		server error // what the handler returns
		end    func(s duplexClient, cancel func())
		want   policy.Feedback
	}{
		"read to the end": {nil, readOn, policy.Feedback{Outcome: policy.Success}},
		"refused in the end": {with(exhausted, time.Minute), readOn,
			policy.Feedback{Outcome: policy.Throttled, RetryAfter: time.Minute}},
		"cancelled and forgotten": {nil, func(_ duplexClient, cancel func()) { cancel() },
			policy.Feedback{Outcome: policy.Failed}},
		"cancelled and read": {nil, func(s duplexClient, cancel func()) { cancel(); _, _ = s.Recv() },
			policy.Feedback{Outcome: policy.Failed}},
	} {
		t.Run(name, func(t *testing.T) {
			l, heard := learning(t)
			s := &service{duplex: func(stream pb.TestService_FullDuplexCallServer) error {
				return cmp.Or(echo(stream), tt.server)
			}}
			ctx, cancel := context.WithCancel(deadline(t))
			defer cancel()
			stream, err := connect(t, s, nil, Client(l, FullMethod())...).FullDuplexCall(ctx)
			if err != nil {
				t.Fatal(err)
			}
			sent := stream.Send(&pb.StreamingOutputCallRequest{})
			_, received := stream.Recv()
			if _, err := stream.Header(); errors.Join(sent, received, err) != nil {
				t.Fatal(sent, received, err)
			}
			inFlight(t, l, 1)
			tt.end(stream, cancel)
			idle(t, l)
			heard.learned(t, tt.want)
		})
	}
}

// The only answer of a method that streams requests ends its stream.
func TestOneAnswerEndsTheStream(t *testing.T) {
	l, heard := learning(t)
	s := &service{input: func(stream pb.TestService_StreamingInputCallServer) error {
		for {
			if _, err := stream.Recv(); err != nil {
				return stream.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: 7})
			}
		}
	}}
	client := connect(t, s, nil, Client(l, FullMethod())...)
	stream, err := client.StreamingInputCall(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := stream.Send(&pb.StreamingInputCallRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	inFlight(t, l, 1)
	if answer, err := stream.CloseAndRecv(); err != nil || answer.GetAggregatedPayloadSize() != 7 {
		t.Errorf("the answer is %v, %v", answer, err)
	}
	inFlight(t, l, 0)
	heard.learned(t, policy.Feedback{Outcome: policy.Success})
}

// broken is a client's stream whose calls fail.
type broken struct {
	grpc.ClientStream
	err error
}

func (b broken) SendMsg(any) error            { return b.err }
func (b broken) Header() (metadata.MD, error) { return nil, b.err }

func (b broken) RecvMsg(any) error { return b.err }

// badStatus is an error whose status cannot be asked for.
type badStatus struct{ error }

func (badStatus) GRPCStatus() *status.Status { panic("a status") }

// An error of opening, or of a call, ends a stream, also if the error itself, another interceptor's, panics.
func TestErrorsEndTheStream(t *testing.T) {
	gone := status.Error(codes.Unavailable, "gone")
	unavailable, failed := policy.Feedback{Outcome: policy.Unavailable}, policy.Feedback{Outcome: policy.Failed}
	l, heard := learning(t)
	if _, err := openStream(t, l, func() (grpc.ClientStream, error) { return nil, gone }); err != gone {
		t.Errorf("opened with %v, want %v", err, gone)
	}
	heard.learned(t, unavailable)
	bug := func() (grpc.ClientStream, error) { panic("a bug") }
	if got := panicOf(func() { _, _ = openStream(t, l, bug) }); got != "a bug" {
		t.Errorf("panic with %v", got)
	}
	heard.learned(t, policy.Feedback{Outcome: policy.Failed})
	idle(t, l)
	for name, end := range map[string]func(grpc.ClientStream) error{
		"receive": func(s grpc.ClientStream) error { return s.RecvMsg(nil) },
		"send":    func(s grpc.ClientStream) error { return s.SendMsg(nil) },
		"header":  func(s grpc.ClientStream) error { _, err := s.Header(); return err },
	} {
		for err, want := range map[error]policy.Feedback{gone: unavailable, badStatus{}: failed} {
			s, _ := openStream(t, l, func() (grpc.ClientStream, error) { return broken{err: err}, nil })
			var got error
			if p := panicOf(func() { got = end(s) }); got != err && p != "a status" {
				t.Errorf("%s: %v, panic with %v", name, got, p)
			}
			heard.learned(t, want)
			idle(t, l)
		}
	}
	s, _ := openStream(t, l, func() (grpc.ClientStream, error) { return broken{err: io.EOF}, nil })
	if err := s.SendMsg(nil); err != io.EOF {
		t.Errorf("send: %v", err)
	}
	inFlight(t, l, 1) // RecvMsg is to tell
	s.(*stream).finish(nil)
	idle(t, l)
}

// A refusal by gRPC itself for the size of a message is no complaint about the rate, on whichever side.
func TestTooLargeIsNoThrottle(t *testing.T) {
	large := &pb.SimpleRequest{Payload: &pb.Payload{Body: make([]byte, 100)}}
	for name, c := range map[string]struct {
		server []grpc.ServerOption
		client []grpc.DialOption
	}{
		"for the client": {nil, []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(10))}},
		"for the server": {[]grpc.ServerOption{grpc.MaxRecvMsgSize(10)}, nil},
	} {
		l, heard := learning(t)
		client := connect(t, &service{}, c.server, append(Client(l, FullMethod()), c.client...)...)
		if _, err := client.UnaryCall(deadline(t), large); status.Code(err) != exhausted {
			t.Errorf("%s: %v", name, err)
		}
		idle(t, l)
		heard.learned(t, policy.Feedback{Outcome: policy.Success})
	}
}
