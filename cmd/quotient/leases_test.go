//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/etcdtest"
	"github.com/quotient-go/quotient/internal/tested"
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
	p.logged("stopping")
	p.logged("stopped")
}

func (p *process) waiting(semaphore string, n int) {
	p.t.Helper()
	line := fmt.Sprintf("throttle_pending{semaphore=%q} %d\n", semaphore, n)
	await(p.t, line, func() bool { return strings.Contains(get(p.t, p.url+"/metrics").body, line) })
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
	contains(t, body, "\nthrottle_acquired{semaphore=\"A\"} 1", "\nthrottle_pending{semaphore=\"A\"} 1",
		"\nthrottle_max{semaphore=\"my gpu\"} 2", "\nthrottle_num_404 0",
		"\nquotient_config_last_reload_successful 1", "\ngo_goroutines ")
	if a := get(t, p.url+"/version"); a.body == "" || a.body == "unknown" {
		t.Errorf("/version: %v", a)
	}
	p.signal(syscall.SIGINT)
	p.ends(exitOK)
}

// TestLeasesOfAllNames sends names as clients do that encode no more than they must.
func TestLeasesOfAllNames(t *testing.T) {
	p := startLeases(t, "-s", "a|b^[c]=1", "-s", "/&=1", "-s", "is_acquired=1", "-s", "ä ?=1")
	if p.has("WARN") {
		t.Error("a warning without need")
	}
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
	must(p.t, err)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(tested.Patience))
	_, err = io.WriteString(c, sent)
	must(p.t, err)
	all, err := io.ReadAll(c)
	must(p.t, err)
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
	await(t, "another election is refused", func() bool {
		return p.has("leases.election: a change requires a restart")
	})
	p.waiting("A", 1)

	renamed(t, path, "[semaphores]\nA = 2\nB = 1\n") // without a hangup
	if a := <-granted; a.status != http.StatusOK {
		t.Errorf("the one that waits got %v", a)
	}
	p.wants(p.peer()+"/B", 1, http.StatusOK)
	renamed(t, path, "[semaphores]\nA = 1\n")
	await(t, "the lower maximum", func() bool {
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
		must(t, err)
		defer c.Close()
		_, err = io.WriteString(c, sent)
		must(t, err)
	}
	p.endsAtOnce()
	for range waiters {
		if a := <-answers; a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "1" {
			t.Errorf("one that waits got %v", a)
		}
	}
}

// lockA locks A as a program does that uses the library.
func lockA(t *testing.T, expires time.Duration, urls ...string) *lease.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tested.Patience)
	t.Cleanup(cancel)
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	c := &lease.Client{
		URLs: urls, HTTP: &http.Client{Transport: transport}, ExpiresIn: expires, BlockFor: time.Second,
	}
	held, err := c.Lock(ctx, "A", 1)
	must(t, err)
	return held
}

// TestLeasesForOperators breaks a lease on the operator's page. The log has a line for that at any level.
func TestLeasesForOperators(t *testing.T) {
	p := startLeases(t, "-s", "A=1", "--admin", "127.0.0.1:0")
	p.page = p.logged("operator's page")["url"].(string)
	p.breaks(p.peer())
	p.says("health", http.StatusOK, "alive\n")
	p.says("ready", http.StatusOK, "ready\n")
	contains(t, get(t, p.page+"metrics").body, "\nquotient_lease_leads 1\n")
}

