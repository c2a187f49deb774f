package caddyquotient

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
)

func init() { caddy.RegisterModule(new(Handler)) }

// Handler limits the requests that it hands on. It is the module http.handlers.quotient, and its fields are those
// of the directive: see the package. It needs a bound: a rate, slots, Deny, or a plan with one of these.
type Handler struct {
	// Zone is the name of the limiter. Empty is "default".
	Zone string `json:"zone,omitempty"`
	Limit
	// Plans are limits for classes of keys, by name: at most 64, with names as those of zones.
	Plans map[string]Limit `json:"plans,omitempty"`
	// PlanBy is a text with placeholders. A request whose plan is none of Plans has the limit of the zone. A client
	// must not be able to choose the value.
	PlanBy string `json:"plan_by,omitempty"`
	// Key is a text with placeholders: requests of one text share a quota. Empty is {http.vars.client_ip}.
	Key string `json:"key,omitempty"`
	// IPv6Prefix is how many bits of an IPv6 address in a key count, 1 to 128. 0 means 64.
	IPv6Prefix int `json:"ipv6_prefix,omitempty"`
	// Wait is how long a request waits for its turn at most. 0 refuses it at once.
	Wait caddy.Duration `json:"wait,omitempty"`
	// DryRun admits everything, and counts what would have been refused.
	DryRun bool `json:"dry_run,omitempty"`
	// Replicas is how many Caddys share the limit, 1 to 1,000,000. 0 means 1. With a Pool it is so until that has
	// reported.
	Replicas int `json:"replicas,omitempty"`
	// Pool is what counts the Caddys: dns:NAME, or dns:NAME?uncapped and dns:NAME?hosts (see package
	// poolsize/dns), file:PATH, env:. Empty is nothing: Replicas is the number.
	Pool string `json:"pool,omitempty"`
	// AwaitPool is quotient.AwaitPool, with a Pool alone. 0 is without.
	AwaitPool caddy.Duration `json:"await_pool,omitempty"`
	// MaxKeys is how many keys are remembered, 1 to 1<<30. 0 means 65,536.
	MaxKeys int `json:"max_keys,omitempty"`
	// Fields are the RateLimit fields of answers: draft-11, which is the default, x-ratelimit or off.
	Fields string `json:"fields,omitempty"`
	// Status is that of refusals in place of 429: 400 to 599. 0 means 429.
	Status int `json:"status,omitempty"`

	want   settings
	origin *prometheus.Registry // that of the configuration: each has its own
	zone   *zone                // nil before Provision
	only   string               // the placeholder that is all of Key
	secret map[string]bool      // those of Key, whose values are hashed if true
	parts  caddy.ReplacementFunc
	serve  func(w http.ResponseWriter, r *http.Request, key string, next http.Handler)
}

// settings are what all handlers of a zone have in common.
type settings struct {
	limit    quotient.Limit
	plans    map[string]quotient.Limit
	dryRun   bool
	replicas int
	pool     string
	await    time.Duration
	maxKeys  int
}

// CaddyModule returns the name of the module, http.handlers.quotient.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.quotient", New: func() caddy.Module { return new(Handler) }}
}

// Provision checks the settings and joins the zone. Caddy calls it.
func (h *Handler) Provision(ctx caddy.Context) error {
	if err := h.check(); err != nil {
		return err
	}
	h.origin, h.parts = ctx.GetMetricsRegistry(), h.part
	if err := h.origin.Register(collector); err != nil && !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		return fmt.Errorf("metrics: %w", err)
	}
	if err := h.join(ctx.Slogger().Handler()); err != nil {
		return fmt.Errorf("zone %s: %w", h.Zone, err)
	}
	opts := []httplimit.Option{httplimit.SendFields(fieldSets[h.Fields]), httplimit.OnRefuse(h.refuse)}
	if h.Wait > 0 {
		opts = append(opts, httplimit.Wait(time.Duration(h.Wait)))
	}
	if h.PlanBy != "" {
		opts = append(opts, httplimit.PlanBy(h.plan))
	}
	h.serve = httplimit.Around(h.zone.limiter, opts...)
	return nil
}

// Cleanup leaves the zone. Caddy calls it when the configuration has ended, or has failed to start.
func (h *Handler) Cleanup() error {
	if h.zone == nil {
		return nil
	}
	return h.leave()
}

var fieldSets = map[string]httplimit.FieldSet{
	"": httplimit.FieldsDraft11, "draft-11": httplimit.FieldsDraft11,
	"x-ratelimit": httplimit.FieldsXRateLimit, "off": httplimit.FieldsOff,
}

