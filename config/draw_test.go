package config_test

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/lease"
	"pgregory.net/rapid"
)

func flip(t *rapid.T) bool { return rapid.Bool().Draw(t, "flip") }

func pick[T any](t *rapid.T, from ...T) T { return rapid.SampledFrom(from).Draw(t, "one") }

func count(t *rapid.T, least, most int) int { return rapid.IntRange(least, most).Draw(t, "number") }

func some(t *rapid.T, least int, from ...string) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(from), least, 3, rapid.ID).Draw(t, "names")
}

func span(t *rapid.T, least, most time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(int64(least), int64(most)).Draw(t, "duration"))
}

// drawFile draws a valid file; with proxy it may have a section [proxy].
func drawFile(t *rapid.T, proxy bool) *config.File {
	f := &config.File{Pool: drawPool(t), Limiters: make(map[string]config.Limiter)}
	for _, name := range some(t, 1, "a", "b.c", "d_e", "f-0") {
		f.Limiters[name] = drawLimiter(t)
	}
	if proxy {
		f.Proxy = drawProxy(t, f)
		f.Decide = drawDecide(t, f)
	}
	if flip(t) {
		f.Leases = drawLeases(t)
	}
	return f
}

// drawDemand gives a limiter demand now and then, where there is a source that could carry it.
func drawDemand(t *rapid.T, f *config.File) {
	if l, ok := f.Limiters["a"]; ok && f.Pool.Source != "" && flip(t) {
		l.Demand = &config.Demand{Keys: count(t, 1, 10_000), MaxAge: span(t, time.Millisecond, time.Hour)}
		f.Limiters["a"] = l
	}
}

// drawDecide draws a section [decide] now and then.
func drawDecide(t *rapid.T, f *config.File) *config.Decide {
	if flip(t) {
		return nil
	}
	if f.Proxy.UpstreamTLS == (config.UpstreamTLS{}) && flip(t) {
		f.Proxy.Upstreams = nil
	}
	return &config.Decide{
		GRPC: pick(t, "127.0.0.1:8081", "unix:rls.sock"), HTTP: pick(t, "off", "[::1]:0", "unix:decide.sock"),
		Profile:        pick(t, "forward-auth", "nginx", "envoy", "haproxy"),
		RateLimitFiles: append([]string(nil), some(t, 0, "a.yaml", "b.yaml")...),
		RateLimitKind:  pick(t, "window", "counted-window", "bucket"),
		MaxHold:        span(t, time.Second, 24*time.Hour),
	}
}

func drawLeases(t *rapid.T) *config.Leases {
	l := &config.Leases{
		Listen: pick(t, "127.0.0.1:8000", "a.test:80", "[::1]:0"), Semaphores: map[string]lease.Semaphore{},
		KeepIdle: span(t, 0, time.Hour), Grace: span(t, 0, time.Hour), MaxPeers: count(t, 1, 1<<20),
	}
	for _, name := range some(t, 0, "A", "/&", "is_acquired", "ä b.c", `"\n`) {
		l.Semaphores[name] = lease.Semaphore{
			Max: rapid.Int64Range(1, lease.MaxCount).Draw(t, "max"), Level: rapid.Int64Range(0, 1<<31).Draw(t, "level"),
		}
	}
	if flip(t) {
		l.Election = &config.Election{
			Endpoints: []string{"10.0.0.5:2379", "https://a.test:2379"}, URL: pick(t, "", "http://10.0.0.7:8000"),
			Name: "jobs", TTL: time.Duration(count(t, 2, 1000)) * time.Second, User: "me", PasswordFile: "password",
		}
	}
	return l
}

func drawPool(t *rapid.T) config.Pool {
	p := config.Pool{Replicas: count(t, 0, 50), Weight: 1, HoldDown: span(t, 0, time.Hour)}
	if flip(t) {
		p.Source = pick(t, "dns:web.test.", "file:replicas.json", "env:", "redis:redis://a/0")
		p.Replicas *= count(t, 0, 1)
		p.Await, p.MaxAge = p.Replicas == 0 || flip(t), span(t, time.Second, time.Hour)
		p.Ordinal = count(t, 0, 9)
		return p
	}
	p.Weight = count(t, 1, min(max(p.Replicas, 1), 5))
	p.Ordinal = count(t, 0, max(p.Replicas, 1)-p.Weight+1)
	return p
}

