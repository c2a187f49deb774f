package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/pooltest"
	"go.uber.org/goleak"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/typed/discovery/v1/fake"
	"k8s.io/client-go/rest"
	faking "k8s.io/client-go/testing"
)

// The source does what every source must do, over real sockets, in both versions of HTTP.
func TestPooltest(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(version, func(t *testing.T) { poolTest(t, version) })
	}
}

func poolTest(t *testing.T, version string) {
	a := newAPI()
	var others atomic.Int32 // requests in another version
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Proto != version {
			others.Add(1)
		}
		a.ServeHTTP(w, r)
	}))
	srv.EnableHTTP2 = version == "HTTP/2.0"
	srv.StartTLS()
	t.Cleanup(srv.Close)
	slices := clientAt(t, srv.URL, srv.Client().Transport, "").EndpointSlices("prod")
	own := pods(1)[0].TargetRef.Name
	pooltest.Run(t, pooltest.World{
		Source: func(testing.TB) quotient.Source {
			return &Source{Slices: slices, Service: "api", Pod: own, Refresh: 20 * time.Millisecond}
		},
		Set: func(_ testing.TB, n int) { a.set(n) },
		Break: func(testing.TB) {
			a.fault(refuse(true, true, 500, meta.StatusReasonInternalError), nil)
			a.kick()
		},
		Garbage: func(testing.TB) { a.fault(write(true, true, `{"items": "seven"}`), nil); a.kick() },
		Heal:    func(testing.TB) { a.fault(nil, nil) },
		Wrong:   wrong(slices),
		Ignore: []goleak.Option{ // the client's and the server's connections stay open for the next request
			goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
			goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
			goleak.IgnoreAnyFunction("net/http.(*conn).serve"),
			goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"),
		},
	})
	if n := others.Load(); n > 0 {
		t.Errorf("%d requests were not in %s", n, version)
	}
}

// Another namespace's Service of the same name, and other Services of the namespace, do not count.
func TestNamespacesAndServices(t *testing.T) {
	bubble(t, func(t *testing.T, a *api, s *Source) {
		test, db := sliceOf("api-0", pods(7)...), sliceOf("db-0", pods(5)...)
		test.Namespace, db.Labels["kubernetes.io/service-name"] = "test", "db"
		a.set(3)
		a.put(test, db)
		r := follow(t, s)
		other := follow(t, &Source{Slices: a.client.EndpointSlices("test"), Service: "api"})
		if got, want := r.sizes()+","+other.sizes(), "3,7"; got != want {
			t.Errorf("two namespaces: %s, want %s", got, want)
		}
		test.Endpoints, db.Endpoints = pods(6), pods(4)
		a.put(test, db)
		a.drop(db)
		if got, want := r.sizes()+","+other.sizes(), ",6"; got != want {
			t.Errorf("after changes elsewhere: %s, want %s", got, want)
		}
		db.Labels["kubernetes.io/service-name"] = "api" // another slice of ours
		a.put(db)
		db.Labels["kubernetes.io/service-name"] = "db" // and no more
		a.put(db)
		if got, want := r.sizes(), "4 3"; got != want {
			t.Errorf("a slice that comes and goes by its label: %s, want %s", got, want)
		}
	})
}

