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
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"time"

	"github.com/quotient-go/quotient/lease"
)

const (
	expiresIn = 1500 * time.Millisecond
	grace     = time.Second // after a start the server only restores; clients come each third of it
	work      = 300 * time.Millisecond
)

func main() {
	if err := serve(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "leases:", err)
		os.Exit(1)
	}
}

// serve runs the story on loopback.
func serve(ctx context.Context, out io.Writer) error {
	s := newService()
	server := httptest.NewServer(s)
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	return run(ctx, out, s, server.URL, transport)
}

func newService() *service {
	semaphores := map[string]lease.Semaphore{"store": {Max: 1}}
	return &service{config: lease.Config{Semaphores: semaphores, Grace: grace}}
}

// client is one process that writes to the store.
type client struct {
	name  string
	cable *cable
	lease.Client
}

// story is what all share.
type story struct {
	out     io.Writer
	began   time.Time
	service *service
	store   store
	first   uint64 // token; they start at the clock in nanoseconds
	clients []*client
}

func (s *story) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%4.1fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// run returns an error if what it shows does not hold.
func run(ctx context.Context, out io.Writer, service *service, url string, way http.RoundTripper) error {
	if err := service.start(); err != nil {
		return err
	}
	defer service.stop()
	s := &story{out: out, began: time.Now(), service: service}
	for _, name := range []string{"Ada", "Ben", "Cleo"} {
		c := &client{name: name, cable: &cable{RoundTripper: way}}
		c.URLs, c.HTTP, c.ExpiresIn = []string{url}, &http.Client{Transport: c.cable}, expiresIn
		s.clients = append(s.clients, c)
	}
	s.say("the server starts, and only restores for %v", grace)
	for _, step := range []func(context.Context) error{s.turns, s.restart, s.cutOff} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if want := []string{"Ada", "Ben", "Cleo", "Ada", "Cleo"}; !slices.Equal(s.store.lines, want) {
		return fmt.Errorf("the store has %q, want %q", s.store.lines, want)
	}
	s.say("the store has the lines of %q", s.store.lines)
	return nil
}

// lock waits for the lock of the store. It gives up after ten seconds.
func (s *story) lock(ctx context.Context, c *client) (*lease.Lease, error) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(10*time.Second, cancel) // of the wait alone: the Lease's context derives from ctx
	defer timer.Stop()
	l, err := c.Lock(ctx, "store", 1)
	if err == nil {
		if s.first == 0 {
			s.first = l.Token()
		}
		s.say("%s holds the lock, with the first token + %d", c.name, l.Token()-s.first)
	}
	return l, err
}

// turns lets each client write once.
func (s *story) turns(ctx context.Context) error {
	for _, c := range s.clients {
		l, err := s.lock(ctx, c)
		if err != nil {
			return err
		}
		time.Sleep(work)
		if err := errors.Join(s.store.write(l.Token(), c.name), l.Unlock(ctx)); err != nil {
			return err
		}
		s.say("%s has written, and unlocks", c.name)
	}
	return nil
}

// restart restarts the server while the first client holds the lock.
func (s *story) restart(ctx context.Context) error {
	l, err := s.lock(ctx, s.clients[0])
	if err != nil {
		return err
	}
	s.say("the server is restarted, and knows no peer")
	if err := s.service.start(); err != nil {
		return err
	}
	time.Sleep(grace + work)
	if err := l.Err(); err != nil {
		return err
	}
	s.say("Ada still holds the lock: it was restored")
	return errors.Join(s.store.write(l.Token(), "Ada"), l.Unlock(ctx))
}

// cutOff cuts the second client off, and lets it write late.
func (s *story) cutOff(ctx context.Context) error {
	l, err := s.lock(ctx, s.clients[1])
	if err != nil {
		return err
	}
	s.say("Ben is cut off from the server")
	s.clients[1].cable.cut.Store(true)
	<-l.Lost()
	s.say("Ben notices: %v", l.Err())
	cleos, err := s.lock(ctx, s.clients[2]) // once the server has seen Ben's lease end
	if err != nil {
		return err
	}
	if err := errors.Join(s.store.write(cleos.Token(), "Cleo"), cleos.Unlock(ctx)); err != nil {
		return err
	}
	late := s.store.write(l.Token(), "Ben, late")
	if late == nil {
		return errors.New("a late write came through")
	}
	s.say("Ben writes late all the same; %v", late)
	if err := l.Unlock(ctx); !errors.Is(err, lease.ErrLost) {
		return fmt.Errorf("unlock of a lost lease: %w", err)
	}
	return nil
}
