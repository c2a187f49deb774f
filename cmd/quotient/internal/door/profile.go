package door

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// parts are what a question says of a request, or the names of the fields that say so.
type parts [4]string

const (
	method = iota
	host
	target // path and query, as the client sent them
	client // the address of the client's connection
)

// profile is how a proxy describes the request that it asks about, and which refusals it passes on.
type profile struct {
	fields  parts                 // as net/http keeps their names; "": the question's own head says it
	dropped []string              // fields that say nothing of what the client sent, beside those
	carries func(status int) bool // a refusal reaches the client with this status
}

// In forwardedFor the last address is that of the client's connection. Those in front of it are for the handler that
// decides, which believes them or not. In realIP there is one address.
const (
	forwardedFor = "X-Forwarded-For"
	realIP       = "X-Real-Ip"
)

// original are the fields for proxies whose configuration sets all of them.
var original = parts{"X-Original-Method", "X-Original-Host", "X-Original-Uri", realIP}

// profiles are those of the file. Where a proxy would let a request go on, or take the answer for a failure of the one
// that it asks, a refusal has another status: no answer but that to an admission lets anything through.
var profiles = map[string]*profile{
	"forward-auth": { // Traefik's ForwardAuth, and Caddy's forward_auth
		fields:  parts{"X-Forwarded-Method", "X-Forwarded-Host", "X-Forwarded-Uri", forwardedFor},
		dropped: []string{"X-Forwarded-Proto"}, carries: within(400, 599),
	},
	"haproxy": {fields: original, carries: within(400, 599)},
	"nginx": { // auth_request: anything but 401 and 403 is an error, and the client reads 500
		fields: original, carries: within(http.StatusForbidden, http.StatusForbidden),
	},
	"envoy": { // ext_authz over HTTP: with 5xx the request goes on where failure_mode_allow is set
		fields:  parts{client: realIP},
		dropped: []string{forwardedFor}, // Envoy adds its own address
		carries: within(400, 499),
	},
}

func within(least, most int) func(int) bool {
	return func(status int) bool { return least <= status && status <= most }
}

// heads are what the parts are called that no field says.
var heads = parts{"the method", "the host", "the path behind " + decidePath, "the client"}

// read makes a question of what a proxy has sent.
func (p *profile) read(r *http.Request) (*question, error) {
	is, names := parts{r.Method, r.Host, strings.TrimPrefix(r.RequestURI, decidePath)}, heads
	for i, name := range p.fields {
		if name == "" {
			continue
		}
		names[i] = name
		switch lines := r.Header[name]; {
		case len(lines) == 0 || lines[0] == "":
			return nil, fmt.Errorf("the field %s is missing", name)
		case len(lines) > 1:
			return nil, fmt.Errorf("the field %s is there %d times, want one", name, len(lines))
		default:
			is[i] = lines[0]
		}
	}
	header := make(http.Header, len(r.Header))
	for name, lines := range r.Header {
		if !hop(name) && !p.own(name) {
			header[name] = lines
		}
	}
	if p.fields[client] == forwardedFor {
		if i := strings.LastIndexByte(is[client], ','); i >= 0 {
			header[forwardedFor] = []string{is[client][:i]}
			is[client] = strings.Trim(is[client][i+1:], " \t")
		}
	}
	return newQuestion(r.Context(), is, names, header)
}

// own reports whether a field describes the request, and is none of it.
func (p *profile) own(name string) bool {
	return slices.Contains(p.fields[:], name) || slices.Contains(p.dropped, name)
}

// hop reports whether a field is about a connection, or about a body, which questions leave out.
func hop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Length", "Expect":
		return true
	}
	return false
}

// answer writes the answer to a question.
func (p *profile) answer(w http.ResponseWriter, q *question) {
	h := w.Header()
	for name, lines := range q.answered {
		if len(lines) > 0 {
			h[name] = lines
		}
	}
	if q.ok() {
		if q.permit != nil && q.permit.held {
			h[permitField] = []string{q.permit.token.String()}
		}
		h["Content-Length"] = noLength
		w.WriteHeader(http.StatusOK)
		return
	}
	w.WriteHeader(p.carried(h, cmp.Or(q.status, http.StatusServiceUnavailable)))
	_, _ = w.Write(q.body) // a caller that has left is no error
}

// carried is the status with which a caller reads a refusal. It notes in h what the status has been.
func (p *profile) carried(h http.Header, status int) int {
	if p.carries(status) {
		return status
	}
	h[trueStatus] = []string{strconv.Itoa(status)}
	return http.StatusForbidden
}

var noLength = []string{"0"}

// trueStatus is the field of a refusal with the status that the profile cannot carry.
const trueStatus = "Quotient-Status"
