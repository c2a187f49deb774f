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

func ExampleUnaryServer() {
	l, err := quotient.New(quotient.Rates(quotient.Every(time.Minute)))
	if err != nil {
		panic(err)
	}
	limit := grpclimit.UnaryServer(l, grpclimit.FullMethod())
	streams := grpclimit.StreamServer(l, grpclimit.FullMethod())
	server := grpc.NewServer(grpc.UnaryInterceptor(limit), grpc.StreamInterceptor(streams))
	defer server.Stop()

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

func ExampleUnaryClient() {
	// The server is the judge; the policy learns from its refusals how fast it may be asked.
	l, err := quotient.New(
		quotient.Limit{Rates: []quotient.Rate{quotient.PerSecond(100)}, InFlight: 20},
		quotient.Policy(policy.Tracking{}), quotient.BeyondShare(),
	)
	if err != nil {
		panic(err)
	}
	options := []grpc.DialOption{
		grpc.WithUnaryInterceptor(grpclimit.UnaryClient(l, grpclimit.Target())),
		grpc.WithStreamInterceptor(grpclimit.StreamClient(l, grpclimit.Target())),
	}
	fmt.Println(len(options), "options for grpc.NewClient")
	// Output: 2 options for grpc.NewClient
}
