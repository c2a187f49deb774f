package wire

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/internal/tested"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var must = tested.Must

func want[T comparable](t testing.TB, what string, got, wanted T) {
	t.Helper()
	if got != wanted {
		t.Fatalf("%s is %v, want %v", what, got, wanted)
	}
}

// server answers on each connection as serve says; n counts them from 1.
type server struct {
	net.Listener
	opened atomic.Int32
	tls    *tls.Config
}

func listen(t testing.TB, secure bool, serve func(n int, c net.Conn, r *bufio.Reader)) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &server{Listener: l}
	if secure {
		cert, key := tested.Certificate(t, "server")
		pair, err := tls.X509KeyPair(cert, key)
		must(t, err)
		s.Listener, s.tls = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}}),
			&tls.Config{InsecureSkipVerify: true} //nolint:gosec // it is ours
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := s.Accept()
			if err != nil {
				return
			}
			n := int(s.opened.Add(1))
			go func() {
				defer c.Close()
				serve(n, c, bufio.NewReader(c))
			}()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-ended })
	return s
}

// transport is one to the server.
func (s *server) transport(t testing.TB) *Transport {
	tr := &Transport{
		Idle: time.Minute, MaxIdle: 100, MaxHead: 4 << 10, Buffer: 4 << 10, Head: tested.Patience, Continue: time.Minute,
		Dial: func(ctx context.Context) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr().String())
			if err != nil || s.tls == nil {
				return c, err
			}
			secure := tls.Client(c, s.tls)
			return secure, secure.HandshakeContext(ctx)
		},
	}
	t.Cleanup(tr.Retire)
	return tr
}

// write writes a text, whose lines end in CRLF on the wire.
func write(c io.Writer, text string) {
	_, _ = io.WriteString(c, strings.ReplaceAll(text, "\n", "\r\n"))
}

// head reads the head of a request, and returns its first line; "" at the end.
func head(r *bufio.Reader) string {
	line, _ := r.ReadString('\n')
	for rest := line; len(rest) > 2; {
		rest, _ = r.ReadString('\n')
	}
	return strings.TrimSpace(line)
}

func request(t testing.TB, method string, body io.Reader) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tested.Patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, "http://server/", body)
	must(t, err)
	return req
}

func get(t testing.TB, tr *Transport) string {
	t.Helper()
	resp, err := tr.RoundTrip(request(t, http.MethodGet, nil))
	must(t, err)
	return text(t, resp)
}

func text(t testing.TB, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	must(t, resp.Body.Close())
	return string(body)
}

// free waits until no place is taken but by idle connections, and returns their number.
func free(t testing.TB, tr *Transport) (idle int) {
	t.Helper()
	tested.Until(t, "places are free", func() bool {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		idle = len(tr.idle)
		return tr.open == idle && len(tr.waiting) == 0
	})
	return idle
}

const (
	good   = "HTTP/1.1 200 OK\nContent-Length: 4\n\ngood"
	stolen = "HTTP/1.1 200 OK\nContent-Length: 6\n\nstolen"
)

// What follows an answer, with it or later, answers no request.
func TestWhatFollowsAnAnswerIsNotOne(t *testing.T) {
	const chunked = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n4\ngood\n0\n\n"
	for _, row := range []struct {
		name, method, answer, after string
		connections                 int32
	}{
		{"nothing", "GET", good, "", 1},
		{"nothing, chunked", "GET", chunked, "", 1},
		{"an answer", "GET", good, stolen, 2},
		{"an answer behind chunks", "GET", chunked, stolen, 2},
		{"a byte", "GET", good, "x", 2},
		{"a body for HEAD", "HEAD", "HTTP/1.1 200 OK\nContent-Length: 69\n\n", stolen, 2},
		{"a body of 204", "GET", "HTTP/1.1 204 No Content\n\n", stolen, 2},
		{"a body of 304", "GET", "HTTP/1.1 304 Not Modified\nContent-Length: 69\n\n", stolen, 2},
		{"a longer body", "GET", "HTTP/1.1 200 OK\nContent-Length: 0\n\n", stolen, 2},
		{"an end that was announced", "GET", "HTTP/1.1 200 OK\nContent-Length: 4\nConnection: close\n\ngood", "", 2},
		{"an old version", "GET", "HTTP/1.0 200 OK\nContent-Length: 4\n\ngood", "", 2},
		{"an old version that knows no chunks", "GET", "HTTP/1.0 200 OK\nConnection: keep-alive\nContent-Length: 4\n" +
			"Transfer-Encoding: chunked\n\n4\ng", "", 2},
	} {
		for _, later := range []bool{false, true} {
			for _, secure := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, later %v, TLS %v", row.name, later, secure), func(t *testing.T) {
					answered, said := make(chan struct{}), make(chan struct{})
					s := listen(t, secure, func(n int, c net.Conn, r *bufio.Reader) {
						if head(r); n > 1 {
							write(c, good)
							return
						}
						if later {
							write(c, row.answer)
							<-answered
							write(c, row.after)
						} else {
							write(c, row.answer+row.after)
						}
						close(said)
						if head(r) != "" {
							write(c, good)
						}
					})
					tr := s.transport(t)
					resp, err := tr.RoundTrip(request(t, row.method, nil))
					must(t, err)
					_ = text(t, resp)
					close(answered)
					tested.Event(t, said)
					want(t, "the next answer", get(t, tr), "good")
					want(t, "connections", s.opened.Load(), row.connections)
				})
			}
		}
	}
}

