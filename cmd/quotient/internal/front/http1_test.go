package front

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/internal/listen"
	"github.com/quotient-go/quotient/internal/tested"
)

const last = "GET /last HTTP/1.1~Host: h~Connection: close~~" // is answered if the connection has lasted

// answers are handlers, by the path that asks for them.
var answers = map[string]http.HandlerFunc{
	"/last":  func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Last", "yes") },
	"/none":  func(http.ResponseWriter, *http.Request) {},
	"/short": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "short"); fmt.Fprint(w, " and sweet") },
	"/long":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("long", 5000)) },
	"/parts": func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			fmt.Fprint(w, "part")
			w.(http.Flusher).Flush()
		}
	},
	"/length": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "4")
		fmt.Fprint(w, "four")
	},
	"/less": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		fmt.Fprint(w, "four")
	},
	"/more": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "4")
		if _, err := fmt.Fprint(w, "four and"); err == http.ErrContentLength {
			fmt.Fprint(w, "more")
		}
	},
	"/204": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "4")
		w.WriteHeader(http.StatusNoContent)
		if _, err := fmt.Fprint(w, "four"); err != http.ErrBodyNotAllowed {
			panic(err)
		}
	},
	"/304": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Etag", "x")
		w.WriteHeader(http.StatusNotModified)
	},
	"/odd": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(799) },
	"/twice": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(202)
		w.Header().Set("X", "late")
		w.WriteHeader(404)
	},
	"/close": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		fmt.Fprint(w, "bye")
	},
	"/426": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "upgrade")
		w.WriteHeader(http.StatusUpgradeRequired)
	},
	"/split": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X", "a\r\nY: b\nZ")
		w.Header()["Bad: name"] = []string{"x"}
	},
	"/hints": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		fmt.Fprint(w, "answer")
	},
	"/trailers": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Sum, Other")
		fmt.Fprint(w, "body")
		w.Header().Set("Sum", "7")
		w.Header().Set(http.TrailerPrefix+"Late", "8")
	},
	"/echo": func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %v %s %v", text, err, r.Host, r.Trailer)
	},
	"/late":   func(w http.ResponseWriter, r *http.Request) { answerFirst(w, r) },
	"/duplex": func(w http.ResponseWriter, r *http.Request) { _, _ = r.Body.Read(make([]byte, 1)); answerFirst(w, r) },
	"/deadline": func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(longAgo())
	},
	"/panic": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x"); panic(http.ErrAbortHandler) },
	"/broken": func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "begun")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	},
	"/taken": func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		if _, err := w.Write(nil); err != http.ErrHijacked {
			panic(err)
		}
		line, _ := rw.ReadString('\n')
		fmt.Fprintf(rw, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ngot %s", line)
		_ = rw.Flush()
	},
}

func answerFirst(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex()
	_ = control.Flush()
	text, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %v", text, err)
}

// answered is what a server says to a text: each answer without what may differ, and whether all that was asked for
// was answered.
func answered(t *testing.T, addr, sent string) (all []string) {
	c := dial(t, addr)
	_, _ = io.WriteString(c, sent)
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadResponse(in, &http.Request{Method: strings.SplitN(sent, " ", 2)[0]})
		if err != nil {
			tested.Not(t, os.IsTimeout(err), "%v: %v", all, err)
			return all
		}
		text, err := io.ReadAll(r.Body)
		r.Header.Del("Date")
		all = append(all, fmt.Sprintf("%s %s %v %d %v close %v %q whole %v %v",
			r.Proto, r.Status, r.Header, r.ContentLength, r.TransferEncoding, r.Close, text, err == nil, r.Trailer))
		if r.Header.Get("X-Last") != "" {
			return all
		}
	}
}

