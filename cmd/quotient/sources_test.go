package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quotient-go/quotient"
)

func TestSourcesThatMakeNoSense(t *testing.T) {
	for _, c := range []struct{ scheme, arg, want string }{
		{"redis", "//h:x/0", "redis://host:6379/0?fleet=proxy"},
		{"redis", "//h:1/zero", "database"},
		{"redis", "//h:1/0?nosuch=1", "nosuch"},
		{"etcd", "", "host"},
		{"etcd", "//a:1,,b:2", `the host "" is none`},
		{"etcd", "//a:1/x", `the host "a:1/x" is none`},
		{"etcd", "//a:1?nosuch=1", "nosuch=1 is not known"},
		{"etcd", "//a:1?tls=perhaps", "tls=perhaps is not known"},
		{"kube", "", "the name of a Service"},
		{"kube", "proxy", "not in a pod"},
	} {
		t.Run(c.scheme+":"+c.arg, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			src, err := sources()[c.scheme](c.arg)
			if err == nil {
				stopped(t, src)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
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
		"redis": "//u:" + secret + "@h:port/0", "rediss": "//u:" + secret + "@h:1/zero", "etcd": "//u:" + secret + "@a:1/x",
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
		if got := normal(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// TestRedisCounts has two proxies of a fleet and one of another find each other.
func TestRedisCounts(t *testing.T) {
	store := miniredis.RunT(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sizes := make(chan quotient.Pool, 100)
	for _, arg := range []string{"/0?fleet=a", "/0?fleet=a", "/0"} {
		src, err := sources()["redis"]("//" + store.Addr() + arg)
		if err != nil {
			t.Fatal(err)
		}
		inner, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = src.Watch(inner, func(p quotient.Pool, err error) {
				if err == nil && arg != "/0" {
					select {
					case sizes <- p:
					default:
					}
				}
			})
		}()
		defer func() { stop(); <-ended }()
	}
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