// What is no answer is an error, and its connection is closed.
func TestWhatIsNoAnswer(t *testing.T) {
	for _, row := range []struct{ name, answer string }{
		{"nothing", ""},
		{"no HTTP", "SSH-2.0-OpenSSH\n"},
		{"half a head", "HTTP/1.1 200 OK\nContent-Le"},
		{"another version", "HTTP/2.0 200 OK\nContent-Length: 0\n\n"},
		{"no status", "HTTP/1.1 OK\n\n"},
		{"a status that cannot be written", "HTTP/1.1 099 What\nContent-Length: 0\n\n"},
		{"a status of two digits", "HTTP/1.1 20 OK\nContent-Length: 0\n\n"},
		{"two lengths", "HTTP/1.1 200 OK\nContent-Length: 1\nContent-Length: 2\n\nab"},
		{"a length that is none", "HTTP/1.1 200 OK\nContent-Length: -1\n\nab"},
		{"an unknown coding", "HTTP/1.1 200 OK\nTransfer-Encoding: gzip\n\nab"},
		{"a field that is none", "HTTP/1.1 200 OK\nno field\n\n"},
		{"a long head", "HTTP/1.1 200 OK\nX: " + strings.Repeat("x", 8<<10) + "\n\n"},
		{"1xx without an end", strings.Repeat("HTTP/1.1 103 Early Hints\n\n", 1000)},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := listen(t, false, func(_ int, c net.Conn, r *bufio.Reader) {
				head(r)
				write(c, row.answer)
			})
			tr := s.transport(t)
			if resp, err := tr.RoundTrip(request(t, http.MethodGet, nil)); err == nil {
				t.Fatalf("the answer is %v", resp.Status)
			}
			want(t, "idle connections", free(t, tr), 0)
			want(t, "connections", s.opened.Load(), 1)
		})
	}
}

// A server that speaks before it is asked has not answered.
func TestSpeaksFirst(t *testing.T) {
	for _, secure := range []bool{false, true} {
		spoken := make(chan struct{})
		s := listen(t, secure, func(_ int, c net.Conn, r *bufio.Reader) {
			write(c, stolen)
			spoken <- struct{}{}
			head(r)
		})
		tr := s.transport(t)
		dial := tr.Dial
		tr.Dial = func(ctx context.Context) (net.Conn, error) {
			c, err := dial(ctx)
			tested.Event(t, spoken)
			return c, err
		}
		for _, body := range []io.Reader{nil, strings.NewReader("body")} {
			_, err := tr.RoundTrip(request(t, http.MethodPost, body))
			want(t, fmt.Sprintf("the error, TLS %v", secure), err, errSpoke)
			want(t, "idle connections", free(t, tr), 0)
		}
	}
}

// A body that ends too soon is an error at its end, and one that is not read to its end ends its connection.
func TestBodiesThatEndTooSoon(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 200 OK\nContent-Length: 9\n\ngood",
		"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n4\ngood\n",
		"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n4\ngood\n0\nX: unfinished\n",
	} {
		s := listen(t, false, func(_ int, c net.Conn, r *bufio.Reader) {
			head(r)
			write(c, answer)
		})
		tr := s.transport(t)
		resp, err := tr.RoundTrip(request(t, http.MethodGet, nil))
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		want(t, "the body", string(body), "good")
		if err == nil {
			t.Fatal("there is no error")
		}
		want(t, "idle connections", free(t, tr), 0)
		_, again := resp.Body.Read(make([]byte, 1))
		want(t, "the next error", again, err)

		resp, err = tr.RoundTrip(request(t, http.MethodGet, nil))
		must(t, err)
		must(t, resp.Body.Close())
		want(t, "idle connections", free(t, tr), 0)
		_, err = resp.Body.Read(make([]byte, 1))
		want(t, "the error after Close", err, errClosed)
	}
}

