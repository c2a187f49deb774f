package caddyquotient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/metrics"
	"github.com/quotient-go/quotient/poolsize/dns"
	"github.com/quotient-go/quotient/poolsize/file"
)

// zones are those of all configurations that run: while one takes the place of another, of both.
var (
	zones     = caddy.NewUsagePool()
	limiters  quotient.Registry
	collector = metrics.New(&limiters)
)

// zone is a limiter, and the handlers that use it.
type zone struct {
	name    string
	limiter *quotient.Limiter
	log     relay

	mu       sync.Mutex
	handlers []*Handler // the oldest first, whose settings are in force
	set      settings   // in force, but for what an operator has changed
	stop     func()     // ends the goroutine that follows the pool
}

// join has the handler use its zone, which it makes if there is none.
func (h *Handler) join(log slog.Handler) error {
	of, _, err := zones.LoadOrNew(h.Zone, func() (caddy.Destructor, error) { return newZone(h) })
	if err != nil {
		return err
	}
	z := of.(*zone)
	z.mu.Lock()
	err = z.refuses(h)
	if err == nil {
		h.zone = z
		z.handlers = append(z.handlers, h)
		z.log.to.Store(&log)
		z.settle()
	}
	z.mu.Unlock()
	if err != nil {
		zones.Delete(h.Zone) //nolint:errcheck // the other handlers have it
	}
	return err
}

// leave ends the use of the zone.
func (h *Handler) leave() error {
	z := h.zone
	z.mu.Lock()
	z.handlers = slices.DeleteFunc(z.handlers, func(other *Handler) bool { return other == h })
	if len(z.handlers) > 0 {
		z.settle()
	}
	z.mu.Unlock()
	_, err := zones.Delete(h.Zone)
	return err
}

func newZone(h *Handler) (*zone, error) {
	z := &zone{name: h.Zone, set: h.want, log: relay{to: new(atomic.Pointer[slog.Handler])}, stop: func() {}}
	z.set.pool, z.set.dryRun = "", false // settle sets them
	var err error
	z.limiter, err = h.want.limiter(&limiters, h.Zone, quotient.Logger(slog.New(z.log)), collector.Observe(h.Zone))
	return z, err
}

// Destruct closes the zone when no handler uses it.
func (z *zone) Destruct() error {
	z.stop()
	limiters.Remove(z.name)
	return nil
}

// refuses is an error for a handler whose settings the zone cannot have.
func (z *zone) refuses(h *Handler) error {
	for _, other := range z.handlers {
		if other.origin == h.origin && !reflect.DeepEqual(other.want, h.want) {
			return errors.New("another quotient directive gives it other limits: " +
				"give them all the same, as by a snippet, or another name to one")
		}
	}
	switch {
	case z.set.maxKeys != h.want.maxKeys:
		return fmt.Errorf("max_keys: %d cannot become %d while Caddy runs: restart it, or rename the zone",
			z.set.maxKeys, h.want.maxKeys)
	case z.set.await != h.want.await:
		return fmt.Errorf("await_pool: %v cannot become %v while Caddy runs: restart it, or rename the zone",
			z.set.await, h.want.await)
	}
	return nil
}

// settle puts the settings of the oldest handler in force, which are those of the configuration that runs, with the
// plans of one that is about to. What has not changed stays as it is, also where an operator has changed it.
func (z *zone) settle() {
	was, now := z.set, z.handlers[0].want
	now.plans = make(map[string]quotient.Limit)
	for _, h := range slices.Backward(z.handlers) {
		maps.Copy(now.plans, h.want.plans)
	}
	z.set = now
	var errs []error
	if !reflect.DeepEqual(was.limit, now.limit) {
		errs = append(errs, z.limiter.SetLimit(now.limit))
	}
	for name := range was.plans {
		if _, stays := now.plans[name]; !stays {
			errs = append(errs, z.limiter.SetPlan(name, nil))
		}
	}
	for name, limit := range now.plans {
		if old, there := was.plans[name]; !there || !reflect.DeepEqual(old, limit) {
			errs = append(errs, z.limiter.SetPlan(name, &limit))
		}
	}
	if was.dryRun != now.dryRun {
		z.limiter.SetDryRun(now.dryRun)
	}
	if was.pool != now.pool || was.replicas != now.replicas {
		errs = append(errs, z.follow(was.pool, now))
	}
	if err := errors.Join(errs...); err != nil {
		slog.New(z.log).Error("not all settings are in force", "limiter", z.name, "error", err)
	}
}

// follow has the limiter follow a pool in place of another.
func (z *zone) follow(was string, now settings) error {
	if now.pool == "" {
		z.stop()
		z.stop = func() {}
		return z.limiter.SetPool(quotient.Pool{Replicas: now.replicas}, 0)
	}
	if now.pool == was {
		return nil // it has reported
	}
	source, err := open(now.pool)
	if err != nil {
		return err
	}
	z.stop()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		z.limiter.Follow(ctx, source) //nolint:errcheck // it logs what ails the source
	}()
	z.stop = func() { cancel(); <-done }
	return nil
}

// open makes the source of a pool; nil for "".
func open(pool string) (quotient.Source, error) {
	scheme, arg, _ := strings.Cut(pool, ":")
	switch {
	case pool == "":
		return nil, nil
	case scheme == "dns":
		name, query, _ := strings.Cut(arg, "?")
		source := &dns.Source{Name: name, SRV: strings.HasPrefix(name, "_")}
		source.Uncapped, source.Hosts = query == "uncapped", query == "hosts"
		if query != "" && !source.Uncapped && !source.Hosts {
			return nil, fmt.Errorf("%q behind ? is neither uncapped nor hosts", query)
		}
		return source, source.Validate()
	case scheme == "file":
		source := &file.Source{Path: arg}
		return source, source.Validate()
	case pool == "env:":
		return quotient.Env(), nil
	}
	return nil, fmt.Errorf("%q is not dns:NAME, file:PATH or env:", pool)
}

// relay is a log's handler that hands on to that of the configuration in force, since a limiter outlives it.
type relay struct {
	to  *atomic.Pointer[slog.Handler]
	add func(slog.Handler) slog.Handler // nil: nothing
}

func (r relay) now() slog.Handler {
	if r.add == nil {
		return *r.to.Load()
	}
	return r.add(*r.to.Load())
}

func (r relay) with(add func(slog.Handler) slog.Handler) slog.Handler {
	if before := r.add; before != nil {
		return relay{r.to, func(h slog.Handler) slog.Handler { return add(before(h)) }}
	}
	return relay{r.to, add}
}

// Enabled is that of a slog.Handler.
func (r relay) Enabled(ctx context.Context, level slog.Level) bool {
	return r.to.Load() != nil && (*r.to.Load()).Enabled(ctx, level)
}

// Handle is that of a slog.Handler.
func (r relay) Handle(ctx context.Context, line slog.Record) error { return r.now().Handle(ctx, line) }

// WithAttrs is that of a slog.Handler.
func (r relay) WithAttrs(attrs []slog.Attr) slog.Handler {
	return r.with(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

// WithGroup is that of a slog.Handler.
func (r relay) WithGroup(name string) slog.Handler {
	return r.with(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}
