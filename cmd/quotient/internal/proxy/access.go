package proxy

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/internal/files"
)

// Bounds of the access log: a stranger chooses paths, hosts, keys and methods.
const (
	maxQueued = 4096 // lines that are not written yet
	maxPath   = 512  // bytes of a path
	maxText   = 256  // bytes of any other text
	maxSecret = 64 << 10
	minSecret = 16
)

// The decisions of an access log. Unasked is one that no limiter has made.
const (
	unasked  = "none"
	admitted = "admitted"
	afterAll = "waited"
	refused  = "refused"
)

// accessLog says which requests have a line, and what their keys look like.
type accessLog struct {
	refusals bool // only they have
	sample   int  // of so many other requests one has
	secret   []byte
	client   httplimit.KeyFunc
}

// newAccessLog is that of a file, nil for none. Without a secret of the file hashes are keyed by own. Client reads the
// address of a client.
func newAccessLog(p *config.Proxy, own []byte, client httplimit.KeyFunc) (*accessLog, error) {
	if p.Log.Access == "off" {
		return nil, nil
	}
	a := &accessLog{refusals: p.Log.Access == "refusals", sample: p.Log.Sample, client: client}
	switch {
	case p.Log.Keys == "plain":
	case p.Log.SecretFile == "":
		a.secret = own
	default:
		text, _, err := files.Read(context.Background(), p.Log.SecretFile, maxSecret)
		if err != nil {
			return nil, config.Error{Field: "proxy.log.secret-file", Text: err.Error()}
		}
		if a.secret = bytes.TrimSpace(text); len(a.secret) < minSecret {
			text := fmt.Sprintf("%s has %d bytes, want %d or more", p.Log.SecretFile, len(a.secret), minSecret)
			return nil, config.Error{Field: "proxy.log.secret-file", Text: text}
		}
	}
	return a, nil
}

