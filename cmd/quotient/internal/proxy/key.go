package proxy

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/httplimit"
)

// keyOf reads the key of a rule. With an alternative each key begins with what it is, since a client that writes an
// address into a header is not the client of that address.
func (t *table) keyOf(of config.Also, pattern string, tokens *verification) httplimit.KeyFunc {
	parts := func(key config.Key) (all []httplimit.KeyFunc) {
		for _, part := range key.Parts() {
			all = append(all, t.partOf(part, pattern, tokens))
		}
		return all
	}
	switch first := parts(of.Key); {
	case of.Or.Kind != "":
		second := parts(of.Or)
		mark, otherwise := escaped(of.Key.String()), escaped(of.Or.String())
		return func(r *http.Request) string {
			if key, whole := joint(r, first); whole {
				return mark + "|" + key
			}
			key, _ := joint(r, second)
			return otherwise + "|" + key
		}
	case len(first) > 1:
		return func(r *http.Request) string { key, _ := joint(r, first); return key }
	default:
		return first[0]
	}
}

// joint is what the parts of a request are in one text, of which no other parts make the same. It is whole unless a
// request lacks one of them.
func joint(r *http.Request, parts []httplimit.KeyFunc) (key string, whole bool) {
	var room [8]string // as many as a file may have
	all := room[:0]
	whole = true
	for _, part := range parts {
		is := part(r)
		whole = whole && is != "" && is != noCredential
		all = append(all, escaped(is))
	}
	return strings.Join(all, "|"), whole
}

// noCredential is the key of a request without a credential.
var noCredential = httplimit.CredentialKey("")

var escapes = strings.NewReplacer(`\`, `\\`, "|", `\|`)

// escaped is a text without a bar of its own.
func escaped(s string) string { return escapes.Replace(s) }

// cookieKey reads the first cookie of a name, which is most often a secret: the key is its hash. Only that cookie is
// parsed.
func cookieKey(name string) httplimit.KeyFunc {
	return func(r *http.Request) string {
		for _, line := range r.Header["Cookie"] {
			for pair := range strings.SplitSeq(line, ";") {
				if is, _, _ := strings.Cut(pair, "="); strings.Trim(is, " \t") != name {
					continue
				}
				if cookies, err := http.ParseCookie(pair); err == nil {
					return httplimit.CredentialKey(cookies[0].Value)
				}
			}
		}
		return noCredential
	}
}

// queryKey reads the value of a name in the query. It is "" if there are several, or the query cannot be read as a
// whole: it is not known what the upstream makes of it.
func queryKey(name string) httplimit.KeyFunc {
	return func(r *http.Request) (value string) {
		found := false
		for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
			text, is, _ := strings.Cut(pair, "=")
			text, err := url.QueryUnescape(text)
			is, err2 := url.QueryUnescape(is)
			its := text == name
			if err != nil || err2 != nil || strings.Contains(pair, ";") || its && found {
				return ""
			}
			if its {
				value, found = is, true
			}
		}
		return value
	}
}
