// Command leases shows a lease server and three clients that write to one store in turn.
//
//	go run ./examples/leases
//
// The server is restarted while a client holds the lock, and the client restores it. Then a client is cut off
// from the server. It notices that before its lease ends, but a part of it continues and writes late. The
// store refuses the write, because a newer holder has written. store.go is the part to copy. The program ends
// by itself in about five seconds. The exit status is 1 when one of these does not hold.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient/lease"
)

const (
	expiresIn = 1500 * time.Millisecond
	grace     = time.Second // after a start the server only restores; clients come each third of it
	work      = 300 * time.Millisecond
)

func main() {
	fmt.Println("Look at the tokens, which never go back, at the lock that outlives the server's restart, and at Ben's late\n" +
		"write, which the store refuses.")
	s := &service{}
	server := httptest.NewServer(s) // until the program ends
	if err := run(context.Background(), os.Stdout, s, server.URL, http.DefaultTransport); err != nil {
		fmt.Fprintln(os.Stderr, "leases:", err)
		os.Exit(1)
	}
}

// service is a lease server that can be restarted. The server's state is gone then.
type service struct{ atomic.Pointer[lease.Server] }

func (s *service) start() error {
	config := lease.Config{Semaphores: map[string]lease.Semaphore{"store": {Max: 1}}, Grace: grace}
	server, err := lease.NewServer(config, lease.ServerOptions{})
	if err != nil {
		return err
	}
	if last := s.Swap(server); last != nil {
		last.Close()
	}
	return nil
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.Load().ServeHTTP(w, r) }

// client is one process that writes to the store. Its cable to the server can be cut.
type client struct {
	http.RoundTripper
	lease.Client

	cut  atomic.Bool
	name string
}

func (c *client) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.cut.Load() {
		return nil, errors.New("the cable is cut")
	}
	return c.RoundTripper.RoundTrip(r)
}

// story is what all share.
type story struct {
	store

	out   io.Writer
	began time.Time
	first uint64 // token; they start at the clock in nanoseconds
}

func (s *story) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%4.1fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// run returns an error if what it shows does not hold.
func run(ctx context.Context, out io.Writer, service *service, url string, way http.RoundTripper) error {
	if err := service.start(); err != nil {
		return err
	}
	defer func() { service.Load().Close() }()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s := &story{out: out, began: time.Now()}
	var clients []*client
	for _, name := range []string{"Ada", "Ben", "Cleo"} {
		c := &client{name: name, RoundTripper: way}
		c.URLs, c.HTTP, c.ExpiresIn = []string{url}, &http.Client{Transport: c}, expiresIn
		clients = append(clients, c)
	}
	s.say("the server starts, and only restores for %v", grace)
	ada, ben, cleo := clients[0], clients[1], clients[2]
	works := func(*lease.Lease) error { time.Sleep(work); return nil }
	for _, c := range clients {
		if err := s.turn(ctx, c, works); err != nil {
			return err
		}
	}
	if err := s.restart(ctx, service, ada); err != nil {
		return err
	}
	late := s.turn(ctx, ben, func(l *lease.Lease) error {
		s.say("Ben is cut off from the server")
		ben.cut.Store(true)
		<-l.Lost()
		s.say("Ben notices: %v", l.Err())
		return s.turn(ctx, cleo, works) // once the server has seen Ben's lease end
	})
	if !errors.Is(late, lease.ErrLost) {
		return fmt.Errorf("unlock of a lost lease: %w", late)
	}
	if want := []string{"Ada", "Ben", "Cleo", "Ada", "Cleo"}; !slices.Equal(s.lines, want) {
		return fmt.Errorf("the store has %q, want %q", s.lines, want)
	}
	s.say("the store has the lines of %q", s.lines)
	return nil
}

// restart has a client hold the lock while the server starts anew.
func (s *story) restart(ctx context.Context, service *service, c *client) error {
	return s.turn(ctx, c, func(l *lease.Lease) error {
		s.say("the server is restarted, and knows no peer")
		err := service.start()
		time.Sleep(grace + work)
		s.say("%s still holds the lock: it was restored", c.name)
		return errors.Join(err, l.Err())
	})
}

// turn locks the store, lets happen what happens meanwhile, writes, and unlocks.
func (s *story) turn(ctx context.Context, c *client, meanwhile func(*lease.Lease) error) error {
	l, err := c.Lock(ctx, "store", 1)
	if err != nil {
		return err
	}
	s.first = cmp.Or(s.first, l.Token())
	s.say("%s holds the lock, with the first token + %d", c.name, l.Token()-s.first)
	if err := meanwhile(l); err != nil {
		return err
	}
	err = s.write(l.Token(), c.name)
	if err == nil {
		s.say("%s has written, and unlocks", c.name)
	} else {
		s.say("%s writes late all the same: %v", c.name, err)
	}
	return errors.Join(err, l.Unlock(ctx))
}
