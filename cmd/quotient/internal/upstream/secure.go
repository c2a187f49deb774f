package upstream

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"

	"github.com/quotient-go/quotient/cmd/quotient/internal/secrets"
	"github.com/quotient-go/quotient/config"
)

// secure is how connections of TLS are opened.
type secure struct {
	sum    [sha256.Size]byte // of the settings, and of what their files hold
	config *tls.Config
}

// readSecure reads the files of [proxy.upstream-tls]; nil without that section.
func readSecure(f *config.File) (*secure, error) {
	return readTLS("proxy.upstream-tls", f.Proxy.UpstreamTLS)
}

// ReadTLS reads the files of a section; nil without it. Errors name the section's fields.
func ReadTLS(section string, from config.UpstreamTLS) (*tls.Config, error) {
	s, err := readTLS(section, from)
	if s == nil || err != nil {
		return nil, err
	}
	return s.config, nil
}

func readTLS(section string, from config.UpstreamTLS) (*secure, error) {
	if from == (config.UpstreamTLS{}) {
		return nil, nil
	}
	files := secrets.Files{Cert: from.Cert, Key: from.Key, CA: from.CA, CAField: "ca", Prefix: section + "."}
	text, err := files.Read(context.Background())
	if err != nil {
		return nil, err
	}
	s := &secure{config: &tls.Config{ServerName: from.ServerName}}
	s.sum = sha256.Sum256(fmt.Appendf(nil, "%q %x", from, text.Sum()))
	s.config.Certificates, s.config.RootCAs, err = files.Parse(text)
	return s, err
}

// secure has connections be opened in this way from the next apply on. What is the same leaves those that are open.
func (p *Pool) secure(next *secure) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if next == nil || p.tls == nil || p.tls.sum != next.sum {
		p.tls = next
	}
}

// tlsConfig is what a handshake with an upstream uses, for these protocols.
func (t target) tlsConfig(l limits, versions ...string) *tls.Config {
	c := &tls.Config{}
	if l.tls != nil {
		c = l.tls.config.Clone()
	}
	c.ServerName, c.NextProtos = cmp.Or(c.ServerName, t.hostname()), versions
	return c
}
