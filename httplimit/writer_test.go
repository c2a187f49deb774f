package httplimit

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/policy"
)

// Each wrapper has exactly the abilities of the writer under it, for every kind of writer.
func TestWrapperHasTheAbilitiesOfItsWriter(t *testing.T) {
	tested.Want(t, "shapes", len(shapes), 16)
	for bits, shape := range shapes {
		inner := shape(&tracker{inner: httptest.NewRecorder()})
		if got, over := abilities(inner), abilities(wrap(&tracker{inner: inner})); got != bits || over != bits {
			t.Errorf("shape %04b has the abilities %04b, and a wrapper over it %04b", bits, got, over)
		}
	}
}

func TestWriterIsPassedThroughUnwrapped(t *testing.T) {
	var got http.ResponseWriter
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { got = w })
	w := httptest.NewRecorder()
	Middleware(limiter(t, oneSlot), Path())(next).ServeHTTP(w, get(t, "/"))
	tested.Want(t, "the handler's writer", got, http.ResponseWriter(w))
	learner, _ := learning(t)
	Middleware(learner, Path())(next).ServeHTTP(w, get(t, "/"))
	unwrapped := got.(interface{ Unwrap() http.ResponseWriter }).Unwrap()
	tested.Want(t, "what Unwrap leads to", unwrapped, http.ResponseWriter(w))
}

// full is a writer that can do everything and writes down what was called.
type full struct {
	*httptest.ResponseRecorder
	calls []string
	err   error
	conn  net.Conn
}

func (f *full) FlushError() error { f.calls = append(f.calls, "flush"); return f.err }

func (f *full) Push(string, *http.PushOptions) error {
	f.calls = append(f.calls, "push")
	return f.err
}

func (f *full) ReadFrom(r io.Reader) (int64, error) {
	f.calls = append(f.calls, "readfrom")
	return io.Copy(f.ResponseRecorder, r)
}

func (f *full) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	f.calls = append(f.calls, "hijack")
	return f.conn, nil, f.err
}

func (f *full) SetReadDeadline(time.Time) error { f.calls = append(f.calls, "deadline"); return nil }

func TestWrapperPassesCallsOn(t *testing.T) {
	broken := errors.New("broken")
	inner := &full{ResponseRecorder: httptest.NewRecorder(), err: broken}
	l, heard := learning(t)
	h := Middleware(l, Path())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader("text")); n != 4 || err != nil {
			t.Errorf("ReadFrom: %d, %v", n, err)
		}
		w.WriteHeader(http.StatusTooManyRequests) // too late
		w.(http.Flusher).Flush()
		control := http.NewResponseController(w)
		for name, err := range map[string]error{
			"Flush": control.Flush(), "Push": w.(http.Pusher).Push("/", nil),
			"Hijack": second(control.Hijack()),
		} {
			tested.Is(t, name, err, broken)
		}
		tested.Want(t, "SetReadDeadline", control.SetReadDeadline(time.Now()), nil)
		w.Header().Set("Trailer", "x")
	}))
	h.ServeHTTP(inner, get(t, "/"))
	if got := strings.Join(inner.calls, " "); strings.Count(got, "flush") != 2 ||
		!strings.Contains(got, "push") || !strings.Contains(got, "hijack") ||
		!strings.Contains(got, "deadline") {
		t.Errorf("the writer was called for %q", got)
	}
	if inner.Body.String() != "text" || inner.Header().Get("Trailer") != "x" {
		t.Errorf("body %q, header %v", inner.Body, inner.Header())
	}
	heard.learned(t, policy.Feedback{Outcome: policy.Success})
	idle(t, l) // the hijack failed: nothing holds the permit
}

func second(_ net.Conn, _ *bufio.ReadWriter, err error) error { return err }

// onlyUnwrap is a writer of a logging middleware as they are common today.
type onlyUnwrap struct{ http.ResponseWriter }

func (o onlyUnwrap) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// upgrade asks to change to another protocol.
func upgrade(t testing.TB) *http.Request {
	r := get(t, "/")
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	return r
}

func TestHijackedConnectionHoldsItsPermit(t *testing.T) {
	learner, heard := learning(t)
	for name, l := range map[string]*quotient.Limiter{"fixed": limiter(t, oneSlot), "learning": learner} {
		for _, deep := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				here, there := net.Pipe()
				defer there.Close()
				var w http.ResponseWriter = &full{ResponseRecorder: httptest.NewRecorder(), conn: here}
				if deep {
					w = onlyUnwrap{onlyUnwrap{w}}
				}
				var taken net.Conn
				Middleware(l, Path())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					taken, _, _ = http.NewResponseController(w).Hijack()
				})).ServeHTTP(w, upgrade(t))
				inFlight(t, l, 1)
				tested.Want(t, "NetConn", taken.(interface{ NetConn() net.Conn }).NetConn(), here)
				for range 2 {
					_ = taken.Close()
				}
				idle(t, l)
			})
		}
	}
	heard.learned(t, gives(policy.Success, 0), gives(policy.Success, 0)) // as of any other answers
}

