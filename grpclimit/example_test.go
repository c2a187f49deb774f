package grpclimit_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
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
