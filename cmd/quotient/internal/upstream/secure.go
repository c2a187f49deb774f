package upstream

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/files"
)

const maxPEM = 1 << 20 // bytes of one file

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
	if s == nil {
		return nil, err
	}
	return s.config, nil
}

func readTLS(section string, from config.UpstreamTLS) (*secure, error) {
	fault := func(field, format string, args ...any) error {
		return config.Error{Field: section + "." + field, Text: fmt.Sprintf(format, args...)}
	}
	if from == (config.UpstreamTLS{}) {
		return nil, nil
	}
	var ca, cert, key []byte
	for _, of := range []struct {
		field, path string
		into        *[]byte
	}{{"ca", from.CA, &ca}, {"cert", from.Cert, &cert}, {"key", from.Key, &key}} {
		if of.path == "" {
			continue
		}
		var err error
		if *of.into, _, err = files.Read(context.Background(), of.path, maxPEM); err != nil {
			return nil, fault(of.field, "%v", err)
		}
	}
	s := &secure{config: &tls.Config{ServerName: from.ServerName}}
	s.sum = sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", from, ca, cert, key))
	if from.CA != "" {
		if s.config.RootCAs = x509.NewCertPool(); !s.config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fault("ca", "%s has no certificate", from.CA)
		}
	}
	if from.Cert != "" {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fault("cert", "%s with key %s: %v", from.Cert, from.Key, err)
		}
		s.config.Certificates = []tls.Certificate{pair}
	}
	return s, nil
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
