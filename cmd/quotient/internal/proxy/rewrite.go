package proxy

import (
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/quotient-go/quotient/internal/field"
)

// rewrite says where a request comes from, and has its target go as it came.
func rewrite(out, in *http.Request, f *flight) {
	keepTarget(out, in)
	if f.trusted {
		forward(out, in)
	} else {
		dropAddresses(out.Header)
	}
	if len(in.Trailer) > 0 && out.Body != nil {
		out.Trailer = maps.Clone(in.Trailer)
		dropAddresses(out.Trailer)
		out.Body = &trailed{out.Body, in.Trailer, out.Trailer}
	}
	setForwarded(out.Header, in)
	if in.Host == "" { // a client of HTTP/1.0 may name none
		delete(out.Header, "X-Forwarded-Host")
	}
	if f.trusted { // the first proxy knows what the client has asked for
		keep(out.Header, in.Header, "X-Forwarded-Host")
		keep(out.Header, in.Header, "X-Forwarded-Proto")
	}
}

// setForwarded does what httputil.ProxyRequest.SetXForwarded does, with one allocation in place of three.
func setForwarded(h http.Header, in *http.Request) {
	lines := make([]string, 3)
	if client, _, err := net.SplitHostPort(in.RemoteAddr); err == nil && !ofUnix(in) {
		if prior := h["X-Forwarded-For"]; len(prior) > 0 {
			client = strings.Join(prior, ", ") + ", " + client
		}
		lines[0] = client
		h["X-Forwarded-For"] = lines[0:1:1]
	} // else only what a trusted peer has said stands there
	lines[1], lines[2] = in.Host, "http"
	if in.TLS != nil {
		lines[2] = "https"
	}
	h["X-Forwarded-Host"], h["X-Forwarded-Proto"] = lines[1:2:2], lines[2:3:3]
}

// dropAddresses drops the fields that hold addresses, in any spelling that some server takes for theirs.
func dropAddresses(h http.Header) {
	const all = "X-Forwarded-"
	for name := range h {
		if name == "" || name[0] != 'X' && name[0] != 'F' {
			continue
		}
		if len(name) >= len(all) && field.Alike(name[:len(all)], all) || field.Alike(name, "X-Real-Ip") ||
			name == "Forwarded" {
			delete(h, name)
		}
	}
}

// trailed is the body of a request with trailers, which are known at its end. Those that were announced go on.
type trailed struct {
	io.ReadCloser
	in, out http.Header
}

// Read reads the body.
func (b *trailed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		for name := range b.out {
			b.out[name] = b.in[name]
		}
	}
	return n, err
}

// forward passes on what a trusted peer says of the addresses before it.
func forward(out, in *http.Request) {
	keep(out.Header, in.Header, "X-Forwarded-For")
	lines := in.Header["Forwarded"]
	if len(lines) > 0 {
		by := "for=unknown" // as RFC 7239 has it, for a peer at a Unix socket
		switch at := peer(in); {
		case at.Is4():
			by = "for=" + at.String()
		case at.Is6():
			by = `for="[` + at.String() + `]"`
		}
		out.Header["Forwarded"] = []string{strings.Join(lines, ", ") + ", " + by}
	}
}

func keep(out, in http.Header, name string) {
	if lines := in[name]; len(lines) > 0 {
		out[name] = lines
	}
}

// keepTarget has the target go to the upstream as the client sent it.
func keepTarget(out, in *http.Request) {
	out.URL.RawQuery, out.URL.User = in.URL.RawQuery, nil
	raw := in.RequestURI
	if raw == "" { // not of a server
		return
	}
	if raw[0] != '/' { // absolute form
		_, rest, _ := strings.Cut(raw, "://")
		i := strings.IndexAny(rest, "/?")
		if i < 0 || rest[i] == '?' {
			return // no path
		}
		raw = rest[i:]
	}
	raw, _, _ = strings.Cut(raw, "?")
	if raw != out.URL.EscapedPath() {
		out.URL.RawPath = unfit.ReplaceAllStringFunc(raw, url.PathEscape)
	}
}

// unfit is what no path may hold; a "%" may stand in it (RFC 3986, 3.3).
var unfit = regexp.MustCompile(`[^-._~!$&'()*+,;=:@/%\[\]a-zA-Z0-9]`)