// breaks has the peer hold A, and takes it away at the operator's page.
func (p *process) breaks(peer string) {
	p.t.Helper()
	token := p.wants(peer+"/A", 1, http.StatusOK).header.Get("Fencing-Token")
	c, err := admin.NewClient(p.page, admin.HTTPClient(client))
	must(p.t, err)
	locks, err := c.LeaseLocks(p.t.Context(), "A", 10)
	must(p.t, err)
	if len(locks.Held) != 1 || fmt.Sprint(locks.Held[0].Token) != token {
		p.t.Fatalf("the page shows %+v, the token is %s", locks, token)
	}
	_, err = c.BreakLease(p.t.Context(), "A", locks.Held[0].Peer, locks.Held[0].Token)
	must(p.t, err)
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
	contains(t, get(t, p.page+"metrics").body, "\nthrottle_max{semaphore=\"A\"} 1\n")
	written(t, path, up.URL, 1, "[leases]\nlisten = \"127.0.0.1:0\"\nsemaphores.A = 5\n")
	p.signal(syscall.SIGHUP)
	await(t, "the file is read", func() bool { return get(t, p.url+"/remainder?semaphore=A").body == "4" })
	written(t, path, up.URL, 1, "")
	p.signal(syscall.SIGHUP)
	p.until("refused", func(s admin.State) bool {
		return strings.Contains(s.File.Error,
			"leases: the section is missing: removing it requires a restart")
	})
	p.signal(syscall.SIGTERM)
	p.ends(exitOK)
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
	absent := filepath.Join(filepath.Dir(path), "absent.toml")
	p = startLeases(t, "-c", absent)
	p.logged(absent + ": there is no such file")
	p.logged("there are no semaphores")
	renamed(t, absent, "[semaphores]\nA = 1\n")
	await(t, "the file that came is read",
		func() bool { return get(t, p.url+"/remainder?semaphore=A").body == "1" })
}

// TestLeasesOfFlagsAndFile: a flag changes its part of the address, and leaves the other one to the file. The
// semaphore of a flag keeps its level.
func TestLeasesOfFlagsAndFile(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	for flags, want := range map[string]string{
		"": "10.0.0.7:80", "port": "10.0.0.7:9000", "address": "[::1]:80", "address port": "[::1]:9000",
	} {
		c, g := leasesCmd{Address: "::1", Port: 9000, Semaphore: []string{"A=5"}}, given{}
		for name := range strings.FieldsSeq(flags) {
			g[name] = "--" + name
		}
		must(t, c.complete(g, none))
		f := &config.File{Proxy: &config.Proxy{}, Leases: &config.Leases{Listen: "10.0.0.7:80",
			Semaphores: map[string]lease.Semaphore{"A": {Max: 1, Level: 3}}}}
		if must(t, c.adjust(f)); f.Proxy != nil {
			t.Error("it would serve more than the leases of a file")
		}
		equal(t, flags+": it listens at", f.Leases.Listen, want)
		equal(t, "A", f.Leases.Semaphores["A"], lease.Semaphore{Max: 5, Level: 3})
	}
}

// TestLeasesOfTwoProcesses elects one of two, and kills it: the other serves what was held, with newer
// tokens.
func TestLeasesOfTwoProcesses(t *testing.T) {
	t.Parallel()
	store := etcdtest.Start(t)
	path := filepath.Join(t.TempDir(), "throttle.toml")
	renamed(t, path, fmt.Sprintf("grace = \"4s\"\nsemaphores.A = 1\nelection = { endpoints = [%q], ttl = \"2s\" }\n",
		store.Addr()))
	a := startLeases(t, "-c", path, "--grace", "0s") // nothing is to be restored yet
	await(t, "the first leads", func() bool { return get(t, a.url+"/ready").status == http.StatusOK })
	b := startLeases(t, "-c", path)
	await(t, "the second knows the first", func() bool { // the client follows the redirect
		return b.ask(http.MethodGet, "/remainder?semaphore=A", "").status == http.StatusOK
	})
	equal(t, "/ready of a stand-by", get(t, b.url+"/ready").status, http.StatusServiceUnavailable)
	equal(t, "/health of a stand-by", get(t, b.url+"/health").status, http.StatusOK)

	held := lockA(t, 9*time.Second, b.url, a.url)
	a.signal(syscall.SIGKILL)
	a.wait()
	await(t, "the second leads, and has the lock", func() bool {
		return get(t, b.url+"/ready").status == http.StatusOK &&
			strings.Contains(get(t, b.url+"/metrics").body, "\nthrottle_acquired{semaphore=\"A\"} 1\n")
	})
	if err := held.Err(); err != nil {
		t.Errorf("the holder has lost it: %v", err)
	}
	peer := b.peer()
	b.wants(peer+"/A", 1, http.StatusAccepted)
	must(t, held.Unlock(t.Context()))
	newer := b.wants(peer+"/A?block_for=20s", 1, http.StatusOK).header.Get("Fencing-Token")
	if token, err := strconv.ParseUint(newer, 10, 64); err != nil || token <= held.Token() {
		t.Errorf("the token %s is not above %d", newer, held.Token())
	}
	b.endsAtOnce()
}

