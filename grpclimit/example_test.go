package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/grpclimit"
	"github.com/quotient-go/quotient/policy"
)

func ExampleServer() {
	l, err := quotient.New(quotient.Rates(quotient.PerSecond(50)), quotient.Replicas(4))
	if err != nil {
		panic(err)
	}
	options := grpclimit.Server(l, grpclimit.FullMethod(), grpclimit.Wait(200*time.Millisecond))
	server := grpc.NewServer(options...)
	defer server.Stop()
	fmt.Println(len(options), "options for grpc.NewServer")
	// Output: 2 options for grpc.NewServer
}

func ExampleUnaryServer() {
	l, err := quotient.New(quotient.Rates(quotient.Every(time.Minute)))
	if err != nil {
		panic(err)
	}
	limit := grpclimit.UnaryServer(l, grpclimit.FullMethod())

	// What gRPC does with a call:
	info := &grpc.UnaryServerInfo{FullMethod: "/shop.Items/Get"}
	handler := func(context.Context, any) (any, error) { return "item", nil }
	for range 2 {
		_, err := limit(context.Background(), nil, info, handler)
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// ResourceExhausted
}

func ExampleClient() {
	// The server is the judge; the policy learns from its refusals how fast it may be asked.
	l, err := quotient.New(
		quotient.Limit{Rates: []quotient.Rate{quotient.PerSecond(100)}, InFlight: 20},
		quotient.Policy(policy.Tracking{}), quotient.BeyondShare(),
	)
	if err != nil {
		panic(err)
	}
	options := grpclimit.Client(l, grpclimit.Target())
	fmt.Println(len(options), "options for grpc.NewClient")
	// Output: 2 options for grpc.NewClient
}

// What docs/cookbook.md shows.

func tenantServer() *grpc.Server {
	perTenant := quotient.Rate{Events: 50, Per: time.Second, Burst: 10}
	tenants := quotient.Must(quotient.New(quotient.Rates(perTenant), quotient.Replicas(4)))
	methods := quotient.Must(quotient.New(quotient.Limit{InFlight: 20}, quotient.Replicas(4)))
	slots := grpclimit.Also(methods, grpclimit.FullMethod())
	return grpc.NewServer(grpclimit.Server(tenants, grpclimit.Metadata("x-tenant"), slots)...)
}

func payingFirst(limiter *quotient.Limiter, pays func(context.Context) bool) *grpc.Server {
	first := grpclimit.PriorityBy(func(c grpclimit.Call) quotient.Priority {
		if pays(c.Context) {
			return quotient.PriorityHigh
		}
		return quotient.PriorityNormal
	})
	wait := grpclimit.Wait(2 * time.Second)
	return grpc.NewServer(grpclimit.Server(limiter, grpclimit.FullMethod(), first, wait)...)
}

func dial(target string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	most := quotient.Rates(quotient.PerSecond(100)) // more than this is never tried
	limiter := quotient.Must(quotient.New(most, quotient.Policy(policy.Tracking{}), quotient.BeyondShare()))
	return grpc.NewClient(target, append(options, grpclimit.Client(limiter, grpclimit.Target())...)...)
}

func whyRefused(err error) (reason string, retryAfter time.Duration) {
	if limited, ok := errors.AsType[*quotient.LimitedError](err); ok { // by a limiter of this process
		return limited.Reason.String(), limited.RetryAfter // "rate", "in_flight"; 0 is unknown
	}
	for _, detail := range status.Convert(err).Details() { // by the server
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			reason = d.GetReason() // "RATE", "IN_FLIGHT", if d.GetDomain() is grpclimit.Domain
		case *errdetails.RetryInfo:
			retryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	return reason, retryAfter
}

// service is a method that answers.
type service struct {
	pb.UnimplementedTestServiceServer
}

func (service) EmptyCall(context.Context, *pb.Empty) (*pb.Empty, error) { return &pb.Empty{}, nil }

// dialer makes a client's connection, as grpc.NewClient does.
type dialer func(target string, options ...grpc.DialOption) (*grpc.ClientConn, error)

// serve runs a server in memory, and returns a client of it.
func serve(t *testing.T, server *grpc.Server, connect dialer, options ...grpc.DialOption) pb.TestServiceClient {
	l := bufconn.Listen(1 << 16)
	pb.RegisterTestServiceServer(server, service{})
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	conn, err := connect("passthrough:///memory", append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); server.Stop(); <-done })
	return pb.NewTestServiceClient(conn)
}

func TestRecipes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	client := serve(t, tenantServer(), grpc.NewClient)
	call := metadata.AppendToOutgoingContext(ctx, "x-tenant", "a")
	var err error
	for ; err == nil; _, err = client.EmptyCall(call, &pb.Empty{}) { // until the burst is used up
	}
	if reason, wait := whyRefused(err); reason != "RATE" || wait <= 0 {
		t.Errorf("%v: reason %q, wait %v", err, reason, wait)
	}

	limiter, err := quotient.New(quotient.Rates(quotient.Every(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	server := payingFirst(limiter, func(context.Context) bool { asked++; return asked%2 == 0 })
	client = serve(t, server, dial)
	for i, want := range []string{"", "RATE"} {
		_, err = client.EmptyCall(ctx, &pb.Empty{})
		if reason, _ := whyRefused(err); reason != want || asked != i+1 {
			t.Errorf("%v: reason %q, want %q; asked %d", err, reason, want, asked)
		}
	}

	denied, err := quotient.New(quotient.Limit{Deny: true})
	if err != nil {
		t.Fatal(err)
	}
	client = serve(t, grpc.NewServer(), grpc.NewClient, grpclimit.Client(denied, grpclimit.Target())...)
	_, err = client.EmptyCall(ctx, &pb.Empty{})
	if reason, _ := whyRefused(err); reason != "denied" {
		t.Errorf("%v: reason %q, want that of this process", err, reason)
	}
}
