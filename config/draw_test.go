package config_test

import (
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/lease"
	"pgregory.net/rapid"
)

// drawFile draws a valid file; with proxy it may have a section [proxy].
func drawFile(t *rapid.T, proxy bool) *config.File {
	f := &config.File{Pool: drawPool(t), Limiters: make(map[string]config.Limiter)}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b.c", "d_e", "f-0"}), 1, 3,
		rapid.ID).
		Draw(t, "limiters") {
		f.Limiters[name] = drawLimiter(t, proxy)
	}
	if proxy {
		f.Proxy = drawProxy(t, f)
	}
	if rapid.Bool().Draw(t, "leases") {
		f.Leases = drawLeases(t)
	}
	return f
}

// drawDemand gives a limiter demand now and then, where there is a source that could carry it.
func drawDemand(t *rapid.T, f *config.File) {
	if l, ok := f.Limiters["a"]; ok && f.Pool.Source != "" && rapid.Bool().Draw(t, "demand") {
		l.Demand = &config.Demand{
			Keys:   rapid.IntRange(1, 10_000).Draw(t, "keys"),
			MaxAge: drawDuration(t, time.Millisecond, time.Hour),
		}
		f.Limiters["a"] = l
	}
}

func drawLeases(t *rapid.T) *config.Leases {
	n := func(most int) int64 { return rapid.Int64Range(1, int64(most)).Draw(t, "number") }
	l := &config.Leases{
		Listen:     rapid.SampledFrom([]string{"127.0.0.1:8000", "a.test:80", "[::1]:0"}).Draw(t, "listen"),
		Semaphores: make(map[string]lease.Semaphore),
		KeepIdle:   drawDuration(t, 0, time.Hour), Grace: drawDuration(t, 0, time.Hour),
		MaxPeers: int(n(1 << 20)),
	}
	for _, name := range rapid.SliceOfNDistinct(
		rapid.SampledFrom([]string{"A", "/&", "is_acquired", "ä b.c", `"\n`}), 0, 3, rapid.ID).
		Draw(t, "semaphores") {
		l.Semaphores[name] = lease.Semaphore{Max: n(lease.MaxCount), Level: n(1 << 31)}
	}
	if rapid.Bool().Draw(t, "election") {
		l.Election = &config.Election{
			Endpoints: []string{"10.0.0.5:2379", "https://a.test:2379"},
			URL:       rapid.SampledFrom([]string{"", "http://10.0.0.7:8000"}).Draw(t, "url"),
			Name:      "jobs", TTL: time.Duration(n(1000)+1) * time.Second, User: "me",
			PasswordFile: "password",
		}
	}
	return l
}

func drawPool(t *rapid.T) config.Pool {
	p := config.Pool{
		Replicas: rapid.IntRange(1, 50).Draw(t, "replicas"), Weight: 1,
		HoldDown: drawDuration(t, 0, time.Hour),
	}
	if rapid.Bool().Draw(t, "source") {
		p.Source = rapid.SampledFrom([]string{"dns:web.test.", "file:replicas.json", "env:",
			"redis:redis://a/0"}).Draw(t, "source")
		p.Await = rapid.Bool().Draw(t, "await")
		p.MaxAge = drawDuration(t, time.Second, time.Hour)
		p.Replicas *= rapid.IntRange(0, 1).Draw(t, "sized")
		if p.Replicas == 0 {
			p.Await = true
		}
		p.Ordinal = rapid.IntRange(0, 9).Draw(t, "ordinal")
		return p
	}
	p.Weight = rapid.IntRange(1, min(p.Replicas, 5)).Draw(t, "weight")
	p.Ordinal = rapid.IntRange(0, p.Replicas-p.Weight+1).Draw(t, "ordinal")
	return p
}

func drawDuration(t *rapid.T, least, most time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(int64(least), int64(most)).Draw(t, "duration"))
}

func drawLimiter(t *rapid.T, proxy bool) config.Limiter {
	l := config.Limiter{
		Limit: drawLimit(t), DryRun: rapid.Bool().Draw(t, "dry run"), Refuse: rapid.Bool().Draw(t, "refuse"),
		QueuePerKey: rapid.IntRange(0, 1000).Draw(t, "per key"),
		Queue:       rapid.IntRange(0, 1000).Draw(t, "queue"),
		MaxKeys:     rapid.IntRange(10, 1<<20).Draw(t, "max keys"), Policy: "fixed",
		Plans: drawLimits(t, "free", "paid", "x.y"), Overrides: drawLimits(t, "/", "/a b", `/"q"`, "/é/\\"),
	}
	if !l.Refuse && rapid.Bool().Draw(t, "bounded") {
		l.MaxWait = drawDuration(t, 1, time.Hour)
	}
	if rapid.Bool().Draw(t, "tracking") {
		l.Policy, l.BeyondShare = "tracking", rapid.Bool().Draw(t, "beyond")
	}
	return l
}

func drawLimits(t *rapid.T, names ...string) map[string]quotient.Limit {
	var limits map[string]quotient.Limit
	for _, name := range names {
		if rapid.Bool().Draw(t, name) {
			if limits == nil {
				limits = make(map[string]quotient.Limit)
			}
			limits[name] = drawLimit(t)
		}
	}
	return limits
}