// TestLeasesWithoutEtcd checks that a server whose etcd is away stands by, states why, and ends in order.
func TestLeasesWithoutEtcd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	renamed(t, filepath.Join(dir, "password"), "opensesame")
	path := filepath.Join(dir, "throttle.toml")
	renamed(t, path, fmt.Sprintf("grace = \"30s\"\nsemaphores.A = 1\n[election]\nendpoints = [%q]\n"+
		"user = \"me\"\npassword_file = \"password\"\n", nowhere))
	p := startLeases(t, "-c", path)
	p.logged("clients of other machines cannot reach")
	p.logged("lease election: ")
	a := p.ask(http.MethodPost, "/new_peer", `{"expires_in":"5m"}`)
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "1" {
		t.Errorf("got %v", a)
	}
	p.endsAtOnce()
}

// TestLeasesEndWhileEtcdHangs checks that a leader ends in time where etcd does not answer any more.
func TestLeasesEndWhileEtcdHangs(t *testing.T) {
	t.Parallel()
	store := etcdtest.Start(t)
	path := filepath.Join(t.TempDir(), "throttle.toml")
	renamed(t, path, fmt.Sprintf("grace = \"30s\"\nsemaphores.A = 1\n[election]\nendpoints = [%q]\n",
		store.Addr()))
	p := startLeases(t, "-c", path)
	await(t, "it leads", func() bool { return get(t, p.url+"/ready").status == http.StatusOK })
	store.Signal(syscall.SIGSTOP)
	defer store.Signal(syscall.SIGCONT)
	p.endsAtOnce()
}

// TestElectionThatCannotBe checks that an election which ends by itself ends the server.
func TestElectionThatCannotBe(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), tested.Patience)
	defer cancel()
	log := slog.New(slog.DiscardHandler)
	s, err := openLeases(ctx, &config.Leases{Listen: "127.0.0.1:0", MaxPeers: 1}, log, log)
	must(t, err)
	never := &config.Election{Endpoints: []string{nowhere}, TTL: 1}
	s.election, err = elect(never, s.url(), s.leases, log)
	must(t, err)
	fails(t, s.serve(ctx), "leases.election: ")
	must(t, ctx.Err())
}

func TestElectionConfig(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(password, []byte("opensesame\n"), 0o600))
	c, err := electionConfig(&config.Election{
		Endpoints: []string{"a:1", "https://b:2/"}, User: "me", PasswordFile: password,
	})
	if err != nil || strings.Join(c.Endpoints, " ") != "http://a:1 https://b:2" || c.Username != "me" ||
		c.Password != "opensesame" {
		t.Errorf("got %+v, %v", c, err)
	}
	_, err = electionConfig(&config.Election{PasswordFile: "nosuch"})
	fails(t, err, "nosuch")
}

