package proxy

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/cmd/quotient/internal/grpcanswer"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/internal/field"
)

type table struct {
	mux     *http.ServeMux    // on canonical paths
	routes  map[string]*route // by pattern
	only    *route            // of all requests; nil where there are several
	trusted []netip.Prefix
	v6bits  int         // of a client's address
	unix    bool        // peers of a Unix socket are trusted
	anyPath bool        // one reading of a path decides
	known   int         // ways of reading that the file settles
	gone    int         // those of them that its upstreams go
	maxBody int64       // 0: any
	doubted atomic.Bool // that trusted is whole, once: see doubt
	access  *accessLog
	cors    *cors         // nil: answers of ours say nothing of origins
	tokens  *verification // nil: none are read
}

// route is what becomes of the requests of a rule.
type route struct {
	spec    spec
	asks    []ask                      // in order; none: exempt
	plan    func(*http.Request) string // nil: none
	reads   []string                   // fields that decide for a request
	believe []string                   // those that do if a trusted peer has sent them
	numbers []string                   // of believe: those that hold a number
	handler http.Handler
	calls   http.Handler // of gRPC; nil: as all others
	learns  bool         // a policy of the limiters does
	fields  span         // that clients get from us
	body    []byte       // of the rule's own refusal
	names   string       // of its fields
	cost    *observer
}

// ask is how a route asks one of its limiters.
type ask struct {
	limiter *quotient.Limiter // nil: it is missing
	key     httplimit.KeyFunc
}

// spec is all that a route is made of. Routes of the same spec are the same.
type spec struct {
	rule    config.Rule
	waits   []wait // by limiter
	fields  string
	trusted string // as a text, with how many bits of an address count
	logged  bool   // hooks tell the access log
	jwt     string // what verifies claims, as a text; "": none is read
}

// wait is how the requests of a route wait for one of its limiters.
type wait struct {
	refuse  bool
	max     time.Duration
	planned bool          // the file has plans of the limiter
	costs   []config.Cost // in units that the limiter counts
}

// newTable makes the routes of a file, which package config has checked, as far as that can be done without its
// limiters.
func newTable(f *config.File) (*table, error) {
	t := &table{
		mux: http.NewServeMux(), routes: make(map[string]*route), trusted: f.Proxy.Trusted, unix: f.Proxy.TrustUnix,
		anyPath: f.Proxy.AmbiguousPaths, maxBody: f.Proxy.Max.BodyBytes, v6bits: f.Proxy.IPv6Prefix,
	}
	t.known, t.gone = settled(f.Proxy.Paths)
	t.cors = newCORS(f.Proxy)
	if f.Proxy.JWT != nil {
		var err error
		if t.tokens, err = readVerification(*f.Proxy.JWT); err != nil {
			return nil, config.Error{
				Field: "proxy.jwt.key-file", Text: err.Error(), Hint: "want PEM of a public key, or a JWKS",
			}
		}
	}
	for _, rule := range f.Proxy.Rules {
		r := t.newRoute(f, rule, t.tokens)
		t.mux.Handle(rule.Pattern, r)
		t.routes[rule.Pattern] = r
	}
	return t, nil
}

