package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
)

func TestReadTokens(t *testing.T) {
	for name, c := range map[string]struct {
		text, want, err string
	}{
		"one":             {"secret-0123456789\n", "secret-0123456789", ""},
		"two":             {"# old\none\n\n  two  \r\n", "one two", ""},
		"none":            {"# none\n\n", "", "has no token"},
		"empty":           {"", "", "has no token"},
		"a line too long": {strings.Repeat("x", 65<<10), "", "token too long"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokens")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readTokens(path)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("got %v, want %q", err, c.err)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestAccess(t *testing.T) {
	if _, err := access(config.Admin{TokenFile: "nosuch"}, "proxy.admin"); err == nil ||
		!strings.Contains(err.Error(), "proxy.admin.token-file") {
		t.Errorf("got %v", err)
	}
	if _, err := access(config.Admin{ReadOnlyTokenFile: "nosuch"}, "proxy.admin"); err == nil ||
		!strings.Contains(err.Error(), "proxy.admin.read-only-token-file") {
		t.Errorf("got %v", err)
	}
	opts, err := access(config.Admin{TLS: &config.TLS{ClientCA: "ca"}, Hosts: []string{"ops"}}, "proxy.admin")
	if err != nil || len(opts) != 2 {
		t.Errorf("got %d options, %v", len(opts), err)
	}
}

// pair writes a certificate of its own for a name.
func pair(t *testing.T, dir, name string) *config.TLS {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name},
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	files := &config.TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	for path, block := range map[string]*pem.Block{
		files.Cert: {Type: "CERTIFICATE", Bytes: der}, files.Key: {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestServerTLSFollowsItsFiles checks that a certificate is renewed, and that a pair which is half-written
// is not.
func TestServerTLSFollowsItsFiles(t *testing.T) {
	dir := t.TempDir()
	files := pair(t, dir, "old")
	c, err := serverTLS(files)
	if err != nil {
		t.Fatal(err)
	}
	name := func() string {
		t.Helper()
		pair, err := c.GetCertificate(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.DNSNames[0]
	}
	if got := name(); got != "old" {
		t.Errorf("got %s", got)
	}
	oldKey, err := os.ReadFile(files.Key)
	if err != nil {
		t.Fatal(err)
	}
	pair(t, dir, "new")
	newKey, err := os.ReadFile(files.Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files.Key, oldKey, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := name(); got != "old" {
		t.Errorf("half of a pair: got %s", got)
	}
	if err := os.WriteFile(files.Key, newKey, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := name(); got != "new" {
		t.Errorf("got %s", got)
	}
	files.ClientCA = files.Key
	if _, err := serverTLS(files); err == nil || !strings.Contains(err.Error(), "has no certificate") {
		t.Errorf("a key for a client CA: got %v", err)
	}
	files.ClientCA = files.Cert
	if c, err := serverTLS(files); err != nil || c.ClientAuth != tls.VerifyClientCertIfGiven {
		t.Errorf("with a client CA: got %v", err)
	}
	if _, err := serverTLS(&config.TLS{Cert: "nosuch", Key: "nosuch"}); err == nil {
		t.Error("no error without the files")
	}
}

func TestSuspicious(t *testing.T) {
	f := &config.File{
		Pool: config.Pool{Replicas: 3},
		Limiters: map[string]config.Limiter{
			"dry": {DryRun: true}, "few": {Limit: quotient.Limit{InFlight: 2}},
			"well": {Limit: quotient.Limit{InFlight: 3}},
		},
		Proxy: &config.Proxy{Listen: "127.0.0.1:1", Upstreams: []*url.URL{
			{Scheme: "http", Host: "127.0.0.1:1"},
			{Scheme: "http", Host: "127.0.0.1:2"},
		}},
	}
	want := "limiter dry is in a dry run: everything is admitted\n" +
		"limiter few has 2 slots for 3 replicas: some refuse everything\n" +
		"upstream http://127.0.0.1:1 is the proxy's own address: requests would go round"
	if got := strings.Join(suspicious(f), "\n"); got != want {
		t.Errorf("got %s", got)
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 999: "999ns", 1234: "1.23µs", 12345: "12.3µs", 123456: "123µs", 1234567890: "1.23s",
	} {
		if got := short(d); got != want {
			t.Errorf("%d: got %s, want %s", d, got, want)
		}
	}
}