// TestOperatorBreaksALease: of a hundred operators who break one lease one does. The next in the queue has it
// then, and its old holder finds out at its heartbeat.
func TestOperatorBreaksALease(t *testing.T) {
	var log bytes.Buffer
	s, err := lease.NewServer(lease.Config{Semaphores: map[string]lease.Semaphore{"A": {Max: 2, Level: 1}}},
		lease.ServerOptions{})
	must(t, err)
	t.Cleanup(s.Close)
	page, err := admin.New(new(quotient.Registry), admin.WithLeases(leaseAdmin{s}),
		admin.Logger(slog.New(slog.NewTextHandler(&log, nil))))
	must(t, err)
	operators, clients := httptest.NewServer(page), httptest.NewServer(s)
	t.Cleanup(operators.Close)
	t.Cleanup(clients.Close)
	c, err := admin.NewClient(operators.URL, admin.HTTPClient(operators.Client()))
	must(t, err)
	ask := func(method, path, body string) answer { return ask(t, method, clients.URL+path, body) }
	holder := ask("POST", "/new_peer", `{"expires_in":"5m"}`).body
	waiter := ask("POST", "/new_peer", `{"expires_in":"5m"}`).body
	ask("PUT", "/peers/"+holder+"/A", "2")
	if a := ask("PUT", "/peers/"+waiter+"/A", "1"); a.status != http.StatusAccepted {
		t.Fatal(a)
	}
	ctx := t.Context()
	state, err := c.Leases(ctx, 10)
	if err != nil || len(state.Semaphores) != 1 || !state.Leads || state.Peers != 2 {
		t.Fatalf("%+v, %v", state, err)
	}
	if s := state.Semaphores[0]; s.Name != "A" || s.Max != 2 || s.Level != 1 || s.Acquired != 2 ||
		s.Pending != 1 || s.Holders != 1 || s.Waiters != 1 {
		t.Errorf("semaphore %+v", s)
	}
	locks, err := c.LeaseLocks(ctx, "A", 10)
	if err != nil || len(locks.Held) != 1 || len(locks.Pending) != 1 ||
		strconv.FormatUint(locks.Held[0].Peer, 10) != holder {
		t.Fatalf("%+v, %v", locks, err)
	}
	old := locks.Held[0]
	var broke atomic.Int32
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			_, err := c.BreakLease(ctx, "A", old.Peer, old.Token, admin.IfMatch(old.ETag))
			if err == nil {
				broke.Add(1)
			} else if !errors.Is(err, admin.ErrConflict) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := strings.Count(log.String(), "lease broken by an operator"); broke.Load() != 1 || n != 1 {
		t.Errorf("%d of a hundred broke it, %d lines: %s", broke.Load(), n, &log)
	}
	if locks, err = c.LeaseLocks(ctx, "A", 10); err != nil || len(locks.Held) != 1 ||
		strconv.FormatUint(locks.Held[0].Peer, 10) != waiter || locks.Held[0].Token <= old.Token {
		t.Errorf("afterwards %+v, %v", locks, err)
	}
	if a := ask("PUT", "/peers/"+holder, `{"expires_in":"5m"}`); a.header.Get("Lease-Broken") != "A" {
		t.Errorf("heartbeat of the old holder: %v", a)
	}
	// What a server refuses is a refusal that operators know.
	refused := func(what string, err error, want int) {
		t.Helper()
		if p := (*admin.Problem)(nil); !errors.As(err, &p) || p.Status != want {
			t.Errorf("%s: %v, want %d", what, err, want)
		}
	}
	_, err = c.LeaseLocks(ctx, "B", 1)
	refused("unknown semaphore", err, 404)
	_, err = c.BreakLease(ctx, "A", old.Peer, 1)
	refused("holds nothing", err, 412)
	_, err = c.BreakLease(ctx, "A", old.Peer+1<<40, 1)
	refused("unknown peer", err, 412)
	s.StandBy("http://10.0.0.7:8000")
	_, err = c.LeaseLocks(ctx, "A", 1)
	refused("list on stand-by", err, 503)
	_, err = c.BreakLease(ctx, "A", old.Peer, 1)
	refused("break on stand-by", err, 503)
	if state, err := c.Leases(ctx, 1); err != nil || state.Leads || state.Leader != "http://10.0.0.7:8000" ||
		len(state.Semaphores) != 0 {
		t.Errorf("on stand-by %+v, %v", state, err)
	}
}
