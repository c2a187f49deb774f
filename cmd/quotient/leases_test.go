//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/lease"
)

// startLeases runs quotient leases, on a free port unless the arguments name one, and waits until it serves.
func startLeases(t *testing.T, args ...string) *process {
	t.Helper()
	if !strings.Contains(strings.Join(args, " "), "--port") {
		args = append(args, "--port", "0")
	}
	p := launch(t, append([]string{"leases", "--log", "json"}, args...)...)
	p.url = p.logged("leases are served")["url"].(string)
	return p
}

// semaphores writes a throttle.toml.
func semaphores(t *testing.T, lines string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "throttle.toml")
	renamed(t, path, "[semaphores]\n"+lines)
	return path
}

// ask sends a request with a body in JSON, unless that is empty.
func (p *process) ask(method, path, body string) answer {
	p.t.Helper()
	return ask(p.t, method, p.url+path, body)
}

// peer makes a peer and returns its path.
func (p *process) peer() string {
	p.t.Helper()
	a := p.ask(http.MethodPost, "/new_peer", `{"expires_in":"5m"}`)
	if a.status != http.StatusOK {
		p.t.Fatalf("no peer: %v", a)
	}
	return "/peers/" + a.body
}

// wants asks for a lock and requires a status.
func (p *process) wants(path string, count, status int) answer {
	p.t.Helper()
	a := p.ask(http.MethodPut, path, fmt.Sprint(count))
	if a.status != status {
		p.t.Errorf("%s: %v, want %d", path, a, status)
	}
	return a
}

// endsAtOnce sends SIGTERM, and requires that the process ends without waiting for anyone. That takes a
// second at most. The bound is wider, for a busy machine.
func (p *process) endsAtOnce() {
	p.t.Helper()
	began := time.Now()
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK || time.Since(began) > 5*time.Second {
		p.t.Errorf("exit %d after %v, want 0 within 1 s, and 5 s where much else runs", code,
			time.Since(began))
	}
}

func (p *process) waiting(semaphore string, n int) {
	p.t.Helper()
	line := fmt.Sprintf("throttle_pending{semaphore=%q} %d\n", semaphore, n)
	p.untilGot(line, func() bool { return strings.Contains(get(p.t, p.url+"/metrics").body, line) })
}

func TestLeasesAreServed(t *testing.T) {
	path := semaphores(t, "A = 1\nB = { max = 4, level = 1 }\n[logging.stderr]\n")
	p := startLeases(t, "-c", path, "-s", "my gpu=2")
	if line := p.logged("leases are served"); line["semaphores"] != 3. {
		t.Errorf("the log has %v", line)
	}
	p.logged(path + ":4:10: logging.stderr: ")
	first, second := p.peer(), p.peer()
	held := p.wants(first+"/A", 1, http.StatusOK)
	if held.header.Get("Fencing-Token") == "" {
		t.Errorf("no token: %v", held)
	}
	p.wants(second+"/A?block_for=1ms", 1, http.StatusAccepted)
	p.wants(second+"/my%20gpu", 3, http.StatusConflict)
	body := get(t, p.url+"/metrics").body
	for _, line := range []string{
		`throttle_acquired{semaphore="A"} 1`, `throttle_pending{semaphore="A"} 1`,
		`throttle_max{semaphore="my gpu"} 2`,
		"throttle_num_404 0", "quotient_config_last_reload_successful 1", "go_goroutines ",
	} {
		if !strings.Contains(body, "\n"+line) {
			t.Errorf("/metrics has no %s", line)
		}
	}
	if a := get(t, p.url+"/version"); a.body == "" || a.body == "unknown" {
		t.Errorf("/version: %v", a)
	}
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit %d, want 0", code)
	}
}

// TestLeasesOfAllNames sends names as clients do that encode no more than they must.
func TestLeasesOfAllNames(t *testing.T) {
	p := startLeases(t, "-s", "a|b^[c]=1", "-s", "/&=1", "-s", "is_acquired=1", "-s", "ä ?=1")
	p.mu.Lock()
	for _, line := range p.log {
		if line["level"] == "WARN" {
			t.Errorf("a warning without need: %v", line)
		}
	}
	p.mu.Unlock()
	for _, name := range []string{"a|b^[c]", "%2F&", "is_acquired", "%C3%A4%20%3F"} {
		line := p.raw("PUT " + p.peer() + "/" + name +
			"? HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" +
			"Content-Length: 1\r\nConnection: close\r\n\r\n1")
		if line != "HTTP/1.1 200 OK" {
			t.Errorf("%s: %s", name, line)
		}
	}
}

// raw sends bytes as they are and returns the first line of the answer.
func (p *process) raw(sent string) string {
	p.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, sent); err != nil {
		p.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	all, err := io.ReadAll(c)
	if err != nil {
		p.t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(all), "\r\n")
	return line
}

