package config

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-go/quotient/admin/pods"
)

// Bounds of lists.
const (
	maxTrusted = 1000
	maxRules   = 1000
	maxParts   = 8   // of a key
	maxAlso    = 8   // limiters of a rule beside its own
	maxCosts   = 8   // of a rule
	maxTexts   = 100 // of all others
)

// The spellings of Proxy.Fields.
var fieldSets = []string{"draft-11", "x-ratelimit", "off"}

func defaultProxy() *Proxy {
	return &Proxy{
		Listen: "127.0.0.1:4040",
		Fields: fieldSets[0], IPv6Prefix: 64,
		Health: Health{Every: 5 * time.Second, Timeout: 2 * time.Second, Unhealthy: 3, Healthy: 1},
		Timeouts: Timeouts{
			ReadHeader: 10 * time.Second, ReadBody: 30 * time.Second, Write: 30 * time.Second,
			Idle: 2 * time.Minute, Dial: 5 * time.Second, ResponseHeader: time.Minute,
			Stream: time.Hour, Shutdown: 20 * time.Second,
		},
		Max:   Max{HeaderBytes: 64 << 10, Connections: 20_000, Streams: 250, HeldBytes: 1 << 30},
		Admin: Admin{Listen: "127.0.0.1:4041"},
		Log:   Log{Access: "off", Sample: 1, Keys: "hashed"},
	}
}

func (p *Proxy) readRule(v value) {
	rule := Rule{Weight: 1, Line: v.r.places.key(v.path).line}
	var plan string
	v.table(fieldsOf(&rule, fields{
		"key": keyOf(&rule.Key), "or": keyOf(&rule.Or), "plan": text(&plan), "refusal": refusalOf(&rule.Refusal),
		"also": func(v value) { v.list(maxAlso, rule.readAlso) }, "count": rule.readCount, "line": nil,
		"weight": rule.readWeight, "costs": func(v value) { v.list(maxCosts, rule.readCost) }, "weight-by": nil,
	}))
	rule.Key.Kind = cmp.Or(rule.Key.Kind, KeyPath)
	kind, arg, _ := strings.Cut(plan, ":")
	rule.Plan = Plan{PlanKind(kind), arg}
	for _, name := range []string{"key", "or", "plan", "limiter", "weight", "costs", "also", "count", "refusal"} {
		if rule.Exempt && v.has(name) {
			v.r.field(inner(v.path, name), "it is set beside exempt = true: no limiter is used")
		}
	}
	p.Rules = append(p.Rules, rule)
}

func (rule *Rule) readAlso(v value) {
	var a Also
	v.table(fieldsOf(&a, fields{"key": keyOf(&a.Key), "or": keyOf(&a.Or)}))
	a.Key.Kind = cmp.Or(a.Key.Kind, KeyPath)
	rule.Also = append(rule.Also, a)
}

// readWeight reads a number, or a field that has one.
func (rule *Rule) readWeight(v value) {
	if _, ok := v.is.(string); ok {
		headerOf(&rule.WeightBy)(v)
		return
	}
	whole(&rule.Weight)(v)
}

func (rule *Rule) readCost(v value) {
	var c Cost
	v.table(fieldsOf(&c, nil))
	for _, name := range []string{"unit", "default"} {
		if _, ok := v.is.(map[string]any); ok && !v.has(name) {
			v.r.field(inner(v.path, name), "it is missing")
		}
	}
	rule.Costs = append(rule.Costs, c)
}

// headerOf is a field that names a header field.
func headerOf(into *Header) func(value) {
	return func(v value) {
		s, ok := v.is.(string)
		name, is := strings.CutPrefix(s, "header:")
		switch {
		case !ok:
			v.wrong("text")
		case s != "" && (!is || name == ""):
			v.r.hinted(v.path, `as "header:X-Items"`, "%s is not header:NAME", clip(s))
		default:
			*into = Header(name)
		}
	}
}

