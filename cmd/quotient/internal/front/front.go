// Package front is the server in front of the proxy's handler. All that clients can hold is bounded in
// number, size and time. A request that two servers could read in two ways is refused before it is read.
//
// It serves HTTP/1 itself: http1.go reads a connection's requests with http.ReadRequest, behind framing.go, and
// reply.go writes the answers. A connection has one goroutine. A second one comes when a request takes long, to see
// its client leave. HTTP/2 is net/http's, which bounds heads, streams and idle connections, and ends rapid resets and
// endless CONTINUATION frames; frames.go and stream.go add what it leaves open.
//
// This package bounds the number of connections, what all of them hold (framing.go, frames.go, conn.go), the time
// of heads, of idle connections, between two parts of a body and of an answer (http1.go, conn.go, stream.go) and the
// silence of upgraded connections. It refuses ambiguous framing (framing.go), and targets and fields that would not
// arrive as they were sent (strict.go). It reads certificates again (certs.go) and the PROXY protocol, and its shutdown
// has an end (serve.go).
package front

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/held"
	"github.com/quotient-go/quotient/internal/listen"
)

// Server serves a handler to clients that may be hostile. It is a config.Part: a reload changes what is in
// settings, and is refused when it would change anything else.
type Server struct {
	handler http.Handler
	log     *slog.Logger
	proxy   config.Proxy // as it was at the start
	drain   []func()
	anyPath bool
	now     atomic.Pointer[settings]
	places  *listen.Places
	room    held.Room
	certs   *Certs       // nil without TLS
	at      atomic.Int64 // requests that the handler has
	serving atomic.Bool
	closing atomic.Bool

	onRefusal func(h http.Header, r *http.Request, status int, reason string) // may be nil
	answerBy  func(h http.Header, status int) int                             // the same
	refusals  [reasons]atomic.Uint64
}

// settings are what a reload may change.
type settings struct {
	readBody, write, stream, shutdown time.Duration
	trusted                           []netip.Prefix
	unix                              bool // peers of a Unix socket are trusted
}

// Option is an option of New.
type Option func(*Server)

// OnShutdown has f called as soon as the context of Serve ends, before anything is closed: it should end what
// waits, and must not block.
func OnShutdown(f func()) Option {
	return func(s *Server) { s.drain = append(s.drain, f) }
}

// AnyPath lets paths through with bytes that net/http would encode, such as "|", as some clients send them. It
// is for a handler that answers itself: an upstream could read such a path in another way.
func AnyPath() Option { return func(s *Server) { s.anyPath = true } }

// New makes a server for the section [proxy] of a file, whose bounds package config has checked. It reads the
// certificates, if there are any.
func New(p *config.Proxy, h http.Handler, log *slog.Logger, opts ...Option) (*Server, error) {
	s := &Server{handler: h, log: log, proxy: *p}
	for _, opt := range opts {
		opt(s)
	}
	if p.TLS != nil {
		base := &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2", "http/1.1"}}
		certs, err := NewCerts("proxy.tls", *p.TLS, base, log)
		if err != nil {
			return nil, err
		}
		s.certs = certs
	}
	s.places = listen.New(p.Max.Connections)
	s.places.Crowded = func(now listen.State) {
		log.Warn("all places for connections are taken (proxy.max.connections)",
			"open", now.Open, "evicted", now.Evicted, "refused", now.Refused)
	}
	s.put(p)
	return s, nil
}

func (s *Server) put(p *config.Proxy) {
	s.now.Store(&settings{
		readBody: p.Timeouts.ReadBody, write: p.Timeouts.Write, stream: p.Timeouts.Stream,
		shutdown: p.Timeouts.Shutdown,
		trusted:  p.Trusted, unix: p.TrustUnix,
	})
	s.places.SetMost(p.Max.Connections)
	s.room.SetMost(p.Max.HeldBytes)
}

// Prepare is the first half of a reload. Time-outs of bodies, answers, streams and the shutdown, trusted networks,
// the number of connections and certificates change with commit; anything else is an error that names its field.
func (s *Server) Prepare(f *config.File) (commit func(), err error) {
	p := f.Proxy
	if p == nil {
		return nil, errors.New("proxy: the section is missing: removing it requires a restart")
	}
	for _, c := range []struct {
		field    string
		old, new any
	}{
		{"listen", s.proxy.Listen, p.Listen},
		{"proxy-protocol", s.proxy.ProxyProtocol, p.ProxyProtocol},
		{"h2c", s.proxy.H2C, p.H2C},
		{"tls", s.proxy.TLS != nil, p.TLS != nil},
		{"timeouts.read-header", s.proxy.Timeouts.ReadHeader, p.Timeouts.ReadHeader},
		{"timeouts.idle", s.proxy.Timeouts.Idle, p.Timeouts.Idle},
		{"max.header-bytes", s.proxy.Max.HeaderBytes, p.Max.HeaderBytes},
		{"max.streams", s.proxy.Max.Streams, p.Max.Streams},
	} {
		if c.old != c.new {
			return nil, fmt.Errorf("proxy.%s: %v requires a restart, %v is in force", c.field, c.new, c.old)
		}
	}
	swap := func() {}
	if s.certs != nil {
		if swap, err = s.certs.prepare(*p.TLS); err != nil {
			return nil, err
		}
	}
	return func() { swap(); s.put(p) }, nil
}

// State is what a page or a metric may show of the connections.
type State struct {
	Connections int    // that are open
	Upgraded    int    // of these
	Evicted     uint64 // idle ones that were closed to make room
	Refused     uint64 // new ones that found no room
	Held        int64  // bytes that requests hold beyond what each connection may
	Shed        uint64 // requests, or parts of them, that were refused since there were too many
}

// InFlight returns how many requests the handler has: they are being answered, or wait for that.
func (s *Server) InFlight() int { return int(s.at.Load()) }

// State returns how many connections there are.
func (s *Server) State() State {
	now := s.places.State()
	held, shed := s.room.State()
	return State{
		Connections: now.Open, Upgraded: now.Upgraded, Evicted: now.Evicted, Refused: now.Refused,
		Held: held, Shed: shed,
	}
}

// tlsConfig is what a handshake that begins now uses; nil without TLS.
func (s *Server) tlsConfig() *tls.Config {
	if s.certs == nil {
		return nil
	}
	return s.certs.Config()
}