func drawLimiter(t *rapid.T) config.Limiter {
	l := config.Limiter{
		Limit: drawLimit(t), DryRun: flip(t), Refuse: flip(t), Policy: "fixed",
		QueuePerKey: count(t, 0, 1000), Queue: count(t, 0, 1000), MaxKeys: count(t, 10, 1<<20),
		Plans: drawLimits(t, "free", "paid", "x.y"), Overrides: drawLimits(t, "/", "/a b", `/"q"`, "/é/\\"),
	}
	if !l.Refuse && flip(t) {
		l.MaxWait = span(t, 1, time.Hour)
	}
	if flip(t) {
		l.Policy, l.BeyondShare, l.LongestPause = "tracking", flip(t), span(t, 0, time.Hour)
	}
	return l
}

func drawLimits(t *rapid.T, names ...string) map[string]quotient.Limit {
	limits := make(map[string]quotient.Limit)
	for _, name := range names {
		if flip(t) {
			limits[name] = drawLimit(t)
		}
	}
	if len(limits) == 0 {
		return nil
	}
	return limits
}

// drawLimit draws a limit that limits something.
func drawLimit(t *rapid.T) (l quotient.Limit) {
	if count(t, 0, 9) == 0 {
		return quotient.Limit{Deny: true}
	}
	for i := range count(t, 0, 3) {
		l.Rates = append(l.Rates, drawRate(t, i))
	}
	if l.InFlight = count(t, 0, 100); l.Rates == nil {
		l.InFlight++
	}
	return l
}

func drawRate(t *rapid.T, i int) quotient.Rate {
	r := quotient.Rate{
		Events: rapid.Float64Range(0.001, 1e6).Draw(t, "events"), Per: span(t, time.Second, time.Hour),
		Kind: quotient.Kind(count(t, 0, 3)), NoTurns: flip(t), Name: pick(t, "", fmt.Sprintf("rate \"%d\"", i+10)),
		Unit: pick(t, "", "", "tokens"),
	}
	if flip(t) {
		r.Events = float64(count(t, 1, 1000))
	}
	if r.Kind >= quotient.Window && flip(t) {
		r.Per, r.Zone = time.Duration(count(t, 1, 8))*24*time.Hour, pick(t, "Etc/GMT+8", "Europe/Berlin")
	}
	if r.Kind == quotient.Bucket {
		r.Burst = count(t, 0, 3)
	}
	return r
}

