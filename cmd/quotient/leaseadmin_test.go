package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/lease"
)

// adminOf is a lease server with one semaphore, A of 2, and the client of its operators.
func adminOf(t *testing.T, log io.Writer) (
	*lease.Server, *admin.Client, func(method, path, body string) answer,
) {
	t.Helper()
	semaphores := map[string]lease.Semaphore{"A": {Max: 2, Level: 1}}
	s, err := lease.NewServer(lease.Config{Semaphores: semaphores}, lease.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	page, err := admin.New(new(quotient.Registry), admin.WithLeases(leaseAdmin{s}),
		admin.Logger(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	operators, clients := httptest.NewServer(page), httptest.NewServer(s)
	t.Cleanup(operators.Close)
	t.Cleanup(clients.Close)
	c, err := admin.NewClient(operators.URL, admin.HTTPClient(operators.Client()))
	if err != nil {
		t.Fatal(err)
	}
	return s, c, func(method, path, body string) answer { return ask(t, method, clients.URL+path, body) }
}

// TestOperatorBreaksALease: of a hundred operators who break one lease one does. The next in the queue has it
// then, and its old holder finds out at its heartbeat.
func TestOperatorBreaksALease(t *testing.T) {
	var log bytes.Buffer
	_, c, ask := adminOf(t, &log)
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
}

// TestLeaseAdminErrors: what a server refuses is a refusal that operators know.
func TestLeaseAdminErrors(t *testing.T) {
	s, c, ask := adminOf(t, io.Discard)
	ctx := t.Context()
	var peer uint64
	if err := json.Unmarshal([]byte(ask("POST", "/new_peer", `{"expires_in":"5m"}`).body),
		&peer); err != nil {
		t.Fatal(err)
	}
	status := func(err error) int {
		if p := (*admin.Problem)(nil); errors.As(err, &p) {
			return p.Status
		}
		t.Errorf("no problem: %v", err)
		return 0
	}
	_, unknown := c.LeaseLocks(ctx, "B", 1)
	_, idle := c.BreakLease(ctx, "A", peer, 1)
	_, stranger := c.BreakLease(ctx, "A", peer+1, 1)
	s.StandBy("http://10.0.0.7:8000")
	_, list := c.LeaseLocks(ctx, "A", 1)
	_, late := c.BreakLease(ctx, "A", peer, 1)
	for name, tt := range map[string]struct {
		err  error
		want int
	}{
		"unknown semaphore": {unknown, 404},
		"holds nothing":     {idle, 412},
		"unknown peer":      {stranger, 412},
		"list on stand-by":  {list, 503},
		"break on stand-by": {late, 503},
	} {
		if got := status(tt.err); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
	if state, err := c.Leases(ctx, 1); err != nil || state.Leads || state.Leader != "http://10.0.0.7:8000" ||
		len(state.Semaphores) != 0 {
		t.Errorf("on stand-by %+v, %v", state, err)
	}
}
