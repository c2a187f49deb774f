package front

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient/config"
)

// sectionOf is a section [proxy] for one kind of connection.
type sectionOf struct {
	*config.Proxy
	kind string
}

func sectionFor(set func(*sectionOf)) func() *sectionOf {
	return func() *sectionOf {
		p := &sectionOf{Proxy: section()}
		set(p)
		return p
	}
}

func (p *sectionOf) secure() bool { return strings.HasSuffix(p.kind, "TLS") || p.kind == "h2" }

func (p *sectionOf) serve(t *testing.T, h http.Handler, opts ...Option) *running {
	t.Helper()
	p.H2C = p.kind == "h2c"
	if p.secure() {
		dir := t.TempDir()
		writePair(t, dir, "first")
		p.TLS = &config.TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	}
	return serve(t, p.Proxy, h, opts...)
}

func (p *sectionOf) url(s *running) string {
	if p.secure() {
		return "https://" + s.addr
	}
	return "http://" + s.addr
}

func (p *sectionOf) client(t *testing.T) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(!strings.HasPrefix(p.kind, "h2"))
	protocols.SetHTTP2(p.kind == "h2")
	protocols.SetUnencryptedHTTP2(p.kind == "h2c")
	//nolint:gosec // loopback
	transport := &http.Transport{Protocols: &protocols,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// makePair returns a certificate of its own for a name, and its key.
func makePair(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

func writePair(t *testing.T, dir, name string) {
	t.Helper()
	cert, key := makePair(t, name)
	writeFile(t, filepath.Join(dir, "cert.pem"), cert)
	writeFile(t, filepath.Join(dir, "key.pem"), key)
}

func writeFile(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
