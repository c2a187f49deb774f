package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "0123456789abcdef"

// counted is a source that reports the pools it is sent.
type counted chan quotient.Pool

func (c counted) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	for {
		select {
		case p := <-c:
			report(p, nil)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// free returns an address of the loopback that is free.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// get returns the status, the header and the body of one answer.
func get(t *testing.T, url string, fields ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, nil, ""
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

// answers waits until a URL is answered with a status.
func answers(t *testing.T, url string, want int) {
	t.Helper()
	last := 0
	for start := time.Now(); time.Since(start) < 20*time.Second; time.Sleep(time.Millisecond) {
		if last, _, _ = get(t, url); last == want {
			return
		}
	}
	t.Fatalf("%s: %d, want %d", url, last, want)
}

// The service is not ready before the first count, then has half of each limit, and shows it in metrics and
// on the page.
func TestService(t *testing.T) {
	addr, operator, pods := free(t), free(t), make(counted)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	c := config{addr, operator, token, pods, 10, 20 * time.Millisecond}
	go func() { ended <- run(ctx, c) }()
	url := "http://" + addr
	answers(t, url+"/ready", 503)
	if status, _, body := get(t, url+"/hello", "X-API-Key", "key-of-ann"); status != 503 ||
		!strings.Contains(body, "reduced-capacity") {
		t.Errorf("before the first count: %d %s", status, body)
	}
	pods <- quotient.Pool{Replicas: 2}
	answers(t, url+"/ready", 200)

	served := 0
	for range 8 { // half of ten a second
		status, header, body := get(t, url+"/hello", "X-API-Key", "key-of-ann")
		switch {
		case status == 200 && body == "hello, ann\n" && header.Get("RateLimit") != "":
			served++
		case status != 429 || !strings.Contains(body, `"second"`) || header.Get("Retry-After") == "":
			t.Errorf("%d %v %s", status, header, body)
		}
	}
	if served < 5 || served > 7 {
		t.Errorf("%d of ann's requests served, want 5 or little more", served)
	}
	for key, want := range map[string]int{
		"key-of-bob":     200,
		"key-of-eve":     429,
		"key-of-mallory": 401,
		"":               401,
	} {
		status, header, body := get(t, url+"/hello", "X-API-Key", key)
		if status != want || (header.Get("RateLimit") != "") != (want == 200) {
			t.Errorf("%q: %d %s, %s, want %d", key, status, header.Get("RateLimit"), body, want)
		}
	}
	if _, _, body := get(t, url+"/metrics"); !strings.Contains(body,
		`quotient_replicas{limiter="tenants",source="followed"} 2`) {
		t.Errorf("metrics: %s", body)
	}
	for secret, want := range map[string]int{token: 200, "another-token-xyz": 401} {
		status, _, body := get(t, "http://"+operator+"/state", "Authorization", "Bearer "+secret)
		if status != want {
			t.Errorf("the page with %q: %d %s, want %d", secret, status, body, want)
		}
	}
	stop()
	answers(t, url+"/ready", 503) // and is served while it is still listed
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A service that cannot be served ends with an error, whatever else runs.
func TestServiceFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for want, c := range map[string]config{
		"token":        {addr: free(t), operator: free(t), token: "short"},
		"bind: addr":   {addr: taken.Addr().String(), operator: free(t), token: token},
		"Listen":       {addr: free(t), operator: taken.Addr().String(), token: token},
		"-most":        {addr: free(t), operator: free(t), token: token, pods: make(counted)},
		"missing port": {addr: free(t), operator: "0.0.0.0", token: token},
	} {
		if err := run(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}
