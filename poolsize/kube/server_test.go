package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quotient-go/quotient/poolsize/internal/watched"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	typed "k8s.io/client-go/kubernetes/typed/discovery/v1"
)

// api is a small API server. It lists and watches EndpointSlices over HTTP as the real one does: objects have
// versions, a watch goes on from one, selectors select, and what is forgotten is 410 Gone. On top of that it
// fails as it is asked to.
type api struct {
	mu      sync.Mutex
	version int64 // of the last change
	oldest  int64 // a watch can go on from here
	objects map[string]*discovery.EndpointSlice
	log     []entry
	changed chan struct{} // closed at each change, and replaced
	kicked  chan struct{} // the same for all watches at once

	// answer, unless nil, may answer a request in place of the server, and reports whether it has.
	answer func(w http.ResponseWriter, r *http.Request, watch bool) bool
	// tamper, unless nil, may change the bytes of an event, and end the connection after them.
	tamper tamper
	// mute is how many of the watches there were hold a connection on which nothing comes any more.
	mute int
	// goneEvents answers a watch from too old a version by an event, and not by a status.
	goneEvents bool

	lists, watches, gone int
	versions             []string                 // which lists have asked for
	client               *typed.DiscoveryV1Client // in bubbles
	net                  *pipes
}

// tamper gets an event, as it would be sent.
type tamper func(c codec, kind watch.EventType, b []byte) (out []byte, end bool)

// entry is a change. was is the object before it; both are for bookmarks nil.
type entry struct {
	version int64
	is, was *discovery.EndpointSlice
}

func newAPI() *api {
	return &api{
		version: 100, oldest: 100, objects: map[string]*discovery.EndpointSlice{},
		changed: make(chan struct{}), kicked: make(chan struct{}),
	}
}

// put adds or changes slices.
func (a *api) put(slices ...*discovery.EndpointSlice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range slices {
		s = s.DeepCopy()
		a.version++
		s.ResourceVersion = strconv.FormatInt(a.version, 10)
		s.TypeMeta = meta.TypeMeta{Kind: "EndpointSlice", APIVersion: "discovery.k8s.io/v1"}
		a.log = append(a.log, entry{a.version, s, a.objects[key(s)]})
		a.objects[key(s)] = s
	}
	a.wake()
}

// drop deletes a slice.
func (a *api) drop(s *discovery.EndpointSlice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if was := a.objects[key(s)]; was != nil {
		a.version++
		a.log = append(a.log, entry{a.version, nil, was})
		delete(a.objects, key(s))
		a.wake()
	}
}

// bookmark sends a bookmark to all watches.
func (a *api) bookmark() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log = append(a.log, entry{version: a.version})
	a.wake()
}

// forget ends all watches, and forgets all that was before. Meanwhile something else has changed in the
// cluster, so that no watch can go on from where it was.
func (a *api) forget() {
	a.mu.Lock()
	a.version += 10
	a.oldest = a.version
	a.mu.Unlock()
	a.kick()
}

// silence lets all watches that stand fall silent for good.
func (a *api) silence() { a.mu.Lock(); defer a.mu.Unlock(); a.mute = a.watches }

// kick ends all watches as a server that shuts down does.
func (a *api) kick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.kicked)
	a.kicked = make(chan struct{})
}

// fault sets what the server does wrong; nil for both ends it.
func (a *api) fault(answer func(http.ResponseWriter, *http.Request, bool) bool, tamper tamper) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer, a.tamper = answer, tamper
}

func (a *api) wake() { close(a.changed); a.changed = make(chan struct{}) }

// asked returns how many lists and watches were begun.
func (a *api) asked() (lists, watches int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lists, a.watches
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	namespace, ok := strings.CutPrefix(r.URL.Path, "/apis/discovery.k8s.io/v1/namespaces/")
	namespace, ok2 := strings.CutSuffix(namespace, "/endpointslices")
	q := r.URL.Query()
	selector, err := labels.Parse(q.Get("labelSelector"))
	if !ok || !ok2 || err != nil || r.Method != http.MethodGet {
		status(w, http.StatusBadRequest, meta.StatusReasonBadRequest, fmt.Sprint(r.Method, r.URL, err))
		return
	}
	watches := q.Get("watch") == "true" || q.Get("watch") == "1"
	a.mu.Lock()
	answer, kicked := a.answer, a.kicked // both of one instant: who misses a fault is kicked
	if watches {
		a.watches++
	} else {
		a.lists++
		a.versions = append(a.versions, q.Get("resourceVersion"))
	}
	a.mu.Unlock()
	if answer != nil && answer(w, r, watches) {
		return
	}
	matches := func(s *discovery.EndpointSlice) bool {
		return s != nil && s.Namespace == namespace && selector.Matches(labels.Set(s.Labels))
	}
	if watches {
		a.watch(w, r, matches, kicked)
	} else {
		a.list(w, r, matches)
	}
}

func (a *api) list(w http.ResponseWriter, r *http.Request, matches func(*discovery.EndpointSlice) bool) {
	a.mu.Lock()
	l := &discovery.EndpointSliceList{
		TypeMeta: meta.TypeMeta{Kind: "EndpointSliceList", APIVersion: "discovery.k8s.io/v1"},
		ListMeta: meta.ListMeta{ResourceVersion: strconv.FormatInt(a.version, 10)},
	}
	for _, s := range a.objects {
		if matches(s) {
			l.Items = append(l.Items, *s)
		}
	}
	a.mu.Unlock()
	c := codecFor(r)
	w.Header().Set("Content-Type", c.contentType)
	b := c.object(l)
	w.Write(b) //nolint:errcheck // the client's
}

