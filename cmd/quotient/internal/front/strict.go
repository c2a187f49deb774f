package front

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/quotient-go/quotient/cmd/quotient/internal/grpcanswer"
)

// maxFields bounds the fields of one request: each costs more memory than its bytes.
const maxFields = 256

// refusal returns a status other than 0 for a request that would not arrive as it was sent, or that two servers could
// read in two ways. It also takes an offer to go on with HTTP/2 out, behind which an upstream would serve requests
// that no limiter sees. A path may have bytes that net/http would encode where none passes it on.
func refusal(r *http.Request, anyPath bool) (status int, why reason, text string) {
	if text := badTarget(r, anyPath); text != "" {
		return http.StatusBadRequest, whyTarget, text
	}
	switch {
	case r.Method == http.MethodConnect:
		return http.StatusMethodNotAllowed, whyMethod, "this is no forward proxy"
	case !httpguts.ValidHeaderFieldName(r.Method) || r.Method == "PRI":
		return http.StatusBadRequest, whyMethod, "the method is malformed"
	case count(r.Header) > maxFields:
		return http.StatusRequestHeaderFieldsTooLarge, whyTooMany, "there are too many fields"
	}
	if text := badFields(r.Header); text != "" {
		return http.StatusBadRequest, whyField, text
	}
	if !ValidHost(r.Host) {
		return http.StatusBadRequest, whyHost, "the host is malformed"
	}
	if hosts, ok := r.Header["Host"]; ok { // over HTTP/2; net/http takes it out itself over HTTP/1
		if len(hosts) != 1 || !strings.EqualFold(hosts[0], r.Host) {
			return http.StatusBadRequest, whyHost, "the fields Host and :authority differ"
		}
		delete(r.Header, "Host")
	}
	dropUpgradeToHTTP2(r.Header)
	return 0, 0, ""
}

// badTarget says what is wrong with a target: bytes that must stand encoded in it, for net/http would encode them. Of
// those, what browsers send all the same is encoded here.
func badTarget(r *http.Request, anyPath bool) string {
	target := r.RequestURI
	if r.Method == http.MethodConnect {
		return ""
	}
	for i := range len(target) {
		if b := target[i]; b <= ' ' || b == 0x7f || b == '#' {
			return "the target has a byte that must be encoded"
		}
	}
	if target == "" || target[0] != '/' {
		scheme, rest, ok := strings.Cut(target, "://")
		if !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
			return "the target is neither a path nor a URL"
		}
		start := strings.IndexAny(rest, "/?")
		if start < 0 {
			start = len(rest)
		}
		if target = rest[start:]; r.URL.User != nil {
			return "the target names a user"
		}
	}
	path, _, _ := strings.Cut(target, "?")
	if anyPath || path == r.URL.EscapedPath() {
		return ""
	}
	encoded := leftRaw.Replace(path)
	if r.URL.RawPath = encoded; encoded == path || r.URL.EscapedPath() != encoded {
		return "the path has a byte that must be encoded"
	}
	return "" // from here on it is the encoded spelling
}

// leftRaw encodes what no URI may hold and browsers send as it is (the path percent-encode set of
// https://url.spec.whatwg.org, of today and as it was for "^").
var leftRaw = strings.NewReplacer("|", "%7C", "^", "%5E")

func count(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

func badFields(h http.Header) string {
	for _, name := range []string{"Content_length", "Transfer_encoding"} { // as net/http spells them
		if _, ok := h[name]; ok {
			return "a field has an underscore where another field has a hyphen"
		}
	}
	if lengths, ok := h["Content-Length"]; ok { // over HTTP/2 net/http takes the first, and 0 for what is no number
		if len(lengths) != 1 {
			return "there is more than one length"
		}
		if _, err := decimal([]byte(lengths[0])); err != nil {
			return "the length is no number"
		}
	}
	for _, list := range h["Connection"] {
		for token := range strings.SplitSeq(list, ",") {
			token = strings.Trim(token, " \t")
			if strings.EqualFold(token, "keep-alive") || strings.EqualFold(token, "close") {
				continue
			}
			key := http.CanonicalHeaderKey(token)
			gone := key == "Host" || key == "Content-Length" || key == "Transfer-Encoding" // net/http has taken it out
			if _, ok := h[key]; (ok || gone) && !slices.Contains(hopByHop, key) {
				return "the field Connection names one that is not between two hops"
			}
		}
	}
	return ""
}

// ValidHost reports whether a host arrives as it is: net/http cuts one off at a byte that cannot stand in it.
func ValidHost(host string) bool {
	for i := range len(host) {
		if b := host[i]; b <= ' ' || b >= 0x7f || strings.IndexByte(`"#/<>?@\^{|}`+"`", b) >= 0 {
			return false
		}
	}
	return true
}

// hopByHop are the fields that Connection may name. Others would be taken out on the way: a client could
// hide what a server before this one has added for the upstream.
var hopByHop = []string{"Upgrade", "Te", "Trailer", "Proxy-Connection", "Http2-Settings"}

// dropUpgradeToHTTP2 answers an offer as RFC 9110 lets a server do: by going on as before.
func dropUpgradeToHTTP2(h http.Header) {
	for _, list := range h["Upgrade"] {
		for token := range strings.SplitSeq(list, ",") {
			token = strings.ToLower(strings.Trim(token, " \t"))
			if token == "h2" || token == "h2c" || strings.HasPrefix(token, "http/") ||
				strings.HasPrefix(token, "tls/") {
				delete(h, "Upgrade")
				delete(h, "Http2-Settings")
				return
			}
		}
	}
}

// refuse answers in place of the handler, which has not seen the request.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, status int, why reason, text string) {
	refuse(w, r, s.refused(w.Header(), r, status, why), text)
}

// refuse answers in place of the handler, and has the connection closed: what follows on it is not to be believed.
func refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	w.Header().Set("Connection", "close")
	say(w, r, status, why)
}

// say answers in place of the handler.
func say(w http.ResponseWriter, r *http.Request, status int, why string) {
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	if grpcanswer.Write(w, r, status, why) {
		return
	}
	text, _ := json.Marshal(struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, why})
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}
