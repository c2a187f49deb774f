package proxy

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	entryv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	extauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	upstreamsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"

	"github.com/quotient-go/quotient/internal/tested"
)

// valid is a message of Envoy's that checks its own fields.
type valid interface {
	proto.Message
	ValidateAll() error
}

// envoyFile decodes a file of the folder strictly.
func envoyFile[M valid](t *testing.T, name string, m M) M {
	t.Helper()
	text, err := yaml.YAMLToJSONStrict([]byte(besideFile(t, name)))
	must(t, err)
	must(t, protojson.Unmarshal(text, m))
	must(t, m.ValidateAll())
	return m
}

// opened is the message that must be in an Any.
func opened[M valid](t *testing.T, in *anypb.Any, m M) M {
	t.Helper()
	must(t, in.UnmarshalTo(m))
	must(t, m.ValidateAll())
	return m
}

// dial is a connection to quotient decide, as Envoy's cluster has it.
func (b *behind) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(b.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// descriptors are those that Envoy makes of a route's actions for a request from an address.
func descriptors(t *testing.T, r *routev3.Route, from string) (all []*entryv3.RateLimitDescriptor) {
	t.Helper()
	for _, limit := range r.GetRoute().GetRateLimits() {
		d := &entryv3.RateLimitDescriptor{}
		for _, a := range limit.GetActions() {
			if a.GetRemoteAddress() == nil {
				t.Fatalf("what does %v make?", a)
			}
			d.Entries = append(d.Entries, &entryv3.RateLimitDescriptor_Entry{Key: "remote_address", Value: from})
		}
		all = append(all, d)
	}
	return all
}

// envoyConf returns the filter of rate limits and the routes of the configuration: that of health checks, and
// that of all else. It checks that no client may name its own address, and that the filter asks by HTTP/2.
func envoyConf(t *testing.T) (*ratelimitv3.RateLimit, []*routev3.Route) {
	t.Helper()
	conf := envoyFile(t, "envoy.yaml", &bootstrapv3.Bootstrap{}).GetStaticResources()
	var manager managerv3.HttpConnectionManager
	opened(t, conf.GetListeners()[0].GetFilterChains()[0].GetFilters()[0].GetTypedConfig(), &manager)
	filter := opened(t, manager.GetHttpFilters()[0].GetTypedConfig(), &ratelimitv3.RateLimit{})
	opened(t, manager.GetHttpFilters()[1].GetTypedConfig(), &routerv3.Router{})
	var options upstreamsv3.HttpProtocolOptions
	cluster, name := conf.GetClusters()[1], string(options.ProtoReflect().Descriptor().FullName())
	opened(t, cluster.GetTypedExtensionProtocolOptions()[name], &options)
	asked := filter.GetRateLimitService().GetGrpcService().GetEnvoyGrpc().GetClusterName()
	if asked != cluster.GetName() || options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() == nil ||
		!manager.GetUseRemoteAddress().GetValue() {
		t.Errorf("%q is not the cluster of gRPC, or a client may name any address", asked)
	}
	return filter, manager.GetRouteConfig().GetVirtualHosts()[0].GetRoutes()
}

// TestEnvoyAsksForRateLimits sends what an Envoy with the configuration asks the rate limit service. No Envoy
// runs here: what it does with the answers is by its documentation.
func TestEnvoyAsksForRateLimits(t *testing.T) {
	t.Parallel()
	filter, routes := envoyConf(t)
	if asked := descriptors(t, routes[0], "192.0.2.1"); len(asked) > 0 {
		t.Errorf("health checks are asked about: %v", asked)
	}
	b := newBehind(t, "envoy-ratelimit.toml", "")
	limits := strings.Replace(besideFile(t, "ratelimit.yaml"), "unit: minute", "unit: day", 1)
	must(t, os.WriteFile(filepath.Join(filepath.Dir(b.file), "ratelimit.yaml"), []byte(limits), 0o600))
	decide := b.decide(t, b.grpc)
	ask := func(from string) (*rlsv3.RateLimitResponse, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 40*filter.GetTimeout().AsDuration()) // a test may be slower
		defer cancel()
		return rlsv3.NewRateLimitServiceClient(b.dial(t)).ShouldRateLimit(ctx,
			&rlsv3.RateLimitRequest{Domain: filter.GetDomain(), Descriptors: descriptors(t, routes[1], from)})
	}
	for i := range 42 {
		want, left := rlsv3.RateLimitResponse_OK, uint32(max(0, 39-i))
		if i >= 40 {
			want = rlsv3.RateLimitResponse_OVER_LIMIT
		}
		got, err := ask("192.0.2.1")
		must(t, err)
		if s := got.GetStatuses(); got.GetOverallCode() != want || len(s) != 1 || s[0].GetLimitRemaining() != left ||
			s[0].GetCurrentLimit().GetRequestsPerUnit() != 40 || s[0].GetDurationUntilReset() == nil ||
			len(got.GetResponseHeadersToAdd()) != 2 {
			t.Fatalf("question %d: %v, want %v and %d left", i+1, got, want, left)
		}
	}
	got, err := ask("192.0.2.2")
	must(t, err)
	tested.Want(t, "another client", got.GetOverallCode(), rlsv3.RateLimitResponse_OK)
	must(t, decide.Kill())
	_, err = ask("192.0.2.1")
	tested.Want(t, "while quotient is away", status.Code(err), codes.Unavailable)
}

// checks are the two ways of Envoy's filter ext_authz to ask for a request, by their configurations. They return the
// status of a refusal, or 200, and the fields of the answer to the client.
var checks = map[string]func(*testing.T, *behind, *extauthzv3.ExtAuthz, question) (int, http.Header, error){
	"envoy-ext_authz.yaml": checkGRPC, "envoy-ext_authz-http.yaml": checkHTTP,
}

