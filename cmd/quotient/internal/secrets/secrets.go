// Package secrets reads certificates, keys and tokens.
package secrets

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/files"
)

const (
	maxPEM    = 1 << 20  // bytes of one file
	maxTokens = 64 << 10 // bytes of a file of tokens
)

// Files are paths of a certificate, of its key, and of authorities that others' certificates are of. Each may be "".
type Files struct {
	Cert, Key, CA string
	CAField       string // what errors call the last one
	Prefix        string // of the fields in errors, such as "proxy.tls."
}

// Texts are what files hold.
type Texts struct{ cert, key, ca []byte }

// Sum tells texts apart.
func (t Texts) Sum() [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %q", t.cert, t.key, t.ca))
}

// Read reads the files. Its errors, and those of Parse, are a config.Error.
func (f Files) Read(ctx context.Context) (t Texts, err error) {
	for _, of := range []struct {
		field, path string
		into        *[]byte
	}{{"cert", f.Cert, &t.cert}, {"key", f.Key, &t.key}, {f.CAField, f.CA, &t.ca}} {
		if of.path == "" {
			continue
		}
		if *of.into, _, err = files.Read(ctx, of.path, maxPEM); err != nil {
			return Texts{}, config.Error{Field: f.Prefix + of.field, Text: err.Error()}
		}
	}
	return t, nil
}

// Parse returns what the texts of the files are: no certificates and nil where they are not named.
func (f Files) Parse(t Texts) (certs []tls.Certificate, authorities *x509.CertPool, err error) {
	if f.Cert != "" {
		pair, err := tls.X509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, nil, config.Error{
				Field: f.Prefix + "cert", Text: fmt.Sprintf("%s with key %s: %v", f.Cert, f.Key, err),
				Hint: "want PEM, and a key that belongs to the first certificate",
			}
		}
		certs = []tls.Certificate{pair}
	}
	if f.CA != "" {
		if authorities = x509.NewCertPool(); !authorities.AppendCertsFromPEM(t.ca) {
			return nil, nil, config.Error{
				Field: f.Prefix + f.CAField, Text: f.CA + " has no certificate", Hint: "want PEM",
			}
		}
	}
	return certs, authorities, nil
}

// Tokens reads bearer tokens, one a line. Empty lines and those that begin with # are passed over. None is an error.
func Tokens(path string) (tokens []string, err error) {
	text, _, err := files.Read(context.Background(), path, maxTokens)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if t := strings.TrimSpace(line); t != "" && !strings.HasPrefix(t, "#") {
			tokens = append(tokens, t)
		}
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("%s has no token", path)
	}
	return tokens, nil
}
