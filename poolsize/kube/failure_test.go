package kube

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/poolsize/internal/watched"
	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// While all fails there are errors, each attempt later than the one before, and no pool.
func TestFailuresKeepTheirDistance(t *testing.T) {
	bubble(t, func(t *testing.T, a *api, s *Source) {
		a.set(3)
		a.fault(refuse(true, true, 500, meta.StatusReasonInternalError), nil)
		r := follow(t, s)
		time.Sleep(5 * time.Minute)
		all := r.take()
		if n := len(all); n < 15 || n > 40 {
			t.Errorf("%d attempts in five minutes, want one each 10 to 20 s", n)
		}
		for i, f := range all {
			if f.Err == nil {
				t.Errorf("a pool after %v: %v", f.At, f.Pool)
			}
			if i > 0 && f.At.Sub(all[i-1].At) > 4*defaultRefresh {
				t.Errorf("a pause of %v, want at most %v", f.At.Sub(all[i-1].At), 4*defaultRefresh)
			}
		}
		a.fault(nil, nil)
		time.Sleep(4 * defaultRefresh)
		if got := last(r.take()); got.Pool.Replicas != 3 {
			t.Errorf("at the end: %+v, want 3", got)
		}
	})
}

// A refusal names the permission that is missing, and is client-go's error underneath.
func TestForbidden(t *testing.T) {
	for _, verb := range []string{"list", "watch"} {
		bubble(t, func(t *testing.T, a *api, s *Source) {
			a.set(3)
			a.fault(refuse(verb == "list", verb == "watch", 403, meta.StatusReasonForbidden), nil)
			r := follow(t, s)
			time.Sleep(30 * time.Second)
			failed := 0
			for _, f := range r.take() {
				if f.Err == nil {
					if verb == "list" || f.Pool.Replicas != 3 {
						t.Errorf("%s is forbidden: %v", verb, f.Pool)
					}
					continue
				}
				failed++
				for _, want := range []string{"kube: Service api: " + verb, "so it is",
					"a Role must allow list and watch of endpointslices"} {
					if !strings.Contains(f.Err.Error(), want) {
						t.Errorf("%v, want %q", f.Err, want)
					}
				}
				if !apierrors.IsForbidden(f.Err) {
					t.Errorf("%v hides that it is 403", f.Err)
				}
			}
			if failed == 0 {
				t.Errorf("%s is forbidden, and there is no error", verb)
			}
		})
	}
}

// An error is short, whatever the server has sent.
func TestLongErrorsAreCut(t *testing.T) {
	bubble(t, func(t *testing.T, a *api, s *Source) {
		a.fault(func(w http.ResponseWriter, _ *http.Request, _ bool) bool {
			status(w, 500, meta.StatusReasonInternalError, strings.Repeat("x", 1<<20))
			return true
		}, nil)
		r := follow(t, s)
		if got := last(r.take()).Err; got == nil || len(got.Error()) > 600 {
			t.Errorf("an error of %d bytes, want at most 600", len(fmt.Sprint(got)))
		}
	})
}

// A watch that stands but is silent is begun again, from where it was, and until then the pool is reported.
func TestSilence(t *testing.T) {
	bubble(t, func(t *testing.T, a *api, s *Source) {
		s.Silence = 30 * time.Second
		a.set(3)
		r := follow(t, s)
		for range 10 { // bookmarks keep a watch
			time.Sleep(29 * time.Second)
			a.bookmark()
			synctest.Wait()
		}
		if lists, watches := a.asked(); lists != 1 || watches != 1 {
			t.Errorf("with bookmarks: %d lists and %d watches, want one of each", lists, watches)
		}
		time.Sleep(2*time.Minute + time.Second)
		if lists, watches := a.asked(); lists != 1 || watches != 5 {
			t.Errorf("without: %d lists and %d watches, want 1 and 5", lists, watches)
		}
		for _, f := range r.take() {
			if f.Err != nil || f.Pool.Replicas != 3 {
				t.Errorf("after %v: %v, %v; want 3", f.At, f.Pool, f.Err)
			}
		}
	})
}

// A watch that is not answered keeps nothing alive: there is no report before the answer.
func TestNoAnswerIsNoReport(t *testing.T) {
	bubble(t, func(t *testing.T, a *api, s *Source) {
		a.set(3)
		r := follow(t, s)
		time.Sleep(2 * time.Second)
		r.take()
		a.fault(hang(true, true), nil)
		a.kick()
		time.Sleep(defaultSilence - time.Second)
		if got := r.take(); len(got) != 0 {
			t.Errorf("while nothing answers: %v, want no report", got)
		}
		time.Sleep(time.Minute)
		got := r.take()
		if len(got) == 0 || got[0].Err == nil ||
			!strings.Contains(got[0].Err.Error(), "watch: no answer within 2m0s") {
			t.Errorf("then: %v, want errors", got)
		}
	})
}

