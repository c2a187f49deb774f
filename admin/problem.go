package admin

import (
	"encoding/json"
	"errors"
	"net/http"
	"unicode/utf8"

	"github.com/quotient-go/quotient/internal/shown"
)

// ErrConflict is the error of a Problem with status 412, by errors.Is. Another client has changed the
// limiter since the state that the write was based on. For a lease it means that the lock has ended. Read
// the state again and decide again.
var ErrConflict = errors.New("admin: the limiter was changed by another client")

// A Problem is a refusal after RFC 9457. The handler sends it, and a Client returns it as *Problem. Field names what
// was wrong in the request, by a path such as rates[1].per_seconds in a body. Value is what was sent, clipped to 64
// bytes, and Range is what would be accepted. The three are empty where no single field is to blame.
type Problem struct {
	Title  string `json:"title"`  // of the status
	Status int    `json:"status"` // of HTTP
	Detail string `json:"detail"`
	Field  string `json:"field,omitempty"`
	Value  string `json:"value,omitempty"`
	Range  string `json:"range,omitempty"`
}

// Error describes the mistake in one line. What is not printable in it is escaped: it may be of another's making.
func (p *Problem) Error() string {
	text := p.Detail
	if p.Field != "" {
		text = p.Field + ": " + text
	}
	if p.Value != "" {
		text += ", got " + p.Value
	}
	if p.Range != "" {
		text += ", want " + p.Range
	}
	return shown.Line(text)
}

// Is matches ErrConflict when the status is 412.
func (p *Problem) Is(target error) bool {
	return target == ErrConflict && p.Status == http.StatusPreconditionFailed
}

// writeProblem answers with p; the title follows from the status.
func writeProblem(w http.ResponseWriter, p *Problem) {
	p.Title = http.StatusText(p.Status)
	writeJSON(w, "application/problem+json", p.Status, p)
}

// writeJSON answers with v. The encoder writes <, > and & as escapes, so that markup in a key is harmless
// wherever the answer ends up. A client that has gone away in the meantime is no error.
func writeJSON(w http.ResponseWriter, contentType string, status int, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	writeBody(w, contentType, status, append(body, '\n'), err)
}

// writeBody answers with a body, unless it could not be encoded.
func writeBody(w http.ResponseWriter, contentType string, status int, body []byte, err error) {
	if err != nil {
		contentType, status = "application/problem+json", http.StatusInternalServerError
		body = []byte(`{"title":"Internal Server Error","status":500,"detail":"the answer could not be encoded"}` + "\n")
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// maxValue bounds what is repeated of a bad request: enough to recognise it by.
const maxValue = 64

// clip shortens s to maxValue bytes, at the border of a character.
func clip(s string) string { return shorten(s, maxValue) }

// shorten shortens s to so many bytes, at the border of a character.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
