//go:build unix

package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/quotient-go/quotient/admin"
)

func TestItServesWithNoConfiguration(t *testing.T) {
	up := hold(t)
	p := start(t, anywhere(strings.TrimPrefix(up.URL, "http://"))...)
	if a := get(t, p.url+"/a//b"); a.status != http.StatusOK || a.body != "from upstream /a//b" {
		t.Errorf("got %v", a)
	}
	if line := p.logged("limiter"); !strings.Contains(fmt.Sprint(line["limit"]), "100 per 1m") {
		t.Errorf("the log has %v", line)
	}
	p.logged("pool")
	s := p.state()
	l := s.Limiters[limiterName]
	if len(l.Limit.Rates) != 1 || !l.Limit.Rates[0].Aligned || l.Limit.Rates[0].Events != 100 ||
		l.Limit.InFlight != 100 || l.Admitted != 1 {
		t.Errorf("got %+v", l)
	}
	if s.File != nil {
		t.Errorf("the page shows the file %+v, and there is none", s.File)
	}
	var titles []string
	for _, table := range s.Tables {
		titles = append(titles, table.Title)
	}
	if got := strings.Join(titles, ", "); got != "Overhead of requests within their limits, Upstreams, "+
		"Connections of clients" {
		t.Errorf("the page shows %s", got)
	}
	if a := get(t, p.page); a.status != http.StatusOK || !strings.Contains(a.body, "<html") {
		t.Errorf("the page: %d", a.status)
	}
	if a := get(t, p.page+"health"); a.status != http.StatusOK || a.body != "alive\n" {
		t.Errorf("/health: %v", a)
	}
	for _, metric := range []string{"quotient_requests_total", "go_goroutines", "process_open_fds"} {
		if !strings.Contains(get(t, p.page+"metrics").body, "\n"+metric) {
			t.Errorf("/metrics has no %s", metric)
		}
	}
	// Nothing is exempt on the proxy's own port.
	for _, path := range []string{"/health", "/ready", "/metrics", "/state"} {
		if a := get(t, p.url+path); a.body != "from upstream "+path {
			t.Errorf("%s: got %v", path, a)
		}
	}
}

// TestMetricsAreInTheDocs checks that docs/proxy.md lists the proxy's own metrics, no more and no less.
func TestMetricsAreInTheDocs(t *testing.T) {
	up := hold(t)
	p := start(t, anywhere(up.URL)...)
	get(t, p.url+"/")
	names := func(pattern, text string) string {
		var all []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, m[1])
		}
		slices.Sort(all)
		return strings.Join(slices.Compact(all), " ")
	}
	page, err := os.ReadFile("../../docs/proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Metrics\n")
	section, _, _ = strings.Cut(section, "\n## ")
	const own = `quotient_(?:proxy|upstream_up|upstream_in_flight)[a-z_]*`
	got := names(`(?m)^# TYPE (`+own+`) `, get(t, p.page+"metrics").body)
	if want := names("(?m)^\\| `("+own+")`", section); got != want || got == "" {
		t.Errorf("/metrics has %q, the page %q", got, want)
	}
}

func TestItRefuses(t *testing.T) {
	up := hold(t)
	p := start(t, anywhere("--refuse", "--rpm", "0", "--inflight", "1", up.URL)...)
	first := later(t, p.url+"/held")
	up.arrived(t)
	a := get(t, p.url+"/held/../held")
	if a.status != http.StatusTooManyRequests || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("got %v", a)
	}
	up.release()
	if a := <-first; a.status != http.StatusOK {
		t.Errorf("the first: %v", a)
	}
}

func TestItWaits(t *testing.T) {
	up := hold(t)
	p := start(t, anywhere("--rpm", "0", "--inflight", "1", up.URL)...)
	first := later(t, p.url+"/held")
	up.arrived(t)
	second := later(t, p.url+"/held")
	p.until("one waits", func(s admin.State) bool { return s.Limiters[limiterName].Waiting == 1 })
	up.release()
	for _, c := range []<-chan answer{first, second} {
		if a := <-c; a.status != http.StatusOK {
			t.Errorf("got %v", a)
		}
	}
}

// written writes a file of one limiter and one rule, with lines of its own in some tables.
func written(t *testing.T, path, upstream string, inflight int, more string) {
	t.Helper()
	text := fmt.Sprintf(`
[limiters.api]
in-flight = %d

[proxy]
listen = "127.0.0.1:0"
upstreams = [%q]

[[proxy.rules]]
pattern = "/"
limiter = "api"

[proxy.admin]
listen = "127.0.0.1:0"
%s`, inflight, upstream, more)
	renamed(t, path, text)
}

