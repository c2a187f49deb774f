package front

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/quotient-go/quotient/internal/listen"
)

// Admit gives each connection of another listener a place among those of s until it is closed. Such a connection is
// never closed to make room.
func (s *Server) Admit(l net.Listener) net.Listener { return besides{s.places.Listener(l), s.places} }

// TLS is what handshakes of another listener use: the certificate that is in force. It is nil without TLS.
func (s *Server) TLS() *tls.Config {
	if s.certs == nil {
		return nil
	}
	now := func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.certs.Config(), nil }
	return &tls.Config{GetConfigForClient: now, MinVersion: tls.VersionTLS12}
}

// Watch looks at the certificate until ctx ends, and returns nil. Serve does so too.
func (s *Server) Watch(ctx context.Context) error {
	if s.certs != nil {
		s.certs.Watch(ctx)
	}
	<-ctx.Done()
	return nil
}

type besides struct {
	net.Listener
	places *listen.Places
}

// Accept waits for a connection that finds a place.
func (l besides) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.places.Follow(c, http.StateActive)
	return placed{c, l.places}, nil
}

type placed struct {
	net.Conn
	places *listen.Places
}

// Close gives the place back too.
func (c placed) Close() error {
	c.places.Leave(c.Conn)
	return c.Conn.Close()
}
