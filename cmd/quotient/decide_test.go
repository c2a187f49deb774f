//go:build unix

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/internal/tested"
)

// decides is quotient decide with a file of rate limits, and a connection to its gRPC.
type decides struct {
	*process
	dir  string
	conn *grpc.ClientConn
}

// decide runs quotient decide with a file that has more in [decide], and the YAML of so many requests a minute.
func decide(t *testing.T, perMinute int, creds credentials.TransportCredentials, text string) *decides {
	t.Helper()
	dir, err := os.MkdirTemp("", "q") // the name of a socket may not be long
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := &decides{dir: dir}
	d.limit(t, perMinute)
	path := filepath.Join(dir, "quotient.toml")
	renamed(t, path, "[decide]\ngrpc = \"unix:grpc.sock\"\nratelimit-files = [\"limits.yaml\"]\n"+text)
	d.process = launch(t, "decide", "--log", "json", "-c", path)
	d.url, _ = d.logged("decisions are given")["http"].(string)
	d.page = d.logged("operator's page")["url"].(string)
	d.conn = dialed(t, "unix:"+filepath.Join(dir, "grpc.sock"), creds)
	return d
}

func dialed(t *testing.T, address string, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// limit writes the file of rate limits.
func (d *decides) limit(t *testing.T, perMinute int) {
	t.Helper()
	renamed(t, filepath.Join(d.dir, "limits.yaml"), fmt.Sprintf(
		"domain: edge\ndescriptors:\n  - key: user\n    rate_limit:\n      unit: day\n      requests_per_unit: %d\n", perMinute))
}

// hit asks for a user, and returns the code and what is left.
func hit(ctx context.Context, conn *grpc.ClientConn, user string) (ratelimitv3.RateLimitResponse_Code, uint32, error) {
	a, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{
		Domain: "edge", Descriptors: []*ratelimitv3common.RateLimitDescriptor{{
			Entries: []*ratelimitv3common.RateLimitDescriptor_Entry{{Key: "user", Value: user}},
		}},
	})
	if err != nil {
		return 0, 0, err
	}
	return a.OverallCode, a.Statuses[0].LimitRemaining, nil
}

const forDecisions = `
[limiters.api]
mode = "refuse"
rates = [{ events = 2, per = "1d", kind = "window" }]
[[proxy.rules]]
pattern = "/held"
limiter = "held"
[limiters.held]
in-flight = 1
[[proxy.rules]]
pattern = "/"
limiter = "api"
key = "client"
[proxy.admin]
listen = "127.0.0.1:0"
`

// question is one as Traefik and Caddy ask it.
func question(t *testing.T, url, path string) answer {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url+"/decide", nil)
	must(t, err)
	for name, value := range map[string]string{
		"Method": "GET", "Proto": "http", "Host": "a.test", "Uri": path, "For": "192.0.2.7",
	} {
		req.Header.Set("X-Forwarded-"+name, value)
	}
	resp, err := client.Do(req)
	must(t, err)
	must(t, resp.Body.Close())
	return answer{status: resp.StatusCode, header: resp.Header}
}

// TestDecide: one process answers Envoy's two services, questions over HTTP and the operator, and ends in order.
func TestDecide(t *testing.T) {
	d := decide(t, 2, insecure.NewCredentials(), "http = \"127.0.0.1:0\"\n"+forDecisions)
	for i, want := range []ratelimitv3.RateLimitResponse_Code{
		ratelimitv3.RateLimitResponse_OK, ratelimitv3.RateLimitResponse_OK, ratelimitv3.RateLimitResponse_OVER_LIMIT,
	} {
		code, _, err := hit(t.Context(), d.conn, "bob")
		must(t, err)
		equal(t, fmt.Sprintf("call %d", i), code, want)
	}
	equal(t, "a question", question(t, d.url, "/x").status, http.StatusOK)
	auth, err := authv3.NewAuthorizationClient(d.conn).Check(t.Context(), &authv3.CheckRequest{
		Attributes: &authv3.AttributeContext{
			Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
				SocketAddress: &corev3.SocketAddress{Address: "192.0.2.7"},
			}}},
			Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
				Method: "GET", Host: "a.test", Path: "/y", Scheme: "http", Protocol: "HTTP/1.1",
			}},
		},
	})
	must(t, err)
	equal(t, "a question of Envoy's", codes.Code(auth.GetStatus().GetCode()), codes.OK)
	a := question(t, d.url, "/z") // the third of the client
	equal(t, "a question over the limit", a.status, http.StatusTooManyRequests)
	if a.header.Get("Retry-After") == "" {
		t.Errorf("it has no Retry-After: %v", a.header)
	}
	s := d.state()
	for name, want := range map[string]uint64{"edge.user": 2, "api": 2} {
		if l := s.Limiters[name]; l.Admitted != want || len(l.Refused) != 1 {
			t.Errorf("%s: got %+v", name, l)
		}
	}
	ops, err := admin.NewClient(d.page)
	must(t, err)
	_, err = ops.Override(t.Context(), "edge.user", "user=eve", nil, 0)
	must(t, err)
	for path, want := range map[string]codes.Code{
		"": codes.OK, "envoy.service.auth.v3.Authorization": codes.OK, "nosuch": codes.NotFound,
	} {
		_, err := healthv1.NewHealthClient(d.conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: path})
		equal(t, "health of "+path, status.Code(err), want)
	}
	d.says("ready", http.StatusOK, "ready\n")
	contains(t, get(t, d.page+"metrics").body, `quotient_requests_total{`, `quotient_proxy_connections 1`)

	watch, err := healthv1.NewHealthClient(d.conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
	must(t, err)
	now, err := watch.Recv()
	must(t, err)
	equal(t, "health", now.Status, healthv1.HealthCheckResponse_SERVING)
	d.signal(syscall.SIGTERM)
	now, err = watch.Recv()
	must(t, err)
	equal(t, "health at the end", now.Status, healthv1.HealthCheckResponse_NOT_SERVING)
	_, err = watch.Recv()
	equal(t, "the end of a watch", status.Code(err), codes.Unavailable)
	d.ends(exitOK)
}