// newRoute makes the route of a rule, but for its limiter.
func (t *table) newRoute(f *config.File, rule config.Rule, tokens *verification) *route {
	rule.Line = 0
	r := &route{spec: spec{rule: rule, fields: f.Proxy.Fields, trusted: fmt.Sprint(t.trusted, t.unix, t.v6bits)}}
	r.spec.logged = f.Proxy.Log.Access != "off"
	if rule.Exempt {
		return r
	}
	if rule.Refusal != nil {
		r.body = []byte(rule.Refusal.Body)
		r.names = strings.Join(slices.Sorted(maps.Keys(rule.Refusal.Fields)), ", ")
	}
	for _, one := range rule.All() {
		l := f.Limiters[one.Limiter]
		r.spec.waits = append(r.spec.waits, wait{l.Refuse, l.MaxWait, len(l.Plans) > 0, costsIn(l, rule.Costs)})
		r.asks = append(r.asks, ask{key: t.keyOf(one, rule.Pattern, tokens)})
		for _, part := range append(one.Key.Parts(), one.Or.Parts()...) {
			switch part.Kind {
			case config.KeyHeader, config.KeyCredential:
				r.reads = append(r.reads, http.CanonicalHeaderKey(part.Arg))
			case config.KeyClaim:
				r.spec.jwt, r.reads = tokens.String(), append(r.reads, "Authorization")
			}
		}
	}
	switch rule.Plan.Kind {
	case config.PlanHeader:
		r.plan, r.believe = headerPlan(rule.Plan.Arg), []string{http.CanonicalHeaderKey(rule.Plan.Arg)}
	case config.PlanClaim:
		r.spec.jwt, r.reads = tokens.String(), append(r.reads, "Authorization")
		r.plan = tokens.plan(rule.Plan.Arg)
	}
	r.numbers = numbersOf(rule)
	r.believe = append(r.believe, r.numbers...)
	return r
}

// partOf reads one part of the key of a rule.
func (t *table) partOf(part config.Key, pattern string, tokens *verification) httplimit.KeyFunc {
	switch part.Kind {
	case config.KeyPattern:
		return httplimit.Constant(pattern)
	case config.KeyClient:
		c := httplimit.ClientAddrConfig{Trusted: t.trusted, TrustUnix: t.unix, IPv6Bits: t.v6bits}
		key, _ := c.KeyFunc() // of what was checked
		return key
	case config.KeyHost:
		return httplimit.Host()
	case config.KeyHeader:
		return httplimit.Header(part.Arg)
	case config.KeyCredential:
		return httplimit.Credential(part.Arg)
	case config.KeyCookie:
		return cookieKey(part.Arg)
	case config.KeyQuery:
		return queryKey(part.Arg)
	case config.KeyClaim:
		return tokens.claim(part.Arg)
	case config.KeyConstant:
		return httplimit.Constant(part.Arg)
	}
	return httplimit.Path()
}

// headerPlan reads the plan that a trusted peer has set. The field is not read from other peers.
func headerPlan(name string) func(*http.Request) string {
	return func(r *http.Request) string {
		if f := flightOf(r); f != nil && f.trusted {
			return r.Header.Get(name)
		}
		return ""
	}
}

// join gives the routes their limiters, which are in the registry by now. A route that was in force, of the
// same limiter, stays: it counts what it keeps of bodies, and holds texts of fields.
func (t *table) join(p *Proxy, old *table) {
	if old != nil {
		t.tokens.join(old.tokens)
	}
	for pattern, r := range t.routes {
		for i, one := range r.spec.rule.All() {
			r.asks[i].limiter, _ = p.reg.Get(one.Limiter)
		}
		if old != nil {
			was, same := old.routes[pattern], func(a, b ask) bool { return a.limiter == b.limiter }
			if was != nil && slices.EqualFunc(was.asks, r.asks, same) && reflect.DeepEqual(was.spec, r.spec) {
				t.routes[pattern] = was
				continue
			}
		}
		r.cost = p.cost.observer(pattern)
		r.serveBy(p)
	}
	if len(t.routes) == 1 {
		t.only = t.routes["/"]
	}
	if old == nil {
		return
	}
	for pattern := range old.routes {
		if t.routes[pattern] == nil {
			p.cost.byRule.DeleteLabelValues(pattern)
		}
	}
}

func (r *route) serveBy(p *Proxy) {
	pass := http.HandlerFunc(p.pass)
	for i, one := range r.spec.rule.All() {
		if r.asks[i].limiter == nil { // it was taken out of the registry by hand
			p.log.Error("limiter is missing: its rule answers 503", "limiter", one.Limiter)
			r.handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				writeProblem(w, q, http.StatusServiceUnavailable, time.Second)
			})
			return
		}
	}
	if set := fieldSets[r.spec.fields]; set != httplimit.FieldsOff && len(r.asks) > 0 {
		r.fields = spans[set]
	}
	r.handler, r.calls = pass, pass
	for i := range slices.Backward(r.asks) { // the first is asked first, in front of the others
		r.learns = r.learns || r.asks[i].limiter.Learns()
		r.handler, r.calls = r.limit(p, i, false, r.handler), r.limit(p, i, true, r.calls)
	}
}

