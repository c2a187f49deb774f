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

// room is what one directory, or a tree of them, may import, in words. The standard library is open to all.
type room struct {
	dir     string // relative to the module; "x/..." is x and all below it
	own     string // rooms of ours that it may import; "." is the root, "..." everything
	not     string // rooms that it may not import although own says everything, unless own names them
	outside string // modules or packages of others; "..." anything
	tests   string // rooms of ours that only its tests may import
	later   bool   // the room is planned and may be absent
	why     string
}

const (
	etcd    = "go.etcd.io/etcd google.golang.org/grpc go.uber.org/zap"
	adapter = ". policy httplimit"
	private = "bench internal"
	alone   = "its own module, so that only its users carry "
)

// rooms holds every directory with Go files. A directory that is not here fails the test: say first what it
// may know, and why.
var rooms = []room{
	{dir: ".", own: "policy internal/fairshare internal/waited internal/trial",
		outside: "golang.org/x/time/rate github.com/hashicorp/golang-lru/v2/simplelru",
		why:     "whoever imports the limiter gets the token maths and the LRU list, and no client"},
	{dir: "policy", why: "a controller is a pure function of feedback; it knows no clock, lock or caller"},

	{dir: "ginlimit", own: adapter, outside: "github.com/gin-gonic/gin", tests: "internal/adaptertest",
		why: alone + "gin"},
	{dir: "echolimit", own: adapter, outside: "github.com/labstack/echo/v5", tests: "internal/adaptertest",
		why: alone + "echo"},
	{dir: "echolimit-v4", own: adapter, outside: "github.com/labstack/echo/v4", tests: "internal/adaptertest",
		why: alone + "this version of echo"},
	{dir: "grpclimit", own: adapter + " internal/overdue",
		outside: "google.golang.org/grpc google.golang.org/genproto google.golang.org/protobuf",
		why:     alone + "gRPC"},
	{dir: "httplimit/...", own: adapter + " internal/waited internal/overdue",
		outside: "github.com/dunglas/httpsfv",
		why:     "HTTP is one way to use the limiter; only header fields need a library"},

	{dir: "internal/fairshare", why: "how replicas divide a limit is a pure function; it knows no limiter"},
	{dir: "internal/carried", own: ". internal/fairshare", why: "one fleet for tests of what replicas say"},
	{dir: "internal/waited", why: "what the limiter tells an adapter of a request, in no name of its API"},
	{dir: "internal/trial", why: "what the limiter would answer to a change, in no name of its API"},
	{dir: "internal/overdue", own: ".", why: "one answer of all adapters to a wait that has ended"},
	{dir: "internal/listen", why: "which connection is closed for a new one, for every server"},
	{dir: "internal/adaptertest", own: adapter, why: "what each adapter of a framework must do"},
	{dir: "internal/guards", why: "it runs the go command; it must build when nothing else does"},
	{dir: "internal/needed", why: "whether a test without its program is skipped is decided here"},
	{dir: "internal/etcdtest", own: "internal/needed", why: "a real etcd for the tests of its clients"},

	{dir: "admin/browser", own: ". policy admin httplimit", tests: "internal/carried internal/needed",
		outside: "github.com/chromedp", why: "its own module: only the page's test drives a browser"},
	{dir: "admin/...", own: ". admin internal/listen internal/trial", tests: "internal/carried",
		outside: "github.com/go-json-experiment/json", why: "a page for any Limiter, whoever asks it"},
	{dir: "examples/fleet/...", own: "...", not: private, outside: "github.com/redis/go-redis/v9",
		why: "its own module, since one of its pools is counted in Redis"},
	{dir: "examples/service", own: "...", not: private, outside: "github.com/prometheus/client_golang",
		why: "a whole service has metrics, whose library quotient needs anyway"},
	{dir: "examples/...", own: "...", not: private, why: "to copy it, a reader needs nothing but quotient"},
	{dir: "bench/...", own: "...", outside: "...", why: alone + "peers and plots"},
	{dir: "metrics/otel", own: ". policy metrics", tests: "internal/carried",
		outside: "go.opentelemetry.io/otel github.com/prometheus", why: alone + "OpenTelemetry"},
	{dir: "metrics", own: ". policy lease", tests: "internal/carried internal/needed",
		outside: "github.com/prometheus", why: "the only place that knows Prometheus"},

	{dir: "poolsize/dns/...", own: ". poolsize", outside: "golang.org/x/net/dns/dnsmessage",
		why: "a source needs the Source interface, the standard library's resolver and its messages"},
	{dir: "poolsize/file", own: ". poolsize", tests: "poolsize/internal/watched",
		why: "a source needs the Source interface and a file"},
	{dir: "poolsize/internal/watched", own: ".", why: "a Watch that runs beside the test of a source"},
	{dir: "poolsize/pooltest", own: ".", outside: "go.uber.org/goleak", why: "what every source must do"},
	{dir: "poolsize/redis/...", own: ". policy poolsize internal/needed",
		outside: "github.com/redis/go-redis/v9 github.com/alicebob/miniredis/v2", why: alone + "its client"},
	{dir: "poolsize/etcd", own: ". poolsize", outside: etcd, tests: "internal/etcdtest", why: alone + "etcd"},
	{dir: "poolsize/kube/...", own: ". poolsize", outside: "k8s.io", why: alone + "client-go"},
	{dir: "poolsize/gossip/...", own: ". poolsize", outside: "github.com/hashicorp/memberlist",
		why: alone + "memberlist"},
	{dir: "lease", own: "lease internal/listen", outside: "github.com/go-json-experiment/json",
		why: "leases are a service and its client; they know no limiter"},
	{dir: "lease/etcd", own: "lease", outside: etcd, tests: "internal/etcdtest", why: alone + "etcd"},

	{dir: "config/...", own: ". policy httplimit lease poolsize/dns poolsize/file", tests: "internal/carried",
		outside: "github.com/pelletier/go-toml/v2 github.com/fsnotify/fsnotify",
		why:     alone + "a parser of files; heavy sources are handed to it"},
	{dir: "deploy/proxy", own: ". config lease", tests: "internal/needed",
		outside: "k8s.io sigs.k8s.io github.com/prometheus-operator",
		why:     "its own module: only the tests of manifests know the types of Kubernetes and kustomize"},
	{dir: "cmd/quotient/...", own: "... internal/listen", not: private, outside: "...",
		tests: "internal/etcdtest", why: "the command joins all the rooms; " + alone + "its dependencies"},
}

