package upstream

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/quotient-go/quotient/config"
)

// maxUpstreams bounds the upstreams of a Pool: each request looks at all of them.
const maxUpstreams = 1000

// Config is what a Pool does. The zero value of each field but Upstreams is the default of the configuration
// file.
type Config struct {
	Upstreams      []*url.URL    // http, https or h2c, without a path; 1 to 1,000, each once
	Health         config.Health // how they are checked
	Dial           time.Duration // bounds the opening of a connection, and the handshake of TLS as well; 5 s
	ResponseHeader time.Duration // from the end of a request to the head of its answer; 60 s
	// MaxConns bounds the connections to one upstream; a request waits for one. 0 is any number.
	MaxConns int
	// RootCAs sign the certificates of https upstreams. Nil is those of the system.
	RootCAs *x509.CertPool
}

// ConfigOf returns what a file says of upstreams.
func ConfigOf(p *config.Proxy) Config {
	return Config{
		Upstreams:      p.Upstreams,
		Health:         p.Health,
		Dial:           p.Timeouts.Dial,
		ResponseHeader: p.Timeouts.ResponseHeader,
		MaxConns:       p.Max.Upstream,
	}
}

// Prepare checks what a file says of upstreams. The Pool does it once commit is called, as Set.
func (p *Pool) Prepare(f *config.File) (commit func(), err error) {
	if f.Proxy == nil {
		return nil, errors.New("upstream: the file has no section [proxy]")
	}
	next, err := settle(ConfigOf(f.Proxy))
	if err != nil {
		return nil, err
	}
	return func() { p.apply(next) }, nil
}

// Set puts a configuration in force. Upstreams that stay keep their health and what they have in flight, and
// their connections unless a time-out, MaxConns or RootCAs has changed. Upstreams that go finish what they
// have in flight. Their connections close then, those of HTTP/2 at most 4 s later. The error names the field
// and value that cannot be; then all stays as it was.
func (p *Pool) Set(c Config) error {
	next, err := settle(c)
	if err != nil {
		return err
	}
	p.apply(next)
	return nil
}

// settled is a Config that was found valid, with its defaults.
type settled struct {
	targets []target
	health  config.Health
	limits  limits
}

// target is where an upstream is.
type target struct {
	scheme, host string // as the file spells the scheme
}

func (t target) String() string { return t.scheme + "://" + t.host }

// limits are the settings of a transport.
type limits struct {
	dial, head time.Duration
	conns      int
	roots      *x509.CertPool
}

// settle checks a Config and fills in its defaults.
func settle(c Config) (settled, error) {
	s := settled{health: c.Health}
	s.limits = limits{c.Dial, c.ResponseHeader, c.MaxConns, c.RootCAs}
	if c.MaxConns < 0 {
		return s, fmt.Errorf("upstream: MaxConns is %d, want 0 or more", c.MaxConns)
	}
	if err := settleHealth(&s.health); err != nil {
		return s, err
	}
	for _, d := range []struct {
		name   string
		of     *time.Duration
		normal time.Duration
	}{
		{"Dial", &s.limits.dial, 5 * time.Second},
		{"ResponseHeader", &s.limits.head, time.Minute},
		{"Health.Every", &s.health.Every, 5 * time.Second},
		{"Health.Timeout", &s.health.Timeout, 2 * time.Second},
	} {
		if *d.of < 0 {
			return s, fmt.Errorf("upstream: %s is %v, want 0 or more", d.name, *d.of)
		}
		if *d.of == 0 {
			*d.of = d.normal
		}
	}
	var err error
	s.targets, err = targets(c.Upstreams)
	return s, err
}

// settleHealth checks and fills in what is not a time.
func settleHealth(h *config.Health) error {
	if h.Path != "" && !strings.HasPrefix(h.Path, "/") {
		return fmt.Errorf("upstream: Health.Path is %q, want one that begins with /", h.Path)
	}
	if _, err := url.ParseRequestURI("http://host" + h.Path); err != nil {
		return fmt.Errorf("upstream: Health.Path is %q, which is no path", h.Path)
	}
	if h.Unhealthy < 0 || h.Healthy < 0 {
		return fmt.Errorf("upstream: Health.Unhealthy is %d and Health.Healthy %d, want 0 or more",
			h.Unhealthy, h.Healthy)
	}
	if h.Unhealthy == 0 {
		h.Unhealthy = 3
	}
	if h.Healthy == 0 {
		h.Healthy = 1
	}
	return nil
}

// targets checks the URLs of upstreams.
func targets(urls []*url.URL) ([]target, error) {
	if len(urls) == 0 || len(urls) > maxUpstreams {
		return nil, fmt.Errorf("upstream: Upstreams has %d URLs, want 1 to %d", len(urls), maxUpstreams)
	}
	seen := make(map[target]bool, len(urls))
	list := make([]target, 0, len(urls))
	for _, u := range urls {
		t, err := targetOf(u)
		if err != nil {
			return nil, err
		}
		if seen[t] {
			return nil, fmt.Errorf("upstream: Upstreams has %v twice", t)
		}
		seen[t] = true
		list = append(list, t)
	}
	return list, nil
}

// targetOf checks one URL.
func targetOf(u *url.URL) (target, error) {
	if u == nil {
		return target{}, errors.New("upstream: Upstreams has a URL that is nil")
	}
	t := target{scheme: strings.ToLower(u.Scheme), host: strings.ToLower(u.Host)}
	switch t.scheme {
	case "http", "https", "h2c":
	default:
		return t, fmt.Errorf("upstream: Upstreams: the scheme of %q is not http, https or h2c", u.Redacted())
	}
	if u.Hostname() == "" {
		return t, fmt.Errorf("upstream: Upstreams: %q has no host", u.Redacted())
	}
	if u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return t, fmt.Errorf("upstream: Upstreams: %q is more than scheme, host and port", u.Redacted())
	}
	return t, nil
}
