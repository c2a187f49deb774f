package httplimit

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

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
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func TestFlushReachesTheClient(t *testing.T) {
	eachServer(t, func(t *testing.T, s *httptest.Server, l *quotient.Limiter, _ bool,
		set func(http.HandlerFunc)) {
		read := make(chan string)
		set(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "first")
			w.(http.Flusher).Flush()
			if got := receive(t, read, "reading"); got != "first" {
				t.Errorf("the client read %q before the end, want first", got)
			}
			_, _ = io.WriteString(w, "second")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("Flush: %v", err)
			}
			if got := receive(t, read, "reading"); got != "second" {
				t.Errorf("the client read %q before the end, want second", got)
			}
		})
		resp := exchange(t, s, &httptrace.ClientTrace{})
		for _, n := range []int{5, 6} {
			part := make([]byte, n)
			if _, err := io.ReadFull(resp.Body, part); err != nil {
				t.Fatal(err)
			}
			inFlight(t, l, 1)
			read <- string(part)
		}
		readAll(t, resp.Body)
	})
}

func TestInformationalAnswersAndTrailers(t *testing.T) {
	eachServer(t, func(t *testing.T, s *httptest.Server, _ *quotient.Limiter, _ bool,
		set func(http.HandlerFunc)) {
		set(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "Declared")
			w.Header().Set("Link", "</style.css>")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusAccepted)
			// through ReadFrom where there is one
			if _, err := io.Copy(w, strings.NewReader("text")); err != nil {
				t.Errorf("copy: %v", err)
			}
			w.Header().Set("Declared", "a")
			w.Header().Set(http.TrailerPrefix+"Later", "b")
		})
		var hints []int
		resp := exchange(t, s,
			&httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
				hints = append(hints, code)
				return nil
			}})
		if text := readAll(t, resp.Body); resp.StatusCode != 202 || text != "text" {
			t.Errorf("status %d, body %q; want 202, text", resp.StatusCode, text)
		}
		if len(hints) != 1 || hints[0] != 103 {
			t.Errorf("informational answers %v, want 103", hints)
		}
		if resp.Trailer.Get("Declared") != "a" || resp.Trailer.Get("Later") != "b" {
			t.Errorf("trailers %v, want two", resp.Trailer)
		}
	})
}

// A handler finds the same capabilities of its writer with the wrapper.
func TestAbilitiesOfRealWriters(t *testing.T) {
	eachServer(t, func(t *testing.T, s *httptest.Server, _ *quotient.Limiter, wrapped bool,
		set func(http.HandlerFunc)) {
		set(func(w http.ResponseWriter, r *http.Request) {
			inner := w
			if wrapped {
				inner = w.(interface{ Unwrap() http.ResponseWriter }).Unwrap()
			}
			if got, want := abilities(w), abilities(inner); got != want || got == 0 {
				t.Errorf("abilities %04b, want %04b and some", got, want)
			}
			if got := abilities(w)&canTakeOver != 0; got != (r.ProtoMajor == 1) {
				t.Errorf("%s: can hijack: %v", r.Proto, got)
			}
			for name, err := range map[string]error{
				"SetReadDeadline":  http.NewResponseController(w).SetReadDeadline(time.Now().Add(soon)),
				"SetWriteDeadline": http.NewResponseController(w).SetWriteDeadline(time.Now().Add(soon)),
				"EnableFullDuplex": http.NewResponseController(w).EnableFullDuplex(),
			} {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
		readAll(t, exchange(t, s, &httptrace.ClientTrace{}).Body)
	})
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

// The permit of a hijacked connection is held after the handler has returned.
func TestHijackOnAServer(t *testing.T) {
	learner := func(t *testing.T) *quotient.Limiter { l, _ := learning(t); return l }
	fixed := func(t *testing.T) *quotient.Limiter { return limiter(t, oneSlot) }
	for name, make := range map[string]func(*testing.T) *quotient.Limiter{
		"fixed":    fixed,
		"learning": learner,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := make(t)
				c := serve(t, Middleware(l, Path())(echo(t))).send(t, upgradeHead)
				r := bufio.NewReader(c)
				if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 101 {
					t.Fatalf("%v, %v; want 101", resp, err)
				}
				_, _ = io.WriteString(c, "ping")
				back := [4]byte{}
				if _, err := io.ReadFull(r, back[:]); err != nil || string(back[:]) != "ping" {
					t.Errorf("echo %q, %v", back, err)
				}
				synctest.Wait()
				inFlight(t, l, 1)
				_ = c.Close()
				synctest.Wait()
				idle(t, l)
			})
		})
	}
}

