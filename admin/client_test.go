package admin

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

// serving runs Serve until the test ends.
func serving(t *testing.T, h *Handler, l net.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		tested.Want(t, "Serve", <-done, nil)
	})
}

// TestClientOverEveryTransport calls every method of the client, over TCP with a token and over a Unix
// socket.
func TestClientOverEveryTransport(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "q.sock")
	for _, tt := range []struct {
		network, addr string
		opts          []Option
		client        []ClientOption
	}{
		{"tcp", "127.0.0.1:0", []Option{Token(secret)}, []ClientOption{BearerToken(secret)}},
		{"unix", socket, nil, nil},
	} {
		t.Run(tt.network, func(t *testing.T) {
			h, api, _ := two(t, tt.opts...)
			l, err := h.Listen(t.Context(), tt.network, tt.addr)
			must(t, err)
			serving(t, h, l)
			base := "http://" + l.Addr().String()
			if tt.network == "unix" {
				base = "unix://" + socket
				if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 ||
					info.Mode().Type() != fs.ModeSocket {
					t.Errorf("socket %v, %v", info, err)
				}
			}
			c, err := NewClient(base, tt.client...)
			must(t, err)
			defer c.Close()
			everyMethod(t, c, api)
		})
	}
	if _, err := os.Stat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func everyMethod(t *testing.T, c *Client, api *quotient.Limiter) {
	t.Helper()
	ctx := t.Context()
	api.Allow("K")
	s, err := c.State(ctx)
	if err != nil || len(s.Limiters) != 2 || s.Process.Go == "" || s.Time.IsZero() ||
		s.Process.Started.IsZero() {
		t.Errorf("state %+v, %v", s, err)
	}
	if !slices.Equal(s.May, []string{"read", "write"}) || s.History != nil {
		t.Errorf("may %q, history %+v", s.May, s.History)
	}
	if s, err = c.StateAndHistory(ctx); err != nil || s.History == nil || len(s.History.Limiters) != 2 {
		t.Errorf("%+v, %v", s.History, err)
	}
	seen, err := c.Limiter(ctx, "api")
	if err != nil || !reflect.DeepEqual(seen.Limit, s.Limiters["api"].Limit) || seen.ETag == "" {
		t.Errorf("limiter %+v, %v", seen, err)
	}
	if k, err := c.Keys(ctx, "api", 5); err != nil || len(k.Keys) != 1 || k.Keys[0].Key != "K" ||
		len(k.Keys[0].Tokens) != 1 {
		t.Errorf("keys %+v, %v", k, err)
	}
	if e, err := c.Explain(ctx, "api", "K"); err != nil || !e.Remembered || !e.Next.OK || len(e.Rules) != 1 ||
		e.Text == "" {
		t.Errorf("explanation %+v, %v", e, err)
	}
	limit := quotient.Limit{Rates: []quotient.Rate{{Name: "a", Unit: "b", Events: 2,
		Per: 1500 * time.Millisecond, Burst: 3, NoTurns: true}}, InFlight: 7}
	next, err := c.SetLimit(ctx, "api", limit, IfMatch(seen.ETag))
	if err != nil || !reflect.DeepEqual(api.Stats().Limit, limit) || next.ETag == seen.ETag {
		t.Errorf("SetLimit: %+v, %v", next, err)
	}
	if _, err = c.SetDryRun(ctx, "api", true, ValidateOnly()); err != nil || api.DryRun() {
		t.Errorf("validated: %v, dry run %v", err, api.DryRun())
	}
	paid := quotient.Limit{InFlight: 5}
	if next, err = c.SetPlan(ctx, "api", "paid", &paid, IfMatch(next.ETag)); err != nil ||
		len(next.Plans) != 1 || next.Plans[0].Limit.InFlight != 5 {
		t.Errorf("SetPlan: %+v, %v", next, err)
	}
	deny := quotient.Limit{Deny: true}
	if next, err = c.Override(ctx, "api", "K", &deny, 0, IfMatch(next.ETag)); err != nil ||
		!api.Explain("K").Limit.Deny {
		t.Errorf("Override: %+v, %v", next, err)
	}
	if next, err = c.SetDryRun(ctx, "api", true, IfMatch(next.ETag)); err != nil || !api.DryRun() {
		t.Errorf("SetDryRun: %+v, %v", next, err)
	}
	pool := quotient.Pool{Replicas: 4, Ordinal: 2, Weight: 3}
	if s, err := c.SetReplicas(ctx, "api", pool, time.Minute, IfMatch(next.ETag)); err != nil ||
		api.Stats().Pool.Pool != pool || s.Limiters["api"].Pool.Until.IsZero() {
		t.Errorf("SetReplicas: %+v, %v", s, err)
	}
	_, err = c.SetLimit(ctx, "api", limit, IfMatch(next.ETag))
	if p := (*Problem)(nil); !errors.Is(err, ErrConflict) || !errors.As(err, &p) || p.Status != 412 ||
		p.Field != "If-Match" {
		t.Errorf("a lost race: %v", err)
	}
	version := api.Stats().Version
	if now, err := c.Reset(ctx, "api", "K"); err != nil || now.Version != version+1 {
		t.Errorf("Reset: %+v, %v", now, err)
	}
	own := quotient.Limit{InFlight: 7}
	if s, err := c.Override(ctx, "api", "K", &own, time.Minute, IfMatch("")); err != nil ||
		s.Was == nil || !s.Was.Limit.Denies || s.Overrides[0].Until.IsZero() {
		t.Errorf("Override for a minute: %+v, %v", s, err)
	}
	if s, err := c.Override(ctx, "api", "a\x80", new(quotient.Limit), 0); err != nil || s.Was != nil ||
		!s.Overrides[1].Limit.Unlimited {
		t.Errorf("Override without a bound: %+v, %v", s, err)
	}
	if s, err := c.Override(ctx, "api", "a\x80", nil, 0); err != nil || s.Was == nil || s.Was.Key != "a\x80" {
		t.Errorf("its end: %+v, %v", s, err)
	}
	if _, err = c.Override(ctx, "api", "K", nil, 0); err != nil || api.Stats().Overrides != 0 {
		t.Errorf("Override off: %v", err)
	}
	var p *Problem
	if _, err = c.SetLimit(ctx, "api", quotient.Limit{InFlight: -1}); !errors.As(err, &p) ||
		p.Field != "in_flight" || p.Value != "-1" || p.Range == "" || errors.Is(err, ErrConflict) {
		t.Errorf("a bad limit: %v", err)
	}
	_, err = c.Limiter(ctx, "")
	tested.Not(t, err == nil, "no name, and one of two limiters")
	if _, err = c.Keys(ctx, "none", 5); !errors.As(err, &p) || p.Status != 404 || p.Field != "limiter" {
		t.Errorf("no such limiter: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = c.State(ended)
	tested.Is(t, "a context that has ended", err, context.Canceled)
}

func TestBadClientURLs(t *testing.T) {
	for _, u := range []string{"", "127.0.0.1:9090", "ftp://x", "http://", "unix://", "unix://host/path",
		"http://x?y", "http://x/?", "http://x#y", "http://u:p@x", "http://\x00"} {
		if c, err := NewClient(u); err == nil {
			t.Errorf("%q: %+v", u, c)
		}
	}
	if _, err := NewClient("unix:///x", HTTPClient(http.DefaultClient)); err == nil {
		t.Error("a unix URL goes together with a client")
	}
}

// TestClientOfSomethingElse: answers that are none of a handler are errors, and bounded.
func TestClientOfSomethingElse(t *testing.T) {
	answers := map[string]http.HandlerFunc{
		"a page": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>hello")) },
		"a failure": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, strings.Repeat("x", 1<<20), http.StatusBadGateway)
		},
		"a redirection": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		},
		"a lie": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(500)
			_, _ = w.Write([]byte(`{"status":412}`))
		},
		"no JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"time":`))
		},
		"no end": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for blanks := make([]byte, 1<<20); ; {
				if _, err := w.Write(blanks); err != nil {
					return
				}
			}
		},
	}
	for name, answer := range answers {
		srv := httptest.NewServer(answer)
		c, err := NewClient(srv.URL)
		must(t, err)
		if _, err := c.State(t.Context()); err == nil || len(err.Error()) > 1000 ||
			errors.Is(err, ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
		srv.CloseClientConnections()
		srv.Close()
	}
}

