package grpclimit

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon is the deadline of what happens on a real connection.
const soon = 10 * time.Second

func limiter(t testing.TB, limit quotient.Limit, opts ...quotient.Option) *quotient.Limiter {
	t.Helper()
	l, err := quotient.New(limit, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// hourly is a limit of one call an hour.
var (
	oneSlot = quotient.Limit{InFlight: 1}
	hourly  = quotient.Rates(quotient.PerHour(1))
)

// inFlight waits until n permits are out, and fails if that does not come or if one was given back twice: a client
// has its answer before the handler has returned.
func inFlight(t testing.TB, l *quotient.Limiter, n int) {
	t.Helper()
	for end := time.Now().Add(soon); l.Stats().InFlight > n && time.Now().Before(end); {
		runtime.Gosched()
	}
	if s := l.Stats(); s.InFlight != n || s.Waiting != 0 || s.DoubleReleases != 0 {
		t.Errorf("in flight %d, waiting %d, double releases %d; want %d, 0, 0", s.InFlight, s.Waiting,
			s.DoubleReleases, n)
	}
}

// idle waits until every permit was given back.
func idle(t testing.TB, l *quotient.Limiter) {
	t.Helper()
	inFlight(t, l, 0)
}

// spy is a controller that keeps the samples of requests, which no rate of these tests bounds.
type spy struct {
	touchy bool // panics for each
	mu     sync.Mutex
	heard  []policy.Feedback
}

func (s *spy) New(uint64) policy.Controller { return s }

func (s *spy) Next(sample policy.Sample, b policy.Bounds) policy.Pace {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.touchy && sample.Outcome != policy.Unknown {
		panic("touchy")
	}
	if sample.Outcome != policy.Unknown && b.Ceiling > 1e6 {
		s.heard = append(s.heard, policy.Feedback{Outcome: sample.Outcome, RetryAfter: sample.RetryAfter})
	}
	return policy.Pace{Rate: min(b.Ceiling, 1e6)}
}

// learned fails unless the controller got these samples and no other.
func (s *spy) learned(t testing.TB, want ...policy.Feedback) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.heard, want) {
		t.Errorf("the policy got %+v, want %+v", s.heard, want)
	}
	s.heard = nil
}

// learning is a limiter with one slot whose policy is a spy.
func learning(t testing.TB) (*quotient.Limiter, *spy) {
	s := &spy{}
	return limiter(t, oneSlot, quotient.Policy(s)), s
}

// service answers as a test says.
type service struct {
	pb.UnimplementedTestServiceServer
	unary  func(context.Context) error
	duplex func(pb.TestService_FullDuplexCallServer) error
	input  func(pb.TestService_StreamingInputCallServer) error
}

func (s *service) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	if s.unary == nil {
		return &pb.SimpleResponse{}, nil
	}
	return &pb.SimpleResponse{}, s.unary(ctx)
}

func (s *service) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	return s.duplex(stream)
}

func (s *service) StreamingInputCall(stream pb.TestService_StreamingInputCallServer) error {
	return s.input(stream)
}

// connect runs a server in memory and returns a client of it.
func connect(t testing.TB, s *service, server []grpc.ServerOption,
	client ...grpc.DialOption) pb.TestServiceClient {
	t.Helper()
	srv := grpc.NewServer(server...)
	pb.RegisterTestServiceServer(srv, s)
	return pb.NewTestServiceClient(Serve(t, srv, grpc.NewClient, client...))
}

// Dialer makes a client's connection, as grpc.NewClient does.
type Dialer func(target string, options ...grpc.DialOption) (*grpc.ClientConn, error)

// Serve runs a server in memory, and returns a connection to it.
func Serve(t testing.TB, srv interface {
	Serve(net.Listener) error
	Stop()
}, dial Dialer, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return l.DialContext(ctx)
		}))
	conn, err := dial("passthrough:///memory", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); srv.Stop(); <-done })
	return conn
}

// deadline is a context for calls over a real connection.
func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	t.Cleanup(cancel)
	return ctx
}

// unary makes a unary call.
func unary(ctx context.Context, c pb.TestServiceClient) error {
	_, err := c.UnaryCall(ctx, &pb.SimpleRequest{})
	return err
}

// duplex opens a stream, sends and receives a message, and returns how to end the stream.
func duplex(ctx context.Context, c pb.TestServiceClient) (end func(), err error) {
	stream, err := c.FullDuplexCall(ctx)
	if err != nil {
		return nil, err
	}
	_ = stream.Send(&pb.StreamingOutputCallRequest{}) // Recv knows of its error
	if _, err = stream.Recv(); err != nil {
		return nil, err
	}
	return func() {
		_ = stream.CloseSend()
		_, _ = stream.Recv()
	}, nil
}

// echo serves one answer for each message of a stream.
func echo(stream pb.TestService_FullDuplexCallServer) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return nil // the client has closed its side
		}
		if err := stream.Send(&pb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

// kinds are the kinds of calls.
var kinds = map[string]func(context.Context, pb.TestServiceClient) error{
	"unary": unary,
	"stream": func(ctx context.Context, c pb.TestServiceClient) error {
		hangUp, err := duplex(ctx, c)
		if err == nil {
			hangUp()
		}
		return err
	},
}

// echoes is a service whose streams are echoes.
var echoes = &service{duplex: echo}

// ends are the two ends of a connection that can have the limits.
func (s *service) ends(t *testing.T, l *quotient.Limiter, key KeyFunc, opts ...Option) map[string]pb.TestServiceClient {
	return map[string]pb.TestServiceClient{
		"server": connect(t, s, Server(l, key, opts...)),
		"client": connect(t, s, nil, Client(l, key, opts...)...),
	}
}

// call calls a server's method m through an interceptor, in memory.
func call(ctx context.Context, l *quotient.Limiter, opts ...Option) error {
	info := &grpc.UnaryServerInfo{FullMethod: "m"}
	interceptor := UnaryServer(l, FullMethod(), opts...)
	_, err := interceptor(ctx, nil, info, func(served context.Context, _ any) (any, error) {
		if served != ctx {
			return nil, errors.New("the handler got another context")
		}
		return nil, nil
	})
	return err
}

// contextOnly is a server's stream with nothing but a context.
type contextOnly struct {
	grpc.ServerStream
	ctx context.Context
}

func (s contextOnly) Context() context.Context { return s.ctx }

// with is a status with a time to wait.
func with(code codes.Code, wait time.Duration, message ...string) error {
	s, err := status.New(code, strings.Join(message, "")).WithDetails(&errdetails.ErrorInfo{},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	if err != nil {
		panic(err)
	}
	return s.Err()
}

// panicOf is what f panics with.
func panicOf(f func()) (got any) {
	defer func() { got = recover() }()
	f()
	return nil
}

// nowhere is a client's connection that is never used.
func nowhere(t *testing.T) *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:///nowhere",
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// sent is a client's call that has no error.
func sent(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }

const exhausted = codes.ResourceExhausted

// openStream opens a client's stream through an interceptor.
func openStream(t *testing.T, l *quotient.Limiter, open func() (grpc.ClientStream, error), opts ...Option) (
	grpc.ClientStream, error,
) {
	return StreamClient(l, FullMethod(), opts...)(t.Context(), &grpc.StreamDesc{ServerStreams: true}, nowhere(t), "m",
		func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (
			grpc.ClientStream, error,
		) {
			return open()
		})
}
