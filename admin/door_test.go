package admin

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

const secret, other, looker = "0123456789abcdef", "fedcba9876543210-other", "only-looking-around"

// TestTokens: data and changes need a token, what holds no data does not; one for reading does not write.
func TestTokens(t *testing.T) {
	tests := []struct {
		authorization []string
		read, write   int
	}{
		{nil, 401, 401},
		{[]string{""}, 401, 401},
		{[]string{"Bearer"}, 401, 401},
		{[]string{"Bearer "}, 401, 401},
		{[]string{secret}, 401, 401},
		{[]string{"Basic " + secret}, 401, 401},
		{[]string{"Bearer " + secret[:15]}, 401, 401},
		{[]string{"Bearer " + secret + "0"}, 401, 401},
		{[]string{"Bearer  " + secret}, 401, 401},
		{[]string{"Bearer " + strings.ToUpper(secret)}, 401, 401},
		{[]string{"Bearer " + secret, "Bearer " + secret}, 401, 401},
		{[]string{"Bearer " + secret}, 200, 200},
		{[]string{"bearer " + other}, 200, 200},
		{[]string{"Bearer " + looker}, 200, 403},
	}
	l := newLimiter(t)
	h := quiet(t, l, Token(secret, other), ReadOnlyToken(looker), WithLeases(newLeases("a")))
	for _, tt := range tests {
		header := http.Header{"Authorization": tt.authorization}
		for _, path := range []string{"/state", "/keys", "/explain?key=K"} {
			rec := get(path).headed(header).send(t, h)
			tested.Want(t, fmt.Sprintf("%q: GET %s", tt.authorization, path), rec.Code, tt.read)
			challenge := rec.Header().Get("WWW-Authenticate")
			if (rec.Code == 401) != strings.HasPrefix(challenge, "Bearer") {
				t.Errorf("%q: %d with WWW-Authenticate %q", tt.authorization, rec.Code, challenge)
			}
		}
		before := l.Stats().Version
		rec := putting("/dry-run", fmt.Sprintf(`{"dry_run":%v}`, !l.DryRun())).headed(header).send(t, h)
		if rec.Code != tt.write || (l.Stats().Version != before) != (tt.write == 200) {
			t.Errorf("%q: PUT: %d with version %d after %d, want %d", tt.authorization, rec.Code,
				l.Stats().Version, before, tt.write)
		}
	}
	for _, rt := range routes {
		for _, method := range rt.methods {
			req := request{method: method, path: rt.path}.with("Authorization", "Bearer "+looker)
			if method != "GET" && method != "HEAD" && req.send(t, h).Code != 403 {
				t.Errorf("%s %s with a token for reading is not refused", method, rt.path)
			}
		}
	}
	for path, want := range map[string]int{
		"/":             200,
		"/openapi.json": 200,
		"/assets/none":  404,
		"/events":       401,
		"/none":         401,
	} {
		tested.Want(t, fmt.Sprintf("without a token: GET %s", path), get(path).send(t, h).Code, want)
	}
}

// TestCertificates: only one that was verified counts. TestMutualTLS has those of real connections.
func TestCertificates(t *testing.T) {
	chain := [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: "ops"}}}}
	h := quiet(t, newLimiter(t), MutualTLS())
	for want, state := range map[int]*tls.ConnectionState{
		401: {PeerCertificates: chain[0]},
		200: {PeerCertificates: chain[0], VerifiedChains: chain},
	} {
		for _, path := range []string{"/state", "/openapi.json"} {
			req := overLoopback(httptest.NewRequest(http.MethodGet, path, nil))
			req.TLS = state
			tested.Want(t, path, served(t, h, req).Code, want)
		}
	}
}

