package config

import (
	"crypto/sha256"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/quotient-go/quotient"
)

// File is a valid configuration file, with every default filled in. A change of it has no effect on a Config
// that was made from it.
type File struct {
	Path     string
	Pool     Pool
	Limiters map[string]Limiter // by name, at most 1,000
	Proxy    *Proxy             // nil without a section [proxy] or [decide]
	Decide   *Decide            // nil without a section [decide]
	Leases   *Leases            // nil without a section [leases]
	Warnings Errors             // settings without an effect, in the order of the text

	name   string            // in errors
	places *places           // nil for one that a program made
	sum    [sha256.Size]byte // of the text
	any    bool              // ReadAny has read it: it may be a throttle.toml
	absent bool              // ReadThrottle has found no file
	added  []string          // names of limiters, by Add
	opened [sha256.Size]byte // of Pool.Source with its secrets, as the source was made from it last
}

// Pool is the section [pool]: the replicas that share the limits.
type Pool struct {
	// Source is the source of the pool's size: dns:NAME, file:PATH, env:, or a scheme of Sources with its
	// argument. Empty means no source: Replicas is the size then. Before the @ of a URL ${NAME} and ${file:PATH}
	// stand for secrets: what a variable of the environment holds, or a file but for a newline at its end. New and
	// each reload look them up. Where one has changed, the source is made anew.
	Source string
	// Replicas is the size until the source has reported, and again once it has been silent for MaxAge: 1 to
	// 1,000,000. 0, the default, means that nobody has said it: see quotient.StartPool. Limits are then those of
	// one replica, and a policy beyond the share gets no hint. With a source MaxAge then needs Await.
	Replicas int
	// Ordinal is the fixed number of this replica, from 1. 0, the default, means that it is not known.
	Ordinal int
	// Weight is the number of replicas that this one counts as, 1 by default and Replicas at most. With a
	// source it is always 1, since the source reports the weight.
	Weight int
	// HoldDown is quotient.HoldDown; 1 minute by default.
	HoldDown time.Duration
	// MaxAge is quotient.HintMaxAge; 0, the default, keeps the last size for ever.
	MaxAge time.Duration
	// Await is quotient.AwaitPool(MaxAge): nothing is admitted until the source has reported. It needs a MaxAge.
	Await bool
}

// Limiter is a section [limiters.NAME].
type Limiter struct {
	Limit     quotient.Limit            // rates, in-flight, deny
	Plans     map[string]quotient.Limit // [limiters.NAME.plans.PLAN]
	Overrides map[string]quotient.Limit // [limiters.NAME.overrides.KEY], at most 1,000
	DryRun    bool
	// Refuse refuses a request at once that would have to wait: mode = "refuse". The default is mode = "wait".
	Refuse bool
	// MaxWait bounds a wait; 0, the default, means as long as the client stays. Only with mode = "wait".
	MaxWait time.Duration
	// QueuePerKey and Queue bound how many requests wait, for one key and in all; 10,000 and 100,000 by default.
	QueuePerKey, Queue int
	// MaxKeys is quotient.MaxKeys; 65,536 by default.
	MaxKeys int
	// Policy is the controller: fixed (the default) or tracking.
	Policy string
	// BeyondShare is quotient.BeyondShare: ceiling = "limit". The default is ceiling = "share".
	BeyondShare bool
	// LongestPause is policy.Retry.Longest: how much of a pause that the upstream announces is waited out. 0, the
	// default, is 10 minutes, and an hour the most. Only with policy = "tracking".
	LongestPause time.Duration
	// Demand is [limiters.NAME.demand]: replicas lend each other unused shares. Nil means that they do not.
	Demand *Demand
}

// Demand is quotient.Demand. It needs a source that sums up, as poolsize/gossip does.
type Demand struct {
	Keys   int           // the most keys that this replica reports at once; 100 by default
	MaxAge time.Duration // of the reports; 2 s by default
}

