//go:build unix

package readme

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/admin/pods"
)

// The function of docs/admin.md, to the letter, and what else it speaks of: the pods of a fleet, a Unix socket and client
// certificates.

func serveAdmins(ctx context.Context, limiters *quotient.Registry, addr string) error {
	page, err := admin.New(limiters,
		admin.Token(os.Getenv("ADMIN_TOKEN")),        // at least 16 random bytes
		admin.ReadOnlyToken(os.Getenv("READ_TOKEN"))) // may only look
	if err != nil {
		return err
	}
	return page.ListenAndServe(ctx, addr) // "127.0.0.1:9091"
}

func newFleetPage(limiters *quotient.Registry) (*admin.Handler, error) {
	list, err := pods.Parse("dns:api-headless:9091", nil)
	if err != nil {
		return nil, err
	}
	return admin.New(limiters, admin.Token(os.Getenv("ADMIN_TOKEN")), admin.WithPeers(list, nil))
}

func serveSocket(ctx context.Context, page *admin.Handler, path string) error {
	l, err := page.Listen(ctx, "unix", path)
	if err != nil {
		return err
	}
	return page.Serve(ctx, l)
}

func serveTLS(ctx context.Context, page *admin.Handler, addr string, config *tls.Config) error {
	config.ClientAuth = tls.RequireAndVerifyClientCert // against config.ClientCAs
	l, err := page.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return page.Serve(ctx, tls.NewListener(l, config))
}

// background runs a server until the test ends.
func background(t *testing.T, serve func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// certificate makes one for localhost that signs itself, and writes it as all that an operator has: ca.pem, operator.pem
// and operator.key.
func certificate(t *testing.T, dir string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "operator"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err1 := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	secret, err2 := x509.MarshalPKCS8PrivateKey(key)
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	pair, err3 := tls.X509KeyPair(public, private)
	err = errors.Join(err1, err2, err3)
	for name, text := range map[string][]byte{"ca.pem": public, "operator.pem": public, "operator.key": private} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// adminServers serves the limiters in the three ways of docs/admin.md. It returns what replaces the addresses
// of the page.
func adminServers(t *testing.T, dir string, limiters *quotient.Registry) *strings.Replacer {
	t.Helper()
	t.Setenv("ADMIN_TOKEN", "an-admin-token-0123456789")
	t.Setenv("READ_TOKEN", "a-reading-token-0123456789")
	plain, secure, socket := freeAddr(t), freeAddr(t), filepath.Join(dir, "admin.sock")
	background(t, func(ctx context.Context) error { return serveAdmins(ctx, limiters, plain) })

	quiet := admin.Logger(slog.New(slog.DiscardHandler))
	open, err := admin.New(limiters, quiet)
	if err != nil {
		t.Fatal(err)
	}
	background(t, func(ctx context.Context) error { return serveSocket(ctx, open, socket) })

	if _, err := newFleetPage(limiters); err != nil {
		t.Fatal(err)
	}
	certified, err := admin.New(limiters, admin.MutualTLS(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	own, pool := certificate(t, dir), x509.NewCertPool()
	pool.AddCert(own.Leaf)
	config := &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: pool, MinVersion: tls.VersionTLS13}
	background(t, func(ctx context.Context) error { return serveTLS(ctx, certified, secure, config) })
	awaitListener(t, plain)
	awaitListener(t, secure)
	return strings.NewReplacer("localhost:9091", plain, "localhost:9443", secure,
		"/run/api/admin.sock", socket)
}

// Every command of docs/admin.md is run against a real server, and does what the page says.
func TestAdminPage(t *testing.T) {
	log := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	defer slog.SetDefault(log)
	limiters := &quotient.Registry{}
	plans := quotient.Plans(map[string]quotient.Limit{"free": quotient.Rates(quotient.PerMinute(60))})
	l := quotient.Must(limiters.Limiter("api", quotient.Rates(quotient.PerSecond(100)), plans))
	dir := t.TempDir()
	expect := func(what string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	p := &player{
		page:   "docs/admin.md",
		server: func(string) []string { return nil },
		same:   func(got, want string) bool { return got == want },
	}
	p.here = adminServers(t, dir, limiters)
	s := newShell(t, dir)
	holds := func(path, want string) {
		t.Helper()
		if got := s.run(p.here.Replace("admin '" + path + "'")); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s in it", path, got, want)
		}
	}
	const reset = `admin '/reset?limiter=api' -X PUT -d '{"key":"big.example"}'`
	text, err := os.ReadFile(filepath.Join(root, p.page))
	expect("the page resets a key", err == nil && strings.Contains(string(text), "\n"+reset+"\n"), true)
	nothing := func() {}
	p.after = map[string]func(){
		"Reach it safely": nothing,
		"See why a key waits": func() {
			holds("/state?limiter=api", `"admitted"`)
			holds("/explain?limiter=api&key=big.example", `"overridden": false`)
		},
		"Change a limit": func() {
			expect("limit", l.Stats().Limit.Rates[0].Events, 200.0)
			expect("slots", l.Stats().Limit.InFlight, 50)
			holds("/state?limiter=api", `"events": 30`)
			expect("dry run", l.DryRun(), true)
			expect("replicas", l.Stats().Pool.Replicas, 4)
			expect("for some minutes", time.Until(l.Stats().Pool.Until).Round(time.Minute), 10*time.Minute)
		},
		"Help one customer for a while": func() {
			expect("overrides", l.Stats().Overrides, 1)
			expect("for some minutes", time.Until(l.Explain("big.example").Until).Round(time.Minute), 10*time.Minute)
			holds("/explain?limiter=api&key=big.example", `"overridden": true`)
			_, taken := l.TryAcquireUpTo("big.example", 50)
			expect("requests of the customer", taken, 50)
			holds("/keys?limiter=api&top=20", `"big.example"`)
			s.run(p.here.Replace(reset)) // as the page did
			expect("left of a quarter of 500", l.Explain("big.example").Rules[0].Left, 125.0)
		},
	}
	p.play(t, s)
	status := s.run(p.here.Replace(`curl -s -o /dev/null -w '%{http_code}' -X PUT -H "Authorization: Bearer $READ_TOKEN" ` +
		"localhost:9091/reset"))
	expect("status of a change by one who may only read", status, "403")
}