func (a *api) watch(
	w http.ResponseWriter, r *http.Request, matches func(*discovery.EndpointSlice) bool, kicked <-chan struct{},
) {
	q := r.URL.Query()
	from, err := strconv.ParseInt(q.Get("resourceVersion"), 10, 64)
	if err != nil {
		status(w, http.StatusBadRequest, meta.StatusReasonBadRequest, err.Error())
		return
	}
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
	end := time.NewTimer(time.Duration(seconds) * time.Second)
	defer end.Stop()
	a.mu.Lock()
	gone, goneEvents, number := from < a.oldest, a.goneEvents, a.watches
	if gone {
		a.gone++
	}
	a.mu.Unlock()
	if gone && !goneEvents {
		status(w, http.StatusGone, meta.StatusReasonExpired, "too old resource version")
		return
	}
	c := codecFor(r)
	w.Header().Set("Content-Type", c.streamType)
	flush(w)
	if gone {
		b := c.event(watch.Error,
			statusOf(http.StatusGone, meta.StatusReasonExpired, "too old resource version"))
		w.Write(b) //nolint:errcheck // the client's
		return
	}
	for i := 0; ; {
		a.mu.Lock()
		news, changed, tamper, mute := a.log[i:], a.changed, a.tamper, number <= a.mute
		a.mu.Unlock()
		for _, e := range news {
			i++
			kind, s := e.kind(matches)
			if kind == "" || mute || e.version < from || e.version == from && kind != watch.Bookmark {
				continue
			}
			b, last := c.event(kind, s), false
			if tamper != nil {
				b, last = tamper(c, kind, b)
			}
			w.Write(b) //nolint:errcheck // the client's
			flush(w)
			if last {
				panic(http.ErrAbortHandler) // cuts the connection
			}
		}
		select {
		case <-changed:
		case <-kicked:
			return
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// kind is what a watch with a selector sees of a change; "" for nothing.
func (e entry) kind(matches func(*discovery.EndpointSlice) bool) (watch.EventType, *discovery.EndpointSlice) {
	is, was := matches(e.is), matches(e.was)
	switch {
	case e.is == nil && e.was == nil:
		b := &discovery.EndpointSlice{TypeMeta: meta.TypeMeta{Kind: "EndpointSlice",
			APIVersion: "discovery.k8s.io/v1"}}
		b.ResourceVersion = strconv.FormatInt(e.version, 10)
		return watch.Bookmark, b
	case is && was:
		return watch.Modified, e.is
	case is:
		return watch.Added, e.is
	case was:
		s := e.was.DeepCopy()
		s.ResourceVersion = strconv.FormatInt(e.version, 10)
		return watch.Deleted, s
	}
	return "", nil
}

func flush(w http.ResponseWriter) { w.(http.Flusher).Flush() }

func statusOf(code int32, reason meta.StatusReason, message string) *meta.Status {
	return &meta.Status{
		TypeMeta: meta.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   meta.StatusFailure, Code: code, Reason: reason, Message: message,
	}
}

// status answers with a Status, always in JSON: the client goes by the type of the content.
func status(w http.ResponseWriter, code int, reason meta.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(statusOf(int32(code), reason, message)) //nolint:errcheck // the client's
}

// pipes is a network in memory, which works in fake time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	mu    sync.Mutex
	down  bool // refuses connections
	all   []net.Conn
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	p.mu.Lock()
	client, server := net.Pipe()
	down := p.down
	p.all = append(p.all, server)
	p.mu.Unlock()
	if down {
		return nil, refused()
	}
	select {
	case p.conns <- server:
		return client, nil
	case <-p.done:
		return nil, refused()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// refuse refuses connections from now on, and cuts those that are there; or it ends that.
func (p *pipes) refuse(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down = down; down {
		for _, c := range p.all {
			c.Close() //nolint:errcheck // it is cut
		}
		p.all = nil
	}
}

// Accept is a net.Listener's, as are Close and Addr.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "pipe"} }

// serve starts the server. The client's transport and the server end with the test.
func (a *api) serve(t watched.TB) *http.Transport {
	p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: a, ErrorLog: nil}
	srv.SetKeepAlivesEnabled(true)
	ended := make(chan struct{})
	go func() { defer close(ended); srv.Serve(p) }() //nolint:errcheck // its end
	transport := &http.Transport{DialContext: p.dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		srv.Close() //nolint:errcheck // its end
		<-ended
	})
	a.net = p
	return transport
}

// codec writes objects and events as an API server does.
type codec struct {
	contentType, streamType string
	object                  func(runtime.Object) []byte
	event                   func(watch.EventType, runtime.Object) []byte
}

func codecFor(r *http.Request) codec {
	if strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		return codec{runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf + ";stream=watch", protobufOf,
			protobufEvent}
	}
	return codec{runtime.ContentTypeJSON, runtime.ContentTypeJSON, jsonOf, jsonEvent}
}

func jsonOf(o runtime.Object) []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return b
}

func jsonEvent(kind watch.EventType, o runtime.Object) []byte {
	return fmt.Appendf(nil, "{\"type\":%q,\"object\":%s}\n", kind, jsonOf(o))
}

// testScheme knows what the server sends.
var testScheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := discovery.AddToScheme(s); err != nil {
		panic(err)
	}
	meta.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}()

func protobufOf(o runtime.Object) []byte {
	var b bytes.Buffer
	if err := protobuf.NewSerializer(testScheme, testScheme).Encode(o, &b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func protobufEvent(kind watch.EventType, o runtime.Object) []byte {
	e := &meta.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: protobufOf(o)}}
	var b bytes.Buffer
	w := protobuf.LengthDelimitedFramer.NewFrameWriter(&b)
	if err := protobuf.NewRawSerializer(testScheme, testScheme).Encode(e, w); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// refused is what dialing a machine without a server gives.
func refused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}
