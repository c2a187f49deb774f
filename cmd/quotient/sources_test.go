package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/etcdtest"
	"github.com/quotient-go/quotient/poolsize/gossip"
)

// TestSourcesThatMakeNoSense checks that the start and quotient check refuse the same settings in the same words.
func TestSourcesThatMakeNoSense(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "gossip.key")
	must(t, os.WriteFile(garbage, []byte("c2hvcnQ=\n"), 0o600))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, c := range []struct{ source, want string }{
		{"redis://h:x/0", "redis://host:6379/0?fleet=proxy"},
		{"redis://h:1/zero", "database"},
		{"redis://h:1/0?nosuch=1", "nosuch"},
		{"redis:h:1?fleet=a:b", `Source.Fleet: "a:b" has one of {}:`},
		{"rediss:h:1?fleet={", `Source.Fleet: "{" has one of {}:`},
		{"etcd:", `the host "" is not valid`},
		{"etcd://a:1,,b:2", `the host "" is not valid`},
		{"etcd://a:1/x", `the host "a:1/x" is not valid`},
		{"etcd:a", `the host "a" is not valid`},
		{"etcd:a:x", `the host "a:x" is not valid`},
		{"etcd:a b:1", `the host "a b:1" is not valid`},
		{"etcd://a:1?nosuch=1", "nosuch=1 is neither fleet nor tls=true"},
		{"etcd://a:1?tls=perhaps", "tls=perhaps is neither fleet nor tls=true"},
		{"etcd:a:1?fleet=a/b", `Source.Fleet: "a/b" has a slash`},
		{"etcd://u:p@a:1?fleet=a/b", `Source.Fleet: "a/b" has a slash`},
		{"etcd://u@a:1", "the user has no password"},
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
			path := sourceFile(t, c.source)
			started := starts(t, path)
			fails(t, started, c.want)
			checked := checkCmd{path}.Run(streams{io.Discard, io.Discard})
			equal(t, "check", fmt.Sprint(checked), fmt.Sprint(started))
		})
	}
}

// sourceFile is a file of a proxy with a source.
func sourceFile(t *testing.T, source string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "quotient.toml")
	must(t, os.WriteFile(path, fmt.Appendf(nil, "[pool]\nsource = %q\n[limiters.all]\nin-flight = 3\n"+
		"[proxy]\nupstreams = [\"http://127.0.0.1:1\"]\nrules = [{ pattern = \"/\", limiter = \"all\" }]\n",
		source), 0o600))
	return path
}

// starts returns what a start says of a file's source.
func starts(t *testing.T, path string) error {
	t.Helper()
	f, err := config.Read(path)
	must(t, err)
	_, err = config.New(f, new(quotient.Registry), config.WithSources(sources()))
	return err
}

// TestSourcesThatAreAway checks what a start takes, and quotient check: a store that is away, with a password
// too. Only outside of Kubernetes the start refuses a Service.
func TestSourcesThatAreAway(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for source, want := range map[string]string{ // Redis too; its client is closed by Watch only
		"etcd:" + nowhere: "", "etcd://u:p@" + nowhere: "", "gossip:127.0.0.1:0?join=" + nowhere: "",
		"kube:proxy": "not in a pod of Kubernetes",
	} {
		path := sourceFile(t, source)
		must(t, checkCmd{path}.Run(streams{io.Discard, io.Discard}))
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
	for _, user := range []string{"root:open@sesame", "root:open@sesame", "root:open-sesame"} {
		src, err := sources()["etcd"]("//" + user + "@" + store.Addr())
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
	} {
		scheme, arg, _ := strings.Cut(text, ":")
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

// TestRedisCounts has two proxies of a fleet and one of another find each other.
func TestRedisCounts(t *testing.T) {
	store := miniredis.RunT(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sizes := make(chan quotient.Pool, 100)
	for _, arg := range []string{"/0?fleet=a", "/0?fleet=a", "/0"} {
		src, err := sources()["redis"]("//" + store.Addr() + arg)
		must(t, err)
		if arg == "/0" {
			watch(ctx, t, src, make(chan quotient.Pool))
		} else {
			watch(ctx, t, src, sizes)
		}
	}
	awaitTwo(ctx, t, sizes)
}
