package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

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
	net, transport := a.serve(t)
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
		"refuse":   func() { net.refuse(true) },
		"500":      func() { a.fault(refuse(true, true, 500, meta.StatusReasonInternalError), nil) },
		"429":      func() { a.fault(refuse(false, true, 429, meta.StatusReasonTooManyRequests), nil) },
		"garbage":  func() { a.fault(write(true, false, `{"items": "seven"}`), nil) },
		"hang": func() {
			a.fault(hang(rapid.Bool().Draw(t, "lists"), rapid.Bool().Draw(t, "watches")), nil)
		},
		"heal": func() { a.fault(nil, nil); net.refuse(false) },
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
	net.refuse(false)
	time.Sleep(2*defaultSilence + longestList)
	all := r.take()
	r.stop() //nolint:errcheck // the context's
	inOrder(t, all, sizes)
	if got, want := last(all).pool.Replicas, a.oracle(); got != want {
		t.Errorf("at the end: %+v, want %d", last(all), want)
	}
}

// inOrder requires that reports follow the history of the server, which they may skip in part.
func inOrder(t *rapid.T, all []said, history []int) {
	at := 0
	for _, s := range all {
		n := s.pool.Replicas
		if s.err != nil && !strings.Contains(s.err.Error(), "no endpoints") &&
			!strings.Contains(s.err.Error(), "none of") {
			continue // a failure to see them
		}
		i := slices.Index(history[at:], n)
		if i < 0 {
			t.Fatalf("%d replicas after %v, %v: the server held %v, and what is left of that is %v: %v", n,
				s.at, s.err, history, history[at:], all)
		}
		at += i
	}
}
