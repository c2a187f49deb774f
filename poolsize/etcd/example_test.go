package etcd_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/quotient-go/quotient"
	pooletcd "github.com/quotient-go/quotient/poolsize/etcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A replica counts itself in, and its limiter follows.
func Example() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            []string{"http://127.0.0.1:2379"},
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // nothing is lost

	limit := quotient.Rates(quotient.PerSecond(100))
	limiter, err := quotient.New(limit, quotient.Replicas(10), quotient.HintMaxAge(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	source := &pooletcd.Source{Client: client, Fleet: "web"}
	fmt.Println(limiter.Follow(ctx, source)) // in a goroutine of its own, usually
}
