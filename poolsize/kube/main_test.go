package kube

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/internal/watched"
	"go.uber.org/goleak"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typed "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
func clientAt(t watched.TB, host string, transport http.RoundTripper,
	contentType string) *typed.DiscoveryV1Client {
	t.Helper()
	c, err := typed.NewForConfig(&rest.Config{
		Host: host, Transport: transport, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: contentType},
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return c
}

// record is a Watch that runs in a bubble, and its reports.
type record struct{ *watched.Log }

// follow starts a Watch that ends with the test.
func follow(t watched.TB, s quotient.Source) record { return record{watched.Start(t, s.Watch)} }

// take returns what was reported since the last take, once all is quiet.
func (r record) take() []watched.Report {
	synctest.Wait()
	return r.Take()
}

// sizes returns the sizes of what was reported since the last take; 0 stands for an error.
func (r record) sizes() string {
	var b strings.Builder
	for _, s := range r.take() {
		fmt.Fprintf(&b, "%d ", s.Pool.Replicas)
	}
	return strings.TrimSpace(b.String())
}

// last returns the last of some reports.
func last(all []watched.Report) watched.Report {
	if len(all) == 0 {
		return watched.Report{}
	}
	return all[len(all)-1]
}

// bubble runs a test in fake time, with an API server and a source of the Service api in the namespace prod.
func bubble(t *testing.T, test func(t *testing.T, a *api, s *Source)) {
	t.Helper()
	bubbleOf(t, "", test)
}

// bubbleOf is bubble for a client that speaks JSON, or protobuf.
func bubbleOf(t *testing.T, contentType string, test func(t *testing.T, a *api, s *Source)) {
	t.Helper()
	t.Setenv("HOSTNAME", "")
	t.Setenv("POD_NAME", "")
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		transport := a.serve(t)
		a.client = clientAt(t, "http://kube", transport, contentType)
		test(t, a, &Source{Slices: a.client.EndpointSlices("prod"), Service: "api"})
	})
}