// Whoever waits for more of a body has passed on what came: a read that would wait is known before.
func TestReady(t *testing.T) {
	const chunked = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n"
	for _, row := range []struct {
		answer        string
		before, after bool // the first four bytes are read
	}{
		{good, true, false},
		{"HTTP/1.1 200 OK\n\ngood", true, false},
		{"HTTP/1.1 200 OK\n\n", false, false},
		{"HTTP/1.1 200 OK\n\ngoods", true, true},
		{chunked, false, false},
		{chunked + "4", false, false},
		{chunked + "4\ngo", false, false},
		{chunked + "4\ngood\n5", false, false},
		{chunked + "4\ngood\n0\n\n", true, false},
	} {
		s := listen(t, false, func(_ int, c net.Conn, r *bufio.Reader) {
			head(r)
			write(c, row.answer)
			head(r)
		})
		resp, err := s.transport(t).RoundTrip(request(t, http.MethodGet, nil))
		must(t, err)
		ready := resp.Body.(interface{ Ready() bool }).Ready
		want(t, "ready at first with "+row.answer, ready(), row.before)
		if strings.Contains(row.answer, "good") {
			_, err = io.ReadFull(resp.Body, make([]byte, 4))
			must(t, err)
			want(t, "ready then with "+row.answer, ready(), row.after)
		}
		must(t, resp.Body.Close())
	}
}

// Connections that have ended, as all do when a server is started again, are found before a request is sent on them. A
// method that is none, with which a request could be two, is not sent.
func TestNoRequestFindsAnEnd(t *testing.T) {
	for _, secure := range []bool{false, true} {
		const clients = 20
		together, ended := make(chan struct{}), make(chan struct{})
		var ends sync.WaitGroup
		ends.Add(clients)
		s := listen(t, secure, func(n int, c net.Conn, r *bufio.Reader) {
			for n > clients && head(r) != "" {
				write(c, good)
			}
			if n <= clients {
				head(r)
				<-together
				write(c, good)
				<-ended
				_ = c.Close()
				ends.Done()
			}
		})
		tr := s.transport(t)
		ask := func(method string) error {
			req := request(t, http.MethodPost, nil)
			req.Method = method
			resp, err := tr.RoundTrip(req)
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
			}
			return err
		}
		all := func(first bool) {
			var group sync.WaitGroup
			for range clients {
				group.Go(func() {
					if err := ask(http.MethodPost); err != nil {
						t.Errorf("TLS %v: %v", secure, err)
					}
				})
			}
			if first {
				tested.Until(t, "all are open", func() bool { return s.opened.Load() == clients })
				close(together)
			}
			group.Wait()
		}
		all(true)
		want(t, "idle connections", free(t, tr), clients)
		close(ended)
		ends.Wait()
		all(false)
		if err := ask("GET / HTTP/1.1\r\n\r\nGET"); err == nil {
			t.Error("a method that is none was sent")
		}
	}
}

// endless is a body that comes to no end before it is closed.
type endless struct{ closed chan struct{} }

func (b *endless) Read(p []byte) (int, error) {
	if len(p) > 0 && b.closed != nil {
		<-b.closed
	}
	return 0, io.ErrClosedPipe
}

func (b *endless) Close() error { return nil }

// An answer may come before the end of the request. Its connection is not used again unless that end was sent.
func TestEarlyAnswer(t *testing.T) {
	s := listen(t, false, func(_ int, c net.Conn, r *bufio.Reader) {
		head(r)
		write(c, "HTTP/1.1 413 Too Large\nContent-Length: 4\n\nmuch")
		_, _ = io.Copy(io.Discard, r)
	})
	for _, expect := range []string{"", "100-continue"} {
		tr, body := s.transport(t), &endless{closed: make(chan struct{})}
		req := request(t, http.MethodPost, body)
		req.ContentLength = 1 << 40
		if expect != "" {
			req.Header.Set("Expect", expect)
		}
		ctx, cancel := context.WithCancel(req.Context())
		resp, err := tr.RoundTrip(req.WithContext(ctx))
		must(t, err)
		want(t, "the status", resp.StatusCode, http.StatusRequestEntityTooLarge)
		want(t, "the answer", text(t, resp), "much")
		cancel() // as a server does when its handler returns
		close(body.closed)
		want(t, "idle connections", free(t, tr), 0)
	}
}