// TestListenOffLoopback: nothing is served to other machines without credentials, neither by Listen nor by
// Serve.
func TestListenOffLoopback(t *testing.T) {
	bare, _, _ := two(t)
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		if l, err := bare.Listen(t.Context(), "tcp", addr); err == nil {
			t.Errorf("%s: listens at %v", addr, l.Addr())
			_ = l.Close()
		}
	}
	for _, opt := range []Option{Token(secret), MutualTLS(), BehindAuthentication()} {
		h, _, _ := two(t, opt)
		l, err := h.Listen(t.Context(), "tcp", "0.0.0.0:0")
		must(t, err)
		if err := bare.Serve(t.Context(), l); err == nil || !strings.Contains(err.Error(), "loopback") {
			t.Errorf("Serve: %v", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the listener is open: %v", err)
		}
	}
	for _, addr := range []string{"127.0.0.1:0", "localhost:0"} {
		l, err := bare.Listen(t.Context(), "tcp", addr)
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		_ = l.Close()
		tested.Is(t, "Serve of a listener that is closed", bare.Serve(t.Context(), l), net.ErrClosed)
	}
}

// TestTokensFollowNoRedirection: also with a client of the caller's, which stays as it is.
func TestTokensFollowNoRedirection(t *testing.T) {
	asked := make(chan string, 10)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Authorization")
	}))
	defer elsewhere.Close()
	// out of TLS, to another port
	front := httptest.NewTLSServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer front.Close()
	theirs := front.Client()
	c, err := NewClient(front.URL, BearerToken(secret), HTTPClient(theirs))
	must(t, err)
	defer c.Close()
	var p *Problem
	if _, err := c.SetDryRun(t.Context(), "api", true); !errors.As(err, &p) ||
		p.Status != http.StatusTemporaryRedirect || len(asked) != 0 {
		t.Errorf("%v, and %d requests went elsewhere", err, len(asked))
	}
	tested.Not(t, theirs.CheckRedirect != nil, "the caller's client was changed")
}