// The shim for deep hijacks leads on to the writers below, and does not hide
// that there is none.
func TestUnwrapEndsSomewhere(t *testing.T) {
	l := limiter(t, oneSlot)
	h := Middleware(l, Path())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		control := http.NewResponseController(w)
		tested.Is(t, "EnableFullDuplex", control.EnableFullDuplex(), http.ErrNotSupported)
		if _, _, err := control.Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Hijack: %v, want not supported", err)
		}
	}))
	h.ServeHTTP(onlyUnwrap{httptest.NewRecorder()}, upgrade(t))
	idle(t, l)
	h = Middleware(l, Path())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		tested.Want(t, "SetReadDeadline", http.NewResponseController(w).SetReadDeadline(time.Now()), nil)
	}))
	h.ServeHTTP(onlyUnwrap{&full{ResponseRecorder: httptest.NewRecorder()}}, upgrade(t))
	idle(t, l)
}

func TestHijackedConnectionLosesItsPermitAfterStreamLifetime(t *testing.T) {
	for lifetime, opts := range map[time.Duration][]Option{
		defaultStreamLifetime: nil, time.Minute: {StreamLifetime(time.Minute)},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, oneSlot)
			here, there := net.Pipe()
			defer there.Close()
			var conn net.Conn
			handle(l, func(w http.ResponseWriter, _ *http.Request) { conn, _, _ = w.(http.Hijacker).Hijack() },
				opts...).ServeHTTP(&full{ResponseRecorder: httptest.NewRecorder(), conn: here}, upgrade(t))
			time.Sleep(lifetime - 1)
			if _, d := l.TryAcquire("/"); d.OK {
				t.Errorf("the permit was given back before %v", lifetime)
			}
			time.Sleep(time.Nanosecond)
			permit, d := l.TryAcquire("/")
			_ = conn.Close()
			if got := l.Stats().InFlight; !d.OK || got != 1 {
				t.Errorf("%v after %v; in flight %d, want 1: closing late took the next one's slot", d, lifetime, got)
			}
			permit.Release()
		})
	}
}

func TestHeldConnKeepsCloseWrite(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	if _, has := holdConn(here, admission{}).(closeWriter); has {
		t.Error("a connection without CloseWrite got one")
	}
	half := &halfCloser{Conn: here}
	if err := holdConn(half, admission{}).(closeWriter).CloseWrite(); err != nil || half.closed != 1 {
		t.Errorf("CloseWrite: %v, called %d times", err, half.closed)
	}
	_ = here.Close()
}

type halfCloser struct {
	net.Conn
	closed int
}

func (h *halfCloser) CloseWrite() error { h.closed++; return nil }

// eachServer runs a test over real connections: HTTP/1.1 and HTTP/2, with and
// without a policy that makes Middleware wrap the writer.
func eachServer(t *testing.T, test func(t *testing.T, s *httptest.Server, l *quotient.Limiter, wrapped bool,
	set func(http.HandlerFunc))) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for _, wrapped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s wrapped=%v", proto, wrapped), func(t *testing.T) {
				l, heard := limiter(t, oneSlot), (*spy)(nil)
				if wrapped {
					l, heard = learning(t)
				}
				var next http.HandlerFunc
				s := httptest.NewUnstartedServer(Middleware(l,
					Path())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next(w, r) })))
				s.EnableHTTP2 = proto == "HTTP/2.0"
				s.StartTLS()
				defer s.Close()
				test(t, s, l, wrapped, func(h http.HandlerFunc) { next = h })
				s.Close() // waits for the handlers
				idle(t, l)
				if wrapped {
					heard.learned(t, policy.Feedback{Outcome: policy.Success})
				}
			})
		}
	}
}

// exchange sends one request to a server with a deadline.
func exchange(t *testing.T, s *httptest.Server, trace *httptrace.ClientTrace) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(httptrace.WithClientTrace(t.Context(), trace), soon)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
	tested.Must(t, err)
	resp, err := s.Client().Do(req)
	tested.Must(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// Over real connections parts of an answer arrive when they are flushed, and informational answers and trailers
// do. A handler finds the same abilities of its writer with the wrapper.
func TestRealWriters(t *testing.T) {
	eachServer(t, func(t *testing.T, s *httptest.Server, l *quotient.Limiter, wrapped bool,
		set func(http.HandlerFunc)) {
		read := make(chan string)
		set(func(w http.ResponseWriter, r *http.Request) {
			sameAbilities(t, w, r, wrapped)
			w.Header().Set("Trailer", "Declared")
			w.Header().Set("Link", "</style.css>")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, "first")
			w.(http.Flusher).Flush()
			tested.Want(t, "what the client read before the end", receive(t, read, "reading"), "first")
			_, err := io.Copy(w, strings.NewReader("second")) // through ReadFrom where there is one
			err = errors.Join(err, http.NewResponseController(w).Flush())
			tested.Want(t, "what is written", err, nil)
			tested.Want(t, "what the client read before the end", receive(t, read, "reading"), "second")
			w.Header().Set("Declared", "a")
			w.Header().Set(http.TrailerPrefix+"Later", "b")
		})
		var hints []int
		resp := exchange(t, s, &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			hints = append(hints, code)
			return nil
		}})
		for _, n := range []int{5, 6} {
			part := make([]byte, n)
			if _, err := io.ReadFull(resp.Body, part); err != nil {
				t.Fatal(err)
			}
			inFlight(t, l, 1)
			read <- string(part)
		}
		if text := readAll(t, resp.Body); resp.StatusCode != 202 || text != "" || !slices.Equal(hints, []int{103}) {
			t.Errorf("status %d after %v, more of the body %q; want 202 after 103, none", resp.StatusCode, hints, text)
		}
		if resp.Trailer.Get("Declared") != "a" || resp.Trailer.Get("Later") != "b" {
			t.Errorf("trailers %v, want two", resp.Trailer)
		}
	})
}

