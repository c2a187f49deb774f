package caddyquotient

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/caddyserver/caddy/v2/modules/logging"
	_ "github.com/caddyserver/caddy/v2/modules/metrics"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

// TestMain keeps what Caddy writes out of the home directory, and requires that nothing of ours goes on in the end.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "caddyquotient")
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"XDG_DATA_HOME", "XDG_CONFIG_HOME"} {
		os.Setenv(name, dir)
	}
	code := m.Run()
	os.RemoveAll(dir)
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if at := strings.Index(string(stacks), "quotient.(*Limiter)"); at >= 0 {
		fmt.Printf("a goroutine is left:\n%s", stacks)
		code = 1
	}
	os.Exit(code)
}

// server is a Caddy that runs in this process, at real sockets.
type server struct {
	t           testing.TB
	addr, admin string
	logs        string // a file
	client      *http.Client
}

// start runs Caddy with a site, until the test ends.
func start(t testing.TB, site string) *server {
	dir, err := os.MkdirTemp(os.Getenv("XDG_DATA_HOME"), "") // t.TempDir has the braces of a name
	tested.Must(t, err)
	s := &server{t, tested.FreeAddr(t), tested.FreeAddr(t), filepath.Join(dir, "log"), new(http.Client)}
	s.client.Transport = &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		tested.Must(t, caddy.Stop())
		for name := range limiters.All() {
			t.Errorf("zone %s is left", name)
		}
	})
	tested.Must(t, s.load(site))
	return s
}

// config is a Caddyfile with a site; what stands in front of the first line "---" is outside of it.
func (s *server) config(site string) string {
	outside, inside, ok := strings.Cut(site, "---")
	if !ok {
		outside, inside = "", site
	}
	host, port, err := net.SplitHostPort(s.addr)
	tested.Must(s.t, err)
	return fmt.Sprintf(`{
	admin %s
	auto_https off
	persist_config off
	servers {
		trusted_proxies static 127.0.0.0/8
	}
	log {
		output file %s
	}
}
%s
:%s {
	bind %s
	%s
}`, s.admin, s.logs, outside, port, host, inside)
}

func (s *server) load(site string) error {
	text, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(s.config(site)), nil)
	if err != nil {
		return err
	}
	return caddy.Load(text, true)
}

// get sends a request with fields, given as "Name: value", and returns the answer with its body.
func (s *server) get(path string, fields ...string) (*http.Response, string) {
	s.t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+s.addr+path, nil)
	tested.Must(s.t, err)
	for _, line := range fields {
		if name, value, ok := strings.Cut(line, ": "); ok {
			r.Header.Add(name, value)
		}
	}
	resp, err := s.client.Do(r)
	tested.Must(s.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	tested.Must(s.t, err)
	return resp, string(body)
}

// statuses are those of a request that is sent n times.
func (s *server) statuses(n int, fields ...string) string {
	s.t.Helper()
	var all []string
	for range n {
		resp, _ := s.get("/", fields...)
		all = append(all, fmt.Sprint(resp.StatusCode))
	}
	return strings.Join(all, " ")
}

// gate is an upstream that answers a request when it is told to.
type gate struct {
	*httptest.Server
	in  chan struct{} // has one for each request that has come
	out chan struct{} // lets one answer
}

func newGate(t testing.TB) *gate {
	g := &gate{in: make(chan struct{}, 100), out: make(chan struct{}, 100)}
	g.Server = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		g.in <- struct{}{}
		<-g.out
	}))
	t.Cleanup(g.Close)
	return g
}

