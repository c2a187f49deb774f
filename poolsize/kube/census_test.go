package kube

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/internal/watched"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// poolOf is the pool of some slices as a list holds them.
func poolOf(c *census, slices ...*discovery.EndpointSlice) (quotient.Pool, error) {
	var f finding
	c.service, c.changed = "api", func(got finding) { f = got }
	var list []any
	for _, s := range slices {
		list = append(list, s)
	}
	c.Replace(list, "1") //nolint:errcheck // always nil
	return f.pool, f.err
}

// bare returns endpoints without a targetRef.
func bare(addresses ...string) []discovery.Endpoint {
	var list []discovery.Endpoint
	for _, a := range addresses {
		list = append(list, discovery.Endpoint{Addresses: []string{a}})
	}
	return list
}

// ipv6 is the slice as one of the other family.
func ipv6(s *discovery.EndpointSlice) *discovery.EndpointSlice {
	s.AddressType = discovery.AddressTypeIPv6
	return s
}

// Which of ready, serving and terminating count. The first of two pods serves.
func TestConditionsThatCount(t *testing.T) {
	no := false
	unset := pod("api-b", "")
	unset.Conditions = discovery.EndpointConditions{}
	notReady := unset
	notReady.Conditions.Ready = &no // and serving is not set: it is, says the API
	for _, row := range []struct {
		name          string
		e             discovery.Endpoint
		all, servings int
	}{
		{"ready and serving", pod("api-b", "serving"), 2, 2},
		{"ready alone, as publishNotReadyAddresses makes it", pod("api-b", "ready"), 2, 2},
		{"ends, and serves", pod("api-b", "ending"), 2, 2},
		{"neither ready nor serving", pod("api-b", "starting"), 2, 1},
		{"ends, and serves no more", pod("api-b", "ended"), 1, 1},
		{"nothing is set", unset, 2, 2},
		{"not ready, and nothing else is set", notReady, 2, 2},
	} {
		for only, want := range map[bool]int{false: row.all, true: row.servings} {
			p, err := poolOf(&census{servingOnly: only}, sliceOf("a", pod("api-a", "serving"), row.e))
			if err != nil || p.Replicas != want {
				t.Errorf("%s, ServingOnly %v: %v, %v; want %d replicas", row.name, only, p, err, want)
			}
		}
	}
}

// A replica counts once, in however many slices and families of addresses it stands.
func TestCountsOnce(t *testing.T) {
	renamed := pod("api-a", "serving")
	renamed.TargetRef.UID = "another" // the pod of a StatefulSet that has replaced another
	nameless := pod("api-a", "serving")
	nameless.TargetRef.UID = ""
	for _, row := range []struct {
		name   string
		slices []*discovery.EndpointSlice
		want   int
	}{
		{"both families", []*discovery.EndpointSlice{sliceOf("4", pods(3)...),
			ipv6(sliceOf("6", pods(3)...))}, 3},
		{"ports", []*discovery.EndpointSlice{sliceOf("http", pods(3)...), sliceOf("grpc", pods(2)...)}, 3},
		{"ends in the slice that is behind", []*discovery.EndpointSlice{
			sliceOf("a", pod("api-a", "ended")),
			sliceOf("b", pod("api-a", "serving"), pod("api-b", "serving"))}, 2},
		{"the same, the other way round", []*discovery.EndpointSlice{
			sliceOf("a", pod("api-a", "serving"), pod("api-b", "serving")),
			sliceOf("b", pod("api-a", "ended"))}, 2},
		{"one name, two pods", []*discovery.EndpointSlice{sliceOf("a", pod("api-a", "ending"), renamed)}, 2},
		{"names where there is no UID",
			[]*discovery.EndpointSlice{sliceOf("a", nameless), sliceOf("b", nameless)}, 1},
		{"addresses", []*discovery.EndpointSlice{
			sliceOf("a", bare("10.0.0.1", "10.0.0.2")...),
			sliceOf("b", bare("10.0.0.2", "::ffff:10.0.0.1")...)}, 2},
		{"addresses of both families", []*discovery.EndpointSlice{
			sliceOf("4", bare("10.0.0.1", "10.0.0.2")...),
			ipv6(sliceOf("6", bare("fd00::1", "fd00::2", "fd00:0::2", "fd00::3")...))}, 3},
		{"pods and addresses",
			[]*discovery.EndpointSlice{sliceOf("a", pods(2)...), sliceOf("b", bare("10.0.0.1")...)}, 3},
		{"no address at all",
			[]*discovery.EndpointSlice{sliceOf("a", discovery.Endpoint{}, discovery.Endpoint{})}, 1},
	} {
		for range 20 { // slices are counted in any order
			if p, err := poolOf(&census{}, row.slices...); err != nil || p.Replicas != row.want {
				t.Fatalf("%s: %v, %v; want %d replicas", row.name, p, err, row.want)
			}
		}
	}
}