// sameAbilities fails unless a writer can do what the one under it can.
func sameAbilities(t *testing.T, w http.ResponseWriter, r *http.Request, wrapped bool) {
	inner, control := w, http.NewResponseController(w)
	if wrapped {
		inner = w.(interface{ Unwrap() http.ResponseWriter }).Unwrap()
	}
	if got, want := abilities(w), abilities(inner); got != want || got == 0 {
		t.Errorf("abilities %04b, want %04b and some", got, want)
	}
	tested.Want(t, fmt.Sprintf("%s: can hijack", r.Proto), abilities(w)&canTakeOver != 0, r.ProtoMajor == 1)
	tested.Want(t, "what is written", errors.Join(control.SetReadDeadline(time.Now().Add(soon)),
		control.SetWriteDeadline(time.Now().Add(soon)), control.EnableFullDuplex()), nil)
}

// echo answers 101 and sends back what it gets, in a goroutine of its own.
func echo(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
			return
		}
		go func() {
			defer conn.Close()
			_, _ = io.WriteString(conn,
				"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(conn, buffered)
		}()
	}
}

const upgradeHead = "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"

// Both ends of this package hold their permits while a stream goes through a reverse proxy.
func TestUpgradeThroughAReverseProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := limiter(t, oneSlot), limiter(t, oneSlot)
		backend := serve(t, echo(t))
		proxy := &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "backend"}) },
			Transport: &Transport{Base: backend.client(t).Transport, Limiter: out},
		}
		resp, err := serve(t, Middleware(in, Path())(proxy)).client(t).Transport.RoundTrip(upgradeTo(t))
		if err != nil || resp.StatusCode != 101 {
			t.Fatalf("%v, %v; want 101", resp, err)
		}
		stream := resp.Body.(io.ReadWriteCloser)
		_, _ = io.WriteString(stream, "ping")
		back := [4]byte{}
		if _, err := io.ReadFull(stream, back[:]); err != nil || string(back[:]) != "ping" {
			t.Errorf("echo %q, %v", back, err)
		}
		synctest.Wait()
		inFlight(t, in, 1)
		inFlight(t, out, 1)
		_ = stream.Close()
		synctest.Wait()
		idle(t, in)
		idle(t, out)
	})
}

func upgradeTo(t *testing.T) *http.Request {
	r := request(t, "http://proxy/", nil)
	r.Method = "GET"
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	return r
}

// oneWaits returns when a request waits.
func oneWaits(t testing.TB, l *quotient.Limiter) {
	t.Helper()
	for end := time.Now().Add(soon); l.Stats().Waiting == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no request waits within %v", soon)
		}
	}
}

// Over a real network a client that leaves is noticed as well, with HTTP/2 also when its body is unread.
func TestLeavingClientOnARealNetwork(t *testing.T) {
	l := limiter(t, oneSlot)
	gone := make(chan string, 1)
	permit, _ := l.TryAcquire("/")
	h := Middleware(l, Path(), Wait(Forever))(ok)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		gone <- fmt.Sprint(r.Proto, " ", l.Stats().Waiting)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	left := func(want string, leave func()) {
		oneWaits(t, l)
		leave()
		tested.Want(t, "left and waiting", receive(t, gone, "end of the wait"), want)
	}
	trusts := s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	for _, raw := range []string{"GET / HTTP/1.1\r\nHost: h\r\n\r\n", sized("text"), chunked("text")} {
		c, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{RootCAs: trusts, ServerName: "example.com"})
		tested.Must(t, err)
		_, _ = io.WriteString(c, raw)
		left("HTTP/1.1 0", func() { _ = c.Close() })
	}
	ctx, cancel := context.WithCancel(t.Context())
	req, done := request(t, s.URL+"/", strings.NewReader(long)).WithContext(ctx), make(chan error, 1)
	go func() {
		resp, err := s.Client().Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		done <- err
	}()
	left("HTTP/2.0 0", cancel)
	tested.Not(t, receive(t, done, "end of the request") == nil, "the cancelled request got an answer")
	permit.Release()
	idle(t, l)
}
