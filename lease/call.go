package lease

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of what a client reads of an answer, and shows of it, in bytes.
const (
	maxAnswer    = 64 << 10
	maxErrorText = 200
)

var errCut = errors.New("the answer breaks off")

type call struct {
	method, path string
	body         any           // sent as JSON; nil: none
	timeout      time.Duration // for each server
	want         string        // text of the answer: a proxy may send a 200 of its own; empty: any
}

// reply is what a server said: its status is 200 or 202.
type reply struct {
	status int
	header http.Header
	text   string
}

// do sends a call to one server after the other until one says something final.
func (c *Client) do(ctx context.Context, q call) (a reply, err error) {
	for i, base := range c.bases() {
		a, err = c.try(ctx, base, q)
		if err == nil || !temporary(err) {
			c.note(q, nil)
			return a, err
		}
		if ctx.Err() != nil {
			return a, err
		}
		c.log().Debug("lease: a request to a server failed", "server", i, "err", err)
	}
	c.note(q, err)
	return a, err
}

// failures are those of requests in a row that no server has answered.
type failures struct {
	n     int
	since time.Time // of the first
}

// note logs the first request that no server answers, with err, and the first that one does, with nil. Those between
// are only counted.
func (c *Client) note(q call, err error) {
	c.mu.Lock()
	was := c.failures
	if c.failures.n++; err == nil {
		c.failures = failures{}
	} else if was.n == 0 {
		c.failures.since = time.Now()
	}
	c.mu.Unlock()
	switch {
	case err != nil && was.n == 0:
		c.log().Warn("lease: requests to all servers fail, trying again", "request", q.method+" "+q.path, "err", err)
	case err == nil && was.n > 0:
		c.log().Info("lease: a server answers again", "failures", was.n, "lasted", time.Since(was.since))
	}
}

// bases returns where to send a call, the server that answered last first.
func (c *Client) bases() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.prefer == "" {
		return c.URLs
	}
	rest := slices.DeleteFunc(slices.Clone(c.URLs), func(u string) bool { return trim(u) == c.prefer })
	return append([]string{c.prefer}, rest...)
}

func trim(base string) string { return strings.TrimRight(base, "/") }

// try sends a call to one server. http.Client follows redirects.
func (c *Client) try(ctx context.Context, base string, q call) (a reply, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	base = trim(base)
	defer func() {
		if err != nil && temporary(err) {
			c.choose(base, "")
		}
	}()
	req, err := q.request(ctx, base)
	if err != nil {
		return a, err
	}
	resp, err := c.http().Do(req)
	if err != nil {
		return a, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return a, fmt.Errorf("%w: %w", errCut, err)
	}
	a = reply{resp.StatusCode, resp.Header, string(text)}
	if a.status != http.StatusOK && a.status != http.StatusAccepted {
		err = wireError(a.status, a.text)
	} else if q.want != "" && strings.TrimSpace(a.text) != q.want {
		err = a.unexpected()
	}
	if resp.Request != nil && (err == nil || !temporary(err)) { // a test's RoundTripper may leave it out
		if at, ok := strings.CutSuffix(resp.Request.URL.String(), q.path); ok {
			c.choose(base, at)
		}
	}
	return a, err
}

func (q call) request(ctx context.Context, base string) (*http.Request, error) {
	var body []byte
	if q.body != nil {
		body, _ = json.Marshal(q.body) // it cannot fail
	}
	req, err := http.NewRequestWithContext(ctx, q.method, base+q.path, bytes.NewReader(body))
	if err == nil && q.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, err
}

// choose makes at the server to go to first. Empty forgets base.
func (c *Client) choose(base, at string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at != "" || c.prefer == base {
		c.prefer = at
	}
}

// AnswerError is an answer that no lease server gives, such as that of a proxy, or that does not fit the request.
type AnswerError struct {
	Status int    // of HTTP
	Text   string // the first 200 bytes of its body
}

// Error has the status and the text.
func (e *AnswerError) Error() string {
	return fmt.Sprintf("the server answers %d: %s", e.Status, e.Text)
}

func (a reply) unexpected() error {
	return &AnswerError{a.status, a.text[:min(len(a.text), maxErrorText)]}
}

// wireError returns the error that stands in the body of an answer, with the type it has at the server.
func wireError(status int, text string) error {
	text = strings.TrimSpace(text)
	if status == http.StatusBadRequest || status == http.StatusConflict {
		if err := textError(text); err != nil {
			return err
		}
	}
	return &AnswerError{status, text[:min(len(text), maxErrorText)]}
}

// textError is the error that has this text, with its numbers; nil if none has.
func textError(text string) error {
	var token uint64
	var n [2]int64
	noDigit := func(c rune) bool { return c != '-' && (c < '0' || c > '9') }
	for i, digits := range strings.FieldsFunc(text, noDigit) {
		if i == 0 {
			token, _ = strconv.ParseUint(digits, 10, 64)
		}
		if i < len(n) {
			n[i], _ = strconv.ParseInt(digits, 10, 64)
		}
	}
	for _, err := range []error{
		ErrUnknownPeer, ErrUnknownSemaphore, ErrAlreadyPending, ErrRestoreChanges, ErrNotHeld, ErrTooManyLocks,
		&CountError{n[0]}, &NeverError{n[0], n[1]}, &GrowError{n[0], n[1]}, &LevelError{n[0], n[1]},
		&TokenError{token},
	} {
		if text == err.Error() {
			return err
		}
	}
	return nil
}

// temporary reports whether it makes sense to send the same call again, or to another server.
func temporary(err error) bool {
	if a := (*AnswerError)(nil); errors.As(err, &a) {
		switch a.Status {
		case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
			return true
		}
		return a.Status < 400 || a.Status >= 500
	}
	var net *url.Error
	return errors.As(err, &net) || errors.Is(err, errCut)
}

// Places of the interface.

func peerPath(id uint64) string { return "/peers/" + strconv.FormatUint(id, 10) }

func lockPath(id uint64, name string) string {
	escaped := url.PathEscape(name)
	if name == "." || name == ".." {
		escaped = strings.ReplaceAll(name, ".", "%2E") // it would change the path
	}
	return peerPath(id) + "/" + escaped
}

func (a reply) grace() time.Duration {
	d, _ := ParseDuration(a.header.Get("Lease-Grace"))
	return d
}

func (a reply) token() uint64 {
	if n, err := strconv.ParseUint(a.header.Get("Fencing-Token"), 10, 64); err == nil {
		return n
	}
	return 0
}

func (a reply) broken() (names []string) {
	for _, v := range a.header.Values("Lease-Broken") {
		if name, err := url.PathUnescape(v); err == nil {
			names = append(names, name)
		}
	}
	return names
}
