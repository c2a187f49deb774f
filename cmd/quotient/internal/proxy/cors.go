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
	public      bool // the origin does not matter, so that all get the same
	credentials bool
	exempt      bool     // preflights are
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
		origins: p.CORS.Origins, public: slices.Contains(p.CORS.Origins, "*"), credentials: p.CORS.Credentials,
		exempt: p.CORS.ExemptPreflights, exposed: []string{strings.Join(names, ", ")},
	}
}

// set sets the fields for a request.
func (c *cors) set(h http.Header, r *http.Request) {
	allowed := anyOrigin
	if !c.public {
		h["Vary"] = varyOrigin // also on what another origin gets
		if allowed = r.Header["Origin"]; !c.allows(allowed) {
			return
		}
		if c.credentials {
			h[allowCredentials] = isTrue
		}
	}
	h[allowOrigin], h[exposeHeaders] = allowed, c.exposed
}

// allows reports whether the lines of Origin are one of an origin whose scripts may read our answers.
func (c *cors) allows(origin []string) bool {
	return len(origin) == 1 && (c.public || slices.Contains(c.origins, origin[0]))
}

// spares reports whether a request is a preflight that no limit counts.
func (c *cors) spares(r *http.Request) bool {
	return c.exempt && r.Method == http.MethodOptions && r.ContentLength == 0 &&
		len(r.Header["Access-Control-Request-Method"]) > 0 && c.allows(r.Header["Origin"])
}

// unset takes the fields out of the answer to a request that the upstream has answered.
func unset(h http.Header) {
	for _, name := range [...]string{"Vary", allowOrigin, allowCredentials, exposeHeaders} {
		delete(h, name)
	}
}
