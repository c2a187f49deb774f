package front

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient/config"
)

const (
	lookEvery = time.Second // at the files
	maxPEM    = 1 << 20     // bytes of one file
)

// certs holds the certificate in force. It looks at the files each second, and takes what it has found the same twice
// if key and certificate belong together; else the old pair stays. So it never serves what is half written.
type certs struct {
	log *slog.Logger
	now atomic.Pointer[pair]

	mu   sync.Mutex
	seen [sha256.Size]byte // what the last look has found
	said string            // the error that the log has
}

// pair is what was made of the files.
type pair struct {
	files  config.TLS
	sum    [sha256.Size]byte
	config *tls.Config
}

type texts struct{ cert, key, clientCA []byte }

func newCerts(files config.TLS, log *slog.Logger) (*certs, error) {
	p, err := load(files)
	if err != nil {
		return nil, err
	}
	c := &certs{log: log}
	c.now.Store(p)
	return c, nil
}

// prepare reads the files that a reload names.
func (c *certs) prepare(files config.TLS) (commit func(), err error) {
	p, err := load(files)
	if err != nil {
		return nil, err
	}
	return func() {
		if old := c.now.Load(); old.files != p.files || old.sum != p.sum {
			c.now.Store(p)
		}
	}, nil
}

// watch looks until ctx ends.
func (c *certs) watch(ctx context.Context) {
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			c.look()
		case <-ctx.Done():
			return
		}
	}
}

func (c *certs) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.now.Load()
	text, err := read(old.files)
	if err != nil {
		c.say(err)
		return
	}
	sum := text.sum()
	before := c.seen
	c.seen = sum
	if sum == old.sum {
		c.said = ""
		return
	}
	if sum != before { // it may not be all there yet
		return
	}
	p, err := parse(old.files, text)
	if err != nil {
		c.say(err)
		return
	}
	if c.now.CompareAndSwap(old, p) { // else a reload was faster
		c.said = ""
		c.log.Info("the certificate was read again", "cert", old.files.Cert)
	}
}

func (c *certs) say(err error) {
	if text := err.Error(); text != c.said {
		c.said = text
		c.log.Error("the certificate stays as it was", "error", text)
	}
}

func load(files config.TLS) (*pair, error) {
	text, err := read(files)
	if err != nil {
		return nil, err
	}
	return parse(files, text)
}

func read(files config.TLS) (t texts, err error) {
	if t.cert, err = readFile("cert", files.Cert); err != nil {
		return texts{}, err
	}
	if t.key, err = readFile("key", files.Key); err != nil {
		return texts{}, err
	}
	if files.ClientCA != "" {
		t.clientCA, err = readFile("client-ca", files.ClientCA)
	}
	return t, err
}

func readFile(field, path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("proxy.tls.%s: %w", field, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPEM+1))
	if err == nil && len(text) > maxPEM {
		err = fmt.Errorf("%s has more than %d bytes", path, maxPEM)
	}
	if err != nil {
		return nil, fmt.Errorf("proxy.tls.%s: %w", field, err)
	}
	return text, nil
}

func (t texts) sum() [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%x %x %x",
		sha256.Sum256(t.cert), sha256.Sum256(t.key), sha256.Sum256(t.clientCA)))
}

// suites are those of TLS 1.2 that HTTP/2 does not forbid.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

func parse(files config.TLS, text texts) (*pair, error) {
	cert, err := tls.X509KeyPair(text.cert, text.key)
	if err != nil {
		return nil, fmt.Errorf("proxy.tls.cert: %s with key %s: %w", files.Cert, files.Key, err)
	}
	c := &tls.Config{
		Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, CipherSuites: suites,
		NextProtos: []string{"h2", "http/1.1"},
	}
	if files.ClientCA != "" {
		c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !c.ClientCAs.AppendCertsFromPEM(text.clientCA) {
			return nil, fmt.Errorf("proxy.tls.client-ca: %s has no certificate", files.ClientCA)
		}
	}
	return &pair{files: files, sum: text.sum(), config: c}, nil
}
