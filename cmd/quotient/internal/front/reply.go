package front

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

// shortBody is how long an answer without a length may be that is given one, in bytes.
const shortBody = 2 << 10

var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 4<<10) }}

// exchange is one request over HTTP/1, and the http.ResponseWriter for its answer.
type exchange struct {
	*conn
	request http.Request
	body    *body // nil: there is none
	cancel  context.CancelFunc
	header  http.Header

	writing    sync.Mutex // guards what follows
	out        *bufio.Writer
	status     int    // 0: none is given
	length     int64  // of the body, -1 if it is not known
	written    int64  // of it
	short      []byte // the body so far, while it may be given a length
	begun      bool   // the head is whole
	chunked    bool
	trailers   []string // that are announced
	connection []string // what the handler says of that
	close      bool     // the connection ends with this answer
	taken      bool     // the connection is the handler's
	over       bool     // the answer is whole
	err        error    // of the last write
}

func newExchange(c *conn, r *http.Request) *exchange {
	x := &exchange{conn: c, cancel: func() {}, header: make(http.Header, 8), length: -1, close: r.Close}
	ctx := c.ctx // ends later than a request without a body, of which no one reads or writes any more
	if r.Body != http.NoBody {
		ctx, x.cancel = context.WithCancel(ctx)
		x.body = &body{x: x, in: r.Body, head: r}
		r.Body = x.body
	}
	r.RemoteAddr, r.TLS = c.remote, c.secure
	x.request = *r.WithContext(ctx)
	return x
}

// do has the request answered, and reports whether another one may follow.
func (x *exchange) do() bool {
	_ = x.SetReadDeadline(time.Time{})
	if x.body == nil {
		x.watched()
	}
	well := x.server.serveHTTP1(x, &x.request)
	x.cancel()
	if x.taken {
		return false
	}
	if x.body != nil {
		x.body.stop()
	}
	x.unwatch()
	if status := x.body.fault(); status != 0 && well {
		x.blame(status)
	}
	if !well || x.finish() != nil {
		return false
	}
	if x.body != nil && !x.close {
		x.body.drain()
	}
	if !x.rest() {
		x.farewell()
		return false
	}
	return !x.close
}

// Header is that of the answer.
func (x *exchange) Header() http.Header { return x.header }

// WriteHeader sends an answer of status 1xx, or begins the one.
func (x *exchange) WriteHeader(status int) {
	x.writing.Lock()
	defer x.writing.Unlock()
	x.writeHeader(status)
}

func (x *exchange) writeHeader(status int) {
	if status < 100 || status > 999 {
		panic("front: WriteHeader: " + strconv.Itoa(status) + " is no status")
	}
	interim := status < http.StatusOK && status != http.StatusSwitchingProtocols
	if x.status != 0 || x.taken || interim && !x.request.ProtoAtLeast(1, 1) { // HTTP/1.0 has none
		return
	}
	if x.out == nil {
		x.out = writers.Get().(*bufio.Writer)
		x.out.Reset(x.conn)
	}
	x.statusLine(status)
	if interim {
		x.fields(status)
		_, _ = x.out.WriteString("\r\n")
		_ = x.flush()
		return
	}
	x.status = status
	if text := x.header["Content-Length"]; len(text) > 0 {
		if n, err := decimal([]byte(text[0])); err == nil && len(text) == 1 {
			x.length = int64(n) //nolint:gosec // it has at most 18 digits
		}
	}
	for _, list := range x.header["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			x.trailers = append(x.trailers, http.CanonicalHeaderKey(strings.Trim(name, " \t")))
		}
	}
	x.fields(status)
}

func (x *exchange) statusLine(status int) {
	version := "HTTP/1.1 "
	if !x.request.ProtoAtLeast(1, 1) {
		version = "HTTP/1.0 "
	}
	text := http.StatusText(status)
	if text == "" {
		text = "status code " + strconv.Itoa(status)
	}
	_, _ = x.out.WriteString(version)
	x.number(int64(status), 10)
	_, _ = x.out.WriteString(" " + text + "\r\n")
}

func (x *exchange) number(n int64, base int) {
	_, _ = x.out.Write(strconv.AppendInt(x.out.AvailableBuffer(), n, base))
}

// fields writes the fields of a head but those that say where the answer ends. They come last.
func (x *exchange) fields(status int) {
	for name, lines := range x.header {
		switch name {
		case "Content-Length", "Transfer-Encoding":
			continue
		case "Content-Type":
			if status == http.StatusNotModified {
				continue
			}
		case "Connection":
			x.connection = lines
			x.close = x.close || httpguts.HeaderValuesContainsToken(lines, "close")
			continue
		}
		if httpguts.ValidHeaderFieldName(name) { // that of a trailer without announcement is none
			x.lines(name, lines)
		}
	}
	if _, ok := x.header["Date"]; !ok && status >= http.StatusOK {
		x.line("Date", time.Now().UTC().Format(http.TimeFormat))
	}
}

func (x *exchange) lines(name string, values []string) {
	for _, v := range values {
		if strings.ContainsAny(v, "\r\n") {
			v = oneLine.Replace(v)
		}
		x.line(name, v)
	}
}

// oneLine keeps a value from being two fields.
var oneLine = strings.NewReplacer("\n", " ", "\r", " ")

func (x *exchange) line(name, value string) {
	_, _ = x.out.WriteString(name)
	_, _ = x.out.WriteString(": ")
	_, _ = x.out.WriteString(value)
	_, _ = x.out.WriteString("\r\n")
}

// ended is why nothing more can be written.
func (x *exchange) ended() error {
	switch {
	case x.taken:
		return http.ErrHijacked
	case x.over:
		return errReturned
	}
	return nil
}