// fakeOf is the part of client-go's fake clientset that knows EndpointSlices, put together as
// fake.NewClientset does. The whole of it takes a minute to compile.
func fakeOf(t *testing.T, objects ...runtime.Object) *fake.FakeDiscoveryV1 {
	t.Helper()
	tracker := faking.NewObjectTracker(testScheme, serializer.NewCodecFactory(testScheme).UniversalDecoder())
	for _, o := range objects {
		if err := tracker.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	f := &faking.Fake{}
	f.AddReactor("*", "*", faking.ObjectReaction(tracker))
	f.AddWatchReactor("*", func(a faking.Action) (bool, watch.Interface, error) {
		w, err := tracker.Watch(a.GetResource(), a.GetNamespace(), a.(faking.WatchActionImpl).ListOptions)
		return err == nil, w, err
	})
	return &fake.FakeDiscoveryV1{Fake: f}
}

// The fake of client-go, which selects no watch by labels.
func TestFakeClientset(t *testing.T) {
	t.Setenv("HOSTNAME", "")
	t.Setenv("POD_NAME", "")
	synctest.Test(t, func(t *testing.T) {
		slices := fakeOf(t, sliceOf("a", pods(3)...)).EndpointSlices("prod")
		r := follow(t, &Source{Slices: slices, Service: "api"})
		if got := r.sizes(); got != "3" {
			t.Fatalf("at the start: %q, want 3", got)
		}
		db := sliceOf("db", pods(9)...)
		db.Labels["kubernetes.io/service-name"] = "db"
		_, e1 := slices.Create(t.Context(), db, meta.CreateOptions{})
		_, e2 := slices.Create(t.Context(), sliceOf("b", pods(5)...), meta.CreateOptions{})
		_, e3 := slices.Update(t.Context(), sliceOf("b", pods(4)...), meta.UpdateOptions{})
		e4 := slices.Delete(t.Context(), "b", meta.DeleteOptions{})
		if err := errors.Join(e1, e2, e3, e4); err != nil {
			t.Fatal(err)
		}
		if got := r.sizes(); got != "3 5 4 3" {
			t.Errorf("after changes: %q, want 3 5 4 3", got)
		}
	})
}

// A Service whose slices hold nothing is an error, again every Refresh, and never a pool.
func TestNoEndpoints(t *testing.T) {
	bubble(t, func(t *testing.T, a *api, s *Source) {
		s.Pod = "api-a"
		r := follow(t, s)
		time.Sleep(2*defaultRefresh + time.Second)
		all := r.take()
		if len(all) != 3 {
			t.Errorf("%d reports, want 3", len(all))
		}
		for _, f := range all {
			if !errors.Is(f.Err, errNone) || f.Pool != (quotient.Pool{}) {
				t.Errorf("%v, %v; want %v", f.Pool, f.Err, errNone)
			}
		}
		a.put(sliceOf("a", pod("api-a", "starting")))
		if got := last(r.take()); got.Err != nil || got.Pool.Replicas != 1 {
			t.Errorf("it is listed: %+v, want 1", got)
		}
		a.drop(sliceOf("a"))
		if got := last(r.take()); !errors.Is(got.Err, errNone) {
			t.Errorf("it is listed no more: %+v, want %v", got, errNone)
		}
	})
}

// The name of this pod is Pod, else POD_NAME, else HOSTNAME, and none Outside.
func TestOwnName(t *testing.T) {
	for _, row := range []struct {
		pod, podName, hostname string
		outside                bool
		want                   string
	}{
		{"web-0", "web-1", "web-2", false, "web-0"},
		{"", "web-1", "web-2", false, "web-1"},
		{"", "", "web-2", false, "web-2"},
		{"", "", "", false, ""},
		{"", "web-1", "web-2", true, ""},
	} {
		t.Setenv("POD_NAME", row.podName)
		t.Setenv("HOSTNAME", row.hostname)
		if got := (&Source{Pod: row.pod, Outside: row.outside}).pod(); got != row.want {
			t.Errorf("%+v: %q", row, got)
		}
	}
}

// wrong are sources with one wrong field each.
func wrong(slices Slices) map[string]quotient.Source {
	api := Source{Slices: slices, Service: "api"}
	with := func(change func(s *Source)) *Source { s := api; change(&s); return &s }
	return map[string]quotient.Source{
		"kube: Source.Slices: nil":                      &Source{Service: "api"},
		`kube: Source.Service: "": `:                    &Source{Slices: slices},
		`kube: Source.Service: "a,b": `:                 with(func(s *Source) { s.Service = "a,b" }),
		`aaaa": must be no more than 63`:                with(func(s *Source) { s.Service = strings.Repeat("a", 64) }),
		`kube: Source.Pod: "A_b": `:                     with(func(s *Source) { s.Pod = "A_b" }),
		`kube: Source.Pod: "api-a", but Outside is set`: with(func(s *Source) { s.Pod, s.Outside = "api-a", true }),
		"kube: Source.Refresh: 9ms is not between 10ms": with(func(s *Source) { s.Refresh = 9 * time.Millisecond }),
		"kube: Source.Refresh: -1ns":                    with(func(s *Source) { s.Refresh = -1 }),
		"kube: Source.Silence: 999ms is not between 1s": with(func(s *Source) { s.Silence = 999 * time.Millisecond }),
		"kube: Source.Silence: 25h0m0s":                 with(func(s *Source) { s.Silence = 25 * time.Hour }),
	}
}

// Outside of a cluster there is nothing to connect to.
func TestInClusterElsewhere(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if s, err := InCluster("api"); s != nil || !errors.Is(err, rest.ErrNotInCluster) {
		t.Errorf("%v, %v; want %v", s, err, rest.ErrNotInCluster)
	}
	for want, of := range map[string][2]string{
		`InCluster: the namespace "": `: {"", "api"}, `Source.Service: "A": `: {"prod", "A"},
	} {
		if s, err := forConfig(&rest.Config{Host: "http://kube"}, of[0], of[1]); s != nil || err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v; want %s", s, err, want)
		}
	}
}

