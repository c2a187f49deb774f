package front

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestNothingIsReadBehindABrokenBody checks that what follows a body that net/http gives up is not taken for
// a request. net/http goes on with what it has, where the handler did not read that far.
func TestNothingIsReadBehindABrokenBody(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"unread":       func(http.ResponseWriter, *http.Request) {},
		"read":         func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) },
		"answer first": func(w http.ResponseWriter, r *http.Request) { flushThenRead(w, r) },
		"read in part": func(_ http.ResponseWriter, r *http.Request) { _, _ = r.Body.Read(make([]byte, 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var paths []string
			s := serve(t, section(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				paths = append(paths, r.URL.Path)
				mu.Unlock()
				handler(w, r)
			}))
			c := dial(t, s.addr)
			evil := "GET /evil HTTP/1.1\r\nHost: h\r\n\r\n"
			head := "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
			chunk := "1f;" + strings.Repeat("x", 1000) + "\r\n" + evil + "\r\n"
			if len(evil) != 0x1f {
				t.Fatal(len(evil))
			}
			send(t, c, head+strings.Repeat(chunk, 30)+"0\r\n\r\n"+canary)
			_, _ = io.ReadAll(c)
			mu.Lock()
			defer mu.Unlock()
			if slices.Contains(paths, "/evil") {
				t.Errorf("the handler got %q", paths)
			}
		})
	}
}

func flushThenRead(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex()
	_ = control.Flush()
	_, _ = io.Copy(io.Discard, r.Body)
}

// TestBrokenBodyIsNoSuccess checks that a request whose body broke is not answered with 200 because a
// handler, whose context has ended, says nothing.
func TestBrokenBodyIsNoSuccess(t *testing.T) {
	s := serve(t, section(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	c := dial(t, s.addr)
	send(t, c, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n")
	if text, _ := io.ReadAll(c); !strings.HasPrefix(string(text), "HTTP/1.1 400 ") {
		t.Errorf("the answer is %q", text)
	}
}
