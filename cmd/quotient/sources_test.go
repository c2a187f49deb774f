package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/internal/etcdtest"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/poolsize/gossip"
)

// TestSourcesThatMakeNoSense checks that the start and quotient check refuse the same settings in the same words.
func TestSourcesThatMakeNoSense(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "gossip.key")
	must(t, os.WriteFile(garbage, []byte("c2hvcnQ=\n"), 0o600))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("SECRET", "open@sesame")
	for _, c := range []struct{ source, want string }{
		{"redis://h:x/0?fleet=a", "redis://host:6379/0?fleet=web"},
		{"redis://:pa%ss@host?fleet=a", "redis://host:6379/0?fleet=web"},
		{"redis://h:1/zero?fleet=a", "database"},
		{"redis://h:1/-1?fleet=a", "the database -1 is negative"},
		{"redis://h:1/0?fleet=a&nosuch=1", "nosuch"},
		{"redis://h/0?fleet=a&timeot=5s", "timeot"},
		{"redis://h/0?fleet=a&dial_timeout=soon", "dial_timeout"},
		{"redis://h:65536?fleet=a", `the host "h:65536" is not valid`},
		{"redis:h:1", "the fleet has no name: all proxies with one name in a store count each other (add ?fleet=NAME"},
		{"redis:a:1,b?fleet=a", `the host "b" is not valid`},
		{"redis:a,b:1?fleet=a", `the host "a" is not valid`},
		{"redis:a:1,b:1/3?fleet=a", "a Cluster has no database 3"},
		{"redis:a:1,b:1?fleet=a&sentinel_auth=true", "sentinel_auth"},
		{"redis:a:1?fleet=a&cluster=yes", "cluster=yes is not true"},
		{"redis:a:1?fleet=a&master=", `the master "" with the database 0`},
		{"redis:a:1?fleet=a&master=m&route_randomly=true", "route_randomly does not go with master"},
		{"redis:h:1?fleet=a:b", `Source.Fleet: "a:b" has one of {}:`},
		{"rediss:h:1?fleet={", `Source.Fleet: "{" has one of {}:`},
		{"etcd:a:1", "the fleet has no name"},
		{"etcd:a:1?fleet=a&tls=yes", "tls=yes is neither fleet nor tls=true"},
		{"etcd:?fleet=a", `the host "" is not valid`},
		{"etcd://a:1,,b:2?fleet=a", `the host "" is not valid`},
		{"etcd://a:1/x?fleet=a", `the host "a:1/x" is not valid`},
		{"etcd:a?fleet=a", `the host "a" is not valid`},
		{"etcd:a:x?fleet=a", `the host "a:x" is not valid`},
		{"etcd:a b:1?fleet=a", `the host "a b:1" is not valid`},
		{"etcd://a:1?nosuch=1", "nosuch=1 is neither fleet nor tls=true"},
		{"etcd://a:1?tls=perhaps", "tls=perhaps is neither fleet nor tls=true"},
		{"etcd:a:1?fleet=a/b", `Source.Fleet: "a/b" has a slash`},
		{"etcd://u:p@a:1?fleet=a/b", `Source.Fleet: "a/b" has a slash`},
		{"etcd://u@a:1?fleet=a", "the user has no password"},
		{"etcd://u:p%@a:1?fleet=a", "a % that begins no %XX: it is %25"},
		{"redis://u:${NOSUCH}@h?fleet=a", "the variable NOSUCH is not set (set NOSUCH)"},
		{"etcd://u:${file:/nosuch}@h:1?fleet=a", "/nosuch: no such file or directory (put the secret into /nosuch)"},
		{"redis://u:${SECRET}@h:65536?fleet=a", `the host "h:65536" is not valid`},
		{"gossip:u:${SECRET}@h:1", `Config.Bind: "u:${SECRET}@h:1" is not host:port`},
		{"kube:${SECRET}@h", `Source.Service: "${SECRET}@h"`},
		{"gossip:127.0.0.1:0?nosuch=1", "nosuch=1: it is not one of join"},
		{"gossip:127.0.0.1:0?name=a&name=b", "name=a: it is given twice"},
		{"gossip:127.0.0.1:0?interval=often", "interval=often"},
		{"gossip:127.0.0.1:0?interval=1us", "Config.Interval: 1µs is not between"},
		{"gossip:127.0.0.1:0?join=a:b:c", `Config.Join[0]: "a:b:c" is no address`},
		{"gossip:127.0.0.1:0?key-file=" + garbage, "a key of 5 bytes"},
		{"gossip:127.0.0.1:0?key-file=nosuch.key", "nosuch.key"},
		{"gossip:127.0.0.1", "Config.Bind"},
		{"gossip:127.0.0.1:0?%zz", "want an address such as gossip:"},
		{"gossip:", "beyond loopback all is encrypted"},
		{"kube:", "the name of a Service"},
		{"kube:Not_One", `Source.Service: "Not_One"`},
		{"dns:10.0.0.1", `Source.Name: "10.0.0.1" is an address`},
		{"dns:a?nosuch", `"nosuch" behind ?`},
		{"nosuch:a", `"nosuch" is not one of dns, env, etcd`},
		{"env:X", `"X" behind env`},
	} {
		t.Run(c.source, func(t *testing.T) {
			agree(t, sourceFile(t, c.source), ":2:10: pool.source: ", c.want)
		})
	}
}

