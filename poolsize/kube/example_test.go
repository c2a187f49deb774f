package kube_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/kube"
	typed "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
)

// A limiter follows the endpoints of a Service, in a pod, by the pod's ServiceAccount.
func ExampleInCluster() {
	limit := quotient.Rates(quotient.PerSecond(100))
	limiter, err := quotient.New(limit, quotient.AwaitPool(time.Minute),
		quotient.Replicas(10))
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { log.Print(watchPods(context.Background(), limiter)) }()
}

// watchPods has what README.md shows, to the letter.
func watchPods(ctx context.Context, limiter *quotient.Limiter) error {
	source, err := kube.InCluster("api") // the Service, in this pod's namespace
	if err != nil {
		return err
	}
	return limiter.Follow(ctx, source)
}

// A client of the program's own, or the part of one that knows EndpointSlices. It is clientset.DiscoveryV1()
// where there is a clientset.
func ExampleSource() {
	slices, err := typed.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"}) // an API server that is away
	if err != nil {
		fmt.Println(err)
		return
	}
	source := &kube.Source{
		Slices:  slices.EndpointSlices("prod"),
		Service: "api",
		Pod:     "api-0",
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = source.Watch(ctx, func(p quotient.Pool, err error) { // or limiter.Follow(ctx, source)
		fmt.Println(p.Replicas, err != nil)
		cancel()
	})
	fmt.Println(err)
	// Output:
	// 0 true
	// context canceled
}