func TestLeasesFollowTheFile(t *testing.T) {
	path := semaphores(t, "A = 1\n")
	p := startLeases(t, "-c", path)
	first, second := p.peer(), p.peer()
	p.wants(first+"/A", 1, http.StatusOK)
	granted := make(chan answer, 1)
	go func() { granted <- p.ask(http.MethodPut, second+"/A?block_for=1h", "1") }()
	p.waiting("A", 1)

	renamed(t, path, "[semaphores]\nA = 0\n")
	p.signal(syscall.SIGHUP)
	if line := p.logged("file refused"); !strings.Contains(line["error"].(string),
		"throttle.toml:2:5: semaphores.A: 0 is not") {
		t.Errorf("the log has %v", line)
	}
	renamed(t, path, "[election]\nendpoints = [\"a:1\"]\n")
	p.signal(syscall.SIGHUP)
	p.untilGot("another election is refused", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return strings.Contains(fmt.Sprint(p.log), "leases.election: a change requires a restart")
	})
	p.waiting("A", 1)

	renamed(t, path, "[semaphores]\nA = 2\nB = 1\n") // without a hangup
	if a := <-granted; a.status != http.StatusOK {
		t.Errorf("the one that waits got %v", a)
	}
	p.wants(p.peer()+"/B", 1, http.StatusOK)
	renamed(t, path, "[semaphores]\nA = 1\n")
	p.untilGot("the lower maximum", func() bool {
		return get(t, p.url+"/remainder?semaphore=A").body == "-1"
	})
	if a := p.wants(p.peer()+"/B", 1, http.StatusBadRequest); a.body != "Unknown semaphore" {
		t.Errorf("got %v", a)
	}
}

// TestLeasesEndAtOnce checks that neither a request that waits nor a client that is slow keeps the program.
func TestLeasesEndAtOnce(t *testing.T) {
	p := startLeases(t, "-s", "A=1", "-c", filepath.Join(t.TempDir(), "absent.toml"))
	p.wants(p.peer()+"/A", 1, http.StatusOK)
	const waiters = 10
	answers := make(chan answer, waiters)
	for range waiters {
		peer := p.peer()
		go func() { answers <- p.ask(http.MethodPut, peer+"/A?block_for=1h", "1") }()
	}
	p.waiting("A", waiters)
	for _, sent := range []string{"", "PUT /peers/1/A HTTP/1.1\r\nHost: a\r\n",
		"POST /new_peer HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\n{"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, sent); err != nil {
			t.Fatal(err)
		}
	}
	p.endsAtOnce()
	for range waiters {
		if a := <-answers; a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "1" {
			t.Errorf("one that waits got %v", a)
		}
	}
}

// TestLeasesAreRestored kills the server, and its clients find what they hold at the next one.
func TestLeasesAreRestored(t *testing.T) {
	t.Parallel()
	path := semaphores(t, "A = 1\n")
	p := startLeases(t, "-c", path)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	c := &lease.Client{
		URLs: []string{p.url}, HTTP: &http.Client{Transport: transport}, ExpiresIn: 6 * time.Second,
		BlockFor: time.Second,
	}
	held, err := c.Lock(ctx, "A", 1)
	if err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGKILL)
	p.wait()
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(p.url, "http://"))
	again := startLeases(t, "-c", path, "--port", port, "--grace", patience.String())
	if again.url != p.url {
		t.Fatalf("it serves at %s, want %s", again.url, p.url)
	}
	again.untilGot("the lock is restored", func() bool {
		return strings.Contains(get(t, again.url+"/metrics").body, "\nthrottle_acquired{semaphore=\"A\"} 1\n")
	})
	if err := held.Err(); err != nil {
		t.Errorf("the holder has lost it: %v", err)
	}
	again.wants(again.peer()+"/A", 1, http.StatusAccepted)
	if err := held.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// TestLeasesOfAFileOfOurs starts from a file with both sections, and serves its leases alone.
func TestLeasesOfAFileOfOurs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quotient.toml")
	written(t, path, "http://127.0.0.1:1", 1, "[leases]\nlisten = \"127.0.0.1:0\"\nsemaphores.A = 1\n")
	p := launch(t, "leases", "--log", "json", "-c", path)
	p.url = p.logged("leases are served")["url"].(string)
	p.wants(p.peer()+"/A", 1, http.StatusOK)
}

// TestLeasesForOperators breaks a lease on the operator's page. The log has a line for that at any level.
func TestLeasesForOperators(t *testing.T) {
	p := startLeases(t, "-s", "A=1", "--admin", "127.0.0.1:0")
	p.page = p.logged("operator's page")["url"].(string)
	p.breaks(p.peer())
	for path, want := range map[string]string{"health": "alive\n", "ready": "ready\n"} {
		if a := get(t, p.page+path); a.status != http.StatusOK || a.body != want {
			t.Errorf("/%s: %v", path, a)
		}
	}
	if !strings.Contains(get(t, p.page+"metrics").body, "\nquotient_lease_leads 1\n") {
		t.Error("the operator's metrics have no leases")
	}
}