// drawLimit draws a limit that limits something.
func drawLimit(t *rapid.T) (l quotient.Limit) {
	if rapid.IntRange(0, 9).Draw(t, "deny") == 0 {
		return quotient.Limit{Deny: true}
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "rates") {
		l.Rates = append(l.Rates, drawRate(t, i))
	}
	if l.InFlight = rapid.IntRange(0, 100).Draw(t, "in flight"); l.Rates == nil {
		l.InFlight++
	}
	return l
}

func drawRate(t *rapid.T, i int) quotient.Rate {
	r := quotient.Rate{
		Events:  rapid.Float64Range(0.001, 1e6).Draw(t, "events"),
		Per:     drawDuration(t, time.Second, time.Hour),
		Aligned: rapid.Bool().Draw(t, "aligned"), NoTurns: rapid.Bool().Draw(t, "no turns"),
	}
	if rapid.Bool().Draw(t, "whole") {
		r.Events = float64(rapid.IntRange(1, 1000).Draw(t, "events"))
	}
	if rapid.Bool().Draw(t, "named") {
		r.Name = fmt.Sprintf("rate \"%d\"", i+10)
	}
	if r.Counted = r.Aligned && rapid.Bool().Draw(t, "counted"); !r.Aligned {
		r.Burst = rapid.IntRange(0, 3).Draw(t, "burst")
	}
	return r
}

func drawProxy(t *rapid.T, f *config.File) *config.Proxy {
	d := func() time.Duration { return drawDuration(t, 10*time.Millisecond, time.Hour) }
	n := func(least, most int) int { return rapid.IntRange(least, most).Draw(t, "number") }
	p := &config.Proxy{
		Listen: rapid.SampledFrom([]string{"127.0.0.1:4040", ":80", "[::1]:0"}).Draw(t, "listen"),
		Fields: rapid.SampledFrom([]string{"draft-11", "x-ratelimit", "off"}).Draw(t, "fields"),
		H2C:    rapid.Bool().Draw(t, "h2c"),
		Health: config.Health{Path: "/healthz?a=%20", Every: d(), Timeout: d(), Unhealthy: n(1, 9),
			Healthy: n(1, 9)},
		Timeouts: config.Timeouts{
			ReadHeader: d(), ReadBody: d(), Write: d(), Idle: d(), Dial: d(), ResponseHeader: d(),
			Stream: d(), Shutdown: d(),
		},
		Max: config.Max{
			HeaderBytes: n(1<<10, 1<<20), BodyBytes: int64(n(0, 1<<30)), Connections: n(1, 1e6),
			Streams: n(1, 1000), Upstream: n(0, 9),
		},
		Admin: config.Admin{Listen: rapid.SampledFrom([]string{"127.0.0.1:4041", "off", "unix:admin.sock"}).
			Draw(t, "admin")},
	}
	for i := range n(1, 3) {
		p.Upstreams = append(p.Upstreams, &url.URL{
			Scheme: rapid.SampledFrom([]string{"http", "https", "h2c"}).Draw(t, "scheme"),
			Host:   fmt.Sprintf("a%d.test:80", i),
		})
	}
	if rapid.Bool().Draw(t, "trusted") {
		p.Trusted = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"),
			netip.MustParsePrefix("2001:db8::/32")}
		p.ProxyProtocol = rapid.Bool().Draw(t, "proxy protocol")
	}
	if rapid.Bool().Draw(t, "tls") {
		p.TLS = &config.TLS{Cert: "cert.pem", Key: "key.pem", ClientCA: "ca.pem"}
		p.JWT = &config.JWT{KeyFile: "jwt.pem", Issuer: "us", Audience: "them"}
		p.Admin.TLS = &config.TLS{Cert: "a.pem", Key: "b.pem"}
		p.Admin.TokenFile, p.Admin.ReadOnlyTokenFile, p.Admin.Hosts = "token", "readers",
			[]string{"a.test", "b.test"}
	}
	drawRules(t, f, p)
	return p
}

// drawRules draws a rule for each limiter, and a last one that is exempt.
func drawRules(t *rapid.T, f *config.File, p *config.Proxy) {
	keys := []config.Key{
		{Kind: config.KeyPath}, {Kind: config.KeyClient}, {Kind: config.KeyHost},
		{Kind: config.KeyHeader, Arg: "X-Key"},
	}
	for name := range f.Limiters {
		r := config.Rule{
			Pattern: "GET a.test/" + name + "/{x}/y%20z/", Limiter: name,
			Key: rapid.SampledFrom(keys).Draw(t, "key"),
		}
		if len(f.Limiters[name].Overrides) > 0 {
			r.Key = keys[3] // which may be anything
		}
		if p.JWT != nil && rapid.Bool().Draw(t, "plan") {
			r.Plan = config.Plan{Kind: config.PlanClaim, Arg: "plan"}
		}
		if p.Trusted != nil && rapid.Bool().Draw(t, "plan") {
			r.Plan = config.Plan{Kind: config.PlanHeader, Arg: "X-Plan"}
		}
		p.Rules = append(p.Rules, r)
	}
	p.Rules = append(p.Rules, config.Rule{Pattern: "/", Key: config.Key{Kind: config.KeyPath}, Exempt: true})
}
