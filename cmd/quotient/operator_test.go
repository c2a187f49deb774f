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
			must(t, os.WriteFile(path, []byte(c.text), 0o600))
			got, err := readTokens(path)
			if equal(t, "tokens", strings.Join(got, " "), c.want); c.err != "" || err != nil {
				fails(t, err, c.err)
			}
		})
	}
}

func TestAccess(t *testing.T) {
	_, err := access(config.Admin{TokenFile: "nosuch"}, "proxy.admin")
	fails(t, err, "proxy.admin.token-file")
	_, err = access(config.Admin{ReadOnlyTokenFile: "nosuch"}, "proxy.admin")
	fails(t, err, "proxy.admin.read-only-token-file")
	opts, err := access(config.Admin{TLS: &config.TLS{ClientCA: "ca"}, Hosts: []string{"ops"}}, "proxy.admin")
	if err != nil || len(opts) != 2 {
		t.Errorf("got %d options, %v", len(opts), err)
	}
}

// pair writes a certificate of its own for a name.
func pair(t *testing.T, dir, name string) *config.TLS {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name},
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	files := &config.TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	for path, block := range map[string]*pem.Block{
		files.Cert: {Type: "CERTIFICATE", Bytes: der}, files.Key: {Type: "PRIVATE KEY", Bytes: private},
	} {
		must(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
	}
	return files
}

// TestServerTLSFollowsItsFiles checks that a certificate is renewed, and that a pair which is half-written
// is not.
func TestServerTLSFollowsItsFiles(t *testing.T) {
	dir := t.TempDir()
	files := pair(t, dir, "old")
	c, err := serverTLS(files)
	must(t, err)
	name := func() string {
		t.Helper()
		pair, err := c.GetCertificate(&tls.ClientHelloInfo{})
		must(t, err)
		return pair.Leaf.DNSNames[0]
	}
	equal(t, "the name", name(), "old")
	oldKey, err := os.ReadFile(files.Key)
	must(t, err)
	pair(t, dir, "new")
	newKey, err := os.ReadFile(files.Key)
	must(t, err)
	must(t, os.WriteFile(files.Key, oldKey, 0o600))
	equal(t, "with half of a pair", name(), "old")
	must(t, os.WriteFile(files.Key, newKey, 0o600))
	equal(t, "the name", name(), "new")
	files.ClientCA = files.Key // it is a key
	_, err = serverTLS(files)
	fails(t, err, "has no certificate")
	files.ClientCA = files.Cert
	if c, err := serverTLS(files); err != nil || c.ClientAuth != tls.VerifyClientCertIfGiven {
		t.Errorf("with a client CA: got %v", err)
	}
	_, err = serverTLS(&config.TLS{Cert: "nosuch", Key: "nosuch"})
	fails(t, err, "nosuch")
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
	equal(t, "what is suspicious", suspicious(f), []string{
		"limiter dry is in a dry run: everything is admitted",
		"limiter few has 2 slots for 3 replicas: some refuse everything",
		"upstream http://127.0.0.1:1 is the proxy's own address: requests would go round",
	})
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 999: "999ns", 1234: "1.23µs", 12345: "12.3µs", 123456: "123µs", 1234567890: "1.23s",
	} {
		equal(t, want, short(d), want)
	}
}
