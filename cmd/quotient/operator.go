package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/cmd/quotient/internal/ctl"
	"github.com/quotient-go/quotient/cmd/quotient/internal/front"
	"github.com/quotient-go/quotient/cmd/quotient/internal/secrets"
	"github.com/quotient-go/quotient/cmd/quotient/internal/upstream"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/lease"
)

// operator is the listener for operators: page, API, /metrics, /health and /ready. The zero value means no
// such listener.
type operator struct {
	handler *admin.Handler
	l       net.Listener
	certs   *front.Certs // nil without TLS
	url     string
}

func (o operator) serve(ctx context.Context) error {
	if o.l == nil {
		<-ctx.Done()
		return nil
	}
	serve := func(ctx context.Context) error { return o.handler.Serve(ctx, o.l) }
	if o.certs == nil {
		return serve(ctx)
	}
	return together(ctx, serve, func(ctx context.Context) error { o.certs.Watch(ctx); return nil })
}

func (o operator) close() error {
	if o.l == nil {
		return nil
	}
	return errors.Join(o.l.Close(), o.handler.Close())
}

// newOperator opens the listener for operators, unless it is off.
func (s *service) newOperator(ctx context.Context, a config.Admin) (operator, error) {
	opts := []admin.Option{
		admin.Logger(s.log), admin.Tables(s.tables),
		admin.CheckKeys(func(limiter, key string) error { return s.conf.File().CheckKey(limiter, key) }),
		admin.Mount("/metrics", promhttp.HandlerFor(s.metrics(), promhttp.HandlerOpts{})),
		admin.MountOpen("/health", http.HandlerFunc(alive)),
		admin.MountOpen("/ready", http.HandlerFunc(s.answerReady)),
	}
	if s.conf.File().Path != "" {
		opts = append(opts, admin.File(func() admin.FileState { return admin.FileState(s.conf.State()) }))
	}
	if a.Overrides != "" {
		opts = append(opts, admin.KeepOverrides(a.Overrides))
	}
	if s.leases != nil {
		opts = append(opts, admin.WithLeases(leaseAdmin{s.leases.leases}))
	}
	return openOperator(ctx, a, "proxy.admin", s.reg, s.log, opts...)
}

// openOperator opens a listener for operators, unless it is off. Errors name its settings by name.
func openOperator(
	ctx context.Context, a config.Admin, name string, reg *quotient.Registry, log *slog.Logger, opts ...admin.Option,
) (operator, error) {
	o, err := closedOperator(a, name, reg, log, opts...)
	if err != nil || o.handler == nil {
		return operator{}, err
	}
	network, addr := "tcp", a.Listen
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	if o.l, err = o.handler.Listen(ctx, network, addr); err != nil {
		return operator{}, fmt.Errorf("%s: %w", name+".listen", err)
	}
	o.url = "http://" + o.l.Addr().String() + "/"
	if network == "unix" {
		o.url = a.Listen
	}
	if o.certs != nil {
		now := func(*tls.ClientHelloInfo) (*tls.Config, error) { return o.certs.Config(), nil }
		o.l = tls.NewListener(o.l, &tls.Config{GetConfigForClient: now})
		o.url = strings.Replace(o.url, "http:", "https:", 1)
	}
	return o, nil
}

// closedOperator is openOperator but for the listener: it reads the files.
func closedOperator(
	a config.Admin, name string, reg *quotient.Registry, log *slog.Logger, opts ...admin.Option,
) (o operator, err error) {
	if a.Listen == "off" {
		return o, nil
	}
	allowed, err := access(a, name)
	if err != nil {
		return o, err
	}
	peers, err := peersOf(a, name)
	if err != nil {
		return o, err
	}
	opts = append(opts, peers...)
	if o.handler, err = admin.New(reg, append(opts, allowed...)...); err != nil {
		return o, err
	}
	if a.TLS != nil {
		base := &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven}
		o.certs, err = front.NewCerts(name+".tls", *a.TLS, base, log)
	}
	return o, err
}

// access is what callers need in order to use the listener for operators.
func access(a config.Admin, name string) (opts []admin.Option, err error) {
	for _, t := range []struct {
		field, file string
		option      func(...string) admin.Option
	}{
		{"token-file", a.TokenFile, admin.Token},
		{"read-only-token-file", a.ReadOnlyTokenFile, admin.ReadOnlyToken},
	} {
		if t.file == "" {
			continue
		}
		secrets, err := secrets.Tokens(t.file)
		if err != nil {
			return nil, config.Error{Field: name + "." + t.field, Text: err.Error(), Hint: "want one token a line"}
		}
		opts = append(opts, t.option(secrets...))
	}
	if a.TLS != nil && a.TLS.ClientCA != "" {
		opts = append(opts, admin.MutualTLS())
	}
	if len(a.Hosts) > 0 {
		opts = append(opts, admin.AllowHosts(a.Hosts...))
	}
	return opts, nil
}

