package grpclimit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

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

func ExampleRefused() {
	l := quotient.Must(
		quotient.New(quotient.Rates(quotient.Rate{Name: "tenant", Events: 8, Per: time.Hour, Burst: 1})))
	limit := grpclimit.UnaryServer(l, grpclimit.Metadata("x-tenant"))
	info := &grpc.UnaryServerInfo{FullMethod: "/shop.Items/Get"}
	handler := func(context.Context, any) (any, error) { return "item", nil }
	for range 2 {
		_, err := limit(context.Background(), nil, info, handler)
		if d, ok := grpclimit.Refused(err); ok {
			fmt.Printf("%v by the rule %q, again in %v\n", d.Reason, d.Rule.Name, d.RetryAfter.Round(time.Second))
			fmt.Println(status.Convert(err).Message())
		}
	}
	// Output:
	// rate by the rule "tenant", again in 7m30s
	// the limit "tenant" is reached: rate
}

func ExampleClient() {
	// The server is the judge; the policy learns from its refusals how fast it may send.
	l, err := quotient.New(
		quotient.Limit{Rates: []quotient.Rate{quotient.PerSecond(100)}, InFlight: 20},
		quotient.Policy(policy.Tracking{}), quotient.BeyondShare(),
	)
	if err != nil {
		panic(err)
	}
	options := grpclimit.Client(l, grpclimit.Target())
	fmt.Println(len(options), "options for grpc.NewClient")
	// Output: 4 options for grpc.NewClient
}

// The recipes of docs/cookbook.md.

// Each of four replicas has a burst of 2.5 and five slots. Remainders are lost unless replicas have ordinals.
func tenantServer() *grpc.Server {
	perTenant := quotient.Rate{Name: "tenant", Events: 50, Per: time.Second, Burst: 10}
	tenants := quotient.Must(quotient.New(quotient.Rates(perTenant), quotient.Replicas(4)))
	methods := quotient.Must(quotient.New(quotient.Limit{InFlight: 20}, quotient.Replicas(4)))
	slots := grpclimit.Also(methods, grpclimit.FullMethod())
	health := grpclimit.Except(func(c grpclimit.Call) bool {
		return strings.HasPrefix(c.Method, "/grpc.health.v1.Health/")
	})
	return grpc.NewServer(grpclimit.Server(tenants, grpclimit.Metadata("x-tenant"), slots, health)...)
}

// The queue holds about as many calls as the wait, times the rate, by the replicas. If that is two or three, low
// priorities rarely get a place.
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

// Keep Wait below the calls' own time-outs: a call whose turn comes after its deadline fails at once.
func dial(target string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	most := quotient.Rates(quotient.PerSecond(100)) // more than this is never tried
	limiter := quotient.Must(quotient.New(most, quotient.Policy(policy.Tracking{}), quotient.BeyondShare()))
	wait := grpclimit.Wait(500 * time.Millisecond) // of calls that have a second
	return grpc.NewClient(target, append(options, grpclimit.Client(limiter, grpclimit.Target(), wait)...)...)
}

func whyRefused(err error) string {
	if d, ok := grpclimit.Refused(err); ok { // by a limiter of this process or of the server
		return d.String()
	}
	return ""
}

// service is a method that answers.
type service struct {
	pb.UnimplementedTestServiceServer
}

func (service) EmptyCall(context.Context, *pb.Empty) (*pb.Empty, error) { return &pb.Empty{}, nil }

// serve runs a server in memory, and returns a connection to it.
func serve(t *testing.T, server *grpc.Server, dial grpclimit.Dialer) *grpc.ClientConn {
	pb.RegisterTestServiceServer(server, service{})
	healthpb.RegisterHealthServer(server, health.NewServer())
	return grpclimit.Serve(t, server, dial)
}

func TestRecipes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn := serve(t, tenantServer(), grpc.NewClient)
	client := pb.NewTestServiceClient(conn)
	call := metadata.AppendToOutgoingContext(ctx, "x-tenant", "a")
	var err error
	for ; err == nil; _, err = client.EmptyCall(call, &pb.Empty{}) { // until the burst is used up
	}
	if d, ok := grpclimit.Refused(err); !ok || d.Rule.Name != "tenant" || d.RetryAfter <= 0 {
		t.Errorf("%v: %+v, %v", err, d, ok)
	}
	if why, want := whyRefused(err), "refused: rate (tenant), retry after "; !strings.HasPrefix(why, want) {
		t.Errorf("%q, want %q in front", why, want)
	}
	for range 20 { // more than the burst and the slots
		if _, err := healthpb.NewHealthClient(conn).Check(call, &healthpb.HealthCheckRequest{}); err != nil {
			t.Errorf("health: %v", err)
		}
	}

	limiter, err := quotient.New(quotient.Rates(quotient.Every(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	server := payingFirst(limiter, func(context.Context) bool { asked++; return asked%2 == 0 })
	client = pb.NewTestServiceClient(serve(t, server, dial))
	for i, want := range []quotient.Reason{quotient.ReasonNone, quotient.ReasonRate} {
		_, err = client.EmptyCall(ctx, &pb.Empty{})
		if d, ok := grpclimit.Refused(err); ok != (i > 0) || d.Reason != want || asked != i+1 {
			t.Errorf("%v: reason %v, want %v; asked %d", err, d.Reason, want, asked)
		}
	}
	if why := whyRefused(nil); why != "" {
		t.Errorf("without an error: %q", why)
	}
}
