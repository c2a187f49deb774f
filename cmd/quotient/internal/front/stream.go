package front

import (
	"bufio"
	"io"
	"net"
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

// answer notes whether a handler has answered. Where the body was at fault and it has not, the server does: net/http
// would say 200.
type answer struct {
	http.ResponseWriter
	given bool
}

func (w *answer) WriteHeader(status int) {
	w.given = w.given || status >= 200 || status == http.StatusSwitchingProtocols
	w.ResponseWriter.WriteHeader(status)
}

func (w *answer) Write(p []byte) (int, error) {
	w.given = true
	return w.ResponseWriter.Write(p)
}

func (w *answer) FlushError() error {
	w.given = true
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *answer) Flush() { _ = w.FlushError() }

func (w *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.given = true
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// blame answers for a handler that has not, since the body did not come, or not as it should.
func (w *answer) blame(r *http.Request, status int) {
	switch {
	case w.given:
	case status == http.StatusRequestTimeout:
		refuse(w, r, status, ErrSlowBody.Error())
	case status == http.StatusServiceUnavailable:
		refuse(w, r, status, held.ErrNoRoom.Error())
	default:
		refuse(w, r, http.StatusBadRequest, "the body is malformed, or has no end")
	}
}

// earlyBody is the body of a request over HTTP/1.
type earlyBody struct {
	io.ReadCloser
	conn    *conn
	reading atomic.Int32
	ended   atomic.Bool // with io.EOF
	failed  atomic.Bool
}

func (b *earlyBody) Read(p []byte) (int, error) {
	b.reading.Add(1)
	defer b.reading.Add(-1)
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.ended.Store(true)
	case err != nil:
		b.failed.Store(true)
		b.conn.broken.Store(true)
		if b.conn.fault.Load() == http.StatusServiceUnavailable {
			err = errNoRoom // net/http has another for a trailer
		}
	}
	return n, err
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

type streamWriter struct {
	answer
	server *Server
	pace   pace
}

func (w *streamWriter) Write(p []byte) (n int, err error) {
	for {
		part := p[n:min(len(p), n+writePart)]
		w.pace.arm(w.server.now.Load().write)
		m, err := w.answer.Write(part)
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
	return w.answer.FlushError()
}

func (w *streamWriter) Flush() { _ = w.FlushError() }

// end leaves a deadline for what net/http has yet to send.
func (w *streamWriter) end() {
	w.pace.end()
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.server.now.Load().write))
}

func longAgo() time.Time { return time.Now().Add(-time.Hour) }
