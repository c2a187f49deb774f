package door

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc/peer"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/cmd/quotient/internal/proxy"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/tested"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var must = tested.Must

func want[T comparable](t tested.TB, what string, got, wanted T) {
	t.Helper()
	tested.Want(t, what, got, wanted)
}

// world is a Door before the handler of quotient proxy.
type world struct {
	t     tested.TB
	reg   *quotient.Registry
	door  *Door
	proxy *proxy.Proxy
}

// rules is a file whose limiters admit one request an hour for each key.
const rules = `
[decide]
profile = "PROFILE"
max-hold = "1m"

[limiters.all]
mode = "refuse"
rates = [{ name = "hour", events = 1, per = "1h", burst = 1, no-turns = true }]

[limiters.tenants]
mode = "refuse"
rates = [{ name = "hour", events = 1, per = "1h", burst = 1, no-turns = true }]

[limiters.slots]
mode = "refuse"
in-flight = 1

[proxy]
trusted = ["10.0.0.0/8", "fd00::/8"]
trust-unix = true

[[proxy.rules]]
pattern = "shop.example/pay/"
limiter = "tenants"
key = "query:item"

[[proxy.rules]]
pattern = "/path/"
limiter = "all"

[[proxy.rules]]
pattern = "POST /pay/"
limiter = "tenants"
key = "header:X-Tenant"
refusal = { status = 503, body = "later" }

[[proxy.rules]]
pattern = "/slots/"
limiter = "slots"
key = "pattern"

[[proxy.rules]]
pattern = "/free/"
exempt = true

[[proxy.rules]]
pattern = "/"
limiter = "all"
key = "client"
`

// newWorld makes a world of rules with a profile.
func newWorld(t tested.TB, profile string) *world {
	t.Helper()
	w := &world{t: t, reg: new(quotient.Registry), door: New(nil)}
	w.proxy = proxy.New(w.reg, w.door, nil)
	w.door.SetHandler(w.proxy)
	f, err := config.Parse("test.toml", []byte(strings.Replace(rules, "PROFILE", profile, 1)))
	must(t, err)
	_, err = config.New(f, w.reg, config.With(w.proxy), config.With(w.door))
	must(t, err)
	return w
}

// do has a handler answer a request.
func do(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// read is a request as its text has it, from an address.
func read(t testing.TB, from, text string) *http.Request {
	t.Helper()
	text = strings.ReplaceAll(strings.TrimSpace(text), "\n", "\r\n") + "\r\n\r\n"
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	must(t, err)
	r.RemoteAddr = from
	return r
}

// asker is an address that may ask.
const asker = "127.0.0.1:4711"

// sent is what a client sends to a proxy.
type sent struct {
	method, host, target, from string
	header                     http.Header
}

// request is what the proxy gets. It is answered by the handler of quotient proxy.
func (s sent) request() *http.Request {
	r := httptest.NewRequest(s.method, s.target, nil)
	r.Host, r.Header, r.RemoteAddr = s.host, s.header.Clone(), net.JoinHostPort(s.from, "999")
	return r
}

// described is the question of a proxy that is configured as docs/decide.md has it.
func (s sent) described(profile string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/decide", nil)
	h := s.header.Clone()
	r.Header, r.RemoteAddr = h, asker
	switch profile {
	case "forward-auth":
		chain := slices.Concat(h["X-Forwarded-For"], []string{s.from})
		h["X-Forwarded-For"] = []string{strings.Join(chain, ", ")}
		h.Set("X-Forwarded-Method", s.method)
		h.Set("X-Forwarded-Host", s.host)
		h.Set("X-Forwarded-Uri", s.target)
		h.Set("X-Forwarded-Proto", "https")
	case "envoy":
		r = httptest.NewRequest(s.method, "/decide"+s.target, nil)
		r.Host, r.Header, r.RemoteAddr = s.host, h, asker
		h.Set("X-Real-Ip", s.from)
		h.Add("X-Forwarded-For", "10.1.1.1")
	default:
		h.Set("X-Original-Method", s.method)
		h.Set("X-Original-Host", s.host)
		h.Set("X-Original-Uri", s.target)
		h.Set("X-Real-Ip", s.from)
	}
	return r
}

// attributes are the question of Envoy over gRPC, with raw headers or without.
func (s sent) attributes(raw bool) *authv3.CheckRequest {
	asked := &authv3.AttributeContext_HttpRequest{Method: s.method, Host: s.host, Path: s.target, Scheme: "https"}
	if raw {
		asked.HeaderMap = new(corev3.HeaderMap)
	} else {
		asked.Headers = map[string]string{":method": s.method, ":authority": s.host, ":path": s.target}
	}
	for name, lines := range s.header {
		if !raw {
			asked.Headers[strings.ToLower(name)] = strings.Join(lines, ",")
			continue
		}
		for _, line := range lines {
			one := &corev3.HeaderValue{Key: strings.ToLower(name), RawValue: []byte(line)}
			asked.HeaderMap.Headers = append(asked.HeaderMap.Headers, one)
		}
	}
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source:  &authv3.AttributeContext_Peer{Address: address(s.from)},
		Request: &authv3.AttributeContext_Request{Http: asked},
	}}
}

func address(text string) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: text, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 999},
	}}}
}

// ofPeer is a context of a call from an address.
func ofPeer(ctx context.Context, text string) context.Context {
	at, err := net.ResolveTCPAddr("tcp", text)
	if err != nil {
		panic(err)
	}
	return peer.NewContext(ctx, &peer.Peer{Addr: at})
}

// keys are the keys of all limiters, with what is taken of them.
func (w *world) keys() string {
	var all []string
	for _, name := range []string{"all", "tenants", "slots"} {
		l, _ := w.reg.Get(name)
		for k := range l.Keys() {
			all = append(all, fmt.Sprintf("%s %q", name, k.Key))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// decision is the status that the handler of quotient proxy has answered with, as a profile tells it.
func decision(res *http.Response) string {
	return cmp.Or(res.Header.Get("Quotient-Status"), fmt.Sprint(res.StatusCode))
}
