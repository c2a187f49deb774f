package pods_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/admin/pods"
)

// How many calls each pod has refused.
func Example() {
	var urls []string
	for i := range 2 {
		var limiters quotient.Registry
		api := quotient.Must(limiters.Limiter("api", quotient.Rates(quotient.PerHour(1))))
		for range 2 + i {
			api.Allow("customer-7")
		}
		page, err := admin.New(&limiters, admin.Replica(fmt.Sprint("api-", i)))
		if err != nil {
			fmt.Println(err)
			return
		}
		server := httptest.NewServer(page)
		defer server.Close()
		urls = append(urls, server.URL)
	}

	list, err := pods.Parse(urls[0]+","+urls[1], nil) // in a cluster: "dns:api.prod.svc.cluster.local:9091"
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	all, err := list.Pods(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: list.Transport(nil)}
	refused := func(ctx context.Context, p pods.Pod) (who pods.Process, n uint64, err error) {
		api, err := admin.NewClient(p.URL, admin.HTTPClient(client))
		if err != nil {
			return who, 0, err
		}
		s, err := api.State(ctx)
		return pods.Process{Replica: s.Process.Replica, Started: s.Process.Started}, s.Limiters["api"].Refused["rate"], err
	}
	for _, a := range pods.Ask(ctx, all, 5*time.Second, refused) {
		fmt.Println(a.Name, a.Value, a.Err)
	}
	client.CloseIdleConnections()
	// Output:
	// api-0 1 <nil>
	// api-1 2 <nil>
}
