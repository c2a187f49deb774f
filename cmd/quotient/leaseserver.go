package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/cmd/quotient/internal/front"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/files"
	"github.com/quotient-go/quotient/internal/rest"
	"github.com/quotient-go/quotient/lease"
	"github.com/quotient-go/quotient/lease/etcd"
	"github.com/quotient-go/quotient/metrics"
)

// leaseConnections bounds the clients of a lease server: each that waits has a connection.
const leaseConnections = 1 << 16

// leaseScrapes bounds the requests for metrics that are answered at a time: a slow client holds an answer.
const leaseScrapes = 16

// leaseFront bounds what slow clients hold. An answer that waits for a lock has no bound but its client's.
func leaseFront(listen string) *config.Proxy {
	return &config.Proxy{
		Listen: listen,
		Timeouts: config.Timeouts{
			ReadHeader: 10 * time.Second, ReadBody: 30 * time.Second, Write: 30 * time.Second,
			Idle: 2 * time.Minute, Stream: time.Second, Shutdown: 400 * time.Millisecond,
		},
		Max: config.Max{HeaderBytes: 16 << 10, Connections: leaseConnections, Streams: 1, HeldBytes: 64 << 20},
	}
}

// leaseServer is a lease server whose listener is open. It is a config.Part: semaphores and bounds follow the
// file, and what would take a restart is refused.
type leaseServer struct {
	log      *slog.Logger
	stopping func()        // is called when the end begins
	opened   config.Leases // as it was at the start
	leases   *lease.Server
	front    *front.Server
	l        net.Listener
	registry *prometheus.Registry
	warned   atomic.Pointer[[]string] // about the file in force
	election runs
}

