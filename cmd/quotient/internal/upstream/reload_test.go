package upstream

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-go/quotient/config"
)

// counting is a server that reports the connections that open and close.
func counting(t testing.TB, h http.HandlerFunc) (s *httptest.Server, opened, closed chan struct{}) {
	t.Helper()
	opened, closed = make(chan struct{}, 1000), make(chan struct{}, 1000)
	s = httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			opened <- struct{}{}
		case http.StateClosed:
			closed <- struct{}{}
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s, opened, closed
}

// soon is an event that does not wait for connections to be idle for their time.
func soon(t testing.TB, c <-chan struct{}) {
	t.Helper()
	start := time.Now()
	event(t, c)
	if d := time.Since(start); d > idleFor*3/4 {
		t.Fatalf("it took %v", d)
	}
}

func TestReloadKeepsConnections(t *testing.T) {
	s, opened, closed := counting(t, func(http.ResponseWriter, *http.Request) {})
	other := named(t, "b")
	p := poolOf(t, nil, s.URL)
	get(t, p, "/")
	event(t, opened)
	for range 3 {
		must(t, p.Set(Config{Upstreams: parse(t, other.URL, s.URL), Health: quick}))
		must(t, p.Set(Config{Upstreams: parse(t, s.URL)}))
		get(t, p, "/")
	}
	want(t, "connections opened after the first", len(opened), 0)
	want(t, "connections closed", len(closed), 0)
	must(t, p.Set(Config{Upstreams: parse(t, s.URL), ResponseHeader: time.Second}))
	soon(t, closed) // settings of connections have changed
	get(t, p, "/")
	event(t, opened)
}

// A reload keeps health, and since when.
func TestReloadKeepsHealth(t *testing.T) {
	p := poolOf(t, nil, "http://a", "http://b")
	p.ups[0].checked(io.EOF)
	before := p.State()[0]
	want(t, "healthy", before.Healthy, false)
	must(t, p.Set(Config{Upstreams: parse(t, "http://c", "http://A/"), MaxConns: 7}))
	want(t, "the state", p.State()[1], before)
	want(t, "MaxConns", p.ups[1].transport.MaxConnsPerHost, 7)
}

// picked is a request for which f is called when its upstream is picked, and nothing was done there yet.
func picked(t testing.TB, f func()) *http.Request {
	t.Helper()
	req := ask(t, http.MethodGet, "/", "")
	trace := &httptrace.ClientTrace{GetConn: func(string) { f() }}
	return req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
}

// An upstream that goes finishes what it has in flight, and then its connections close.
func TestRemovedDrains(t *testing.T) {
	free := make(chan struct{})
	s, _, closed := counting(t, func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		<-free
		_, _ = io.WriteString(w, "whole")
	})
	other := named(t, "other")
	p := poolOf(t, nil, s.URL)
	resp, err := p.RoundTrip(picked(t, func() { must(t, p.Set(Config{Upstreams: parse(t, other.URL)})) }))
	must(t, err)
	want(t, "the answer", get(t, p, "/"), "other")
	leaving := p.State()[1]
	if !leaving.Leaving || leaving.URL != s.URL || leaving.InFlight != 1 {
		t.Fatalf("the state is %+v", leaving)
	}
	close(free)
	want(t, "the answer", read(t, resp), "whole")
	soon(t, closed)
	want(t, "states", len(p.State()), 1)
}

// An upstream that comes back while it leaves has its count, and the settings of connections that are in
// force then.
func TestComesBack(t *testing.T) {
	free := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		<-free
	})
	p := poolOf(t, nil, s.URL)
	resp, err := p.RoundTrip(ask(t, http.MethodGet, "/", ""))
	must(t, err)
	must(t, p.Set(Config{Upstreams: parse(t, "http://b"), MaxConns: 5}))
	must(t, p.Set(Config{Upstreams: parse(t, s.URL), MaxConns: 5}))
	want(t, "states", len(p.State()), 1)
	want(t, "in flight", p.State()[0].InFlight, 1)
	want(t, "MaxConns", p.ups[0].transport.MaxConnsPerHost, 5)
	close(free)
	read(t, resp)
	want(t, "in flight", p.State()[0].InFlight, 0)
}

// Watch follows Set: it checks what is new, and forgets what has gone.
func TestWatchFollowsSet(t *testing.T) {
	checks := make(chan string, 10000)
	var urls []string
	for _, name := range []string{"a", "b"} {
		urls = append(urls, serve(t, func(http.ResponseWriter, *http.Request) { checks <- name }).URL)
	}
	p := poolOf(t, nil)
	health := config.Health{Path: "/", Every: time.Millisecond}
	watch(t, p)
	must(t, p.Set(Config{Upstreams: parse(t, urls[0]), Health: health}))
	want(t, "the check", event(t, checks), "a")
	must(t, p.Set(Config{Upstreams: parse(t, urls...), Health: health}))
	for event(t, checks) != "b" {
	}
	must(t, p.Set(Config{Upstreams: parse(t, urls[1]), Health: health}))
	for row, all := 0, 0; row < 50; all++ { // checks of b alone
		if row++; event(t, checks) == "a" {
			row = 0
		}
		if all > 5000 {
			t.Fatal("an upstream that has gone is checked")
		}
	}
}

