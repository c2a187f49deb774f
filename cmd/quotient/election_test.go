//go:build unix

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/etcdtest"
	"github.com/quotient-go/quotient/lease"
)

// TestLeasesOfTwoProcesses elects one of two, and kills it: the other serves what was held, with newer
// tokens.
func TestLeasesOfTwoProcesses(t *testing.T) {
	t.Parallel()
	store := etcdtest.Start(t)
	path := filepath.Join(t.TempDir(), "throttle.toml")
	renamed(t, path,
		fmt.Sprintf("grace = \"4s\"\nsemaphores.A = 1\nelection = { endpoints = [%q], ttl = \"2s\" }\n",
			store.Addr()))
	a := startLeases(t, "-c", path, "--grace", "0s") // nothing is to be restored yet
	a.untilGot("the first leads", func() bool { return get(t, a.url+"/ready").status == http.StatusOK })
	b := startLeases(t, "-c", path)
	var sent answer
	b.untilGot("the second knows the first", func() bool {
		sent = b.ask(http.MethodGet, "/remainder?semaphore=A", "")
		return sent.status == http.StatusOK // the client follows the redirect
	})
	for path, want := range map[string]int{
		"/ready":  http.StatusServiceUnavailable,
		"/health": http.StatusOK,
	} {
		if got := get(t, b.url+path); got.status != want {
			t.Errorf("%s of a stand-by: %v, want %d", path, got, want)
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	c := &lease.Client{
		URLs: []string{b.url, a.url}, HTTP: &http.Client{Transport: transport}, ExpiresIn: 9 * time.Second,
		BlockFor: time.Second,
	}
	held, err := c.Lock(ctx, "A", 1)
	if err != nil {
		t.Fatal(err)
	}
	a.signal(syscall.SIGKILL)
	a.wait()
	b.untilGot("the second leads, and has the lock", func() bool {
		return get(t, b.url+"/ready").status == http.StatusOK &&
			strings.Contains(get(t, b.url+"/metrics").body, "\nthrottle_acquired{semaphore=\"A\"} 1\n")
	})
	if err := held.Err(); err != nil {
		t.Errorf("the holder has lost it: %v", err)
	}
	peer := b.peer()
	b.wants(peer+"/A", 1, http.StatusAccepted)
	if err := held.Unlock(ctx); err != nil {
		t.Error(err)
	}
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
		"user = \"me\"\npassword_file = \"password\"\n", nowhere(t)))
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
	p.untilGot("it leads", func() bool { return get(t, p.url+"/ready").status == http.StatusOK })
	store.Signal(syscall.SIGSTOP)
	defer store.Signal(syscall.SIGCONT)
	p.endsAtOnce()
}

// TestElectionThatCannotBe checks that an election which ends by itself ends the server.
func TestElectionThatCannotBe(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	log := slog.New(slog.DiscardHandler)
	s, err := openLeases(ctx, &config.Leases{Listen: "127.0.0.1:0", MaxPeers: 1}, log)
	if err != nil {
		t.Fatal(err)
	}
	never := &config.Election{Endpoints: []string{nowhere(t)}, TTL: 1}
	if s.election, err = elect(never, s.url(), s.leases, log); err != nil {
		t.Fatal(err)
	}
	err = s.serve(ctx)
	if err == nil || !strings.Contains(err.Error(), "leases.election: ") || ctx.Err() != nil {
		t.Errorf("got %v", err)
	}
}

func TestElectionConfig(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("opensesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := electionConfig(&config.Election{
		Endpoints: []string{"a:1", "https://b:2/"}, User: "me", PasswordFile: password,
	})
	if err != nil || strings.Join(c.Endpoints, " ") != "http://a:1 https://b:2" || c.Username != "me" ||
		c.Password != "opensesame" {
		t.Errorf("got %+v, %v", c, err)
	}
	if _, err := electionConfig(&config.Election{PasswordFile: "nosuch"}); err == nil ||
		!strings.Contains(err.Error(), "nosuch") {
		t.Errorf("got %v", err)
	}
}
