package kube

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"go.uber.org/goleak"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typed "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tester is a test, or one run of a property.
type tester interface {
	Helper()
	Fatal(args ...any)
	Cleanup(func())
}

// sliceOf returns a slice of the Service api in the namespace prod.
func sliceOf(name string, endpoints ...discovery.Endpoint) *discovery.EndpointSlice {
	return &discovery.EndpointSlice{
		ObjectMeta: meta.ObjectMeta{
			Name: name, Namespace: "prod", Labels: map[string]string{discovery.LabelServiceName: "api"},
		},
		AddressType: discovery.AddressTypeIPv4,
		Endpoints:   endpoints,
	}
}

// pods returns n pods that serve, named as a Deployment's.
func pods(n int) []discovery.Endpoint {
	list := make([]discovery.Endpoint, n)
	for i := range list {
		list[i] = pod(fmt.Sprintf("api-7d9f8b6c5-x%03d", i), "serving")
	}
	return list
}

// pod returns an endpoint that is one: its state is serving, ready, starting, ending (and serving) or ended.
func pod(name, state string) discovery.Endpoint {
	sum := 0
	for _, c := range []byte(name) {
		sum = sum*31 + int(c)
	}
	is := func(states ...string) *bool {
		b := false
		for _, s := range states {
			b = b || s == state
		}
		return &b
	}
	return discovery.Endpoint{
		Addresses: []string{fmt.Sprintf("10.%d.%d.%d", sum>>16&255, sum>>8&255, sum&255)},
		Conditions: discovery.EndpointConditions{
			Ready: is("serving", "ready"), Serving: is("serving", "ending"),
			Terminating: is("ending", "ended"),
		},
		TargetRef: &core.ObjectReference{Kind: "Pod", Namespace: "prod", Name: name,
			UID: types.UID("uid-" + name)},
	}
}

// fleet returns the slices of n pods, up to three in each.
func fleet(n int) []*discovery.EndpointSlice {
	var slices []*discovery.EndpointSlice
	for all := pods(n); len(all) > 0; {
		k := min(3, len(all))
		slices = append(slices, sliceOf(fmt.Sprint("api-", len(slices)), all[:k]...))
		all = all[k:]
	}
	return slices
}

// set makes the server's fleet one of n pods.
func (a *api) set(n int) {
	want := fleet(n)
	a.put(want...)
	for i := len(want); i < 10; i++ {
		a.drop(sliceOf(fmt.Sprint("api-", i)))
	}
}

// clientAt returns the part of a clientset that knows EndpointSlices, over a transport. It speaks protobuf
// unless contentType says otherwise.
func clientAt(t tester, host string, transport http.RoundTripper,
	contentType string) *typed.DiscoveryV1Client {
	t.Helper()
	c, err := typed.NewForConfig(&rest.Config{
		Host: host, Transport: transport, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: contentType},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// record is what a source has reported.
type record struct {
	mu    sync.Mutex
	all   []said
	done  chan error
	end   context.CancelFunc
	start time.Time
}

// said is one report.
type said struct {
	pool quotient.Pool
	err  error
	at   time.Duration
}

// follow starts a Watch that ends with the test.
func follow(t tester, s quotient.Source) *record {
	ctx, cancel := context.WithCancel(context.Background())
	r := &record{done: make(chan error, 1), end: cancel, start: time.Now()}
	go func() {
		r.done <- s.Watch(ctx, func(p quotient.Pool, err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.all = append(r.all, said{p, err, time.Since(r.start)})
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-r.done
	})
	return r
}

// stop ends the Watch and returns its error.
func (r *record) stop() error {
	r.end()
	err := <-r.done
	r.done <- err
	return err
}

// take returns what was reported since the last take, once all is quiet.
func (r *record) take() []said {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

// sizes returns the sizes of what was reported since the last take; 0 stands for an error.
func (r *record) sizes() string { return sizes(r.take()) }

func sizes(all []said) string {
	var b strings.Builder
	for _, s := range all {
		fmt.Fprintf(&b, "%d ", s.pool.Replicas)
	}
	return strings.TrimSpace(b.String())
}

// last returns the last of some reports.
func last(all []said) said {
	if len(all) == 0 {
		return said{}
	}
	return all[len(all)-1]
}

// bubble runs a test in fake time, with an API server and a source of the Service api in the namespace prod.
func bubble(t *testing.T, test func(t *testing.T, a *api, net *pipes, s *Source)) {
	t.Helper()
	bubbleOf(t, "", test)
}

// bubbleOf is bubble for a client that speaks JSON, or protobuf.
func bubbleOf(t *testing.T, contentType string, test func(t *testing.T, a *api, net *pipes, s *Source)) {
	t.Helper()
	t.Setenv("HOSTNAME", "")
	t.Setenv("POD_NAME", "")
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		p, transport := a.serve(t)
		a.client = clientAt(t, "http://kube", transport, contentType)
		test(t, a, p, &Source{Slices: a.client.EndpointSlices("prod"), Service: "api"})
	})
}