// This replica counts itself, unless nothing is listed.
func TestCountsItself(t *testing.T) {
	serves := []discovery.Endpoint{pod("api-a", "serving"), pod("api-b", "serving")}
	for _, row := range []struct {
		name, own string
		only      bool
		endpoints []discovery.Endpoint
		want      int
		says      string
	}{
		{"it is listed", "api-a", false, serves, 2, ""},
		{"it is not listed", "api-c", false, serves, 3, ""},
		{"its name is not known", "", false, serves, 2, ""},
		{"it is listed, and starts", "api-c", false, append(serves, pod("api-c", "starting")), 3, ""},
		{"it starts, where only those that serve count", "api-c", true,
			append(serves, pod("api-c", "starting")), 3, ""},
		{"it ends, and serves no more", "api-c", false, append(serves, pod("api-c", "ended")), 3, ""},
		{"it alone starts, where only those that serve count", "api-c", true,
			[]discovery.Endpoint{pod("api-c", "starting")}, 1, ""},
		{"nothing is listed", "api-c", false, nil, 0, "no endpoints"},
		{"nothing that counts, nor this one, is listed", "api-c", true,
			[]discovery.Endpoint{pod("api-a", "starting")}, 0, "none of 1 endpoints counts"},
		{"only those that have ended", "", false,
			[]discovery.Endpoint{pod("api-a", "ended"), pod("api-b", "ended")}, 0,
			"none of 2 endpoints counts"},
	} {
		p, err := poolOf(&census{own: row.own, servingOnly: row.only}, sliceOf("a", row.endpoints...))
		if p.Replicas != row.want || (err == nil) != (row.says == "") ||
			err != nil && !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v, %v; want %d replicas, %q", row.name, p, err, row.want, row.says)
		}
	}
	if _, err := poolOf(&census{own: "api-a"}); !errors.Is(err, errNone) {
		t.Errorf("no slice at all: %v, want %v", err, errNone)
	}
}

// named returns pods of these names, all of which serve.
func named(names ...string) []discovery.Endpoint {
	var list []discovery.Endpoint
	for _, n := range names {
		list = append(list, pod(n, "serving"))
	}
	return list
}

// An ordinal is fixed where the names prove that no other replica has it, and nowhere else.
func TestOrdinals(t *testing.T) {
	nobodys := pod("web-1", "serving")
	nobodys.TargetRef.Kind = "ExternalEntity"
	for _, row := range []struct {
		name, own string
		endpoints []discovery.Endpoint
		want      quotient.Pool
	}{
		{"a StatefulSet", "web-2", named("web-0", "web-1", "web-2"),
			quotient.Pool{Replicas: 3, Ordinal: 3, Fixed: true}},
		{"its first pod", "web-0", named("web-0", "web-1"),
			quotient.Pool{Replicas: 2, Ordinal: 1, Fixed: true}},
		{"pods that others of the set have not joined yet", "web-2", named("web-1", "web-2"),
			quotient.Pool{Replicas: 2}},
		{"it starts, and the names prove it", "web-1", append(named("web-0"), pod("web-1", "starting")),
			quotient.Pool{Replicas: 2, Ordinal: 2, Fixed: true}},
		{"it is not listed: the name may be a machine's", "web-1", named("web-0", "web-2"),
			quotient.Pool{Replicas: 3}},
		{"two sets", "web-1", named("web-0", "web-1", "new-1"), quotient.Pool{Replicas: 3, Ordinal: 3}},
		{"another set's pod that starts", "web-0", append(named("web-0", "web-1"), pod("new-0", "starting")),
			quotient.Pool{Replicas: 3, Ordinal: 2}},
		{"another set's pod that has ended", "web-0", append(named("web-0"), pod("new-0", "ended")),
			quotient.Pool{Replicas: 1, Ordinal: 1}},
		{"an address beside", "web-0", append(named("web-0"), bare("10.0.0.9")...),
			quotient.Pool{Replicas: 2}},
		{"what is no pod", "web-0", append(named("web-0"), nobodys), quotient.Pool{Replicas: 2, Ordinal: 1}},
		{"a leading zero", "web-01", named("web-00", "web-01"), quotient.Pool{Replicas: 2, Ordinal: 2}},
		{"a number that is none", "web-1e0", named("web-0e0", "web-1e0"),
			quotient.Pool{Replicas: 2, Ordinal: 2}},
		{"a number beyond int", "web-99999999999999999999", named("web-99999999999999999999"),
			quotient.Pool{Replicas: 1, Ordinal: 1}},
		{"no name before the number", "-1", named("-0", "-1"), quotient.Pool{Replicas: 2, Ordinal: 2}},
		{"a ReplicaSet's name by chance", "web-24567", named("web-24567", "web-98765"),
			quotient.Pool{Replicas: 2}},
		{"a Deployment: the place of the UID", "api-5d-b", named("api-5d-a", "api-5d-c", "api-5d-b"),
			quotient.Pool{Replicas: 3, Ordinal: 2}},
		{"the name is not known", "", named("web-0", "web-1"), quotient.Pool{Replicas: 2}},
	} {
		if p, err := poolOf(&census{own: row.own}, sliceOf("a", row.endpoints...)); err != nil ||
			p != row.want {
			t.Errorf("%s: %+v, %v; want %+v", row.name, p, err, row.want)
		}
	}
	// Others do not count one that starts, so it has no place among them.
	c := &census{own: "api-b", servingOnly: true}
	if p, err := poolOf(c, sliceOf("a", pod("api-a", "serving"), pod("api-b", "starting"))); err != nil ||
		p != (quotient.Pool{Replicas: 2}) {
		t.Errorf("one that counts for itself alone: %+v, %v; want no ordinal", p, err)
	}
}

