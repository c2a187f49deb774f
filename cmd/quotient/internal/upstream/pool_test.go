package upstream

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/tested"
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
			if len(all) != len(p.State()) {
				t.Fatalf("an upstream is there twice: %+v", p.State())
			}
			for host, n := range model {
				if all[host] != n {
					t.Fatalf("%s has %d in flight, want %d", host, all[host], n)
				}
			}
		}
		set := func(t *rapid.T) {
			chosen := rapid.SliceOfNDistinct(rapid.SampledFrom(hosts), 1, 4, rapid.ID).Draw(t, "hosts")
			s := &config.Proxy{Max: config.Max{Upstream: rapid.IntRange(0, 2).Draw(t, "conns")}}
			for _, h := range chosen {
				s.Upstreams = append(s.Upstreams, &url.URL{Scheme: "http", Host: h})
			}
			p.apply(s)
			for _, u := range p.ups {
				if u.by.http1.Conns != s.Max.Upstream {
					t.Fatalf("%v has %d connections at most, want %d", u.target, u.by.http1.Conns, s.Max.Upstream)
				}
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
	tested.Event(t, c)
	if d := time.Since(start); d > idleFor*3/4 {
		t.Fatalf("it took %v", d)
	}
}

func TestReloadKeepsConnections(t *testing.T) {
	s, opened, closed := counting(t, func(http.ResponseWriter, *http.Request) {})
	other := named(t, "b")
	p := poolOf(t, nil, s.URL)
	get(t, p, "/")
	tested.Event(t, opened)
	for range 3 {
		p.apply(checked(t, quick, other.URL, s.URL))
		p.apply(section(t, s.URL))
		get(t, p, "/")
	}
	want(t, "connections opened after the first", len(opened), 0)
	want(t, "connections closed", len(closed), 0)
	changed := section(t, s.URL)
	changed.Timeouts.ResponseHeader = time.Second
	p.apply(changed)
	soon(t, closed) // settings of connections have changed
	get(t, p, "/")
	tested.Event(t, opened)
}

// A reload keeps health, and since when.
func TestReloadKeepsHealth(t *testing.T) {
	p := poolOf(t, nil, "http://a", "http://b")
	p.ups[0].checked(io.EOF)
	before := p.State()[0]
	want(t, "healthy", before.Healthy, false)
	next := section(t, "http://c", "http://A/")
	next.Max.Upstream = 7
	p.apply(next)
	want(t, "the state", p.State()[1], before)
	want(t, "MaxConns", p.ups[1].by.http1.Conns, 7)
}

// picked is a request for which f is called when its upstream is picked, and nothing was sent there yet.
func picked(t testing.TB, f func()) *http.Request {
	t.Helper()
	return watched(ask(t, http.MethodGet, "/", ""), &watcher{connected: f})
}

// An upstream that goes, alone or with the Pool, finishes what it has in flight, and then its connections close.
func TestRemovedDrains(t *testing.T) {
	other := named(t, "other")
	for name, leave := range map[string]func(*Pool){
		"removed": func(p *Pool) { p.apply(section(t, other.URL)) },
		"closed":  func(p *Pool) { must(t, p.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			free := make(chan struct{})
			s, _, closed := counting(t, func(w http.ResponseWriter, _ *http.Request) {
				w.(http.Flusher).Flush()
				<-free
				_, _ = io.WriteString(w, "whole")
			})
			p := poolOf(t, nil, s.URL)
			resp, err := p.RoundTrip(picked(t, func() { leave(p) }))
			must(t, err)
			state := p.State()
			if leaving := state[len(state)-1]; !leaving.Leaving || leaving.URL != s.URL || leaving.InFlight != 1 {
				t.Fatalf("the state is %+v", state)
			}
			if name == "removed" {
				want(t, "the answer", get(t, p, "/"), "other")
			} else {
				must(t, p.Close())
				p.apply(section(t, s.URL))
				_, err = p.RoundTrip(ask(t, http.MethodGet, "/", ""))
				want(t, "the kind of "+errorText(err), Classify(err), Unavailable)
			}
			close(free)
			want(t, "the answer", read(t, resp), "whole")
			soon(t, closed)
			want(t, "states", len(p.State()), len(state)-1)
		})
	}
}

// Watch follows Set: it checks what is new, and forgets what has gone.
func TestWatchFollowsSet(t *testing.T) {
	checks := make(chan string, 10000)
	var urls []string
	for _, name := range []string{"a", "b"} {
		urls = append(urls, serve(t, func(http.ResponseWriter, *http.Request) { checks <- name }).URL)
	}
	p := poolOf(t, nil)
	health := config.Health{Path: "/", Every: time.Millisecond, Timeout: tested.Patience, Unhealthy: 3, Healthy: 1}
	watch(t, p)
	p.apply(checked(t, health, urls[0]))
	want(t, "the check", tested.Event(t, checks), "a")
	p.apply(checked(t, health, urls...))
	for tested.Event(t, checks) != "b" {
	}
	p.apply(checked(t, health, urls[1]))
	for row, all := 0, 0; row < 50; all++ { // checks of b alone
		if row++; tested.Event(t, checks) == "a" {
			row = 0
		}
		if all > 5000 {
			t.Fatal("an upstream that has gone is checked")
		}
	}
}

func TestPrepare(t *testing.T) {
	p := poolOf(t, nil, "http://a")
	next := checked(t, quick, "http://b", "http://c")
	next.Timeouts = config.Timeouts{Dial: time.Second, ResponseHeader: 2 * time.Second}
	next.Max.Upstream = 9
	commit, err := p.Prepare(&config.File{Proxy: next})
	must(t, err)
	want(t, "upstreams before commit", p.State()[0].URL, "http://a")
	commit()
	want(t, "upstreams after commit", p.State()[1].URL, "http://c")
	want(t, "the limits", p.limits, limits{dial: time.Second, head: 2 * time.Second, conns: 9})
	want(t, "the health", p.health, quick)
	if _, err := p.Prepare(&config.File{}); err == nil {
		t.Fatal("a file without [proxy] has upstreams")
	}
}

// quick are checks for tests with real servers.
var quick = config.Health{Every: 5 * time.Millisecond, Timeout: tested.Patience, Unhealthy: 3, Healthy: 2}

// These events take an upstream out and bring it back: c and C are checks that fail and succeed, d and D
// attempts of requests to connect. The second line says after which it is healthy.
func TestTransitions(t *testing.T) {
	for _, row := range []struct{ name, events, healthy, log string }{
		{"never answered", "cccCC", "....Y", "out back"},
		{"failures in a row", "CcccC", "YYY..", "out"},
		{"not in a row", "CccCccC", "YYYYYYY", ""},
		{"successes in a row", "CcccCcCC", "YYY....Y", "out back"},
		{"requests that cannot connect", "Cdddd", "YYY..", "out"},
		{"requests, not in a row", "CddDddDdd", "YYYYYYYYY", ""},
		{"a check between", "CddCdd", "YYYYYY", ""},
		{"a connection is no check", "CcDcDcD", "YYYYY..", "out"},
		{"requests keep it out", "CcccCdCC", "YYY....Y", "out back"},
		{"not watched", "ddddddddd", "YYYYYYYYY", ""}, // nothing would bring it back
	} {
		t.Run(row.name, func(t *testing.T) {
			log, lines := events()
			p := poolOf(t, log, "http://a", "http://b")
			p.apply(checked(t, quick, "http://a", "http://b"))
			p.watched = row.name != "not watched"
			u, healthy := p.ups[0], ""
			for _, e := range row.events {
				switch e {
				case 'c':
					u.checked(errors.New("a check"))
				case 'C':
					u.checked(nil)
				case 'd':
					u.dialled(errors.New("a request"))
				case 'D':
					u.dialled(nil)
				}
				healthy += map[bool]string{true: "Y", false: "."}[p.State()[0].Healthy]
			}
			want(t, "healthy", healthy, row.healthy)
			got := ""
			for len(lines) > 0 {
				got += word(<-lines)
			}
			want(t, "the log", strings.TrimSpace(got), row.log)
		})
	}
}

func word(line string) string {
	switch line {
	case "INFO upstream is back url=http://a":
		return " back"
	case "WARN upstream is out url=http://a tried=false",
		"WARN upstream does not answer url=http://a tried=false":
		return " out"
	}
	return line
}

// serveAt has a server answer at an address from now on.
func serveAt(t *testing.T, addr, text string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	must(t, err)
	s := http.Server{Handler: saying(text)}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
}

// An upstream that does not answer at start is reported once, in one line, and gets no requests until it
// answers.
func TestDoesNotAnswerAtStart(t *testing.T) {
	addr := nowhere(t)
	up := named(t, "up")
	log, lines := events()
	p := poolOf(t, log, "http://"+addr, up.URL)
	p.apply(checked(t, quick, "http://"+addr, up.URL))
	stop := watch(t, p)
	want(t, "the line", tested.Event(t, lines), "WARN upstream does not answer url=http://"+addr+" tried=false")
	for range 5 {
		want(t, "the answer", get(t, p, "/"), "up")
	}
	serveAt(t, addr, "late")
	want(t, "the line", tested.Event(t, lines), "INFO upstream is back url=http://"+addr)
	first, second := get(t, p, "/"), get(t, p, "/")
	want(t, "answers of both", first != second, true)
	stop()
	want(t, "lines left", len(lines), 0)
}

// Checks with a path: 2xx and 3xx are well, all else is not.
func TestCheckWithPath(t *testing.T) {
	var status atomic.Int32
	status.Store(http.StatusFound)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RequestURI() != "/health?x=1" || r.Method != http.MethodGet {
			t.Errorf("the check is %s %s", r.Method, r.URL.RequestURI())
		}
		w.WriteHeader(int(status.Load()))
	})
	log, lines := events()
	p := poolOf(t, log, s.URL)
	health := quick
	health.Path = "/health?x=1"
	p.apply(checked(t, health, s.URL))
	watch(t, p)
	for range 2 {
		status.Store(http.StatusServiceUnavailable)
		line := tested.Event(t, lines)
		if !strings.HasSuffix(line, " url="+s.URL+" tried=false") || !strings.HasPrefix(line, "WARN ") {
			t.Fatalf("the line is %q", line)
		}
		want(t, "the error", p.State()[0].Error, "GET /health?x=1: the answer is 503 Service Unavailable")
		_, err := p.RoundTrip(ask(t, http.MethodGet, "/", ""))
		if !errors.Is(err, ErrNoUpstream) {
			t.Fatalf("the error is %v", err)
		}
		status.Store(http.StatusNoContent)
		want(t, "the line", tested.Event(t, lines), "INFO upstream is back url="+s.URL)
	}
}

