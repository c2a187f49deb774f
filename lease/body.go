package lease

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/quotient-go/quotient/internal/held"
)

// Bounds of bodies, in bytes.
const (
	maxBody    = 16 << 10 // a count, or a duration with what clients of any version add
	maxRestore = 2 << 20  // of a restore: all locks of a peer, with the longest names in the longest spelling
	freeBody   = 1 << 10  // of each request, beside what is counted
	maxBodies  = 16 << 20 // of all requests together
	maxLists   = 16 << 20 // of all answers that list the peers
)

// maxBodyTime bounds how long a body takes that is counted, or a list.
const maxBodyTime = 30 * time.Second

// errNoRoom is temporary: what others hold is bounded in time.
var errNoRoom = &requestError{http.StatusServiceUnavailable, "Other requests take too much memory, come again."}

// requestError is a request that cannot be understood.
type requestError struct {
	status int
	text   string
}

func (e *requestError) Error() string { return e.text }

func badRequest(format string, args ...any) error {
	return &requestError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

func badShape(format string, args ...any) error {
	return &requestError{http.StatusUnprocessableEntity, fmt.Sprintf(format, args...)}
}

// read reads a request's body, all of it, so that net/http notices a client that leaves. It then has it understood.
func (s *Server) read(w http.ResponseWriter, r *http.Request, most int, understand func(body []byte) error) error {
	if t := r.Header.Get("Content-Type"); t != "application/json" && !isJSON(t) {
		return &requestError{http.StatusUnsupportedMediaType,
			fmt.Sprintf("Content-Type is %.80q, want application/json.", t)}
	}
	const first = 64 // most bodies are a count
	body := make([]byte, 0, first)
	share := held.Share{Room: &s.bodies, Free: freeBody - first}
	defer share.End() // once it is understood
	for err := error(nil); ; {
		switch {
		case len(body) > most || r.ContentLength > int64(most):
			return &requestError{http.StatusRequestEntityTooLarge,
				fmt.Sprintf("The body is too large, want at most %d bytes.", most)}
		case err == io.EOF:
			return s.understand(body, understand)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return &requestError{http.StatusRequestTimeout, fmt.Sprintf("The body is too slow: %v.", err)}
		case err != nil:
			return badRequest("The body cannot be read: %v.", err)
		case len(body) == cap(body):
			size := min(2*cap(body), most+1) // one more shows that it is too large
			if !share.Take(int64(size - cap(body))) {
				return errNoRoom
			}
			if cap(body) == freeBody { // what is counted has to come in time
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(maxBodyTime))
			}
			body = append(make([]byte, 0, size), body...)
		}
		var n int
		n, err = r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
	}
}

// understand takes large bodies one at a time: what they are taken apart into is many times as large.
func (s *Server) understand(body []byte, f func(body []byte) error) error {
	if len(body) > maxBody {
		s.parsing.Lock()
		defer s.parsing.Unlock()
	}
	return f(body)
}

// isJSON reports whether a media type is JSON, or built on it.
func isJSON(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil &&
		(t == "application/json" || strings.HasPrefix(t, "application/") && strings.HasSuffix(t, "+json"))
}

func parseCount(body []byte) (int64, error) {
	text := string(bytes.Trim(body, " \t\r\n"))
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && strconv.FormatInt(n, 10) == text {
		return n, nil
	}
	var slow *int64 // what is rare, and the errors
	const want = "a lock count: an integer of 64 bits"
	if err := parse(body, &slow, want); err != nil {
		return 0, err
	}
	if slow == nil {
		return 0, badShape("The body is %.40q, want %s.", body, want)
	}
	return *slow, nil
}