// limit puts one of the limiters in front of a handler, for calls of gRPC or for all others.
func (r *route) limit(p *Proxy, i int, calls bool, next http.Handler) http.Handler {
	key, plan, wait := r.asks[i].key, r.plan, r.spec.waits[i]
	opts := []httplimit.Option{httplimit.Drain(p.drain), httplimit.StreamLifetime(httplimit.Forever)} // front ends it
	if i == 0 && r.spec.logged {
		if key = noteKey(key); plan != nil {
			plan = notePlan(plan)
		}
	}
	if i > 0 || calls || r.spec.logged || r.spec.rule.Refusal != nil {
		opts = append(opts, httplimit.OnRefuse(r.refusing(i, calls)))
	}
	if !wait.refuse {
		most := httplimit.Forever
		if wait.max > 0 {
			most = wait.max
		}
		opts = append(opts, httplimit.Wait(most), httplimit.OnWaited(waited))
	}
	if weight := weightOf(r.spec.rule); weight != nil {
		opts = append(opts, httplimit.WeightBy(weight))
	}
	opts = append(opts, costing(r.asks[i].limiter, wait.costs)...)
	if plan != nil && (i == 0 || wait.planned) {
		opts = append(opts, httplimit.PlanBy(plan))
	}
	if set := fieldSets[r.spec.fields]; set != httplimit.FieldsOff {
		opts = append(opts, httplimit.SendFields(set))
	}
	if len(r.spec.rule.Count) > 0 || i < len(r.asks)-1 || len(wait.costs) > 0 {
		opts, next = append(opts, httplimit.Refundable()), taking(wait.costs, next)
	}
	return httplimit.Middleware(r.asks[i].limiter, key, opts...)(next)
}

// refusing is the hook of one of the limiters: what those in front of it have taken goes back.
func (r *route) refusing(i int, calls bool) func(http.ResponseWriter, *http.Request, quotient.Decision) {
	return func(w http.ResponseWriter, q *http.Request, d quotient.Decision) {
		flightOf(q).refund()
		if r.spec.logged {
			noteRefusal(w, q, d)
			if e := entryOf(q); i > 0 {
				e.limiter, e.key = r.spec.rule.Also[i-1].Limiter, r.asks[i].key(q)
			}
		}
		if calls {
			refuseCall(w, q, d)
		} else if own := r.spec.rule.Refusal; own != nil {
			r.refuse(w, q, d, own)
		}
	}
}

// fieldSets are the sets of fields, as a file names them.
var fieldSets = map[string]httplimit.FieldSet{
	"draft-11": httplimit.FieldsDraft11, "x-ratelimit": httplimit.FieldsXRateLimit, "off": httplimit.FieldsOff,
}

// ServeHTTP is not called: the mux only finds a route.
func (r *route) ServeHTTP(http.ResponseWriter, *http.Request) {}

// serve limits a request, and passes it on.
func (r *route) serve(w http.ResponseWriter, q *http.Request) {
	if f := flightOf(q); f.cors != nil && f.cors.spares(q) {
		f.proxy.pass(w, q)
		return
	}
	if r.calls != nil && grpcanswer.Asked(q) {
		r.calls.ServeHTTP(w, q)
		return
	}
	r.handler.ServeHTTP(w, q)
}

// probe is the request that the mux is called with.
type probe struct {
	request http.Request
	url     url.URL
}

var probes = sync.Pool{New: func() any {
	p := new(probe)
	p.request.URL = &p.url
	return p
}}