// Nothing is reported before the first list is there, and it is the newest that is asked for.
func TestFirstList(t *testing.T) {
	bubble(t, func(t *testing.T, a *api, s *Source) {
		a.set(3)
		a.fault(func(_ http.ResponseWriter, _ *http.Request, watches bool) bool {
			if !watches {
				time.Sleep(10 * time.Second)
			}
			return false
		}, nil)
		r := follow(t, s)
		time.Sleep(9 * time.Second)
		if got := r.take(); len(got) != 0 {
			t.Errorf("before the list: %v", got)
		}
		time.Sleep(time.Second)
		if got := r.sizes(); got != "3" {
			t.Errorf("with the list: %q, want 3", got)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.versions) != 1 || a.versions[0] != "" {
			t.Errorf("lists of the versions %q, want one of the newest", a.versions)
		}
	})
}

// The end comes at once, whatever the source waits for.
func TestEndsAtOnce(t *testing.T) {
	for name, begin := range map[string]func(a *api){
		"all is well":             func(*api) {},
		"a list is not answered":  func(a *api) { a.fault(hang(true, false), nil) },
		"a watch is not answered": func(a *api) { a.fault(hang(false, true), nil) },
		"it waits after a failure": func(a *api) {
			a.fault(refuse(true, true, 500, meta.StatusReasonInternalError), nil)
		},
		"a list is garbage": func(a *api) { a.fault(write(true, true, "[]"), nil) },
	} {
		bubble(t, func(t *testing.T, a *api, s *Source) {
			a.set(3)
			begin(a)
			r := follow(t, s)
			time.Sleep(20 * time.Second)
			at := time.Now()
			r.Leave()
			if d := time.Since(at); d > 0 {
				t.Errorf("%s: the end took %v", name, d)
			}
		})
	}
}

// Where the server has nothing of the version that a list asks for, the newest is listed, and that is no
// failure.
func TestListOfAForgottenVersion(t *testing.T) {
	bubble(t, func(t *testing.T, a *api, s *Source) {
		a.set(3)
		r := follow(t, s)
		time.Sleep(2 * time.Second)
		r.take()
		a.fault(func(w http.ResponseWriter, r *http.Request, watches bool) bool {
			if watches || r.URL.Query().Get("resourceVersion") == "" {
				return false
			}
			status(w, http.StatusGone, meta.StatusReasonExpired, "too old")
			return true
		}, nil)
		a.forget()
		a.set(4)
		time.Sleep(3 * time.Second)
		all := r.take()
		for _, f := range all {
			if f.Err != nil || f.Pool.Replicas != 4 {
				t.Errorf("after %v: %v, %v; want 4 and no error", f.At, f.Pool, f.Err)
			}
		}
		if len(all) == 0 {
			t.Error("nothing is reported")
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.versions) != 3 || a.versions[1] == "" || a.versions[2] != "" {
			t.Errorf("lists of the versions %q, want the newest, the last one, and the newest again",
				a.versions)
		}
	})
}

// A watch that stands for a moment between failures does not show that all is well: nothing but errors is
// reported.
func TestFlappingWatchProvesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, a *api, s *Source) {
		a.set(3)
		r := follow(t, s)
		time.Sleep(2 * time.Second)
		r.take()
		var asked atomic.Int32
		a.fault(func(w http.ResponseWriter, r *http.Request, watches bool) bool {
			if !watches || asked.Add(1)%2 == 1 {
				status(w, 429, meta.StatusReasonTooManyRequests, "too many")
				return true
			}
			c := codecFor(r)
			w.Header().Set("Content-Type", c.streamType)
			flush(w)
			select {
			case <-time.After(2 * time.Second):
			case <-r.Context().Done():
			}
			//nolint:errcheck // the client's
			w.Write(c.event(watch.Error, statusOf(429, meta.StatusReasonTooManyRequests, "too many")))
			return true
		}, nil)
		a.kick()
		time.Sleep(20 * time.Minute)
		all := r.take()
		for _, f := range all {
			if f.Err == nil {
				t.Errorf("after %v: %v", f.At, f.Pool)
			}
		}
		if len(all) < 50 || asked.Load() < 50 {
			t.Errorf("%d reports of %d watches, want 50 or more", len(all), asked.Load())
		}
	})
}

// answer is what an api may do in place of answering.
type answer = func(w http.ResponseWriter, r *http.Request, watches bool) bool