// agree has the start and quotient check refuse a file in the same words.
func agree(t *testing.T, path string, want ...string) {
	t.Helper()
	started := starts(t, path)
	for _, w := range want {
		fails(t, started, w)
	}
	equal(t, "check", fmt.Sprint(checkCmd{File: path}.Run(cmdline.Streams{Out: io.Discard, Err: io.Discard})), fmt.Sprint(started))
}

// TestFilesThatMakeNoSense checks that start and quotient check refuse the same files which a file names, at its place
// in that file. With --no-files they are not opened.
func TestFilesThatMakeNoSense(t *testing.T) {
	cert, key := tested.Certificate(t, "a")
	_, other := tested.Certificate(t, "b")
	for _, c := range []struct{ lines, want string }{
		{"tls = { cert = \"nosuch\", key = \"key\" }", ":9:16: proxy.tls.cert: "},
		{"tls = { cert = \"cert\", key = \"nosuch\" }", ":9:30: proxy.tls.key: "},
		{"tls = { cert = \"cert\", key = \"other\" }", "private key does not match public key (want PEM"},
		{"tls = { cert = \"empty\", key = \"key\" }", ":9:16: proxy.tls.cert: "},
		{"tls = { cert = \"cert\", key = \"key\", client-ca = \"key\" }", "has no certificate (want PEM)"},
		{"jwt = { key-file = \"nosuch\" }", ":9:20: proxy.jwt.key-file: "},
		{"jwt = { key-file = \"empty\" }", "there is no PEM block, and no JWKS (want PEM of a public key, or a JWKS)"},
		{"jwt = { key-file = \"key\" }", "PRIVATE KEY"},
		{"jwt = { key-file = \".\" }", "regular file"},
		{"admin = { token-file = \"nosuch\" }", ":9:24: proxy.admin.token-file: "},
		{"admin = { token-file = \"empty\" }", "has no token (want one token a line)"},
		{"admin = { read-only-token-file = \"nosuch\" }", ":9:34: proxy.admin.read-only-token-file: "},
		{"admin = { tls = { cert = \"cert\", key = \"other\" } }", ":9:26: proxy.admin.tls.cert: "},
		{"[leases]\nlisten = \"127.0.0.1:0\"\n[leases.election]\nendpoints = [\"a:1\"]\nuser = \"u\"\n" +
			"password-file = \"nosuch\"", ":14:17: leases.election.password-file: "},
	} {
		t.Run(c.lines, func(t *testing.T) {
			path := sourceFile(t, "env:", c.lines)
			for name, text := range map[string][]byte{"cert": cert, "key": key, "other": other, "empty": nil} {
				must(t, os.WriteFile(filepath.Join(filepath.Dir(path), name), text, 0o600))
			}
			agree(t, path, path, c.want)
			must(t, checkCmd{File: path, NoFiles: true}.Run(cmdline.Streams{Out: io.Discard, Err: io.Discard}))
		})
	}
	for _, source := range []string{
		"gossip:10.0.0.7:7946?key-file=nosuch", "etcd:u:${file:nosuch}@a:1?fleet=a", "etcd:u:${nosuch}@a:1?fleet=a",
	} {
		path := sourceFile(t, source)
		agree(t, path, "nosuch")
		must(t, checkCmd{File: path, NoFiles: true}.Run(cmdline.Streams{Out: io.Discard, Err: io.Discard}))
	}
}

