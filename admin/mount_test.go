package admin

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
)

// says200 answers with a text.
func says200(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, text+" "+r.URL.Path)
	})
}

// mounts are the two kinds, each at a path and below one.
func mounts() []Option {
	return []Option{
		Mount("/metrics", says200("metrics")), Mount("/debug/", says200("debug")),
		MountOpen("/ready", says200("ready")), MountOpen("/live/", says200("live")),
	}
}

// TestMountsKeepToTheDoor: what is mounted is served to those that may read the state; what is open, to all.
// Neither loosens the rest.
func TestMountsKeepToTheDoor(t *testing.T) {
	over := func(local, remote, host string, header http.Header) *http.Request {
		req := httptest.NewRequest("GET", "http://"+host+"/", nil)
		at, err := net.ResolveTCPAddr("tcp", local)
		must(t, err)
		req.RemoteAddr = remote
		req.Header = header
		return req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey, net.Addr(at)))
	}
	bearer := func(secret string) http.Header { return http.Header{"Authorization": {"Bearer " + secret}} }
	const here, near, pod, kubelet = "127.0.0.1:9090", "127.0.0.1:50000", "10.1.2.3:4041", "10.1.0.1:50000"
	token := []Option{Token(secret), ReadOnlyToken(looker), AllowHosts("admin.example")}
	for name, tt := range map[string]struct {
		opts    []Option
		req     *http.Request
		mounted int // and the state
	}{
		"loopback":                 {nil, over(here, near, "localhost", http.Header{}), 200},
		"loopback, a rebound name": {nil, over(here, near, "evil.example", http.Header{}), 403},
		"loopback, another origin": {nil,
			over(here, near, "localhost", http.Header{"Origin": {"http://evil.example"}}), 403},
		"loopback, forwarded": {nil,
			over(here, near, "localhost", http.Header{"X-Forwarded-For": {"10.9.9.9"}}), 403},
		"a pod, by its address":          {token, over(pod, kubelet, "10.1.2.3:4041", http.Header{}), 401},
		"a pod, by a name that it has":   {token, over(pod, kubelet, "admin.example", http.Header{}), 401},
		"a pod, with the token":          {token, over(pod, kubelet, "admin.example", bearer(secret)), 200},
		"a pod, with one for reading":    {token, over(pod, kubelet, "admin.example", bearer(looker)), 200},
		"a pod, with a wrong token":      {token, over(pod, kubelet, "admin.example", bearer(other)), 401},
		"a pod, the address and a token": {token, over(pod, kubelet, "10.1.2.3:4041", bearer(secret)), 200},
		"a pod, another address":         {token, over(pod, kubelet, "10.1.2.4:4041", bearer(secret)), 403},
		"no loopback and no token":       {nil, over(pod, kubelet, "localhost", http.Header{}), 403},
		"something in front": {[]Option{BehindAuthentication()},
			over(pod, kubelet, "localhost", http.Header{}), 200},
	} {
		h := quiet(t, newLimiter(t), append(tt.opts, mounts()...)...)
		for path, want := range map[string]int{
			"/metrics": tt.mounted, "/debug/": tt.mounted, "/debug/pprof/heap": tt.mounted,
			"/state": tt.mounted, "/ready": 200, "/live/": 200, "/live/deep": 200,
		} {
			req := tt.req.Clone(tt.req.Context())
			req.URL.Path = path
			rec := served(t, h, req)
			if rec.Code != want {
				t.Errorf("%s: %s: %d, want %d: %s", name, path, rec.Code, want, rec.Body)
			}
			if own := strings.HasSuffix(rec.Body.String(), " "+path); own != (rec.Code == 200 &&
				path != "/state") {
				t.Errorf("%s: %s: %q", name, path, rec.Body)
			}
		}
	}
}