// TestAnswers checks what a client gets.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		site, statuses string
		fields         map[string]string // of the last answer
		body           string            // a part of that
	}{
		{"quotient {\n rate 2/h\n }", "200 200 429", map[string]string{
			"Retry-After": "1800", "Cache-Control": "no-store", "Content-Type": "application/problem+json",
			"RateLimit-Policy": `"hour";q=2;w=3600`, "RateLimit": `"hour";r=0;t=1800`}, `"violated-policies":["hour"]`},
		{"quotient {\n rate 2/h\n replicas 2\n }", "200 429", nil, ""},
		{"quotient {\n rate 1/d window name quota\n fields x-ratelimit\n }", "200 429",
			map[string]string{"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "RateLimit": ""}, ""},
		{"quotient {\n rate 1/h\n fields off\n }", "200 429", map[string]string{"RateLimit": ""}, ""},
		{"quotient {\n rate 1/h\n status 420\n }", "200 420", map[string]string{
			"Content-Type": "", "Retry-After": "3600", "RateLimit": `"hour";r=0;t=3600`}, ""},
		{"quotient {\n rate 1/h\n }\n handle_errors {\n respond \"{err.status_code} by" +
			" {http.quotient.zone}: {http.quotient.reason} {http.quotient.rule}\"\n }", "200 429",
			map[string]string{"Retry-After": "3600"}, "429 by default: rate hour"},
		{"quotient {\n deny\n }", "429", map[string]string{"Retry-After": ""}, ""},
		{"quotient {\n deny\n status 403\n dry_run\n }", "200", nil, "hello"},
		{"quotient /other {\n rate 1/h\n }", "200 200", nil, "hello"},
		{"quotient {\n rate 1/h burst 3\n }", "200 200 200 429", nil, ""},
		{"quotient {\n rate 9/h\n in_flight 2\n replicas 3\n }", "503", nil, "capacity"}, // it has no slot of two
		{"quotient a {\n rate 1/h\n }\n quotient b {\n rate 5/h\n }", "200 429", nil, ""},
	} {
		t.Run(c.site, func(t *testing.T) {
			s := start(t, c.site+"\n respond hello")
			for i, want := range strings.Fields(c.statuses) {
				resp, body := s.get("/")
				tested.Want(t, "status", fmt.Sprint(resp.StatusCode), want)
				if i < strings.Count(c.statuses, " ") {
					continue
				}
				for name, value := range c.fields {
					tested.Want(t, name, resp.Header.Get(name), value)
				}
				tested.Not(t, !strings.Contains(body, c.body), "the body %q has no %q", body, c.body)
			}
		})
	}
}

// TestKeys checks which requests share a quota, and what a key shows.
func TestKeys(t *testing.T) {
	const by = "X-Forwarded-For: "
	for _, c := range []struct{ options, first, second, statuses, key string }{
		{"", "", by + "192.0.2.1", "200 200", "192.0.2.1"},
		{"", by + "2001:db8::1", by + "2001:db8::2", "200 429", "2001:db8::/64"},
		{"key {client_ip}", by + "2001:db8::1", by + "2001:db8:0:1::1", "200 200", "2001:db8::/64"},
		{"ipv6_prefix 48", by + "2001:db8::1", by + "2001:db8:0:1::1", "200 429", "2001:db8::/48"},
		{"key x{client_ip}", by + "2001:db8::1", by + "2001:db8::2", "200 429", "x2001:db8::/64"},
		{"key {header.X-Tenant}", "X-Tenant: a", "X-Tenant: b", "200 200", "b"},
		{"key {header.X-Tenant}", "X-Tenant: a", "X-Tenant: a", "200 429", "a"},
		{"key {header.X-Tenant}", "", "X-Tenant: ", "200 429", ""},
		{"key {header.X-API-Key}", "X-API-Key: s3cret", "X-API-Key: s3cret", "200 429",
			"credential:1ec1c26b50d5d3c58d9583181af80766"},
		{"key x{header.X-API-Key}", "X-API-Key: s3cret", "X-API-Key: s3cret", "200 429",
			"xcredential:1ec1c26b50d5d3c58d9583181af80766"},
		{"key {cookie.session}", "Cookie: session=s3cret", "Cookie: session=other", "200 200", "credential:*"},
		{"key all", "X-Tenant: a", by + "192.0.2.1", "200 429", "all"},
		{"plan gold {\n rate 2/h\n }\n plan_by {header.X-Plan}", "X-Plan: gold", "X-Plan: gold", "200 200", "127.*"},
		{"plan gold {\n rate 2/h\n }\n plan_by {header.X-Plan}", "X-Plan: iron", "X-Plan: iron", "200 429", "127.*"},
	} {
		t.Run(fmt.Sprint(c.options, c.second), func(t *testing.T) {
			s := start(t, "quotient {\n rate 1/h\n "+c.options+"\n }\n respond hello")
			got := s.statuses(1, c.first) + " " + s.statuses(1, c.second)
			tested.Want(t, "statuses", got, c.statuses)
			l, _ := limiters.Get("default")
			var keys []string
			for state := range l.Keys() {
				keys = append(keys, state.Key)
			}
			tested.Not(t, !slices.ContainsFunc(keys, func(key string) bool {
				return key == c.key || strings.HasSuffix(c.key, "*") && strings.HasPrefix(key, strings.Trim(c.key, "*"))
			}), "the keys %q have no %s", keys, c.key)
			tested.Want(t, "calls of unknown plans", l.Stats().Refused[quotient.ReasonBadRequest], 0)
		})
	}
}

// TestSlots checks that a slot is held while a request is served, by the upstream's whole answer.
func TestSlots(t *testing.T) {
	g := newGate(t)
	s := start(t, "quotient {\n in_flight 2\n }\n reverse_proxy "+g.Listener.Addr().String())
	statuses := make(chan string)
	for range 2 {
		go func() { statuses <- s.statuses(1) }()
		tested.Event(t, g.in)
	}
	tested.Want(t, "the third", s.statuses(1), "429")
	g.out <- struct{}{}
	tested.Want(t, "the first", tested.Event(t, statuses), "200")
	go func() { statuses <- s.statuses(1) }()
	tested.Event(t, g.in)
	close(g.out)
	for range 2 {
		tested.Want(t, "another", tested.Event(t, statuses), "200")
	}
}

// TestSwitchedProtocols checks that a connection that is taken over keeps its slot until it ends.
func TestSwitchedProtocols(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "echo")
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, both, err := http.NewResponseController(w).Hijack()
		if err == nil {
			io.Copy(conn, both) //nolint:errcheck // until the client leaves
			conn.Close()
		}
	}))
	t.Cleanup(upstream.Close)
	s := start(t, "quotient {\n in_flight 1\n }\n reverse_proxy "+upstream.Listener.Addr().String())
	conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", s.addr)
	tested.Must(t, err)
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	head := make([]byte, len("HTTP/1.1 101"))
	_, err = io.ReadFull(conn, head)
	tested.Must(t, err)
	tested.Want(t, "answer", string(head), "HTTP/1.1 101")
	tested.Want(t, "beside it", s.statuses(1), "429")
	conn.Close()
	l, _ := limiters.Get("default")
	tested.Until(t, "the slot is free", func() bool { return l.Stats().InFlight == 0 })
}

