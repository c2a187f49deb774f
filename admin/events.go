package admin

import (
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// maxStreams is how many event streams may be open at a time: some browsers for each operator of a large team.
	maxStreams = 64
	// writePatience is how long one event may take to reach the client's kernel. A page that is behind by
	// that much is not read any more.
	writePatience = 5 * time.Second
	// streamLife bounds a stream, so that none outlives for long a Shutdown that it was not notified of. The
	// page connects again.
	streamLife = 10 * time.Minute
	// lifeSign is the longest silence of a stream, however far apart events are: the page takes a longer one
	// for the loss of the connection.
	lifeSign = 2 * time.Second
	// retryMillis is when a client should connect again.
	retryMillis = 2000
)

// streams are the open event streams of a handler. The zero value is ready.
type streams struct {
	mu      sync.Mutex
	open    int
	frame   text          // the newest event, shared by all streams; empty for none
	packer  *flate.Writer // of the events; nil until a client wants them compressed, then about 1 MB
	at      time.Time
	id      uint64
	closing map[*http.Server]context.Context // ended by its Shutdown
}

// enter takes a place for one stream, if there is one.
func (s *streams) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= maxStreams {
		return false
	}
	s.open++
	return true
}

// leave gives the place back. The last stream leaves neither an event nor the compressor in memory.
func (s *streams) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open--; s.open == 0 {
		s.frame, s.packer = text{}, nil
	}
}

// next is the event to send now: the newest one if it is younger than fresh, else a new one made of what
// encode returns. With packed it has both forms. So the cost of encoding hardly depends on the number of
// streams. The caller must not change it.
func (s *streams) next(fresh time.Duration, packed bool, encode func() ([]byte, error)) (text, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frame.plain == nil || time.Since(s.at) >= fresh {
		data, err := encode()
		if err != nil {
			return text{}, err
		}
		s.id++
		s.at = time.Now()
		s.frame = text{plain: fmt.Appendf(nil, "event: state\nid: %d\ndata: %s\n\n", s.id, data)}
	}
	if packed && s.frame.packed == nil {
		s.compress(&s.frame)
	}
	return s.frame, nil
}

// compress packs t. Call it with s.mu held.
func (s *streams) compress(t *text) {
	if s.packer == nil {
		s.packer, _ = flate.NewWriter(nil, flate.BestSpeed) // the level is valid
	}
	var b bytes.Buffer
	s.packer.Reset(&b)
	_, _ = s.packer.Write(t.plain)
	_ = s.packer.Flush()
	t.packed = b.Bytes()
}

// closed returns a channel that is closed when the server that serves r begins to shut down. Shutdown waits for
// requests but does not end them, so the streams ask to be notified. The channel is nil when there is no such server.
func (s *streams) closed(r *http.Request) <-chan struct{} {
	srv, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx, known := s.closing[srv]; known {
		return ctx.Done()
	}
	if s.closing == nil {
		s.closing = make(map[*http.Server]context.Context)
	}
	ctx, end := context.WithCancel(context.Background())
	s.closing[srv] = ctx
	srv.RegisterOnShutdown(func() {
		end()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.closing, srv)
	})
	return ctx.Done()
}

// events is a stream of server-sent events: the state, now and after each interval. It ends with the request,
// with the server's Shutdown, after streamLife, or when the client does not read for writePatience. It runs
// in the request's own goroutine and starts none. A request with a body is refused: the server would read it
// before the first event, with no deadline left.
func (h *handler) events(c *call) any {
	if c.ContentLength != 0 {
		c.w.Header().Set("Connection", "close")
		hangUp(c.w)
		c.fail(http.StatusBadRequest, Problem{Detail: "a request for events has no body", Field: "body", Range: "none"})
		return nil
	}
	if !h.streams.enter() {
		c.w.Header().Set("Retry-After", "10")
		c.fail(http.StatusServiceUnavailable, Problem{
			Detail: "too many event streams are open", Field: "streams", Range: fmt.Sprintf("at most %d", maxStreams),
		})
		return nil
	}
	defer h.streams.leave()
	c.w.Header().Set("Content-Type", "text/event-stream")
	c.w.Header().Set("X-Accel-Buffering", "no") // a reverse proxy would hold events back
	to := newSink(c.w, c.Request)
	// The server's ReadTimeout bounds the request; it would end the stream too.
	err := ignoreUnsupported(to.out.SetReadDeadline(time.Time{}))
	if err == nil && to.send(h.note(to, fmt.Sprintf("retry: %d\n\n", retryMillis))) == nil {
		h.stream(c.Request, to)
	}
	return nil
}

// stream sends events until one of its ends.
func (h *handler) stream(r *http.Request, to *sink) {
	tick := time.NewTicker(h.every)
	defer tick.Stop()
	life := time.NewTimer(streamLife)
	defer life.Stop()
	quiet := time.NewTimer(lifeSign)
	defer quiet.Stop()
	closed := h.streams.closed(r)
	for t := h.frame(to); t.plain != nil && to.send(t) == nil; {
		quiet.Reset(lifeSign)
		select {
		case <-tick.C:
			t = h.frame(to)
		case <-quiet.C:
			t = h.note(to, ":\n\n") // a comment: nothing to those who listen
		case <-r.Context().Done():
			return
		case <-closed:
			to.end()
			return
		case <-life.C:
			to.end()
			return
		}
	}
}

// frame is the event to send now, empty when the state could not be encoded: a defect.
func (h *handler) frame(to *sink) text {
	h.samples.seen()
	frame, err := h.streams.next(h.every/2, to.packed, h.stateJSON)
	if err != nil {
		h.log.Error("quotient: encoding the state for an event stream", "error", err)
	}
	return frame
}

// note is a short text for one stream.
func (h *handler) note(to *sink, words string) text {
	t := text{plain: []byte(words)}
	if to.packed {
		h.streams.mu.Lock()
		defer h.streams.mu.Unlock()
		h.streams.compress(&t)
	}
	return t
}

// A sink is the client's end of a stream.
type sink struct {
	w      http.ResponseWriter
	out    *http.ResponseController
	packed bool    // the client accepts gzip
	head   string  // to be sent before anything else
	sum    gzipSum // of what was sent
}

// newSink sets the header fields of the encoding.
func newSink(w http.ResponseWriter, r *http.Request) *sink {
	to := &sink{w: w, out: http.NewResponseController(w), packed: takesGzip(r)}
	if to.packed {
		w.Header().Set("Content-Encoding", "gzip")
		to.head = gzipHead
	}
	return to
}

// send writes a text and flushes it, within writePatience where the connection has deadlines.
func (to *sink) send(t text) error {
	if !to.packed {
		return to.write(t.plain)
	}
	to.sum.add(t.plain)
	return to.write(t.packed)
}

// end ends a compressed stream as the format has it. A client that has gone is no error.
func (to *sink) end() {
	if to.packed {
		_ = to.write(to.sum.end())
	}
}

func (to *sink) write(b []byte) error {
	if err := ignoreUnsupported(to.out.SetWriteDeadline(time.Now().Add(writePatience))); err != nil {
		return err
	}
	if to.head != "" {
		if _, err := to.w.Write([]byte(to.head)); err != nil {
			return err
		}
		to.head = ""
	}
	if _, err := to.w.Write(b); err != nil {
		return err
	}
	return to.out.Flush()
}

// ignoreUnsupported drops the error of a ResponseWriter that has no deadlines, such as one of a test.
func ignoreUnsupported(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}
