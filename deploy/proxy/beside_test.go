package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-go/quotient/internal/kept"
	"github.com/quotient-go/quotient/internal/needed"
	"github.com/quotient-go/quotient/internal/tested"
)

// besidePage shows what matters of the configurations of proxies that ask quotient decide. The folder has them whole.
const (
	besidePage   = "../../docs/beside.md"
	besideFolder = "beside"
)

// front is a proxy that asks, by its configuration.
type front struct {
	program, profile, file string
	frame                  string    // what a whole configuration has around that of the file
	listen                 [2]string // where it listens by the file, and in a test
	command                string
	// open is what a regexp finds in the file, and shut stands there to refuse while quotient is away. One without the
	// first always does.
	open, shut  string
	away, other int  // what it then answers, and where quotient refuses by 503
	mute        bool // it shows no fields of what passes
	// misread is what it answers, open, where quotient has the profile astray.
	astray  string
	misread int
}

// fronts are the proxies that a test starts. FILE, DIR and ADDRESS stand for the configuration, its folder and the
// address.
var fronts = []front{
	{program: "nginx", profile: "nginx", file: "nginx.conf", listen: [2]string{"listen 80;", "listen ADDRESS;"},
		frame: "daemon off; master_process off; pid nginx.pid; error_log stderr; events {}\n" +
			"http { access_log off; client_body_temp_path a; proxy_temp_path b; fastcgi_temp_path c; " +
			"uwsgi_temp_path d; scgi_temp_path e;\n%s}\n",
		command: "nginx -e stderr -p . -c FILE", open: `error_page 500 .*`, away: 500, other: 429,
		astray: "forward-auth", misread: 200},
	{program: "haproxy", profile: "haproxy", file: "haproxy.cfg", frame: "%s",
		listen:  [2]string{"bind :80", "bind ADDRESS"},
		command: "haproxy -db -f FILE", open: `lua.quotient open`, shut: "lua.quotient closed",
		away: 503, other: 503, astray: "forward-auth", misread: 400},
	{program: "caddy", profile: "forward-auth", file: "Caddyfile",
		listen: [2]string{"\n:80 {", "\nhttp://:PORT {\n\tbind HOST"}, frame: "{\n\tadmin off\n}\n%s",
		command: "env XDG_DATA_HOME=DIR XDG_CONFIG_HOME=DIR caddy run --adapter caddyfile --config FILE",
		open:    `(?s)\thandle_errors {.*?\n\t}\n`, away: 502, other: 503, astray: "nginx", misread: 403},
	{program: "traefik", profile: "forward-auth", file: "traefik.yaml", frame: "%s",
		command: "traefik --entrypoints.web.address=ADDRESS --providers.file.filename=FILE",
		away:    500, other: 503, mute: true, astray: "nginx", misread: 403},
}

// TestFrontsOfThePage starts each proxy with its configuration, twice: open and closed. It asks through them as clients
// do, those that lie among them, also while quotient decide is away.
func TestFrontsOfThePage(t *testing.T) {
	for _, f := range fronts {
		t.Run(f.program, func(t *testing.T) {
			t.Parallel()
			if _, err := f.find(); err != nil {
				needed.Without(t, f.program, err.Error())
			}
			b := newBehind(t, "quotient.toml", f.profile)
			decide := b.decide(t, b.http)
			open, shut := f.start(t, b, f.open, "$0"), f.start(t, b, f.open, f.shut)
			f.limits(t, b, open)
			asks(t, "the other one", shut, http.StatusOK, question{from: "127.0.0.3"})
			must(t, decide.Kill())
			f.opens(t, "quotient is away", open)
			asks(t, "quotient is away", shut, f.away, question{method: http.MethodPost, body: "a body"})
			if f.open != "" {
				hung, err := net.Listen("tcp", b.http) // it connects and does not answer
				must(t, err)
				f.opens(t, "quotient hangs", open)
				must(t, hung.Close())
			}
			b.decide(t, b.http)
			asks(t, "quotient is back", shut, http.StatusOK, question{})
			other := newBehind(t, "quotient.toml", f.astray)
			other.decide(t, other.http)
			asks(t, "another profile", f.start(t, other, f.open, "$0"), f.misread, question{})
		})
	}
}

// lies are fields by which a client may try to be another, or to ask about another request.
var lies = []string{
	"X-Forwarded-For: 192.0.2.9", "X-Real-IP: 192.0.2.9", "Forwarded: for=192.0.2.9",
	"X-Forwarded-Uri: /health", "X-Original-Uri: /health", "X_Forwarded_Uri: /health", "X-Original-Url: /health",
	"X-Forwarded-Host: other", "Quotient-Hold: 1m",
}

