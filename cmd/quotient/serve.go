package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/cmd/quotient/internal/front"
	"github.com/quotient-go/quotient/cmd/quotient/internal/proxy"
	"github.com/quotient-go/quotient/cmd/quotient/internal/upstream"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/listen"
	"github.com/quotient-go/quotient/metrics"
)

// serve serves until ctx ends or a signal comes. A second signal ends the process at once.
func (c *fileFlags) serve(ctx context.Context, s cmdline.Streams) error {
	ctx, stop := cmdline.UntilSignal(ctx)
	defer stop()
	signal.Ignore(syscall.SIGPIPE) // a reader of the access log that has gone does not end the proxy
	var running atomic.Pointer[service]
	most := func() time.Duration {
		if s := running.Load(); s != nil {
			return s.most()
		}
		return longestStart
	}
	return cutOff(ctx, most, func(ctx context.Context) error {
		if c.of.demo != nil {
			return c.of.demo(ctx, s)
		}
		hangups := make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP) // Windows sends none
		defer signal.Stop(hangups)
		service, err := c.open(ctx, newLog(c.Log, slog.LevelInfo, s.Err))
		if err != nil {
			return err
		}
		service.out = s.Out
		running.Store(service)
		defer runtime.KeepAlive(ballast())
		return service.run(ctx, hangups)
	})
}

// ballast is memory that the garbage collector counts and that is never written, so that it is not resident. With
// little else in use the collector then runs once for 64 MiB of garbage, in place of several times a second, which
// costs a busy proxy a fifteenth of its processor time. There is none where GOMEMLIMIT bounds what may be counted.
func ballast() []byte {
	if os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	return make([]byte, 32<<20)
}

// longestStart is what a proxy has for its end that does not serve yet, and the demo.
const longestStart = 20 * time.Second

