package main

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// played runs a figure and holds all of its goals but those that are about time or memory, which a busy
// machine misses.
func played(t *testing.T, run func(context.Context) (section, error), timed ...string) {
	t.Helper()
	s, err := run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range s.verdicts {
		about := func(word string) bool { return strings.Contains(v.goal, word) }
		if !v.met && !slices.ContainsFunc(timed, about) {
			t.Error(v)
		}
	}
	if t.Failed() {
		t.Log(s.rows)
	}
}

// TestContendersPlay checks that all servers that stand beside the proxy start, pass requests on and end.
func TestContendersPlay(t *testing.T) {
	needs(t, "nginx", "haproxy")
	u, err := serveUpstream(func([]byte) {})
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	for _, start := range []func(context.Context, *upstream) (*server, error){bareProxy, nginxLimiter,
		haproxyLimiter} {
		s, err := start(t.Context(), u)
		if err != nil {
			t.Fatal(err)
		}
		c := contender{name: s.name}
		if err := c.play(t.Context(), s, &small, true); err != nil || c.asked == 0 || c.rate[0] <= 0 ||
			c.p99[0] < c.p50[0] || c.p50[0] <= 0 {
			t.Errorf("%+v %v", c, err)
		}
		if err := s.end(); err != nil {
			t.Error(err)
		}
	}
}

func TestThroughput(t *testing.T) {
	needs(t, "nginx", "haproxy")
	played(t, live(t).throughput, "requests/s", "p99")
}

func TestOverhead(t *testing.T) { played(t, live(t).overhead, "p50", "p99") }

func TestBlockedRequests(t *testing.T) { played(t, live(t).blockedRequests, "resident") }

func TestHostilePaths(t *testing.T) {
	played(t, live(t).hostilePaths, "resident", "p99", "whole window")
}

// TestReloads leaves out what needs a run that is long enough to warm up; connections that a burst opens move
// the goroutines of a run of seconds by a twentieth.
func TestReloads(t *testing.T) { played(t, live(t).manyReloads, "resident", "heap", "goroutines") }

// TestFleet is played again when a machine is so busy that requests arrive near the end of a window: the
// upstream then counts them in another window than the proxy.
func TestFleet(t *testing.T) {
	needs(t, "nginx")
	b := live(t)
	for range 3 {
		fleets, err := b.shift(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if fleets.late() {
			t.Log("requests arrived too late to tell their window; once more")
			continue
		}
		for _, v := range fleets.section(b.window).verdicts {
			if !v.met {
				t.Error(v)
			}
		}
		return
	}
	t.Error("requests arrived too late to tell their window, three times")
}