// hostile are heads of requests that a proxy, or quotient, may not understand, from a client that is over its limit:
// nothing that a client writes may look as if quotient were away.
func hostile() []string {
	heads := []string{
		"GET / HTTP/1.0", "GET http://app.example HTTP/1.1\r\nHost: app.example", "GET / HTTP/1.1\r\nHost: ",
		"GET / HTTP/1.1\r\nHost: a/b", "GET / HTTP/1.1\r\nHost: a b", "GET /%zz HTTP/1.1\r\nHost: a",
		"GET /?%zz HTTP/1.1\r\nHost: a", "GET /#/health HTTP/1.1\r\nHost: a", "get / HTTP/1.1\r\nHost: a",
		"OPTIONS * HTTP/1.1\r\nHost: a", "GET /\x80 HTTP/1.1\r\nHost: a", "GET /..%2fhealth;x HTTP/1.1\r\nHost: a",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Original-Uri, X-Forwarded-Uri, X-Real-Ip, X-Forwarded-For, close",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket",
		"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0",
		"GET / HTTP/1.1\r\nHost: a" + strings.Repeat("\r\na: b", 300),
	}
	for _, field := range []string{
		"X-A: \x01", "X-A: \x7f", "X-A: \xff", "X-A: a\rb", "X-A: a\x00b", "X(A: b", "X A: b", "X-A : b", ": b", "X-A", "X-A: a\r\n b",
		"Trailer: X-A", "Te: trailers", "Keep-Alive: 1", "Proxy-Connection: close", "X-Real-Ip: \x01", "Cookie: \x02=\x03",
	} {
		heads = append(heads, "GET / HTTP/1.1\r\nHost: a\r\n"+field)
	}
	for _, size := range []int{7 << 10, 8 << 10, 10 << 10, 15_000, 15_100, 15_200, 15_300, 63 << 10, 70 << 10} {
		fill := strings.Repeat("a", size)
		heads = append(heads, "GET /"+fill+" HTTP/1.1\r\nHost: a", "GET / HTTP/1.1\r\nHost: a\r\nX-A: "+fill,
			"GET / HTTP/1.1\r\nHost: "+fill)
	}
	return heads
}

// reaches sends the head of a request, and reports whether the service gets it.
func reaches(t *testing.T, url, head string) bool {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: time.Minute}
	c, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	must(t, err)
	defer c.Close() //nolint:errcheck // its answer is read
	must(t, c.SetDeadline(time.Now().Add(time.Minute)))
	_, _ = io.WriteString(c, head+"\r\n\r\n") // a proxy may have closed it
	for in := bufio.NewReader(c); ; {
		resp, err := http.ReadResponse(in, nil)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("no answer to a head of %d bytes: %.60q", len(head), head)
		}
		if err != nil || resp.StatusCode >= http.StatusOK {
			return err == nil && resp.Header.Get("Service") != ""
		}
	}
}

// opens checks that requests reach the service whole where no answer comes.
func (f *front) opens(t *testing.T, what, url string) {
	t.Helper()
	if f.open == "" {
		asks(t, what, url, f.away, question{})
		return
	}
	got := asks(t, what, url, http.StatusOK, question{method: http.MethodPost, path: "/away", body: "a body"})
	tested.Want(t, "what the service gets when "+what, got.body, "POST /away a body")
}