func drawProxy(t *rapid.T, f *config.File) *config.Proxy {
	d := func() time.Duration { return span(t, 10*time.Millisecond, time.Hour) }
	p := &config.Proxy{
		Listen: pick(t, "127.0.0.1:4040", ":80", "[::1]:0", "unix:proxy.sock"), H2C: flip(t),
		IPv6Prefix: count(t, 1, 128), TrustUnix: flip(t), AmbiguousPaths: flip(t),
		Fields: pick(t, "draft-11", "x-ratelimit", "off"), Host: pick(t, "", "client", "upstream"),
		Paths: config.Paths{
			EncodedSlash: pick(t, "", "text", "slash"), Backslash: pick(t, "", "text", "slash"),
			Semicolon: pick(t, "", "text", "dropped"), EncodedPercent: pick(t, "", "text", "decoded"),
		},
		Health: config.Health{
			Path: "/healthz?a=%20", Every: d(), Timeout: d(), Unhealthy: count(t, 1, 9), Healthy: count(t, 1, 9),
		},
		Timeouts: config.Timeouts{
			ReadHeader: d(), ReadBody: d(), Write: d(), Idle: d(), Dial: d(), ResponseHeader: d(),
			Stream: d(), Shutdown: d(),
		},
		Max: config.Max{
			HeaderBytes: count(t, 1<<10, 1<<20), BodyBytes: int64(count(t, 0, 1<<30)),
			Connections: count(t, 1, 1e6), Streams: count(t, 1, 1000), Upstream: count(t, 0, 9),
			HeldBytes: int64(count(t, 1<<20, min(1<<40, math.MaxInt))),
		},
		Admin: config.Admin{Listen: pick(t, "127.0.0.1:4041", "off", "unix:admin.sock")}, Log: drawLog(t),
	}
	for i := range count(t, 1, 3) {
		u := &url.URL{Scheme: pick(t, "http", "https", "h2c"), Host: fmt.Sprintf("a%d.test:80", i)}
		p.Upstreams = append(p.Upstreams, u)
	}
	if flip(t) {
		p.Upstreams = append(p.Upstreams, &url.URL{Scheme: "unix", Path: "/run/a b%.sock", OmitHost: true})
	}
	if p.Upstreams[0].Scheme == "https" {
		p.UpstreamTLS = config.UpstreamTLS{CA: "ca.pem", Cert: "c.pem", Key: "k.pem", ServerName: "a.test"}
	}
	if flip(t) {
		p.Trusted = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
		p.ProxyProtocol = flip(t)
	}
	if flip(t) {
		p.TLS = &config.TLS{Cert: "cert.pem", Key: "key.pem", ClientCA: "ca.pem"}
		p.JWT = &config.JWT{KeyFile: "jwt.pem", Issuer: "us", Audience: "them"}
		p.Admin.TLS = &config.TLS{Cert: "a.pem", Key: "b.pem"}
		p.Admin.TokenFile, p.Admin.ReadOnlyTokenFile = "token", "readers"
		p.Admin.Hosts = []string{"a.test", "b.test"}
		p.Admin.Peers = pick(t, "dns:https://a.test:80", "kube:api:4041", "file:pods", "http://a.test,unix:///run/q")
		p.Admin.PeersTLS = config.UpstreamTLS{CA: "ca.pem", Cert: "c.pem", Key: "k.pem", ServerName: "b.test"}
		if p.Admin.Listen != "off" {
			p.Admin.Overrides = "overrides.json"
		}
		p.CORS = &config.CORS{Origins: []string{"https://a.test", "app://b:8080"}, Credentials: flip(t)}
		p.CORS.ExemptPreflights = flip(t)
	}
	drawRules(t, f, p)
	return p
}

func drawLog(t *rapid.T) config.Log {
	l := config.Log{Access: pick(t, "off", "refusals", "all"), Sample: count(t, 1, 1e6), Keys: "plain"}
	if flip(t) {
		l.Keys, l.SecretFile = "hashed", pick(t, "", "secret")
	}
	return l
}

// drawRules draws a rule for each limiter, and a last one that is exempt.
func drawRules(t *rapid.T, f *config.File, p *config.Proxy) {
	header := config.Key{Kind: config.KeyHeader, Arg: "X-Key"}
	names := slices.Sorted(maps.Keys(f.Limiters))
	for _, name := range names {
		r := config.Rule{Pattern: "GET a.test/" + name + "/{x}/y%20z/", Limiter: name, Key: header, Weight: 1}
		if len(f.Limiters[name].Overrides) == 0 { // their keys may be anything
			kind := pick(t, config.KeyPath, config.KeyClient, config.KeyHost)
			credential := config.Key{Kind: config.KeyCredential, Arg: pick(t, "Authorization", "X-API-Key")}
			r.Key = pick(t, header, credential, config.Key{Kind: kind})
			if flip(t) {
				r.Key = config.Key{Kind: kind, And: []config.Key{{Kind: config.KeyQuery, Arg: "a"}, credential}}
				r.Or = pick(t, header, config.Key{Kind: config.KeyCookie, Arg: "b"})
			}
		}
		if i := slices.Index(names, name); i > 0 && flip(t) { // by names, for one order
			for _, other := range names[:i] {
				r.Also = append(r.Also, config.Also{Limiter: other, Key: r.Key, Or: r.Or})
			}
			slices.Reverse(r.Also)
		}
		if counts(f, r) && flip(t) {
			r.Count = some(t, 1, "4xx", "500", "999")
		}
		if f.Limiters[name].Counts("tokens") { // or the rates would limit nothing
			r.Costs = []config.Cost{drawCost(t, p)}
		}
		if p.Trusted != nil && flip(t) {
			r.WeightBy = "X-Items"
		}
		if p.JWT != nil && flip(t) {
			r.Plan = config.Plan{Kind: config.PlanClaim, Arg: "plan"}
		}
		if p.Trusted != nil && flip(t) {
			r.Plan = config.Plan{Kind: config.PlanHeader, Arg: "X-Plan"}
		}
		if flip(t) {
			r.Refusal = drawRefusal(t)
		}
		p.Rules = append(p.Rules, r)
	}
	p.Rules = append(p.Rules, config.Rule{Pattern: "/", Key: config.Key{Kind: config.KeyPath}, Weight: 1, Exempt: true})
}