// TestWithoutCredentials: only what came in at loopback, from loopback, or over a Unix socket is served.
func TestWithoutCredentials(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 9090} }
	unix := &net.UnixAddr{Net: "unix", Name: "/run/q.sock"}
	tests := []struct {
		local  net.Addr
		remote string
		want   int
	}{
		{tcp("127.0.0.1"), "127.0.0.1:5", 200},
		{tcp("127.0.0.9"), "127.8.8.8:5", 200},
		{tcp("::1"), "[::1]:5", 200},
		{tcp("::ffff:127.0.0.1"), "127.0.0.1:5", 200},
		{unix, "@", 200},
		{unix, "", 200},
		{tcp("10.0.0.7"), "127.0.0.1:5", 403},
		{tcp("127.0.0.1"), "10.0.0.7:5", 403},
		{tcp("0.0.0.0"), "127.0.0.1:5", 403},
		{tcp("::"), "[::1]:5", 403},
		{tcp("127.0.0.1"), "@", 403},
		{tcp("127.0.0.1"), "", 403},
		{nil, "127.0.0.1:5", 403},
	}
	send := func(h http.Handler, local net.Addr, remote string,
		header http.Header) *httptest.ResponseRecorder {
		req := overLoopback(httptest.NewRequest("GET", "/state", nil))
		req = req.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, local))
		req.RemoteAddr, req.Header = remote, header
		return served(t, h, req)
	}
	for _, tt := range tests {
		rec := send(quiet(t, newLimiter(t)), tt.local, tt.remote, http.Header{})
		at := fmt.Sprintf("at %v from %q", tt.local, tt.remote)
		tested.Want(t, at, rec.Code, tt.want)
		behind := quiet(t, newLimiter(t), BehindAuthentication())
		tested.Want(t, at+", behind authentication", send(behind, tt.local, tt.remote, http.Header{}).Code, 200)
		h, bearer := quiet(t, newLimiter(t), Token(secret)), http.Header{"Authorization": {"Bearer " + secret}}
		tested.Want(t, at+", with a token", send(h, tt.local, tt.remote, bearer).Code, 200)
	}
}

// TestFailuresAreLoggedOnceASecond: a flood of attempts is counted, and is not a flood of lines.
func TestFailuresAreLoggedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		h := mount(t, newLimiter(t), Token(secret), Logger(slog.New(slog.NewTextHandler(&out, nil))))
		try := func(n int) {
			for range n {
				get("/state").with("Authorization", "Bearer wrong-secret-of-somebody").send(t, h)
			}
		}
		try(1000)
		if n := strings.Count(out.String(), "\n"); n != 1 ||
			!strings.Contains(out.String(), "refused_since_last_line=1\n") {
			t.Errorf("%d lines: %.300s", n, out.String())
		}
		out.Reset()
		time.Sleep(time.Second)
		try(1)
		if !strings.Contains(out.String(), "refused_since_last_line=1000\n") ||
			strings.Contains(out.String(), "wrong-secret") {
			t.Errorf("logged %s", out.String())
		}
	})
}

// TestForwardedRequests: without credentials a request that claims to come from elsewhere is not served,
// though the proxy is here.
func TestForwardedRequests(t *testing.T) {
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "Via", "X-Real-Ip", "X-Forwarded-Host", "X-Forwarded-Proto",
		"X_forwarded_for", "True-Client-Ip"} {
		header := http.Header{name: {"203.0.113.9"}}
		for _, path := range []string{"/state", "/", "/openapi.json"} {
			rec := get(path).headed(header).send(t, quiet(t, newLimiter(t)))
			if rec.Code != 403 || decode[Problem](t, rec).Field != name {
				t.Errorf("%s: GET %s: %d %s", name, path, rec.Code, rec.Body)
			}
		}
		change := putting("/dry-run", `{"dry_run":true}`).headed(header)
		l := newLimiter(t)
		rec := change.send(t, quiet(t, l))
		if rec.Code != 403 || l.DryRun() {
			t.Errorf("%s: PUT: %d", name, rec.Code)
		}
		if rec := change.send(t, quiet(t, l, BehindAuthentication())); rec.Code != 200 {
			t.Errorf("%s, behind authentication: %d", name, rec.Code)
		}
		header.Set("Authorization", "Bearer "+secret)
		tested.Want(t, fmt.Sprintf("%s, with a token", name), change.send(t, quiet(t, l, Token(secret))).Code, 200)
	}
}

// TestRefusalsAtTheDoorAreLogged: each with why, and who it was as far as that is known; and they end the
// connection.
func TestRefusalsAtTheDoorAreLogged(t *testing.T) {
	write := putting("/dry-run", `{"dry_run":true}`)
	foreign := get("/state")
	foreign.host = "evil.example"
	crossSite := write.with("Authorization", "Bearer "+secret).with("Sec-Fetch-Site", "cross-site")
	tests := []struct {
		req   request
		code  int
		wants []string
	}{
		{write.with("Authorization", "Bearer "+looker), 403,
			[]string{`by="token 2"`, "for reading only", "path=/dry-run"}},
		{foreign, 403, []string{"this host is not served", "host=evil.example"}},
		{crossSite, 403, []string{`by="token 1"`, "another origin"}},
		{write, 401, []string{"credentials are missing"}},
	}
	for _, tt := range tests {
		var out bytes.Buffer
		rec := tt.req.send(t, mount(t, newLimiter(t), Token(secret), ReadOnlyToken(looker),
			Logger(slog.New(slog.NewTextHandler(&out, nil)))))
		for _, want := range tt.wants {
			tested.Not(t, !strings.Contains(out.String(), want), "logged %s, want %s", out.String(), want)
		}
		if rec.Code != tt.code || rec.Header().Get("Connection") != "close" {
			t.Errorf("%d with %v, want %d and the end of the connection", rec.Code, rec.Header(), tt.code)
		}
	}
}

