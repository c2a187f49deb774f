package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/metrics"
)

// leaseService is quotient leases: a lease server with its file, and its operator.
type leaseService struct {
	*leaseServer
	conf     *config.Config
	operator operator
	always   *slog.Logger // shows what must be seen at any level: what operators do
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
	s := &leaseService{always: always}
	if s.leaseServer, err = openLeases(ctx, file.Leases, log); err != nil {
		return nil, err
	}
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
	start := s.always
	if !s.log.Enabled(ctx, slog.LevelWarn) { // only errors are wanted
		start = s.log
	}
	s.report(start, s.conf.File())
	if s.operator.l != nil {
		start.Info("operator's page", "url", s.operator.url)
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
	return together(ctx, s.serve, s.conf.Watch, s.operator.serve, reload)
}
