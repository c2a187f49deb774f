package quotient_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/quotient-go/quotient"

// room is what one directory, or a tree of them, may import. The standard library is open to all.
type room struct {
	dir     string   // relative to the module; "x/..." is x and all below it
	own     []string // rooms of ours that it may import; "." is the root, "..." everything
	not     []string // rooms that it may not import although own says everything
	outside []string // modules or packages of others; "..." anything
	tests   []string // rooms of ours that only its tests may import
	later   bool     // the room is planned and may be absent
	why     string
}

// rooms holds every directory with Go files. A directory that is not here fails the test: say
// first what it may know, and why.
var rooms = []room{
	{dir: ".", own: []string{"policy", "internal/fairshare", "internal/waited", "internal/trial"},
		outside: []string{"golang.org/x/time/rate", "github.com/hashicorp/golang-lru/v2/simplelru"},
		tests:   []string{"internal/house/floors"},
		why: "whoever imports the limiter gets the token maths and the LRU list, and no client of " +
			"any service"},
	{dir: "policy",
		why: "a control controller is a pure function of feedback; it knows no clock, no lock and none of " +
			"its callers"},
	{dir: "ginlimit", own: []string{".", "policy", "httplimit"},
		outside: []string{"github.com/gin-gonic/gin"}, tests: []string{"internal/adaptertest"},
		why: "its own module, so that only those who use gin carry it"},
	{dir: "echolimit", own: []string{".", "policy", "httplimit"},
		outside: []string{"github.com/labstack/echo/v5"}, tests: []string{"internal/adaptertest"},
		why: "its own module, so that only those who use echo carry it"},
	{dir: "echolimit-v4", own: []string{".", "policy", "httplimit"},
		outside: []string{"github.com/labstack/echo/v4"}, tests: []string{"internal/adaptertest"},
		why: "its own module beside echolimit, so that no program carries two versions of echo"},
	{dir: "grpclimit", own: []string{".", "policy", "httplimit", "internal/overdue"},
		outside: []string{"google.golang.org/grpc", "google.golang.org/genproto/googleapis/rpc",
			"google.golang.org/protobuf"},
		why: "its own module, so that only those who speak gRPC carry it"},
	{dir: "httplimit/...", own: []string{".", "policy", "httplimit", "internal/waited", "internal/overdue"},
		outside: []string{"github.com/dunglas/httpsfv"},
		why:     "HTTP is one way to use the limiter; only structured header fields need a parser of others"},
	{dir: "internal/fairshare",
		why: "how replicas divide a limit by what they want is a pure function; it knows no limiter"},
	{dir: "internal/carried", own: []string{".", "internal/fairshare"},
		why: "one fleet for the tests of all that shows what replicas say"},
	{dir: "internal/waited",
		why: "what the limiter tells an adapter of one request, by its context; no name of the " +
			"limiter's API"},
	{dir: "internal/trial",
		why: "what the limiter would answer to a change, for package admin; no name of the limiter's API"},
	{dir: "internal/overdue", own: []string{"."},
		why: "one answer of all adapters to a wait that has ended; it knows no protocol"},
	{dir: "admin/browser", own: []string{".", "policy", "admin", "httplimit"},
		tests: []string{"internal/carried", "internal/needed"}, outside: []string{"github.com/chromedp"},
		why: "its own module: only the page's test drives a browser"},
	{dir: "admin/...", own: []string{".", "admin", "internal/trial"}, tests: []string{"internal/carried"},
		why: "an operator's page reads and sets a Limiter, whatever stands in front of it"},
	{dir: "examples/fleet/...", own: []string{"..."}, not: []string{"bench", "internal"},
		outside: []string{"github.com/redis/go-redis/v9"},
		why:     "its own module, since one of its pools is counted in Redis"},
	{dir: "examples/service", own: []string{"..."}, not: []string{"bench", "internal"},
		outside: []string{"github.com/prometheus/client_golang"},
		why:     "a whole service has metrics, whose library quotient needs anyway"},
	{dir: "examples/...", own: []string{"..."}, not: []string{"bench", "internal"},
		why: "a reader can copy an example: it needs nothing but quotient"},
	{dir: "internal/guards", why: "it runs the go command; it must build when nothing else does"},
	{dir: "internal/release", why: "it runs git and the go command; modules are text to it"},
	{dir: "internal/house/...", own: []string{"internal/house"},
		why: "it reads the root package as text and types; it must run while that one is rebuilt"},
	{dir: "internal/plain", why: "it reads comments and pages as text; it must build when nothing else does"},
	{dir: "internal/adaptertest", own: []string{".", "policy", "httplimit"},
		why: "what the adapter of every HTTP framework must do; it knows no framework"},
	{dir: "internal/needed",
		why: "tests of several modules need programs; whether they are skipped without one is decided here"},
	{dir: "internal/etcdtest", own: []string{"internal/needed"},
		why: "several modules test with a real etcd, each with its own client; the server itself needs none"},
	{dir: "internal/mutate", why: "it runs the go command on changed code; what it changes is a file to it"},
	{dir: "bench/...", own: []string{"..."}, outside: []string{"..."},
		why: "its own module, so that peers and plots do not weigh on programs that import quotient"},
	{dir: "metrics/otel", own: []string{".", "policy", "metrics"}, tests: []string{"internal/carried"},
		outside: []string{"go.opentelemetry.io/otel", "github.com/prometheus"},
		why:     "its own module, so that only those who use OpenTelemetry carry it"},
	{dir: "metrics", own: []string{".", "policy", "lease"}, tests: []string{"internal/carried", "internal/needed"},
		outside: []string{"github.com/prometheus"}, why: "the only place that knows Prometheus"},
	{dir: "poolsize/dns/...", own: []string{".", "poolsize"},
		why: "a source of hints needs the Source interface and the resolver of the standard library"},
	{dir: "poolsize/file", own: []string{".", "poolsize"},
		why: "a source of hints needs the Source interface and a file"},
	{dir: "poolsize/pooltest", own: []string{"."}, outside: []string{"go.uber.org/goleak"},
		why: "what every source must do, as a test that each of them calls"},
	{dir: "poolsize/redis/...", own: []string{".", "policy", "poolsize", "internal/needed"},
		outside: []string{"github.com/redis/go-redis/v9", "github.com/alicebob/miniredis/v2"},
		why:     "its own module, so that only those who count in Redis carry a Redis client"},
	{dir: "poolsize/etcd", own: []string{".", "poolsize"},
		outside: []string{"go.etcd.io/etcd", "google.golang.org/grpc", "go.uber.org/zap"},
		tests:   []string{"internal/etcdtest"},
		why:     "its own module, so that only those who count in etcd carry its client"},
	{dir: "poolsize/kube/...", own: []string{".", "poolsize"}, outside: []string{"k8s.io"},
		why: "its own module, so that only those who count by the API server carry client-go"},
	{dir: "poolsize/gossip/...", own: []string{".", "poolsize"},
		outside: []string{"github.com/hashicorp/memberlist"},
		why:     "its own module, so that only those who gossip carry memberlist"},
	{dir: "lease", own: []string{"lease"}, why: "leases are a service and its client; they stand alone"},
	{dir: "lease/etcd", own: []string{"lease"},
		outside: []string{"go.etcd.io/etcd", "google.golang.org/grpc", "go.uber.org/zap"},
		tests:   []string{"internal/etcdtest"},
		why:     "its own module, so that only those who elect over etcd carry its client"},
	{dir: "config/...", own: []string{".", "policy", "httplimit", "lease", "poolsize/dns", "poolsize/file"},
		outside: []string{"github.com/pelletier/go-toml/v2", "github.com/fsnotify/fsnotify"},
		tests:   []string{"internal/carried"},
		why: "its own module, so that only those who read a file carry its parser; heavy sources are " +
			"handed to it"},
	{dir: "deploy/proxy", own: []string{".", "config", "lease"}, tests: []string{"internal/needed"},
		outside: []string{"k8s.io", "sigs.k8s.io", "github.com/prometheus-operator"},
		why:     "its own module: only the tests of manifests know the types of Kubernetes and kustomize"},
	{dir: "cmd/quotient/...", own: []string{"..."}, not: []string{"bench", "internal"},
		outside: []string{"..."}, tests: []string{"internal/etcdtest"},
		why: "the command joins all the rooms; its own module, so that its dependencies stay with it"},
}

