package main

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
	own     string // rooms of ours; "." is the root, "..." everything but what is private to others
	outside string // modules or packages of others; "..." anything
	tests   string // rooms of ours that only its tests may import
}

const (
	etcd    = "go.etcd.io/etcd google.golang.org/grpc go.uber.org/zap"
	adapter = ". policy httplimit"
	private = "bench internal" // what a room that may import everything may not, unless it names it
)

// rooms holds every directory with Go files. A directory that is not here fails the test: say first what it
// may know, and why. A module of its own (see its go.mod) carries what only its users need.
var rooms = []room{
	// Whoever imports the limiter gets the token maths and the LRU list, and no client.
	{".", "policy internal/carry internal/damper internal/fairshare internal/inside internal/meter internal/waited",
		"golang.org/x/time/rate github.com/hashicorp/golang-lru/v2/simplelru", "internal/adversary"},
	{"policy", "", "", ""}, // a controller is a pure function of feedback; it knows no clock, lock or caller

	{"ginlimit", adapter, "github.com/gin-gonic/gin", "internal/adaptertest"},
	{"echolimit", adapter, "github.com/labstack/echo/v5", "internal/adaptertest"},
	{"echolimit-v4", adapter, "github.com/labstack/echo/v4", "internal/adaptertest"},
	// A module of Caddy knows Caddy, and the parts of quotient that its directive has.
	{"caddyquotient", adapter + " admin metrics poolsize/dns poolsize/file internal/field",
		"github.com/caddyserver/caddy/v2 github.com/prometheus/client_golang/prometheus", ""},
	{"caddyquotient/bench", "caddyquotient", "github.com/caddyserver/caddy/v2 github.com/mholt/caddy-ratelimit", ""},
	{"grpclimit", adapter + " internal/field internal/overdue",
		"google.golang.org/grpc google.golang.org/genproto google.golang.org/protobuf", ""},
	// HTTP is one way to use the limiter; only header fields need a library.
	{"httplimit/...", adapter + " internal/field internal/held internal/overdue internal/waited",
		"github.com/dunglas/httpsfv", ""},

	{"internal/meter", "", "golang.org/x/time/rate", ""}, // what is left of a rule is a pure function too
	{"internal/damper", "", "", ""},                      // what reports of a pool come to is a pure function
	{"internal/carry", "", "", ""},                       // types alone
	{"internal/fairshare", "internal/carry", "", ""},     // how replicas divide a limit is a pure function
	{"internal/carried", ". internal/carry internal/fairshare internal/inside", "", ""},
	{"internal/shown", "", "", ""},
	{"internal/kinds", ".", "", ""},
	{"internal/field", "", "", ""}, // which header fields can be a key
	{"internal/waited", "", "", ""},
	{"internal/held", "", "", ""},
	{"internal/inside", "", "", ""},
	{"internal/adversary", "policy", "", ""},
	{"internal/judge", ". policy internal/adversary internal/carry internal/inside", "", ""}, // what it proves it shares no code with
	{"internal/rest", "", "", ""},
	{"internal/overdue", ".", "", ""},
	{"internal/listen", "internal/rest", "", ""},
	{"internal/files", "", "", ""}, // whatever reads a file while it runs reads it so
	{"internal/adaptertest", adapter + " internal/tested", "", ""},
	{"internal/guards", "", "", ""}, // it runs the go command, and must build when nothing else does
	{"internal/needed", "", "", ""},
	{"internal/kept", "", "", ""},   // processes of tests
	{"internal/tested", "", "", ""}, // what tests share
	{"internal/etcdtest", "internal/kept internal/needed internal/tested", "", ""},

	{"admin/browser", ". policy admin httplimit", "github.com/chromedp", "internal/carried internal/needed"},
	{"admin/pods", "internal/files internal/shown", "", ". admin"}, // admin imports it
	{"admin/...", ". admin admin/pods internal/files internal/inside internal/kinds internal/listen internal/shown", "github.com/go-json-experiment/json",
		"internal/carried"},
	{"examples/fleet", "...", "golang.org/x/time", ""}, // its upstream shares no code with quotient
	{"examples/vendors", "...", // it is about these clients
		"github.com/aws/aws-sdk-go-v2 github.com/google/go-github github.com/openai/openai-go github.com/stripe/stripe-go", ""},
	{"examples/service", "...", "github.com/prometheus/client_golang", ""},
	{"examples/...", "...", "", ""}, // to copy it, a reader needs nothing but quotient
	{"bench/...", "... bench internal", "...", ""},
	{"metrics/otel", ". policy metrics", "go.opentelemetry.io/otel github.com/prometheus", "internal/carried"},
	{"metrics/internal/figures", ". internal/inside", "", ""}, // it knows no way to show them
	{"metrics", ". policy lease metrics", "github.com/prometheus", "internal/carried internal/needed"},

	// A source needs the Source interface, and the client of what it reads.
	{"poolsize/dns/...", ". poolsize internal/rest", "golang.org/x/net/dns/dnsmessage", ""},
	{"poolsize/file", ". poolsize internal/files internal/rest", "", "poolsize/internal/watched"},
	{"poolsize/internal/setting", "", "", ""},
	{"poolsize/internal/watched", ". internal/rest internal/tested", "", ""},
	{"poolsize/pooltest", ".", "go.uber.org/goleak", ""},
	{"poolsize/redis/...", ". policy poolsize internal/kept internal/needed internal/rest",
		"github.com/redis/go-redis/v9 github.com/alicebob/miniredis/v2", ""},
	{"poolsize/etcd", ". poolsize internal/rest", etcd, "internal/etcdtest"},
	{"poolsize/kube/...", ". poolsize internal/files internal/rest", "k8s.io", ""},
	{"poolsize/gossip/...", ". poolsize internal/carry internal/files internal/rest", "github.com/hashicorp/memberlist", ""},
	// Leases are a service and its client; they know no limiter.
	{"lease", "lease internal/held internal/rest", "github.com/go-json-experiment/json", ""},
	{"lease/etcd", "lease internal/rest", etcd, "internal/etcdtest"},

	// A parser of files; heavy sources are handed to it.
	{"config/...", ". admin/pods internal/inside policy httplimit lease poolsize/dns poolsize/file " +
		"internal/carry internal/field internal/files internal/kinds internal/rest internal/shown",
		"github.com/pelletier/go-toml/v2 github.com/fsnotify/fsnotify", "internal/carried"},
	{"deploy/helm", ". config", "helm.sh k8s.io github.com/prometheus-operator", "internal/needed"},
	{"deploy/proxy", ". config lease", "k8s.io sigs.k8s.io github.com/prometheus-operator " +
		"github.com/envoyproxy/go-control-plane/envoy google.golang.org/grpc google.golang.org/protobuf",
		"internal/kept internal/needed"},
	{"cmd/quotient/...",
		"... internal/field internal/files internal/held internal/listen internal/rest internal/shown", "...",
		"internal/etcdtest"},
}