// readCount reads a status, or a list of them.
func (rule *Rule) readCount(v value) {
	add := func(_ value, s string) { rule.Count = append(rule.Count, s) }
	switch is := v.is.(type) {
	case string:
		add(v, is)
	case []any:
		texts(maxTexts, add)(v)
	default:
		v.wrong("text, or a list")
	}
}

// keyOf is a field that holds a key, or a list of what is one key together.
func keyOf(into *Key) func(value) {
	return func(v value) {
		var parts []Key
		add := func(_ value, s string) {
			kind, arg, _ := strings.Cut(s, ":")
			if s == string(KeyCredential) {
				arg = "Authorization"
			}
			parts = append(parts, Key{Kind: KeyKind(kind), Arg: arg})
		}
		switch is := v.is.(type) {
		case string:
			add(v, is)
		case []any:
			if texts(maxParts, add)(v); len(is) == 0 {
				v.r.hinted(v.path, `as ["client", "path"]`, "the list is empty")
			}
		default:
			v.wrong("text, or a list")
		}
		if len(parts) > 0 {
			*into = parts[0]
			into.And = append(into.And, parts[1:]...)
		}
	}
}

func (f *File) checkProxy(r *report) {
	p := f.Proxy
	if !checkSocket(r, "proxy.listen", p.Listen) {
		checkListen(r, "proxy.listen", p.Listen)
	}
	oneOf(r, "proxy.fields", p.Fields, fieldSets...)
	p.checkUpstreams(r, f.Decide != nil)
	if p.ProxyProtocol && !p.trusts() {
		r.field("proxy.proxy-protocol", "true without trusted networks: any client could claim any address")
	}
	between(r, "proxy.ipv6-prefix", p.IPv6Prefix, 1, 128)
	oneOf(r, "proxy.host", cmp.Or(p.Host, "client"), "client", "upstream")
	checkTLS(r, "proxy.tls", p.TLS)
	p.UpstreamTLS.check(r, p.Upstreams)
	if p.JWT != nil && p.JWT.KeyFile == "" {
		r.field("proxy.jwt.key-file", "it is missing")
	}
	p.Paths.check(r)
	p.Health.check(r)
	p.Timeouts.check(r)
	p.Max.check(r)
	p.Admin.check(r)
	p.Log.check(r)
	p.CORS.check(r)
	if p.Admin.Listen == p.Listen && !strings.HasSuffix(p.Listen, ":0") {
		r.field("proxy.admin.listen", "%s is proxy.listen too", clip(p.Listen))
	}
	f.checkRules(r)
}

// checkUpstreams notes what is wrong with the upstreams. There may be none beside a section [decide].
func (p *Proxy) checkUpstreams(r *report, beside bool) {
	if len(p.Upstreams) == 0 && !beside {
		r.hinted("proxy.upstreams", `as ["http://127.0.0.1:8080"]`, "none is given")
	}
	seen := map[string]bool{}
	for i, u := range p.Upstreams {
		at := element("proxy.upstreams", i)
		if u == nil {
			r.field(at, "nil")
			continue
		}
		place := strings.ToLower(strings.TrimSuffix(u.String(), "/"))
		if u.Scheme == "unix" && u.Path != "" {
			place = "unix:" + u.Path
		}
		if checkUpstream(r, at, u); seen[place] {
			r.field(at, "%s is in the list twice", clip(redacted(u.String())))
		}
		seen[place] = true
	}
}

// trusts reports whether any peer is trusted.
func (p *Proxy) trusts() bool { return p.TrustUnix || len(p.Trusted) > 0 }

func (p Paths) check(r *report) {
	for field, is := range map[string][2]string{
		"encoded-slash": {p.EncodedSlash, "slash"}, "backslash": {p.Backslash, "slash"},
		"semicolon": {p.Semicolon, "dropped"}, "encoded-percent": {p.EncodedPercent, "decoded"},
	} {
		if is[0] != "" {
			oneOf(r, inner("proxy.paths", field), is[0], "text", is[1])
		}
	}
}

