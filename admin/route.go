package admin

import (
	_ "embed"
	"net/http"
	"slices"
	"strings"

	"github.com/quotient-go/quotient/internal/listen"
)

// A route is one resource of the API. The OpenAPI document has the same ones; a test compares them.
type route struct {
	path    string // one that ends in "/", but for the page itself, stands for all below it
	methods []string
	public  bool // holds no data: an operator must be able to load the page before giving it a token
	open    bool // is for all, whatever the Host: see MountOpen
	serve   func(h *handler, w http.ResponseWriter, r *http.Request)
}

var (
	reads  = []string{http.MethodGet, http.MethodHead}
	writes = []string{http.MethodPut}
)

var routes = []route{
	{path: "/", methods: reads, public: true, serve: (*handler).page},
	{path: "/assets/", methods: reads, public: true, serve: (*handler).page},
	{path: "/openapi.json", methods: reads, public: true, serve: (*handler).getOpenAPI},
	{path: "/state", methods: reads, serve: (*handler).getState},
	{path: "/events", methods: []string{http.MethodGet}, serve: (*handler).events},
	{path: "/keys", methods: reads, serve: (*handler).getKeys},
	{path: "/explain", methods: reads, serve: (*handler).getExplain},
	{path: "/replicas", methods: writes, serve: putter(parseReplicas)},
	{path: "/limit", methods: writes, serve: putter(parseLimit)},
	{path: "/plan", methods: writes, serve: putter(parsePlan)},
	{path: "/override", methods: writes, serve: putter(parseOverride)},
	{path: "/reset", methods: writes, serve: putter(parseReset)},
	{path: "/dry-run", methods: writes, serve: putter(parseDryRun)},
	{path: "/leases", methods: reads, serve: withLeases((*handler).getLeases)},
	{path: "/leases/break", methods: []string{http.MethodPost}, serve: withLeases((*handler).breakLease)},
}

// find chooses by the path as it was sent. A ServeMux would redirect other spellings, with a page of
// HTML and to a path that lacks the prefix under which the handler is mounted.
func find(path string) *route { return among(routes, path) }

// find is a route of the API, or else one of the program's own.
func (h *handler) find(path string) *route {
	if rt := find(path); rt != nil {
		return rt
	}
	return among(h.mounts, path)
}

func among(routes []route, path string) *route {
	for i := range routes {
		rt := &routes[i]
		below := rt.path != "/" && strings.HasSuffix(rt.path, "/") && strings.HasPrefix(path, rt.path)
		if path == rt.path || below {
			return rt
		}
	}
	return nil
}

// route asks who it is, where from and for what, in this order, and then serves. The route is nil where there
// is none.
func (h *handler) route(w http.ResponseWriter, r *http.Request, rt *route) {
	who, bad := h.identify(r, rt != nil && rt.public)
	if bad != nil {
		h.refuse(w, r, who, bad)
		return
	}
	switch {
	case rt == nil:
		notFound(w, r)
	case !slices.Contains(rt.methods, r.Method):
		notAllowed(w, r, rt.methods)
	case !rt.public && h.crossOrigin(r):
		h.refuse(w, r, who, crossOrigin(r))
	default:
		if who.name != "" || !rt.public {
			listen.Welcome(r)
		}
		rt.serve(h, w, r)
	}
}

// open serves what is for all. A client that asks for nothing else stays a stranger.
func (h *handler) open(w http.ResponseWriter, r *http.Request, rt *route) {
	if !slices.Contains(rt.methods, r.Method) {
		notAllowed(w, r, rt.methods)
		return
	}
	rt.serve(h, w, r)
}

// crossOrigin reports whether a page of another origin asks. Reads are held to the rule of writes: what a
// limiter does concerns no other page, even where the browser would hide the answer.
func (h *handler) crossOrigin(r *http.Request) bool {
	as := *r
	as.Method = http.MethodPut
	return h.origin.Check(&as) != nil
}

func notAllowed(w http.ResponseWriter, r *http.Request, methods []string) {
	allow := strings.Join(methods, ", ")
	w.Header().Set("Allow", allow)
	writeProblem(w, &Problem{
		Status: http.StatusMethodNotAllowed,
		Detail: "this resource does not have that method",
		Field:  "method", Value: clip(r.Method), Range: allow,
	})
}

func notFound(w http.ResponseWriter, r *http.Request) {
	writeProblem(w, &Problem{
		Status: http.StatusNotFound,
		Detail: "there is no such resource",
		Field:  "path", Value: clip(r.URL.Path), Range: "/openapi.json lists what there is",
	})
}

func crossOrigin(r *http.Request) *Problem {
	p := &Problem{
		Status: http.StatusForbidden,
		Detail: "a request must not come from a page of another origin",
		Field:  "Origin", Value: clip(r.Header.Get("Origin")),
	}
	if p.Value == "" {
		p.Field, p.Value = "Sec-Fetch-Site", clip(r.Header.Get("Sec-Fetch-Site"))
	}
	return p
}

//go:embed openapi.json
var openAPI []byte

// getOpenAPI answers with the API's description.
func (h *handler) getOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI)
}
