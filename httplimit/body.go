package httplimit

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/quotient-go/quotient/internal/held"
)

// How much is read of bodies whose requests wait, in bytes, for one Middleware: maxBuffer of one, and maxAllBuffers
// of all together. Past the first a request is an upload whose client may as well be refused; the second is 1,024 of
// them. The first bytes of each body are not counted: net/http spends more on each connection, and so a small body
// finds room whatever others send.
const (
	maxBuffer     = 64 << 10
	maxAllBuffers = 64 << 20
	uncounted     = 512
)

// bodies counts what is set aside for buffers. The zero value is ready.
type bodies struct {
	mu   sync.Mutex
	all  int
	keys map[string]int // those with a count above 0, each of which has sent that much
}

// take sets n more bytes aside for a key. A key may have as much as it leaves free: one alone half of all, one of
// two a third, so that there is room for one more.
func (b *bodies) take(key string, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.keys[key]+n > maxAllBuffers-b.all-n {
		return false
	}
	if b.keys == nil {
		b.keys = make(map[string]int)
	}
	b.keys[key] += n
	b.all += n
	return true
}

// give gives n bytes of a key back.
func (b *bodies) give(key string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all -= n
	if b.keys[key] -= n; b.keys[key] == 0 {
		delete(b.keys, key)
	}
}

// buffer is the body of a request that is about to wait, as far as it has been read.
type buffer struct {
	room     *bodies
	share    *held.Share
	key      string
	text     []byte
	complete bool // that was all of the body
	late     bool // it did not come in time
}

// read reads the body of a request, so that net/http starts to watch the connection, and puts what was read back in
// front of it. A body that has not come by the deadline, or before drain ends, is not waited for. It reads nothing
// that is too long, or that the client sends only when asked to. free must be called when the request is over.
func (b *buffer) read(w http.ResponseWriter, r *http.Request, deadline time.Time, drain context.Context) {
	size := maxBuffer
	if r.ContentLength >= 0 {
		size = int(min(r.ContentLength, maxBuffer+1))
	}
	if size > maxBuffer || strings.EqualFold(strings.TrimSpace(r.Header.Get("Expect")), "100-continue") {
		return
	}
	giveUp := giveUpAt(w, deadline, drain)
	defer func() { b.late = giveUp() }()
	// Not more than was announced: an outer handler may have unpacked the body and left its length.
	err := b.fill(r.Body, size+1)
	b.complete = err == io.EOF && len(b.text) <= size
	if err == io.EOF {
		err = nil
	}
	r.Body = &replayed{bytes.NewReader(b.text), r.Body, err}
}

// fill reads up to most bytes, as far as there is room for them. Its error is io.EOF at the body's end.
func (b *buffer) fill(body io.Reader, most int) error {
	for len(b.text) < most {
		if len(b.text) == cap(b.text) && !b.grow(most) {
			return nil
		}
		n, err := body.Read(b.text[len(b.text):cap(b.text)])
		b.text = b.text[:len(b.text)+n]
		if err != nil {
			return err
		}
	}
	return nil
}

// grow makes room for as much as has come, so that no more than that is ever set aside.
func (b *buffer) grow(most int) bool {
	more := min(max(len(b.text), uncounted), most-len(b.text))
	if len(b.text) > 0 && !b.take(more) {
		return false
	}
	grown := make([]byte, len(b.text), len(b.text)+more)
	copy(grown, b.text)
	b.text = grown
	return true
}

func (b *buffer) take(n int) bool {
	if !b.room.take(b.key, n) {
		return false
	}
	if !b.share.Take(int64(n)) {
		b.room.give(b.key, n)
		return false
	}
	return true
}

// free gives the room back.
func (b *buffer) free() {
	if counted := cap(b.text) - uncounted; counted > 0 {
		b.room.give(b.key, counted)
		b.share.Give(int64(counted))
	}
}

// giveUpAt ends the reading of a body at an instant, and when drain ends unless that is nil. The connection's own
// deadline is not touched before: it cannot be looked up, and the handler may need it. The function that is returned
// must be called after the reading. It reports whether the reading was ended; then nothing can be read any more.
func giveUpAt(w http.ResponseWriter, deadline time.Time, drain context.Context) (over func() bool) {
	done := make(chan struct{})
	end := sync.OnceFunc(func() {
		defer close(done)
		_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // without deadlines the body is waited for
	})
	timer := time.AfterFunc(time.Until(deadline), end)
	stop := func() bool { return true }
	if drain != nil {
		stop = context.AfterFunc(drain, end)
	}
	return func() bool {
		if inTime, before := timer.Stop(), stop(); inTime && before {
			return false
		}
		<-done
		return true
	}
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