// Proxy is the section [proxy].
type Proxy struct {
	Listen    string     // host:port or unix:PATH; 127.0.0.1:4040 by default
	Upstreams []*url.URL // http, https or h2c URLs without a path, or unix:PATH; one at least without [decide]
	Host      string     // that upstreams get: of the "client" or the "upstream"; empty: the upstream's if it is https
	Rules     []Rule     // in order: the first that matches a request counts; every request matches one
	Fields    string     // the RateLimit fields of answers: draft-11 (the default), x-ratelimit or off
	Trusted   []netip.Prefix
	// IPv6Prefix is how many bits of an IPv6 address distinguish clients: 1 to 128, 64 by default.
	IPv6Prefix int
	// TrustUnix trusts the peers of a Unix socket as those of Trusted networks.
	TrustUnix bool
	// AmbiguousPaths passes paths on that servers read in several ways, by the rule of the canonical path, or of the
	// reading that Paths settles. Without it they are refused if another reading has another rule.
	AmbiguousPaths bool
	Paths          Paths
	// ProxyProtocol reads the PROXY protocol, versions 1 and 2, of trusted peers, which must send it.
	ProxyProtocol bool
	H2C           bool // HTTP/2 without TLS, beside HTTP/1.1
	TLS           *TLS // nil: none
	UpstreamTLS   UpstreamTLS
	JWT           *JWT // nil: no rule takes its plan or its key from a claim
	Health        Health
	Timeouts      Timeouts
	Max           Max
	Admin         Admin
	Log           Log
	CORS          *CORS // nil: answers of the proxy itself say nothing of origins
}

// Paths is [proxy.paths]: how all upstreams read what servers read in different ways. A rule is found by that. Empty,
// the default of each, is not known.
type Paths struct {
	EncodedSlash   string // %2F: "text" of its segment, or "slash"
	Backslash      string // \ and %5C: "text" of its segment, or "slash"
	Semicolon      string // "text", or "dropped" with the rest of its segment, before anything is decoded
	EncodedPercent string // %25: "text", or "decoded" with what follows: %252F is %2F then
}

// Rule is one of [[proxy.rules]]. Patterns match canonical paths, which have no slash at the end. As in
// http.ServeMux, a pattern such as "/api/" also matches "/api" where no other pattern names that path. It is an
// error if the first rule that matches is not the one that http.ServeMux would choose.
type Rule struct {
	Pattern string // in the syntax of http.ServeMux; its literals are in lower case, as canonical paths are
	Limiter string // name of a limiter; empty when Exempt
	Key     Key
	Or      Key    // counts for a request that has no Key; without a Kind there is none
	Also    []Also // further limiters that must admit a request, at most 8: each in order, behind Limiter
	Plan    Plan
	Weight  int // of a request, 1 if the file names none: it counts as so many, and takes so many slots
	// WeightBy is a field of a trusted peer's request that says its weight in place of Weight. Those of other peers are
	// ignored, and a request that says 0 counts as 1.
	WeightBy Header
	Costs    []Cost   // what each request takes in other units, at most 8
	Count    []string // the statuses of answers that count, such as 401 or 4xx; none: a request always counts
	Exempt   bool     // no limiter is called
	Line     int      // in the file; 0 when there is none
	Refusal  *Refusal
}

// Also is a limiter of a rule beside its own, with the key that it counts by.
type Also struct {
	Limiter string
	Key     Key
	Or      Key // as that of a Rule
}

// All are the limiters of a rule in the order in which they are asked, its own first; none if it is exempt.
func (rule Rule) All() []Also {
	if rule.Exempt {
		return nil
	}
	return append([]Also{{rule.Limiter, rule.Key, rule.Or}}, rule.Also...)
}

// Counts reports whether a request counts that gets an answer of a status of three digits.
func (rule Rule) Counts(status int) bool {
	if len(rule.Count) == 0 {
		return true
	}
	text := strconv.Itoa(status)
	return slices.Contains(rule.Count, text) || slices.Contains(rule.Count, text[:1]+"xx")
}

