package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/gossip"
)

func TestSourcesThatMakeNoSense(t *testing.T) {
	for _, c := range []struct{ scheme, arg, want string }{
		{"redis", "//h:x/0", "redis://host:6379/0?fleet=proxy"},
		{"redis", "//h:1/zero", "database"},
		{"redis", "//h:1/0?nosuch=1", "nosuch"},
		{"etcd", "", "host"},
		{"etcd", "//a:1,,b:2", `the host "" is not valid`},
		{"etcd", "//a:1/x", `the host "a:1/x" is not valid`},
		{"etcd", "//a:1?nosuch=1", "nosuch=1 is neither fleet nor tls=true"},
		{"etcd", "//a:1?tls=perhaps", "tls=perhaps is neither fleet nor tls=true"},
		{"gossip", "127.0.0.1:0?nosuch=1", "nosuch=1: it is not one of join"},
		{"gossip", "127.0.0.1:0?name=a&name=b", "name=a: it is given twice"},
		{"gossip", "127.0.0.1:0?interval=often", "interval=often"},
		{"gossip", "127.0.0.1:0?interval=1us", "Config.Interval: 1µs is not between"},
		{"gossip", "127.0.0.1:0?join=a:b:c", `Config.Join[0]: "a:b:c" is no address`},
		{"gossip", "127.0.0.1", "Config.Bind"},
		{"gossip", "127.0.0.1:0?%zz", "want an address such as gossip:"},
		{"gossip", "", "beyond loopback all is encrypted"},
		{"kube", "", "the name of a Service"},
		{"kube", "proxy", "not in a pod"},
	} {
		t.Run(c.scheme+":"+c.arg, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			src, err := sources()[c.scheme](c.arg)
			if err == nil {
				stopped(t, src)
			}
			fails(t, err, c.want)
		})
	}
}

// stopped watches a source that is not needed, so that it closes its client.
func stopped(t *testing.T, src quotient.Source) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = src.Watch(ctx, func(quotient.Pool, error) {})
}

func TestSecretsOfSourcesAreNotShown(t *testing.T) {
	const secret = "opensesame"
	for scheme, arg := range map[string]string{
		"redis": "//u:" + secret + "@h:port/0", "rediss": "//u:" + secret + "@h:1/zero",
		"etcd": "//u:" + secret + "@a:1/x",
	} {
		if _, err := sources()[scheme](arg); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got %v", scheme, err)
		}
	}
}

func TestSourcesWithoutSlashes(t *testing.T) {
	for text, want := range map[string]string{
		"redis:h:1": "redis://h:1", "redis://h:1/0": "redis://h:1/0", "etcd:a:1,b:2": "etcd://a:1,b:2",
	} {
		equal(t, text, normal(text), want)
	}
}

// TestGossipCounts has two proxies of a fleet find each other, and what carries their demand.
func TestGossipCounts(t *testing.T) {
	first, err := sources()["gossip"]("127.0.0.1:0?name=a&interval=20ms")
	must(t, err)
	if _, ok := first.(quotient.Carrier); !ok {
		t.Error("it does not carry what replicas say")
	}
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

// watch has a source report sizes until the end of the test.
func watch(ctx context.Context, t *testing.T, src quotient.Source, sizes chan<- quotient.Pool) {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = src.Watch(ctx, func(p quotient.Pool, err error) {
			if err == nil {
				select {
				case sizes <- p:
				default:
				}
			}
		})
	}()
	t.Cleanup(func() { stop(); <-ended })
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
