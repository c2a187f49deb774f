package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/cmd/quotient/internal/door"
	"github.com/quotient-go/quotient/cmd/quotient/internal/front"
	"github.com/quotient-go/quotient/cmd/quotient/internal/proxy"
	"github.com/quotient-go/quotient/cmd/quotient/internal/rls"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/files"
	"github.com/quotient-go/quotient/internal/rest"
)

const (
	// mostMessage bounds a question over gRPC, in bytes. A longer one is an error, which may let its request through:
	// there is room for a head of 60 KiB, which is Envoy's bound, with its path twice.
	mostMessage = 256 << 10
	// grpcWindow is what a client of gRPC may send before it is read, on a stream and on a connection: the least.
	grpcWindow = 64 << 10
	// grpcRead is what is read from a connection at once.
	grpcRead = 4 << 10
	// lookEvery is how often the files of rate limits are read, and health is asked for by those who watch it.
	lookEvery = time.Second
)

// decider is what quotient decide has behind its engine, in the place of upstreams. It is a config.Part.
type decider struct {
	*door.Door
	log    *slog.Logger
	reg    *quotient.Registry
	rls    *rls.Service
	opened *config.File // as it was at the start
	next   *rls.Rules   // of the file that is being put in force
	tried  atomic.Pointer[yaml]
	ready  func() error
	ending chan struct{}
	l      net.Listener // of grpc; nil if it is off
	secure *tls.Config  // the same; nil for plain text
	grpc   *grpc.Server // while it serves: its workers start when it is made
}

// yaml is what the files of rate limits held when they were read last.
type yaml struct {
	paths []string
	sum   [sha256.Size]byte
}

// newDecider makes the parts that decide by a file. It reads the certificates.
func newDecider(file *config.File, log *slog.Logger) (*service, error) {
	d := &decider{Door: door.New(log), log: log, reg: new(quotient.Registry), opened: file, ending: make(chan struct{})}
	s := &service{log: log, reg: d.reg, decider: d}
	d.rls, d.ready, s.proxy = rls.New(s.reg), s.ready, proxy.New(s.reg, d.Door, log)
	d.SetHandler(s.proxy)
	if err := s.serveBy(file, d.Door, front.AnswerBy(d.Answered)); err != nil {
		return nil, err
	}
	return s, nil
}

// adjust adds the limiters of the files of rate limits to a file.
func (d *decider) adjust(f *config.File) (err error) {
	d.tried.Store(look(context.Background(), f.Decide.RateLimitFiles)) // before it is read: what comes later is new
	if d.next, err = rls.Read(f.Decide.RateLimitFiles); err != nil {
		return err
	}
	if len(f.Decide.RateLimitFiles) == 0 { // gRPC has no rate limit service then
		return nil
	}
	d.next.Fields = f.Proxy.Fields
	if f.Decide.RateLimitKind == "counted-window" && f.Pool.Source == "" {
		return f.Located(config.Error{Field: "decide.ratelimit-kind", Hint: "such as gossip",
			Text: "counted-window requires a pool.source that carries reports between replicas"})
	}
	limiters := d.next.Limiters(f.Decide.RateLimitKind, d.reg)
	for _, name := range cmdline.SortedKeys(limiters) {
		if err := f.Add(name, limiters[name]); err != nil {
			return err
		}
	}
	f.Warnings = append(f.Warnings, d.next.Warnings()...)
	return nil
}

// Prepare is the first half of a reload. Where it listens, and what gRPC answers at all, are fixed.
func (d *decider) Prepare(f *config.File) (commit func(), err error) {
	was, is := d.opened, f
	for _, fixed := range []struct {
		field string
		same  bool
	}{
		{"decide.grpc", is.Decide.GRPC == was.Decide.GRPC},
		{"decide.http", is.Decide.HTTP == was.Decide.HTTP},
		{"decide.ratelimit-files", (len(is.Decide.RateLimitFiles) == 0) == (len(was.Decide.RateLimitFiles) == 0)},
		{"proxy.rules", (len(is.Proxy.Rules) == 0) == (len(was.Proxy.Rules) == 0)},
	} {
		if !fixed.same {
			return nil, config.Error{Field: fixed.field, Text: "a change requires a restart"}
		}
	}
	swap, err := d.Door.Prepare(f)
	rules := d.next
	return func() { swap(); d.rls.Set(rules) }, err
}

// watch has conf read everything again when a file of rate limits has changed, until ctx ends. What is found the same
// twice counts: it may not be all there yet.
func (d *decider) watch(ctx context.Context, conf *config.Config) error {
	for before := d.tried.Load(); rest.For(ctx, lookEvery); {
		tried := d.tried.Load()
		now := look(ctx, tried.paths)
		if ctx.Err() == nil && now.sum != tried.sum && now.sum == before.sum {
			d.tried.Store(now)
			conf.Reload() //nolint:errcheck // it is logged and counted
		}
		before = now
	}
	return nil
}

