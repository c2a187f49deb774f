package admin

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

// pipes is a listener whose connections live in memory and in the bubble's time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9090} }

// streaming is a server of event streams in a bubble.
type streaming struct {
	t     *testing.T
	h     *handler
	srv   *http.Server
	pipes *pipes
	begun time.Time
}

// startStreaming starts a server, with time-outs shorter than any stream, that ends with the bubble.
func startStreaming(t *testing.T, opts ...Option) *streaming {
	t.Helper()
	var reg quotient.Registry
	must(t, reg.Add("api", newLimiter(t)))
	opts = append(opts, BehindAuthentication(), Logger(slog.New(slog.DiscardHandler)))
	h, err := New(&reg, opts...)
	must(t, err)
	s := &streaming{t: t, h: h.api, pipes: &pipes{conns: make(chan net.Conn), closed: make(chan struct{})},
		begun: time.Now()}
	s.srv = &http.Server{Handler: h, ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second}
	go func() { _ = s.srv.Serve(s.pipes) }()
	t.Cleanup(func() { _ = s.srv.Close() })
	return s
}

// follower is a client of GET /events.
type follower struct {
	conn   net.Conn
	status int
	body   *bufio.Reader
}

// dial asks for the events and reads what comes before them.
func (s *streaming) dial() *follower { return s.dialWith("") }

// dialWith is dial with more header fields.
func (s *streaming) dialWith(fields string) *follower {
	s.t.Helper()
	here, there := net.Pipe()
	s.t.Cleanup(func() { _ = here.Close() })
	s.pipes.conns <- there
	if _, err := fmt.Fprint(here, "GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n"+fields+"\r\n"); err != nil {
		s.t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(here), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if want := "text/event-stream"; answer.StatusCode == http.StatusOK &&
		answer.Header.Get("Content-Type") != want {
		s.t.Errorf("the events are %q, want %q", answer.Header.Get("Content-Type"), want)
	}
	f := &follower{here, answer.StatusCode, bufio.NewReader(answer.Body)}
	if answer.Header.Get("Content-Encoding") != "" {
		z, err := gzip.NewReader(answer.Body)
		must(s.t, err)
		f.body = bufio.NewReader(z)
	}
	if f.status != http.StatusOK {
		return f
	}
	if lines, err := f.block(); err != nil || len(lines) != 1 || lines[0] != "retry: 2000" {
		s.t.Fatalf("the stream begins with %q, %v", lines, err)
	}
	return f
}

// block reads up to an empty line.
func (f *follower) block() (lines []string, err error) {
	for {
		line, err := f.body.ReadString('\n')
		if err != nil {
			return nil, err
		}
		if line == "\n" {
			return lines, nil
		}
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
}

// state reads the next event and requires that it has that id and holds the state of now.
func (f *follower) state(t *testing.T, id int) State {
	t.Helper()
	lines, err := f.block()
	for err == nil && len(lines) == 1 && lines[0] == ":" { // a sign of life
		lines, err = f.block()
	}
	if err != nil {
		t.Fatalf("event %d: %v", id, err)
	}
	if len(lines) != 3 || lines[0] != "event: state" || lines[1] != fmt.Sprintf("id: %d", id) {
		t.Fatalf("event %d is %.200q", id, lines)
	}
	data, ok := strings.CutPrefix(lines[2], "data: ")
	var s State
	if err := json.Unmarshal([]byte(data), &s); err != nil || !ok {
		t.Fatalf("event %d: %v: %.200q", id, err, lines[2])
	}
	return s
}

// rest reads to the end of the stream, if that comes within a thousand events.
func (f *follower) rest() {
	for range 1000 {
		if _, err := f.block(); err != nil {
			return
		}
	}
}

func (s *streaming) open() int {
	s.h.streams.mu.Lock()
	defer s.h.streams.mu.Unlock()
	return s.h.streams.open
}

// TestEventsComeInTime: one at once, then one each interval, with the state of that moment, though the
// server's own time-outs are shorter.
func TestEventsComeInTime(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 100 * time.Millisecond, time.Minute} {
		t.Run(every.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startStreaming(t, EventsEvery(every))
				l, _ := s.h.reg.Get("api")
				f := s.dial()
				for i := range 9 {
					got := f.state(t, i+1)
					if at := time.Since(s.begun); at != time.Duration(i)*every ||
						got.Time.Sub(s.begun) != at {
						t.Errorf("event %d came after %v, with the state of %v", i+1, at,
							got.Time.Sub(s.begun))
					}
					tested.Want(t, fmt.Sprintf("admitted as of event %d", i+1), got.Limiters["api"].Admitted, uint64(i))
					l.Allow("k")
				}
			})
		})
	}
}

// TestEventsAreTheState: an event holds what GET /state answers, but for what the caller may do.
func TestEventsAreTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startStreaming(t, File(brokenFile), Tables(func() []Table { return []Table{{Title: "T"}} }))
		f := s.dial()
		event, err := json.Marshal(f.state(t, 1))
		must(t, err)
		state := decode[State](t, get("/state").send(t, &Handler{s.h}))
		state.May = nil // all streams share an event
		answer, err := json.Marshal(state)
		if err != nil || string(event) != string(answer) {
			t.Errorf("the event is\n%s\nthe state (%v)\n%s", event, err, answer)
		}
	})
}

