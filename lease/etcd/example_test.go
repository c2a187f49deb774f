package etcd_test

import (
	"context"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/quotient-go/quotient/lease"
	"github.com/quotient-go/quotient/lease/etcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Two machines run this. One of them leads, and the other one sends its clients there.
func Example() {
	config := lease.Config{
		Semaphores: map[string]lease.Semaphore{"licences": {Max: 3}},
		Grace:      30 * time.Second, // holders restore what they have with a new leader
	}
	server, err := lease.NewServer(config, lease.ServerOptions{StandBy: true})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            []string{"http://etcd-a:2379", "http://etcd-b:2379", "http://etcd-c:2379"},
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // nothing is lost

	go http.ListenAndServe(":8000", server) //nolint:errcheck,gosec // kept short
	election := &etcd.Election{
		Client: client, Server: server,
		URL:  "http://locks-1.example:8000", // this server's
		Name: "locks", TTL: 10 * time.Second, Log: slog.Default(),
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	slog.Info("the election is over", "error", election.Run(ctx))
}