// breaks has the peer hold A, and takes it away at the operator's page.
func (p *process) breaks(peer string) {
	p.t.Helper()
	token := p.wants(peer+"/A", 1, http.StatusOK).header.Get("Fencing-Token")
	c, err := admin.NewClient(p.page, admin.HTTPClient(client))
	if err != nil {
		p.t.Fatal(err)
	}
	state, err := c.Leases(p.t.Context(), 10)
	if err != nil {
		p.t.Fatal(err)
	}
	if !state.Leads || state.Peers < 1 || len(state.Semaphores) != 1 || state.Semaphores[0].Acquired != 1 {
		p.t.Errorf("the page shows %+v", state)
	}
	locks, err := c.LeaseLocks(p.t.Context(), "A", 10)
	if err != nil {
		p.t.Fatal(err)
	}
	if len(locks.Held) != 1 || fmt.Sprint(locks.Held[0].Token) != token {
		p.t.Fatalf("the page shows %+v, the token is %s", locks, token)
	}
	if _, err := c.BreakLease(p.t.Context(), "A", locks.Held[0].Peer, locks.Held[0].Token); err != nil {
		p.t.Fatal(err)
	}
	p.wants(p.peer()+"/A", 1, http.StatusOK)
	p.logged("quotient: lease broken")
}

// TestLeasesBesideAProxy serves both sections of a file.
func TestLeasesBesideAProxy(t *testing.T) {
	up := hold(t)
	path := filepath.Join(t.TempDir(), "quotient.toml")
	written(t, path, up.URL, 1, "[leases]\nlisten = \"127.0.0.1:0\"\nsemaphores.A = 1\n")
	p := start(t, "--config", path)
	if a := get(t, p.url+"/x"); a.body != "from upstream /x" {
		t.Errorf("the proxy: %v", a)
	}
	p.url = p.logged("leases are served")["url"].(string)
	p.breaks(p.peer())
	if !strings.Contains(get(t, p.page+"metrics").body, "\nthrottle_max{semaphore=\"A\"} 1\n") {
		t.Error("the operator's metrics have no leases")
	}
	written(t, path, up.URL, 1, "[leases]\nlisten = \"127.0.0.1:0\"\nsemaphores.A = 5\n")
	p.signal(syscall.SIGHUP)
	p.untilGot("the file is read", func() bool { return get(t, p.url+"/remainder?semaphore=A").body == "4" })
	written(t, path, up.URL, 1, "")
	p.signal(syscall.SIGHUP)
	p.until("refused", func(s admin.State) bool {
		return strings.Contains(s.File.Error,
			"leases: the section is missing: removing it requires a restart")
	})
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit %d, want 0", code)
	}
}

// TestLeasesSayThatTheGraceIsShort checks that Go clients last until another server leads: they renew within
// a third of the grace time, and give up a tenth before its end.
func TestLeasesSayThatTheGraceIsShort(t *testing.T) {
	for grace, short := range map[time.Duration]bool{0: true, 4 * time.Second: true, 9 * time.Second: false} {
		l := config.Leases{Semaphores: map[string]lease.Semaphore{"A": {Max: 1}}, Grace: grace}
		l.Election = &config.Election{TTL: 3 * time.Second}
		lines := strings.Join(suspiciousLeases(&config.File{Leases: &l}), "\n")
		if got := strings.Contains(lines, "leases.grace is "+grace.String()); got != short {
			t.Errorf("grace %v: %q", grace, lines)
		}
	}
}

// TestLeasesSayWhatIsSuspicious checks that what is seldom meant is a warning at the start.
func TestLeasesSayWhatIsSuspicious(t *testing.T) {
	path := semaphores(t, "A = { max = 1, level = 5 }\nB = { max = 1, level = 5 }\n")
	p := startLeases(t, "-c", path, "--address", "0.0.0.0")
	p.logged("leases know no passwords")
	p.logged("all semaphores have level 5")
	p = startLeases(t, "-c", filepath.Join(filepath.Dir(path), "absent.toml"))
	p.logged(filepath.Join(filepath.Dir(path), "absent.toml") + ": there is no such file")
	p.logged("there are no semaphores")
	err := os.WriteFile(filepath.Join(filepath.Dir(path), "absent.toml"),
		[]byte("[semaphores]\nA = 1\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	p.untilGot("the file that came is read",
		func() bool { return get(t, p.url+"/remainder?semaphore=A").body == "1" })
}
