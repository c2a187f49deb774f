package config_test

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
)

// encoder writes a file as TOML. Each value that is not the default is written, and all others too if full.
type encoder struct {
	strings.Builder
	full bool
}

// encode is the text of a file.
func encode(f *config.File, full bool) string {
	e := &encoder{full: full}
	e.table("pool")
	e.set("source", f.Pool.Source, "")
	e.set("replicas", f.Pool.Replicas, 0)
	e.set("ordinal", f.Pool.Ordinal, 0)
	e.set("weight", f.Pool.Weight, 1)
	e.set("hold-down", f.Pool.HoldDown, time.Minute)
	e.set("max-age", f.Pool.MaxAge, time.Duration(0))
	e.set("await", f.Pool.Await, false)
	for _, name := range slices.Sorted(maps.Keys(f.Limiters)) {
		e.limiter("limiters."+quoted(name), f.Limiters[name])
	}
	if f.Proxy != nil {
		e.proxy(f.Proxy)
	}
	if f.Leases != nil {
		e.leases(f.Leases)
	}
	return e.String()
}

func quoted(s string) string { return `"` + escape(s) + `"` }

// escape is a string between quotes, as TOML has it.
func escape(s string) string {
	var b strings.Builder
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b.WriteRune('\\')
			b.WriteRune(c)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, c)
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

func (e *encoder) table(path string) { fmt.Fprintf(e, "[%s]\n", path) }

// set writes a value unless it is the default.
func (e *encoder) set(name string, v, usual any) {
	if v == usual && !e.full {
		return
	}
	fmt.Fprintf(e, "%s = %s\n", name, literal(v))
}

func literal(v any) string {
	switch v := v.(type) {
	case string:
		return quoted(v)
	case time.Duration:
		return quoted(v.String())
	case float64:
		s := strconv.FormatFloat(v, 'f', -1, 64)
		if !strings.Contains(s, ".") && v > 1e15 {
			s += ".0"
		}
		return s
	}
	return fmt.Sprint(v)
}

func (e *encoder) limiter(path string, l config.Limiter) {
	e.table(path)
	e.limit(l.Limit)
	e.set("dry-run", l.DryRun, false)
	if l.Refuse {
		e.set("mode", "refuse", "wait")
	}
	e.set("max-wait", l.MaxWait, time.Duration(0))
	e.set("queue-per-key", l.QueuePerKey, 10_000)
	e.set("queue", l.Queue, 100_000)
	e.set("max-keys", l.MaxKeys, 65_536)
	e.set("policy", l.Policy, "fixed")
	if l.BeyondShare {
		e.set("ceiling", "limit", "share")
	}
	if l.Demand != nil {
		fmt.Fprintf(e, "demand = { keys = %d, max-age = %s }\n", l.Demand.Keys, literal(l.Demand.MaxAge))
	}
	for kind, limits := range map[string]map[string]quotient.Limit{
		"plans":     l.Plans,
		"overrides": l.Overrides,
	} {
		for name, limit := range limits {
			e.table(path + "." + kind + "." + quoted(name))
			e.limit(limit)
		}
	}
}

func (e *encoder) limit(l quotient.Limit) {
	e.set("in-flight", l.InFlight, 0)
	e.set("deny", l.Deny, false)
	var rates []string
	for _, r := range l.Rates {
		one := fmt.Sprintf("name = %s, unit = %s, events = %s, per = %s", literal(r.Name), literal(r.Unit),
			literal(r.Events), literal(r.Per))
		switch {
		case r.Burst == 1 && e.full:
			one += ", paced = true"
		case r.Burst > 0:
			one += fmt.Sprintf(", burst = %d", r.Burst)
		}
		one += fmt.Sprintf(", aligned = %v, counted = %v, no-turns = %v", r.Aligned, r.Counted, r.NoTurns)
		rates = append(rates, "{ "+one+" }")
	}
	if rates != nil {
		fmt.Fprintf(e, "rates = [\n  %s,\n]\n", strings.Join(rates, ",\n  "))
	}
}