// TestEventsAreEncodedOnce: however many follow, a state is encoded once for each interval; one stream too
// many is refused; and nothing is kept when all are gone.
func TestEventsAreEncodedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startStreaming(t)
		all := make([]*follower, maxStreams)
		for i := range all {
			all[i] = s.dial()
		}
		for id := 1; id <= 5; id++ {
			for _, f := range all {
				f.state(t, id)
			}
		}
		extra := s.dial()
		tested.Want(t, fmt.Sprintf("stream %d", maxStreams+1), extra.status, http.StatusServiceUnavailable)
		_ = all[0].conn.Close()
		synctest.Wait()
		if again := s.dial(); again.status != http.StatusOK || s.open() != maxStreams {
			t.Errorf("after one has left: %d, %d open", again.status, s.open())
		}
		_ = s.srv.Close()
		synctest.Wait()
		if s.open() != 0 || s.h.streams.frame.plain != nil {
			t.Errorf("%d streams and %d bytes are left", s.open(), len(s.h.streams.frame.plain))
		}
	})
}

// TestEventsDoNotWaitForTheSlow: a client that does not read loses its stream after writePatience; the others
// do not notice.
func TestEventsDoNotWaitForTheSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startStreaming(t)
		slow := s.dial()
		fast := s.dial()
		for i := range 10 {
			fast.state(t, i+1)
			tested.Want(t, fmt.Sprintf("event %d came after", i+1), time.Since(s.begun), time.Duration(i)*time.Second)
			want := 2
			if time.Duration(i)*time.Second > writePatience {
				want = 1
			}
			synctest.Wait()
			if at := time.Duration(i) * time.Second; at != writePatience && s.open() != want {
				t.Errorf("after %v: %d streams, want %d", at, s.open(), want)
			}
		}
		if _, err := slow.body.ReadString('!'); err == nil {
			t.Error("the slow stream goes on")
		}
	})
}

func TestEventsEnd(t *testing.T) {
	ends := map[string]struct {
		end    func(s *streaming, f *follower) error
		within time.Duration
	}{
		"the client goes": {func(_ *streaming, f *follower) error { return f.conn.Close() }, 0},
		"shutdown": {func(s *streaming, f *follower) error {
			ended := make(chan error)
			go func() { ended <- s.srv.Shutdown(context.Background()) }()
			f.rest()
			return <-ended
		}, time.Second},
		"close": {func(s *streaming, _ *follower) error { return s.srv.Close() }, 0},
		"age":   {func(_ *streaming, f *follower) error { f.rest(); return nil }, streamLife},
	}
	for name, tt := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startStreaming(t)
				f := s.dial()
				f.state(t, 1)
				if err := tt.end(s, f); err != nil && !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
				synctest.Wait()
				if took := time.Since(s.begun); took > tt.within {
					t.Errorf("it took %v", took)
				}
				tested.Want(t, "open streams", s.open(), 0)
			})
		})
	}
}

// TestEventsOfSeveralServers: a handler may be served by several servers; the end of one ends its streams
// alone.
func TestEventsOfSeveralServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := startStreaming(t)
		two := &streaming{t: t, h: one.h,
			pipes: &pipes{conns: make(chan net.Conn), closed: make(chan struct{})},
			srv:   &http.Server{Handler: &Handler{one.h}}}
		go func() { _ = two.srv.Serve(two.pipes) }()
		t.Cleanup(func() { _ = two.srv.Close() })
		first, second := one.dial(), two.dial()
		for _, f := range []*follower{first, second} {
			f.state(t, 1)
		}
		tested.Want(t, "Shutdown", one.srv.Shutdown(context.Background()), nil)
		second.state(t, 2)
		tested.Want(t, "open streams", one.open(), 1)
		tested.Want(t, "servers that are remembered", len(one.h.streams.closing), 1)
	})
}

// TestEventsAreNeverSilent: however far apart events are, something comes every two seconds; where they are
// close together, nothing else does.
func TestEventsAreNeverSilent(t *testing.T) {
	for fields, every := range map[string]time.Duration{
		"": time.Minute, "Accept-Encoding: gzip\r\n": time.Minute, "Accept-Language: en\r\n": time.Second,
	} {
		want := map[time.Duration]string{time.Minute: ":", time.Second: "event: state"}[every]
		synctest.Test(t, func(t *testing.T) {
			s := startStreaming(t, EventsEvery(every))
			f := s.dialWith(fields)
			f.state(t, 1)
			for range 20 {
				before := time.Now()
				lines, err := f.block()
				if err != nil || lines[0] != want || time.Since(before) != min(every, lifeSign) {
					t.Fatalf("every %v: %q after %v: %v", every, lines, time.Since(before), err)
				}
			}
		})
	}
}

// TestEventsHaveNoBody: a body that is announced and never sent holds neither a place nor the connection. The
// server would wait for it before the first event, when the read deadline is gone.
func TestEventsHaveNoBody(t *testing.T) {
	h, _, _ := two(t)
	l, err := h.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	serving(t, h, l)
	for _, head := range []string{"Content-Length: 1000\r\n\r\nx", "Transfer-Encoding: chunked\r\n\r\n"} {
		conn, err := net.Dial("tcp", l.Addr().String())
		must(t, err)
		must(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
		if _, err := fmt.Fprint(conn, "GET /events HTTP/1.1\r\nHost: localhost\r\n"+head); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(conn)
		answer, err := http.ReadResponse(in, nil)
		must(t, err)
		_, ended := io.Copy(io.Discard, answer.Body)
		if _, err := in.ReadByte(); answer.StatusCode != http.StatusBadRequest || !answer.Close ||
			ended != nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: %d, close %v, %v, then %v", head, answer.StatusCode, answer.Close, ended, err)
		}
		_ = conn.Close()
	}
	h.api.streams.mu.Lock()
	defer h.api.streams.mu.Unlock()
	tested.Want(t, "places that are held", h.api.streams.open, 0)
}
