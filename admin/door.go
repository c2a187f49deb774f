package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// shortestToken is the least number of bytes of a token: 16 random ones are beyond guessing.
const shortestToken = 16

// token is a bearer token by its hash, so that neither its length nor its bytes show in how long a comparison takes.
type token struct {
	label    string // for the log
	sum      [sha256.Size]byte
	readOnly bool
}

// Token requires one of these bearer tokens ("Authorization: Bearer ...") for every request, also from the
// loopback interface; 401 without. A token is 16 bytes or more of letters, digits and -._~+/=; make it from
// at least 16 random bytes. With several tokens an old one can remain valid for a while. The log calls them
// "token 1", "token 2" and so on, in the order of the options. None may be one of [ReadOnlyToken] too. The
// page's files and the OpenAPI document need no token: they contain no data.
func Token(secrets ...string) Option { return tokens(false, secrets) }

// ReadOnlyToken is Token for clients that may read and not write: a write is answered with 403.
func ReadOnlyToken(secrets ...string) Option { return tokens(true, secrets) }

func tokens(readOnly bool, secrets []string) Option {
	return func(h *handler) {
		h.mustBe(len(secrets) > 0, "Token: none given")
		for _, secret := range secrets {
			label := fmt.Sprintf("token %d", len(h.tokens)+1)
			h.mustBe(len(secret) >= shortestToken, "Token: %s: %d bytes are fewer than %d", label, len(secret), shortestToken)
			h.mustBe(strings.Trim(secret, tokenBytes) == "",
				"Token: %s: it has other bytes than letters, digits and -._~+/=", label)
			sum := sha256.Sum256([]byte(secret))
			for _, t := range h.tokens {
				h.mustBe(t.sum != sum || t.readOnly == readOnly,
					"Token: %s and %s are the same, and one of them is for reading only", t.label, label)
			}
			h.tokens = append(h.tokens, token{label, sum, readOnly})
		}
	}
}

const tokenBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/="

// MutualTLS requires a client certificate that the server's tls.Config has verified (ClientCAs, and
// ClientAuth VerifyClientCertIfGiven or stricter); 401 without. With Token too, one of the two is enough.
// The log has the certificate's subject.
func MutualTLS() Option {
	return func(h *handler) { h.mutual = true }
}

// BehindAuthentication declares that a middleware or a proxy in front of the handler authenticates every request. The
// handler then serves requests from any address, forwarded ones too. It checks Host and origin as always.
func BehindAuthentication() Option {
	return func(h *handler) { h.inFront = true }
}

// caller is the client that sent a request, for the log.
type caller struct {
	name     string // of the token or the certificate
	readOnly bool
}

// identify returns the caller, or a Problem if the caller may not send the request. Where there are tokens,
// public resources are served to all.
func (h *handler) identify(r *http.Request, public bool) (caller, *Problem) {
	who, known := h.authenticate(r)
	switch {
	case known && who.readOnly && r.Method != http.MethodGet && r.Method != http.MethodHead:
		return who, &Problem{
			Status: http.StatusForbidden, Detail: "this token is for reading only",
			Field: "Authorization", Value: who.name, Range: "a token that may write",
		}
	case known, public && len(h.tokens) > 0:
		return who, nil
	case h.guarded():
		p := &Problem{Status: http.StatusUnauthorized, Detail: "credentials are missing or not the right ones"}
		if p.Field, p.Range = "Authorization", "Bearer and a token"; len(h.tokens) == 0 {
			p.Field, p.Range = "client certificate", "one that the server can verify"
		}
		return who, p
	case h.inFront:
		return who, nil
	case local(r):
		return who, forwarded(r)
	}
	return who, &Problem{
		Status: http.StatusForbidden,
		Detail: "without a token or client certificates only the loopback interface and Unix sockets are served",
		Field:  "remote address", Value: clip(r.RemoteAddr), Range: "127.0.0.0/8, ::1, a Unix socket",
	}
}

// guarded reports whether the handler looks at credentials itself.
func (h *handler) guarded() bool { return h.mutual || len(h.tokens) > 0 }

// authenticate looks for a certificate or a token that counts. Every token is compared, whichever matches.
func (h *handler) authenticate(r *http.Request) (caller, bool) {
	if h.mutual && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return caller{name: "certificate " + r.TLS.VerifiedChains[0][0].Subject.String()}, true
	}
	secret, t := h.bearer(r)
	return caller{t.label, t.readOnly}, secret != ""
}

// bearer is the token of a request that is one of the handler's, "" for none.
func (h *handler) bearer(r *http.Request) (secret string, of token) {
	given := r.Header.Values("Authorization")
	if len(given) != 1 {
		return "", token{}
	}
	scheme, secret, _ := strings.Cut(given[0], " ")
	sum := sha256.Sum256([]byte(secret))
	found := 0
	for _, t := range h.tokens {
		if subtle.ConstantTimeCompare(t.sum[:], sum[:]) == 1 {
			of, found = t, 1
		}
	}
	if found == 0 || !strings.EqualFold(scheme, "Bearer") {
		return "", token{}
	}
	return secret, of
}

// local reports whether a request came in over a Unix socket, or over the loopback interface at both ends.
func local(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	return addr.Network() == "unix" || loopback(addr.String()) && loopback(r.RemoteAddr)
}

// forwarded is why a request is not served that claims to come from elsewhere: the proxy is on this machine,
// and its client may not be.
func forwarded(r *http.Request) *Problem {
	for name, values := range r.Header {
		plain := strings.ReplaceAll(strings.ToLower(name), "_", "-") // as some proxies spell it
		if strings.HasPrefix(plain, "x-forwarded") || slices.Contains(ofProxies, plain) {
			return &Problem{
				Status: http.StatusForbidden,
				Detail: "a proxy has forwarded this request, so its caller is not known: " +
					"a token, client certificates or BehindAuthentication is needed",
				Field: name, Value: clip(strings.Join(values, ", ")), Range: "no such header field",
			}
		}
	}
	return nil
}

// ofProxies are fields that proxies add, beside all that begin with X-Forwarded.
var ofProxies = []string{
	"forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "x-original-forwarded-for", "true-client-ip",
	"cf-connecting-ip", "fastly-client-ip", "fly-client-ip", "x-envoy-external-address",
}

func loopback(hostport string) bool {
	addr, err := netip.ParseAddrPort(hostport)
	return err == nil && addr.Addr().Unmap().IsLoopback()
}

// refuse answers a request that may not pass the door, and counts it. The connection ends: strangers must not
// hold the places of operators.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, who caller, p *Problem) {
	if n := h.failed.add(time.Now()); n > 0 {
		h.log.Warn("quotient: admin request refused at the door", "status", p.Status, "because", p.Detail, "from", r.RemoteAddr, "by", who.name,
			"method", clip(r.Method), "path", clip(r.URL.Path), "host", clip(r.Host), "refused_since_last_line", n)
	}
	if p.Status == http.StatusUnauthorized && len(h.tokens) > 0 {
		w.Header().Set("WWW-Authenticate", `Bearer realm="quotient"`)
	}
	w.Header().Set("Connection", "close")
	writeProblem(w, p)
}

// failures counts what strangers did not get, for one line a second.
type failures struct {
	mu    sync.Mutex
	last  time.Time // of the last line
	since int       // then
}

// add counts one, and returns how many there were since the last line when it is time for another one, else 0.
func (f *failures) add(now time.Time) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since++
	if now.Sub(f.last) < time.Second {
		return 0
	}
	n := f.since
	f.last, f.since = now, 0
	return n
}
