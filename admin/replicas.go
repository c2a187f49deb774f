package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/quotient-go/quotient"
)

// maxBody is the largest request body that is read, in bytes. A pool needs about thirty; the
// rest is room for white space.
const maxBody = 64 << 10

// maxReplicas is the largest pool size that an operator can set. It is far above any real pool
// and catches a number that was meant for another field.
const maxReplicas = 1_000_000

// putReplicas sets the pool size. It is an operator's word: it counts at once, undamped.
func (h *handler) putReplicas(w http.ResponseWriter, r *http.Request) {
	pool, bad := readPool(w, r)
	if bad != nil {
		writeProblem(w, *bad)
		return
	}
	if err := h.setPool(pool, r.RemoteAddr); err != nil {
		writeProblem(w, problem{Status: http.StatusBadRequest, Detail: err.Error()})
		return
	}
	h.getState(w, r)
}

// setPool applies pool and logs what it replaced.
func (h *handler) setPool(pool quotient.Pool, from string) error {
	h.writing.Lock()
	defer h.writing.Unlock()
	old := h.limiter.Pool()
	if err := h.limiter.SetPool(pool); err != nil {
		return err
	}
	h.log.Info("quotient: pool size set by an operator",
		slogPool("old", old), slogPool("new", pool), "from", from)
	return nil
}

// readPool reads the pool out of r's body.
func readPool(w http.ResponseWriter, r *http.Request) (quotient.Pool, *problem) {
	contentType := r.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(contentType); err != nil || media != "application/json" {
		return quotient.Pool{}, &problem{
			Status: http.StatusUnsupportedMediaType,
			Detail: "the body is not said to be JSON",
			Field:  "Content-Type", Value: clip(contentType), Range: "application/json",
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return quotient.Pool{}, &problem{
			Status: http.StatusRequestEntityTooLarge,
			Detail: "the body is too large",
			Field:  "body", Range: fmt.Sprintf("at most %d bytes", maxBody),
		}
	}
	if err != nil {
		return quotient.Pool{}, &problem{Status: http.StatusBadRequest, Detail: "the body could not be read"}
	}
	return parsePool(body)
}

// parsePool reads {"replicas":4,"ordinal":2}. It is stricter than encoding/json: names are exact,
// none may be unknown or come twice, values are whole numbers in range, and nothing follows.
// "ordinal" may be left out or 0: unknown.
func parsePool(body []byte) (quotient.Pool, *problem) {
	fields, bad := parseFields(body)
	if bad != nil {
		return quotient.Pool{}, bad
	}
	var pool quotient.Pool
	if pool.Replicas, bad = whole(fields, "replicas", 1, maxReplicas); bad != nil {
		return quotient.Pool{}, bad
	}
	if _, given := fields["ordinal"]; !given {
		return pool, nil
	}
	if pool.Ordinal, bad = whole(fields, "ordinal", 0, pool.Replicas); bad != nil {
		return quotient.Pool{}, bad
	}
	return pool, nil
}

// parseFields reads one JSON object that has no other fields than replicas and ordinal.
func parseFields(body []byte) (map[string]json.RawMessage, *problem) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if first, err := dec.Token(); err != nil || first != json.Delim('{') {
		return nil, malformed(body, "the body is not a JSON object")
	}
	fields := make(map[string]json.RawMessage, 2)
	for dec.More() {
		token, err := dec.Token()
		name, ok := token.(string)
		if err != nil || !ok {
			return nil, malformed(body, "the body is not a JSON object")
		}
		if bad := checkName(fields, name); bad != nil {
			return nil, bad
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, malformed(body, "the value of "+name+" is not JSON")
		}
		fields[name] = value
	}
	if _, err := dec.Token(); err != nil {
		return nil, malformed(body, "the JSON object does not end")
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, malformed(body, "something follows the JSON object")
	}
	return fields, nil
}

// checkName refuses a name that is unknown, or that fields already has.
func checkName(fields map[string]json.RawMessage, name string) *problem {
	detail := ""
	if name != "replicas" && name != "ordinal" {
		detail = "there is no such field"
	} else if _, twice := fields[name]; twice {
		detail = "the field comes twice"
	} else {
		return nil
	}
	return &problem{Status: http.StatusBadRequest, Detail: detail, Field: clip(name), Range: "replicas, ordinal"}
}

// whole reads the named field, a whole number from low to high.
func whole(fields map[string]json.RawMessage, name string, low, high int) (int, *problem) {
	bad := &problem{
		Status: http.StatusBadRequest,
		Field:  name,
		Value:  clip(string(fields[name])),
		Range:  fmt.Sprintf("a whole number from %d to %d", low, high),
	}
	value, given := fields[name]
	if !given {
		bad.Detail = "the field is missing"
		return 0, bad
	}
	n, err := strconv.Atoi(string(value))
	if errors.Is(err, strconv.ErrSyntax) {
		bad.Detail = "not a whole number"
		return 0, bad
	}
	if err != nil || n < low || n > high {
		bad.Detail = "out of range"
		return 0, bad
	}
	return n, nil
}

// malformed is the refusal of a body as a whole.
func malformed(body []byte, detail string) *problem {
	return &problem{
		Status: http.StatusBadRequest,
		Detail: detail,
		Field:  "body", Value: clip(string(body)), Range: `{"replicas":4,"ordinal":2}`,
	}
}
