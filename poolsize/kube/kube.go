package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
)

// Slices lists and watches the EndpointSlices of one namespace, as client-go's
// clientset.DiscoveryV1().EndpointSlices(namespace) does.
type Slices interface {
	List(ctx context.Context, opts meta.ListOptions) (*discovery.EndpointSliceList, error)
	Watch(ctx context.Context, opts meta.ListOptions) (watch.Interface, error)
}

// Source is a quotient.Source that counts the endpoints of a Service. Slices and Service must be set; the
// other fields may be zero. Set the fields before the first Watch and leave them be. Then any number of
// Watches may run at once, each with a watch of its own at the API server.
type Source struct {
	// Slices reaches the API server, and the namespace of the Service. Give it a client of one namespace:
	// slices of two are an error. The API server's answers are trusted to fit into memory.
	Slices Slices
	// Service is the name of the Service. Slices belong to it by their label kubernetes.io/service-name.
	Service string
	// Pod is the name of this pod; "": what POD_NAME holds, or else HOSTNAME, when Watch begins. Set POD_NAME
	// from metadata.name. HOSTNAME is another name where the pod has a host name of its own, or its host's
	// network, or a name of more than 63 characters.
	//
	// While no endpoint is the pod of that name, this replica counts as one more than the slices hold. It is
	// at work, and not listed yet, or no longer. So with a wrong name one is counted too many for ever, which
	// is safe and slow. The name also gives the ordinal. If all three are empty the name is not known:
	// nothing is added then, and there is no ordinal.
	Pod string
	// Outside declares that this process is none of the Service's pods: nothing is added, and there is no
	// ordinal.
	Outside bool
	// ServingOnly leaves out the pods that are neither ready nor serving, but for this one. It is for
	// replicas that do nothing but what the Service sends them. Those that call others by themselves, such as
	// workers, count too few with it: a pod sends requests before it is ready.
	ServingOnly bool
	// Refresh is how often the pool is reported while nothing changes: 10 ms to 24 h; 0 is 5 s. It costs the
	// API server nothing. A limiter's HoldDown and HintMaxAge should be longer. After a failure the source
	// tries again after a fifth of it, after twice that and so on, up to twice Refresh, and up to twice as
	// long by chance.
	Refresh time.Duration
	// Silence is how long the API server may send nothing, neither a change nor a bookmark: 1 s to 24 h; 0 is
	// 2 min. Then the watch is begun again, from where it was. API servers send a bookmark about once a
	// minute. If a connection dies without a sign, the last pool is reported that much longer. A list has as
	// long for its answer, but 30 s at most.
	Silence time.Duration
}

// Defaults and bounds of the fields.
const (
	defaultRefresh = 5 * time.Second
	leastRefresh   = 10 * time.Millisecond
	defaultSilence = 2 * time.Minute
	leastSilence   = time.Second
	longest        = 24 * time.Hour
	longestList    = 30 * time.Second
)

// Watch lists and watches the slices of Service until the context ends. It reports nothing before the first
// list is there, and then the pool after each change and every Refresh. A list or a watch that fails is an
// error, as is a Service without an endpoint that counts. Watch returns the context's error when the context
// ends, once the requests that run have ended with it, and leaves no goroutine of its own. If a field is out
// of range it returns an error that names it, and reports nothing.
//
// A refusal for lack of permission names the verbs that the Role must allow. Errors wrap those of client-go,
// so that k8s.io/apimachinery/pkg/api/errors knows them.
func (s *Source) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	if err := s.validate(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	running, cancel := context.WithCancel(ctx)
	w := s.watcher(ctx)
	var informer sync.WaitGroup
	defer informer.Wait()
	defer cancel()
	informer.Go(func() { w.run(running) })
	return w.pass(ctx, report)
}

// pass passes what the informer finds on to report, and repeats it every Refresh.
func (w *watcher) pass(ctx context.Context, report func(quotient.Pool, error)) error {
	tick := time.NewTicker(w.refresh)
	defer tick.Stop()
	var last finding // what the slices hold
	known, failing := false, false
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case f := <-w.found:
			if failing = f.failed; !failing {
				last, known = f, true
			}
			report(f.pool, f.err)
		case <-tick.C:
			// After a failure a watch that stands for a Refresh shows that the server is back.
			if stands, open := w.line.stands(); known && open && (!failing || stands >= w.refresh) {
				failing = false
				report(last.pool, last.err)
			}
		}
	}
	return ctx.Err()
}

// finding is something to report: what the slices hold, or a failure to see them.
type finding struct {
	pool   quotient.Pool
	err    error
	failed bool
}

// validate reports the first field that makes no sense.
func (s *Source) validate() error {
	switch {
	case s.Slices == nil:
		return errors.New("kube: Source.Slices: nil")
	case s.Outside && s.Pod != "":
		return fmt.Errorf("kube: Source.Pod: %q, but Outside is set", s.Pod)
	}
	if bad := validation.IsDNS1123Label(s.Service); len(bad) > 0 {
		return fmt.Errorf("kube: Source.Service: %q: %s", s.Service, bad[0])
	}
	if bad := validation.IsDNS1123Subdomain(s.Pod); s.Pod != "" && len(bad) > 0 {
		return fmt.Errorf("kube: Source.Pod: %q: %s", s.Pod, bad[0])
	}
	return errors.Join(between("Refresh", s.Refresh, leastRefresh), between("Silence", s.Silence, leastSilence))
}

// between reports a duration that is out of range; 0 stands for the default.
func between(field string, d, least time.Duration) error {
	if d != 0 && (d < least || d > longest) {
		return fmt.Errorf("kube: Source.%s: %v is not between %v and %v", field, d, least, longest)
	}
	return nil
}

// or is d, or what 0 stands for.
func or(d, zero time.Duration) time.Duration {
	if d == 0 {
		return zero
	}
	return d
}

// pod is the name of this pod; "" when it is not a pod, or not known.
func (s *Source) pod() string {
	if s.Outside {
		return ""
	}
	for _, name := range []string{s.Pod, os.Getenv("POD_NAME")} {
		if name != "" {
			return name
		}
	}
	return os.Getenv("HOSTNAME")
}
