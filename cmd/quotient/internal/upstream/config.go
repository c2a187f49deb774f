package upstream

import (
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/quotient-go/quotient/config"
)

// Prepare is the first half of a reload. commit puts what the file says of upstreams in force. Upstreams that
// stay keep their health and what they have in flight, and their connections unless a time-out or their number
// has changed. Upstreams that go finish what they have in flight. Their connections close then, those of HTTP/2
// at most 4 s later. Package config has checked the file.
func (p *Pool) Prepare(f *config.File) (commit func(), err error) {
	if f.Proxy == nil {
		return nil, errors.New("upstream: the file has no section [proxy]")
	}
	return func() { p.apply(f.Proxy) }, nil
}

type target struct {
	scheme, host string // as the file spells the scheme
}

func targetOf(u *url.URL) target { return target{strings.ToLower(u.Scheme), strings.ToLower(u.Host)} }

func (t target) String() string { return t.scheme + "://" + t.host }

type limits struct {
	dial, head time.Duration
	conns      int
	roots      *x509.CertPool
}
