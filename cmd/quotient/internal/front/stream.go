package front

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient/internal/held"
)

// pace ends something that takes too long, whenever it is armed. It is armed while the client is waited for only.
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

// blame answers for a handler that has not, since the body did not come, or not as it should.
func blame(w http.ResponseWriter, r *http.Request, status int) {
	w.Header().Del("Content-Length") // of the answer that the handler had in mind
	w.Header().Del("Content-Encoding")
	switch status {
	case http.StatusRequestTimeout:
		refuse(w, r, status, ErrSlowBody.Error())
	case http.StatusServiceUnavailable:
		refuse(w, r, status, held.ErrNoRoom.Error())
	default:
		refuse(w, r, http.StatusBadRequest, "the body is malformed, or has no end")
	}
}

// streamBody is the body of a request over HTTP/2. A deadline of the connection would end other requests as well.
type streamBody struct {
	io.ReadCloser
	server *Server
	pace   pace
	fault  atomic.Int32 // the status for a body that did not come; 0: none
}

func newStreamBody(s *Server, w http.ResponseWriter, body io.ReadCloser) *streamBody {
	control := http.NewResponseController(w)
	b := &streamBody{ReadCloser: body, server: s}
	b.pace.cut = func() { _ = control.SetReadDeadline(longAgo()) }
	return b
}

func (b *streamBody) Read(p []byte) (int, error) {
	b.pace.arm(b.server.now.Load().readBody)
	n, err := b.ReadCloser.Read(p)
	late := b.pace.disarm()
	if err != nil && err != io.EOF {
		b.fault.Store(http.StatusBadRequest)
		if late {
			b.fault.Store(http.StatusRequestTimeout)
			err = ErrSlowBody
		}
	}
	return n, err
}

// streamWriter writes an answer over HTTP/2. It notes whether the handler has given one: where the body was at fault
// and it has not, the server does, since net/http would say 200.
type streamWriter struct {
	http.ResponseWriter
	server *Server
	pace   pace
	given  bool
}

func (w *streamWriter) WriteHeader(status int) {
	w.given = w.given || status >= http.StatusOK
	w.ResponseWriter.WriteHeader(status)
}

func (w *streamWriter) Write(p []byte) (n int, err error) {
	w.given = true
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
	w.given = true
	w.pace.arm(w.server.now.Load().write)
	defer w.pace.disarm()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *streamWriter) Flush() { _ = w.FlushError() }

func (w *streamWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// end leaves a deadline for what net/http has yet to send.
func (w *streamWriter) end() {
	w.pace.end()
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.server.now.Load().write))
}

func longAgo() time.Time { return time.Now().Add(-time.Hour) }