// check fills in defaults, and returns an error that names the first wrong field.
func (h *Handler) check() error {
	h.Zone, h.IPv6Prefix = cmp.Or(h.Zone, "default"), cmp.Or(h.IPv6Prefix, 64)
	if err := isName(h.Zone); err != nil {
		return fmt.Errorf("zone: %w", err)
	}
	_, known := fieldSets[h.Fields]
	switch {
	case len(h.Rates) == 0 && h.InFlight == 0 && !h.Deny && len(h.Plans) == 0:
		return errors.New("it limits nothing: give it a rate, in_flight or deny")
	case len(h.Plans) > 0 && h.PlanBy == "":
		return errors.New("plan_by: no placeholder names a request's plan")
	case h.IPv6Prefix < 1 || h.IPv6Prefix > 128:
		return fmt.Errorf("ipv6_prefix: %d is not 1 to 128", h.IPv6Prefix)
	case h.Wait < 0:
		return fmt.Errorf("wait: %v is below 0", time.Duration(h.Wait))
	case h.Status != 0 && (h.Status < 400 || h.Status > 599):
		return fmt.Errorf("status: %d is not 400 to 599", h.Status)
	case !known:
		return fmt.Errorf("fields: %q is not draft-11, x-ratelimit or off", h.Fields)
	case h.AwaitPool != 0 && h.Pool == "":
		return errors.New("await_pool: there is no pool to wait for")
	}
	if _, err := open(h.Pool); err != nil {
		return fmt.Errorf("pool: %w", err)
	}
	if err := h.checkKey(); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	return h.checkLimits()
}

// checkLimits reads the settings of the zone.
func (h *Handler) checkLimits() error {
	h.want = settings{
		plans: make(map[string]quotient.Limit), dryRun: h.DryRun, replicas: cmp.Or(h.Replicas, 1),
		pool: h.Pool, await: time.Duration(h.AwaitPool), maxKeys: cmp.Or(h.MaxKeys, 1<<16),
	}
	var err error
	if h.want.limit, err = h.limit(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(h.Plans)) {
		plan := h.Plans[name]
		if h.want.plans[name], err = plan.limit(); err == nil {
			err = isName(name)
		}
		if err != nil {
			return fmt.Errorf("plan %s: %w", name, err)
		}
	}
	_, err = h.want.limiter(new(quotient.Registry), h.Zone)
	return err
}

// limiter makes a limiter with the settings in a registry.
func (s *settings) limiter(in *quotient.Registry, zone string, opts ...quotient.Option) (*quotient.Limiter, error) {
	opts = append(opts, quotient.Plans(s.plans), quotient.Replicas(s.replicas), quotient.MaxKeys(s.maxKeys))
	if s.await != 0 {
		opts = append(opts, quotient.AwaitPool(s.await))
	}
	return in.Limiter(zone, s.limit, opts...)
}

// ServeHTTP hands an admitted request on. A refused one it answers itself, or returns an error for: see the package.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	a := &answer{ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w}, next: next}
	h.serve(a, r, h.key(r), a)
	return a.err
}

// refuse turns a refusal into an error where error routes or a status of their own are to answer it.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, d quotient.Decision) {
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	repl.Set("http.quotient.zone", h.Zone)
	repl.Set("http.quotient.reason", d.Reason.String())
	repl.Set("http.quotient.rule", d.Rule.Name)
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if h.Status == 0 && (server == nil || server.Errors == nil) {
		return
	}
	a := w.(interface{ Unwrap() http.ResponseWriter }).Unwrap().(*answer)
	a.err = fmt.Errorf("%w by zone %s: %v", quotient.ErrLimited, h.Zone, d)
	a.status = h.Status
}

// answer stands between a handler and its writer: as the next handler it gives the writer back, and it drops the
// document of a refusal that is returned as an error.
type answer struct {
	caddyhttp.ResponseWriterWrapper
	next   caddyhttp.Handler
	err    error
	status int // in place of 429
}

func (a *answer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if w == http.ResponseWriter(a) {
		w = a.ResponseWriter
	}
	a.err = a.next.ServeHTTP(w, r)
}

// WriteHeader begins an answer.
func (a *answer) WriteHeader(status int) {
	if !errors.Is(a.err, quotient.ErrLimited) {
		a.ResponseWriter.WriteHeader(status)
		return
	}
	if status == http.StatusTooManyRequests && a.status != 0 {
		status = a.status
	}
	a.Header().Del("Content-Type")
	a.err = caddyhttp.Error(status, a.err)
}

// Write is that of an http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	if a.err != nil {
		return len(p), nil
	}
	return a.ResponseWriter.Write(p)
}

var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