// Cost is one of [[proxy.rules.costs]]: what a request takes of the rates of a unit, in each limiter of the rule that
// has any. What no upstream can have got costs nothing.
type Cost struct {
	Unit    string
	Default int    // where no field says otherwise, 1 at least
	Request Header // of a trusted peer's request: takes the place of Default; other peers' are ignored
	Answer  Header // of the upstream's answer: takes the place of what was taken, more or less
	Most    int    // a field that says more counts as this; 0 without fields
}

// Header is the name of a header field, which a file spells header:NAME. Empty, it is none.
type Header string

// String returns the field as the file spells it; "" for none.
func (h Header) String() string {
	if h == "" {
		return ""
	}
	return spelt("header", string(h))
}

// Refusal is [proxy.rules.refusal]: the answer in place of the rule's 429. Retry-After and the RateLimit fields stay,
// and so does what calls of gRPC get. Nil, the default of Rule, is a problem document (RFC 9457) of status 429.
type Refusal struct {
	Status int               // 400 to 599; 429 if the file names none
	Body   string            // at most 64 KiB; empty: a problem document of that status
	Type   string            // Content-Type of the body; PlainText if the file names none
	Fields map[string]string // that the answer has too, at most 16; none that are about the message or the limit
}

// PlainText is the Content-Type of the body of a Refusal whose file names none.
const PlainText = "text/plain; charset=utf-8"

// KeyKind is the kind of a Key.
type KeyKind string

// The kinds of keys, as the file spells them. All from KeyHeader on have an argument: key = "header:X-Tenant". A
// request that has the field of a header or a credential twice, or in another spelling that some servers take for it,
// such as X_Tenant, is refused.
const (
	KeyPath       KeyKind = "path"       // the canonical path, the default: httplimit.Path
	KeyPattern    KeyKind = "pattern"    // the rule's pattern: one quota for all it matches
	KeyClient     KeyKind = "client"     // the client's address, by Trusted: httplimit.ClientAddr
	KeyHost       KeyKind = "host"       // httplimit.Host
	KeyHeader     KeyKind = "header"     // httplimit.Header
	KeyCredential KeyKind = "credential" // httplimit.Credential, of Authorization if a file names no other field
	KeyConstant   KeyKind = "constant"   // httplimit.Constant
	KeyCookie     KeyKind = "cookie"     // httplimit.CredentialKey of the first cookie of a name
	KeyQuery      KeyKind = "query"      // the value of a name in the query, decoded; none if it has several
	KeyClaim      KeyKind = "claim"      // a claim of the bearer token, as with PlanClaim
)

// Key is the part of a request that a rule limits by.
type Key struct {
	Kind KeyKind
	Arg  string // the key with KeyConstant, a name with the other kinds that have an argument
	And  []Key  // the parts behind this one where the file has a list: all together are the key
}

// Parts are the parts of a key, each without others behind it.
func (k Key) Parts() []Key {
	all := []Key{{Kind: k.Kind, Arg: k.Arg}}
	for _, part := range k.And {
		all = append(all, part.Parts()...)
	}
	return all
}

// String returns the key as the file spells it, the parts of a list with commas between them.
func (k Key) String() string {
	text := spelt(string(k.Kind), k.Arg)
	for _, part := range k.And {
		text += ", " + part.String()
	}
	return text
}

// spelt is a kind with its argument, if it has one.
func spelt(kind, arg string) string {
	if arg == "" {
		return kind
	}
	return kind + ":" + arg
}

// PlanKind is a part of a request that may name its plan.
type PlanKind string

// The kinds of plans, as the file spells them, each with an argument: plan = "header:X-Plan".
const (
	PlanNone   PlanKind = ""       // the limiter's own limit
	PlanHeader PlanKind = "header" // a header field that a trusted peer has set; other peers' fields are ignored
	PlanClaim  PlanKind = "claim"  // a claim of the bearer token, a JWT that JWT.KeyFile verifies
)

// Plan is the part of a request that names its plan.
type Plan struct {
	Kind PlanKind
	Arg  string
}

// String returns the plan as the file spells it; "" for none.
func (p Plan) String() string { return spelt(string(p.Kind), p.Arg) }