// appended is X-Forwarded-For as Envoy passes it on with use_remote_address: the client's own, and its address.
func appended(q question) string {
	if name, value, _ := strings.Cut(q.field, ": "); name == "X-Forwarded-For" {
		return value + "," + q.from
	}
	return q.from
}

func checkGRPC(t *testing.T, b *behind, conf *extauthzv3.ExtAuthz, q question) (int, http.Header, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 40*conf.GetGrpcService().GetTimeout().AsDuration())
	defer cancel()
	at := func(address string) *authv3.AttributeContext_Peer {
		return &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
			SocketAddress: &corev3.SocketAddress{Address: address},
		}}}
	}
	headers := &corev3.HeaderMap{}
	add := func(name, value string) {
		one := &corev3.HeaderValue{Key: strings.ToLower(name), RawValue: []byte(value)}
		headers.Headers = append(headers.Headers, one)
	}
	add(":method", q.method)
	add(":path", q.path)
	add(":authority", "app.test")
	add("x-forwarded-for", appended(q))
	if name, value, ok := strings.Cut(q.field, ": "); ok && name != "X-Forwarded-For" {
		add(name, value)
	}
	tested.Want(t, "encode_raw_headers", conf.GetEncodeRawHeaders(), true)
	asked := &authv3.AttributeContext_HttpRequest{Id: "1", Method: q.method, HeaderMap: headers, Path: q.path,
		Host: "app.test", Scheme: "http", Protocol: "HTTP/1.1"}
	got, err := authv3.NewAuthorizationClient(b.dial(t)).Check(ctx, &authv3.CheckRequest{
		Attributes: &authv3.AttributeContext{Source: at(q.from), Destination: at("127.0.0.1"),
			Request: &authv3.AttributeContext_Request{Http: asked}}})
	if err != nil {
		return 0, nil, err
	}
	status, fields := http.StatusOK, got.GetOkResponse().GetResponseHeadersToAdd()
	if denied := got.GetDeniedResponse(); got.GetStatus().GetCode() != int32(codes.OK) {
		status, fields = int(denied.GetStatus().GetCode()), denied.GetHeaders()
	}
	h := http.Header{}
	for _, f := range fields {
		h.Add(f.GetHeader().GetKey(), f.GetHeader().GetValue()+string(f.GetHeader().GetRawValue()))
	}
	return status, h, nil
}

func checkHTTP(t *testing.T, b *behind, conf *extauthzv3.ExtAuthz, q question) (int, http.Header, error) {
	s := conf.GetHttpService()
	r, err := http.NewRequestWithContext(t.Context(), q.method, "http://"+b.http+s.GetPathPrefix()+q.path, nil)
	must(t, err)
	r.Host = "app.test"
	client := strings.NewReplacer("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", q.from)
	for _, add := range s.GetAuthorizationRequest().GetHeadersToAdd() { // no field of the client's goes with it
		r.Header.Set(add.GetKey(), client.Replace(add.GetValue()))
	}
	c := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(r)
	if err != nil {
		return 0, nil, err
	}
	must(t, resp.Body.Close())
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode, resp.Header, nil
	}
	h := http.Header{}
	for _, m := range s.GetAuthorizationResponse().GetAllowedClientHeadersOnSuccess().GetPatterns() {
		if lines := resp.Header.Values(m.GetExact()); len(lines) > 0 {
			h[http.CanonicalHeaderKey(m.GetExact())] = lines
		}
	}
	return http.StatusOK, h, nil
}

// TestEnvoyAsksForAuthorization sends what Envoy's filter ext_authz with its configuration asks.
func TestEnvoyAsksForAuthorization(t *testing.T) {
	for name, check := range checks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var conf extauthzv3.ExtAuthz
			opened(t, envoyFile(t, name, &managerv3.HttpFilter{}).GetTypedConfig(), &conf)
			b := newBehind(t, "quotient.toml", "envoy")
			decide := b.decide(t, b.http)
			ask := func(what string, want int, q question) http.Header {
				t.Helper()
				q.from, q.method, q.path = cmp.Or(q.from, "127.0.0.2"), cmp.Or(q.method, "GET"), cmp.Or(q.path, "/")
				got, h, err := check(t, b, &conf, q)
				must(t, err)
				tested.Want(t, what, got, want)
				return h
			}
			for i := range 40 {
				what, left := fmt.Sprint("request ", i+1), fmt.Sprintf(";r=%d;", 39-i)
				h := ask(what, http.StatusOK, question{method: "POST", path: "/a%2Fb?q=1"})
				if !strings.Contains(h.Get("RateLimit"), left) || h.Get("RateLimit-Policy") == "" {
					t.Fatalf("%s: fields %v", what, h)
				}
			}
			h := ask("request 41", http.StatusTooManyRequests, question{})
			if h.Get("Retry-After") == "" || h.Get("RateLimit") == "" {
				t.Errorf("request 41: fields %v", h)
			}
			for _, lie := range lies {
				ask(lie, http.StatusTooManyRequests, question{path: "/?hold=1m", field: lie})
			}
			closed := map[string]int{"envoy-ext_authz.yaml": 503, "envoy-ext_authz-http.yaml": 403}
			ask("refused by 503", closed[name], question{path: "/closed"})
			ask("another client", http.StatusOK, question{from: "127.0.0.3"})
			ask("exempt", http.StatusOK, question{path: "/health"})
			must(t, decide.Kill())
			if _, _, err := check(t, b, &conf, question{from: "127.0.0.2", method: "GET", path: "/"}); err == nil {
				t.Error("quotient is away, and answers")
			}
		})
	}
}
