package httplimit

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// tracker stands between a handler and its http.ResponseWriter: it learns the status and whether the connection was
// taken over. It has only the methods that every writer has; wrap adds those that this one has too.
type tracker struct {
	of       *middleware
	inner    http.ResponseWriter
	held     admission
	heard    policy.Feedback
	ours     []line // what no policy learns from: see foreign
	refused  bool   // by a Middleware behind this one
	answered bool   // the final status is known
	hijacked bool   // the connection holds the permit now
}

func (t *tracker) Header() http.Header { return t.inner.Header() }

func (t *tracker) WriteHeader(status int) {
	t.header(status)
	t.inner.WriteHeader(status)
}

func (t *tracker) Write(p []byte) (int, error) {
	t.header(http.StatusOK)
	return t.inner.Write(p)
}

// Unwrap is for http.ResponseController. A hijack must not get past the tracker,
// also when the Hijacker lies below writers that have no more than Unwrap.
func (t *tracker) Unwrap() http.ResponseWriter {
	if _, direct := t.inner.(http.Hijacker); !direct && canHijack(t.inner) {
		return hijackOnly{hijacker{t}}
	}
	return t.inner
}

// header notes the first status that is final: 1xx are not, but for 101.
func (t *tracker) header(status int) {
	informational := status >= 100 && status < 200 && status != http.StatusSwitchingProtocols
	if t.answered || informational {
		return
	}
	t.answered = true
	if t.refused {
		return // as policy.Failed
	}
	heard, garbage := t.read(status)
	t.heard = heard
	t.of.garbage.Add(uint64(garbage))
}

// hijack hands the permit over to the connection.
func (t *tracker) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(t.inner).Hijack()
	if err != nil {
		return conn, buffered, err
	}
	t.hijacked = true
	t.held.ExpireIn(t.of.streamLifetime)
	return holdConn(conn, t.held), buffered, nil
}

// finish tells the policy, and releases the permit unless a connection has it, also when a controller panics.
func (t *tracker) finish() {
	if !t.hijacked {
		defer t.held.Release()
	}
	t.held.Report(t.heard)
}

// canHijack looks for a Hijacker in the way http.ResponseController does.
func canHijack(w http.ResponseWriter) bool {
	for {
		if _, ok := w.(http.Hijacker); ok {
			return true
		}
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = outer.Unwrap()
	}
}

// hijackOnly is the step that a tracker puts into the chain of Unwrap.
type hijackOnly struct{ hijacker }

func (h hijackOnly) Unwrap() http.ResponseWriter { return h.inner }

// The optional methods of a writer, one type each. They are only put together for an inner writer that has them.
type (
	flusher    struct{ *tracker }
	hijacker   struct{ *tracker }
	pusher     struct{ *tracker }
	readerFrom struct{ *tracker }
)

func (f flusher) Flush() { _ = f.FlushError() } // http.Flusher has no place for an error

// FlushError is how http.ResponseController flushes.
func (f flusher) FlushError() error {
	f.header(http.StatusOK)
	return http.NewResponseController(f.inner).Flush()
}

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.hijack() }

func (p pusher) Push(target string, opts *http.PushOptions) error {
	return p.inner.(http.Pusher).Push(target, opts)
}

func (r readerFrom) ReadFrom(src io.Reader) (int64, error) {
	r.header(http.StatusOK)
	return r.inner.(io.ReaderFrom).ReadFrom(src)
}

// Bits for what a writer can do beside writing.
const (
	canFlush = 1 << iota
	canTakeOver
	canPush
	canReadFrom
)

// abilities are the optional interfaces that a writer has itself.
func abilities(w http.ResponseWriter) (bits int) {
	if _, ok := w.(http.Flusher); ok {
		bits |= canFlush
	}
	if _, ok := w.(http.Hijacker); ok {
		bits |= canTakeOver
	}
	if _, ok := w.(http.Pusher); ok {
		bits |= canPush
	}
	if _, ok := w.(io.ReaderFrom); ok {
		bits |= canReadFrom
	}
	return bits
}

// line is one line of a field.
type line struct{ name, value string }

// NoAnswer marks an answer that does not come from the upstream: policies count the request as
// policy.Failed, and learn nothing from the answer. Call it in a handler that forwards requests and writes
// its own error because no answer came, before WriteHeader. w is the writer that the handler got from a
// Middleware, or one with Unwrap. It changes nothing if no policy learns.
func NoAnswer(w http.ResponseWriter) { trackers(w, (*tracker).refuse) }

// trackers calls f for each tracker that a writer writes to: those of the Middlewares in front.
func trackers(w http.ResponseWriter, f func(*tracker)) {
	for w != nil {
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter }) // as a tracker is
		if !ok {
			return
		}
		if t, ok := w.(interface{ itself() *tracker }); ok {
			f(t.itself())
		}
		w = outer.Unwrap()
	}
}

func (t *tracker) itself() *tracker { return t }

// refuse notes that the answer to come is the refusal of a Middleware behind this one.
func (t *tracker) refuse() { t.refused = true }

// read is what the handler's own fields say: a policy must not learn from those that a Middleware sends.
func (t *tracker) read(status int) (policy.Feedback, int) {
	h := t.inner.Header()
	if ours := slices.Clone(t.ours); len(ours) > 0 {
		h = maps.Clone(h)
		for _, name := range setNames {
			h[name] = foreign(name, h[name], ours)
		}
	}
	return anyUpstream.Feedback(status, h, time.Time{})
}

// foreign are the lines of a field but for those that are ours, each of which it takes out once.
func foreign(name string, values []string, ours []line) (others []string) {
	for _, value := range values {
		if i := slices.Index(ours, line{name, value}); i >= 0 {
			ours[i] = line{}
			continue
		}
		others = append(others, value)
	}
	return others
}