// hasBody reports whether an answer of this status, to this request, has one.
func (x *exchange) hasBody() bool {
	return x.request.Method != http.MethodHead && bodyAllowed(x.status)
}

func bodyAllowed(status int) bool {
	return status >= http.StatusOK && status != http.StatusNoContent && status != http.StatusNotModified
}

// begin says where the answer ends, which ends the head.
func (x *exchange) begin() {
	x.begun = true
	modern := x.request.ProtoAtLeast(1, 1)
	switch {
	case !bodyAllowed(x.status):
	case x.length >= 0:
		_, _ = x.out.WriteString("Content-Length: ")
		x.number(x.length, 10)
		_, _ = x.out.WriteString("\r\n")
	case x.request.Method == http.MethodHead:
	case modern:
		x.chunked = true
		x.line("Transfer-Encoding", "chunked")
	default:
		x.close = true
	}
	x.close = x.close || x.server.closing.Load() || x.body != nil && x.body.isLost()
	switch {
	case x.close && (modern || httpguts.HeaderValuesContainsToken(x.connection, "close")):
		x.line("Connection", "close")
	case x.close:
	case len(x.connection) > 0:
		x.lines("Connection", x.connection)
	case !modern:
		x.line("Connection", "keep-alive")
	}
	_, _ = x.out.WriteString("\r\n")
}

// Write sends a part of the body. It may be kept back until Flush, the end or more of it.
func (x *exchange) Write(p []byte) (int, error) {
	x.writing.Lock()
	defer x.writing.Unlock()
	if err := x.ended(); err != nil {
		return 0, err
	}
	if x.status == 0 {
		x.writeHeader(http.StatusOK)
	}
	if !bodyAllowed(x.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if x.written += int64(len(p)); x.length >= 0 && x.written > x.length {
		return 0, http.ErrContentLength
	}
	if !x.hasBody() || len(p) == 0 {
		return len(p), nil
	}
	if !x.begun && x.length < 0 && len(x.short)+len(p) <= shortBody {
		x.short = append(x.short, p...)
		return len(p), nil
	}
	return len(p), x.send(p)
}

// send writes what was kept back, and a part behind it.
func (x *exchange) send(p []byte) error {
	if !x.begun {
		x.begin()
	}
	for _, part := range [][]byte{x.short, p} {
		if len(part) == 0 {
			continue
		}
		if x.chunked {
			x.number(int64(len(part)), 16)
			_, _ = x.out.WriteString("\r\n")
		}
		_, x.err = x.out.Write(part)
		if x.chunked {
			_, x.err = x.out.WriteString("\r\n")
		}
	}
	x.short = nil
	if x.err != nil {
		x.end()
	}
	return x.err
}

// FlushError sends what was kept back.
func (x *exchange) FlushError() error {
	x.writing.Lock()
	defer x.writing.Unlock()
	if err := x.ended(); err != nil {
		return err
	}
	if x.status == 0 {
		x.writeHeader(http.StatusOK)
	}
	if err := x.send(nil); err != nil {
		return err
	}
	return x.flush()
}

// Flush is FlushError for http.Flusher.
func (x *exchange) Flush() { _ = x.FlushError() }

func (x *exchange) flush() error {
	if x.err = x.out.Flush(); x.err != nil {
		x.end() // the client has gone
	}
	return x.err
}

// goOn asks the client for its body, unless it has its answer.
func (x *exchange) goOn() {
	x.writing.Lock()
	defer x.writing.Unlock()
	switch {
	case x.status != 0:
		x.close = true // the client may leave it out
	case !x.taken:
		_, _ = io.WriteString(x.conn, "HTTP/1.1 100 Continue\r\n\r\n")
	}
}

// finish sends the rest of the answer.
func (x *exchange) finish() error {
	x.writing.Lock()
	defer x.writing.Unlock()
	if x.status == 0 {
		x.writeHeader(http.StatusOK)
	}
	if !x.begun && x.length < 0 && len(x.trailers) == 0 && x.written <= shortBody && (x.hasBody() || x.written > 0) {
		x.length = x.written
	}
	err := x.send(nil)
	if x.chunked {
		_, _ = x.out.WriteString("0\r\n")
		x.trailer()
		_, _ = x.out.WriteString("\r\n")
	}
	if err == nil {
		err = x.flush()
	}
	if x.hasBody() && x.length >= 0 && x.written != x.length {
		x.close = true // the client waits for more
	}
	x.out.Reset(nil)
	writers.Put(x.out)
	x.out, x.over = nil, true
	return err
}

func (x *exchange) trailer() {
	for name, lines := range x.header {
		late, prefixed := strings.CutPrefix(name, http.TrailerPrefix)
		if (prefixed || slices.Contains(x.trailers, name)) && httpguts.ValidTrailerHeader(late) {
			x.lines(late, lines)
		}
	}
}

// blame answers for a handler that has not, since the body did not come, or not as it should.
func (x *exchange) blame(status int) {
	if x.close = true; x.status == 0 {
		blame(x, &x.request, status)
	}
}

// Hijack gives the connection to the handler.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	x.writing.Lock()
	late := x.status != 0 || x.taken
	x.taken = x.taken || !late
	x.writing.Unlock()
	if late {
		return nil, nil, http.ErrHijacked
	}
	if x.body != nil {
		x.body.stop()
	}
	x.unwatch()
	x.conn.upgrade()
	x.server.places.Follow(x.conn, http.StateHijacked)
	return x.conn, bufio.NewReadWriter(x.in, bufio.NewWriterSize(x.conn, 4<<10)), nil
}