func (h Health) check(r *report) {
	if h.Path != "" && !isRequestPath(h.Path) {
		r.field("proxy.health.path", "%s is no path that starts with a slash", clip(h.Path))
	}
	between(r, "proxy.health.every", h.Every, 10*time.Millisecond, 24*time.Hour)
	between(r, "proxy.health.timeout", h.Timeout, time.Millisecond, 24*time.Hour)
	between(r, "proxy.health.unhealthy", h.Unhealthy, 1, 1000)
	between(r, "proxy.health.healthy", h.Healthy, 1, 1000)
}

// isRequestPath reports whether a path, with or without a query, can be asked for.
func isRequestPath(s string) bool {
	_, err := url.ParseRequestURI(s)
	return err == nil && s[0] == '/' && !strings.HasPrefix(s, "//") && !strings.Contains(s, "#")
}

func (t Timeouts) check(r *report) {
	for field, d := range reflect.ValueOf(t).Fields() {
		between(r, inner("proxy.timeouts", kebab(field.Name)), time.Duration(d.Int()), time.Millisecond, longest)
	}
}

func (m Max) check(r *report) {
	between(r, "proxy.max.header-bytes", m.HeaderBytes, 1<<10, 16<<20)
	between(r, "proxy.max.body-bytes", m.BodyBytes, 0, 1<<50)
	between(r, "proxy.max.connections", m.Connections, 1, 10_000_000)
	between(r, "proxy.max.streams", m.Streams, 1, 100_000)
	between(r, "proxy.max.upstream", m.Upstream, 0, 1_000_000)
	between(r, "proxy.max.held-bytes", m.HeldBytes, 1<<20, 1<<50)
}

func (l Log) check(r *report) {
	oneOf(r, "proxy.log.access", l.Access, "off", "refusals", "all")
	between(r, "proxy.log.sample", l.Sample, 1, 1_000_000)
	oneOf(r, "proxy.log.keys", l.Keys, "hashed", "plain")
	if l.Keys == "plain" && l.SecretFile != "" {
		r.field("proxy.log.secret-file", "it is set beside keys = \"plain\": nothing is hashed")
	}
}

func (a Admin) check(r *report) {
	if a.Listen == "off" {
		if a.Overrides != "" {
			r.field("proxy.admin.overrides", `it is set beside listen = "off": nobody can set any`)
		}
		return
	}
	checkTLS(r, "proxy.admin.tls", a.TLS)
	a.checkPeers(r)
	if checkSocket(r, "proxy.admin.listen", a.Listen) {
		return
	}
	known := a.TokenFile != "" || a.TLS != nil && a.TLS.ClientCA != ""
	if checkListen(r, "proxy.admin.listen", a.Listen) && !known && !isLoopback(a.Listen) {
		r.hinted("proxy.admin.listen", "add token-file, or tls with client-ca",
			"%s is not on loopback: any caller could change limits", clip(a.Listen))
	}
}

func (a Admin) checkPeers(r *report) {
	const path = "proxy.admin.peers"
	kube := func(context.Context, string) ([]netip.Addr, error) { return nil, nil }
	_, err := pods.Parse(a.Peers, map[string]pods.Lookup{"kube": kube})
	switch {
	case a.Peers == "" && a.PeersTLS != UpstreamTLS{}:
		r.field(path+"-tls", "it is set without peers")
	case a.Peers != "" && err != nil:
		r.field(path, "%s is no list of pods: want dns:NAME:PORT, kube:SERVICE:PORT, file:PATH or URL,URL",
			clip(redacted(a.Peers)))
	}
	a.PeersTLS.checkFields(r, path+"-tls")
}

func checkTLS(r *report, path string, t *TLS) {
	switch {
	case t == nil:
	case t.Cert == "":
		r.field(inner(path, "cert"), "it is missing")
	case t.Key == "":
		r.field(inner(path, "key"), "it is missing")
	}
}

