package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/internal/setting"
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
// other fields may be zero. Set the fields before the first Watch, and do not change them afterwards. Then
// any number of Watches may run at once, each with its own watch at the API server.
type Source struct {
	// Slices is the client of the Service's namespace. It must be limited to that namespace: slices of two
	// namespaces are an error. The source trusts the API server's answers to fit into memory.
	Slices Slices
	// Service is the name of the Service. A slice belongs to it by the label kubernetes.io/service-name.
	Service string
	// Pod is the name of this pod. "" means the variable POD_NAME, or HOSTNAME without that, when Watch
	// begins. Set POD_NAME from metadata.name. HOSTNAME differs from the pod's name if the pod sets a host
	// name, uses its host's network, or has a name of more than 63 characters.
	//
	// While no endpoint is the pod of that name, the count is one more than the slices hold: this replica
	// runs, and is not listed yet or no longer. So with a wrong name the count stays one too high, which is
	// safe and makes shares smaller. The ordinal depends on the name too. If all three are empty the name
	// is not known. There is no ordinal then, and nothing is added to the count.
	Pod string
	// Outside declares that this process is not one of the Service's pods. It adds nothing to the count
	// then, and has no ordinal.
	Outside bool
	// ServingOnly leaves out the pods that are neither ready nor serving, except this one. It is for
	// replicas that act only on requests from the Service. Other replicas, such as workers, send requests
	// before they are ready: with ServingOnly they count too few.
	ServingOnly bool
	// Refresh is how often Watch repeats the pool while nothing changes: 10 ms to 24 h; 0 means 5 s. It
	// costs the API server nothing. A limiter's HoldDown and HintMaxAge should be longer.
	//
	// After a failure the source tries again after a fifth of Refresh. The pause doubles with each further
	// failure, up to twice Refresh. Each pause is up to twice as long, by chance.
	Refresh time.Duration
	// Silence is how long the API server may send neither a change nor a bookmark: 1 s to 24 h; 0 means 2
	// min. After that the source begins the watch again, from where it was. API servers send a bookmark
	// about once a minute. If a connection fails without a sign, the last pool is repeated for up to
	// Silence more. The answer to a list may take as long, but 30 s at most.
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
// list has arrived, and then the pool after each change and every Refresh. A list or a watch that fails is
// an error, and so is a Service without an endpoint that counts.
//
// When the context ends, Watch returns the context's error as soon as its running requests have ended. It leaves no
// goroutine of its own. If a field is out of range, Watch reports nothing and returns an error that names the field.
//
// An error for lack of permission names the verbs that the Role must allow. Errors wrap those of client-go,
// for k8s.io/apimachinery/pkg/api/errors.
func (s *Source) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	if err := s.Validate(); err != nil {
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
			if since := w.since.Load(); known && since != nil && (!failing || time.Since(*since) >= w.refresh) {
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

// Validate reports the first field that is wrong, as Watch does. It sends no request.
func (s *Source) Validate() error {
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
	return errors.Join(setting.Default("kube: Source.Refresh", s.Refresh, leastRefresh, longest),
		setting.Default("kube: Source.Silence", s.Silence, leastSilence, longest))
}

// pod is the name of this pod; "" when it is not a pod, or not known.
func (s *Source) pod() string {
	if s.Outside {
		return ""
	}
	return cmp.Or(s.Pod, os.Getenv("POD_NAME"), os.Getenv("HOSTNAME"))
}

// Addresses lists the slices of Service once and returns an address of each endpoint that counts, in order: IPv4 where
// an endpoint has both. It needs the permission to list, and the fields Slices, Service and ServingOnly. Pod plays no
// part. An empty list is no error.
func (s *Source) Addresses(ctx context.Context) ([]netip.Addr, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, longestList)
	defer cancel()
	list, err := s.Slices.List(ctx, meta.ListOptions{LabelSelector: s.selector()})
	if err != nil {
		return nil, s.failure("list", err)
	}
	c := &census{service: s.Service, servingOnly: s.ServingOnly, slices: map[string]slice{}}
	for i := range list.Items {
		c.take(&list.Items[i])
	}
	return c.reached(), nil
}
