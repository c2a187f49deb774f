package lease

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Over a real network: the server is killed and another one starts at its address.
func TestClientOverTheNetwork(t *testing.T) {
	config := Config{Semaphores: map[string]Semaphore{"A": {Max: 1}}, Grace: 2 * time.Second}
	restored := make(chan struct{}, 100)
	start := func(at string) (s *Server, web *http.Server, address string) {
		listener, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		s, err = NewServer(config, ServerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		web = &http.Server{ReadHeaderTimeout: time.Second}
		web.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.ServeHTTP(w, r)
			if r.URL.Path == "/restore" {
				restored <- struct{}{}
			}
		})
		go func() { _ = web.Serve(listener) }()
		return s, web, listener.Addr().String()
	}
	s, web, address := start("127.0.0.1:0")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	c := &Client{URLs: []string{"http://" + address}, HTTP: &http.Client{Transport: transport}}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	l := locked(t, ctx, c, "A")
	var others sync.WaitGroup
	for range 10 {
		others.Go(func() {
			if next := locked(t, ctx, c, "A"); next.Token() <= l.Token() {
				t.Errorf("token %d after %d", next.Token(), l.Token())
			} else {
				unlock(t, next)
			}
		})
	}
	_ = web.Close()
	s.Close()
	s, web, _ = start(address)
	for held := 0; held == 0 && ctx.Err() == nil; held = len(tokensHeld(s, "A")) {
		select { // each of the peers is restored
		case <-restored:
		case <-ctx.Done():
		}
	}
	if held := tokensHeld(s, "A"); !slices.Equal(held, []uint64{l.Token()}) {
		t.Errorf("held with %d, want %d", held, l.Token())
	}
	if err := l.Err(); err != nil {
		t.Error(err)
	}
	unlock(t, l)
	others.Wait()
	if n := s.Stats().Peers; n != 0 {
		t.Errorf("%d peers are left", n)
	}
	_ = web.Close()
	s.Close()
}

// The published server knows neither tokens nor a grace time.
func TestClientOfAPlainServer(t *testing.T) {
	inWorld(t, mutex("A"), func(t *testing.T, w *world) {
		s := w.servers["a"]
		var restored sync.Map
		w.net.hosts["plain"] = &struct {
			http.Handler
		}{http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			rec := httptest.NewRecorder()
			if r.URL.Path == "/restore" {
				body := new(strings.Builder)
				_ = r.Write(body)
				text := body.String()
				restored.Store("body", text[strings.Index(text, "{"):])
				r.Body = http.NoBody
				_, _ = io.WriteString(out, "Ok")
				return
			}
			s.ServeHTTP(rec, r)
			out.WriteHeader(rec.Code)
			_, _ = out.Write(rec.Body.Bytes())
		})}
		c := w.client()
		c.URLs = []string{"http://plain"}
		l := locked(t, t.Context(), c, "A")
		if l.Token() != 0 {
			t.Error(l.Token())
		}
		if err := s.Lead(ClockTokens(time.Now()), time.Time{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(12 * time.Second)
		body, _ := restored.Load("body")
		text, _ := body.(string)
		if !strings.Contains(text, `"acquired":{"A":1}`) || strings.Contains(text, "tokens") {
			t.Errorf("restored with %q", text)
		}
		if lost(l) {
			t.Error(l.Err())
		}
		_ = l.Unlock(t.Context())
	})
}

// Names go through the path and come back: they may hold anything.
func TestClientNames(t *testing.T) {
	names := []string{"/&", "a b", "%2F", "..", ".", "is_acquired", "ü?x=1#y", "\x00"}
	inWorld(t, mutex(names...), func(t *testing.T, w *world) {
		for _, name := range names {
			l := locked(t, t.Context(), w.client(), name)
			if tokens, _ := holders(t, w.servers["a"], name); !slices.Equal(tokens, []uint64{l.Token()}) {
				t.Errorf("%q is held with %d, want %d", name, tokens, l.Token())
			}
			unlock(t, l)
		}
	})
}
