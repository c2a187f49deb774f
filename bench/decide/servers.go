package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/bench/rig"
	"github.com/quotient-go/quotient/internal/kept"
)

// The files of quotient decide. What is in capitals is filled in.
const (
	decideFile = `
POOL
[decide]
grpc = "GRPC"
http = "HTTP"
ratelimit-files = ["DIR/ratelimit.yaml"]
ratelimit-kind = "KIND"
[proxy.admin]
listen = "ADMIN"
[[proxy.rules]]
pattern = "/"
limiter = "paths"
key = "path"
[limiters.paths]
rates = [{ events = 1000000000, per = "24h", kind = "window" }]
max-keys = 200000
`
	limitsFile = `
domain: bench
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 1000000000}
  - key: once
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: fleet
    rate_limit: {unit: UNIT, requests_per_unit: 300}
`
)

// A server is one or more processes that answer questions. Addresses are host:port or unix:PATH.
type server struct {
	processes         []*kept.Process // the last one started last
	grpc, http, admin string
}

// run starts a process of a server in a folder, and waits until it accepts connections at an address.
func (s *server) run(ctx context.Context, dir, addr string, args ...string) error {
	p, err := kept.Start(dir, args...)
	if err != nil {
		return err
	}
	s.processes = append(s.processes, p)
	return p.Serves(ctx, func() error {
		conn, err := dial(addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// end ends all processes, of none where there is no server.
func (s *server) end() (err error) {
	if s == nil {
		return nil
	}
	for _, p := range slices.Backward(s.processes) {
		err = errors.Join(err, p.Stop())
	}
	return err
}

// used is the processor time of all processes so far, of none where there is no server.
func (s *server) used() (sum time.Duration, err error) {
	if s == nil {
		return 0, nil
	}
	for _, p := range s.processes {
		one, failed := rig.Used(p.PID)
		sum, err = sum+one, errors.Join(err, failed)
	}
	return sum, err
}

// decide starts quotient decide, on sockets in its folder or on loopback. The texts replace what is in capitals.
func (b *bench) decide(ctx context.Context, sockets bool, texts ...string) (*server, error) {
	dir, err1 := os.MkdirTemp(b.dir, "server-")
	var at [3]string
	errs := []error{err1}
	for i := range at {
		port, err := rig.FreePort()
		at[i], errs = rig.At(port), append(errs, err)
	}
	s := &server{grpc: at[0], http: at[1], admin: at[2]}
	if sockets {
		s.grpc, s.http = "unix:"+filepath.Join(dir, "grpc"), "unix:"+filepath.Join(dir, "http")
	}
	filled := strings.NewReplacer(append(texts, "DIR", dir, "GRPC", s.grpc, "HTTP", s.http, "ADMIN", s.admin,
		"POOL", "", "KIND", "window", "UNIT", "minute")...)
	file := filepath.Join(dir, "quotient.toml")
	errs = append(errs, os.WriteFile(file, []byte(filled.Replace(decideFile)), 0o600),
		os.WriteFile(filepath.Join(dir, "ratelimit.yaml"), []byte(filled.Replace(limitsFile)), 0o600))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, s.run(ctx, dir, s.grpc, b.exe, "decide", "--config", file)
}

// limiter is the state of a limiter of quotient decide.
func (s *server) limiter(ctx context.Context, name string) (admin.LimiterState, error) {
	client, err := admin.NewClient("http://" + s.admin)
	if err != nil {
		return admin.LimiterState{}, err
	}
	defer client.Close()
	return client.Limiter(ctx, name)
}

// The first argument of this program as a server.
const (
	nothingArg = "nothing" // and its address
	redisArg   = "redis"   // and its address, and that of Redis
)

// self starts this program as a server of the rate limit service: one that does nothing, or with a Redis.
func (b *bench) self(ctx context.Context, name string) (*server, error) {
	exe, err1 := os.Executable()
	dir, err2 := os.MkdirTemp(b.dir, "server-")
	port, err3 := rig.FreePort()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	s := &server{grpc: "unix:" + filepath.Join(dir, "grpc")}
	args := []string{exe, name, s.grpc}
	if name == redisArg {
		err := s.run(ctx, dir, rig.At(port), "redis-server", "--bind", "127.0.0.1", "--port", fmt.Sprint(port),
			"--dir", dir, "--save", "", "--appendonly", "no")
		if err != nil {
			return s, err
		}
		args = append(args, rig.At(port))
	}
	return s, s.run(ctx, dir, s.grpc, args...)
}

// serveSelf makes this process a server if it has been started as one.
func serveSelf() {
	if len(os.Args) < 3 || os.Args[1] != nothingArg && os.Args[1] != redisArg {
		return
	}
	l, err := net.Listen("unix", strings.TrimPrefix(os.Args[2], "unix:"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var is ratelimit.RateLimitServiceServer = nothing{}
	if os.Args[1] == redisArg {
		is = counter{client: redis.NewClient(&redis.Options{Addr: os.Args[3], PoolSize: conns})}
	}
	s := grpc.NewServer()
	ratelimit.RegisterRateLimitServiceServer(s, is)
	fmt.Fprintln(os.Stderr, s.Serve(l))
	os.Exit(1)
}

// nothing answers OK.
type nothing struct {
	ratelimit.UnimplementedRateLimitServiceServer
}

// ShouldRateLimit answers OK.
func (nothing) ShouldRateLimit(context.Context, *ratelimit.RateLimitRequest) (*ratelimit.RateLimitResponse, error) {
	return &ratelimit.RateLimitResponse{OverallCode: ratelimit.RateLimitResponse_OK}, nil
}

// counter counts windows in Redis as the reference service does by default where a question has one descriptor: one
// pipeline of INCRBY and EXPIRE, for a key that ends with the second at which the window began.
type counter struct {
	ratelimit.UnimplementedRateLimitServiceServer
	client *redis.Client
}

const (
	hour   = int64(time.Hour / time.Second)
	mostOf = 1_000_000_000 // questions about a key in an hour
)

// ShouldRateLimit asks Redis.
func (c counter) ShouldRateLimit(
	ctx context.Context, r *ratelimit.RateLimitRequest,
) (*ratelimit.RateLimitResponse, error) {
	now, is := time.Now().Unix(), r.GetDescriptors()[0].GetEntries()[0]
	key := fmt.Sprintf("%s_%s_%s_%d", r.GetDomain(), is.GetKey(), is.GetValue(), now/hour*hour)
	pipe := c.client.Pipeline()
	count := pipe.IncrBy(ctx, key, int64(max(1, r.GetHitsAddend())))
	pipe.Expire(ctx, key, time.Hour)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	code := ratelimit.RateLimitResponse_OK
	if count.Val() > mostOf {
		code = ratelimit.RateLimitResponse_OVER_LIMIT
	}
	limit := &ratelimit.RateLimitResponse_RateLimit{
		RequestsPerUnit: mostOf, Unit: ratelimit.RateLimitResponse_RateLimit_HOUR,
	}
	return &ratelimit.RateLimitResponse{
		OverallCode: code, Statuses: []*ratelimit.RateLimitResponse_DescriptorStatus{{
			Code: code, CurrentLimit: limit, LimitRemaining: uint32(max(0, mostOf-count.Val())),
			DurationUntilReset: &durationpb.Duration{Seconds: hour - now%hour},
		}},
	}, nil
}