// renamed puts a text in the place of a file at once, as editors do.
func renamed(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestItReadsTheFileAgain(t *testing.T) {
	up := hold(t)
	path := filepath.Join(t.TempDir(), "quotient.toml")
	written(t, path, up.URL, 1, "")
	p := start(t, "--config", path)
	first := later(t, p.url+"/held")
	up.arrived(t)
	second := later(t, p.url+"/held")
	p.until("one waits", func(s admin.State) bool { return s.Limiters["api"].Waiting == 1 })

	// An old file that is the same is read when a hangup asks for it.
	p.signal(syscall.SIGHUP)
	p.until("read at the hangup", func(s admin.State) bool { return s.File.Reloads == 1 })
	if n := p.state().Limiters["api"].Waiting; n != 1 {
		t.Errorf("%d wait, want 1: a reload that changes nothing does nothing", n)
	}

	renamed(t, path, "[limiters.api]\nin-flight = 3\nrate = 5\n")
	p.signal(syscall.SIGHUP)
	p.until("the broken file is shown", func(s admin.State) bool {
		return s.File.Failures > 0 && strings.Contains(s.File.Error, "quotient.toml:3:1: limiters.api.rate")
	})
	if l := p.state().Limiters["api"]; l.Limit.InFlight != 1 || l.Waiting != 1 {
		t.Errorf("%d slots and %d that wait, want the old 1 and 1", l.Limit.InFlight, l.Waiting)
	}
	if !strings.Contains(get(t, p.page+"metrics").body, "quotient_config_last_reload_successful 0") {
		t.Error("no metric says that the file is broken")
	}
	p.logged("file refused")

	// The change of a limit lets the one that waits through.
	written(t, path, up.URL, 2, "")
	p.signal(syscall.SIGHUP)
	up.arrived(t)
	p.until("well again", func(s admin.State) bool {
		return s.File.Error == "" && s.Limiters["api"].Limit.InFlight == 2
	})
	up.release()
	for _, c := range []<-chan answer{first, second} {
		if a := <-c; a.status != http.StatusOK {
			t.Errorf("got %v", a)
		}
	}
}

func TestWhatIsSuspiciousIsSaid(t *testing.T) {
	up := hold(t)
	path := filepath.Join(t.TempDir(), "quotient.toml")
	written(t, path, up.URL, 1, "[pool]\nreplicas = 2\n")
	p := start(t, "--config", path)
	if line := p.logged("limiter api has 1 slots for 2 replicas"); line["level"] != "WARN" {
		t.Errorf("got %v", line)
	}
}

func TestAFileThatNeedsARestart(t *testing.T) {
	up := hold(t)
	path := filepath.Join(t.TempDir(), "quotient.toml")
	written(t, path, up.URL, 1, "")
	p := start(t, "--config", path)
	written(t, path, up.URL, 7, `hosts = ["ops.example"]`+"\n")
	p.signal(syscall.SIGHUP)
	p.until("refused", func(s admin.State) bool {
		return strings.Contains(s.File.Error, "proxy.admin: a change requires a restart")
	})
	if n := p.state().Limiters["api"].Limit.InFlight; n != 1 {
		t.Errorf("%d slots: half of the file is in force", n)
	}
}

func TestItEndsInOrder(t *testing.T) {
	up := hold(t)
	p := start(t, anywhere("--rpm", "0", "--inflight", "1", up.URL)...)
	first := later(t, p.url+"/held")
	up.arrived(t)
	second := later(t, p.url+"/held")
	p.until("one waits", func(s admin.State) bool { return s.Limiters[limiterName].Waiting == 1 })
	if a := get(t, p.page+"ready"); a.status != http.StatusOK {
		t.Errorf("/ready: %v", a)
	}
	p.signal(syscall.SIGTERM)
	if a := <-second; a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("the one that waits got %v", a)
	}
	if a := get(t, p.page+"ready"); a.status != http.StatusServiceUnavailable || a.body != "shutting down\n" {
		t.Errorf("/ready: %v", a)
	}
	if a := get(t, p.page+"health"); a.status != http.StatusOK {
		t.Errorf("/health: %v", a)
	}
	up.release()
	if a := <-first; a.status != http.StatusOK {
		t.Errorf("the one in flight got %v", a)
	}
	if code := p.wait(); code != exitOK {
		t.Errorf("exit %d, want 0", code)
	}
	if line := p.logged("overhead"); line["requests"] != 1. {
		t.Errorf("the summary is %v", line)
	}
}

func TestASecondSignalEndsItAtOnce(t *testing.T) {
	up := hold(t)
	p := start(t, anywhere(up.URL)...)
	go func() { // it breaks off
		if resp, err := client.Get(p.url + "/held"); err == nil {
			_ = resp.Body.Close()
		}
	}()
	up.arrived(t)
	p.signal(syscall.SIGTERM)
	p.untilGot("it is not ready any more", func() bool {
		return get(t, p.page+"ready").status == http.StatusServiceUnavailable
	})
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != -1 {
		t.Errorf("exit %d, want the signal", code)
	}
}