// parse answers 400 to what is no JSON, and 422 to another shape than what is wanted.
func parse(body []byte, into any, want string) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(body)) // it takes no copy
	text, err := d.ReadValue()
	if err == nil {
		if _, err = d.ReadToken(); err == nil {
			err = errors.New("there is more than one value")
		}
	}
	if err != io.EOF || len(text) == 0 {
		return badRequest("The body is no JSON: %s.", strings.TrimPrefix(err.Error(), "jsontext: "))
	}
	if json.Unmarshal(text, into) != nil {
		return badShape("The body is %.40q, want %s.", body, want)
	}
	return nil
}

// object is what is read of a JSON object. Its keys are exact and come once. Clients of any version may send what
// nobody asks for: it is ignored.
type object struct {
	ExpiresIn jsontext.Value `json:"expires_in"`
	PeerID    jsontext.Value `json:"peer_id"`
	Acquired  jsontext.Value `json:"acquired"`
	Tokens    jsontext.Value `json:"tokens"`
}

func readObject(body []byte) (o object, err error) {
	err = parse(body, &o, "a JSON object")
	return o, err
}

// member reads the value of a key, which must be there.
func member(key string, raw jsontext.Value, want string, into any) error {
	if raw == nil {
		return badShape("%s is missing, want %s.", key, want)
	}
	err := json.Unmarshal(raw, into)
	switch {
	case errors.Is(err, ErrTooManyLocks):
		return ErrTooManyLocks
	case err != nil || raw.Kind() == 'n':
		return badShape("%s is %.40q, want %s.", key, raw, want)
	}
	return nil
}

// readExpiry reads the body of a new peer, or of a heartbeat.
func (s *Server) readExpiry(w http.ResponseWriter, r *http.Request) (d time.Duration, err error) {
	err = s.read(w, r, maxBody, func(body []byte) error {
		o, err := readObject(body)
		if err == nil {
			d, err = o.expiresIn()
		}
		return err
	})
	return d, err
}

func (o object) expiresIn() (time.Duration, error) {
	var text string
	if err := member("expires_in", o.ExpiresIn, "a duration", &text); err != nil {
		return 0, err
	}
	d, err := ParseDuration(text)
	if err != nil {
		return 0, badShape("expires_in: %v.", err)
	}
	return d, nil
}

// byLock has a value for each lock of one peer.
type byLock[T any] map[string]*T

// UnmarshalJSONFrom takes no more than one peer may have: each takes many times as much as it has bytes.
func (m *byLock[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return errors.New("no object")
	}
	for *m = (byLock[T]{}); d.PeekKind() != '}'; {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		key, value := name.String(), new(T)
		if err := json.UnmarshalDecode(d, &value); err != nil {
			return err
		}
		if (*m)[key] = value; len(*m) > maxLocks {
			return ErrTooManyLocks
		}
	}
	_, err := d.ReadToken()
	return err
}

// restoration is the body of POST /restore.
type restoration struct {
	peer      uint64
	expiresIn time.Duration
	locks     []Restored // by name
}

func readRestoration(body []byte) (r restoration, err error) {
	o, err := readObject(body)
	if err != nil {
		return r, err
	}
	var counts byLock[int64]
	var tokens byLock[uint64]
	if r.expiresIn, err = o.expiresIn(); err != nil {
		return r, err
	}
	if err := member("peer_id", o.PeerID, "an unsigned integer of 64 bits", &r.peer); err != nil {
		return r, err
	}
	if err := member("acquired", o.Acquired, "an object of counts by semaphore", &counts); err != nil {
		return r, err
	}
	if o.Tokens != nil {
		if err := member("tokens", o.Tokens, "an object of tokens by semaphore", &tokens); err != nil {
			return r, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name] == nil {
			return r, badShape("acquired[%.40q] is null, want a count.", name)
		}
		l := Restored{Semaphore: name, Count: *counts[name]}
		if token := tokens[name]; token != nil {
			l.Token = *token
		}
		delete(tokens, name)
		r.locks = append(r.locks, l)
	}
	for name := range tokens {
		return r, badShape("tokens[%.40q] belongs to no lock in acquired.", name)
	}
	return r, nil
}