// The body of a request is written while the answer is read: both directions may be open for long.
func TestBothDirections(t *testing.T) {
	s := listen(t, false, func(_ int, c net.Conn, r *bufio.Reader) {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		write(c, "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nTrailer: X-Sum\n\n")
		for line := bufio.NewScanner(req.Body); line.Scan(); {
			write(c, fmt.Sprintf("%x\n%s\n", len(line.Text()), line.Text()))
		}
		write(c, "0\nX-Sum: "+req.Trailer.Get("X-Count")+"\n\n")
		head(r)
	})
	tr := s.transport(t)
	in, out := io.Pipe()
	req := request(t, http.MethodGet, in)
	req.Trailer = http.Header{"X-Count": nil}
	resp, err := make(chan *http.Response, 1), error(nil)
	go func() {
		r, failed := tr.RoundTrip(req)
		err = failed
		resp <- r
	}()
	write(out, "one\n")
	r := tested.Event(t, resp)
	must(t, err)
	part := make([]byte, 100)
	for _, word := range []string{"one", "two", "three"} {
		if word != "one" {
			write(out, word+"\n")
		}
		n, err := io.ReadAtLeast(r.Body, part, len(word))
		must(t, err)
		want(t, "the part", string(part[:n]), word)
	}
	req.Trailer["X-Count"] = []string{"3"}
	must(t, out.Close())
	want(t, "the rest", text(t, r), "")
	want(t, "the trailer", r.Trailer.Get("X-Sum"), "3")
	want(t, "idle connections", free(t, tr), 1)
}

// A request whose client leaves ends at once, wherever it is. One that waits for a connection is not sent.
func TestClientLeaves(t *testing.T) {
	asked := make(chan string, 10)
	s := listen(t, false, func(_ int, c net.Conn, r *bufio.Reader) {
		asked <- head(r)
		write(c, "HTTP/1.1 200 OK\nContent-Length: 9\n\n")
		_, _ = io.Copy(io.Discard, r)
	})
	tr := s.transport(t)
	tr.Conns = 1
	ctx, leave := context.WithCancel(t.Context())
	resp, err := tr.RoundTrip(request(t, http.MethodGet, nil).WithContext(ctx))
	must(t, err)
	tested.Event(t, asked)

	waits, give := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := tr.RoundTrip(request(t, http.MethodGet, nil).WithContext(waits))
		ended <- err
	}()
	tested.Until(t, "the second waits", func() bool {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		return len(tr.waiting) == 1
	})
	give()
	want(t, "the error of one that waits", tested.Event(t, ended), context.Canceled)
	leave()
	_, err = resp.Body.Read(make([]byte, 1))
	want(t, "the error of the body", err, context.Canceled)
	want(t, "idle connections", free(t, tr), 0)
	_, err = tr.RoundTrip(request(t, http.MethodGet, nil).WithContext(waits))
	want(t, "the error of one that has left", err, context.Canceled)
	want(t, "requests", len(asked), 0)
}

// piped is a transport whose server answers at the end of its script, in a bubble with a clock of its own.
func piped(serve func(c net.Conn, r *bufio.Reader)) (*Transport, *atomic.Int32) {
	dialled := new(atomic.Int32)
	return &Transport{
		Idle: 4 * time.Second, MaxIdle: 2, MaxHead: 4 << 10, Buffer: 4 << 10, Head: 10 * time.Second, Continue: time.Second,
		Dial: func(context.Context) (net.Conn, error) {
			dialled.Add(1)
			own, other := net.Pipe()
			go func() {
				defer other.Close()
				serve(other, bufio.NewReader(other))
			}()
			return own, nil
		},
	}, dialled
}

// A head has its time, from the end of its request, and a body any. A time that was armed for an earlier request
// ends no later one.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, dialled := piped(func(c net.Conn, r *bufio.Reader) {
			for _, pause := range []time.Duration{9, 9, 9, 11} {
				if head(r) == "" {
					return
				}
				time.Sleep(pause * time.Second)
				write(c, "HTTP/1.1 200 OK\nContent-Length: 4\n\n")
				time.Sleep(time.Hour)
				write(c, "good")
			}
		})
		for range 3 {
			want(t, "the answer", get1(t, tr), "good")
			time.Sleep(3 * time.Second)
		}
		start := time.Now()
		_, err := tr.RoundTrip(&http.Request{Method: "GET", URL: &url.URL{Path: "/"}, Host: "server"})
		want(t, "the error", err, errLate)
		want(t, "it took", time.Since(start), 10*time.Second)
		want(t, "connections", dialled.Load(), 1)
		time.Sleep(2 * time.Hour) // the server finds out
	})
}

