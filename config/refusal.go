package config

import (
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/quotient-go/quotient/internal/field"
)

// Bounds of a Refusal.
const (
	longestBody  = 64 << 10 // bytes
	longestValue = 1 << 10  // bytes of a field
	maxFields    = 16
)

// refusalOf is a field that holds the answer of a rule.
func refusalOf(into **Refusal) func(value) {
	return func(v value) {
		own := &Refusal{Status: http.StatusTooManyRequests, Type: PlainText}
		v.table(fieldsOf(own, fields{"fields": func(v value) {
			own.Fields = make(map[string]string)
			v.each(func(name string, of value) {
				var s string
				text(&s)(of)
				own.Fields[name] = s
			})
		}}))
		*into = own
	}
}

func (o *Refusal) check(r *report, at string) {
	if o == nil {
		return
	}
	between(r, inner(at, "status"), o.Status, 400, 599)
	if n := len(o.Body); n > longestBody {
		r.field(inner(at, "body"), "%d bytes are more than %d", n, longestBody)
	}
	kind, _, err := mime.ParseMediaType(o.Type)
	switch {
	case err != nil, !strings.Contains(kind, "/"), !isFieldValue(o.Type):
		r.hinted(inner(at, "type"), `as "text/html; charset=utf-8"`, "%s is no media type", clip(o.Type))
	case o.Body == "" && o.Type != PlainText:
		r.field(inner(at, "type"), "it is set without a body")
	}
	at = inner(at, "fields")
	if n := len(o.Fields); n > maxFields {
		r.field(at, "%d are more than %d", n, maxFields)
		return
	}
	seen := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(o.Fields)) {
		canonical := http.CanonicalHeaderKey(name)
		if checkSent(r, inner(at, name), name, o.Fields[name]); seen[canonical] {
			r.field(inner(at, name), "%s is in the table twice", canonical)
		}
		seen[canonical] = true
	}
}

// checkSent notes a field that the answer of a rule cannot have.
func checkSent(r *report, at, name, value string) {
	canonical := http.CanonicalHeaderKey(name)
	bare := strings.ReplaceAll(strings.TrimPrefix(canonical, "X-"), "-", "")
	switch {
	case len(name) > 256, !field.IsName(name):
		r.field(at, "%s is no name of a header field", clip(name))
	case canonical == "Content-Type":
		r.hinted(at, "use type", "%s has a setting of its own", clip(name))
	case strings.HasPrefix(canonical, "Access-Control-"):
		r.hinted(at, "use [proxy.cors]", "%s has a setting of its own", clip(name))
	case field.Apart(name), slices.Contains(hops, canonical), canonical == "Proxy-Authenticate",
		canonical == "Content-Encoding", canonical == "Content-Range", canonical == "Vary":
		r.field(at, "%s is about the connection or the message, which are the proxy's", clip(name))
	case strings.Contains(canonical, "Retry-After"), strings.HasPrefix(strings.ToLower(bare), "ratelimit"):
		r.field(at, "%s is how the limit stands, which the proxy knows", clip(name))
	case !isFieldValue(value):
		r.field(at, "%s is no value of a header field", clip(value))
	}
}

// isFieldValue reports whether a text of bounded length has no control characters.
func isFieldValue(s string) bool {
	control := func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }
	return len(s) <= longestValue && !strings.ContainsFunc(s, control)
}

func (c *CORS) check(r *report) {
	if c == nil {
		return
	}
	const path = "proxy.cors.origins"
	if len(c.Origins) == 0 {
		r.hinted(path, `as ["https://app.example"]`, "none is given")
	}
	for i, origin := range c.Origins {
		at := element(path, i)
		checkOrigin(r, at, origin)
		switch {
		case slices.Contains(c.Origins[:i], origin):
			r.field(at, "%s is in the list twice", clip(origin))
		case origin == "*" && len(c.Origins) > 1:
			r.field(at, "it is all origins, and others stand beside it")
		}
	}
	if c.Credentials && slices.Contains(c.Origins, "*") {
		r.hinted("proxy.cors.credentials", "name the origins", `true beside "*", which no browser accepts`)
	}
}

// checkOrigin notes what no browser sends as its origin.
func checkOrigin(r *report, at, origin string) {
	if origin == "*" {
		return
	}
	u, err := url.Parse(origin)
	if err != nil || u.Scheme == "" || notPlain(u) != "" || !isHost(u.Hostname()) {
		r.hinted(at, `as "https://app.example", or "*" alone`, "%s is no origin", clip(redacted(origin)))
		return
	}
	sent := strings.ToLower(u.Scheme + "://" + u.Host)
	if port := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]; port != "" {
		sent = strings.TrimSuffix(strings.TrimSuffix(sent, ":"), port)
	}
	if sent != origin {
		r.hinted(at, "did you mean "+sent+"?", "%s is not as browsers send it", clip(origin))
	}
}