func newLog(form string, level slog.Level, w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if form == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// service is a proxy, or what decides for one, with all its parts, whose listeners are open.
type service struct {
	log      *slog.Logger
	reg      *quotient.Registry
	limits   *metrics.Collector
	ups      *upstream.Pool // nil for quotient decide
	decider  *decider       // nil for quotient proxy
	proxy    *proxy.Proxy
	front    *front.Server
	conf     *config.Config
	out      io.Writer    // of the access log
	listener net.Listener // of front; nil if decide.http is off
	operator operator
	leases   *leaseServer // nil without a section [leases]
	ending   atomic.Bool  // no new requests are wanted
}

// open makes the service that the flags ask for, and opens its listeners.
func (c *fileFlags) open(ctx context.Context, log *slog.Logger) (*service, error) {
	file, err := c.file()
	if err != nil {
		return nil, err
	}
	if err := c.of.fits(file); err != nil {
		return nil, c.named(err)
	}
	s, err := c.of.made(file, log)
	if err != nil {
		return nil, c.named(file.Located(err))
	}
	if file.Leases != nil {
		if s.leases, err = openLeases(ctx, file.Leases, log, log); err != nil {
			return nil, c.named(file.Located(err))
		}
	}
	err = s.load(file, config.WithSources(sources()), config.Adjust(c.adjust), config.With(s.leases))
	if err == nil {
		err = s.listen(ctx)
	}
	if err != nil && s.leases != nil {
		err = errors.Join(err, s.leases.close())
	}
	return s, c.named(file.Located(err))
}

// newProxy makes the parts that serve a file. It reads the certificates.
func newProxy(file *config.File, log *slog.Logger) (*service, error) {
	s := &service{log: log, reg: new(quotient.Registry), ups: upstream.New(log)}
	s.proxy = proxy.New(s.reg, s.ups, log)
	return s, s.serveBy(file, s.proxy)
}

// serveBy makes the parts that do not depend on the command, and has clients get to a handler.
func (s *service) serveBy(file *config.File, h http.Handler, opts ...front.Option) (err error) {
	s.limits = metrics.New(s.reg)
	s.reg.Options = func(name string) []quotient.Option {
		return []quotient.Option{quotient.Logger(s.log), s.limits.Observe(name)}
	}
	opts = append(opts, front.OnShutdown(s.drain), front.OnRefusal(s.proxy.Refused))
	s.front, err = front.New(file.Proxy, h, s.log, opts...)
	return err
}

// load puts the file in force that the parts were made for. Quotient check does so too: it opens no network.
func (s *service) load(file *config.File, opts ...config.Option) (err error) {
	if s.decider != nil {
		opts = append(opts, config.Adjust(s.decider.adjust), config.With(s.decider))
	} else {
		opts = append(opts, config.With(s.ups))
	}
	s.conf, err = config.New(file, s.reg, append(opts, config.Logger(s.log),
		config.With(s.proxy), config.With(s.front), config.With(fixedAdmin(file.Proxy.Admin)))...)
	return err
}

// file is the file of the command line, or what equals its flags.
func (c *fileFlags) file() (*config.File, error) {
	if c.Config == "" {
		return c.parse()
	}
	return config.Read(c.Config)
}

// adjust puts --replicas and --ordinal in force, which go before the file. A reload too needs a file that fits.
func (c *fileFlags) adjust(f *config.File) error {
	if c.Replicas != 0 {
		f.Pool.Replicas = c.Replicas
	}
	if c.Ordinal != 0 {
		f.Pool.Ordinal = c.Ordinal
	}
	return c.of.fits(f)
}

// listen opens the listeners for clients and for the operator.
func (s *service) listen(ctx context.Context) (err error) {
	f := s.conf.File()
	if s.operator, err = s.newOperator(ctx, f.Proxy.Admin); err != nil {
		return err
	}
	field, address := "proxy.listen", f.Proxy.Listen
	if s.decider != nil {
		field, address = "decide.http", f.Decide.HTTP
		err = s.decider.listen(ctx, s.front)
	}
	if err == nil && address != "off" {
		if s.listener, err = listenAt(ctx, address); err != nil {
			err = fmt.Errorf("%s: %w", field, err)
		}
	}
	if err == nil {
		return nil
	}
	if s.decider != nil && s.decider.l != nil {
		err = errors.Join(err, s.decider.l.Close())
	}
	return errors.Join(err, s.operator.close())
}

// listenAt listens at host:port, or at unix:PATH in place of a socket that a process has left behind. Who may
// connect to a socket is for the umask and its folder to say.
func listenAt(ctx context.Context, address string) (net.Listener, error) {
	var l net.ListenConfig
	path, ok := strings.CutPrefix(address, "unix:")
	switch {
	case !ok:
		return l.Listen(ctx, "tcp", address)
	case strings.HasPrefix(path, "@"): // no file
		return l.Listen(ctx, "unix", path)
	}
	return listen.Unix(ctx, path, false)
}

// drain is called when the end begins: requests that wait are answered, and no new ones are wanted.
func (s *service) drain() {
	if s.ending.Swap(true) {
		return
	}
	s.log.Info("stopping", "in_flight", s.front.InFlight())
	s.proxy.Drain()
	if s.decider != nil {
		s.decider.drain()
	}
}

// serve serves clients until ctx ends.
func (s *service) serve(ctx context.Context) error {
	var all []runs
	if s.listener != nil {
		all = append(all, func(ctx context.Context) error { return s.front.Serve(ctx, s.listener) })
	}
	if s.decider != nil && s.decider.l != nil {
		all = append(all, func(ctx context.Context) error { return s.decider.serve(ctx, s.drain, s.most) })
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, len(all))
	for _, f := range all {
		go func() { defer end(); ended <- f(ctx) }()
	}
	var errs []error
	for range all {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

// most is the time that the end may take.
func (s *service) most() time.Duration { return s.conf.File().Proxy.Timeouts.Shutdown }

// overtime is what the parts that end after the proxy have, or the lease server.
const overtime = 6 * time.Second

// errLate is the end of a program that did not end in time.
var errLate = errors.New("a part of the program did not end in time: it was cut off")

// endKey is that of a context's function that begins the end of the program.
type endKey struct{}

// cutOff runs f until overtime after the time that its end takes, most, which counts from the end of ctx, or of a part
// that together runs. What hangs then, such as a file system or a log that nobody reads, does not hold up the end of
// the process.
func cutOff(ctx context.Context, most func() time.Duration, f runs) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	ended := make(chan error, 1)
	go func() { ended <- f(context.WithValue(ctx, endKey{}, end)) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(most() + overtime)
	defer late.Stop()
	select {
	case err := <-ended:
		return err
	case <-late.C:
		if cause := context.Cause(ctx); cause != context.Canceled && cause != context.DeadlineExceeded {
			return errors.Join(cause, errLate)
		}
		return errLate
	}
}

// run serves until ctx ends, finishes what was admitted, and returns nil; or an error when a part fails.
func (s *service) run(ctx context.Context, hangups <-chan os.Signal) error {
	s.reportStart()
	reload := func(ctx context.Context) error { return s.reloads(ctx, hangups) }
	access := func(ctx context.Context) error { return s.proxy.WriteLog(ctx, s.out) }
	others := []runs{access, s.conf.Watch, s.proxy.Watch, s.operator.serve, reload}
	if s.decider != nil {
		others = append(others, func(ctx context.Context) error { return s.decider.watch(ctx, s.conf) })
		if s.listener == nil { // else front.Serve looks
			others = append(others, s.front.Watch)
		}
	} else {
		defer s.ups.Close()
		others = append(others, s.ups.Watch)
	}
	if s.leases != nil {
		others = append(others, s.leases.serve)
	}
	err := together(ctx, s.serve, others...)
	o := s.proxy.Overhead()
	s.log.Info("overhead of requests within their limits", "requests", o.Count, "p50", o.P50, "p90", o.P90,
		"p99", o.P99, "p99.9", o.P999, "max", o.Max)
	s.log.Info("stopped")
	return err
}

// reloads reads the file again at each hangup. Without a file a hangup is the end, as for most programs.
func (s *service) reloads(ctx context.Context, hangups <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangups:
			if s.conf.State().Path == "" {
				return nil
			}
			if err := s.conf.Reload(); err == nil { // config has logged the error
				s.log.Info("file read", "path", s.conf.State().Path)
			}
		}
	}
}

// runs is a part of the program that ends with its context.
type runs = func(context.Context) error

// together runs first until ctx ends, and the others for as long: they end after it. If one of them fails, or ends by
// itself, all end, and the program does if this is a part of it.
func together(ctx context.Context, first runs, others ...runs) error {
	behind, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if end, ok := ctx.Value(endKey{}).(context.CancelCauseFunc); ok {
		defer context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })()
	}
	ended := make(chan error, len(others))
	for _, f := range others {
		go func() {
			err := f(behind)
			if behind.Err() == nil { // it ended by itself
				fail(err)
			}
			ended <- err
		}()
	}
	errs := []error{first(ctx)}
	fail(errs[0])
	stop()
	for range others {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

// within lets f run until ctx ends, which is before the others of together end. If f fails, all end.
func within(ctx context.Context, f runs) runs {
	return func(longer context.Context) error {
		if err := f(ctx); err != nil {
			return err
		}
		<-longer.Done()
		return nil
	}
}