// TestMountsAreForReading: no method but GET and HEAD gets to a handler, and no other path.
func TestMountsAreForReading(t *testing.T) {
	h := quiet(t, newLimiter(t), append(mounts(), Token(secret))...)
	header := http.Header{"Authorization": {"Bearer " + secret}}
	for _, path := range []string{"/metrics", "/debug/x", "/ready", "/live/x"} {
		for _, method := range []string{"PUT", "POST", "DELETE", "PATCH", "CONNECT", "TRACE",
			"OPTIONS", "get"} {
			rec := request{method: method, path: path, header: header}.send(t, h)
			if rec.Code != http.StatusMethodNotAllowed || rec.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d, allowed %q", method, path, rec.Code, rec.Header().Get("Allow"))
			}
		}
		rec := request{method: "HEAD", path: path, header: header}.send(t, h)
		if rec.Code != http.StatusOK || rec.Header().Get("Content-Security-Policy") != "sandbox" ||
			rec.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("HEAD %s: %d %v", path, rec.Code, rec.Header())
		}
	}
	for _, path := range []string{"/metrics/", "/metrics/x", "/metric", "/Metrics", "/debug", "/debugs",
		"/ready/", "/readyz", "/ready/../state", "//ready", "/live"} {
		rec := get(path).headed(header).send(t, h)
		if rec.Code != http.StatusNotFound {
			t.Errorf("%s: %d, want 404", path, rec.Code)
		}
	}
}

// TestMountsThatCannotBe: New refuses what would never be found, or would stand before something else.
func TestMountsThatCannotBe(t *testing.T) {
	serves := says200("x")
	many := make([]Option, 17)
	for i := range many {
		many[i] = Mount("/m"+strings.Repeat("m", i), serves)
	}
	for want, opts := range map[string][]Option{
		`admin: Mount: path "": not / and at most 256`: {Mount("", serves)},
		`admin: Mount: path "metrics": not / and`:      {Mount("metrics", serves)},
		`admin: Mount: path "GET /metrics": not / and`: {
			Mount("GET /metrics", serves)},
		`admin: Mount: path "/{name}": not / and`: {
			MountOpen("/{name}", serves)},
		`admin: Mount: path "/a?b": not / and`: {Mount("/a?b", serves)},
		`admin: Mount: path "/` + strings.Repeat("x", 63) +
			`…": not / and`: {Mount("/"+strings.Repeat("x", 256), serves)},
		`admin: Mount: path "//metrics": an empty part or one of dots`: {Mount("//metrics", serves)},
		`admin: Mount: path "/a/../b": an empty part or one of dots`:   {Mount("/a/../b", serves)},
		`admin: Mount: path "/a//": an empty part or one of dots`:      {Mount("/a//", serves)},
		`admin: Mount: path "/metrics": the handler is nil`:            {Mount("/metrics", nil)},
		`admin: Mount: path "/": overlaps /`:                           {Mount("/", serves)},
		`admin: Mount: path "/state": overlaps /state`:                 {Mount("/state", serves)},
		`admin: Mount: path "/state/": overlaps /state`: {
			MountOpen("/state/", serves)},
		`admin: Mount: path "/limit/x": overlaps /limit`: {
			MountOpen("/limit/x", serves)},
		`admin: Mount: path "/assets": overlaps /assets/`: {Mount("/assets", serves)},
		`admin: Mount: path "/assets/mine.js": overlaps /assets/`: {
			Mount("/assets/mine.js", serves)},
		`admin: Mount: path "/ready": overlaps /ready`: {MountOpen("/ready", serves),
			Mount("/ready", serves)},
		`admin: Mount: path "/debug/": overlaps /debug/pprof/`: {Mount("/debug/pprof/",
			serves), MountOpen("/debug/", serves)},
		`admin: Mount: path "/debug/pprof/": overlaps /debug/`: {MountOpen("/debug/",
			serves), Mount("/debug/pprof/", serves)},
		`admin: Mount: path "/m` + strings.Repeat("m", 16) + `": one more than`: many,
	} {
		if _, err := New(new(quotient.Registry), opts...); err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if _, err := New(new(quotient.Registry),
		slices.Concat(many[:16], []Option{File(brokenFile)})...); err != nil {
		t.Errorf("16 mounts: %v", err)
	}
	_, err := New(new(quotient.Registry), Mount("/debug", serves), Mount("/debugger", serves))
	if err != nil {
		t.Errorf("two names of which one begins as the other: %v", err)
	}
}