// openLeases makes the server of a section [leases], and opens its listener. News receives what elections bring.
func openLeases(ctx context.Context, c *config.Leases, log, news *slog.Logger) (*leaseServer, error) {
	s := &leaseServer{log: log, stopping: func() {}, opened: *c, registry: prometheus.NewRegistry()}
	var err error
	s.leases, err = lease.NewServer(c.Config(), lease.ServerOptions{
		StandBy: c.Election != nil, Version: strings.Fields(version())[1], Log: log,
		Metrics: promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{MaxRequestsInFlight: leaseScrapes}),
	})
	if err != nil {
		return nil, err
	}
	s.registry.MustRegister(metrics.NewLeases(s.leases.Stats), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.front, err = front.New(leaseFront(c.Listen), s.leases, log, front.AnyPath(),
		front.OnShutdown(func() { s.stopping(); s.leases.Close() }))
	if err != nil {
		return nil, err
	}
	var l net.ListenConfig
	if s.l, err = l.Listen(ctx, "tcp", c.Listen); err != nil {
		s.leases.Close()
		return nil, fmt.Errorf("leases.listen: %w", err)
	}
	if s.election, err = elect(c.Election, s.url(), s.leases, news); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// url is where clients of this machine reach the server.
func (s *leaseServer) url() string { return "http://" + s.l.Addr().String() }

// close is for a server that never runs.
func (s *leaseServer) close() error {
	s.leases.Close()
	return s.l.Close()
}

// serve serves until ctx ends. Requests that wait are then answered at once.
func (s *leaseServer) serve(ctx context.Context) error {
	first := func(ctx context.Context) error { return s.front.Serve(ctx, s.l) }
	return together(ctx, first, within(ctx, s.election))
}

// Prepare is the first half of a reload, also of a program that serves no leases: of s nil.
func (s *leaseServer) Prepare(f *config.File) (commit func(), err error) {
	l := f.Leases
	switch {
	case s == nil && l == nil:
		return nil, nil
	case s == nil:
		return nil, errors.New("leases: the section is new: adding it requires a restart")
	case l == nil:
		return nil, errors.New("leases: the section is missing: removing it requires a restart")
	case l.Listen != s.opened.Listen:
		return nil, fmt.Errorf("leases.listen: %s requires a restart, %s is in force", l.Listen, s.opened.Listen)
	case !reflect.DeepEqual(l.Election, s.opened.Election):
		return nil, errors.New("leases.election: a change requires a restart")
	}
	c := l.Config()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return func() {
		if err := s.leases.Configure(c); err != nil {
			s.log.Error("leases not configured", "error", err)
		}
		s.warn(f)
	}, nil
}

// warn logs what is suspicious in a file, if it was not logged of the one before.
func (s *leaseServer) warn(f *config.File) {
	lines := suspiciousLeases(f)
	if before := s.warned.Swap(&lines); before != nil && slices.Equal(*before, lines) {
		return
	}
	for _, line := range lines {
		s.log.Warn(line)
	}
}

// graceTTLs is how many TTLs of an election a grace time should have. A Go client that has renewed nothing
// for a third of it must not give up before another server leads. 2 are too few.
const graceTTLs = 3

// suspiciousLeases is what is valid and seldom meant.
func suspiciousLeases(f *config.File) (lines []string) {
	for _, w := range f.Warnings {
		lines = append(lines, w.Error())
	}
	l := f.Leases
	if len(l.Semaphores) == 0 {
		lines = append(lines, "there are no semaphores: every lock is refused as unknown")
	}
	if e := l.Election; e != nil && l.Grace < graceTTLs*e.TTL {
		lines = append(lines, fmt.Sprintf("leases.grace is %v, and another server leads after %v: "+
			"below %v clients may lose their locks then, or share them", l.Grace, e.TTL, graceTTLs*e.TTL))
	}
	all := slices.Collect(maps.Values(l.Semaphores))
	differs := func(s lease.Semaphore) bool { return s.Level != all[0].Level }
	if len(all) > 1 && all[0].Level != 0 && !slices.ContainsFunc(all, differs) {
		lines = append(lines, fmt.Sprintf("all semaphores have level %d: a peer that holds one can never ask "+
			"for another", all[0].Level))
	}
	return lines
}

// report logs where the leases are, and what is suspicious about that.
func (s *leaseServer) report(log *slog.Logger, f *config.File) {
	log.Info("leases are served", "url", s.url(), "semaphores", len(f.Leases.Semaphores),
		"grace", f.Leases.Grace, "election", f.Leases.Election != nil, "version", version())
	a, ok := s.l.Addr().(*net.TCPAddr)
	switch e := f.Leases.Election; {
	case !ok:
	case a.IP.IsLoopback() && e != nil && e.URL == "":
		s.log.Warn("clients of other machines cannot reach "+s.url()+", the election's url", "url", s.url())
	case !a.IP.IsLoopback():
		s.log.Warn("leases know no passwords: every client that reaches "+a.String()+" can take them",
			"address", a.String())
	}
}

// leaseService is quotient leases: a lease server with its file, and its operator.
type leaseService struct {
	*leaseServer
	conf     *config.Config
	operator operator
	always   *slog.Logger // shows what must be seen at any level: what operators do
	news     *slog.Logger // shows where it begins and ends, and who leads, unless only errors are wanted
}

// open makes the service that the flags and the file ask for, and opens its listeners.
func (c *leasesCmd) open(ctx context.Context, log, always *slog.Logger) (_ *leaseService, err error) {
	file, err := config.ReadThrottle(c.Configuration)
	if err != nil {
		return nil, err
	}
	if err := c.adjust(file); err != nil {
		return nil, err
	}
	reg := new(quotient.Registry)
	// The file is checked once with the flags before anything is opened, and again by the Config in force.
	if _, err := config.New(file, reg, config.Adjust(c.adjust)); err != nil {
		return nil, c.named(err)
	}
	s := &leaseService{always: always, news: always}
	if !log.Enabled(ctx, slog.LevelWarn) { // only errors are wanted
		s.news = log
	}
	if s.leaseServer, err = openLeases(ctx, file.Leases, log, s.news); err != nil {
		return nil, err
	}
	s.stopping = func() { s.news.Info("stopping", "in_flight", s.front.InFlight()) }
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	s.conf, err = config.New(file, reg, config.Logger(log), config.Adjust(c.adjust), config.With(s.leaseServer))
	if err != nil {
		return nil, err
	}
	s.registry.MustRegister(metrics.File(func() metrics.FileState { return metrics.FileState(s.conf.State()) }))
	s.operator, err = s.newOperator(ctx, reg, config.Admin{Listen: c.Admin, TokenFile: c.AdminTokenFile})
	return s, err
}

// newOperator opens the listener for operators, unless it is off.
func (s *leaseService) newOperator(ctx context.Context, reg *quotient.Registry, a config.Admin) (
	operator, error,
) {
	return openOperator(ctx, a, "admin", reg, s.always, admin.Logger(s.always), admin.WithLeases(leaseAdmin{s.leases}),
		admin.File(func() admin.FileState { return admin.FileState(s.conf.State()) }),
		admin.Mount("/metrics", promhttp.HandlerFor(prometheus.Gatherer(s.registry), promhttp.HandlerOpts{})),
		admin.MountOpen("/health", http.HandlerFunc(alive)),
		admin.MountOpen("/ready", http.HandlerFunc(s.answerReady)))
}

// answerReady answers /ready for operators: a stand-by is alive, and not ready.
func (s *leaseService) answerReady(w http.ResponseWriter, _ *http.Request) {
	if leads, leader := s.leases.Leads(); !leads {
		http.Error(w, "on stand-by "+leader, http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// run serves until ctx ends, and returns nil; or an error when a part fails.
func (s *leaseService) run(ctx context.Context, hangups <-chan os.Signal) error {
	s.report(s.news, s.conf.File())
	if s.operator.l != nil {
		s.news.Info("operator's page", "url", s.operator.url)
	}
	reload := func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-hangups:
				_ = s.conf.Reload() // it logs
			}
		}
	}
	err := together(ctx, s.serve, s.conf.Watch, s.operator.serve, reload)
	s.news.Info("stopped")
	return err
}

// farewell bounds how long a leader takes to step down at the end. Without it others wait for the election's TTL.
const farewell = 500 * time.Millisecond

// elect returns what takes part in an election until its context ends. Without one it does nothing. Clients
// reach s at url, unless e says another.
func elect(e *config.Election, url string, s *lease.Server, log *slog.Logger) (runs, error) {
	if e == nil {
		return func(context.Context) error { return nil }, nil
	}
	if e.URL != "" {
		url = e.URL
	}
	c, err := electionConfig(e)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		said := ""
		client := reach(ctx, c, func(err error) {
			if text := err.Error(); text != said {
				said = text
				log.Warn("lease election: etcd does not let this server in, it tries again", "error", text)
			}
		})
		if client == nil {
			return nil
		}
		err := stand(ctx, &etcd.Election{Client: client, Server: s, URL: url, Name: e.Name, TTL: e.TTL, Log: log})
		if err != nil {
			return fmt.Errorf("leases.election: %w", err)
		}
		return nil
	}, nil
}

