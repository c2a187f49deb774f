package admin

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
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
			tested.Want(t, fmt.Sprintf("%s: %s", name, path), rec.Code, want)
			own := strings.HasSuffix(rec.Body.String(), " "+path)
			tested.Want(t, fmt.Sprintf("%s: %s: %q", name, path, rec.Body), own, rec.Code == 200 && path != "/state")
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
		tested.Want(t, path, rec.Code, http.StatusNotFound)
	}
}

// TestMountsThatCannotBe: New refuses what would never be found, or would stand before something else.
func TestMountsThatCannotBe(t *testing.T) {
	const spelled, dots = "not / and at most 256", "an empty part or one of dots"
	serves := says200("x")
	many := make([]Option, 17)
	for i := range many {
		many[i] = Mount("/m"+strings.Repeat("m", i), serves)
	}
	for _, tt := range []struct {
		first, path, want string // first: one that is open, "" for none
	}{
		{"", "", spelled}, {"", "metrics", spelled}, {"", "GET /metrics", spelled}, {"", "/{name}", spelled},
		{"", "/a?b", spelled}, {"", "/" + strings.Repeat("x", 256), spelled},
		{"", "//metrics", dots}, {"", "/a/../b", dots}, {"", "/a//", dots},
		{"", "/", "overlaps /"}, {"", "/state", "overlaps /state"}, {"", "/state/", "overlaps /state"},
		{"", "/limit/x", "overlaps /limit"}, {"", "/assets", "overlaps /assets/"},
		{"", "/assets/mine.js", "overlaps /assets/"}, {"/ready", "/ready", "overlaps /ready"},
		{"/debug/pprof/", "/debug/", "overlaps /debug/pprof/"}, {"/debug/", "/debug/pprof/", "overlaps /debug/"},
	} {
		opts := []Option{Mount(tt.path, serves)}
		if tt.first != "" {
			opts = []Option{MountOpen(tt.first, serves), Mount(tt.path, serves)}
		}
		want := fmt.Sprintf("admin: Mount: path %q: %s", clip(tt.path), tt.want)
		if _, err := New(new(quotient.Registry), opts...); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	for _, tt := range []struct {
		opts []Option
		want string // "": none
	}{
		{[]Option{Mount("/x", nil), Mount("/x/y", serves)}, "the handler is nil"}, {many, "one more than 16 mounts"}, {many[:16], ""},
		{[]Option{Mount("/debug", serves), Mount("/debugger", serves)}, ""}, // one name begins as the other
	} {
		_, err := New(new(quotient.Registry), tt.opts...)
		if (err == nil) != (tt.want == "") || err != nil && !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
}
