package front

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient/cmd/quotient/internal/secrets"
	"github.com/quotient-go/quotient/config"
)

const lookEvery = time.Second // at the files

// Certs holds the certificate in force. It looks at the files each second, and takes what it has found the same twice
// if key and certificate belong together; else the old pair stays. So it never serves what is half written.
type Certs struct {
	field string // of the files, in errors
	base  *tls.Config
	log   *slog.Logger
	now   atomic.Pointer[pair]

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

// NewCerts reads the files of a section, such as proxy.tls. What base says of clients and protocols counts for all
// pairs; without a client-ca no client is asked for a certificate.
func NewCerts(field string, files config.TLS, base *tls.Config, log *slog.Logger) (*Certs, error) {
	c := &Certs{field: field, base: base, log: log}
	commit, err := c.prepare(files)
	if err != nil {
		return nil, err
	}
	commit()
	return c, nil
}

// Config is what a handshake that begins now uses.
func (c *Certs) Config() *tls.Config { return c.now.Load().config }

// prepare reads the files that a reload names.
func (c *Certs) prepare(files config.TLS) (commit func(), err error) {
	text, err := c.paths(files).Read(context.Background())
	if err != nil {
		return nil, err
	}
	p, err := c.parse(files, text)
	if err != nil {
		return nil, err
	}
	return func() {
		if old := c.now.Load(); old == nil || old.files != p.files || old.sum != p.sum {
			c.now.Store(p)
		}
	}, nil
}

// Watch looks until ctx ends.
func (c *Certs) Watch(ctx context.Context) {
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			c.look(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (c *Certs) look(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.now.Load()
	text, err := c.paths(old.files).Read(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		c.say(err)
		return
	}
	sum := text.Sum()
	before := c.seen
	c.seen = sum
	if sum == old.sum {
		c.said = ""
		return
	}
	if sum != before { // it may not be all there yet
		return
	}
	p, err := c.parse(old.files, text)
	if err != nil {
		c.say(err)
		return
	}
	if c.now.CompareAndSwap(old, p) { // else a reload was faster
		c.said = ""
		c.log.Info("the certificate was read again", "cert", old.files.Cert)
	}
}

func (c *Certs) say(err error) {
	if text := err.Error(); text != c.said {
		c.said = text
		c.log.Error("the certificate stays as it was", "error", text)
	}
}

func (c *Certs) paths(f config.TLS) secrets.Files {
	return secrets.Files{Cert: f.Cert, Key: f.Key, CA: f.ClientCA, CAField: "client-ca", Prefix: c.field + "."}
}

// suites are those of TLS 1.2 that HTTP/2 does not forbid.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

func (c *Certs) parse(files config.TLS, text secrets.Texts) (*pair, error) {
	certs, clientCAs, err := c.paths(files).Parse(text)
	if err != nil {
		return nil, err
	}
	with := c.base.Clone()
	with.Certificates, with.MinVersion, with.CipherSuites = certs, tls.VersionTLS12, suites
	if with.ClientCAs = clientCAs; clientCAs == nil {
		with.ClientAuth = tls.NoClientCert
	}
	return &pair{files: files, sum: text.Sum(), config: with}, nil
}