func (e *encoder) proxy(p *config.Proxy) {
	e.table("proxy")
	e.set("listen", p.Listen, "127.0.0.1:4040")
	e.list("upstreams", p.Upstreams, (*url.URL).String)
	e.set("fields", p.Fields, "draft-11")
	var trusted []string
	for _, t := range p.Trusted {
		trusted = append(trusted, t.String())
	}
	listOf(e, "trusted", trusted)
	e.set("proxy-protocol", p.ProxyProtocol, false)
	e.set("h2c", p.H2C, false)
	for _, r := range p.Rules {
		e.rule(r)
	}
	e.tls("proxy.tls", p.TLS)
	if p.JWT != nil {
		e.table("proxy.jwt")
		e.set("key-file", p.JWT.KeyFile, "")
		e.set("issuer", p.JWT.Issuer, "")
		e.set("audience", p.JWT.Audience, "")
	}
	e.table("proxy.health")
	e.set("path", p.Health.Path, "")
	e.set("every", p.Health.Every, 5*time.Second)
	e.set("timeout", p.Health.Timeout, 2*time.Second)
	e.set("unhealthy", p.Health.Unhealthy, 3)
	e.set("healthy", p.Health.Healthy, 1)
	e.bounds(p)
	e.table("proxy.admin")
	e.set("listen", p.Admin.Listen, "127.0.0.1:4041")
	e.set("token-file", p.Admin.TokenFile, "")
	e.set("read-only-token-file", p.Admin.ReadOnlyTokenFile, "")
	listOf(e, "hosts", p.Admin.Hosts)
	e.tls("proxy.admin.tls", p.Admin.TLS)
}

func (e *encoder) leases(l *config.Leases) {
	e.table("leases")
	e.set("listen", l.Listen, "127.0.0.1:8000")
	e.set("keep-idle", l.KeepIdle, 5*time.Minute)
	e.set("grace", l.Grace, time.Duration(0))
	e.set("max-peers", l.MaxPeers, 100_000)
	for name, s := range l.Semaphores {
		e.table("leases.semaphores." + quoted(name))
		e.set("max", s.Max, 0)
		e.set("level", s.Level, int64(0))
	}
	if l.Election != nil {
		e.table("leases.election")
		listOf(e, "endpoints", l.Election.Endpoints)
		e.set("url", l.Election.URL, "")
		e.set("name", l.Election.Name, "leases")
		e.set("ttl", l.Election.TTL, 10*time.Second)
		e.set("user", l.Election.User, "")
		e.set("password-file", l.Election.PasswordFile, "")
	}
}

func (e *encoder) bounds(p *config.Proxy) {
	e.table("proxy.timeouts")
	e.set("read-header", p.Timeouts.ReadHeader, 10*time.Second)
	e.set("read-body", p.Timeouts.ReadBody, 30*time.Second)
	e.set("write", p.Timeouts.Write, 30*time.Second)
	e.set("idle", p.Timeouts.Idle, 2*time.Minute)
	e.set("dial", p.Timeouts.Dial, 5*time.Second)
	e.set("response-header", p.Timeouts.ResponseHeader, time.Minute)
	e.set("stream", p.Timeouts.Stream, time.Hour)
	e.set("shutdown", p.Timeouts.Shutdown, 20*time.Second)
	e.table("proxy.max")
	e.set("header-bytes", p.Max.HeaderBytes, 64<<10)
	e.set("body-bytes", p.Max.BodyBytes, int64(0))
	e.set("connections", p.Max.Connections, 20_000)
	e.set("streams", p.Max.Streams, 250)
	e.set("upstream", p.Max.Upstream, 0)
}

func (e *encoder) rule(r config.Rule) {
	e.table("[proxy.rules]")
	e.set("pattern", r.Pattern, "")
	if r.Exempt {
		e.set("exempt", true, false)
		return
	}
	e.set("limiter", r.Limiter, "")
	e.set("key", r.Key.String(), "path")
	e.set("plan", r.Plan.String(), "")
}

func (e *encoder) tls(path string, t *config.TLS) {
	if t == nil {
		return
	}
	e.table(path)
	e.set("cert", t.Cert, "")
	e.set("key", t.Key, "")
	e.set("client-ca", t.ClientCA, "")
}

func (e *encoder) list(name string, urls []*url.URL, text func(*url.URL) string) {
	var all []string
	for _, u := range urls {
		all = append(all, text(u))
	}
	listOf(e, name, all)
}

func listOf(e *encoder, name string, all []string) {
	if all == nil && !e.full {
		return
	}
	var items []string
	for _, s := range all {
		items = append(items, quoted(s))
	}
	fmt.Fprintf(e, "%s = [%s]\n", name, strings.Join(items, ", "))
}
