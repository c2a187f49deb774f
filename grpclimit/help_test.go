package grpclimit

import (
	"context"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/test/bufconn"

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

var (
	oneSlot = quotient.Limit{InFlight: 1}
	once    = quotient.Rates(quotient.Every(time.Hour))
)

// idle waits until every permit was given back, and fails if one was twice: a client has its answer before
// the handler has returned.
func idle(t testing.TB, l *quotient.Limiter) {
	t.Helper()
	for end := time.Now().Add(soon); l.Stats().InFlight > 0 && time.Now().Before(end); {
		runtime.Gosched()
	}
	if s := l.Stats(); s.InFlight != 0 || s.Waiting != 0 || s.DoubleReleases != 0 {
		t.Errorf("in flight %d, waiting %d, double releases %d; want none", s.InFlight, s.Waiting,
			s.DoubleReleases)
	}
}

// inFlight fails unless n permits are out.
func inFlight(t testing.TB, l *quotient.Limiter, n int) {
	t.Helper()
	if s := l.Stats(); s.InFlight != n || s.DoubleReleases != 0 {
		t.Errorf("in flight %d, double releases %d; want %d, 0", s.InFlight, s.DoubleReleases, n)
	}
}

// spy is a controller that keeps the samples of requests, which no rate of these tests bounds.
type spy struct {
	mu    sync.Mutex
	heard []policy.Feedback
}

func (s *spy) New(uint64) policy.Controller { return s }

func (s *spy) Next(sample policy.Sample, b policy.Bounds) policy.Pace {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sample.Outcome != policy.Unknown && b.Ceiling > 1e6 {
		s.heard = append(s.heard, policy.Feedback{Outcome: sample.Outcome, RetryAfter: sample.RetryAfter})
	}
	return policy.Pace{Rate: min(b.Ceiling, 1e6)}
}

// learned fails unless the controller got this sample, once.
func (s *spy) learned(t testing.TB, want policy.Feedback) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.heard) != 1 || s.heard[0] != want {
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
	l := bufconn.Listen(1 << 16)
	srv := grpc.NewServer(server...)
	pb.RegisterTestServiceServer(srv, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	client = append(client, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return l.DialContext(ctx)
		}))
	conn, err := grpc.NewClient("passthrough:///memory", client...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); srv.Stop(); <-done })
	return pb.NewTestServiceClient(conn)
}

// deadline is a context for calls over a real connection.
func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	t.Cleanup(cancel)
	return ctx
}