func drawCost(t *rapid.T, p *config.Proxy) config.Cost {
	c := config.Cost{Unit: "tokens", Default: 1, Answer: config.Header(pick(t, "", "X-Total"))}
	if p.Trusted != nil {
		c.Request = config.Header(pick(t, "", "X-Estimate"))
	}
	if c.Request+c.Answer != "" {
		c.Most = count(t, 1, min(1<<40, math.MaxInt))
	}
	return c
}

func drawRefusal(t *rapid.T) *config.Refusal {
	return &config.Refusal{
		Status: count(t, 400, 599), Body: pick(t, "no", "<p>\"\n\té"), Type: pick(t, config.PlainText, "a/b; c=d"),
		Fields: map[string]string{"X-Why": pick(t, "", "quota é"), "set-cookie": "a=b; Path=/"},
	}
}

// counts reports whether an answer's status may decide on what a rule's limiters have counted.
func counts(f *config.File, rule config.Rule) (any bool) {
	for _, one := range rule.All() {
		l := f.Limiters[one.Limiter]
		for _, limit := range slices.Concat([]quotient.Limit{l.Limit}, slices.Collect(maps.Values(l.Plans)),
			slices.Collect(maps.Values(l.Overrides))) {
			for _, r := range limit.Rates {
				if any = true; r.Kind < quotient.Window && float64(r.Per)/r.Events < float64(time.Second) {
					return false
				}
			}
		}
	}
	return any
}

// encode is the text of a file, with every field. That a default is what is left out is tested with the pages.
func encode(t fataler, f *config.File) string {
	t.Helper()
	text, err := toml.Marshal(table(*f))
	must(t, err)
	return string(text)
}

// encoded is a value as a file spells it.
func encoded(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case quotient.Limit:
		return table(x)
	case fmt.Stringer:
		return x.String()
	case float64:
		if x == float64(int64(x)) {
			return int64(x)
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		return encoded(v.Elem())
	case reflect.Struct:
		return table(v.Interface())
	case reflect.Map:
		all := make(map[string]any)
		for _, key := range v.MapKeys() {
			all[key.String()] = encoded(v.MapIndex(key))
		}
		return all
	case reflect.Slice:
		all := make([]any, v.Len())
		for i := range all {
			all[i] = encoded(v.Index(i))
		}
		return all
	}
	return v.Interface()
}

// table is a struct as a file spells it.
func table(of any) map[string]any {
	all := make(map[string]any)
	for field, v := range reflect.ValueOf(of).Fields() {
		if field.IsExported() && !(v.Kind() == reflect.Pointer && v.IsNil()) {
			all[config.Kebab(field.Name)] = encoded(v)
		}
	}
	switch of := of.(type) {
	case config.File:
		delete(all, "path")
		delete(all, "warnings")
	case config.Pool:
		if !counted(of) {
			delete(all, "replicas") // not known
		}
	case config.Limiter:
		maps.Copy(all, table(of.Limit))
		all["mode"] = map[bool]string{true: "refuse", false: "wait"}[of.Refuse]
		all["ceiling"] = map[bool]string{true: "limit", false: "share"}[of.BeyondShare]
		for _, name := range []string{"limit", "refuse", "beyond-share"} {
			delete(all, name)
		}
	case config.Also:
		if len(of.Key.And) > 0 {
			all["key"] = encoded(reflect.ValueOf(of.Key.Parts()))
		}
	case config.Rule:
		if len(of.Key.And) > 0 {
			all["key"] = encoded(reflect.ValueOf(of.Key.Parts()))
		}
		if of.WeightBy != "" {
			all["weight"] = of.WeightBy.String()
		}
		delete(all, "weight-by")
		if delete(all, "line"); of.Exempt {
			return map[string]any{"pattern": of.Pattern, "exempt": true}
		}
	}
	return all
}