// TestAnswersAsNetHTTPDoes compares all answers with those of http.Server.
func TestAnswersAsNetHTTPDoes(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain") // net/http would guess it
		answers[r.URL.Path](w, r)
	})
	theirs := httptest.NewUnstartedServer(h)
	theirs.Config.ErrorLog = log.New(io.Discard, "", 0)
	theirs.Start()
	defer theirs.Close()
	ours := serve(t, section(), h)
	for path := range answers {
		for _, head := range []string{
			"GET %s HTTP/1.1~Host: h~~", "HEAD %s HTTP/1.1~Host: h~~", "GET %s HTTP/1.1~Host: h~Connection: close~~",
			"GET %s HTTP/1.0~~", "GET %s HTTP/1.0~Connection: keep-alive~~",
			"POST %s HTTP/1.1~Host: h~Content-Length: 2~~ab", "POST %s HTTP/1.1~Host: h~Transfer-Encoding: chunked~~1~a~0~T: u~~",
			"POST %s HTTP/1.1~Host: h~Content-Length: 2~Expect: 100-continue~~ab",
			"POST %s HTTP/1.1~Host: h~Content-Length: 600000~~" + strings.Repeat("x", 600_000),
		} {
			if path == "/late" && strings.HasSuffix(head, "xx") || path == "/duplex" && strings.Contains(head, "Expect") {
				continue // one of us closes the connection where it need not
			}
			sent := crlf(fmt.Sprintf(head, path) + last)
			got, want := answered(t, ours.addr, sent), answered(t, theirs.Listener.Addr().String(), sent)
			if path == "/hints" && strings.Contains(head, "HTTP/1.0") {
				want = want[1:] // HTTP/1.0 has no answers of status 1xx (RFC 9110, 15.2)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%.200q\n got %q\nwant %q", sent, got, want)
			}
		}
	}
}

// TestAnswerAfterTheHandler checks that what a handler leaves behind does not reach the next answer.
func TestAnswerAfterTheHandler(t *testing.T) {
	left, body := make(chan http.ResponseWriter, 1), make(chan io.Reader, 1)
	s := serve(t, section(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { left <- w; body <- r.Body }))
	c := dial(t, s.addr)
	send(t, c, crlf(post+"Content-Length: 1~~x"))
	in := bufio.NewReader(c)
	_, err := http.ReadResponse(in, nil)
	must(t, err)
	w := <-left
	w.WriteHeader(http.StatusEarlyHints)
	_, wrote := w.Write([]byte("x"))
	_, read := (<-body).Read(make([]byte, 1))
	tested.Want(t, "a late write", wrote, errReturned)
	tested.Want(t, "a late read", read, errReturned)
	tested.Want(t, "a late flush", http.NewResponseController(w).Flush(), errReturned)
	send(t, c, crlf(get+"~"))
	r, err := http.ReadResponse(in, nil)
	must(t, err)
	tested.Want(t, "the next answer", r.StatusCode, http.StatusOK)
}

// TestClientThatGoes checks that the context of a request ends with its client, early or late, and behind a body, and
// that one that has said more is not watched any more.
func TestClientThatGoes(t *testing.T) {
	for _, row := range []struct {
		name, sent string
		after      time.Duration
		more       string
		want       time.Duration
	}{
		{"at once", get + "~", 0, "", 0},
		{"later", get + "~", time.Minute, "", 2 * time.Minute},
		{"behind a body", post + "Content-Length: 1~~x", time.Minute, "", 2 * time.Minute},
		{"behind a byte of the next request", get + "~", time.Minute, "G", time.Hour},
		{"behind one that will be refused", get + "~", time.Minute, "\x00", time.Hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var took time.Duration
				c, client := answering(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					began := time.Now()
					_, _ = io.Copy(io.Discard, r.Body)
					select {
					case <-r.Context().Done():
					case <-time.After(time.Hour):
					}
					took = time.Since(began)
				}))
				send(t, client, crlf(row.sent))
				time.Sleep(row.after)
				_, _ = io.WriteString(client, row.more)
				time.Sleep(row.after)
				client.Close()
				<-c.ctx.Done()
				synctest.Wait()
				if more := took - row.want; more < 0 || more > unwatched {
					t.Errorf("it ended after %v", took)
				}
			})
		})
	}
}

// TestHalfARequestIsNotAnswered: its client has gone.
func TestHalfARequestIsNotAnswered(t *testing.T) {
	s := serve(t, section(), ok)
	for _, sent := range []string{"", "GET /", get} {
		c := dial(t, s.addr)
		send(t, c, crlf(sent))
		must(t, c.CloseWrite())
		text, err := io.ReadAll(c)
		tested.Want(t, fmt.Sprintf("the answer to %q, %v", sent, err), string(text), "")
	}
}