// limits checks what a client of the open proxy sees of a limit of 40.
func (f *front) limits(t *testing.T, b *behind, url string) {
	t.Helper()
	for i := range 40 {
		q := question{method: "POST", path: "/a%2Fb/?q=1", body: "a body"}
		got := asks(t, fmt.Sprint("request ", i+1), url, http.StatusOK, q)
		if left := fmt.Sprintf(";r=%d;", 39-i); got.body != "POST /a%2Fb/?q=1 a body" || !f.mute &&
			(!strings.Contains(got.header.Get("RateLimit"), left) || got.header.Get("RateLimit-Policy") == "") {
			t.Fatalf("request %d: fields %v, want %s; the service got %q", i+1, got.header, left, got.body)
		}
	}
	refused := asks(t, "request 41", url, http.StatusTooManyRequests, question{})
	for _, name := range []string{"Retry-After", "RateLimit", "RateLimit-Policy"} {
		if len(refused.header[http.CanonicalHeaderKey(name)]) != 1 {
			t.Errorf("request 41 has %s %q", name, refused.header.Values(name))
		}
	}
	for _, lie := range lies {
		asks(t, lie, url, http.StatusTooManyRequests, question{field: lie})
		asks(t, lie, url, http.StatusTooManyRequests, question{field: lie, path: "/?hold=1m"})
	}
	for _, lie := range []string{"X-Forwarded-Method: GET", "X-Original-Method: GET", "X-Http-Method-Override: GET"} {
		asks(t, lie, url, http.StatusTooManyRequests, question{method: "POST", path: "/health", field: lie})
	}
	for _, head := range hostile() {
		if reaches(t, url, head) {
			t.Errorf("a head of %d bytes is not limited: %.60q", len(head), head)
		}
	}
	asks(t, "refused by 503", url, f.other, question{path: "/closed"})
	once := question{from: "127.0.0.5", method: "POST", path: "/broken"}
	asks(t, "the service fails", url, http.StatusBadGateway, once)
	tested.Want(t, "requests that reach a service that fails", b.broken.Load(), 1)
	asks(t, "another client", url, http.StatusOK, question{from: "127.0.0.4"})
	if got := asks(t, "exempt", url, http.StatusOK, question{path: "/health"}); got.header["Ratelimit"] != nil {
		t.Errorf("what is exempt has the field %q", got.header["Ratelimit"])
	}
}

func (f *front) find() (string, error) {
	path, err := exec.LookPath(f.program)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + f.program)
	}
	return path, err
}

// start starts the proxy, with something in place of what is open by the page, and returns its URL.
func (f *front) start(t *testing.T, b *behind, open, instead string) (url string) {
	t.Helper()
	conf, found := besideFile(t, f.file), regexp.MustCompile(open)
	if f.open != "" && len(found.FindAllString(conf, -1)) != 1 {
		t.Fatalf("%s: %q is not there once", f.program, open)
	}
	conf = found.ReplaceAllString(conf, instead)
	address := tested.FreeAddr(t)
	host, port, err := net.SplitHostPort(address)
	must(t, err)
	places := strings.NewReplacer("ADDRESS", address, "HOST", host, "PORT", port, "127.0.0.1:8079", tested.FreeAddr(t),
		"127.0.0.1:8080", b.http, "127.0.0.1:8081", b.grpc, "127.0.0.1:9000", b.app,
		"250ms", "2s") // for a machine that is busy
	dir := t.TempDir()
	put := func(name, text string) string {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		return name
	}
	put("quotient.lua", places.Replace(besideFile(t, "quotient.lua")))
	name := put("conf.yaml", fmt.Sprintf(f.frame, places.Replace(strings.Replace(conf, f.listen[0], f.listen[1], 1))))
	exe, err := f.find()
	must(t, err)
	names := strings.NewReplacer(" "+f.program+" ", " "+exe+" ", "FILE", name, "DIR", dir, "ADDRESS", address)
	serves(t, dir, address, strings.Fields(names.Replace(" "+f.command))...)
	return "http://" + address
}

// besideFile is the text of a file of the folder.
func besideFile(t *testing.T, name string) string {
	t.Helper()
	return read(t, filepath.Join(besideFolder, name))
}

// TestLinesBeside checks that the lines that the page shows stand together in a file of the folder, but for their
// indentation, and that the page has a link to each file.
func TestLinesBeside(t *testing.T) {
	bare := func(s string) string { return regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(s, "") }
	files, err := os.ReadDir(besideFolder)
	must(t, err)
	var all []string
	for _, f := range files {
		all = append(all, "\n"+bare(besideFile(t, f.Name())))
		link := "](../deploy/proxy/" + besideFolder + "/" + f.Name() + ")"
		if !strings.Contains(read(t, besidePage), link) {
			t.Errorf("%s has no link to %s", besidePage, f.Name())
		}
	}
	for _, lang := range []string{"toml", "nginx", "haproxy", "caddyfile", "yaml"} {
		for _, lines := range blocks(t, besidePage, lang) {
			has := func(file string) bool { return strings.Contains(file, "\n"+bare(lines)) }
			if !slices.ContainsFunc(all, has) {
				t.Errorf("no file has the lines\n%s", lines)
			}
		}
	}
}

