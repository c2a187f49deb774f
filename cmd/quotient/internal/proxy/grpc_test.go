package proxy

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/quotient-go/quotient/internal/tested"
)

// again has a client repeat a call up to four times, at once unless the server says when.
const again = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.001s",
	"maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]}}]}`

func overH2C(s *httptest.Server) {
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
}

// grpcEcho is an upstream that knows no service.
func grpcEcho(asked *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked.Add(1)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "5")
	}
}

// call makes a call of gRPC over h2c.
func (w *world) call(opts ...grpc.DialOption) error {
	w.t.Helper()
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("passthrough:"+w.front.Listener.Addr().String(), opts...)
	must(w.t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), tested.Patience)
	defer cancel()
	_, err = health.NewHealthClient(conn).Check(ctx, new(health.HealthCheckRequest))
	return err
}

// TestGRPC: a call that has no answer of the upstream gets a status of gRPC.
func TestGRPC(t *testing.T) {
	broken, _ := breaking(t, "")
	var asked atomic.Int64
	echo := httptest.NewServer(grpcEcho(&asked))
	t.Cleanup(echo.Close)
	late := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or net/http does not see it go
		<-r.Context().Done()
	}))
	t.Cleanup(late.Close)
	const deny = "[limiters.all]\nmode = \"refuse\"\n" +
		"overrides.\"/grpc.health.v1.health/check\" = { deny = true }\nin-flight = 1\n"
	for _, row := range []struct {
		what, text, url string
		code            codes.Code
		message         string
	}{
		{"answered", loose + all, echo.URL, codes.NotFound, ""},
		{"denied", deny + all, echo.URL, codes.ResourceExhausted,
			"Requests of this client are refused. Trying again does not help."},
		{"nothing listens", loose + all, nowhere, codes.Unavailable, details[http.StatusServiceUnavailable]},
		{"broken off", loose + all, broken, codes.Unavailable, details[http.StatusBadGateway]},
		{"late", loose + all + "[proxy.timeouts]\nresponse-header = \"20ms\"\n", late.URL, codes.DeadlineExceeded,
			details[http.StatusGatewayTimeout]},
		{"too long", loose + all + "[proxy.max]\nbody-bytes = 4\n", echo.URL, codes.ResourceExhausted,
			details[http.StatusRequestEntityTooLarge]},
	} {
		s := status.Convert(worldBefore(t, row.text, row.url, overH2C).call())
		want(t, row.what+": code", s.Code(), row.code)
		want(t, row.what+": message", s.Message(), row.message)
	}
}

// TestGRPCWaitsBeforeItAsksAgain: a refused call is repeated when there is room again, and not at once.
func TestGRPCWaitsBeforeItAsksAgain(t *testing.T) {
	var asked atomic.Int64
	const text = "[limiters.all]\nmode = \"refuse\"\n" +
		"rates = [{ name = \"100%\", events = 1, per = \"1s\", burst = 1, no-turns = true }]\n"
	w := newWorld(t, text+all, grpcEcho(&asked), overH2C)
	want(t, "the first call", status.Code(w.call()), codes.NotFound)
	s := status.Convert(w.call())
	want(t, "the code of a refusal", s.Code(), codes.ResourceExhausted)
	want(t, "its message", s.Message(), `The limit "100%" is reached.`)
	want(t, "a call that is repeated", status.Code(w.call(grpc.WithDefaultServiceConfig(again))), codes.NotFound)
	want(t, "calls of the upstream", asked.Load(), 2)
}

// TestNoGRPC: what is not gRPC keeps its problem document, gRPC-Web too.
func TestNoGRPC(t *testing.T) {
	for _, kind := range []string{"application/grpc-web", "application/grpcx", "text/plain"} {
		w := worldBefore(t, loose+all, nowhere, overH2)
		resp, body := w.get("/", "Content-Type", kind)
		wantProblem(t, kind, resp, body, http.StatusServiceUnavailable)
	}
	w := worldBefore(t, loose+all, nowhere)
	resp, body := w.get("/", "Content-Type", "application/grpc")
	wantProblem(t, "HTTP/1.1", resp, body, http.StatusServiceUnavailable)
	w = newWorld(t, strict+all+"refusal = { status = 503, body = \"no\" }\n", ok, overH2)
	for range 2 {
		resp, _ = w.get("/", "Content-Type", "APPLICATION/grpc+proto; a=b")
	}
	want(t, "status", resp.StatusCode, http.StatusOK)
	want(t, "Grpc-Status", resp.Header.Get("Grpc-Status"), "8")
	want(t, "pushback", resp.Header.Get("Grpc-Retry-Pushback-Ms"), "3600000")
	want(t, "Retry-After", resp.Header.Get("Retry-After"), "3600")
	w = newWorld(t, "[limiters.all]\ndeny = true\n"+all, ok, overH2)
	resp, _ = w.get("/", "Content-Type", "application/grpc")
	want(t, "pushback of a denied call", resp.Header.Get("Grpc-Retry-Pushback-Ms"), "-1")
}
