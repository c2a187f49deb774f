// Package wire sends requests of HTTP/1.1 to one server, over connections that it keeps.
//
// A request has its connection alone, from its first byte to the last of its answer. It is written and read by the
// goroutine of its caller, so that nothing is handed from one to another; only a body is written by a second one,
// because the answer may come before its end. net/http writes the requests and reads the answers.
//
// What a server may do wrong, and what becomes of it:
//
//	before an answer:   it speaks before it is asked, or while a connection is idle: the connection is closed, and
//	                    what it said answers no request
//	instead of one:     no HTTP, another version, a status that is none, a head that has no end: an error
//	in it:              a body that is too short is an error of the body; a body longer than its length is cut there.
//	                    HTTP/1.0, where a body may have chunks that are read as text, ends the connection
//	after it:           bytes behind an answer, in the same packet or later: the connection is closed
//	too early:          an answer before the request's end reaches the client at once. The connection is used again
//	                    only if the rest of the request has been sent by then, or is
//	never:              Head ends the wait for a head. A body may take as long as it wants
//	at the wrong time:  it closes an idle connection. That is seen before the connection is used again, or else the
//	                    request fails; see below
//
// A request is sent once, but for one case, which RFC 9110, 9.2.2 allows: a GET, HEAD or OPTIONS without a body
// goes once more, over a new connection, if the connection that it took had been used before and broke before a byte
// of the answer came. The server has then most likely closed it without reading the request. Again counts these.
package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Transport is an http.RoundTripper for one server. Set its fields before the first request and do not change them
// then. It is safe for use by many goroutines.
type Transport struct {
	// Dial opens a connection that is ready for the first byte of a request: with TLS that is after the handshake.
	// It must end soon when its context does. With ErrElsewhere it says that the request has to go another way.
	Dial func(context.Context) (net.Conn, error)
	Head time.Duration // for the head of an answer, from the end of the request; 0: any
	Idle time.Duration // after which a connection that has nothing to do is closed
	// Conns bounds connections, also those that are being opened; requests wait for one in the order in which they
	// came. 0: any number.
	Conns    int
	MaxIdle  int           // connections that have nothing to do
	MaxHead  int64         // bytes of the head of an answer, and of those of status 1xx before it
	Buffer   int           // bytes for each direction of a connection
	Continue time.Duration // that a request with Expect: 100-continue keeps its body back
	Again    func()        // is called for each request that is sent a second time; nil: not counted

	mu      sync.Mutex
	idle    []*conn      // the one that was used last is at the end
	open    int          // places that are taken: connections, and attempts to open one
	waiting []chan *conn // for a place, in the order in which they came
	sweeper *time.Timer  // runs while there are idle ones
	retired bool
}

// ErrElsewhere is the error of a request that was not touched, nor its body closed, because Dial has said so.
var ErrElsewhere = errors.New("the request goes another way")

// Retire closes the connections that have nothing to do, and the others as soon as they have nothing to do.
func (t *Transport) Retire() {
	t.mu.Lock()
	idle := t.idle
	t.idle, t.retired = nil, true
	t.mu.Unlock()
	for _, c := range idle {
		c.drop()
	}
}

// take returns a connection that a request may be sent on, a fresh one if that is wanted.
func (t *Transport) take(ctx context.Context, fresh bool) (*conn, error) {
	t.mu.Lock()
	if n := len(t.idle); n > 0 {
		c := t.idle[n-1]
		t.idle[n-1] = nil
		t.idle = t.idle[:n-1]
		t.mu.Unlock()
		return t.use(ctx, c, fresh)
	}
	if t.Conns == 0 || t.open < t.Conns {
		t.open++
		t.mu.Unlock()
		return t.dial(ctx)
	}
	place := make(chan *conn, 1)
	t.waiting = append(t.waiting, place)
	t.mu.Unlock()
	select {
	case c := <-place:
		return t.use(ctx, c, fresh)
	case <-ctx.Done():
		t.unwait(place)
		return nil, ctx.Err()
	}
}

// use returns a connection that has just become free, if it is fit, and else a new one in its place. Nil is a place
// that has none.
func (t *Transport) use(ctx context.Context, c *conn, fresh bool) (*conn, error) {
	if c != nil {
		if !fresh && time.Since(c.since) < t.Idle && c.fit() {
			c.used = true
			return c, nil
		}
		_ = c.raw.Close()
	}
	return t.dial(ctx)
}

