package grpclimit

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

// retries makes gRPC send a call up to five times.
var retries = grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 5, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1,
	"retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"]}}]}`)

// failing is a service that counts the calls that reach it, and answers the first ones with errors.
func failing(calls *atomic.Int32, fails ...error) *service {
	answer := func() error {
		if n := int(calls.Add(1)); n <= len(fails) {
			return fails[n-1]
		}
		return nil
	}
	return &service{
		unary: func(context.Context) error { return answer() },
		duplex: func(stream pb.TestService_FullDuplexCallServer) error {
			if err := answer(); err != nil {
				return err
			}
			return echo(stream)
		},
	}
}

// gRPC's own retries pass no interceptor of a client. Client counts them nevertheless.
func TestAttemptsAreCounted(t *testing.T) {
	down := status.Error(codes.Unavailable, "down")
	always := slices.Repeat([]error{down}, 9)
	alone := func(l *quotient.Limiter) []grpc.DialOption {
		return []grpc.DialOption{
			grpc.WithUnaryInterceptor(UnaryClient(l, Target())),
			grpc.WithStreamInterceptor(StreamClient(l, Target())),
		}
	}
	client := func(l *quotient.Limiter) []grpc.DialOption { return Client(l, Target()) }
	for name, tt := range map[string]struct {
		limit  quotient.Limit
		client func(*quotient.Limiter) []grpc.DialOption
		fails  []error
		calls  int32 // that reach the server
	}{
		"one an hour":             {hourly, client, always, 1},
		"one at a time":           {oneSlot, client, always, 5},
		"two, and one is refused": {oneSlot, client, []error{down}, 2},
		"interceptors alone":      {hourly, alone, always, 5},
		"without retries": {hourly, func(l *quotient.Limiter) []grpc.DialOption {
			return append(alone(l), grpc.WithDisableRetry())
		}, always, 1},
	} {
		for kind, ask := range kinds {
			var calls atomic.Int32
			l := limiter(t, tt.limit)
			err := ask(deadline(t), connect(t, failing(&calls, tt.fails...), nil, append(tt.client(l), retries)...))
			idle(t, l)
			if calls.Load() != tt.calls || (err == nil) != (len(tt.fails) < 2) {
				t.Errorf("%s, %s: %d calls, want %d; %v", name, kind, calls.Load(), tt.calls, err)
			}
			_, refused := Refused(err) // of a stream it may be the error of the sending
			if kind == "unary" && (refused != (name == "one an hour") || err != nil && !strings.Contains(err.Error(), "down")) {
				t.Errorf("%s: refused %v: %v", name, refused, err)
			}
		}
	}
	l, heard := learning(t)
	var calls atomic.Int32
	err := unary(deadline(t), connect(t, failing(&calls, down, with(exhausted, time.Millisecond)), nil,
		append(Client(l, Target()), retries)...))
	if err != nil {
		t.Error(err)
	}
	idle(t, l)
	heard.learned(t, policy.Feedback{Outcome: policy.Unavailable},
		policy.Feedback{Outcome: policy.Throttled, RetryAfter: time.Millisecond},
		policy.Feedback{Outcome: policy.Success})
}

// A server's interceptors see each attempt.
func TestServersSeeAttempts(t *testing.T) {
	for kind, ask := range kinds {
		l := limiter(t, hourly)
		client := connect(t, echoes, Server(l, FullMethod()), retries)
		for range 2 {
			_ = ask(deadline(t), client)
		}
		if s := l.Stats(); s.Admitted != 1 || s.Refused[quotient.ReasonRate] != 5 {
			t.Errorf("%s: admitted %d, refused %d; want 1, 5", kind, s.Admitted, s.Refused[quotient.ReasonRate])
		}
	}
}

// flaky are credentials that fail at first.
type flaky struct{ calls atomic.Int32 }

func (f *flaky) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if f.calls.Add(1) < 3 {
		return nil, status.Error(codes.Unavailable, "no token")
	}
	return nil, nil
}

func (*flaky) RequireTransportSecurity() bool { return false }

// An attempt that gRPC does not send takes nothing.
func TestAttemptsNotSent(t *testing.T) {
	var calls atomic.Int32
	l := limiter(t, hourly)
	err := unary(deadline(t), connect(t, failing(&calls), nil,
		append(Client(l, Target()), retries, grpc.WithPerRPCCredentials(&flaky{}))...))
	if err != nil || calls.Load() != 1 || l.Stats().Admitted != 1 {
		t.Errorf("%d calls, admitted %d, %v", calls.Load(), l.Stats().Admitted, err)
	}
}

// Attempts that an interceptor within the limit makes at one time each take from the rate, and leave no slot taken.
func TestAttemptsAtOneTime(t *testing.T) {
	const together = 5
	var calls atomic.Int32
	l := limiter(t, quotient.Limit{InFlight: together, Rates: []quotient.Rate{{Events: 1, Per: time.Millisecond, Burst: 1}}})
	hedge := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		errs := make(chan error, together)
		for range together {
			go func() { errs <- invoke(ctx, method, req, new(pb.SimpleResponse), cc, opts...) }()
		}
		var err error
		for range together {
			err = errors.Join(err, <-errs)
		}
		return err
	}
	client := connect(t, failing(&calls), nil, append(Client(l, Target()), grpc.WithChainUnaryInterceptor(hedge))...)
	for range 10 {
		if err := unary(deadline(t), client); err != nil {
			t.Fatal(err)
		}
	}
	idle(t, l)
	if n := l.Stats().Admitted; n != 10*together || calls.Load() != 10*together {
		t.Errorf("%d admitted, %d calls reached the server; want %d", n, calls.Load(), 10*together)
	}
}

// slow are credentials that hold the second attempt up.
type slow struct {
	calls           atomic.Int32
	arrived, goesOn chan struct{}
}

func (s *slow) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if s.calls.Add(1) == 2 {
		close(s.arrived)
		<-s.goesOn
	}
	return nil, nil
}

func (*slow) RequireTransportSecurity() bool { return false }

// An attempt that ends while another one is about to be sent leaves nothing to a third.
func TestAttemptsTakeTheirOwn(t *testing.T) {
	var calls atomic.Int32
	l, creds := limiter(t, quotient.Limit{InFlight: 1}), &slow{arrived: make(chan struct{}), goesOn: make(chan struct{})}
	answer := make(chan struct{})
	s := &service{unary: func(context.Context) error {
		if calls.Add(1) == 1 {
			<-answer
		}
		return nil
	}}
	hedge := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		first, second := make(chan error, 1), make(chan error, 1)
		call := func() error { return invoke(ctx, method, req, new(pb.SimpleResponse), cc, opts...) }
		go func() { first <- call() }()
		for calls.Load() == 0 && ctx.Err() == nil {
			runtime.Gosched()
		}
		go func() { second <- call() }()
		<-creds.arrived
		close(answer)
		err := errors.Join(<-first, call())
		close(creds.goesOn)
		return errors.Join(err, <-second)
	}
	client := connect(t, s, nil, append(Client(l, Target()), grpc.WithPerRPCCredentials(creds),
		grpc.WithChainUnaryInterceptor(hedge))...)
	if err := unary(deadline(t), client); err != nil {
		t.Fatal(err)
	}
	idle(t, l)
	if n := l.Stats().Admitted; n != 3 || calls.Load() != 3 {
		t.Errorf("%d admitted, %d calls reached the server; want 3", n, calls.Load())
	}
}

// refuser is a server that says of each request that it has not looked at it: REFUSED_STREAM.
type refuser struct{ streams atomic.Int32 }

func (*refuser) Stop() {}

// Serve ends with the first connection.
func (r *refuser) Serve(l net.Listener) error {
	const headers, reset, settings, refused = 1, 3, 4, 7
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	frame := func(kind, flags byte, stream uint32, payload ...byte) {
		head := append([]byte{0, 0, byte(len(payload)), kind, flags}, binary.BigEndian.AppendUint32(nil, stream)...)
		_, _ = conn.Write(append(head, payload...))
	}
	frame(settings, 0, 0)
	_, err = io.CopyN(io.Discard, conn, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
	for head := make([]byte, 9); err == nil; {
		if _, err = io.ReadFull(conn, head); err != nil {
			break
		}
		_, err = io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(head)>>8))
		switch {
		case head[3] == headers:
			r.streams.Add(1)
			frame(reset, 0, binary.BigEndian.Uint32(head[5:]), 0, 0, 0, refused)
		case head[3] == settings && head[4] == 0:
			frame(settings, 1, 0)
		}
	}
	return conn.Close()
}

// What a server has not looked at gRPC sends once more, without any policy.
func TestTransparentRetriesAreCounted(t *testing.T) {
	var server refuser
	options := append(Client(limiter(t, hourly), Target()), grpc.WithDisableRetry())
	err := unary(deadline(t), pb.NewTestServiceClient(Serve(t, &server, grpc.NewClient, options...)))
	if n := server.streams.Load(); n != 1 || !errors.Is(err, quotient.ErrLimited) {
		t.Errorf("%d requests reached the server, want 1; %v", n, err)
	}
}