// testOutside is what any test may import besides.
const testOutside = "pgregory.net/rapid go.uber.org/goleak"

// within reports whether the slash-separated path p is dir or lies below it.
func within(p, dir string) bool {
	return dir == "..." || p == dir || strings.HasPrefix(p, dir+"/")
}

// isIn reports whether p lies in one of the rooms or modules that a field of a row names.
func isIn(p, list string) bool {
	return slices.ContainsFunc(strings.Fields(list), func(dir string) bool { return within(p, dir) })
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
	p, ours := strings.CutPrefix(imported+"/", module+"/")
	switch {
	case ours:
		return r.allowsOwn(dir, path.Clean(p), test)
	case !strings.Contains(first, "."):
		return imported != "C"
	}
	return isIn(imported, r.outside) || test && isIn(imported, testOutside)
}

// allowsOwn is allows for a package of ours; p is relative to the module.
func (r room) allowsOwn(dir, p string, test bool) bool {
	itself := p == dir // an external test imports the package that it tests
	if test && (itself || isIn(p, r.tests)) || slices.Contains(strings.Fields(r.own), p) {
		return true
	}
	return isIn(p, r.own) && !isIn(p, r.not)
}

// goFiles calls visit for every Go file in this checkout, nested modules too.
func goFiles(t *testing.T, visit func(file string)) {
	t.Helper()
	err := fs.WalkDir(os.DirFS("."), ".", func(p string, d fs.DirEntry, err error) error {
		name := d.Name()
		hidden := name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && hidden:
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
		f, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(file), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range f.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil || !r.allows(dir, p, strings.HasSuffix(file, "_test.go")) {
				t.Errorf("%s imports %s, which %s may not: %s", file, spec.Path.Value, r.dir, r.why)
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
		{"admin", module + "/internal/carried", false, false},
		{"admin", module + "/internal/carried", true, true},
		{"examples/fleet", module + "/httplimit", false, true},
		{"examples/fleet", module + "/bench/arena", false, false},
		{"examples/fleet", redis, false, true},
		{"examples/llm", redis, false, false},
		{"internal/guards", module, false, false},
		{"bench/arena", redis, false, true},
		{"lease", module, false, false},
		{"cmd/quotient", module + "/bench", false, false},
		{"cmd/quotient", module + "/internal/listen", false, true},
		{"cmd/quotient", module + "/internal/trial", false, false},
	} {
		r, ok := roomOf(c.dir)
		if got := r.allows(c.dir, c.imported, c.test); !ok || got != c.want {
			t.Errorf("%s imports %s (test %v): got %v, want %v", c.dir, c.imported, c.test, got, c.want)
		}
	}
	for _, dir := range []string{"poolsize", "poolsize/file/deep", "policies", "internal", "policy/deep"} {
		if _, ok := roomOf(dir); ok {
			t.Errorf("%s has a row", dir)
		}
	}
}