// shown is a key or an address as a line has it.
func (a *accessLog) shown(key string) string {
	if a.secret == nil || key == "" {
		return clipped(key, maxText)
	}
	mac := hmac.New(sha256.New, a.secret)
	_, _ = io.WriteString(mac, key)
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// clipped is a text of bounded length that keeps no longer one in memory.
func clipped(s string, most int) string { return strings.Clone(s[:min(len(s), most)]) }

// entry is what a line of the access log says of one request. It stands in for the writer of the answer.
type entry struct {
	http.ResponseWriter
	arrived    time.Time
	rule       config.Rule
	limiter    string // that has refused, or else the rule's own
	key, plan  string
	decision   string
	reason     string
	wait       time.Duration
	retryAfter time.Duration
	status     int // that the client got; 0 for none
	upstream   int // that the upstream gave; 0 for none
	bytes      int64
	duration   time.Duration
	overhead   atomic.Int64 // a transport may tell it when the handler has returned
	aborted    bool         // the answer has no end, or its client has left
	early      bool         // it was refused before there was a rule
	unlogged   uint64       // requests before it that were, and have no line

	method, host, path, client string
}

// WriteHeader notes the status, unless it is one of 1xx, which another follows.
func (e *entry) WriteHeader(status int) {
	if e.status == 0 && status >= http.StatusOK {
		e.status = status
	}
	e.ResponseWriter.WriteHeader(status)
}

// Write counts the bytes of the body.
func (e *entry) Write(b []byte) (int, error) {
	if e.status == 0 {
		e.status = http.StatusOK
	}
	n, err := e.ResponseWriter.Write(b)
	e.bytes += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (e *entry) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// serveLogged is serve with a line in the access log.
func (p *Proxy) serveLogged(w http.ResponseWriter, r *http.Request, t *table, arrived time.Time) {
	e := &entry{ResponseWriter: w, arrived: arrived, decision: unasked, aborted: true}
	defer p.queue(t.access, e, r)
	p.serve(e, r, t, arrived, e)
	e.aborted = r.Context().Err() != nil
}

// queue queues the line of a request, if it has one. It does not wait.
func (p *Proxy) queue(a *accessLog, e *entry, r *http.Request) {
	if e.decision != refused && (a.refusals || a.sample > 1 && rand.IntN(a.sample) > 0) {
		return
	}
	e.duration = time.Since(e.arrived)
	e.ResponseWriter = nil // the queue keeps nothing of the server's
	p.send(a, e, r)
}

// send puts an entry into the queue, with what its request says of itself, and reports whether there was room.
func (p *Proxy) send(a *accessLog, e *entry, r *http.Request) bool {
	e.key, e.client, e.plan = a.shown(e.key), a.shown(a.client(r)), clipped(e.plan, maxText)
	e.method, e.host = clipped(r.Method, maxText), clipped(r.Host, maxText)
	e.path = clipped(r.URL.EscapedPath(), maxPath)
	select {
	case p.lines <- e:
		return true
	default:
		p.dropped.Add(1)
		return false
	}
}

// WriteLog writes the access log to a writer until ctx ends, and then what is queued. No request waits for it: a line
// that finds the queue full, or cannot be written, is dropped.
func (p *Proxy) WriteLog(ctx context.Context, to io.Writer) error {
	h := slog.NewJSONHandler(to, nil)
	write := func(e *entry) {
		if h.Handle(ctx, e.record()) != nil {
			p.dropped.Add(1)
		}
	}
	for {
		select {
		case e := <-p.lines:
			write(e)
			continue
		case <-ctx.Done():
		}
		for {
			select {
			case e := <-p.lines:
				write(e)
			default:
				return nil
			}
		}
	}
}

// Dropped is how many lines of the access log were dropped.
func (p *Proxy) Dropped() uint64 { return p.dropped.Load() }

func (e *entry) record() slog.Record {
	line := slog.NewRecord(e.arrived, slog.LevelInfo, "request", 0)
	line.AddAttrs(
		slog.String("method", e.method), slog.String("host", e.host), slog.String("path", e.path),
		slog.String("client", e.client))
	if e.early {
		line.AddAttrs(slog.String("decision", e.decision), slog.String("reason", e.reason),
			slog.Int("status", e.status), slog.Uint64("unlogged", e.unlogged))
		return line
	}
	line.AddAttrs(
		slog.String("rule", e.rule.Pattern), slog.String("limiter", e.limiter),
		slog.String("key", e.key), slog.String("plan", e.plan),
		slog.String("decision", e.decision), slog.String("reason", e.reason),
		inMS("wait_ms", e.wait), inMS("retry_after_ms", e.retryAfter),
		slog.Int("status", e.status), slog.Int("upstream_status", e.upstream), slog.Int64("bytes", e.bytes),
		inMS("duration_ms", e.duration), inMS("overhead_ms", time.Duration(e.overhead.Load())),
		slog.Bool("aborted", e.aborted),
	)
	return line
}

func inMS(name string, d time.Duration) slog.Attr {
	return slog.Float64(name, float64(d.Microseconds())/1000)
}

// entryOf is the entry of a request, or one to throw away if it has none.
func entryOf(r *http.Request) *entry {
	if f := flightOf(r); f != nil && f.entry != nil {
		return f.entry
	}
	return new(entry)
}

// noteKey notes the key that a function returns.
func noteKey(key httplimit.KeyFunc) httplimit.KeyFunc {
	return func(r *http.Request) string {
		e := entryOf(r)
		e.key, e.decision = key(r), admitted // unless a hook says more
		return e.key
	}
}

// notePlan notes the plan that a function returns.
func notePlan(plan func(*http.Request) string) func(*http.Request) string {
	return func(r *http.Request) string {
		e := entryOf(r)
		e.plan = plan(r)
		return e.plan
	}
}

// noteRefusal is the hook of a middleware: a request is refused.
func noteRefusal(_ http.ResponseWriter, r *http.Request, d quotient.Decision) {
	e := entryOf(r)
	e.decision, e.reason, e.retryAfter, e.wait = refused, d.Reason.String(), d.RetryAfter, time.Since(e.arrived)
	switch {
	case d.Reason != quotient.ReasonNone:
	case r.Context().Err() != nil:
		e.reason = "left"
	default:
		e.reason = "shutdown"
	}
}
