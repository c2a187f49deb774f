package upstream

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestEqualsTakeTurns(t *testing.T) {
	a, b, c := named(t, "a"), named(t, "b"), named(t, "c")
	p := poolOf(t, nil, a.URL, b.URL, c.URL)
	var got strings.Builder
	for range 6 {
		got.WriteString(get(t, p, "/"))
	}
	want(t, "the order", got.String(), "abcabc")
}

// While one upstream holds a request, each other request goes to the other one.
func TestLeastConnections(t *testing.T) {
	free := make(chan struct{})
	slow := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		<-free
	})
	fast := named(t, "fast")
	p := poolOf(t, nil, slow.URL, fast.URL)
	resp, err := p.RoundTrip(ask(t, http.MethodGet, "/", ""))
	must(t, err)
	for range 10 {
		want(t, "the answer", get(t, p, "/"), "fast")
	}
	want(t, "in flight", p.State()[0].InFlight, 1)
	close(free)
	read(t, resp)
	want(t, "in flight", p.State()[0].InFlight, 0)
}

func TestInFlightToTheEndOfTheBody(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/none" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = io.WriteString(w, "body")
	})
	p := poolOf(t, nil, s.URL)
	send := func(method, path string) *http.Response {
		resp, err := p.RoundTrip(ask(t, method, path, ""))
		must(t, err)
		return resp
	}
	inFlight := func(n int) {
		t.Helper()
		want(t, "in flight", p.State()[0].InFlight, n)
	}
	send(http.MethodGet, "/none")
	inFlight(0)
	send(http.MethodHead, "/")
	inFlight(0)
	closed := send(http.MethodGet, "/")
	inFlight(1)
	must(t, closed.Body.Close())
	inFlight(0)
	must(t, closed.Body.Close())
	inFlight(0)
	whole := send(http.MethodGet, "/")
	_, err := io.ReadAll(whole.Body)
	must(t, err)
	inFlight(0)
	must(t, whole.Body.Close())
	inFlight(0)
}

func TestNoUpstream(t *testing.T) {
	p := New(nil)
	req := ask(t, http.MethodPost, "/", "text")
	body := &closing{ReadCloser: req.Body}
	req.Body = body
	_, err := p.RoundTrip(req)
	e, ok := errors.AsType[*Error](err)
	if !ok || !errors.Is(err, ErrNoUpstream) || Classify(err) != Unavailable || e.After < time.Second {
		t.Fatalf("the error is %#v", err)
	}
	want(t, "the body is closed", body.closed, true)
}

type closing struct {
	io.ReadCloser
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return c.ReadCloser.Close()
}

// The pick is always usable, and none that is usable has fewer requests in flight. Counters are those of a
// model, through reloads and changes of health, and come back to 0.
func TestPropertyPick(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, hosts := New(nil), []string{"a", "b", "c", "d"}
		model := map[string]int{}
		type taken struct {
			u    *upstream
			give func()
		}
		var flying []taken
		giveBack := func(i int) {
			model[flying[i].u.target.host]--
			flying[i].give()
			flying = slices.Delete(flying, i, i+1)
		}
		check := func() {
			all := map[string]int{}
			for _, s := range p.State() {
				u, _ := url.Parse(s.URL)
				all[u.Host] = s.InFlight
				if s.InFlight < 0 || s.Leaving && s.InFlight == 0 {
					t.Fatalf("state %+v", s)
				}
			}
			for host, n := range model {
				if all[host] != n {
					t.Fatalf("%s has %d in flight, want %d", host, all[host], n)
				}
			}
		}
		set := func(t *rapid.T) {
			chosen := rapid.SliceOfNDistinct(rapid.SampledFrom(hosts), 1, 4, rapid.ID).Draw(t, "hosts")
			c := Config{MaxConns: rapid.IntRange(0, 2).Draw(t, "conns")}
			for _, h := range chosen {
				c.Upstreams = append(c.Upstreams, &url.URL{Scheme: "http", Host: h})
			}
			if err := p.Set(c); err != nil {
				t.Fatal(err)
			}
		}
		set(t)
		t.Repeat(map[string]func(*rapid.T){
			"set": set,
			"health": func(t *rapid.T) {
				u := p.ups[rapid.IntRange(0, len(p.ups)-1).Draw(t, "upstream")]
				u.healthy = rapid.Bool().Draw(t, "healthy")
			},
			"take": func(t *rapid.T) {
				least := -1
				for _, u := range p.ups {
					if n := model[u.target.host]; p.usable(u) && (least < 0 || n < least) {
						least = n
					}
				}
				u, tr, err := p.take()
				if (err != nil) != (least < 0) {
					t.Fatalf("the error is %v, and the least in flight %d", err, least)
				}
				if err != nil {
					return
				}
				if !p.usable(u) || !slices.Contains(p.ups, u) || model[u.target.host] != least {
					t.Fatalf("%v with %d in flight is picked, the least is %d", u.target, u.inFlight-1, least)
				}
				h := &held{pool: p, up: u, by: tr}
				flying = append(flying, taken{u, h.end})
				model[u.target.host]++
			},
			"give": func(t *rapid.T) {
				if len(flying) > 0 {
					giveBack(rapid.IntRange(0, len(flying)-1).Draw(t, "request"))
				}
			},
			"": func(*rapid.T) { check() },
		})
		for len(flying) > 0 {
			giveBack(0)
		}
		check()
		if len(p.leaving) != 0 {
			t.Fatalf("%d upstreams are leaving for ever", len(p.leaving))
		}
	})
}