// sourceFile is a file of a proxy with a source.
func sourceFile(t *testing.T, source string, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "quotient.toml")
	must(t, os.WriteFile(path, fmt.Appendf(nil, "[pool]\nsource = %q\n[limiters.all]\nin-flight = 3\n"+
		"[proxy]\nlisten = \"127.0.0.1:0\"\nupstreams = [\"http://127.0.0.1:1\"]\nrules = [{ pattern = \"/\", limiter = \"all\" }]\n%s\n",
		source, strings.Join(lines, "\n")), 0o600))
	return path
}

// starts returns what a start says of a file, if it fails before it listens; else what it says of the source.
func starts(t *testing.T, path string) error {
	t.Helper()
	s, err := fromFile(t, path).open(t.Context(), slog.New(slog.DiscardHandler))
	if err == nil {
		must(t, errors.Join(s.listener.Close(), s.operator.close(), s.ups.Close()))
	}
	return err
}

// TestSourcesThatAreAway checks what a start takes, and quotient check: a store that is away, with a password
// too. Only outside of Kubernetes the start refuses a Service.
func TestSourcesThatAreAway(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for source, want := range map[string]string{ // Redis too; its client is closed by Watch only
		"etcd:" + nowhere + "?fleet=a": "", "etcd://u:p@" + nowhere + "?fleet=a": "", "gossip:127.0.0.1:0?join=" + nowhere: "",
		"kube:proxy": "not in a pod of Kubernetes",
	} {
		path := sourceFile(t, source)
		must(t, checkCmd{File: path}.Run(cmdline.Streams{Out: io.Discard, Err: io.Discard}))
		if err := starts(t, path); err != nil || want != "" {
			fails(t, err, want)
		}
	}
}

// TestEtcdSource has proxies count themselves in a store that is away at their start, and has users; one is
// let in later.
func TestEtcdSource(t *testing.T) {
	t.Parallel()
	store := etcdtest.Start(t)
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{store.Addr()}, Logger: zap.NewNop()})
	must(t, err)
	defer root.Close() //nolint:errcheck // nothing is lost
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, roleErr := root.RoleAdd(ctx, "root")
	_, userErr := root.UserAdd(ctx, "root", "open@sesame")
	_, grantErr := root.UserGrantRole(ctx, "root", "root")
	_, enableErr := root.AuthEnable(ctx)
	must(t, errors.Join(roleErr, userErr, grantErr, enableErr))
	store.Stop()

	sizes := make(chan quotient.Pool, 100)
	var failures []<-chan error
	for _, user := range []string{"root:open@sesame", "%72oot:open%40sesame", "root:open-sesame"} {
		src, err := sources()["etcd"]("//" + user + "@" + store.Addr() + "?fleet=a")
		must(t, err)
		failures = append(failures, watch(ctx, t, src, sizes))
	}
	for i := range failures {
		err := <-failures[i]
		if fails(t, err, "etcd: log in at http://"+store.Addr()); strings.Contains(err.Error(), "sesame") {
			t.Errorf("it shows the password: %v", err)
		}
	}
	store.Restart(false)
	awaitTwo(ctx, t, sizes)
	for err := range failures[2] {
		if strings.Contains(err.Error(), "authentication failed") {
			break
		}
	}
}

