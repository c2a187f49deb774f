package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// Bounds of Serve. A request is a few kilobytes and an answer is made in milliseconds: whoever needs longer is not an operator.
// Event streams set deadlines of their own.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	stopTimeout   = 5 * time.Second // for requests that are at work when Serve is told to end
	maxHeader     = 64 << 10
	maxConns      = 512
)

// Listen listens at an address of network "tcp", "tcp4", "tcp6" or "unix". A TCP address must be of the loopback interface unless the handler has a
// [Token], [MutualTLS] or [BehindAuthentication]. A Unix socket is for the user that owns it (mode 0600); one that a process left behind when it
// died is replaced.
func (h *Handler) Listen(ctx context.Context, network, addr string) (net.Listener, error) {
	if h.api == nil {
		return nil, errZero
	}
	if network == "unix" {
		return listenUnix(ctx, addr)
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("admin: Listen: %w", err)
	}
	if err := h.fits(l.Addr()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

var errZero = errors.New("admin: the handler was not made by New")

// fits refuses an address that others than this machine can reach, unless there are credentials.
func (h *Handler) fits(addr net.Addr) error {
	if h.api == nil {
		return errZero
	}
	if h.api.guarded() || h.api.inFront || addr.Network() == "unix" || loopback(addr.String()) {
		return nil
	}
	return fmt.Errorf("admin: Listen: address: %s is not the loopback interface: Token, MutualTLS or BehindAuthentication is needed", addr)
}

func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := removeDead(ctx, path); err != nil {
		return nil, err
	}
	config := net.ListenConfig{Control: ownerOnly}
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("admin: Listen: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil { // where ownerOnly could not
		return nil, errors.Join(fmt.Errorf("admin: Listen: %w", err), l.Close())
	}
	return l, nil
}

// removeDead removes a socket at which nobody listens any more. Anything else stays, and then listening fails.
func removeDead(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("admin: Listen: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("admin: Listen: %s is there, and no socket", path)
	}
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("admin: Listen: somebody listens at %s", path), conn.Close())
	}
	if !refusedConnection(err) {
		return fmt.Errorf("admin: Listen: %w", err)
	}
	return os.Remove(path)
}

// Serve serves the handler at l, which may be one of tls.NewListener, until ctx ends; it then stops within five seconds, closes l and
// returns nil. It refuses the listeners that Listen would, has time-outs for everything, and serves at most 512 connections at a time.
func (h *Handler) Serve(ctx context.Context, l net.Listener) error {
	if err := h.fits(l.Addr()); err != nil {
		return errors.Join(err, l.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	places := newBounded(l, maxConns)
	srv := &http.Server{
		Handler: h, ConnState: places.leave, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(h.api.log.Handler(), slog.LevelWarn),
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { stopped <- shutdown(srv) })
	err := srv.Serve(places)
	if stop() { // nobody asked for the end
		return errors.Join(fmt.Errorf("admin: Serve: %w", err), srv.Close())
	}
	return <-stopped
}

// shutdown lets what is at work finish for a while, and then ends it.
func shutdown(srv *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		return srv.Close()
	}
	return nil
}

// bounded is a listener with so many connections at a time; more wait in the kernel's queue. It does not wrap connections, since a server
// looks at their type for TLS; the server says when one is closed.
type bounded struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	close  func() error
}

func newBounded(l net.Listener, most int) *bounded {
	b := &bounded{Listener: l, places: make(chan struct{}, most), closed: make(chan struct{})}
	b.close = sync.OnceValue(func() error { close(b.closed); return l.Close() })
	return b
}

// Accept waits for a place, and then for a connection.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.places <- struct{}{}:
	case <-b.closed:
		return nil, net.ErrClosed
	}
	conn, err := b.Listener.Accept()
	if err != nil {
		<-b.places
	}
	return conn, err
}

// Close also ends an Accept that waits for a place.
func (b *bounded) Close() error { return b.close() }

// leave gives the place of a connection back when it has ended.
func (b *bounded) leave(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed || state == http.StateHijacked {
		<-b.places
	}
}
