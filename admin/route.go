package admin

import (
	"cmp"
	_ "embed"
	"fmt"
	"net/http"
	pathpkg "path"
	"slices"
	"strconv"
	"strings"

	"github.com/quotient-go/quotient/internal/listen"
)

// A route is one resource of the API. The OpenAPI document has the same ones; a test compares them.
type route struct {
	path    string // one that ends in "/", but for the page itself, stands for all below it
	methods []string
	public  bool // holds no data: an operator must be able to load the page before giving it a token
	open    bool // is for all, whatever the Host: see MountOpen
	serve   server
}

var (
	reads  = []string{http.MethodGet, http.MethodHead}
	writes = []string{http.MethodPut}
)

var routes = []route{
	{path: "/", methods: reads, public: true, serve: (*handler).page},
	{path: "/assets/", methods: reads, public: true, serve: (*handler).page},
	{path: "/openapi.json", methods: reads, public: true, serve: (*handler).getOpenAPI},
	{path: "/state", methods: reads, serve: answering((*handler).getState, "limiter", "history")},
	{path: "/events", methods: []string{http.MethodGet}, serve: answering((*handler).events)},
	{path: "/keys", methods: reads, serve: answering((*handler).getKeys, "limiter", "top", "by")},
	{path: "/explain", methods: reads, serve: answering((*handler).getExplain, "limiter", "key", "key_base64", "plan")},
	{path: "/peers", methods: reads, serve: answering((*handler).getPeers)},
	{path: "/replicas", methods: writes, serve: putter(parseReplicas)},
	{path: "/limit", methods: writes, serve: putter(parseLimit)},
	{path: "/plan", methods: writes, serve: putter(parsePlan)},
	{path: "/override", methods: writes, serve: putter(parseOverride)},
	{path: "/reset", methods: writes, serve: putter(parseReset)},
	{path: "/dry-run", methods: writes, serve: putter(parseDryRun)},
	{path: "/leases", methods: reads, serve: withLeases(answering((*handler).getLeases, "semaphore", "top"))},
	{path: "/leases/break", methods: []string{http.MethodPost}, serve: withLeases(answering((*handler).breakLease))},
}

// find is a route of the API, or else one of the program's own, by the path as it was sent. A ServeMux would redirect other spellings, with a page of
// HTML and to a path that lacks the prefix under which the handler is mounted.
func (h *handler) find(path string) *route { return cmp.Or(among(routes, path), among(h.mounts, path)) }

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

// route asks who it is, where from and for what, in this order, and then serves. The route is nil where there is none.
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
	default:
		if bad := h.crossOrigin(r); bad != nil && !rt.public {
			h.refuse(w, r, who, bad)
			return
		}
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

// crossOrigin is why a request is not served that a page of another origin may have sent. Reads are held to the rule
// of writes: what a limiter does concerns no other page, even where the browser would hide the answer. A browser sends
// a field once: of two the standard library reads the first.
func (h *handler) crossOrigin(r *http.Request) *Problem {
	as := *r
	as.Method = http.MethodPut
	bad := h.origin.Check(&as) != nil
	field := "Sec-Fetch-Site"
	for _, name := range []string{"Sec-Fetch-Site", "Origin"} {
		if len(r.Header.Values(name)) > 1 {
			bad = true
		}
		if len(r.Header.Values(name)) > 0 {
			field = name
		}
	}
	if !bad {
		return nil
	}
	return &Problem{
		Status: http.StatusForbidden, Detail: "a request must not come from a page of another origin",
		Field: field, Value: clip(strings.Join(r.Header.Values(field), ", ")),
	}
}

func notAllowed(w http.ResponseWriter, r *http.Request, methods []string) {
	allow := strings.Join(methods, ", ")
	w.Header().Set("Allow", allow)
	writeProblem(w, &Problem{
		Status: http.StatusMethodNotAllowed, Detail: "this resource does not have that method",
		Field: "method", Value: clip(r.Method), Range: allow,
	})
}

func notFound(w http.ResponseWriter, r *http.Request) {
	writeProblem(w, &Problem{
		Status: http.StatusNotFound, Detail: "there is no such resource",
		Field: "path", Value: clip(r.URL.Path), Range: "/openapi.json lists what there is",
	})
}

//go:embed openapi.json
var openAPI64 string

// openAPI is the API's description, with this system's largest burst.
var openAPI = []byte(strings.Replace(openAPI64, "1099511627776", strconv.Itoa(mostBurst), 1))

// getOpenAPI answers with the API's description.
func (h *handler) getOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI)
}

const (
	mostMounts  = 16 // they are looked through at each request
	longestPath = 256
)

// Mount serves a handler of the program's beside the API, for GET and HEAD: at path, or below it where path ends in
// "/". The access rules are those of GET /state: Host, credentials, origin. So metrics need no listener of their own:
//
//	admin.Mount("/metrics", promhttp.HandlerFor(prom, promhttp.HandlerOpts{}))
//
// A path has letters, digits and -._~/ only, and is neither the API's nor another mount's. There may be 16.
// The handler sees the path as it was sent; its pages run no scripts unless it sets a Content-Security-Policy
// of its own. Under [Handler.Serve] an answer takes 30 seconds at most. It is not in the OpenAPI document.
func Mount(path string, what http.Handler) Option { return mounted(path, what, false) }

// MountOpen is Mount without access rules: any client may request the path, without credentials, from any
// address and with any Host. It is for probes of a pod's address by a kubelet. The answer should not be
// secret, and should cost almost nothing. Such a request does not make a client known: see [Handler.Serve].
//
//	admin.MountOpen("/ready", ready)
func MountOpen(path string, what http.Handler) Option { return mounted(path, what, true) }

func mounted(path string, what http.Handler, open bool) Option {
	return func(h *handler) {
		if wrong := h.unfit(path, what); wrong != "" { // it is not in the way of others
			h.mustBe(false, "Mount: path %q: %s", shorten(path, maxValue), wrong)
			return
		}
		serve := func(_ *handler, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Security-Policy", "sandbox")
			what.ServeHTTP(w, r)
		}
		h.mounts = append(h.mounts, route{path: path, methods: reads, open: open, serve: serve})
	}
}

const pathBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/"

// unfit is why a handler cannot be mounted at path, beside what is there already; "" if it can.
func (h *handler) unfit(path string, what http.Handler) (wrong string) {
	switch {
	case !strings.HasPrefix(path, "/") || strings.Trim(path, pathBytes) != "" || len(path) > longestPath:
		wrong = fmt.Sprintf("not / and at most %d letters, digits and -._~/", longestPath)
	case path != "/" && pathpkg.Clean(path) != strings.TrimSuffix(path, "/"):
		wrong = "an empty part or one of dots: no request for it would be found"
	case what == nil:
		wrong = "the handler is nil"
	case len(h.mounts) == mostMounts:
		wrong = fmt.Sprintf("one more than %d mounts", mostMounts)
	}
	for _, other := range slices.Concat(routes, h.mounts) {
		if wrong == "" && (within(path, other.path) || within(other.path, path)) {
			wrong = "overlaps " + other.path
		}
	}
	return wrong
}

// within reports whether a path is another one, or below it. With or without a slash at the end they are one.
func within(path, other string) bool {
	path, other = strings.TrimSuffix(path, "/"), strings.TrimSuffix(other, "/")
	return path == other || other != "" && strings.HasPrefix(path, other+"/")
}