func TestCloseFinishes(t *testing.T) {
	free := make(chan struct{})
	s, _, closed := counting(t, func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		<-free
		_, _ = io.WriteString(w, "whole")
	})
	p := poolOf(t, nil, s.URL)
	resp, err := p.RoundTrip(picked(t, func() { must(t, p.Close()) }))
	must(t, err)
	must(t, p.Close())
	must(t, p.Set(Config{Upstreams: parse(t, s.URL)}))
	_, err = p.RoundTrip(ask(t, http.MethodGet, "/", ""))
	want(t, "the kind of "+errorText(err), Classify(err), Unavailable)
	close(free)
	want(t, "the answer", read(t, resp), "whole")
	soon(t, closed)
	want(t, "states", len(p.State()), 0)
}

func TestPrepare(t *testing.T) {
	p := poolOf(t, nil, "http://a")
	f := &config.File{Proxy: &config.Proxy{
		Upstreams: parse(t, "http://b", "http://c"),
		Health:    config.Health{Path: "/h", Every: time.Minute},
		Timeouts:  config.Timeouts{Dial: time.Second, ResponseHeader: 2 * time.Second},
		Max:       config.Max{Upstream: 9},
	}}
	commit, err := p.Prepare(f)
	must(t, err)
	want(t, "upstreams before commit", p.State()[0].URL, "http://a")
	commit()
	want(t, "upstreams after commit", p.State()[1].URL, "http://c")
	want(t, "the limits", p.limits, limits{dial: time.Second, head: 2 * time.Second, conns: 9})
	want(t, "the health", p.health, config.Health{
		Path: "/h", Every: time.Minute, Timeout: 2 * time.Second, Unhealthy: 3, Healthy: 1,
	})
	if _, err := p.Prepare(&config.File{}); err == nil {
		t.Fatal("a file without [proxy] has upstreams")
	}
}

// An impossible setting is an error that names field and value, and all stays as it was.
func TestSetRefuses(t *testing.T) {
	p := poolOf(t, nil, "http://a")
	many, b := make([]*url.URL, maxUpstreams+1), parse(t, "http://b")
	for _, row := range []struct {
		c     Config
		names []string
	}{
		{Config{}, []string{"Upstreams", "0 URLs"}},
		{Config{Upstreams: many}, []string{"Upstreams", "1001 URLs"}},
		{Config{Upstreams: many[:1]}, []string{"Upstreams", "nil"}},
		{Config{Upstreams: parse(t, "ftp://a")}, []string{"Upstreams", "ftp"}},
		{Config{Upstreams: parse(t, "http://")}, []string{"Upstreams", "no host"}},
		{Config{Upstreams: parse(t, "http://:80")}, []string{"Upstreams", "no host"}},
		{Config{Upstreams: parse(t, "http://a/path")}, []string{"Upstreams", "/path"}},
		{Config{Upstreams: parse(t, "http://a?q")}, []string{"Upstreams", "?q"}},
		{Config{Upstreams: parse(t, "http://a#f")}, []string{"Upstreams", "#f"}},
		{Config{Upstreams: parse(t, "http://u:secret@a")}, []string{"Upstreams", "u:xxxxx@a"}},
		{Config{Upstreams: parse(t, "http://a", "HTTP://A/")}, []string{"Upstreams", "http://a twice"}},
		{Config{Upstreams: b, MaxConns: -1}, []string{"MaxConns", "-1"}},
		{Config{Upstreams: b, Dial: -1}, []string{"Dial", "-1ns"}},
		{Config{Upstreams: b, ResponseHeader: -1}, []string{"ResponseHeader", "-1ns"}},
		{Config{Upstreams: b, Health: config.Health{Every: -1}}, []string{"Health.Every", "-1ns"}},
		{Config{Upstreams: b, Health: config.Health{Timeout: -1}}, []string{"Health.Timeout", "-1ns"}},
		{Config{Upstreams: b, Health: config.Health{Healthy: -1}}, []string{"Health.Healthy", "-1"}},
		{Config{Upstreams: b, Health: config.Health{Unhealthy: -2}}, []string{"Health.Unhealthy", "-2"}},
		{Config{Upstreams: b, Health: config.Health{Path: "x"}}, []string{"Health.Path", `"x"`}},
		{Config{Upstreams: b, Health: config.Health{Path: "/%zz"}}, []string{"Health.Path", "%zz"}},
	} {
		err := p.Set(row.c)
		for _, name := range row.names {
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%+v: the error is %v, want one with %q", row.c, err, name)
			}
		}
		want(t, "the upstream", p.State()[0].URL, "http://a")
	}
}

// Requests, reloads and checks at the same time: no request fails, and no count is left.
func TestStress(t *testing.T) {
	var urls []string
	for range 4 {
		urls = append(urls, named(t, "answer").URL)
	}
	plain, _ := h2(t, false, saying("answer"))
	urls = append(urls, plain)
	p := poolOf(t, nil, urls...)
	stop := watch(t, p)
	var senders sync.WaitGroup
	var sent atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 8 {
		senders.Go(func() {
			for ctx.Err() == nil {
				resp, err := p.RoundTrip(ask(t, http.MethodGet, "/", ""))
				if err != nil {
					t.Errorf("a request failed: %v", err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				sent.Add(1)
			}
		})
	}
	for i := range 200 {
		now := parse(t, urls[i%4], urls[(i+1+i/4)%4], plain)
		if now[0].Host == now[1].Host {
			now = now[1:]
		}
		must(t, p.Set(Config{Upstreams: now, Health: quick, Dial: time.Second * time.Duration(5+i/50)}))
		for sent.Load() < int32(10*i) && ctx.Err() == nil && !t.Failed() {
			p.State()
		}
	}
	cancel()
	senders.Wait()
	for _, s := range p.State() {
		if s.InFlight != 0 || s.Leaving || !s.Healthy {
			t.Errorf("the state is %+v", s)
		}
	}
	stop()
}
