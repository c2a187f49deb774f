package proxy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/quotient-go/quotient/config"
)

// The fields by which a browser lets scripts of another origin read an answer, as net/http keeps their names.
const (
	allowOrigin      = "Access-Control-Allow-Origin"
	allowCredentials = "Access-Control-Allow-Credentials"
	exposeHeaders    = "Access-Control-Expose-Headers"
)

// cors is whose scripts may read our own answers. What the upstream answers has its own fields, or none. Our fields are
// set when a request comes, so that whatever answers it has them, and are taken out again if the upstream does.
type cors struct {
	origins     []string
	any         bool // whoever asks, so that all get the same
	credentials bool
	exposed     []string // the line of exposeHeaders
}

var (
	anyOrigin  = []string{"*"}
	varyOrigin = []string{"Origin"}
	isTrue     = []string{"true"}
)

// newCORS is that of a file, nil for none.
func newCORS(p *config.Proxy) *cors {
	if p.CORS == nil {
		return nil
	}
	of := spans[fieldSets[p.Fields]]
	names := append([]string{"Retry-After"}, fieldNames[of.from:of.to]...)
	return &cors{
		p.CORS.Origins, slices.Contains(p.CORS.Origins, "*"), p.CORS.Credentials, []string{strings.Join(names, ", ")},
	}
}

// set sets the fields for a request.
func (c *cors) set(h http.Header, r *http.Request) {
	allowed := anyOrigin
	if !c.any {
		h["Vary"] = varyOrigin // also on what another origin gets
		if allowed = r.Header["Origin"]; len(allowed) != 1 || !slices.Contains(c.origins, allowed[0]) {
			return
		}
		if c.credentials {
			h[allowCredentials] = isTrue
		}
	}
	h[allowOrigin], h[exposeHeaders] = allowed, c.exposed
}

// unset takes the fields out of the answer to a request that the upstream has answered.
func unset(h http.Header) {
	for _, name := range [...]string{"Vary", allowOrigin, allowCredentials, exposeHeaders} {
		delete(h, name)
	}
}