// testOutside is what any test may import besides.
var testOutside = []string{"pgregory.net/rapid", "go.uber.org/goleak"}

// within reports whether the slash-separated path p is dir or lies below it.
func within(p, dir string) bool {
	return dir == "..." || p == dir || strings.HasPrefix(p, dir+"/")
}

// roomOf returns the row for a directory.
func roomOf(dir string) (room, bool) {
	i := slices.IndexFunc(rooms, func(r room) bool {
		tree, all := strings.CutSuffix(r.dir, "/...")
		return dir == r.dir || all && within(dir, tree)
	})
	if i < 0 {
		return room{}, false
	}
	return rooms[i], true
}

// allows reports whether a file in dir, which lies in r, may import the package.
func (r room) allows(dir, imported string, test bool) bool {
	first, _, _ := strings.Cut(imported, "/")
	ours := imported == module || strings.HasPrefix(imported, module+"/")
	switch {
	case ours:
		p := strings.TrimPrefix(strings.TrimPrefix(imported, module), "/")
		return r.allowsOwn(dir, path.Join(".", p), test)
	case !strings.Contains(first, "."):
		return imported != "C"
	}
	allowed := func(a string) bool { return within(imported, a) }
	return slices.ContainsFunc(r.outside, allowed) || test && slices.ContainsFunc(testOutside, allowed)
}