func TestAHangupWithoutAFileEndsIt(t *testing.T) {
	up := hold(t)
	p := start(t, anywhere(up.URL)...)
	p.signal(syscall.SIGHUP)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit %d, want 0", code)
	}
}

func TestReadyTurnsWithTheUpstream(t *testing.T) {
	up := hold(t)
	path := filepath.Join(t.TempDir(), "quotient.toml")
	written(t, path, up.URL, 1, "[proxy.health]\nevery = \"20ms\"\nunhealthy = 1\n")
	p := start(t, "--config", path)
	p.untilGot("ready", func() bool { return get(t, p.page+"ready").status == http.StatusOK })
	addr := up.Listener.Addr().String()
	up.Close()
	p.untilGot("not ready", func() bool { return get(t, p.page+"ready").body == "no upstream is healthy\n" })
	if a := get(t, p.url+"/x"); a.status != http.StatusServiceUnavailable ||
		a.header.Get("Retry-After") == "" {
		t.Errorf("without an upstream: %v", a)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("the port is taken: %v", err)
	}
	back := &http.Server{Handler: http.NotFoundHandler()}
	go func() { _ = back.Serve(l) }()
	defer back.Close()
	p.untilGot("ready again", func() bool { return get(t, p.page+"ready").status == http.StatusOK })
}

func TestAnUpstreamThatIsNotThereIsSaid(t *testing.T) {
	p := start(t, anywhere(nowhere(t))...)
	p.untilGot("a warning", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, line := range p.log {
			if line["level"] == "WARN" && strings.Contains(fmt.Sprint(line), "upstream") {
				return true
			}
		}
		return false
	})
}

func TestAdminOff(t *testing.T) {
	up := hold(t)
	p := start(t, "--listen", "127.0.0.1:0", "--admin", "off", up.URL)
	if p.page != "" {
		t.Errorf("the page is at %s", p.page)
	}
	if a := get(t, p.url+"/"); a.status != http.StatusOK {
		t.Errorf("got %v", a)
	}
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit %d, want 0", code)
	}
}

func TestAPoolFromAFile(t *testing.T) {
	up := hold(t)
	size := filepath.Join(t.TempDir(), "replicas")
	p := start(t, anywhere("--pool", "file:"+size, up.URL)...)
	if a := get(t, p.page+"ready"); a.status != http.StatusServiceUnavailable {
		t.Errorf("before the first count /ready is %v", a)
	}
	blocked := later(t, p.url+"/x")
	p.until("it waits for the first count", func(s admin.State) bool {
		return s.Limiters[limiterName].Waiting == 1
	})
	renamed(t, size, "4")
	p.until("one of four", func(s admin.State) bool {
		l := s.Limiters[limiterName]
		return l.Pool.Replicas == 4 && l.Pool.Source == "followed"
	})
	if a := get(t, p.page+"ready"); a.status != http.StatusOK {
		t.Errorf("/ready: %v", a)
	}
	p.signal(syscall.SIGTERM) // aligned windows open with the next minute
	if a := <-blocked; a.status != http.StatusServiceUnavailable && a.status != http.StatusOK {
		t.Errorf("got %v", a)
	}
	if code := p.wait(); code != exitOK {
		t.Errorf("exit %d, want 0", code)
	}
}

// TestTheLogHasOneForm checks that nothing else writes to stderr: the client of a store has a log of its
// own.
func TestTheLogHasOneForm(t *testing.T) {
	up := hold(t)
	p := start(t, anywhere("--pool", "redis://user:opensesame@"+nowhere(t)+"/0", up.URL)...)
	p.logged("pool hint failed")
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit %d, want 0", code)
	}
	for _, line := range p.log {
		if line["level"] == nil || strings.Contains(fmt.Sprint(line), "opensesame") {
			t.Errorf("the log has %v", line)
		}
	}
}

func TestAnAddressThatIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct{ listen, admin, want string }{
		{l.Addr().String(), "127.0.0.1:0", "proxy.listen"},
		{"127.0.0.1:0", l.Addr().String(), "proxy.admin.listen"},
	} {
		out, err := program(t, "proxy", "--listen", c.listen, "--admin", c.admin,
			"localhost:1").CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte(c.want)) ||
			!bytes.Contains(out, []byte("address already in use")) {
			t.Errorf("got %v: %s", err, out)
		}
	}
}

func TestDemo(t *testing.T) {
	cmd := program(t, "proxy", "--demo", "--demo-for", "2s", "--listen", "127.0.0.1:0", "--admin",
		"127.0.0.1:0")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s%s", err, &out, &errs)
	}
	for _, want := range []string{"The page: http://127.0.0.1:", "/rush", "longest wait"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, &out)
		}
	}
	if lines := strings.Count(out.String()+errs.String(), "\n"); lines > 24 {
		t.Errorf("%d lines are more than a screen:\n%s%s", lines, &out, &errs)
	}
}
