package grpclimit

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/quotient-go/quotient/policy"
)

// bad is an error whose status cannot be asked for.
type bad struct{ error }

func (bad) GRPCStatus() *status.Status { panic("a status") }

// The permit of a stream is given back also when the error that ends it, another interceptor's, panics.
func TestPanicOfAnErrorEndsTheStream(t *testing.T) {
	conn, err := grpc.NewClient("passthrough:///nowhere",
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for name, end := range map[string]func(grpc.ClientStream) error{
		"receive": func(s grpc.ClientStream) error { return s.RecvMsg(nil) },
		"send":    func(s grpc.ClientStream) error { return s.SendMsg(nil) },
		"header":  func(s grpc.ClientStream) error { _, err := s.Header(); return err },
	} {
		l, heard := learning(t)
		s, err := StreamClient(l, FullMethod())(t.Context(), &grpc.StreamDesc{ServerStreams: true}, conn, "m",
			func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string,
				...grpc.CallOption) (grpc.ClientStream, error) {
				return receiver{broken{err: bad{}}}, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if got := recover(); got != "a status" {
					t.Errorf("%s: panic with %v, want that of the error", name, got)
				}
			}()
			_ = end(s)
		}()
		idle(t, l)
		heard.learned(t, policy.Feedback{Outcome: policy.Failed})
	}
}

// receiver is a broken stream that can be read from.
type receiver struct{ broken }

func (r receiver) RecvMsg(any) error { return r.err }