// testOutside and testOwn are what any test may import besides, of others and of ours.
const (
	testOutside = "pgregory.net/rapid go.uber.org/goleak"
	testOwn     = "internal/tested"
)

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
	if test && (itself || isIn(p, testOwn) || isIn(p, r.tests)) {
		return true
	}
	named, all := strings.CutPrefix(r.own, "...")
	return isIn(p, named) || all && !isIn(p, private)
}

// TestImports holds the arrows between the rooms, so that a dependency is a decision.
func TestImports(t *testing.T) {
	used := map[string]bool{}
	err := fs.WalkDir(os.DirFS("../.."), ".", func(file string, d fs.DirEntry, err error) error {
		name, dir := d.Name(), path.Dir(file)
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") {
			if d.IsDir() && file != "." && (name == "testdata" || strings.ContainsAny(name[:1], "._")) {
				return fs.SkipDir
			}
			return err
		}
		r, ok := roomOf(dir)
		if !ok {
			t.Errorf("%s: the directory %s is in no row of rooms", file, dir)
			return nil
		}
		used[r.dir] = true
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", file), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range f.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil || !r.allows(dir, p, strings.HasSuffix(name, "_test.go")) {
				t.Errorf("%s imports %s, which %s may not", file, spec.Path.Value, r.dir)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rooms {
		if !used[r.dir] {
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
		{".", "net/http", false, true}, {".", "C", false, false},
		{".", "golang.org/x/time/rate", false, true}, {".", "golang.org/x/time/rates", false, false},
		{".", rapid, false, false}, {".", rapid, true, true}, {".", redis, true, false},
		{".", module + "/policy", false, true}, {".", module + "/httplimit", false, false},
		{".", module, true, true}, {"policy", module, true, false},
		{"admin", module + "/internal/carried", false, false},
		{"admin", module + "/internal/carried", true, true},
		{"examples/fleet", module + "/httplimit", false, true},
		{"examples/fleet", module + "/bench/arena", false, false}, {"examples/llm", redis, false, false},
		{"bench/arena", redis, false, true}, {"cmd/quotient", module + "/bench", false, false},
		{"cmd/quotient", module + "/internal/listen", false, true},
		{"cmd/quotient", module + "/internal/inside", false, false},
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
