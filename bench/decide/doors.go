package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/valyala/fasthttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/bench/rig"
)

// questions are made before the clock starts, one for each key.
type questions struct {
	users []*ratelimit.RateLimitRequest
	half  []*ratelimit.RateLimitRequest // every second one is of a key that has one request a year
	auth  []*auth.CheckRequest
	paths []string
}

func ask(keys int) *questions {
	q := &questions{}
	for i := range keys {
		path := fmt.Sprintf("/k/%06d", i)
		q.paths = append(q.paths, path)
		q.users = append(q.users, about("user", path))
		q.half = append(q.half, about([]string{"user", "once"}[i%2], path))
		q.auth = append(q.auth, &auth.CheckRequest{Attributes: &auth.AttributeContext{
			Source: &auth.AttributeContext_Peer{Address: &core.Address{Address: &core.Address_SocketAddress{
				SocketAddress: &core.SocketAddress{Address: "127.0.0.1", PortSpecifier: &core.SocketAddress_PortValue{PortValue: 9}},
			}}},
			Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{
				Method: "GET", Scheme: "http", Host: "bench", Path: path, Protocol: "HTTP/1.1",
				Headers: map[string]string{":method": "GET", ":path": path, ":authority": "bench", "user-agent": "bench"},
			}},
		}})
	}
	return q
}

// about is a question of the rate limit service with one descriptor.
func about(key, value string) *ratelimit.RateLimitRequest {
	return &ratelimit.RateLimitRequest{Domain: "bench", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}},
	}}
}

// An asker asks about a key, and reports whether it is over its limit.
type asker func(ctx context.Context, key int) (over bool, err error)

// An opener opens one connection.
type opener func() (asker, io.Closer, error)

type closer func() error

// Close closes it.
func (c closer) Close() error { return c() }

func dialGRPC(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// rls asks the rate limit service.
func rls(addr string, about []*ratelimit.RateLimitRequest) opener {
	return func() (asker, io.Closer, error) {
		conn, err := dialGRPC(addr)
		client := ratelimit.NewRateLimitServiceClient(conn)
		return func(ctx context.Context, key int) (bool, error) {
			a, err := client.ShouldRateLimit(ctx, about[key])
			return a.GetOverallCode() == ratelimit.RateLimitResponse_OVER_LIMIT, err
		}, conn, err
	}
}

// extAuthz asks for external authorization.
func extAuthz(addr string, about []*auth.CheckRequest) opener {
	return func() (asker, io.Closer, error) {
		conn, err := dialGRPC(addr)
		client := auth.NewAuthorizationClient(conn)
		return func(ctx context.Context, key int) (bool, error) {
			a, err := client.Check(ctx, about[key])
			if code := codes.Code(a.GetStatus().GetCode()); err == nil && code != codes.OK {
				err = fmt.Errorf("answered with %v: %v", code, a.GetDeniedResponse())
			}
			return false, err
		}, conn, err
	}
}

// forwardAuth asks over HTTP as Traefik and Caddy do.
func forwardAuth(addr string, paths []string) opener {
	return func() (asker, io.Closer, error) {
		client := &fasthttp.HostClient{Addr: "bench", MaxConns: 1, MaxIdemponentCallAttempts: 1, ReadTimeout: time.Minute,
			Dial: func(string) (net.Conn, error) { return dial(addr) }}
		var resp fasthttp.Response
		var req fasthttp.Request
		req.SetRequestURI("http://bench/decide")
		req.Header.Set("X-Forwarded-Method", "GET")
		req.Header.Set("X-Forwarded-Proto", "http")
		req.Header.Set("X-Forwarded-Host", "bench")
		req.Header.Set("X-Forwarded-For", "127.0.0.1")
		return func(_ context.Context, key int) (bool, error) {
			req.Header.Set("X-Forwarded-Uri", paths[key])
			err := client.Do(&req, &resp)
			if status := resp.StatusCode(); err == nil && status != fasthttp.StatusOK {
				err = fmt.Errorf("answered with status %d: %.200s", status, resp.Body())
			}
			return false, err
		}, closer(func() error { client.CloseIdleConnections(); return nil }), nil
	}
}

// inProcess asks a limiter of this process, about many keys at once: one takes no longer than to read the clock twice.
func inProcess(l *quotient.Limiter, paths []string) opener {
	return func() (asker, io.Closer, error) {
		return func(_ context.Context, key int) (over bool, _ error) {
			for i := range many {
				over = !l.Allow(paths[(key+i)%len(paths)]) || over
			}
			return over, nil
		}, closer(func() error { return nil }), nil
	}
}

const (
	many  = 100 // questions of inProcess at once
	conns = 32
)

// A crowd is connections, each with so many askers that send the next question as soon as they were answered.
type crowd struct{ conns, flight int }

func (c crowd) String() string { return fmt.Sprintf("%d x %d", c.conns, c.flight) }

// answers are what a crowd was answered, and the µs that each answer took.
type answers struct {
	took        []float64
	asked, over int
	during      time.Duration
}

// run lets the crowd ask until the context ends. With once it asks about each key once instead. A question that is not
// answered is an error. Connections are opened, and asked once, before the clock starts.
func (c crowd) run(ctx context.Context, open opener, keys int, slice time.Duration, once bool) (all answers, err error) {
	var askers []asker
	for range c.conns {
		a, conn, err := open()
		if err != nil {
			return all, err
		}
		defer conn.Close() //nolint:errcheck // all has been answered
		if _, err = a(ctx, 0); err != nil {
			return all, err
		}
		askers = append(askers, a)
	}
	var mu sync.Mutex
	var wait sync.WaitGroup
	began := time.Now()
	for i := range c.conns * c.flight {
		wait.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(began.UnixNano())))
			next := func(int) (int, bool) { return rng.IntN(keys), ctx.Err() == nil && time.Since(began) < slice }
			if once {
				next = func(n int) (int, bool) { key := i + n*c.conns*c.flight; return key, key < keys && ctx.Err() == nil }
			}
			took, over, failed := one(ctx, askers[i%c.conns], next)
			mu.Lock()
			defer mu.Unlock()
			all.took, all.over, err = append(all.took, took...), all.over+over, errors.Join(err, failed)
		})
	}
	wait.Wait()
	all.asked, all.during = len(all.took)+c.conns, time.Since(began)
	return all, errors.Join(err, ctx.Err())
}

// one asks one question after the other.
func one(ctx context.Context, a asker, next func(n int) (int, bool)) (took []float64, over int, err error) {
	for key, ok := next(0); ok; key, ok = next(len(took)) {
		began := time.Now()
		is, err := a(ctx, key)
		took = append(took, rig.Micros(time.Since(began)))
		if err != nil {
			return took, over, err
		}
		if is {
			over++
		}
	}
	return took, over, nil
}
