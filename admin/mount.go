package admin

import (
	"fmt"
	"net/http"
	pathpkg "path"
	"slices"
	"strings"
)

const (
	mostMounts  = 16 // they are looked through at each request
	longestPath = 256
)

// Mount serves a handler of the program's beside the API, for GET and HEAD: at path, or below it where path
// ends in "/". The access rules are those of GET /state: Host, credentials, origin. So metrics need no
// listener of their own:
//
//	admin.Mount("/metrics", promhttp.HandlerFor(prom, promhttp.HandlerOpts{}))
//
// A path has letters, digits and -._~/ only, and is neither the API's nor another mount's. There may be 16.
// The handler sees the path as it was sent; its pages run no scripts unless it sets a Content-Security-Policy
// of its own. Under [Handler.Serve] an answer takes 30 seconds at most.
func Mount(path string, what http.Handler) Option { return mounted(path, what, false) }

// MountOpen is Mount without access rules: any client may request the path, without credentials, from any
// address and with any Host. It is for probes of a pod's address by a kubelet. The answer should not be
// secret, and should cost almost nothing. Such a request does not make a client known: see [Handler.Serve].
//
//	admin.MountOpen("/ready", ready)
func MountOpen(path string, what http.Handler) Option { return mounted(path, what, true) }

func mounted(path string, what http.Handler, open bool) Option {
	return func(h *handler) {
		if err := h.fitsBeside(path, what); err != nil {
			h.errs = append(h.errs, err)
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

// fitsBeside is an error if a handler cannot be mounted at path, beside what is there already.
func (h *handler) fitsBeside(path string, what http.Handler) error {
	wrong := ""
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
	if wrong == "" {
		return nil
	}
	return fmt.Errorf("admin: Mount: path %q: %s", shorten(path, maxValue), wrong)
}

// within reports whether a path is another one, or below it. With or without a slash at the end they are one.
func within(path, other string) bool {
	path, other = strings.TrimSuffix(path, "/"), strings.TrimSuffix(other, "/")
	return path == other || other != "" && strings.HasPrefix(path, other+"/")
}