// TestRequestsThatTakeLong checks that requests whose clients are watched follow one another, with and without the next
// one behind them.
func TestRequestsThatTakeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		_, client := answering(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if control := http.NewResponseController(w); first { // that of a handler is for its own request
				_ = control.SetReadDeadline(time.Now().Add(time.Minute + time.Second))
				_ = control.SetWriteDeadline(time.Now().Add(time.Minute + time.Second))
				first = false
			}
			time.Sleep(time.Minute)
			fmt.Fprint(w, r.Method, r.Context().Err())
		}))
		in := bufio.NewReader(client)
		go send(t, client, crlf(get+"~"+post+"Content-Length: 1~~x"))
		for i, want := range []string{"GET<nil>", "POST<nil>", "GET<nil>", "GET<nil>"} {
			if i > 1 {
				send(t, client, crlf(get+"~"))
			}
			r, err := http.ReadResponse(in, nil)
			must(t, err)
			text, err := io.ReadAll(r.Body)
			tested.Want(t, fmt.Sprint(i, err), string(text), want)
		}
		client.Close()
	})
}

// TestAMalformedRequestBehindOneThatTakesLong is answered: that the first client was watched is not a slow head.
func TestAMalformedRequestBehindOneThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Minute) })
		c, client := answering(t, slow)
		go func() { _, _ = io.WriteString(client, crlf(get+"~"+get+"X\x00: y~~")) }()
		text, _ := io.ReadAll(client)
		tested.Want(t, "the answers", fmt.Sprint(statuses(string(text))), "[200 400]")
		tested.Want(t, "refusals of heads", c.server.Refusals()["head"], 1)
	})
}

// TestALateTimer plays that of a request before, which has fired when that was over, and looks when the next one is
// watched: one goroutine alone may read.
func TestALateTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var paths []string
		_, client := answering(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if paths = append(paths, r.URL.Path); len(paths) == 1 {
				go connOf(r).watch()
				time.Sleep(time.Minute)
			}
		}))
		send(t, client, crlf("GET /1 HTTP/1.1~Host: h~~"))
		time.Sleep(time.Second)
		go send(t, client, crlf("GET /2-is-longer HTTP/1.1~Host: h~~GET /3 HTTP/1.1~Host: h~Connection: close~~"))
		_, err := io.Copy(io.Discard, client)
		must(t, err)
		tested.Want(t, "the requests", fmt.Sprint(paths), "[/1 /2-is-longer /3]")
	})
}

// TestABodyThatIsReadOn by another goroutine, when the handler has returned: that is not the client's fault, which has
// its answer and time to read it. All that belongs to the request ends.
func TestABodyThatIsReadOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ctx context.Context
		read := make(chan error, 1)
		_, client := answering(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ctx = r.Context()
			go func() {
				_, err := io.Copy(io.Discard, r.Body)
				read <- err
			}()
			time.Sleep(time.Second / 2)
		}))
		send(t, client, crlf(post+"Content-Length: 5~~x"))
		r, err := http.ReadResponse(bufio.NewReader(client), nil)
		must(t, err)
		tested.Want(t, "the answer", fmt.Sprint(r.StatusCode, r.Close), "200 true")
		tested.Want(t, "the read", errors.Is(<-read, os.ErrDeadlineExceeded), true)
		<-ctx.Done()
		time.Sleep(lastWord / 2)
		send(t, client, "more") // it is still heard
		client.Close()
	})
}

// TestATakenConnectionIsTheHandlers alone, also where a body is read.
func TestATakenConnectionIsTheHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(chan string, 1)
		_, client := answering(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			go func() { _, _ = io.Copy(io.Discard, r.Body) }()
			time.Sleep(time.Second)
			conn, rw, err := http.NewResponseController(w).Hijack()
			must(t, err)
			defer conn.Close()
			text, _ := io.ReadAll(rw)
			got <- string(text)
		}))
		send(t, client, crlf(post+"Content-Length: 5~~x"))
		time.Sleep(2 * time.Second)
		send(t, client, "more")
		client.Close()
		tested.Want(t, "what the handler reads", <-got, "more")
	})
}