// only answers lists, watches or both.
func only(list, watch bool, with func(http.ResponseWriter, *http.Request)) answer {
	return func(w http.ResponseWriter, r *http.Request, watches bool) bool {
		if watches && !watch || !watches && !list {
			return false
		}
		with(w, r)
		return true
	}
}

// refuse answers with a status.
func refuse(list, watch bool, code int, reason meta.StatusReason) answer {
	return only(list, watch, func(w http.ResponseWriter, _ *http.Request) { status(w, code, reason, "so it is") })
}

// write answers with a body.
func write(list, watch bool, body string) answer {
	return only(list, watch, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, body) //nolint:errcheck // the client's
	})
}

// hang lets requests wait for an answer until they are given up.
func hang(list, watch bool) answer {
	return only(list, watch, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
}

// abort cuts the connection of a request before any answer.
func abort(http.ResponseWriter, *http.Request, bool) bool { panic(http.ErrAbortHandler) }

// instead sends something in place of each event.
func instead(b string, end bool) tamper {
	return func(codec, watch.EventType, []byte) ([]byte, bool) { return []byte(b), end }
}

// once cuts the connection after one half, or none, of the first event.
func once(halves int) tamper {
	var done atomic.Bool
	return func(_ codec, _ watch.EventType, b []byte) ([]byte, bool) {
		if done.Swap(true) {
			return b, false
		}
		return b[:len(b)*halves/2], true
	}
}

// failing sends an event that is the server's failure.
func failing(code int32, reason meta.StatusReason, message string) tamper {
	return func(c codec, _ watch.EventType, _ []byte) ([]byte, bool) {
		return c.event(watch.Error, statusOf(code, reason, message)), true
	}
}

// fault is what may go wrong, beginning with a fleet of 3 pods that is known.
type fault struct {
	name   string
	says   string // what an error must hold; "": there must be none
	every  bool   // each change has to be reported, not only what is left of them
	answer answer
	tamper tamper
	begin  func(a *api)  // after answer and tamper are set; nil: nothing more
	after  time.Duration // how long the fault may keep the fleet unknown after its end; 0: half a minute
}

// replaced sends another event in place of each.
func replaced(of func(c codec, kind watch.EventType) []byte) tamper {
	return func(c codec, kind watch.EventType, _ []byte) ([]byte, bool) { return of(c, kind), false }
}

const (
	serverError = meta.StatusReasonInternalError
	tooMany     = meta.StatusReasonTooManyRequests
	brokenList  = `{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1",` +
		`"metadata":{"resourceVersion":"999"},"items":[`
)

var faults = []fault{
	{name: "all watches end", every: true, begin: (*api).kick},
	{name: "410 as a status", begin: (*api).forget},
	{name: "410 as an event", begin: func(a *api) { a.goneEvents = true; a.forget() }},
	{name: "a connection is cut in the middle of an event", every: true, begin: func(a *api) { a.fault(nil, once(1)) }},
	{name: "a connection is cut before an event", every: true, begin: func(a *api) { a.fault(nil, once(0)) }},
	{name: "each connection is cut in the middle of an event", says: "ended before anything came",
		tamper: func(_ codec, _ watch.EventType, b []byte) ([]byte, bool) { return b[:len(b)/2], true }},
	{name: "the watch sends nothing", every: true, begin: (*api).silence, after: defaultSilence},
	{name: "an event holds something else", says: "holds no EndpointSlice",
		tamper: replaced(func(c codec, kind watch.EventType) []byte {
			l := &discovery.EndpointSliceList{TypeMeta: meta.TypeMeta{Kind: "EndpointSliceList",
				APIVersion: "discovery.k8s.io/v1"}}
			l.ResourceVersion = "999999"
			return c.event(kind, l)
		})},
	{name: "an event has no known type", says: "invalid watch event type",
		tamper: replaced(func(c codec, _ watch.EventType) []byte {
			return c.event("LOST", statusOf(500, serverError, ""))
		})},
	{name: "an event says that the server failed", says: "etcd is away",
		tamper: failing(500, serverError, "etcd is away")},
	{name: "an event says that there are too many requests", every: true, says: "too many",
		tamper: failing(429, tooMany, "too many")},
	{name: "no connection", every: true, says: "connection refused", begin: func(a *api) { a.net.refuse(true) }},
	{name: "connections break before any answer", says: "ended before anything came", answer: abort,
		begin: (*api).kick},
	{name: "watches fail with 500", says: "watch: so it is", answer: refuse(false, true, 500, serverError),
		begin: (*api).kick},
	{name: "all fails with 500", says: "list: so it is", answer: refuse(true, true, 500, serverError),
		begin: (*api).kick},
	{name: "watches fail with 429", every: true, says: "so it is", answer: refuse(false, true, 429, tooMany),
		begin: (*api).kick},
	{name: "lists are garbage", says: "list: ", answer: write(true, false, `{"items": "seven"}`),
		begin: (*api).forget},
	{name: "lists are pages", says: "list: ", answer: write(true, false, "<html>Sign in</html>"),
		begin: (*api).forget},
	{name: "lists are empty objects", says: "no resourceVersion", answer: write(true, false, "{}"),
		begin: (*api).forget},
	{name: "lists break off", says: "list: ", answer: write(true, false, brokenList), begin: (*api).forget},
	{name: "lists are not answered", says: "list: no answer within 30s", answer: hang(true, false),
		begin: (*api).forget, after: longestList},
	{name: "watches are not answered", says: "watch: no answer within 2m0s", answer: hang(false, true),
		begin: (*api).kick, after: defaultSilence},
	{name: "lists are slow", begin: (*api).forget,
		answer: func(_ http.ResponseWriter, _ *http.Request, watches bool) bool {
			if !watches {
				time.Sleep(20 * time.Second)
			}
			return false
		}},
}

// garbage is what does harm in one of the two encodings only. A text that JSON refuses at once is, for
// protobuf, the length of an event that does not come.
var garbage = map[string]fault{
	runtime.ContentTypeJSON: {name: "an event is garbage", says: "unable to decode an event",
		tamper: instead("<html>\n", false)},
	runtime.ContentTypeProtobuf: {name: "an event is garbage", after: defaultSilence, begin: func(a *api) {
		a.fault(nil, func(codec, watch.EventType, []byte) ([]byte, bool) {
			a.silence()
			return []byte("<html>\n"), false
		})
	}},
}

// No change is lost, whatever fails, and no failure becomes a count.
func TestFaultsLoseNothing(t *testing.T) {
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		for _, f := range append(faults, garbage[contentType]) {
			t.Run(contentType+"/"+f.name, func(t *testing.T) {
				bubbleOf(t, contentType,
					func(t *testing.T, a *api, s *Source) { f.play(t, a, s) })
			})
		}
	}
}