// peersOf has the page show the other pods, if there is a list of them.
func peersOf(a config.Admin, name string) ([]admin.Option, error) {
	if a.Peers == "" {
		return nil, nil
	}
	list, err := ctl.Pods(a.Peers)
	if err != nil {
		return nil, config.Error{Field: name + ".peers", Text: err.Error()}
	}
	secure, err := upstream.ReadTLS(name+".peers-tls", a.PeersTLS)
	if err != nil {
		return nil, err
	}
	return []admin.Option{admin.WithPeers(list, secure)}, nil
}

// fixedAdmin is what the listener for operators was opened with: a reload cannot change it.
type fixedAdmin config.Admin

// Prepare refuses a file that changes it.
func (a fixedAdmin) Prepare(f *config.File) (commit func(), err error) {
	if f.Proxy == nil {
		return nil, errors.New("proxy: the section is missing: removing it requires a restart")
	}
	if !reflect.DeepEqual(config.Admin(a), f.Proxy.Admin) {
		return nil, errors.New("proxy.admin: a change requires a restart")
	}
	return nil, nil
}

// alive answers /health: a process that answers is alive.
func alive(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") }

func (s *service) answerReady(w http.ResponseWriter, _ *http.Request) {
	if err := s.ready(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// ready returns why requests should go to another replica, or nil.
func (s *service) ready() error {
	if s.ending.Load() {
		return errors.New("shutting down")
	}
	if err := s.reg.Ready(); err != nil || s.ups == nil {
		return err
	}
	for _, u := range s.ups.State() {
		if u.Healthy && !u.Leaving {
			return nil
		}
	}
	return errors.New("no upstream is healthy")
}

// leaseAdmin shows a lease server to operators.
type leaseAdmin struct{ s *lease.Server }

// Leases returns every semaphore.
func (a leaseAdmin) Leases() admin.LeaseState {
	st := a.s.Stats()
	state := admin.LeaseState{
		Leads: st.Leads, Leader: st.Leader, GraceSeconds: max(st.Grace.Seconds(), 0), Peers: st.Peers,
		Semaphores: make([]admin.Semaphore, 0, len(st.Semaphores)),
	}
	for _, s := range st.Semaphores {
		t := s.Totals
		state.Semaphores = append(state.Semaphores, admin.Semaphore{
			Name: s.Name, Max: s.Max, Level: s.Level, Gone: s.Gone,
			Acquired: s.Acquired, Pending: s.Pending, Holders: s.Holders, Waiters: s.Waiters,
			LongestPendingSeconds: s.LongestPending.Seconds(),
			Totals: admin.LeaseTotals{
				Granted: t.Granted, Released: t.Released, Expired: t.Expired, Broken: t.Broken,
				Restored: t.Restored, Beyond: t.Beyond,
			},
		})
	}
	return state
}

// Locks returns the oldest locks of a semaphore.
func (a leaseAdmin) Locks(semaphore string, most int) (held, pending []admin.LeaseLock, err error) {
	h, p, err := a.s.Locks(semaphore, most)
	if errors.Is(err, lease.ErrUnknownSemaphore) {
		return nil, nil, admin.ErrNoSemaphore
	}
	return shownLocks(h), shownLocks(p), err
}

// Break takes a lock away from its holder.
func (a leaseAdmin) Break(peer uint64, semaphore string, token uint64) (admin.LeaseLock, error) {
	l, err := a.s.Break(peer, semaphore, token)
	for _, gone := range []error{lease.ErrNotHeld, lease.ErrUnknownPeer, lease.ErrUnknownSemaphore} {
		if errors.Is(err, gone) {
			return admin.LeaseLock{}, admin.ErrNotHeld
		}
	}
	return shownLock(l), err
}

func shownLocks(locks []lease.Lock) []admin.LeaseLock {
	all := make([]admin.LeaseLock, 0, len(locks))
	for _, l := range locks {
		all = append(all, shownLock(l))
	}
	return all
}

func shownLock(l lease.Lock) admin.LeaseLock {
	return admin.LeaseLock{Peer: l.Peer, Count: l.Count, Token: l.Token, Since: l.Since, Expires: l.Expires}
}