// allowsOwn is allows for a package of ours; p is relative to the module.
func (r room) allowsOwn(dir, p string, test bool) bool {
	if test && p == dir {
		return true // an external test imports the package it tests
	}
	allowed := func(o string) bool { return within(p, o) }
	if slices.ContainsFunc(r.not, allowed) && !(test && slices.ContainsFunc(r.tests, allowed)) {
		return false
	}
	return slices.ContainsFunc(r.own, allowed) || test && slices.ContainsFunc(r.tests, allowed)
}

// goFiles calls visit for every Go file in this checkout, nested modules too.
func goFiles(t *testing.T, visit func(file string)) {
	t.Helper()
	err := fs.WalkDir(os.DirFS("."), ".", func(p string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && p != "." &&
			(name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(name, ".go"):
			visit(p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// imports returns what a Go file imports, whatever its build constraints.
func imports(t *testing.T, file string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(file), nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, spec := range f.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatalf("%s: import %s: %v", file, spec.Path.Value, err)
		}
		paths = append(paths, p)
	}
	return paths
}

// TestImports holds the arrows between the rooms, so that a dependency is a decision.
func TestImports(t *testing.T) {
	used := map[string]bool{}
	goFiles(t, func(file string) {
		dir := path.Dir(file)
		r, ok := roomOf(dir)
		if !ok {
			t.Errorf("%s: the directory %s is in no row of rooms", file, dir)
			return
		}
		used[r.dir] = true
		for _, p := range imports(t, file) {
			if !r.allows(dir, p, strings.HasSuffix(file, "_test.go")) {
				t.Errorf("%s imports %s, which %s may not: %s", file, p, r.dir, r.why)
			}
		}
	})
	for _, r := range rooms {
		if !used[r.dir] && !r.later {
			t.Errorf("the row %s of rooms matches no Go file", r.dir)
		}
	}
}

// TestRoomAllows checks that the rows above mean what they say.
func TestRoomAllows(t *testing.T) {
	const rapid, redis = "pgregory.net/rapid", "github.com/redis/go-redis/v9"
	for _, c := range []struct {
		dir, imported string
		test, want    bool
	}{
		{".", "net/http", false, true},
		{".", "C", false, false},
		{".", "golang.org/x/time/rate", false, true},
		{".", "golang.org/x/time/rates", false, false},
		{".", "github.com/hashicorp/golang-lru/v2", false, false},
		{".", redis, true, false},
		{".", rapid, false, false},
		{".", rapid, true, true},
		{".", module + "/policy", false, true},
		{".", module + "/httplimit", false, false},
		{".", module, true, true},
		{".", module + "/internal/house/floors", false, false},
		{".", module + "/internal/house/floors", true, true},
		{".", module + "/internal/guards", true, false},
		{"policy", module, false, false},
		{"policy", module, true, false},
		{"policy", module + "/policy", true, true},
		{"policy", "golang.org/x/time/rate", false, false},
		{"httplimit", module, false, true},
		{"httplimit", module + "/admin", false, false},
		{"httplimit", "github.com/dunglas/httpsfv", false, true},
		{"admin", module, false, true},
		{"admin", module + "/policy", false, false},
		{"examples/fleet", module + "/httplimit", false, true},
		{"examples/fleet", module + "/bench/arena", false, false},
		{"examples/fleet", redis, false, true},
		{"examples/llm", redis, false, false},
		{"internal/guards", module, false, false},
		{"internal/house", module + "/internal/house/floors", false, true},
		{"internal/house/floors", module, false, false},
		{"bench/arena", redis, false, true},
		{"lease", module, false, false},
		{"cmd/quotient", module + "/bench", false, false},
	} {
		r, ok := roomOf(c.dir)
		if !ok {
			t.Errorf("no row for %s", c.dir)
			continue
		}
		if got := r.allows(c.dir, c.imported, c.test); got != c.want {
			t.Errorf("%s imports %s (test %v): got %v, want %v", c.dir, c.imported, c.test, got, c.want)
		}
	}
	for _, dir := range []string{"poolsize", "poolsize/file/deep", "policies", "internal", "policy/deep"} {
		if _, ok := roomOf(dir); ok {
			t.Errorf("%s has a row", dir)
		}
	}
}
