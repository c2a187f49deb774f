package front

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/tested"
)

// TestShutdown checks that waiters are ended first, work in flight is finished and Serve returns nil.
func TestShutdown(t *testing.T) {
	each(t, func(*config.Proxy) {}, func(t *testing.T, p *sectionOf) {
		drained, working := make(chan struct{}), make(chan struct{}, 2)
		s := p.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/begun" {
				_ = http.NewResponseController(w).Flush()
			}
			working <- struct{}{}
			<-drained
			fmt.Fprint(w, "done")
		}), OnShutdown(func() { close(drained) }))
		client := p.client(t)
		got := make(chan string, 2)
		for _, path := range []string{"/begun", "/"} {
			go func() {
				answer, err := client.Get(p.url(s) + path)
				if err != nil {
					got <- err.Error()
					return
				}
				defer answer.Body.Close()
				text, _ := io.ReadAll(answer.Body)
				if path == "/" && answer.ProtoMajor == 1 && !answer.Close {
					text = append(text, ", and the connection is said to stay"...)
				}
				got <- string(text)
			}()
		}
		<-working
		<-working
		idle := dial(t, s.addr) // says nothing; it must not hold the shutdown up
		waitFor(t, "it has come", func() bool { return s.State().Connections >= 2 })
		start := time.Now()
		s.end()
		for range 2 {
			if text := <-got; text != "done" {
				t.Errorf("a request in flight ended with %q", text)
			}
		}
		must(t, <-s.over)
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
	short := func(p *config.Proxy) { p.Timeouts.Shutdown = 200 * time.Millisecond }
	each(t, short, func(t *testing.T, p *sectionOf) {
		working, over := make(chan struct{}), make(chan struct{})
		s := p.serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(working)
			<-r.Context().Done()
			close(over)
		}))
		go fetch(p.client(t), "POST", p.url(s)+"/", strings.NewReader("unread")) // net/http does not see it go
		<-working
		s.end()
		must(t, <-s.over)
		select {
		case <-over:
		case <-time.After(tested.Patience):
			t.Error("the request goes on")
		}
	})
}

// upgraded opens a connection to an echo that is no longer HTTP.
func upgraded(t *testing.T, p *config.Proxy) (*running, net.Conn) {
	s := serve(t, p, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, text, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = text.WriteString(crlf("HTTP/1.1 101 Switching Protocols~Connection: Upgrade~Upgrade: echo~~"))
		_ = text.Flush()
		_, _ = io.Copy(conn, text)
	}))
	c := dial(t, s.addr)
	send(t, c, crlf(get+"Connection: Upgrade~Upgrade: echo~~"))
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

// TestUpgradedConnectionHasAnEnd checks that it ends when it has been silent for its time, and with the server.
func TestUpgradedConnectionHasAnEnd(t *testing.T) {
	for name, row := range map[string]struct {
		set func(*config.Timeouts)
		end bool
	}{
		"silence":  {func(o *config.Timeouts) { o.Stream = 300 * time.Millisecond }, false},
		"shutdown": {func(o *config.Timeouts) { o.Shutdown = 300 * time.Millisecond }, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := section()
			row.set(&p.Timeouts)
			s, c := upgraded(t, p)
			if row.end {
				s.end()
				must(t, <-s.over)
				if st := s.State(); st != (State{}) {
					t.Errorf("State() = %+v", st)
				}
			}
			if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Read() = %v, want its end", err)
			}
			waitFor(t, "its place is free", func() bool { return s.State() == State{} })
		})
	}
}

// TestNothingIsSaidToAnUpgradedConnection sends behind an upgrade what would be refused as a request.
func TestNothingIsSaidToAnUpgradedConnection(t *testing.T) {
	s, _ := upgraded(t, section())
	long := "GET " + strings.Repeat("x", maxKept) + " HTTP/1.1~"
	if text := s.said(t, crlf(get+"Connection: Upgrade~Upgrade: echo~~"+long)); strings.Contains(text, "431") {
		t.Errorf("it is told %q", text)
	}
}

// TestServeOnce checks that a second call closes its listener and returns an error. A broken listener is an
// error too.
func TestServeOnce(t *testing.T) {
	s, err := New(section(), ok, slog.New(slog.DiscardHandler))
	must(t, err)
	for _, want := range []string{"front: Serve: accept", errServed.Error()} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		if want != errServed.Error() {
			l.Close()
		}
		if err := s.Serve(context.Background(), l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Serve() = %v, want %s", err, want)
		}
		if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
			t.Error("the listener is open")
		}
	}
}

// short is a listener that finds too many files open at first.
type short struct {
	net.Listener
	failures int
}

func (l *short) Accept() (net.Conn, error) {
	if l.failures--; l.failures >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// TestErrorsThatPass checks that the server goes on behind one, which is logged.
func TestErrorsThatPass(t *testing.T) {
	var text bytes.Buffer
	s, err := New(section(), ok, slog.New(slog.NewTextHandler(&text, nil)))
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, end := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- s.Serve(ctx, &short{l, 2}) }()
	r := &running{addr: l.Addr().String()}
	if said := r.said(t, crlf(get+"Connection: close~~")); !strings.HasPrefix(said, "HTTP/1.1 200 ") {
		t.Errorf("the answer is %q", said)
	}
	end()
	must(t, <-over)
	if n := strings.Count(text.String(), "too many open files"); n != 2 {
		t.Errorf("the log has it %d times: %s", n, &text)
	}
}

// TestAdmit: connections of another listener take places of the server, are never closed for others, and give their
// places back.
func TestAdmit(t *testing.T) {
	p := section()
	p.Max.Connections = 2
	s, err := New(p, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	tested.Must(t, err)
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	tested.Must(t, err)
	l, taken := s.Admit(raw), make(chan net.Conn, 3)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			taken <- c
		}
	}()
	defer func() { _ = l.Close(); <-ended }()
	connect := func() net.Conn { return dial(t, raw.Addr().String()) }
	connect()
	connect()
	first, second := <-taken, <-taken
	_, err = connect().Read(make([]byte, 1))
	if now := s.State(); err == nil || now.Connections != 2 || now.Refused != 1 || now.Evicted != 0 {
		t.Errorf("a third: %v, %+v", err, now)
	}
	tested.Must(t, first.Close())
	connect()
	third := <-taken
	tested.Must(t, errors.Join(second.Close(), third.Close()))
	if now := s.State(); now.Connections != 0 {
		t.Errorf("%d are left", now.Connections)
	}
}
