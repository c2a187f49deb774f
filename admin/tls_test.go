package admin

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// selfSigned is a certificate for both ends of a connection, and the pool that trusts it.
func selfSigned(t *testing.T, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// lines is a log that may be read while others write.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestMutualTLS goes through Serve and a TLS listener: a client with the right certificate is served and
// named in the log.
func TestMutualTLS(t *testing.T) {
	server, trusted := selfSigned(t, "server")
	operator, operators := selfSigned(t, "operator")
	stranger, _ := selfSigned(t, "stranger")
	var out lines
	h := mount(t, newLimiter(t), MutualTLS(), Logger(slog.New(slog.NewTextHandler(&out, nil)))).(*Handler)
	l, err := h.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serving(t, h,
		tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{server}, ClientCAs: operators,
			ClientAuth: tls.VerifyClientCertIfGiven}))
	connect := func(certificates ...tls.Certificate) error {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted,
			Certificates: certificates}}
		c, err := NewClient("https://"+l.Addr().String(), HTTPClient(&http.Client{Transport: transport}))
		if err != nil {
			t.Fatal(err)
		}
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