// A policy learns from a connection that was taken over as from any other answer.
func TestHijackIsFeedback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, heard := learning(t)
		c := serve(t, Middleware(l, Path())(echo(t))).send(t, upgradeHead)
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 101 {
			t.Fatalf("%v, %v; want 101", resp, err)
		}
		synctest.Wait()
		heard.learned(t, policy.Feedback{Outcome: policy.Success})
		_ = c.Close()
		synctest.Wait()
		heard.learned(t)
		idle(t, l)
	})
}

// Both ends of this package hold their permits while a stream goes through a
// reverse proxy.
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

// Over a real network a client that leaves is noticed as well.
func TestLeavingClientOnARealNetwork(t *testing.T) {
	waits := make(chan string, 1)
	l := limiter(t, oneSlot, quotient.OnWait(func(key string, _ time.Duration) { waits <- key }))
	permit, _ := l.TryAcquire("/")
	gone := make(chan int, 1)
	h := Middleware(l, Path(), Wait(Forever))(ok)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		gone <- l.Stats().Waiting
	}))
	defer s.Close()
	for _, raw := range []string{"GET / HTTP/1.1\r\nHost: h\r\n\r\n", sized("text"), chunked("text")} {
		c, err := net.DialTimeout("tcp", s.Listener.Addr().String(), soon)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, raw)
		receive(t, waits, "wait")
		_ = c.Close()
		if n := receive(t, gone, "end of the wait"); n != 0 {
			t.Errorf("%d requests wait after the client has left", n)
		}
	}
	permit.Release()
	idle(t, l)
}

// HTTP/2 reports a client that leaves also when the body is unread.
func TestLeavingClientOfHTTP2(t *testing.T) {
	waits := make(chan string, 1)
	l := limiter(t, oneSlot, quotient.OnWait(func(key string, _ time.Duration) { waits <- key }))
	permit, _ := l.TryAcquire("/")
	gone := make(chan string, 1)
	h := Middleware(l, Path(), Wait(Forever))(ok)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		gone <- r.Proto
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	req := request(t, s.URL+"/", strings.NewReader(long)).WithContext(ctx)
	done := make(chan error, 1)
	go func() {
		resp, err := s.Client().Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		done <- err
	}()
	receive(t, waits, "wait")
	cancel()
	if proto := receive(t, gone, "end of the wait"); proto != "HTTP/2.0" {
		t.Errorf("protocol %s, want HTTP/2.0", proto)
	}
	if err := receive(t, done, "end of the request"); err == nil {
		t.Error("the request that was cancelled got an answer")
	}
	permit.Release()
	idle(t, l)
}

// Transport on real connections: the permit is back when the body was read.
func TestTransportOnARealServer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	defer s.Close()
	l := limiter(t, oneSlot)
	client := &http.Client{Transport: &Transport{Base: s.Client().Transport, Limiter: l}, Timeout: soon}
	for range 3 {
		resp, err := client.Post(s.URL, "text/plain", strings.NewReader("text"))
		if err != nil {
			t.Fatal(err)
		}
		inFlight(t, l, 1)
		if text := readAll(t, resp.Body); text != "text" {
			t.Errorf("body %q, want text", text)
		}
		idle(t, l)
		_ = resp.Body.Close()
	}
	resp, err := client.Head(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	idle(t, l)
}