// A single upstream whose checks only connect is tried although it is out.
func TestSingleIsTried(t *testing.T) {
	addr := nowhere(t)
	log, lines := events()
	p := poolOf(t, log, "http://"+addr)
	watch(t, p)
	want(t, "the line", tested.Event(t, lines), "WARN upstream does not answer url=http://"+addr+" tried=true")
	serveAt(t, addr, "up")
	want(t, "healthy", p.State()[0].Healthy, false)
	want(t, "the answer", get(t, p, "/"), "up")
}

// Requests that cannot connect take an upstream out between its checks.
func TestRequestsTakeOut(t *testing.T) {
	addr := listen(t)
	go accept(addr, func(net.Conn) {})
	up := named(t, "up")
	gone := "http://" + addr.Addr().String()
	log, lines := events()
	p := poolOf(t, log, gone, up.URL)
	seldom := quick
	seldom.Every = time.Hour
	p.apply(checked(t, seldom, gone, up.URL))
	watch(t, p)
	answered(t, p)
	_ = addr.Close()
	failures := 0
	for range 20 {
		resp, err := p.RoundTrip(ask(t, http.MethodGet, "/", ""))
		if err != nil {
			want(t, "the kind of "+errorText(err), Classify(err), Unavailable)
			failures++
			continue
		}
		want(t, "the answer", read(t, resp), "up")
	}
	want(t, "requests that failed", failures, 3)
	want(t, "the line", tested.Event(t, lines), "WARN upstream is out url="+gone+" tried=false")
}