// TLS is [proxy.tls] or [proxy.admin.tls]: the files are read again when they change.
type TLS struct {
	Cert, Key string // PEM files
	ClientCA  string // PEM file; clients need a certificate signed by it. Empty: they need none
}

// UpstreamTLS is [proxy.upstream-tls], for all https upstreams, or [proxy.admin.peers-tls]. The files of the first are
// read again with the file, those of the second when the process starts.
type UpstreamTLS struct {
	CA         string // PEM file; upstreams need a certificate signed by it. Empty: by the authorities of the system
	Cert, Key  string // PEM files, for upstreams that ask for a certificate; both or none
	ServerName string // that the certificate must have, and that an upstream is asked for; empty: the host of its URL
}

// JWT is [proxy.jwt]: the keys that verify bearer tokens. They are read again when they change.
type JWT struct {
	KeyFile  string // PEM of an RSA, ECDSA or Ed25519 public key, or a JWKS
	Issuer   string // that a token must name; empty: any
	Audience string // that a token must name; empty: any
}

// Health is [proxy.health]: how the proxy checks its upstreams.
type Health struct {
	Path      string        // of a GET: 2xx and 3xx are healthy; empty: an accepted connection is
	Every     time.Duration // 5 s by default
	Timeout   time.Duration // 2 s by default
	Unhealthy int           // failures in a row, 3 by default
	Healthy   int           // successes in a row, 1 by default
}

// Timeouts is [proxy.timeouts].
type Timeouts struct {
	ReadHeader     time.Duration // a request's head, 10 s by default
	ReadBody       time.Duration // between two parts of a request's body, 30 s
	Write          time.Duration // between two parts of an answer that the client takes, 30 s
	Idle           time.Duration // a connection without a request, 2 min
	Dial           time.Duration // to an upstream, with its TLS handshake, 5 s
	ResponseHeader time.Duration // from the end of a request to the head of its answer, 60 s
	Stream         time.Duration // the whole of one upgraded connection, 1 h
	Shutdown       time.Duration // from the signal to the end, 20 s
}

// Max is [proxy.max]: the bounds of what clients can use.
type Max struct {
	HeaderBytes int   // of one request's head; 64 KiB by default
	BodyBytes   int64 // of one request's body; 0, the default, means no bound
	Connections int   // of clients; 20,000 by default
	Streams     int   // of one HTTP/2 connection; 250 by default
	Upstream    int   // connections to one address of an upstream; 0, the default, means no bound
	HeldBytes   int64 // that all requests together may have kept; 1 GiB by default
}

// CORS is [proxy.cors]: the scripts of which origins may read what the proxy itself answers.
type CORS struct {
	Origins     []string // as browsers send them, "https://app.example", or "*" for all; one at least
	Credentials bool     // also answers to requests with cookies; not with "*"
	// ExemptPreflights has no limiter called for what asks whether a script of these origins may send a request.
	ExemptPreflights bool
}

// Log is [proxy.log]: the access log, a line of JSON on the standard output for a request.
type Log struct {
	Access     string // off (the default), refusals or all
	Sample     int    // one of so many requests that were not refused has a line; 1 by default
	Keys       string // hashed (the default) or plain: how lines show keys and addresses
	SecretFile string // that hashes are keyed by; empty: a random secret of the process
}

// Admin is [proxy.admin].
type Admin struct {
	Listen            string // host:port or unix:PATH; 127.0.0.1:4041 by default, "off" for none
	TokenFile         string // one bearer token a line; required off loopback, unless TLS has a ClientCA
	ReadOnlyTokenFile string
	Hosts             []string // admin.AllowHosts
	Overrides         string   // the file of admin.KeepOverrides; empty: a restart forgets them
	TLS               *TLS
	// Peers are the pods that the page shows side by side: a list of package admin/pods, whose schemes here are dns,
	// kube and file. Empty: none. A list of names has a ServerName of its own.
	Peers    string
	PeersTLS UpstreamTLS // for those of https
}