func TestSecretsOfSourcesAreNotShown(t *testing.T) {
	const secret = "opensesame"
	for _, text := range []string{
		"redis://u:" + secret + "@h:port/0", "rediss://u:" + secret + "@h:1/zero", "etcd://u:" + secret + "@a:1/x",
		"redis://u:1/" + secret + "@h:1/0", "redis:u:1?" + secret + "@h:1", "redis://u:1/2?" + secret + "=@h:1",
		"redis://u:1#" + secret + "@h:1/0", "etcd://u:1?" + secret + "@a:1", "etcd:u:" + secret + "?@a:1",
		"etcd://u:" + secret + "%@a:1", "etcd://u%:" + secret + "@a:1",
	} {
		scheme, arg, _ := strings.Cut(text, ":")
		if !strings.Contains(text, "?") {
			arg += "?fleet=a"
		}
		if _, err := sources()[scheme](arg); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

// TestGossipCounts has two proxies of a fleet find each other.
func TestGossipCounts(t *testing.T) {
	first, err := sources()["gossip"]("127.0.0.1:0?name=a&interval=20ms")
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sizes := make(chan quotient.Pool, 100)
	watch(ctx, t, first, sizes)
	address := func() string { return first.(*gossip.Source).Stats().Address }
	for address() == "" {
		<-sizes // the start is over when it has counted itself
	}
	second, err := sources()["gossip"]("//127.0.0.1:0/?name=b&interval=20ms&join=" + address() + "&fleet=")
	must(t, err)
	watch(ctx, t, second, sizes)
	awaitTwo(ctx, t, sizes)
}

// awaitTwo waits until a source reports two replicas.
func awaitTwo(ctx context.Context, t *testing.T, sizes <-chan quotient.Pool) {
	t.Helper()
	for {
		select {
		case p := <-sizes:
			if p.Replicas == 2 {
				return
			}
		case <-ctx.Done():
			t.Fatal("the two have not found each other")
		}
	}
}

// watch has a source report sizes until the end of the test. It returns its failures.
func watch(ctx context.Context, t *testing.T, src quotient.Source, sizes chan<- quotient.Pool) <-chan error {
	ctx, stop := context.WithCancel(ctx)
	failures, ended := make(chan error, 100), make(chan struct{})
	go func() {
		defer close(ended)
		defer close(failures)
		_ = src.Watch(ctx, func(p quotient.Pool, err error) {
			if err != nil {
				failures <- err
				return
			}
			select {
			case sizes <- p:
			default:
			}
		})
	}()
	t.Cleanup(func() { stop(); <-ended })
	return failures
}

// TestSentinels has a Sentinel name the master, which has the URL's password. The Sentinel itself has none.
func TestSentinels(t *testing.T) {
	store := miniredis.RunT(t)
	store.RequireAuth("open@sesame")
	sentinel, err := server.NewServer("127.0.0.1:0")
	must(t, err)
	t.Cleanup(sentinel.Close)
	must(t, sentinel.Register("SENTINEL", func(c *server.Peer, _ string, args []string) {
		if args[0] != "get-master-addr-by-name" || args[1] != "mine" {
			c.WriteLen(0)
			return
		}
		c.WriteStrings([]string{store.Host(), store.Port()})
	}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sizes := make(chan quotient.Pool, 100)
	for range 2 {
		src, err := sources()["redis"]("//:open@sesame@" + nowhere + "," + sentinel.Addr().String() + "?fleet=a&master=mine")
		must(t, err)
		watch(ctx, t, src, sizes)
	}
	awaitTwo(ctx, t, sizes)
}

// TestRedisCounts has two proxies of a fleet and one of another find each other.
func TestRedisCounts(t *testing.T) {
	store := miniredis.RunT(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sizes := make(chan quotient.Pool, 100)
	for _, arg := range []string{"/0?fleet=a", "," + nowhere + "?fleet=a", "/0?fleet=b"} {
		src, err := sources()["redis"]("//" + store.Addr() + arg)
		must(t, err)
		if arg == "/0?fleet=b" {
			watch(ctx, t, src, make(chan quotient.Pool))
		} else {
			watch(ctx, t, src, sizes)
		}
	}
	awaitTwo(ctx, t, sizes)
}