// answered waits until each upstream has answered a check.
func answered(t *testing.T, p *Pool) {
	t.Helper()
	for end := time.Now().Add(tested.Patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		p.mu.Lock()
		all := true
		for _, u := range p.ups {
			all = all && u.answered
		}
		p.mu.Unlock()
		if all {
			return
		}
	}
	t.Fatal("an upstream was not checked")
}

// Checks come at once and then each Every, a tenth more or less, and one that hangs is a failure after
// Timeout.
func TestTimesOfChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, lines := events()
		p := poolOf(t, log, "http://192.0.2.1", "http://192.0.2.2")
		health := config.Health{Every: 10 * time.Second, Timeout: 2 * time.Second, Unhealthy: 3, Healthy: 1}
		p.apply(checked(t, health, "http://192.0.2.1", "http://192.0.2.2"))
		c := newChecker(p.ups[0], p.health, p.limits)
		dials, hang := make(chan time.Time, 100), atomic.Bool{}
		c.dial = func(ctx context.Context) (net.Conn, error) {
			dials <- time.Now()
			if hang.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			own, other := net.Pipe()
			_ = other.Close()
			return own, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		go c.run(ctx)
		last := <-dials
		want(t, "the first check comes after", last.Sub(start), 0)
		different := map[time.Duration]bool{}
		for range 10 {
			now := <-dials
			gap := now.Sub(last)
			if gap < 9*time.Second || gap > 11*time.Second {
				t.Fatalf("%v lie between two checks", gap)
			}
			different[gap], last = true, now
		}
		if len(different) < 9 {
			t.Fatalf("the gaps are %v", different)
		}
		synctest.Wait() // the check of the last dial has ended
		hang.Store(true)
		for range 3 {
			last = <-dials
		}
		want(t, "the line", <-lines, "WARN upstream is out url=http://192.0.2.1 tried=false")
		want(t, "it is out after", time.Since(last), 2*time.Second)
		hang.Store(false)
		want(t, "the line", <-lines, "INFO upstream is back url=http://192.0.2.1")
		cancel()
		synctest.Wait()
	})
}

