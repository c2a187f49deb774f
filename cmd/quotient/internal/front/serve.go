package front

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/quotient-go/quotient/internal/held"
)

const (
	// streamBuffer is what all uploads of an HTTP/2 connection may send before they are read, uploadBuffer what one
	// may: one that waits for its turn does not hold up the others.
	streamBuffer, uploadBuffer = 256 << 10, 64 << 10
	// frameSize is what net/http keeps of each HTTP/2 connection, once it has come: the smallest that there is.
	frameSize = 16 << 10
	// streamCost is what a request over HTTP/2 holds beside its head, when it is not the only one of its connection: it
	// has a buffer of each kind, and a connection to the upstream.
	streamCost = 48 << 10
	// silence is how long an HTTP/2 connection may say nothing while requests wait on it. Then it is asked for a sign
	// of life, which net/http awaits for 15 seconds.
	silence = 30 * time.Second
)

var errServed = errors.New("front: Serve: it has been called before")

// Serve serves at l until ctx ends. It then calls what OnShutdown has set, takes no more connections, closes the
// idle ones, lets the others finish within proxy.timeouts.shutdown and closes what is left, upgraded connections
// too. It closes l and returns nil. It may be called once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if s.serving.Swap(true) {
		return errors.Join(errServed, l.Close())
	}
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	if s.certs != nil {
		looked := make(chan struct{})
		look, stop := context.WithCancel(ctx)
		go func() { defer close(looked); s.certs.Watch(look) }()
		defer func() { stop(); <-looked }()
	}
	srv := s.httpServer(work)
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { stopped <- s.shutdown(srv) })
	err := srv.Serve(s.places.Listener(listener{s.peers(l), s}))
	if stop() { // the end was not asked for
		end()
		err = errors.Join(fmt.Errorf("front: Serve: %w", err), srv.Close())
		s.places.Clear()
		return err
	}
	return <-stopped
}

func (s *Server) httpServer(work context.Context) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(s.proxy.H2C || s.proxy.TLS != nil) // TLS ends in conn
	return &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: s.proxy.Timeouts.ReadHeader, IdleTimeout: s.proxy.Timeouts.Idle,
		MaxHeaderBytes: s.proxy.Max.HeaderBytes, Protocols: &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: s.proxy.Max.Streams, MaxReceiveBufferPerStream: uploadBuffer,
			MaxReceiveBufferPerConnection: streamBuffer, MaxReadFrameSize: frameSize, SendPingTimeout: silence,
		},
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		ConnState:   s.follow,
		BaseContext: func(net.Listener) context.Context { return work },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if c, ok := c.(*conn); ok {
				ctx = held.With(ctx, &c.share)
			}
			return context.WithValue(ctx, connKey{}, c)
		},
	}
}

type listener struct {
	net.Listener
	server *Server
}

func (l listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newConn(l.server, raw), nil
}

// follow is for http.Server.ConnState.
func (s *Server) follow(nc net.Conn, state http.ConnState) {
	c, ok := nc.(*conn)
	if !ok {
		return
	}
	switch state {
	case http.StateIdle:
		if !c.rest() {
			s.places.Drop(c)
			return
		}
	case http.StateHijacked:
		c.upgrade()
	}
	s.places.Follow(c, state)
}

// shutdown lets what is at work finish for a while, and then closes its connection; Serve ends its context.
func (s *Server) shutdown(srv *http.Server) error {
	for _, f := range s.drain {
		f()
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.now.Load().shutdown)
	defer cancel()
	s.places.Wane() // net/http reads no more requests on them
	err := srv.Shutdown(ctx)
	if err == nil {
		select {
		case <-s.places.Empty():
		case <-ctx.Done():
		}
	}
	_ = srv.Close()
	s.places.Clear()
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("connections were closed at the end of the time for the shutdown")
		return nil
	}
	return err
}

// serve refuses what is ambiguous, and hands the rest to the handler.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	c := connOf(r)
	r.TLS = c.secure
	switch {
	case r.ProtoMajor == 2:
		s.serveStream(w, r)
	case c.broken.Load():
		panic(http.ErrAbortHandler) // this is no request, or what is left of one
	case r.Body == http.NoBody:
		s.hand(w, r)
	default:
		body := &earlyBody{ReadCloser: r.Body, conn: c}
		r.Body = body
		defer c.answered(w, r, body)
		a := &answer{ResponseWriter: w}
		s.hand(a, r)
		if body.failed.Load() {
			a.blame(r, int(c.fault.Load()))
		}
	}
}

// serveStream is serve for a request over HTTP/2.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request) {
	sw := &streamWriter{answer: answer{ResponseWriter: w}, server: s}
	sw.pace.cut = func() { _ = http.NewResponseController(w).SetWriteDeadline(longAgo()) }
	defer sw.end()
	leave, ok := connOf(r).streams.enter(r)
	defer leave()
	defer r.Body.Close() // or net/http keeps what is left of it with the connection
	if !ok {
		say(sw, r, http.StatusServiceUnavailable, held.ErrNoRoom.Error())
		return
	}
	if r.Body == http.NoBody {
		s.hand(sw, r)
		return
	}
	body := newStreamBody(s, w, r.Body)
	defer body.pace.end()
	r.Body = body
	s.hand(sw, r)
	if status := body.fault.Load(); status != 0 {
		sw.blame(r, int(status))
	}
}

// hand hands a request to the handler, if it is not refused.
func (s *Server) hand(w http.ResponseWriter, r *http.Request) {
	if status, why := refusal(r, s.anyPath); status != 0 {
		refuse(w, r, status, why)
		return
	}
	s.handler.ServeHTTP(w, r)
}

var errFamily = errors.New("front: the PROXY protocol names an address that is not one of TCP")

// peers has trusted peers say by the PROXY protocol whose connection it is: they must. The first bytes of
// other peers are not read as that, and are a malformed request.
func (s *Server) peers(l net.Listener) net.Listener {
	if !s.proxy.ProxyProtocol {
		return l
	}
	return &proxyproto.Listener{
		Listener:          l,
		ReadHeaderTimeout: s.proxy.Timeouts.ReadHeader,
		ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
			if s.trusts(o.Upstream) {
				return proxyproto.REQUIRE, nil
			}
			return proxyproto.SKIP, nil
		},
		ValidateHeader: func(h *proxyproto.Header) error {
			family := h.TransportProtocol
			if h.Command.IsLocal() || family.IsUnspec() || family.IsStream() && (family.IsIPv4() || family.IsIPv6()) {
				return nil
			}
			return errFamily
		},
	}
}

func (s *Server) trusts(a net.Addr) bool {
	if a.Network() == "unix" {
		return s.now.Load().unix
	}
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return false
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	return slices.ContainsFunc(s.now.Load().trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
}
