package lease

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxBody is the largest body that is read, in bytes.
const maxBody = 2 << 20

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

// readJSON returns the request's body, all of it, so that net/http notices a client that leaves.
func readJSON(r *http.Request) ([]byte, error) {
	if t := r.Header.Get("Content-Type"); t != "application/json" && !isJSON(t) {
		return nil, &requestError{http.StatusUnsupportedMediaType,
			fmt.Sprintf("Content-Type is %.80q, want application/json.", t)}
	}
	body := make([]byte, 0, 64) // most bodies are a count
	for {
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > maxBody || r.ContentLength > maxBody:
			return nil, &requestError{http.StatusRequestEntityTooLarge,
				fmt.Sprintf("The body is too large, want at most %d bytes.", maxBody)}
		case err == io.EOF:
			return body, nil
		case err != nil:
			return nil, badRequest("The body cannot be read: %v.", err)
		case len(body) == cap(body):
			body = slices.Grow(body, len(body))
		}
	}
}

// isJSON reports whether a media type is JSON, or built on it.
func isJSON(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil &&
		(t == "application/json" || strings.HasPrefix(t, "application/") && strings.HasSuffix(t, "+json"))
}

// parseCount reads a JSON integer.
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
	var text jsontext.Value
	if err := json.Unmarshal(body, &text); err != nil {
		return badRequest("The body is no JSON: %s.", strings.TrimPrefix(err.Error(), "jsontext: "))
	}
	if json.Unmarshal(text, into) != nil {
		return badShape("The body is %.40q, want %s.", body, want)
	}
	return nil
}

// object is a JSON object. Its keys are exact and come once. Clients of any version may send what nobody asks
// for: it is ignored.
type object map[string]jsontext.Value

func readObject(r *http.Request) (object, error) {
	body, err := readJSON(r)
	if err != nil {
		return nil, err
	}
	var o object
	err = parse(body, &o, "a JSON object")
	return o, err
}

// field reads the value of a key, which must be there.
func (o object) field(key, want string, into any) error {
	raw, ok := o[key]
	switch {
	case !ok:
		return badShape("%s is missing, want %s.", key, want)
	case raw.Kind() == 'n' || json.Unmarshal(raw, into) != nil:
		return badShape("%s is %.40q, want %s.", key, raw, want)
	}
	return nil
}

func (o object) expiresIn() (time.Duration, error) {
	var text string
	if err := o.field("expires_in", "a duration", &text); err != nil {
		return 0, err
	}
	d, err := ParseDuration(text)
	if err != nil {
		return 0, badShape("expires_in: %v.", err)
	}
	return d, nil
}

// readExpiry reads the body of a new peer, or of a heartbeat.
func readExpiry(r *http.Request) (time.Duration, error) {
	o, err := readObject(r)
	if err != nil {
		return 0, err
	}
	return o.expiresIn()
}

// restoration is the body of POST /restore.
type restoration struct {
	peer      uint64
	expiresIn time.Duration
	locks     []Restored // by name
}

func (o object) restoration() (r restoration, err error) {
	counts, tokens := map[string]*int64{}, map[string]*uint64{}
	if r.expiresIn, err = o.expiresIn(); err != nil {
		return r, err
	}
	if err := o.field("peer_id", "an unsigned integer of 64 bits", &r.peer); err != nil {
		return r, err
	}
	if err := o.field("acquired", "an object of counts by semaphore", &counts); err != nil {
		return r, err
	}
	if _, ok := o["tokens"]; ok {
		if err := o.field("tokens", "an object of tokens by semaphore", &tokens); err != nil {
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