// TestRateLimitFilesUnderLoad: a change of the YAML counts without a call that fails, keeps what was counted, and a
// broken one changes nothing.
func TestRateLimitFilesUnderLoad(t *testing.T) {
	d := decide(t, 1000, insecure.NewCredentials(), "http = \"off\"\n[proxy.admin]\nlisten = \"127.0.0.1:0\"\n")
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var failed atomic.Value
	for i := range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				if _, _, err := hit(ctx, d.conn, fmt.Sprint(i)); err != nil && ctx.Err() == nil {
					failed.Store(err)
				}
			}
		})
	}
	defer clients.Wait()
	defer stop()
	_, _, err := hit(ctx, d.conn, "bob")
	must(t, err)
	reads := func(perMinute int) {
		t.Helper()
		d.limit(t, perMinute)
		await(t, "the file is read again", func() bool {
			l := d.state().Limiters["edge.user"].Limit
			return len(l.Rates) == 1 && l.Rates[0].Events == float64(perMinute)
		})
	}
	reads(2000)
	renamed(t, filepath.Join(d.dir, "limits.yaml"), "domain: edge\ndescriptors:\n  - key: user\n    rate_limits: 5\n")
	d.until("the error is shown", func(s admin.State) bool { return strings.Contains(s.File.Error, "limits.yaml:4:") })
	d.logged("file refused")
	equal(t, "the limit", d.state().Limiters["edge.user"].Limit.Rates[0].Events, 2000.)
	must(t, os.Remove(filepath.Join(d.dir, "limits.yaml")))
	d.until("the error is shown", func(s admin.State) bool { return strings.Contains(s.File.Error, "no such file") })
	reads(3000)
	_, left, err := hit(ctx, d.conn, "bob")
	must(t, err)
	equal(t, "left of 3000", left, uint32(2998))
	if err := failed.Load(); err != nil {
		t.Errorf("a call failed: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(d.dir, "quotient.toml"))
	must(t, err)
	for field, next := range map[string]string{
		"decide.grpc": strings.Replace(string(text), "unix:grpc.sock", "unix:other.sock", 1),
		"decide.ratelimit-kind": strings.Replace(string(text), "[decide]\n",
			"[decide]\nratelimit-kind = \"counted-window\"\n", 1),
		"decide.ratelimit-files": strings.Replace(string(text), `["limits.yaml"]`, "[]", 1) +
			"[limiters.a]\nin-flight = 1\n[[proxy.rules]]\npattern = \"/\"\nlimiter = \"a\"\n",
		"proxy.max.streams": string(text) + "[proxy.max]\nstreams = 5\n",
	} {
		before := d.state().File.Failures
		renamed(t, filepath.Join(d.dir, "quotient.toml"), next)
		d.until("it is refused", func(s admin.State) bool { return s.File.Failures > before })
		contains(t, d.state().File.Error, field+": ", "requires a ")
	}
	_, err = authv3.NewAuthorizationClient(d.conn).Check(ctx, &authv3.CheckRequest{})
	equal(t, "without rules", status.Code(err), codes.Unimplemented)
}

// TestDecideByTLS: gRPC too has the certificate of proxy.tls, as its files change.
func TestDecideByTLS(t *testing.T) {
	dir := t.TempDir()
	files := pair(t, dir, "old")
	roots := x509.NewCertPool()
	add := func() {
		cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		must(t, err)
		roots.AddCert(cert.Leaf)
	}
	add()
	creds := func() credentials.TransportCredentials {
		return credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "127.0.0.1"})
	}
	d := decide(t, 9, creds(), fmt.Sprintf("http = \"off\"\n[proxy.admin]\nlisten = \"127.0.0.1:0\"\n[proxy.tls]\n"+
		"cert = %q\nkey = %q\n", files.Cert, files.Key))
	_, _, err := hit(t.Context(), d.conn, "bob")
	must(t, err)
	pair(t, dir, "new")
	roots = x509.NewCertPool()
	add()
	await(t, "the new certificate", func() bool {
		conn := dialed(t, d.conn.Target(), creds())
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), tested.Patience)
		defer cancel()
		_, _, err := hit(ctx, conn, "bob")
		return err == nil
	})
}
