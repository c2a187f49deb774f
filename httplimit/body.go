package httplimit

import (
	"bytes"
	"io"
	"net/http"
)

// maxBuffer is how much of one waiting request's body is read, and
// maxAllBuffers how much of all bodies together, in bytes, for one Middleware.
// Past the first a request is an upload whose client may as well be refused;
// the second is 1,024 of them.
const (
	maxBuffer     = 64 << 10
	maxAllBuffers = 64 << 20
)

// bufferBody reads the body of a request that is about to wait, so that net/http
// starts to watch the connection, and puts what was read back in front of it.
// complete reports that the whole body was read. free must be called when the
// request is over.
func (m *middleware) bufferBody(r *http.Request) (free func(), complete bool) {
	size := int64(maxBuffer)
	if r.ContentLength >= 0 {
		size = r.ContentLength
	}
	if size > maxBuffer || expectsContinue(r) {
		return func() {}, false
	}
	free = func() { m.buffered.Add(-size) }
	if m.buffered.Add(size) > maxAllBuffers {
		return free, false
	}
	// Not more than was set aside: an outer handler may have unpacked the body and left its length.
	read, err := io.ReadAll(io.LimitReader(r.Body, size+1))
	complete = err == nil && int64(len(read)) <= size
	r.Body = &replayed{bytes.NewReader(read), r.Body, err}
	return free, complete
}

// replayed is a body whose first part has been read before.
type replayed struct {
	read *bytes.Reader
	rest io.ReadCloser
	err  error // of the reading before; nil at the end of the body
}

func (b *replayed) Read(p []byte) (int, error) {
	if b.read.Len() > 0 {
		return b.read.Read(p)
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.rest.Read(p)
}

func (b *replayed) Close() error { return b.rest.Close() }
