package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/quotient-go/quotient/internal/rest"
)

// watcher is one Watch. Its reflector keeps the census; all that it finds goes through found.
type watcher struct {
	*Source
	refresh, silence time.Duration
	selector         string
	census           *census
	found            chan finding
	since            atomic.Pointer[time.Time] // when the server answered the watch that stands; nil: none does
	logger           klog.Logger               // the caller's, for the requests

	mu    sync.Mutex
	ended bool           // no list begins any more
	lists sync.WaitGroup // that run
}

func (s *Source) watcher(ctx context.Context) *watcher {
	return &watcher{
		Source:   s,
		refresh:  cmp.Or(s.Refresh, defaultRefresh),
		silence:  cmp.Or(s.Silence, defaultSilence),
		selector: s.selector(),
		found:    make(chan finding),
		logger:   klog.FromContext(ctx),
	}
}

// noStreams keeps the reflector from asking for a list as a stream. See the package's comment.
type noStreams struct{}

// IsWatchListSemanticsUnSupported is what client-go asks for.
func (noStreams) IsWatchListSemanticsUnSupported() bool { return true }

// run lists and watches until the context ends. The reflector's own log stays silent: all it could write is
// reported as an error, and it would write to the standard error, whatever the program logs to.
func (w *watcher) run(ctx context.Context) {
	w.census = &census{
		service: w.Service, own: w.pod(), servingOnly: w.ServingOnly, slices: map[string]slice{},
	}
	w.census.changed = func(f finding) { w.send(ctx, f) }
	silent := klog.New(nil)
	source := cache.ToListWatcherWithWatchListSemantics(
		&cache.ListWatch{ListWithContextFunc: w.list, WatchFuncWithContext: w.watch}, noStreams{})
	first, longest := w.refresh/5, 2*w.refresh
	r := cache.NewReflectorWithOptions(source, &discovery.EndpointSlice{}, w.census, cache.ReflectorOptions{
		Logger: &silent,
		Name:   "quotient/kube",
		// For a watch that is refused with 429, or not even connected.
		Backoff: &wait.Backoff{Duration: first, Cap: longest, Factor: 2, Jitter: 1, Steps: 10},
	})
	for pause := first; ctx.Err() == nil; pause = min(2*pause, longest) {
		began := time.Now()
		// Its result has been reported by list or watch.
		r.ListAndWatchWithContext(klog.NewContext(ctx, silent)) //nolint:errcheck // see above
		if time.Since(began) > longest {
			pause = first
		}
		rest.For(ctx, wait.Jitter(pause, 1))
	}
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.lists.Wait() // the reflector lists in a goroutine of its own, and does not wait for it
}

func (w *watcher) send(ctx context.Context, f finding) {
	select {
	case w.found <- f:
	case <-ctx.Done():
	}
}

// fail reports that something cannot be seen.
func (w *watcher) fail(ctx context.Context, doing string, err error) {
	if ctx.Err() != nil {
		return // the end, not a failure
	}
	w.send(ctx, finding{err: w.failure(doing, err), failed: true})
}

func (s *Source) failure(doing string, err error) error {
	err = fmt.Errorf("kube: Service %s: %s: %w", s.Service, doing, short{err})
	if apierrors.IsForbidden(err) {
		const role = "a Role must allow list and watch of endpointslices in the API group discovery.k8s.io"
		err = fmt.Errorf("%w: %s", err, role)
	}
	return err
}

// selector selects the slices of the Service.
func (s *Source) selector() string { return labels.Set{discovery.LabelServiceName: s.Service}.String() }

// short is an error whose text is no longer than longestText: some hold what the server has sent.
type short struct{ err error }

const longestText = 500

func (s short) Error() string {
	text := s.err.Error()
	if len(text) > longestText {
		return text[:longestText] + " ..."
	}
	return text
}

func (s short) Unwrap() error { return s.err }

// errEmpty is a watch that ends as soon as it has begun. Client-go gives one where a connection breaks before
// the answer, and no error.
var errEmpty = errors.New("it ended before anything came")

const shortWatch = time.Second

// errSilent is why a request was given up.
var errSilent = errors.New("no answer")