// get1 is get without a deadline.
func get1(t *testing.T, tr *Transport) string {
	t.Helper()
	resp, err := tr.RoundTrip(&http.Request{Method: "GET", URL: &url.URL{Path: "/"}, Host: "server"})
	must(t, err)
	return text(t, resp)
}

// Connections that have nothing to do are closed after Idle, those above MaxIdle at once, and all by Retire.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := new(atomic.Int32)
		tr, dialled := piped(func(c net.Conn, r *bufio.Reader) {
			open.Add(1)
			defer open.Add(-1)
			for head(r) != "" {
				time.Sleep(time.Millisecond)
				write(c, good)
			}
		})
		together := func(n int) {
			for range n {
				go get1(t, tr)
			}
			time.Sleep(100 * time.Millisecond)
		}
		together(3)
		want(t, "connections of three", open.Load(), 2)
		time.Sleep(2 * time.Second)
		together(1)
		time.Sleep(2 * time.Second)
		want(t, "connections, one for too long", open.Load(), 1)
		want(t, "connections that were opened", dialled.Load(), 3)
		time.Sleep(3 * time.Second)
		want(t, "connections that have long had nothing to do", open.Load(), 0)
		together(2)
		tr.Retire()
		synctest.Wait()
		want(t, "connections after Retire", open.Load(), 0)
		together(1)
		want(t, "connections after a request after it", open.Load(), 0)
	})
}

// A request that expects 100 Continue keeps its body back for a while.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bodies := make(chan time.Duration, 1)
		tr, _ := piped(func(c net.Conn, r *bufio.Reader) {
			head(r)
			start := time.Now()
			_, _ = r.Discard(4)
			bodies <- time.Since(start)
			write(c, good)
		})
		req, err := http.NewRequest(http.MethodPut, "http://server/", strings.NewReader("body"))
		must(t, err)
		req.Header.Set("Expect", "100-continue")
		resp, err := tr.RoundTrip(req)
		must(t, err)
		want(t, "the answer", text(t, resp), "good")
		want(t, "the body came after", <-bodies, time.Second)
	})
}

// Whatever requests do, connections stay within their number, every request that may be sent is, and at the end all
// places are free.
func TestPropertyPlaces(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			open, most := new(atomic.Int32), 0
			tr, _ := piped(func(c net.Conn, r *bufio.Reader) {
				open.Add(1)
				defer open.Add(-1)
				for n := 0; head(r) != ""; n++ {
					time.Sleep(time.Duration(n%3+1) * time.Second)
					write(c, []string{good, good + "x", "HTTP/1.1 200 OK\nContent-Length: 9\n\ngood", ""}[(n+int(open.Load()))%4])
					if n%4 == 3 {
						return
					}
				}
			})
			tr.Conns = rapid.IntRange(0, 3).Draw(rt, "connections")
			dial := tr.Dial
			tr.Dial = func(ctx context.Context) (net.Conn, error) {
				tr.mu.Lock()
				most = max(most, tr.open)
				tr.mu.Unlock()
				if time.Sleep(time.Second); open.Load()%3 == 2 {
					return nil, errors.New("refused")
				}
				return dial(ctx)
			}
			var running atomic.Int32
			for range rapid.IntRange(1, 30).Draw(rt, "requests") {
				wait := time.Duration(rapid.IntRange(0, 3000).Draw(rt, "before it")) * time.Millisecond
				patience := time.Duration(rapid.IntRange(1, 20000).Draw(rt, "patience")) * time.Millisecond
				time.Sleep(wait)
				running.Add(1)
				go func() {
					defer running.Add(-1)
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					defer cancel()
					req := (&http.Request{Method: "GET", URL: &url.URL{Path: "/"}, Host: "server"}).WithContext(ctx)
					if resp, err := tr.RoundTrip(req); err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
				}()
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			want(t, "requests without an end", running.Load(), 0)
			want(t, "places that are taken", tr.open, 0)
			want(t, "that wait", len(tr.waiting), 0)
			want(t, "connections", open.Load(), 0)
			if tr.Conns > 0 && most > tr.Conns {
				t.Fatalf("%d connections, want at most %d", most, tr.Conns)
			}
		})
	})
}
