package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/tested"
)

// misdirected answers 421 to what is not for a host, and the rest with its protocol.
func misdirected(host *string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Host != *host:
			w.WriteHeader(http.StatusMisdirectedRequest)
		case r.Header.Get("Upgrade") != "":
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
	}
}

// Requests, upgrades and checks get the host of the upstream, or requests the client's. A reload changes it.
func TestHost(t *testing.T) {
	var host string
	secure, roots := h2(t, true, misdirected(&host))
	older := httptest.NewTLSServer(misdirected(&host))
	t.Cleanup(older.Close)
	plain, _ := h2(t, false, misdirected(&host))
	for _, row := range []struct {
		url     string
		own     bool // by default
		upgrade bool
	}{
		{url: secure, own: true},
		{url: older.URL, own: true, upgrade: true},
		{url: plain},
		{url: serve(t, misdirected(&host)).URL, upgrade: true},
		{url: socket(t, misdirected(&host)), upgrade: true},
	} {
		health := config.Health{Path: "/", Timeout: tested.Patience}
		p := poolTo(t, roots, checked(t, health, row.url))
		_, own, ok := strings.Cut(row.url, "://")
		if !ok {
			own = "localhost"
		}
		for setting, ours := range map[string]bool{"": row.own, "upstream": true, "client": false} {
			next := checked(t, health, row.url)
			next.Host = setting
			p.apply(next)
			if host = "the.host"; ours {
				host = own
			}
			want(t, row.url+" with "+setting, statusOf(t, p, false), http.StatusOK)
			if row.upgrade {
				want(t, "upgrade at "+row.url, statusOf(t, p, true), http.StatusSwitchingProtocols)
			}
			host = own
			must(t, newChecker(p.ups[0], p.health, p.limits).check(t.Context()))
		}
	}
}

func statusOf(t *testing.T, p *Pool, upgrade bool) int {
	t.Helper()
	req := ask(t, http.MethodGet, "/", "")
	if upgrade {
		req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
	}
	resp, err := p.RoundTrip(req)
	must(t, err)
	must(t, resp.Body.Close())
	return resp.StatusCode
}

// A Host has a port only if that is not the one of the scheme.
func TestOwnHost(t *testing.T) {
	for url, host := range map[string]string{
		"https://A.test": "a.test", "https://a.test:443": "a.test", "https://a.test:80": "a.test:80",
		"http://a.test:80": "a.test", "h2c://a.test:80/": "a.test", "http://a.test:443": "a.test:443",
		"https://[::443]:443": "[::443]", "https://[::443]": "[::443]", "https://a.test:": "a.test",
	} {
		want(t, "the host of "+url, targetOf(section(t, url).Upstreams[0]).ownHost(), host)
	}
}

// fileOf is a file with these upstreams, as it is read.
func fileOf(t *testing.T, dir, upstream, more string) *config.File {
	t.Helper()
	text := "[proxy]\nupstreams = [\"" + upstream + "\"]\n[proxy.upstream-tls]\n" + more +
		"\n[[proxy.rules]]\npattern = \"/\"\nlimiter = \"all\"\n[limiters.all]\nin-flight = 9\n"
	f, err := config.Parse(filepath.Join(dir, "q.toml"), []byte(text))
	must(t, err)
	return f
}

// loaded puts a file in force.
func loaded(p *Pool, f *config.File) error {
	commit, err := p.Prepare(f)
	if err != nil {
		return f.Located(err)
	}
	commit()
	return nil
}

// written puts a certificate for a name into the files NAME.pem and NAME.key of a folder.
func written(t *testing.T, dir, name string) (pair tls.Certificate) {
	t.Helper()
	cert, key := tested.Certificate(t, name)
	must(t, os.WriteFile(filepath.Join(dir, name+".pem"), cert, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, name+".key"), key, 0o600))
	pair, err := tls.X509KeyPair(cert, key)
	must(t, err)
	return pair
}

// demanding is a server of a name that shows in its answer whose certificate the client has, and takes none but those.
func demanding(t *testing.T, newer bool, own tls.Certificate, clients ...tls.Certificate) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName+" at "+r.TLS.ServerName)
	}))
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool(),
	}
	for _, c := range clients {
		s.TLS.ClientCAs.AddCert(c.Leaf)
	}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.EnableHTTP2 = newer
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// An upstream sees the certificate of the file, and its own is verified by the file's authority and name. A reload
// changes all of that for the next request, and one with a bad file nothing.
func TestUpstreamTLS(t *testing.T) {
	dir := t.TempDir()
	up := written(t, dir, "up.test")
	must(t, os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600))
	const of = "ca = \"up.test.pem\"\nserver-name = \"up.test\"\n"
	const as = of + "cert = \"a.test.pem\"\nkey = \"a.test.key\""
	for _, newer := range []bool{false, true} {
		s := demanding(t, newer, up, written(t, dir, "a.test"), written(t, dir, "b.test"))
		p := poolOf(t, nil)
		load := func(more string) error { return loaded(p, fileOf(t, dir, s.URL, more)) }
		for _, path := range []string{"", "path = \"/\""} {
			must(t, load(as+"\n[proxy.health]\n"+path))
			must(t, newChecker(p.ups[0], p.health, p.limits).check(t.Context()))
		}
		want(t, "the answer", get(t, p, "/"), "a.test at up.test")
		by := p.ups[0].by
		must(t, load(as))
		want(t, "connections stay", p.ups[0].by == by, true)
		for bad, says := range map[string]string{
			"ca = \"empty\"": ":4:6: proxy.upstream-tls.ca: DIR/empty has no certificate",
			"ca = \"none\"":  ":4:6: proxy.upstream-tls.ca: DIR/none: ",
			strings.Replace(as, "a.test.key", "b.test.key", 1): ":6:8: proxy.upstream-tls.cert: DIR/a.test.pem with " +
				"key DIR/b.test.key: ",
		} {
			says = strings.ReplaceAll(says, "DIR", dir)
			if err := load(bad); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("the error is %v, want one that says %q", err, says)
			}
			want(t, "the answer", get(t, p, "/"), "a.test at up.test")
		}
		for _, end := range []string{".pem", ".key"} { // the names stay
			must(t, os.Rename(filepath.Join(dir, "b.test"+end), filepath.Join(dir, "a.test"+end)))
		}
		must(t, load(as))
		want(t, "the answer", get(t, p, "/"), "b.test at up.test")
		for _, change := range [][2]string{{as, of}, {"ca = ", "#"}, {"name = \"up", "name = \"other"}} {
			must(t, load(strings.Replace(as, change[0], change[1], 1)))
			_, err := p.RoundTrip(ask(t, http.MethodGet, "/", ""))
			want(t, "the kind of "+errorText(err)+" with "+change[1], Classify(err), Broken)
		}
	}
}
