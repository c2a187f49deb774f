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

// watched has a source report sizes until the end of the test.
func watched(t *testing.T, scheme, arg string, sizes chan<- quotient.Pool) quotient.Source {
	t.Helper()
	src, err := sources()[scheme](arg)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
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
	return src
}

// TestSourcesCount has two proxies of a fleet find each other, and not one of another fleet.
func TestSourcesCount(t *testing.T) {
	for name, start := range map[string]func(t *testing.T, sizes chan quotient.Pool){
		"gossip": func(t *testing.T, sizes chan quotient.Pool) {
			first := watched(t, "gossip", "127.0.0.1:0?name=a&interval=20ms", sizes)
			if _, ok := first.(quotient.Carrier); !ok {
				t.Error("it does not carry what replicas say")
			}
			address := func() string { return first.(*gossip.Source).Stats().Address }
			for address() == "" {
				<-sizes // the start is over when it has counted itself
			}
			watched(t, "gossip", "//127.0.0.1:0/?name=b&interval=20ms&join="+address()+"&fleet=", sizes)
		},
		"redis": func(t *testing.T, sizes chan quotient.Pool) {
			at := "//" + miniredis.RunT(t).Addr()
			watched(t, "redis", at+"/0?fleet=a", sizes)
			watched(t, "redis", at+"/0?fleet=a", sizes)
			watched(t, "redis", at+"/0", make(chan quotient.Pool))
		},
	} {
		t.Run(name, func(t *testing.T) {
			sizes := make(chan quotient.Pool, 100)
			start(t, sizes)
			for late := time.After(time.Minute); ; {
				select {
				case p := <-sizes:
					if p.Replicas == 2 {
						return
					}
				case <-late:
					t.Fatal("the two have not found each other")
				}
			}
		})
	}
}