// The client of InCluster uses protobuf, in the pod's namespace, and reads statuses in JSON.
func TestInClusterClient(t *testing.T) {
	t.Setenv("HOSTNAME", "")
	t.Setenv("POD_NAME", "")
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		transport := a.serve(t)
		var accepts sync.Map
		a.fault(func(_ http.ResponseWriter, r *http.Request, _ bool) bool {
			accepts.Store(r.Header.Get("Accept"), true)
			return false
		}, nil)
		a.set(3)
		s, err := forConfig(&rest.Config{Host: "http://kube", Transport: transport}, "prod", "api")
		if err != nil {
			t.Fatal(err)
		}
		r := follow(t, s)
		if got := r.sizes(); got != "3" {
			t.Fatalf("at the start: %q, want 3", got)
		}
		a.set(4)
		if got := last(r.take()); got.Pool.Replicas != 4 {
			t.Errorf("a change: %+v, want 4", got)
		}
		accepts.Range(func(k, _ any) bool {
			if k != "application/vnd.kubernetes.protobuf,application/json" {
				t.Errorf("asks for %q", k)
			}
			return true
		})
		a.fault(refuse(true, true, 403, meta.StatusReasonForbidden), nil)
		a.forget()
		time.Sleep(10 * time.Second)
		if got := last(r.take()); got.Err == nil || !strings.Contains(got.Err.Error(), "so it is") {
			t.Errorf("a refusal: %+v, want the server's reason", got)
		}
	})
	if _, err := forConfig(&rest.Config{Host: "http://kube:port"}, "prod", "api"); err == nil {
		t.Error("a host that is none: no error")
	}
}

// lingering answers a list only a while after it was given up.
type lingering struct {
	Slices
	answered atomic.Bool
}

func (l *lingering) List(ctx context.Context, _ meta.ListOptions) (*discovery.EndpointSliceList, error) {
	<-ctx.Done()
	time.Sleep(time.Second)
	l.answered.Store(true)
	return nil, ctx.Err()
}

// Watch does not return while a request of it still runs.
func TestWaitsForItsRequests(t *testing.T) {
	bubble(t, func(t *testing.T, _ *api, s *Source) {
		l := &lingering{Slices: s.Slices}
		s.Slices = l
		r := follow(t, s)
		r.take()
		r.Leave()
		if !l.answered.Load() {
			t.Error("Watch has returned, and a list of it runs")
		}
	})
}

// A report that takes long holds nothing up for good, and no change is lost meanwhile.
func TestSlowReport(t *testing.T) {
	bubble(t, func(t *testing.T, a *api, s *Source) {
		a.set(1)
		var sizes []int
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Watch(ctx, func(p quotient.Pool, _ error) { //nolint:errcheck // the context's
				time.Sleep(time.Second)
				if len(sizes) == 0 || sizes[len(sizes)-1] != p.Replicas {
					sizes = append(sizes, p.Replicas)
				}
			})
		}()
		synctest.Wait()
		for _, n := range []int{2, 3, 2, 1, 3} {
			a.put(sliceOf("api-0", pods(n)...))
		}
		time.Sleep(30 * time.Second)
		cancel()
		<-ended
		if got, want := fmt.Sprint(sizes), "[1 2 3 2 1 3]"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// Addresses has one address of each pod that counts, ready or not, and each address that no pod is known for.
func TestAddresses(t *testing.T) {
	bubble(t, func(t *testing.T, a *api, s *Source) {
		both, named := sliceOf("v6", pod("api-a", "serving"), pod("api-d", "serving")), sliceOf("named", bare("db.example")...)
		both.AddressType, both.Endpoints[0].Addresses = discovery.AddressTypeIPv6, []string{"fd00::1"}
		both.Endpoints[1].Addresses = []string{"fd00::4"}
		named.AddressType = discovery.AddressTypeFQDN
		a.put(sliceOf("v4", pod("api-a", "serving"), pod("api-b", "starting"), pod("api-c", "ended")), both, named,
			sliceOf("bare", bare("::ffff:10.0.0.9", "10.0.0.9")...))
		one := func(name string) string { return pod(name, "").Addresses[0] }
		for _, only := range []bool{false, true} {
			want := []string{"10.0.0.9", one("api-a"), one("api-b"), "fd00::4"}
			if s.ServingOnly = only; only {
				want = slices.Delete(want, 2, 3)
			}
			got, err := s.Addresses(t.Context())
			if fmt.Sprint(got) != fmt.Sprint(want) || err != nil {
				t.Errorf("serving only %v: %v, %v; want %v", only, got, err, want)
			}
		}
		a.fault(refuse(true, false, 403, meta.StatusReasonForbidden), nil)
		if got, err := s.Addresses(t.Context()); err == nil || !strings.Contains(err.Error(), "a Role must allow list") {
			t.Errorf("without permission: %v, %v", got, err)
		}
		s.Service = ""
		if _, err := s.Addresses(t.Context()); err == nil || !strings.Contains(err.Error(), "Source.Service") {
			t.Errorf("without a Service: %v", err)
		}
	})
}