// play lets a fleet grow from 3 to 7 pods under a fault that ends after half a minute, and shrink to 6.
func (f fault) play(t *testing.T, a *api, s *Source) {
	a.set(3)
	r := follow(t, s)
	time.Sleep(2 * time.Second)
	if got := r.sizes(); got != "3" {
		t.Fatalf("at the start: %q, want 3", got)
	}
	a.fault(f.answer, f.tamper)
	if f.begin != nil {
		f.begin(a)
	}
	for i := range 3 { // changes during the fault: 4, 5, 6
		a.put(sliceOf(fmt.Sprint("more-", i), pods(10)[3:4+i]...))
		time.Sleep(10 * time.Second)
	}
	during := r.take()
	a.fault(nil, nil)
	a.net.refuse(false)
	a.put(sliceOf("more-3", pods(10)[3:7]...)) // and one at its end: 7
	time.Sleep(f.after + 30*time.Second)
	all := append(during, r.take()...)
	a.drop(sliceOf("more-3"))
	all = append(all, r.take()...)
	judge(t, all, f.every, f.says)
	if strings.HasPrefix(f.name, "410") && a.gone == 0 {
		t.Error("nothing was gone")
	}
}

// judge requires the sizes 3 to 7 in order, or some of them, and then 6.
func judge(t *testing.T, all []watched.Report, every bool, says string) {
	t.Helper()
	var seen []int
	found := says == ""
	for _, s := range all {
		switch {
		case s.Err != nil && says == "":
			t.Errorf("after %v: %v, want no error", s.At, s.Err)
		case s.Err != nil:
			found = found || strings.Contains(s.Err.Error(), says)
			if s.Pool.Replicas != 0 {
				t.Errorf("after %v: %v and %v", s.At, s.Pool, s.Err)
			}
		case len(seen) == 0 || seen[len(seen)-1] != s.Pool.Replicas:
			seen = append(seen, s.Pool.Replicas)
		}
	}
	got := strings.Trim(fmt.Sprint(seen), "[]")
	switch {
	case !found:
		t.Errorf("no error says %q: %v", says, all)
	case !strings.HasSuffix(got, "7 6"):
		t.Errorf("sizes %s, want 7 6 at the end: %v", got, all)
	case every && strings.TrimPrefix(got, "3 ") != "4 5 6 7 6":
		t.Errorf("sizes %s, want 4 5 6 7 6", got)
	}
	for i := 1; i < len(seen)-1; i++ {
		if seen[i] < seen[i-1] {
			t.Errorf("sizes %s: back in time", got)
		}
	}
}
