package admin

import (
	"encoding/json"
	"net/http"
	"unicode/utf8"
)

// A problem is a refusal after RFC 9457. Field, Value and Range say what was wrong in the request:
// its name, what was sent, what would be accepted.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Field  string `json:"field,omitempty"`
	Value  string `json:"value,omitempty"`
	Range  string `json:"range,omitempty"`
}

// Error makes a problem an error, so that a parser can return one.
func (p *problem) Error() string {
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
	return text
}

// writeProblem answers with p; the title follows from the status.
func writeProblem(w http.ResponseWriter, p problem) {
	p.Title = http.StatusText(p.Status)
	writeJSON(w, "application/problem+json", p.Status, p)
}

// writeJSON answers with v, which must be a value that can be encoded. A client that has gone
// away in the meantime is nobody's error.
func writeJSON(w http.ResponseWriter, contentType string, status int, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, "encoding the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

// maxValue bounds what is repeated of a bad request: enough to recognise it by.
const maxValue = 64

// clip shortens s to maxValue bytes, at the border of a character.
func clip(s string) string {
	if len(s) <= maxValue {
		return s
	}
	cut := maxValue
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