func TestOneWatch(t *testing.T) {
	p := poolOf(t, nil, named(t, "a").URL)
	stop := watch(t, p)
	answered(t, p)
	if err := p.Watch(t.Context()); err == nil {
		t.Fatal("a second Watch runs")
	}
	stop()
	watch(t, p)() // and again
}

// The connections of checks prove that TLS works, and HTTP/2 where it is used.
func TestChecksOfEachScheme(t *testing.T) {
	handler := func(http.ResponseWriter, *http.Request) {}
	secure, roots := h2(t, true, handler)
	plain, _ := h2(t, false, handler)
	for _, path := range []string{"", "/health"} {
		for _, url := range []string{named(t, "a").URL, secure, plain} {
			health := quick
			health.Path = path
			check := func(roots *x509.CertPool) error {
				p := poolTo(t, roots, checked(t, health, url))
				return newChecker(p.ups[0], p.health, p.limits).check(t.Context())
			}
			must(t, check(roots))
			if url == secure && check(nil) == nil {
				t.Fatal("a certificate of an unknown authority is well")
			}
		}
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
		now := checked(t, quick, urls[i%4], urls[(i%4+1+i/4%3)%4], plain)
		now.Timeouts.Dial = time.Second * time.Duration(5+i/50)
		p.apply(now)
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

// Connections that get no other request are closed when all are at their ends, and no sooner: an answer would be lost.
func TestNothingIsClosedUnderARequest(t *testing.T) {
	s, _, closed := counting(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			_, _ = io.WriteString(w, "long")
		}
	})
	settings := func(conns int, urls ...string) *config.Proxy {
		next := section(t, urls...)
		next.Max.Upstream = conns
		return next
	}
	for name, leave := range map[string]func(*Pool, *http.Response){
		"removed": func(p *Pool, _ *http.Response) { p.apply(section(t, "http://b")) },
		"comes back": func(p *Pool, _ *http.Response) {
			p.apply(section(t, "http://b"))
			p.apply(settings(2, s.URL))
		},
		"closed":         func(p *Pool, _ *http.Response) { must(t, p.Close()) },
		"other settings": func(p *Pool, _ *http.Response) { p.apply(settings(2, s.URL)) },
		"another request ends then": func(p *Pool, long *http.Response) {
			p.apply(settings(2, s.URL))
			want(t, "the other answer", read(t, long), "long")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := poolOf(t, nil, s.URL)
			long, err := p.RoundTrip(ask(t, http.MethodGet, "/long", ""))
			must(t, err)
			resp, err := p.RoundTrip(watched(ask(t, http.MethodGet, "/", ""), &watcher{sent: func() { leave(p, long) }}))
			must(t, err)
			want(t, "the answer", read(t, resp), "")
			_ = long.Body.Close()
			for range 2 {
				soon(t, closed)
			}
		})
	}
}
