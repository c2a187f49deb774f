package lease_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/quotient-go/quotient/lease"
)

func serve(semaphores map[string]lease.Semaphore) (client *lease.Client, stop func()) {
	s, err := lease.NewServer(lease.Config{Semaphores: semaphores}, lease.ServerOptions{})
	if err != nil {
		panic(err)
	}
	web := httptest.NewServer(s)
	return &lease.Client{URLs: []string{web.URL}, HTTP: web.Client()}, func() {
		for s.Stats().Peers > 0 { // a wait that was cancelled gives its place back a little later
			time.Sleep(time.Millisecond)
		}
		s.Close()
		web.Close()
	}
}

func work(ctx context.Context) error { return ctx.Err() }

// The wait alone can have an end: a context with a deadline would end the work as well.
func ExampleClient_Lock_wait() {
	client, stop := serve(map[string]lease.Semaphore{"reports": {Max: 1}})
	defer stop()

	first, err := client.Lock(context.Background(), "reports", 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	timer := time.AfterFunc(50*time.Millisecond, cancel)
	_, err = client.Lock(ctx, "reports", 1)
	timer.Stop()
	fmt.Println(errors.Is(err, context.Canceled), first.Unlock(context.Background()))
	// Output: true <nil>
}

// A lock under the context of another one must be of a lower level, so that two clients cannot wait for each other.
func ExampleClient_Lock_levels() {
	client, stop := serve(map[string]lease.Semaphore{"table": {Max: 1, Level: 1}, "row": {Max: 1}})
	defer stop()

	ctx := context.Background()
	row, err := client.Lock(ctx, "row", 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.Lock(row.Context(), "table", 1)
	var level *lease.LevelError
	if errors.As(err, &level) {
		fmt.Println("held level", level.Held, "requested level", level.Requested)
	}
	fmt.Println(row.Unlock(ctx))
	// Output:
	// held level 0 requested level 1
	// <nil>
}

// Fencing makes a holder harmless that does not know that its lease has ended.
func ExampleLease_Token() {
	client, stop := serve(map[string]lease.Semaphore{"file": {Max: 1}})
	defer stop()

	newest := uint64(0)
	write := func(token uint64) int { // at the resource
		if token < newest {
			return http.StatusConflict
		}
		newest = token
		return http.StatusOK
	}
	var tokens []uint64
	for range 2 {
		l, err := client.Lock(context.Background(), "file", 1)
		if err != nil {
			fmt.Println(err)
			return
		}
		tokens = append(tokens, l.Token())
		_ = l.Unlock(context.Background())
	}
	fmt.Println(write(tokens[1]), write(tokens[0]))
	// Output: 200 409
}

// A server with one semaphore, and a client that holds it while it works. A lock is a lease: it is kept alive until
// Unlock, and its context ends when it is lost.
func Example() {
	server, err := lease.NewServer(lease.Config{
		Semaphores: map[string]lease.Semaphore{"reports": {Max: 2}},
	}, lease.ServerOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	go http.ListenAndServe(":8000", server) //nolint:errcheck,gosec // kept short

	ctx := context.Background()
	client := &lease.Client{URLs: []string{"http://localhost:8000"}}
	l, err := client.Lock(ctx, "reports", 1) // waits until it is held
	if err != nil {
		log.Fatal(err)
	}
	err = work(l.Context()) // this context ends when the lease is lost
	fmt.Println(err, l.Unlock(ctx))
}

// A Table is given the time: here two peers want the same lock, and the second one gets it in the end.
func ExampleTable() {
	now := time.Now()
	c := lease.Config{Semaphores: map[string]lease.Semaphore{"A": {Max: 1}}}
	table, err := lease.NewTable(c, lease.Tokens{Next: 1, End: lease.EndOfTokens}, now)
	if err != nil {
		panic(err)
	}
	for id := range uint64(2) {
		if err := table.AddPeer(id, time.Minute, now); err != nil {
			panic(err)
		}
		token, err := table.Acquire(id, "A", 1, now)
		fmt.Println("token", token, "error", err)
	}
	fmt.Println(table.Release(0, "A", now), table.Changed())
	// Output:
	// token 1 error <nil>
	// token 0 error <nil>
	// <nil> [1]
}
