package upstream

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/config"
)

// quick are checks for tests with real servers.
var quick = config.Health{Every: 5 * time.Millisecond, Timeout: patience, Unhealthy: 3, Healthy: 2}

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
	} {
		t.Run(row.name, func(t *testing.T) {
			log, lines := events()
			p := poolOf(t, log, "http://a", "http://b")
			p.apply(checked(t, quick, "http://a", "http://b"))
			p.watched = true
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

// Without Watch nothing would bring an upstream back, so nothing takes it out.
func TestNotOutWithoutWatch(t *testing.T) {
	p := poolOf(t, nil, "http://"+nowhere(t), "http://"+nowhere(t))
	for range 20 {
		_, err := p.RoundTrip(ask(t, http.MethodGet, "/", ""))
		want(t, "the kind of "+errorText(err), Classify(err), Unavailable)
	}
	s := p.State()[0]
	if !s.Healthy || s.Error == "" || s.ErrorAt.IsZero() {
		t.Fatalf("the state is %+v", s)
	}
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
	want(t, "the line", event(t, lines), "WARN upstream does not answer url=http://"+addr+" tried=false")
	for range 5 {
		want(t, "the answer", get(t, p, "/"), "up")
	}
	serveAt(t, addr, "late")
	want(t, "the line", event(t, lines), "INFO upstream is back url=http://"+addr)
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
		line := event(t, lines)
		if !strings.HasSuffix(line, " url="+s.URL+" tried=false") || !strings.HasPrefix(line, "WARN ") {
			t.Fatalf("the line is %q", line)
		}
		want(t, "the error", p.State()[0].Error, "GET /health?x=1: the answer is 503 Service Unavailable")
		_, err := p.RoundTrip(ask(t, http.MethodGet, "/", ""))
		if !errors.Is(err, ErrNoUpstream) {
			t.Fatalf("the error is %v", err)
		}
		status.Store(http.StatusNoContent)
		want(t, "the line", event(t, lines), "INFO upstream is back url="+s.URL)
	}
}

// A single upstream whose checks only connect is tried although it is out.
func TestSingleIsTried(t *testing.T) {
	addr := nowhere(t)
	log, lines := events()
	p := poolOf(t, log, "http://"+addr)
	watch(t, p)
	want(t, "the line", event(t, lines), "WARN upstream does not answer url=http://"+addr+" tried=true")
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
	want(t, "the line", event(t, lines), "WARN upstream is out url="+gone+" tried=false")
}

// answered waits until each upstream has answered a check.
func answered(t *testing.T, p *Pool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
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
		p := poolOf(t, log, "http://a", "http://b")
		health := config.Health{Every: 10 * time.Second, Timeout: 2 * time.Second, Unhealthy: 3, Healthy: 1}
		p.apply(checked(t, health, "http://a", "http://b"))
		c := newChecker(p.ups[0], p.health, p.limits)
		dials, hang := make(chan time.Time, 100), atomic.Bool{}
		c.bare.DialContext = func(ctx context.Context, _, addr string) (net.Conn, error) {
			want(t, "the address", addr, "a:80")
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
		want(t, "the line", <-lines, "WARN upstream is out url=http://a tried=false")
		want(t, "it is out after", time.Since(last), 2*time.Second)
		hang.Store(false)
		want(t, "the line", <-lines, "INFO upstream is back url=http://a")
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