// TestClientOfBinaryKeys: keys that are not UTF-8 arrive whole, both ways, and no two become one.
func TestClientOfBinaryKeys(t *testing.T) {
	h, api, _ := two(t)
	c := speaking(t, h)
	deny := quotient.Limit{Deny: true}
	keys := []string{"", "\uFFFD", "a\xff", "\x80", "\x81"}
	for i, key := range keys {
		api.Allow(key)
		s, err := c.Override(t.Context(), "api", key, &deny, 0)
		if err != nil || !api.Explain(key).Overridden || len(s.Overrides) != i+1 ||
			s.OverrideCount != i+1 {
			t.Errorf("%q: %+v, %v", key, s, err)
		}
		if e, err := c.Explain(t.Context(), "api", key); err != nil || e.Key != key || !e.Overridden ||
			(e.KeyBase64 != nil) == utf8.ValidString(key) {
			t.Errorf("%q is explained as %q %v: %v", key, e.Key, e.Overridden, err)
		}
	}
	hot, err := c.Keys(t.Context(), "api", 10)
	if err != nil || len(hot.Keys) != len(keys) {
		t.Errorf("%+v, %v", hot, err)
	}
	for _, use := range hot.Keys {
		tested.Not(t, !slices.Contains(keys, use.Key), "%q is no key", use.Key)
	}
	s, err := c.Limiter(t.Context(), "api")
	if all, err2 := c.State(t.Context()); err != nil || err2 != nil ||
		!reflect.DeepEqual(all.Limiters["api"].Overrides, s.Overrides) {
		t.Errorf("%v, %v", err, err2)
	}
	for _, o := range s.Overrides {
		if _, err := c.Override(t.Context(), "api", o.Key, nil, 0); err != nil {
			t.Error(err)
		}
	}
	tested.Want(t, "overrides after all were taken off", api.Stats().Overrides, 0)
}

// TestListenAndServe serves until the context ends, and refuses what Listen refuses.
func TestListenAndServe(t *testing.T) {
	h, _, _ := two(t)
	over, end := context.WithCancel(t.Context())
	end()
	for _, addr := range []string{"127.0.0.1:0", "localhost:0"} {
		if err := h.ListenAndServe(over, addr); err != nil {
			t.Errorf("%s, when it is to end at once: %v", addr, err)
		}
	}
	for _, addr := range []string{"0.0.0.0:0", "nowhere"} {
		tested.Not(t, h.ListenAndServe(t.Context(), addr) == nil, "%s: it has served", addr)
	}
	addr := tested.FreeAddr(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.ListenAndServe(ctx, addr) }()
	c, err := NewClient("http://" + addr)
	must(t, err)
	defer c.Close()
	tested.Until(t, "it serves", func() bool { _, err := c.State(t.Context()); return err == nil })
	samples := &h.api.samples
	samples.mu.Lock()
	tested.Want(t, "sampling", samples.serving, 1)
	samples.mu.Unlock()
	cancel()
	if err := <-ended; err != nil || samples.serving != 0 || samples.timer != nil {
		t.Errorf("%v, %d servers take samples after the end", err, samples.serving)
	}
}
