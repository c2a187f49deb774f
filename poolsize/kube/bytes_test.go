package kube

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// like returns the slice of n pods as a cluster writes it: names, nodes, zones, managed fields.
func like(n int) *discovery.EndpointSlice {
	s := sliceOf("api-replicas-x7k2p", pods(n)...)
	node, zone, port, name := "ip-10-0-123-45.eu-central-1.compute.internal", "eu-central-1a",
		int32(8080), "http"
	for i := range s.Endpoints {
		s.Endpoints[i].NodeName, s.Endpoints[i].Zone = &node, &zone
		s.Endpoints[i].TargetRef.UID = types.UID(fmt.Sprintf("8c2f6a31-0f5d-4f7e-9a6b-%012d", i))
	}
	s.Ports = []discovery.EndpointPort{{Name: &name, Port: &port}}
	s.UID = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"
	s.GenerateName = "api-replicas-"
	s.Labels["endpointslice.kubernetes.io/managed-by"] = "endpointslice-controller.k8s.io"
	s.Annotations = map[string]string{
		"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z"}
	s.OwnerReferences = []meta.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "api-replicas",
		UID: s.UID}}
	s.ManagedFields = []meta.ManagedFieldsEntry{{
		Manager: "kube-controller-manager", Operation: "Update", APIVersion: "discovery.k8s.io/v1",
		FieldsType: "FieldsV1",
		FieldsV1:   meta.NewFieldsV1(`{"f:addressType":{},"f:endpoints":{},"f:metadata":{"f:annotations":{".":{}},"f:labels":{".":{}}},"f:ports":{}}`),
	}}
	return s
}

// A pool of 100 costs the API server this much: the first list, and each change. docs/pool-size.md has the
// figures.
func TestBytesOfAPoolOf100(t *testing.T) {
	for contentType, most := range map[string]int{
		runtime.ContentTypeProtobuf: 24 << 10,
		runtime.ContentTypeJSON:     44 << 10,
	} {
		bubbleOf(t, contentType, func(t *testing.T, a *api, _ *pipes, s *Source) {
			var accepted string
			a.fault(func(_ http.ResponseWriter, r *http.Request, _ bool) bool {
				accepted = r.Header.Get("Accept")
				return false
			}, nil)
			a.put(like(100))
			r := follow(t, s)
			if got := r.sizes(); got != "100" {
				t.Fatalf("%q, want 100", got)
			}
			a.put(like(101))
			if got := r.sizes(); got != "101" {
				t.Fatalf("%q, want 101", got)
			}
			a.mu.Lock()
			before := a.sent["watch"]
			a.mu.Unlock()
			a.bookmark()
			r.take()
			a.mu.Lock()
			defer a.mu.Unlock()
			t.Logf("%s: a bookmark %d bytes", contentType, a.sent["watch"]-before)
			a.sent["watch"] = before
			t.Logf("%s: a list of 100 pods %d bytes, a change %d bytes", contentType, a.sent["list"],
				a.sent["watch"])
			if a.sent["list"] > most || a.sent["watch"] > most || !strings.Contains(accepted, contentType) {
				t.Errorf("%s (%s): %v bytes, want at most %d each", contentType, accepted, a.sent, most)
			}
		})
	}
}

// A change of a slice of 100 pods, from the API server's side of a connection on loopback to the report.
func BenchmarkChange(b *testing.B) {
	a := newAPI()
	srv := httptest.NewServer(a)
	defer srv.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	s := &Source{Slices: clientAt(b, srv.URL, transport, "").EndpointSlices("prod"), Service: "api",
		Outside: true}
	ctx, cancel := context.WithCancel(b.Context())
	reports, ended := make(chan int), make(chan struct{})
	go func() {
		defer close(ended)
		s.Watch(ctx, func(p quotient.Pool, _ error) { //nolint:errcheck // the context's
			select {
			case reports <- p.Replicas:
			case <-ctx.Done():
			}
		})
	}()
	slices := []*discovery.EndpointSlice{like(100), like(101)}
	a.put(slices[0])
	for i := 1; b.Loop(); i++ {
		want := 100 + i%2
		a.put(slices[i%2])
		for <-reports != want {
		}
	}
	cancel()
	<-ended
}
