package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/quotient-go/quotient/internal/listen"
)

// Bounds of Serve. A request is a few kilobytes and an answer is made in milliseconds: a client that needs
// longer is not an operator's. Event streams set deadlines of their own.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	stopTimeout   = 5 * time.Second // for requests that are at work when Serve is to end
	maxHeader     = 64 << 10
)

// Bounds of the connections of Serve. 256 strangers at a time are more than the browsers of any team.
const (
	maxConns     = 512
	maxStrangers = 256
)

// Listen listens at an address of network "tcp", "tcp4", "tcp6" or "unix". A TCP address must be of the
// loopback interface unless the handler has a [Token], [MutualTLS] or [BehindAuthentication].
//
// Only the owner of a Unix socket can use it (mode 0600). Listen replaces the socket of a process that has
// died. If two processes listen at one path, one gets an error: a locked file beside the socket (its name
// and ".lock") ensures that. Close removes both, the socket only if it is still that of the listener.
func (h *Handler) Listen(ctx context.Context, network, addr string) (net.Listener, error) {
	if h.api == nil {
		return nil, errZero
	}
	listens := new(net.ListenConfig).Listen
	if network == "unix" {
		listens = func(ctx context.Context, _, path string) (net.Listener, error) { return listen.Unix(ctx, path, true) }
	}
	l, err := listens(ctx, network, addr)
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

// Serve serves the handler at l, which may be a listener of tls.NewListener, until ctx ends. It then stops
// within five seconds, closes l and returns nil. It refuses the listeners that Listen would refuse, and
// sets all time-outs. While it runs it samples the limiters once a second, for [History].
//
// It serves at most 512 connections at a time, and at most 256 of unknown clients. A client is known once its
// connection has served a request that needs access. Requests for the page's files, the OpenAPI document and handlers
// of [MountOpen] do not count. An idle connection of an unknown client is closed after five seconds. If there is no
// place for a new connection, one of an unknown client is closed: an idle one first, otherwise the oldest. A connection
// of a known client keeps its place, and may be idle for two minutes.
func (h *Handler) Serve(ctx context.Context, l net.Listener) error {
	if err := h.fits(l.Addr()); err != nil {
		return errors.Join(err, l.Close())
	}
	return h.serve(ctx, l, h.newPlaces())
}

// ListenAndServe calls Listen and Serve for a TCP address such as "127.0.0.1:9091". It returns nil when ctx
// ends. It returns an error at once if it cannot listen there, or if the address needs credentials that the
// handler does not have.
func (h *Handler) ListenAndServe(ctx context.Context, addr string) error {
	l, err := h.Listen(ctx, "tcp", addr)
	if err != nil && ctx.Err() != nil { // while a name was looked up
		return nil
	}
	if err != nil {
		return err
	}
	return h.Serve(ctx, l)
}

func (h *Handler) serve(ctx context.Context, l net.Listener, all *listen.Places) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer h.api.samples.serve()()
	follow := func(conn net.Conn, state http.ConnState) {
		if state == http.StateHijacked { // a mounted handler has taken it over: it has no place any more
			state = http.StateClosed
		}
		all.Follow(conn, state)
	}
	srv := &http.Server{
		Handler: h, ConnState: follow, ConnContext: all.Remember,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(h.api.log.Handler(), slog.LevelWarn),
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { // what is at work may finish for a while
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		err := srv.Shutdown(ctx)
		if err != nil {
			err = srv.Close()
		}
		stopped <- err
	})
	err := srv.Serve(all.Listener(l))
	if stop() { // the end was not asked for
		return errors.Join(fmt.Errorf("admin: Serve: %w", err), srv.Close())
	}
	return <-stopped
}

// newPlaces are the connections of one Serve.
func (h *Handler) newPlaces() *listen.Places {
	all := listen.New(maxConns)
	all.Kept, all.Wait = maxConns-maxStrangers, true
	logged := uint64(0)
	all.Crowded = func(now listen.State) {
		h.api.log.Warn("quotient: admin closed connections to make room for new ones",
			"closed_since_last_line", now.Evicted-logged)
		logged = now.Evicted
	}
	return all
}