// Slices of two namespaces are two Services.
func TestSlicesOfOthers(t *testing.T) {
	test := sliceOf("a", pods(2)...)
	test.Namespace = "test"
	if p, err := poolOf(&census{}, sliceOf("a", pods(3)...), test); err == nil ||
		!strings.Contains(err.Error(), "two namespaces, prod and test") {
		t.Errorf("two namespaces: %v, %v; want an error", p, err)
	}
}

// No more is kept than a pool can have, and more than that is an error until the next list.
func TestTooManyEndpoints(t *testing.T) {
	full := sliceOf("", pods(1000)...)
	var list []*discovery.EndpointSlice
	for i := range 1001 {
		s := *full
		s.Name = fmt.Sprint(i)
		list = append(list, &s)
	}
	c := &census{}
	p, err := poolOf(c, list...)
	if err == nil || !strings.Contains(err.Error(), "more than 1000000 endpoints") {
		t.Errorf("%v, %v; want an error", p, err)
	}
	if c.endpoints != maxEndpoints || len(c.slices) != 1000 {
		t.Errorf("%d endpoints in %d slices are kept, want 1000000", c.endpoints, len(c.slices))
	}
	var f finding
	c.changed = func(got finding) { f = got }
	c.Delete(list[0]) //nolint:errcheck // always nil
	if f.err == nil {
		t.Errorf("one slice less: %v, want an error, for others are not known", f.pool)
	}
	if p, err := poolOf(c, list[:3]...); err != nil || p.Replicas != 1000 {
		t.Errorf("the next list: %v, %v; want 1000 replicas", p, err)
	}
	for i := range maxEndpoints + 1 {
		c.take(&discovery.EndpointSlice{ObjectMeta: meta.ObjectMeta{Name: fmt.Sprint("empty", i),
			Labels: full.Labels}})
	}
	if len(c.slices) != maxEndpoints || !c.cut {
		t.Errorf("%d slices are kept, want %d", len(c.slices), maxEndpoints)
	}
}

// oracle counts the fleet of the server, in another way than the source does: 0 for none.
func (a *api) oracle() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	var pods []string
	for _, s := range a.objects {
		for _, e := range s.Endpoints {
			c := e.Conditions
			if *c.Ready || *c.Serving || !*c.Terminating {
				pods = append(pods, e.TargetRef.Name)
			}
		}
	}
	slices.Sort(pods)
	return len(slices.Compact(pods))
}

// The reports are what the server has held, in that order, through any sequence of changes and faults. When
// all is well again it is what the server holds.
func TestPropertyHistory(t *testing.T) {
	t.Setenv("HOSTNAME", "")
	t.Setenv("POD_NAME", "")
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, history) })
}