// find is the route of a request, nil if no rule matches. It is not clear if a server may read the path in another
// way, or take the method for that in upper case, so that another rule is for it.
func (t *table) find(r *http.Request) (to *route, clear bool) {
	if t.only != nil {
		return t.only, true
	}
	u, at, method := r.URL, host(r), strings.ToUpper(r.Method)
	path := httplimit.CanonicalPath(u.Path)
	odd := oddities(u, path)
	if odd&t.known != 0 {
		path = reading(u, t.gone)
	}
	to = t.at(r.Method, at, path)
	if odd &^= t.known; t.anyPath {
		odd = 0
	}
	clear = (t.anyPath || readable(u.Path, odd, t.gone)) && (method == r.Method || t.at(method, at, path) == to)
	for ways := odd; clear && ways != 0; ways = (ways - 1) & odd {
		path = reading(u, ways|t.gone)
		clear = t.at(r.Method, at, path) == to && (method == r.Method || t.at(method, at, path) == to)
	}
	return to, clear
}

// at is the route for a path.
func (t *table) at(method, host, path string) *route {
	p := probes.Get().(*probe)
	p.request.Method, p.request.Host, p.url.Path = method, host, path
	// The pattern is that of the rule also where the mux would redirect from /a to /a/: a canonical path has
	// no slash at its end.
	_, pattern := t.mux.Handler(&p.request)
	p.request.Method, p.request.Host, p.url.Path = "", "", ""
	probes.Put(p)
	return t.routes[pattern]
}

// unclear says why a request may be another one to the upstream, "" if it is not: by its path, or by a field that
// decides for the route and is there twice.
func (r *route) unclear(q *http.Request, clear, trusted bool) string {
	if !clear {
		return "Servers read such a path or method in several ways."
	}
	for _, names := range [][]string{r.reads, r.believe} {
		if i := slices.IndexFunc(names, func(name string) bool { return several(q, name) }); i >= 0 {
			return "The field " + names[i] + " must be there once, in this spelling."
		}
		if !trusted {
			return ""
		}
	}
	for _, name := range r.numbers {
		if lines := q.Header[name]; len(lines) > 0 && !isNumber(lines[0]) {
			return "The field " + name + " must be a whole number."
		}
	}
	return ""
}

// several reports whether there is another line of a field, or one in a spelling that some servers take for it.
func several(q *http.Request, name string) bool {
	if len(q.Header[name]) > 1 {
		return true
	}
	for other := range q.Header {
		if len(other) == len(name) && other != name && field.Alike(other, name) {
			return true
		}
	}
	for other := range q.Trailer {
		if field.Alike(other, name) {
			return true
		}
	}
	return false
}

// host is the host of a request in one form.
var host = httplimit.Host()

// trusts reports whether the peer of a request is trusted.
func (t *table) trusts(r *http.Request) bool {
	if ofUnix(r) {
		return t.unix
	}
	if len(t.trusted) == 0 {
		return false
	}
	at := peer(r)
	return at.IsValid() && slices.ContainsFunc(t.trusted, func(p netip.Prefix) bool { return p.Contains(at) })
}

// doubt warns, once for a file, where a proxy of ours seems to be missing in trusted: a peer of a private network that
// is not trusted names addresses before its own. Others may well be clients that would like to be somebody else.
func (t *table) doubt(r *http.Request, log *slog.Logger) {
	if t.doubted.Load() || len(r.Header["X-Forwarded-For"])+len(r.Header["Forwarded"]) == 0 {
		return
	}
	at, add := peer(r), "trust-unix = true"
	if !ofUnix(r) {
		add = fmt.Sprintf("trusted = [%q]", at)
	}
	if (ofUnix(r) || at.IsPrivate() || at.IsLoopback() || at.IsLinkLocalUnicast()) && !t.doubted.Swap(true) {
		log.Warn("a peer that is not trusted names addresses of clients: if it is a proxy of yours, its clients "+
			"share one address, and https becomes http", "peer", r.RemoteAddr, "add", "proxy."+add)
	}
}
