package wire

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// exchange is a request on its connection and the answer to it, whose body it is.
type exchange struct {
	*conn
	ctx   context.Context
	watch Watch
	stop  func() bool // has the end of ctx close the connection no more
	req   *http.Request
	later *later // the body of req; nil: it has none
	resp  *http.Response
	body  io.ReadCloser // of resp, as net/http has it
	over  atomic.Bool   // the answer is
	last  error         // of a read of the body
}

var (
	errNoBody = errors.New("the answer came before the body was wanted")
	errClosed = errors.New("read after the end of the body")
)

// do sends a request and reads the head of its answer.
func (c *conn) do(req *http.Request, watch Watch) (*http.Response, error) {
	x := &exchange{conn: c, ctx: req.Context(), watch: watch, req: req}
	if !c.used && !c.silent() {
		closeBody(req)
		c.drop()
		return nil, errSpoke
	}
	c.left, c.read, c.headed, c.by, c.parts = c.t.MaxHead, 0, false, time.Time{}, 1
	x.stop = context.AfterFunc(x.ctx, c.cut)
	defer x.abandon() // a Watch may panic
	err := x.send()
	if err == nil {
		err = x.answer()
	}
	if err != nil {
		x.abandon()
		return nil, x.cause(err)
	}
	x.body, x.resp.Body = x.resp.Body, x
	switch {
	case x.resp.StatusCode == http.StatusSwitchingProtocols:
		x.resp.Body = &tunnel{x}
	case x.body == http.NoBody:
		x.finish(true)
		x.resp.Body = http.NoBody
	}
	return x.resp, nil
}

// send writes the request; one with a body is written while its answer is awaited.
func (x *exchange) send() error {
	if hasBody(x.req) {
		x.later = &later{ReadCloser: x.req.Body, conn: x.conn, watch: x.watch, ready: make(chan struct{})}
		if strings.EqualFold(x.req.Header.Get("Expect"), "100-continue") {
			x.later.patience = x.t.Continue
		} else {
			x.later.decide(true)
		}
		x.parts = 2
		go x.sendBody()
		return nil
	}
	err := x.write(x.req)
	if err == nil && x.watch != nil {
		x.watch.Sent()
	}
	x.awaitHead()
	return err
}

func (x *exchange) write(req *http.Request) error {
	if err := req.Write(x.w); err != nil {
		return err
	}
	return x.w.Flush()
}

// sendBody writes a request with its body. If that fails the answer may have come all the same, or comes.
func (x *exchange) sendBody() {
	req := *x.req
	req.Body = x.later
	err := x.write(&req)
	x.awaitHead()
	x.end(err == nil)
}

// answer reads the head of the answer, and of those of status 1xx before it.
func (x *exchange) answer() error {
	for {
		resp, err := http.ReadResponse(x.r, x.req)
		switch {
		case err != nil:
			return err
		case resp.ProtoMajor != 1 || resp.StatusCode < http.StatusContinue:
			return fmt.Errorf("the answer is %.20q %.20q", resp.Proto, resp.Status)
		case resp.StatusCode >= http.StatusOK || resp.StatusCode == http.StatusSwitchingProtocols:
			x.hasHead()
			if x.later != nil {
				x.later.decide(false)
			}
			x.resp = resp
			return nil
		case resp.StatusCode == http.StatusContinue && x.later != nil:
			x.later.decide(true)
		}
		if x.watch != nil {
			x.watch.Informed(resp.StatusCode, resp.Header)
		}
	}
}

// abandon ends an exchange that has no answer.
func (x *exchange) abandon() {
	if x.resp != nil {
		return
	}
	x.finish(false)
	if x.later != nil {
		x.later.decide(false)
	}
}

// cause is why a read of the answer has failed.
func (x *exchange) cause(err error) error {
	if x.ctx.Err() != nil {
		return x.ctx.Err()
	}
	if x.later != nil {
		if bad := x.later.bad.Load(); bad != nil {
			return *bad
		}
	}
	return err
}

// finish notes the end of the answer. Unless all was well the connection is closed at once.
func (x *exchange) finish(well bool) {
	if x.over.Swap(true) {
		return
	}
	well = well && !x.resp.Close && x.resp.ProtoAtLeast(1, 1) && !x.req.Close && x.clean()
	if !well {
		x.cut()
	}
	x.end(well)
}

// end notes the end of the answer or of the request; after both the connection is free.
func (x *exchange) end(well bool) {
	x.mu.Lock()
	x.parts--
	x.spent = x.spent || !well
	over, spent := x.parts == 0, x.spent
	x.mu.Unlock()
	switch {
	case !over:
	case x.stop() && !spent:
		x.t.put(x.conn)
	default:
		x.drop()
	}
}

// Read reads the body of the answer.
func (x *exchange) Read(p []byte) (int, error) {
	if x.over.Load() { // another request may have the connection
		return 0, cmp.Or(x.last, errClosed)
	}
	n, err := x.body.Read(p)
	if err == nil {
		return n, nil
	}
	if err != io.EOF {
		err = x.cause(err)
	}
	x.last = err
	x.finish(err == io.EOF)
	return n, err
}

// Ready reports whether the next part of the body has come, so that a read does not wait. Of chunks that is known of
// the last: net/http may wait for the end of a head of one, or of a chunk.
func (x *exchange) Ready() bool {
	if x.over.Load() {
		return false
	}
	come, _ := x.r.Peek(x.r.Buffered())
	if len(x.resp.TransferEncoding) > 0 {
		return bytes.HasSuffix(come, []byte("0\r\n\r\n"))
	}
	return len(come) > 0
}

// Close ends the exchange. What is left of the answer is not read.
func (x *exchange) Close() error {
	x.finish(false)
	return nil
}

// tunnel is a connection that speaks another protocol now.
type tunnel struct{ x *exchange }

func (t *tunnel) Read(p []byte) (int, error)  { return t.x.r.Read(p) }
func (t *tunnel) Write(p []byte) (int, error) { return t.x.net.Write(p) }
func (t *tunnel) Close() error                { return t.x.Close() }

// CloseWrite ends the direction to the server.
func (t *tunnel) CloseWrite() error {
	if c, ok := t.x.net.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return http.ErrNotSupported
}

// later is the body of a request, which is read when the server wants it.
type later struct {
	io.ReadCloser
	conn     *conn
	watch    Watch
	patience time.Duration // to wait for a decision
	once     sync.Once
	ready    chan struct{} // closed when it is decided
	unwanted bool
	begun    bool
	bad      atomic.Pointer[error] // why it could not be read
}

// decide says whether the body is wanted; only the first time counts.
func (b *later) decide(wanted bool) {
	b.once.Do(func() {
		b.unwanted = !wanted
		close(b.ready)
	})
}

// Read reads the body. When that fails there will be no request, so it closes the connection.
func (b *later) Read(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		b.wait()
	}
	if b.unwanted {
		return 0, errNoBody
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.bad.CompareAndSwap(nil, &err)
		b.conn.cut()
	}
	return n, err
}

// wait is called when the head was written.
func (b *later) wait() {
	if b.watch != nil {
		b.watch.Sent()
	}
	if b.patience > 0 {
		timer := time.NewTimer(b.patience)
		defer timer.Stop()
		select {
		case <-b.ready:
		case <-timer.C:
			b.decide(true)
		}
	}
	<-b.ready
}