// reach returns a client of etcd; nil when ctx ends before. With a password there is none until etcd answers.
// It says each time that it has failed, and tries again.
func reach(ctx context.Context, c clientv3.Config, failed func(error)) *clientv3.Client {
	for {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the client is used after ctx, to leave
		stop := context.AfterFunc(ctx, cancel)
		c.Context = own
		client, err := clientv3.New(c)
		if stop(); err == nil {
			return client
		}
		if cancel(); ctx.Err() != nil {
			return nil
		}
		failed(err)
		if !rest.For(ctx, c.DialTimeout) {
			return nil
		}
	}
}

// stand stands for an election until ctx ends, and closes its client. It returns an error that came before.
func stand(ctx context.Context, e *etcd.Election) error {
	end := sync.OnceFunc(func() { _ = e.Client.Close() })
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(farewell, end) })()
	if err := e.Run(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// electionConfig is how etcd is reached.
func electionConfig(e *config.Election) (clientv3.Config, error) {
	c := clientv3.Config{
		DialTimeout: 2 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		Username: e.User, Logger: zap.NewNop(), // the election reports what fails
	}
	for _, endpoint := range e.Endpoints {
		if !strings.Contains(endpoint, "://") {
			endpoint = "http://" + endpoint
		}
		c.Endpoints = append(c.Endpoints, strings.TrimSuffix(endpoint, "/"))
	}
	if e.PasswordFile == "" {
		return c, nil
	}
	const most = 64 << 10 // bytes
	text, _, err := files.Read(context.Background(), e.PasswordFile, most)
	if err != nil {
		return c, config.Error{Field: "leases.election.password-file", Text: err.Error()}
	}
	c.Password = strings.TrimSpace(string(text))
	return c, nil
}