// TestBadOptions: options that contradict each other, that can never count, or that are none.
func TestBadOptions(t *testing.T) {
	tests := map[string][]Option{
		"token":      {ReadOnlyToken(secret), Token(other, secret)},
		"nil":        {Token(secret), nil},
		"no token":   {Token()},
		"empty":      {Token("")},
		"short":      {Token("0123456789abcde")},
		"one short":  {Token(secret, "short")},
		"space":      {Token("0123456789 abcdef")},
		"newline":    {Token("0123456789abcdef\n")},
		"beyond":     {Token("0123456789abcdé")},
		"short read": {ReadOnlyToken("short")},
		"no time":    {EventsEvery(0)},
		"negative":   {EventsEvery(-1)},
		"too long":   {EventsEvery(2 * time.Hour)},
		"no leases":  {WithLeases(nil)},
		"no file":    {File(nil)},
		"no tables":  {Tables(nil)},
		"no check":   {CheckKeys(nil)},
	}
	for _, host := range []string{"", ".", "ops.example:9090", "https://ops.example", "*.example",
		"ops.example/admin", "ops example", "[::1]:80", "bücher.example"} {
		tests["AllowHosts "+host] = []Option{AllowHosts(host)}
	}
	for name, opts := range tests {
		if h, err := New(new(quotient.Registry), opts...); err == nil || h != nil ||
			strings.Contains(err.Error(), "0123") {
			t.Errorf("%s: handler %v, error %v", name, h, err)
		}
	}
	for _, opts := range [][]Option{
		{Token(secret, secret)},
		{AllowHosts("ops.example", "Ops_1.example.", "10.0.0.7", "2001:db8::1", "[2001:db8::2]")},
	} {
		if _, err := New(new(quotient.Registry), opts...); err != nil {
			t.Error(err)
		}
	}
	if _, err := New(nil); err == nil {
		t.Error("no registry is accepted")
	}
	if mount(t, newLimiter(t), Logger(nil)).(*Handler).api.log == nil {
		t.Error("nil is no log") // but a panic at the first change
	}
	if _, err := NewClient("http://localhost", nil); err == nil {
		t.Error("a nil option of a client")
	}
}

// TestZeroHandler answers, and does not listen.
func TestZeroHandler(t *testing.T) {
	var h Handler
	if rec := get("/state").send(t, &h); rec.Code != http.StatusInternalServerError ||
		decode[Problem](t, rec).Detail == "" {
		t.Errorf("%d", rec.Code)
	}
	if l, err := h.Listen(t.Context(), "tcp", "127.0.0.1:0"); err == nil {
		_ = l.Close()
		t.Error("it listens")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	tested.Not(t, h.Serve(t.Context(), l) == nil, "it serves")
}

// selfSigned is a certificate for both ends of a connection, and the pool that trusts it.
func selfSigned(t *testing.T, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	cert, key := tested.Certificate(t, name)
	own, err := tls.X509KeyPair(cert, key)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return own, pool
}

// TestMutualTLS goes through Serve and a TLS listener: a client with the right certificate is served and
// named in the log.
func TestMutualTLS(t *testing.T) {
	server, trusted := selfSigned(t, "server")
	operator, operators := selfSigned(t, "operator")
	stranger, _ := selfSigned(t, "stranger")
	var out tested.Buffer
	h := mount(t, newLimiter(t), MutualTLS(), Logger(slog.New(slog.NewTextHandler(&out, nil)))).(*Handler)
	l, err := h.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	serving(t, h,
		tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{server}, ClientCAs: operators,
			ClientAuth: tls.VerifyClientCertIfGiven}))
	connect := func(certificates ...tls.Certificate) error {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted,
			Certificates: certificates}}
		c, err := NewClient("https://"+l.Addr().String(), HTTPClient(&http.Client{Transport: transport}))
		must(t, err)
		defer c.Close()
		_, err = c.SetDryRun(t.Context(), "api", true)
		return err
	}
	if err := connect(operator); err != nil ||
		!strings.Contains(out.String(), `by="certificate CN=operator"`) {
		t.Errorf("the operator: %v, logged %s", err, out.String())
	}
	var p *Problem
	if err := connect(); !errors.As(err, &p) || p.Status != 401 || p.Field != "client certificate" {
		t.Errorf("without a certificate: %v", err)
	}
	if err := connect(stranger); err == nil {
		t.Errorf("a stranger: %v", err)
	}
}
