package front

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// TestShutdown checks that waiters are ended first, work in flight is finished and Serve returns nil.
func TestShutdown(t *testing.T) {
	each(t, sectionFor(func(*sectionOf) {}), func(t *testing.T, p *sectionOf) {
		drained, working := make(chan struct{}), make(chan struct{}, 2)
		s := p.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			working <- struct{}{}
			<-drained
			fmt.Fprint(w, "done")
		}), OnShutdown(func() { close(drained) }))
		client := p.client(t)
		got := make(chan string, 2)
		for range 2 {
			go func() {
				r, err := client.Get(p.url(s) + "/")
				if err != nil {
					got <- err.Error()
					return
				}
				text, err := io.ReadAll(r.Body)
				r.Body.Close()
				got <- fmt.Sprint(string(text), err)
			}()
		}
		<-working
		<-working
		idle := dial(t, s.addr) // says nothing; it must not hold the shutdown up
		waitFor(t, "it has come", func() bool { return s.State().Connections >= 2 })
		start := time.Now()
		s.end()
		for range 2 {
			if text := <-got; text != "done<nil>" {
				t.Errorf("a request in flight ended with %q", text)
			}
		}
		if err := <-s.over; err != nil {
			t.Errorf("Serve() = %v", err)
		}
		if d := time.Since(start); d > s.proxy.Timeouts.Shutdown/2 {
			t.Errorf("the shutdown took %v", d)
		}
		if _, err := net.Dial("tcp", s.addr); err == nil {
			t.Error("a connection is taken after the end")
		}
		_, _ = idle.Read(make([]byte, 1))
		if n := s.State().Connections; n != 0 {
			t.Errorf("%d connections are left", n)
		}
	})
}

// TestShutdownHasAnEnd checks that what does not finish in time is ended: its context, and its connection.
func TestShutdownHasAnEnd(t *testing.T) {
	each(t, sectionFor(func(p *sectionOf) {
		p.Timeouts.Shutdown = 200 * time.Millisecond
	}), func(t *testing.T, p *sectionOf) {
		working, over := make(chan struct{}), make(chan struct{})
		s := p.serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(working)
			<-r.Context().Done()
			close(over)
		}))
		go func() {
			// net/http does not see it go
			r, _ := http.NewRequest("POST", p.url(s)+"/", strings.NewReader("unread"))
			if answer, err := p.client(t).Do(r); err == nil {
				answer.Body.Close()
			}
		}()
		<-working
		s.end()
		if err := <-s.over; err != nil {
			t.Errorf("Serve() = %v", err)
		}
		select {
		case <-over:
		case <-time.After(patience):
			t.Error("the request goes on")
		}
	})
}

// upgraded opens a connection to an echo that is no longer HTTP.
func upgraded(t *testing.T, p *sectionOf) (*running, net.Conn) {
	s := p.serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, text, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = text.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n" +
			"Upgrade: echo\r\n\r\n")
		_ = text.Flush()
		_, _ = io.Copy(conn, text)
	}))
	c := dial(t, s.addr)
	send(t, c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	in := bufio.NewReader(c)
	if r, err := http.ReadResponse(in, nil); err != nil || r.StatusCode != 101 {
		t.Fatal(r, err)
	}
	for _, text := range []string{"a\nb\rc\x00", "GET /\n", " folded\r\n"} { // none of it is looked at
		send(t, c, text)
		back := make([]byte, len(text))
		if _, err := io.ReadFull(in, back); err != nil || string(back) != text {
			t.Fatalf("the echo of %q is %q, %v", text, back, err)
		}
	}
	if st := s.State(); st.Upgraded != 1 {
		t.Errorf("State() = %+v", st)
	}
	return s, c
}

func TestUpgradedConnectionHasAnEnd(t *testing.T) {
	p := &sectionOf{Proxy: section()}
	p.Timeouts.Stream = 300 * time.Millisecond
	s, c := upgraded(t, p)
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read() = %v, want its end", err)
	}
	waitFor(t, "its place is free", func() bool { return s.State() == State{} })
}

func TestShutdownEndsUpgradedConnections(t *testing.T) {
	p := &sectionOf{Proxy: section()}
	p.Timeouts.Shutdown = 300 * time.Millisecond
	s, c := upgraded(t, p)
	s.end()
	if err := <-s.over; err != nil {
		t.Errorf("Serve() = %v", err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read() = %v: the connection is open", err)
	}
	if st := s.State(); st != (State{}) {
		t.Errorf("State() = %+v", st)
	}
}

// TestServeOnce checks that a second call closes its listener and returns an error. A broken listener is an
// error too.
func TestServeOnce(t *testing.T) {
	s, err := New(section(), ok, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	l.Close()
	if err := s.Serve(context.Background(), l); err == nil ||
		!strings.HasPrefix(err.Error(), "front: Serve: ") {
		t.Errorf("Serve() = %v", err)
	}
	l, _ = net.Listen("tcp", "127.0.0.1:0")
	if err := s.Serve(context.Background(), l); err == nil ||
		!strings.Contains(err.Error(), errServed.Error()) {
		t.Errorf("Serve() = %v", err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the listener is open")
	}
}