// look reads files.
func look(ctx context.Context, paths []string) *yaml {
	all := sha256.New()
	for _, path := range paths {
		text, _, err := files.Read(ctx, path, 1<<20)
		fmt.Fprintf(all, "%q %q %v\n", path, text, err)
	}
	return &yaml{slices.Clone(paths), [sha256.Size]byte(all.Sum(nil))}
}

// newServer makes the server of gRPC with the services that the file has something for.
func (d *decider) newServer(f *config.File, secure *tls.Config) *grpc.Server {
	p := f.Proxy
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(mostMessage), grpc.MaxConcurrentStreams(uint32(p.Max.Streams)),
		grpc.MaxHeaderListSize(uint32(p.Max.HeaderBytes)), grpc.ConnectionTimeout(p.Timeouts.ReadHeader),
		grpc.StaticStreamWindowSize(grpcWindow), grpc.StaticConnWindowSize(grpcWindow),
		grpc.ReadBufferSize(grpcRead),
		grpc.NumStreamWorkers(uint32(runtime.GOMAXPROCS(0))), // a goroutine for each call would first grow its stack
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: p.Timeouts.Idle, Time: time.Minute}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: 5 * time.Second, PermitWithoutStream: true,
		}),
		grpc.UnaryInterceptor(d.recovered), grpc.ForceServerCodecV2(newCodec()),
	}
	if secure != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(secure)))
	}
	s := grpc.NewServer(opts...)
	if len(f.Decide.RateLimitFiles) > 0 {
		ratelimitv3.RegisterRateLimitServiceServer(s, d.rls)
	}
	if len(p.Rules) > 0 {
		authv3.RegisterAuthorizationServer(s, d.Door)
	}
	healthv1.RegisterHealthServer(s, health{of: d})
	return s
}

// recovered answers a call whose handler panics: the process stays.
func (d *decider) recovered(
	ctx context.Context, q any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler,
) (a any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			d.log.Error("a handler has panicked", "cause", fmt.Sprint(cause), "method", info.FullMethod,
				"stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "internal error")
		}
	}()
	return h(ctx, q)
}

// listen opens the listener of gRPC, unless it is off.
func (d *decider) listen(ctx context.Context, s *front.Server) error {
	if d.opened.Decide.GRPC == "off" {
		return nil
	}
	l, err := listenAt(ctx, d.opened.Decide.GRPC)
	if err != nil {
		return fmt.Errorf("decide.grpc: %w", err)
	}
	d.l, d.secure = s.Admit(l), s.TLS()
	return nil
}

// drain has nothing held or watched any more.
func (d *decider) drain() {
	close(d.ending)
	d.Door.Drain()
}

// serve serves gRPC until ctx ends, and lets the calls at work finish for as long as the shutdown may take.
func (d *decider) serve(ctx context.Context, drain func(), most func() time.Duration) error {
	d.grpc = d.newServer(d.opened, d.secure)
	defer d.grpc.Stop()
	ended := make(chan error, 1)
	go func() { ended <- d.grpc.Serve(d.l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("decide.grpc: %w", err)
	case <-ctx.Done():
	}
	drain()
	late := time.AfterFunc(most(), d.grpc.Stop)
	defer late.Stop()
	d.grpc.GracefulStop()
	return <-ended
}

// health is grpc.health.v1, for the process as a whole and each of its services.
type health struct {
	healthv1.UnimplementedHealthServer
	of *decider
}

// Check answers with the state of now, for a name that the server has.
func (h health) Check(_ context.Context, q *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	if _, ok := h.of.grpc.GetServiceInfo()[q.GetService()]; !ok && q.GetService() != "" {
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	if h.of.ready() != nil {
		return &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_NOT_SERVING}, nil
	}
	return &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_SERVING}, nil
}

// Watch sends the state of now, and each other that it finds later, until the call or the process ends.
func (h health) Watch(
	q *healthv1.HealthCheckRequest, to grpc.ServerStreamingServer[healthv1.HealthCheckResponse],
) error {
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	said := healthv1.HealthCheckResponse_UNKNOWN
	for {
		now, err := h.Check(to.Context(), q)
		if err == nil && now.Status != said {
			said = now.Status
			err = to.Send(now)
		}
		if err != nil {
			return err
		}
		select {
		case <-every.C:
		case <-to.Context().Done():
			return to.Context().Err()
		case <-h.of.ending:
			if said == healthv1.HealthCheckResponse_NOT_SERVING {
				return status.Error(codes.Unavailable, "shutting down")
			}
		}
	}
}