// TestBodiesThatEndWhileTheyAreStopped checks that the next request has its own time.
func TestBodiesThatEndWhileTheyAreStopped(t *testing.T) {
	s := serve(t, section(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began := make(chan struct{})
		go func() { close(began); _, _ = io.Copy(io.Discard, r.Body) }()
		<-began
	}))
	for range 200 {
		c := dial(t, s.addr)
		in := bufio.NewReader(c)
		for n := range 20 {
			send(t, c, crlf(post+"Content-Length: 3~~abc"))
			r, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("request %d of a connection that was to stay: %v", n, err)
			}
			if r.Close {
				break
			}
		}
		c.Close()
	}
}

// TestRoomOfRequestsThatWait for those before them, and are read ahead.
func TestRoomOfRequestsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var most int64
		var c *conn
		c, client := answering(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			time.Sleep(time.Second)
			held, _ := c.server.room.State()
			most = max(most, held)
		}))
		c.server.room.SetMost(1 << 20)
		c.framing.most = 1 << 20
		const requests = 100
		go send(t, client, strings.Repeat(crlf(get+"X: "+strings.Repeat("x", 1000)+"~~"), requests))
		in := bufio.NewReader(client)
		for range requests {
			_, err := http.ReadResponse(in, nil)
			must(t, err)
		}
		tested.Not(t, most > 32<<10, "%d bytes are held", most)
		client.Close()
	})
}

// deaf is a connection whose reads end with it alone, as those of TLS may that have to write before.
type deaf struct{ net.Conn }

func (deaf) SetReadDeadline(time.Time) error { return nil }

func TestAReadThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Minute) })
		_, client := answering(t, slow, func(c *conn) { c.Conn = deaf{c.Conn} })
		send(t, client, crlf(get+"~"))
		_, err := io.Copy(io.Discard, client)
		must(t, err)
	})
}

// brief is a connection that ends with its first bytes, as TLS 1.2 may say at once.
type brief struct {
	net.Conn
	ended bool
}

func (b *brief) Read(p []byte) (n int, err error) {
	if !b.ended {
		n, _ = b.Conn.Read(p)
	}
	b.ended = true
	return n, io.EOF
}

// TestAnEndThatComesWithARequest is no malformed request, nor does it keep one from being refused.
func TestAnEndThatComesWithARequest(t *testing.T) {
	for sent, want := range map[string]string{
		"": "[200] 0", "GET": "[200] 0", get: "[200] 0", get + "X\x00: y~~": "[200 400] 1",
	} {
		synctest.Test(t, func(t *testing.T) {
			c, client := answering(t, ok, func(c *conn) { c.Conn = &brief{Conn: c.Conn} })
			go func() { _, _ = io.WriteString(client, crlf(get+"~"+sent)) }()
			text, _ := io.ReadAll(client)
			got := fmt.Sprint(statuses(string(text)), " ", c.server.Refusals()["head"])
			tested.Want(t, fmt.Sprintf("the answers to %q behind a request, and refusals", sent), got, want)
		})
	}
}

// TestALongBodyIsReadOn for a while, so that its client sees an answer that does not need it.
func TestALongBodyIsReadOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := answering(t, ok)
		sent := make(chan error, 1)
		go func() {
			_, err := io.WriteString(client, crlf(post+"Content-Length: 600000~~")+strings.Repeat("x", 600_000))
			sent <- err
		}()
		r, err := http.ReadResponse(bufio.NewReader(client), nil)
		must(t, err)
		tested.Want(t, "the connection is said to end", r.Close, true)
		must(t, <-sent)
		client.Close()
	})
}

// answering is a connection that is served, and its client.
func answering(t *testing.T, h http.Handler, set ...func(*conn)) (*conn, net.Conn) {
	c, _, client := piped(t)
	for _, f := range set {
		f(c)
	}
	c.server.proxy, c.server.handler, c.server.places = *section(), h, listen.New(1)
	c.framing.off, c.framing.most = false, 1<<10
	go c.serve(t.Context(), nil)
	synctest.Wait()
	return c, client
}