// dial opens a connection in a place that is taken already, and leaves that if it cannot.
func (t *Transport) dial(ctx context.Context) (*conn, error) {
	nc, err := t.Dial(ctx)
	if ctx.Err() != nil {
		if err == nil {
			_ = nc.Close()
		}
		err = ctx.Err()
	}
	if err != nil {
		t.leave()
		return nil, err
	}
	return newConn(t, nc), nil
}

// unwait is for one that does not wait any more. It may have been given a place meanwhile.
func (t *Transport) unwait(place chan *conn) {
	t.mu.Lock()
	if i := slices.Index(t.waiting, place); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
		t.mu.Unlock()
		return
	}
	t.mu.Unlock()
	if c := <-place; c != nil {
		t.put(c)
	} else {
		t.leave()
	}
}

// next takes the first that waits. The caller holds t.mu.
func (t *Transport) next() (place chan *conn) {
	if len(t.waiting) > 0 {
		place = t.waiting[0]
		t.waiting = slices.Delete(t.waiting, 0, 1)
	}
	return place
}

// leave gives a place back that has no connection any more.
func (t *Transport) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if place := t.next(); place != nil {
		place <- nil
		return
	}
	t.open--
}

// put keeps a connection that has nothing to do for another request.
func (t *Transport) put(c *conn) {
	c.since = time.Now()
	t.mu.Lock()
	if place := t.next(); place != nil {
		t.mu.Unlock()
		place <- c
		return
	}
	if t.retired || len(t.idle) >= t.MaxIdle {
		t.mu.Unlock()
		c.drop()
		return
	}
	t.idle = append(t.idle, c)
	if t.sweeper == nil {
		t.sweeper = time.AfterFunc(t.Idle, t.sweep)
	} else if len(t.idle) == 1 {
		t.sweeper.Reset(t.Idle)
	}
	t.mu.Unlock()
}

// sweep closes the connections that have been idle for long enough. The longest is first.
func (t *Transport) sweep() {
	t.mu.Lock()
	now, n := time.Now(), 0
	for n < len(t.idle) && now.Sub(t.idle[n].since) >= t.Idle {
		n++
	}
	old := slices.Clone(t.idle[:n])
	t.idle = slices.Delete(t.idle, 0, n)
	if len(t.idle) > 0 {
		t.sweeper.Reset(t.Idle - now.Sub(t.idle[0].since))
	}
	t.mu.Unlock()
	for _, c := range old {
		c.drop()
	}
}

// Watch learns how far a request has come. Its methods return soon.
type Watch interface {
	// Connected is called when there is a connection for the request. It was idle, or the request had to wait for it.
	Connected(idle bool)
	// Sent is called when the head of the request was written, for the first time.
	Sent()
	// Informed is called for each answer of status 1xx but 101, before RoundTrip returns.
	Informed(status int, h http.Header)
}

// WatchKey is the key of a context's value that is the Watch of its request.
type WatchKey struct{}

// RoundTrip sends a request and returns its answer. The body of an answer with status 101 is an io.ReadWriteCloser
// that also has CloseWrite. An error of the context is what ctx.Err says, one of Dial is returned as it is.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	watch, _ := ctx.Value(WatchKey{}).(Watch)
	if !httpguts.ValidHeaderFieldName(req.Method) { // Request.Write would write a line and more
		closeBody(req)
		return nil, fmt.Errorf("the method is %.20q", req.Method)
	}
	c, err := t.take(ctx, false)
	if err != nil {
		if err != ErrElsewhere {
			closeBody(req)
		}
		return nil, err
	}
	if watch != nil {
		watch.Connected(c.used)
	}
	resp, err := c.do(req, watch)
	if err == nil || !c.used || !again(req) || !c.closedBefore(ctx, err) {
		return resp, err
	}
	c, failed := t.take(ctx, true)
	if failed != nil {
		return nil, err // the request was sent, so that "no connection" would not be the whole truth
	}
	if t.Again != nil {
		t.Again()
	}
	if watch != nil {
		watch = sent{watch}
	}
	return c.do(req, watch)
}

// sent is the Watch of a request that was sent before.
type sent struct{ Watch }

func (sent) Sent() {}

// again reports whether a request may be sent a second time.
func again(req *http.Request) bool {
	safe := req.Method == http.MethodGet || req.Method == http.MethodHead || req.Method == http.MethodOptions
	return safe && !hasBody(req)
}

func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
