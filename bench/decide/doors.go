package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/valyala/fasthttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/quotient-go/quotient"
)

// An asker asks about a key, and reports whether it is over its limit.
type asker func(ctx context.Context, key int) (over bool, err error)

// An opener opens one connection. What it asks has been made before.
type opener func() (ask asker, end func(), err error)

// made makes something for each key.
func made[T any](keys int, of func(i int, path string) T) (all []T) {
	for i := range keys {
		all = append(all, of(i, fmt.Sprintf("/k/%06d", i)))
	}
	return all
}

// about asks the rate limit service about one descriptor.
func about(key, value string) *ratelimit.RateLimitRequest {
	return &ratelimit.RateLimitRequest{Domain: "bench", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}},
	}}
}

func aboutUser(_ int, path string) *ratelimit.RateLimitRequest { return about("user", path) }

// aboutHalf is about a user, or for every second key about one that has one request a year.
func aboutHalf(i int, path string) *ratelimit.RateLimitRequest {
	return about([]string{"user", "once"}[i%2], path)
}

// check asks for external authorization of a request.
func check(_ int, path string) *auth.CheckRequest {
	from := &core.SocketAddress{Address: "127.0.0.1", PortSpecifier: &core.SocketAddress_PortValue{PortValue: 9}}
	return &auth.CheckRequest{Attributes: &auth.AttributeContext{
		Source: &auth.AttributeContext_Peer{
			Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: from}},
		},
		Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{
			Method: "GET", Scheme: "http", Host: "bench", Path: path, Protocol: "HTTP/1.1",
			Headers: map[string]string{":method": "GET", ":path": path, ":authority": "bench", "user-agent": "bench"},
		}},
	}}
}

func overGRPC(addr string, asks func(grpc.ClientConnInterface) asker) opener {
	return func() (asker, func(), error) {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		return asks(conn), func() { _ = conn.Close() }, err
	}
}

// rls asks the rate limit service.
func rls(addr string, about []*ratelimit.RateLimitRequest) opener {
	return overGRPC(addr, func(conn grpc.ClientConnInterface) asker {
		client := ratelimit.NewRateLimitServiceClient(conn)
		return func(ctx context.Context, key int) (bool, error) {
			a, err := client.ShouldRateLimit(ctx, about[key])
			return a.GetOverallCode() == ratelimit.RateLimitResponse_OVER_LIMIT, err
		}
	})
}

// extAuthz asks for external authorization.
func extAuthz(addr string, about []*auth.CheckRequest) opener {
	return overGRPC(addr, func(conn grpc.ClientConnInterface) asker {
		client := auth.NewAuthorizationClient(conn)
		return func(ctx context.Context, key int) (bool, error) {
			a, err := client.Check(ctx, about[key])
			return a.GetStatus().GetCode() != 0, err
		}
	})
}

// forwardAuth asks over HTTP as Traefik and Caddy do.
func forwardAuth(addr string, keys int) opener {
	paths := made(keys, func(_ int, path string) string { return path })
	return func() (asker, func(), error) {
		client := &fasthttp.HostClient{Addr: "bench", MaxConns: 1, MaxIdemponentCallAttempts: 1,
			ReadTimeout: time.Minute, Dial: func(string) (net.Conn, error) { return dial(addr) }}
		var resp fasthttp.Response
		var req fasthttp.Request
		req.SetRequestURI("http://bench/decide")
		for _, field := range []string{"Method: GET", "Proto: http", "Host: bench", "For: 127.0.0.1"} {
			name, value, _ := strings.Cut(field, ": ")
			req.Header.Set("X-Forwarded-"+name, value)
		}
		return func(_ context.Context, key int) (bool, error) {
			req.Header.Set("X-Forwarded-Uri", paths[key])
			err := client.Do(&req, &resp)
			return resp.StatusCode() != fasthttp.StatusOK, err
		}, client.CloseIdleConnections, nil
	}
}

// many is how many questions inProcess asks at once: one takes no longer than to read the clock twice.
const many = 100

// inProcess asks a limiter of this process.
func inProcess(l *quotient.Limiter, keys int) opener {
	paths := made(keys, func(_ int, path string) string { return path })
	return func() (asker, func(), error) {
		return func(_ context.Context, key int) (over bool, _ error) {
			for i := range many {
				over = !l.Allow(paths[(key+i)%keys]) || over
			}
			return over, nil
		}, func() {}, nil
	}
}

func dial(addr string) (net.Conn, error) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return net.Dial("unix", path)
	}
	return net.Dial("tcp", addr)
}