// TestDecideTour plays what docs/decide.md asks by curl. The permit that it gets is the one that it releases.
func TestDecideTour(t *testing.T) {
	const decidePage = "../../docs/decide.md"
	for _, program := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			needed.Without(t, program, err.Error())
		}
	}
	b, dir := newBehind(t, "quotient.toml", "forward-auth"), t.TempDir()
	b.decide(t, b.http)
	played := func(line string) string {
		shell := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(line, "localhost:8080", b.http))
		shell.Dir = dir
		out, err := shell.Output()
		must(t, err)
		return strings.ReplaceAll(string(out), "\r", "")
	}
	if got := played(blocks(t, decidePage, "sh")[0]); !strings.HasPrefix(got, "HTTP/1.1 200 OK\n") {
		t.Errorf("the question is answered by\n%s", got)
	}
	typed, permit := commands(t, decidePage), regexp.MustCompile(`Quotient-Permit: [0-9a-f]{32}`)
	given := permit.FindString(played(typed[0].line))
	released := played(permit.ReplaceAllString(typed[1].line, given))
	if given == "" || !permit.MatchString(typed[0].answer) || !strings.HasPrefix(released, typed[1].answer) {
		t.Errorf("given %q, and released by\n%s", given, released)
	}
}

// serves starts a server, and waits until it accepts connections.
func serves(t *testing.T, dir, address string, args ...string) *kept.Process {
	t.Helper()
	p, err := kept.Start(dir, args...)
	must(t, err)
	t.Cleanup(func() {
		if _ = p.Kill(); t.Failed() {
			t.Logf("%s: %s", args[0], p.Said())
		}
	})
	must(t, p.Serves(t.Context(), func() error {
		c, err := net.Dial("tcp", address)
		return errors.Join(err, closed(c))
	}))
	return p
}

func closed(c net.Conn) error {
	if c == nil {
		return nil
	}
	return c.Close()
}

// behind is what is behind a proxy: a service, and quotient decide.
type behind struct {
	file, http, grpc, app string
	broken                atomic.Int32 // requests for /broken, to which the service has no answer
}

// closedRule refuses some requests by the status by which a proxy says that nobody answers.
const closedRule = `
[limiters.closed]
deny = true

[[proxy.rules]]
pattern = "/closed"
limiter = "closed"
refusal = { status = 503 }

`

// newBehind writes a file of quotient's, for a profile, and starts the service, which answers what it has got.
func newBehind(t *testing.T, file, profile string) *behind {
	t.Helper()
	b := &behind{file: filepath.Join(t.TempDir(), "quotient.toml"), http: tested.FreeAddr(t), grpc: tested.FreeAddr(t)}
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken" {
			b.broken.Add(1)
			panic(http.ErrAbortHandler)
		}
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Service", "yes")
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.RequestURI, body)
	}))
	t.Cleanup(app.Close)
	b.app = app.Listener.Addr().String()
	text := strings.NewReplacer(`"nginx"`, `"`+profile+`"`, "127.0.0.1:8080", b.http, "127.0.0.1:8081", b.grpc,
		`per = "1m"`, `per = "1h"`).Replace(besideFile(t, file))
	text = strings.Replace(text, "[[proxy.rules]]\n", closedRule+"[[proxy.rules]]\n", 1)
	must(t, os.WriteFile(b.file, []byte(text+"[proxy.admin]\nlisten = \"127.0.0.1:0\"\n"), 0o600))
	return b
}

// decide starts quotient decide, and waits for its listener at an address.
func (b *behind) decide(t *testing.T, at string) *kept.Process {
	t.Helper()
	return serves(t, "", at, binary(t), "decide", "--config", b.file)
}

// question is a request of a client: GET /, from 127.0.0.2, if it does not say otherwise.
type question struct{ from, method, path, field, body string }

type reply struct {
	header http.Header
	body   string
}

// asks sends a request, and requires the status of its answer.
func asks(t *testing.T, what, url string, status int, q question) reply {
	t.Helper()
	from := net.ParseIP(q.from)
	if from == nil {
		from = net.IPv4(127, 0, 0, 2)
	}
	if q.path == "" {
		q.path = "/"
	}
	r, err := http.NewRequestWithContext(t.Context(), q.method, url+q.path, strings.NewReader(q.body))
	must(t, err)
	if name, value, ok := strings.Cut(q.field, ": "); ok {
		r.Header[name] = []string{value}
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
	resp, err := (&http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: dialer.DialContext,
	}}).Do(r)
	must(t, err)
	defer resp.Body.Close() //nolint:errcheck // it is read
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	if resp.StatusCode != status {
		t.Errorf("%s: status %d, want %d: %v %s", what, resp.StatusCode, status, resp.Header, body)
	}
	return reply{resp.Header, string(body)}
}
