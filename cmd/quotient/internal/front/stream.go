package front

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// pace ends something that takes too long, each time anew. It is armed while the client is waited for only.
type pace struct {
	cut func()

	mu    sync.Mutex
	timer *time.Timer
	armed bool
	over  bool // nothing may be cut any more
	late  bool
}

func (p *pace) arm(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	p.armed = true
	if p.timer == nil {
		p.timer = time.AfterFunc(d, p.fire)
		return
	}
	p.timer.Reset(d)
}

func (p *pace) fire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.armed && !p.over {
		p.late = true
		p.cut()
	}
}

func (p *pace) wasLate() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late
}

// disarm reports whether it was too late.
func (p *pace) disarm() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = false
	if p.timer != nil {
		p.timer.Stop()
	}
	return p.late
}

func (p *pace) end() {
	p.disarm()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
}

// paced gives each part of a body and of an answer its time on an HTTP/2 stream, where a deadline of the connection
// would end other requests as well. done must be called when the handler returns.
func (s *Server) paced(w http.ResponseWriter, r *http.Request) (_ http.ResponseWriter, done func()) {
	control := http.NewResponseController(w)
	long := func() time.Time { return time.Now().Add(-time.Hour) }
	answer := &streamWriter{ResponseWriter: w, control: control, server: s}
	answer.pace.cut = func() { _ = control.SetWriteDeadline(long()) }
	if r.Body == http.NoBody {
		return answer, answer.end
	}
	body := &streamBody{ReadCloser: r.Body, server: s}
	body.pace.cut = func() { _ = control.SetReadDeadline(long()) }
	r.Body = body
	return answer, func() { body.pace.end(); answer.end() }
}

// streamBody is the body of a request over HTTP/2.
type streamBody struct {
	io.ReadCloser
	server *Server
	pace   pace
}

func (b *streamBody) Read(p []byte) (int, error) {
	b.pace.arm(b.server.now.Load().readBody)
	n, err := b.ReadCloser.Read(p)
	if late := b.pace.disarm(); late && err != nil && err != io.EOF {
		err = ErrSlowBody
	}
	return n, err
}

// streamWriter is an answer over HTTP/2.
type streamWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	server  *Server
	pace    pace
}

func (w *streamWriter) Write(p []byte) (n int, err error) {
	for {
		part := p[n:min(len(p), n+writePart)]
		w.pace.arm(w.server.now.Load().write)
		m, err := w.ResponseWriter.Write(part)
		w.pace.disarm()
		n += m
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

func (w *streamWriter) FlushError() error {
	w.pace.arm(w.server.now.Load().write)
	defer w.pace.disarm()
	return w.control.Flush()
}

func (w *streamWriter) Flush() { _ = w.FlushError() }

func (w *streamWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// end leaves a deadline for what net/http has yet to send.
func (w *streamWriter) end() {
	w.pace.end()
	_ = w.control.SetWriteDeadline(time.Now().Add(w.server.now.Load().write))
}

// earlyBody is the body of a request over HTTP/1. Closing it ends a read that waits for the client: an answer that
// came before the body's end is not held back.
type earlyBody struct {
	io.ReadCloser
	conn    *conn
	reading atomic.Int32
	ended   atomic.Bool // with io.EOF
}

func (b *earlyBody) Read(p []byte) (int, error) {
	b.reading.Add(1)
	defer b.reading.Add(-1)
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.ended.Store(true)
	case err != nil:
		b.conn.broken.Store(true)
	}
	return n, err
}

func (b *earlyBody) Close() error {
	if b.reading.Load() > 0 {
		b.conn.hurry()
	}
	return b.ReadCloser.Close()
}

// SlowBody reports whether the client of a request was too slow to send its body: the answer to that is 408. The
// request must be the one that the handler was called with. A proxy may learn of it by a cancelled context alone.
func SlowBody(r *http.Request) bool {
	if b, ok := r.Body.(*streamBody); ok {
		return b.pace.wasLate()
	}
	c := connOf(r)
	return c != nil && c.slow.Load()
}
