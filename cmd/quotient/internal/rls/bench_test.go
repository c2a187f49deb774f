package rls

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/quotient-go/quotient/internal/tested"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const benchFile = "domain: d\ndescriptors:\n" +
	"- {key: user, rate_limit: {unit: second, requests_per_unit: 1000000}}\n" +
	"- {key: path, value: /api*, rate_limit: {unit: hour, requests_per_unit: 100000000}}\n"

// benchRequests are of 100,000 keys.
func benchRequests(b *testing.B, text string) []*ratelimit.RateLimitRequest {
	requests := make([]*ratelimit.RateLimitRequest, 100_000)
	for i := range requests {
		requests[i] = requestOf(b, fmt.Sprintf(text, i))
	}
	return requests
}

// BenchmarkShouldRateLimit is a call without gRPC, on keys that are remembered.
func BenchmarkShouldRateLimit(b *testing.B) {
	s := newSet(b, nil, "window", "", benchFile)
	for name, text := range map[string]string{"one": "d: user=%d", "two": "d: user=%d; path=/api/%[1]d", "none": "d: o=%d"} {
		requests := benchRequests(b, text)
		ask := func(i int) {
			if _, err := s.service.ShouldRateLimit(context.Background(), requests[i%len(requests)]); err != nil {
				b.Fatal(err)
			}
		}
		for i := range requests {
			ask(i)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				ask(i)
			}
		})
	}
}

// nothing answers that all is admitted.
type nothing struct {
	ratelimit.UnimplementedRateLimitServiceServer
}

func (nothing) ShouldRateLimit(
	context.Context, *ratelimit.RateLimitRequest,
) (*ratelimit.RateLimitResponse, error) {
	return &ratelimit.RateLimitResponse{OverallCode: ratelimit.RateLimitResponse_OK}, nil
}

// BenchmarkUnixSocket is a call over 32 connections to a Unix socket, beside a service that does nothing.
func BenchmarkUnixSocket(b *testing.B) {
	const connections = 32
	requests := benchRequests(b, "d: user=%d")
	for name, of := range map[string]ratelimit.RateLimitServiceServer{
		"quotient": newSet(b, nil, "window", "", benchFile).service, "nothing": nothing{},
	} {
		b.Run(name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "s")
			l, err := net.Listen("unix", path)
			tested.Must(b, err)
			server := grpc.NewServer()
			ratelimit.RegisterRateLimitServiceServer(server, of)
			go server.Serve(l) //nolint:errcheck // it is stopped
			defer server.Stop()
			var next atomic.Int64
			var all sync.WaitGroup
			b.ReportAllocs()
			for range connections {
				conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
				tested.Must(b, err)
				defer conn.Close() //nolint:errcheck // nothing depends on it
				client := ratelimit.NewRateLimitServiceClient(conn)
				all.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						if _, err := client.ShouldRateLimit(context.Background(), requests[i%int64(len(requests))]); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}