func (t UpstreamTLS) check(r *report, upstreams []*url.URL) {
	const path = "proxy.upstream-tls"
	https := func(u *url.URL) bool { return u != nil && u.Scheme == "https" }
	if t != (UpstreamTLS{}) && !slices.ContainsFunc(upstreams, https) {
		r.field(path, "no upstream is of https")
		return
	}
	t.checkFields(r, path)
}

func (t UpstreamTLS) checkFields(r *report, path string) {
	switch {
	case t.Cert == "" && t.Key != "":
		r.field(inner(path, "cert"), "it is missing beside key")
	case t.Key == "" && t.Cert != "":
		r.field(inner(path, "key"), "it is missing beside cert")
	}
	if !isHost(t.ServerName) {
		r.field(inner(path, "server-name"), "%s is no host", clip(redacted(t.ServerName)))
	}
}

// checkSocket reports whether an address is one of a Unix socket, and notes one without a path.
func checkSocket(r *report, field, address string) bool {
	path, ok := strings.CutPrefix(address, "unix:")
	if ok && path == "" {
		r.field(field, "%s has no path of a socket", clip(address))
	}
	return ok
}

// checkListen notes an address that no listener can have, and reports whether it is one of host and port.
func checkListen(r *report, path, address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		r.hinted(path, `as "127.0.0.1:4040" or ":4040"`, "%s is no host:port", clip(redacted(address)))
		return false
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		r.field(path, "the port %s is not between 0 and 65535", clip(redacted(port)))
	}
	if !isHost(host) {
		r.field(path, "%s is no host", clip(redacted(host)))
	}
	return true
}

// isHost reports whether a text is an address, a name or empty.
func isHost(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil || len(s) <= 253 && isOf(s, "-._")
}

// isLoopback reports whether only this machine reaches the address.
func isLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}

// checkUpstream notes what makes a URL none of an upstream.
func checkUpstream(r *report, path string, u *url.URL) {
	known := []string{"http", "https", "h2c", "unix"}
	what, port := notPlain(u), u.Port()
	switch n, err := strconv.ParseUint(port, 10, 16); {
	case !slices.Contains(known, u.Scheme):
		r.hinted(path, cmp.Or(didYouMean(u.Scheme, known), `as "http://127.0.0.1:8080"`),
			"the scheme %s is not one of %s", clip(u.Scheme), joined(known))
	case u.Scheme == "unix":
		checkSocketURL(r, path, u)
	case what != "":
		r.field(path, "%s %s: an upstream is a scheme, a host and a port", clip(redacted(u.String())), what)
	case port != "" && (err != nil || n == 0):
		r.field(path, "the port %s is not between 1 and 65535", clip(port))
	}
}

// maxSocket is how many bytes the path of a Unix socket may have on every system.
const maxSocket = 103

// checkSocketURL notes what makes a URL none of a Unix socket.
func checkSocketURL(r *report, path string, u *url.URL) {
	plain := url.URL{Scheme: u.Scheme, Path: u.Path, RawPath: u.RawPath, OmitHost: u.OmitHost}
	switch {
	case *u != plain || !strings.HasPrefix(u.Path, "/") || strings.Contains(u.Path, "\x00"):
		r.hinted(path, `as "unix:/run/app.sock"`, "%s has no absolute path of a socket", clip(redacted(u.String())))
	case len(u.Path) > maxSocket:
		r.field(path, "the path has %d bytes, more than %d", len(u.Path), maxSocket)
	}
}

// notPlain is what a URL has that is not of a scheme, a host and a port; "" for nothing.
func notPlain(u *url.URL) string {
	switch {
	case u.User != nil:
		return "has a user"
	case strings.Trim(u.Path, "/") != "" || u.Opaque != "":
		return "has a path"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "has a query"
	case u.Hostname() == "":
		return "has no host"
	}
	return ""
}