// TestWait checks that a request waits for its turn, or is refused at once where that comes too late.
func TestWait(t *testing.T) {
	s := start(t, "quotient {\n rate 20/s burst 1\n wait 1m\n }\n respond hello")
	tested.Want(t, "statuses", s.statuses(4), "200 200 200 200")
	l, _ := limiters.Get("default")
	tested.Want(t, "waited", l.Stats().Waited >= 2, true)
	tested.Must(t, s.load("quotient {\n rate 1/h\n wait 1m\n }\n respond hello"))
	tested.Want(t, "too late", s.statuses(2), "429 429")
}

// TestMetricsAndLog checks that what operators see is where they look for it, also after a reload.
func TestMetricsAndLog(t *testing.T) {
	site := "quotient api {\n rate %d/h\n }\n metrics /metrics"
	s := start(t, fmt.Sprintf(site, 3))
	s.get("/metrics")
	tested.Must(t, s.load(fmt.Sprintf(site, 4)))
	_, body := s.get("/metrics")
	for _, want := range []string{
		`quotient_requests_total{limiter="api",outcome="admitted",reason="none"} 2`, "quotient_limiters 1",
	} {
		tested.Not(t, !strings.Contains(body, want), "the metrics have no %s: %s", want, body)
	}
	log, err := os.ReadFile(s.logs)
	tested.Must(t, err)
	want := `"logger":"http.handlers.quotient","msg":"limit set","limiter":"api"`
	tested.Not(t, !strings.Contains(string(log), want), "the log has no %s: %s", want, log)
}

// TestAdmin checks the page, the API, and that a reload leaves what an operator has changed.
func TestAdmin(t *testing.T) {
	site := "quotient {\n rate 1/h\n }\n respond {$ANSWER:hello}"
	s := start(t, site)
	ask := func(method, path, body string) string {
		r, err := http.NewRequest(method, "http://"+s.admin+"/quotient"+path, strings.NewReader(body))
		tested.Must(t, err)
		r.Header.Set("Content-Type", "application/json")
		_, port, _ := net.SplitHostPort(s.admin)
		r.Host = "localhost:" + port // Caddy answers to the names of loopback
		resp, err := s.client.Do(r)
		tested.Must(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		tested.Must(t, err)
		return fmt.Sprint(resp.StatusCode, " ", string(text))
	}
	for path, want := range map[string]string{"/": "<title>", "/state": `"default"`} {
		got := ask(http.MethodGet, path, "")
		tested.Not(t, !strings.HasPrefix(got, "200 ") || !strings.Contains(got, want), "%s: %s", path, got)
	}
	got := ask(http.MethodPut, "/dry-run?limiter=default", `{"dry_run":true}`)
	tested.Not(t, !strings.HasPrefix(got, "200 "), "dry run: %s", got)
	tested.Want(t, "dry run", s.statuses(3), "200 200 200")
	t.Setenv("ANSWER", "other")
	tested.Must(t, s.load(site))
	tested.Want(t, "dry run after a reload", s.statuses(3), "200 200 200")
}