// list is the reflector's way to a list.
func (w *watcher) list(ctx context.Context, opts meta.ListOptions) (runtime.Object, error) {
	w.mu.Lock()
	if w.ended || ctx.Err() != nil {
		w.mu.Unlock()
		return nil, context.Canceled
	}
	w.lists.Add(1)
	w.mu.Unlock()
	defer w.lists.Done()

	opts.LabelSelector = w.selector
	opts.Limit = 0 // a few slices; a limit would send the API server to etcd for all of the namespace's
	if opts.ResourceVersion == "0" {
		opts.ResourceVersion = "" // the newest, not what a cache happens to hold: it may lack a replica
	}
	patience := min(w.silence, longestList)
	bound, cancel := context.WithTimeoutCause(klog.NewContext(ctx, w.logger), patience, errSilent)
	defer cancel()
	l, err := w.Slices.List(bound, opts)
	switch {
	case err != nil && bound.Err() != nil && ctx.Err() == nil:
		err = fmt.Errorf("%w within %v", errSilent, patience)
	case err == nil && l.ResourceVersion == "":
		err = errors.New("the answer is no list: it has no resourceVersion")
	}
	if err != nil {
		if opts.ResourceVersion == "" || !gone(err) { // else the reflector asks for the newest at once
			w.fail(ctx, "list", err)
		}
		return nil, err
	}
	return l, nil
}

// gone reports whether the API server has nothing of the version that it was asked for.
func gone(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, meta.CauseTypeResourceVersionTooLarge)
}

// watch is the reflector's way to a watch.
func (w *watcher) watch(ctx context.Context, opts meta.ListOptions) (watch.Interface, error) {
	opts.LabelSelector = w.selector
	bound, cancel := context.WithCancelCause(klog.NewContext(ctx, w.logger))
	late := time.AfterFunc(w.silence, func() { cancel(errSilent) })
	inner, err := w.Slices.Watch(bound, opts)
	if !late.Stop() && err == nil {
		inner.Stop()
		err = errSilent
	}
	if err != nil {
		if errors.Is(context.Cause(bound), errSilent) {
			err = fmt.Errorf("%w within %v", errSilent, w.silence)
		}
		cancel(nil)
		if !gone(err) { // else the reflector lists again
			w.fail(ctx, "watch", err)
		}
		return nil, err
	}
	now := time.Now()
	w.since.Store(&now)
	v := &view{
		w: w, inner: inner, events: make(chan watch.Event),
		stop: make(chan struct{}), ended: make(chan struct{}),
	}
	go func() {
		defer close(v.ended)
		defer cancel(nil)
		v.run(ctx)
	}()
	return v, nil
}

// view is a watch that ends when the server is silent, and that reports its failures.
type view struct {
	w           *watcher
	inner       watch.Interface
	events      chan watch.Event
	once        sync.Once
	stop, ended chan struct{}
}

// ResultChan is where the events come.
func (v *view) ResultChan() <-chan watch.Event { return v.events }

// Stop ends the watch, and waits for its goroutine.
func (v *view) Stop() {
	v.once.Do(func() { close(v.stop) })
	<-v.ended
}

func (v *view) run(ctx context.Context) {
	defer close(v.events)
	defer func() {
		v.w.since.Store(nil)
		v.inner.Stop()
		for range v.inner.ResultChan() { // until its goroutine closes it
		}
	}()
	began, empty := time.Now(), true
	silence := time.NewTimer(v.w.silence)
	defer silence.Stop()
	for {
		var e watch.Event
		var open bool
		select {
		case <-v.stop:
			return
		case <-silence.C:
			return // the reflector goes on from where this watch was
		case e, open = <-v.inner.ResultChan():
		}
		if !open {
			if empty && time.Since(began) < shortWatch {
				v.w.fail(ctx, "watch", errEmpty)
			}
			return
		}
		empty = false
		e = v.check(ctx, e)
		select {
		case <-v.stop:
			return
		case v.events <- e:
		}
		silence.Reset(v.w.silence)
	}
}

// check reports an event that is a failure. An answer that holds no slice becomes a failure: the reflector
// would go on without it, and its content would be lost.
func (v *view) check(ctx context.Context, e watch.Event) watch.Event {
	if _, ok := e.Object.(*discovery.EndpointSlice); !ok && e.Type != watch.Error {
		e = watch.Event{Type: watch.Error, Object: &meta.Status{
			Status: meta.StatusFailure,
			Code:   http.StatusInternalServerError, Reason: meta.StatusReasonInternalError,
			Message: fmt.Sprintf("an event %s that holds no EndpointSlice but %T", e.Type, e.Object),
		}}
	}
	if e.Type == watch.Error {
		v.w.since.Store(nil)
		if err := apierrors.FromObject(e.Object); !gone(err) {
			v.w.fail(ctx, "watch", err)
		}
	}
	return e
}