func history(t *rapid.T) {
	a := newAPI()
	transport := a.serve(t)
	sizes := []int{a.oracle()} // of the server, as long as the source watches
	note := func() { sizes = append(sizes, a.oracle()) }
	states := []string{"serving", "ready", "starting", "ending", "ended"}
	put := func() {
		var list []discovery.Endpoint
		for range rapid.IntRange(0, 3).Draw(t, "endpoints") {
			name := fmt.Sprint("api-", rapid.IntRange(0, 5).Draw(t, "pod"))
			list = append(list, pod(name, rapid.SampledFrom(states).Draw(t, "state")))
		}
		a.put(sliceOf(fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "slice")), list...))
		note()
	}
	contentType := rapid.SampledFrom([]string{"application/json", "application/vnd.kubernetes.protobuf"}).
		Draw(t, "encoding")
	for range rapid.IntRange(0, 3).Draw(t, "before") {
		put()
	}
	s := &Source{Slices: clientAt(t, "http://kube", transport, contentType).EndpointSlices("prod"),
		Service: "api"}
	r := follow(t, s)
	steps := map[string]func(){
		"put":      put,
		"drop":     func() { a.drop(sliceOf(fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "slice")))); note() },
		"bookmark": a.bookmark,
		"kick":     a.kick,
		"forget":   a.forget,
		"silence":  a.silence,
		"events":   func() { a.mu.Lock(); a.goneEvents = !a.goneEvents; a.mu.Unlock() },
		"cut once": func() { a.fault(nil, once(rapid.IntRange(0, 1).Draw(t, "halves"))) },
		"cut":      func() { a.fault(nil, instead("", true)) },
		"failing":  func() { a.fault(nil, failing(500, meta.StatusReasonInternalError, "etcd is away")) },
		"refuse":   func() { a.net.refuse(true) },
		"500":      func() { a.fault(refuse(true, true, 500, meta.StatusReasonInternalError), nil) },
		"429":      func() { a.fault(refuse(false, true, 429, meta.StatusReasonTooManyRequests), nil) },
		"garbage":  func() { a.fault(write(true, false, `{"items": "seven"}`), nil) },
		"hang": func() {
			a.fault(hang(rapid.Bool().Draw(t, "lists"), rapid.Bool().Draw(t, "watches")), nil)
		},
		"heal": func() { a.fault(nil, nil); a.net.refuse(false) },
		"wait": func() {
			time.Sleep(time.Duration(rapid.IntRange(0, 100).Draw(t, "seconds")) * time.Second)
		},
	}
	names := []string{"put", "put", "put", "wait", "wait", "heal"}
	for n := range steps {
		names = append(names, n)
	}
	slices.Sort(names)
	for range rapid.IntRange(0, 30).Draw(t, "steps") {
		steps[rapid.SampledFrom(names).Draw(t, "step")]()
	}
	a.fault(nil, nil)
	a.net.refuse(false)
	time.Sleep(2*defaultSilence + longestList)
	all := r.take()
	r.Leave()
	inOrder(t, all, sizes)
	if got, want := last(all).Pool.Replicas, a.oracle(); got != want {
		t.Errorf("at the end: %+v, want %d", last(all), want)
	}
}

// inOrder requires that reports follow the history of the server, which they may skip in part.
func inOrder(t *rapid.T, all []watched.Report, history []int) {
	at := 0
	for _, s := range all {
		n := s.Pool.Replicas
		if s.Err != nil && !strings.Contains(s.Err.Error(), "no endpoints") &&
			!strings.Contains(s.Err.Error(), "none of") {
			continue // a failure to see them
		}
		i := slices.Index(history[at:], n)
		if i < 0 {
			t.Fatalf("%d replicas after %v, %v: the server held %v, and what is left of that is %v: %v", n,
				s.At, s.Err, history, history[at:], all)
		}
		at += i
	}
}

// A pod's name is a StatefulSet's only if it is written as one: its parts make the name again.
func FuzzSeries(f *testing.F) {
	for _, name := range []string{"web-0", "web-12", "web-012", "web", "-1", "web-", "web--1", "web-+1",
		"web-999999", "web-1000000", "web-٣", "web-99999999999999999999", "api-7d9f8b6c5-24567"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		base, index, ok := series(name)
		if ok &&
			(base == "" || index < 0 || index >= maxEndpoints || fmt.Sprintf("%s-%d", base, index) != name) {
			t.Errorf("%q is %q and %d", name, base, index)
		}
	})
}
