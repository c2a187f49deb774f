package front

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
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
	srv := s.http2(work)
	l = s.places.Listener(listener{s.peers(l), s})
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { stopped <- s.shutdown(l, srv) })
	err := s.accept(ctx, work, l, srv)
	if stop() { // the end was not asked for
		end()
		err = errors.Join(fmt.Errorf("front: Serve: %w", err), l.Close(), srv.Close())
		s.places.Clear()
		return err
	}
	return <-stopped
}

// accept has each connection served by a goroutine of its own, until ctx ends or there are no more.
func (s *Server) accept(ctx, work context.Context, l net.Listener, http2 *http.Server) error {
	const least, most = 5 * time.Millisecond, time.Second
	for pause := least; ; {
		nc, err := l.Accept()
		if err == nil {
			pause = least
			go nc.(*conn).serve(work, http2)
			continue
		}
		var passes interface{ Temporary() bool } // as when there are too many files
		if ctx.Err() != nil || !errors.As(err, &passes) || !passes.Temporary() {
			return err
		}
		s.log.Warn("no connection is taken for a while", "error", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, most)
	}
}

// http2 is the server of connections that speak HTTP/2. TLS ends in conn.
func (s *Server) http2(work context.Context) *http.Server {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           http.HandlerFunc(s.serveStream),
		ReadHeaderTimeout: s.proxy.Timeouts.ReadHeader, IdleTimeout: s.proxy.Timeouts.Idle,
		MaxHeaderBytes: s.proxy.Max.HeaderBytes, Protocols: &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: s.proxy.Max.Streams, MaxReceiveBufferPerStream: uploadBuffer,
			MaxReceiveBufferPerConnection: streamBuffer, MaxReadFrameSize: frameSize, SendPingTimeout: silence,
		},
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		ConnState:   func(c net.Conn, state http.ConnState) { s.places.Follow(c, state) },
		BaseContext: func(net.Listener) context.Context { return work },
		ConnContext: func(_ context.Context, c net.Conn) context.Context { return c.(*conn).ctx },
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

// shutdown lets what is at work finish for a while, and then closes its connection; Serve ends its context.
func (s *Server) shutdown(l net.Listener, srv *http.Server) error {
	s.closing.Store(true)
	for _, f := range s.drain {
		f()
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.now.Load().shutdown)
	defer cancel()
	s.places.Wane() // no more requests come on them
	err := errors.Join(l.Close(), srv.Shutdown(ctx))
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

// recovered logs why a handler has panicked, unless it was to break its answer off.
func (s *Server) recovered(cause any, r *http.Request) {
	if cause != http.ErrAbortHandler {
		s.log.Error("a handler has panicked", "cause", fmt.Sprint(cause), "client", r.RemoteAddr,
			"stack", string(debug.Stack()))
	}
}

// serveStream hands a request over HTTP/2 to the handler, if there is room for it.
func (s *Server) serveStream(w http.ResponseWriter, r *http.Request) {
	c := connOf(r)
	r.TLS = c.secure
	sw := &streamWriter{ResponseWriter: w, server: s}
	sw.pace.cut = func() { _ = http.NewResponseController(w).SetWriteDeadline(longAgo()) }
	defer sw.end()
	leave, ok := c.streams.enter(r)
	defer leave()
	defer r.Body.Close() // or net/http keeps what is left of it with the connection
	if !ok {
		status := s.refused(sw.Header(), r, http.StatusServiceUnavailable, whyNoRoom)
		say(sw, r, status, held.ErrNoRoom.Error())
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
	if status := body.fault.Load(); status != 0 && !sw.given {
		blame(sw, r, int(status))
	}
}

// hand hands a request to the handler, if it is not refused.
func (s *Server) hand(w http.ResponseWriter, r *http.Request) {
	if status, why, text := refusal(r, s.anyPath); status != 0 {
		s.refuse(w, r, status, why, text)
		return
	}
	s.at.Add(1)
	defer s.at.Add(-1)
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
