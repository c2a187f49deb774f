package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/internal/needed"
)

// shared is a bench that takes seconds. Its program is built once.
var shared = &bench{
	seed: 1, clients: 4, requests: 40, histories: 5, http: 2, peers: 200, waiters: 20, span: time.Second,
	rounds: 1, slice: 100 * time.Millisecond, kills: 2, failovers: 1, grace: time.Second, stderr: os.Stderr,
}

// TestMain lets the test program be what it starts: a keeper, or a server.
func TestMain(m *testing.M) {
	if status, is := child(os.Args[1:]); is {
		os.Exit(status)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := shared.clean(); err != nil {
			code = 1
		}
		os.Exit(code)
	}))
}

// needs skips the test unless the program is installed.
func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		needed.Without(t, program, err.Error())
	}
}

// small runs a part. Verdicts on speed mean nothing here: only the ones that are named must be met.
func small(t *testing.T, part func(*bench, context.Context) (section, error), goals ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("short: real processes")
	}
	s, err := part(shared, t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	s.print(&text)
	for _, goal := range goals {
		found := false
		for _, v := range s.verdicts {
			if strings.Contains(v.goal, goal) {
				found = true
				if !v.met {
					t.Errorf("%v", v)
				}
			}
		}
		if !found {
			t.Errorf("no goal is called %q", goal)
		}
	}
	if t.Failed() {
		t.Log(text.String())
	}
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	small(t, (*bench).overHTTP, "violations", "unknown", "operations", "histories")
}

func TestLoad(t *testing.T) {
	small(t, (*bench).manyPeers, "in the order", "that were served", "heap")
}

func TestThroughput(t *testing.T) { small(t, (*bench).throughput, "tokens") }

func TestKills(t *testing.T) {
	t.Parallel()
	small(t, (*bench).manyKills, "at once", "fell", "after the last start", "no client is stuck")
}

func TestFailovers(t *testing.T) {
	needs(t, "etcd")
	t.Parallel()
	small(t, (*bench).manyFailovers, "did not rise", "by two", "after the last", "no client is stuck",
		"before these noticed")
}

func TestFakeTime(t *testing.T) {
	small(t, (*bench).fakeTime, "violations", "unknown", "operations", "histories")
}

func TestBadFlagsAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"-clients 1": "-clients: 1 is not between 2 and 10", "-span 999ms": "-span: 999",
		"-failovers 2": "-failovers: 2 is not", "-slice 1h": "-slice: 3600000",
		"-only histories,speed": `-only: no part is called "speed"`,
		"more":                  `unexpected argument "more"`,
		"-nothing":              "not defined: -nothing",
	} {
		var out, errs bytes.Buffer
		if code := command(strings.Fields(args), &out, &errs); code != 2 ||
			!strings.Contains(errs.String(), want) || out.Len() > 0 {
			t.Errorf("%s: %d %q", args, code, errs.String())
		}
	}
}

// TestReportIsWritten holds what the exit status says, and that -out gets what stdout gets.
func TestReportIsWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.md")
	missed := []section{{title: "two", verdicts: []verdict{exactly("b", 1, 2)}}}
	for _, c := range []struct {
		what string
		b    *bench
		all  []section
		code int
	}{
		{"met", &bench{out: file}, []section{{title: "one", verdicts: []verdict{exactly("a", 1, 1)}}}, 0},
		{"missed", &bench{out: file}, missed, 1},
		{"missed, and only reported", &bench{report: true, out: file}, missed, 0},
		{"a part without goals", &bench{out: file}, []section{{title: "none"}}, 1},
		{"no such folder", &bench{out: filepath.Join(file, "x")}, nil, 2},
	} {
		var out, errs bytes.Buffer
		if code := c.b.write(c.all, &out, &errs); code != c.code || (code == 2) != (errs.Len() > 0) {
			t.Errorf("%s: %d %q", c.what, code, errs.String())
		}
		if text, err := os.ReadFile(file); err != nil || c.code < 2 && !bytes.Equal(text, out.Bytes()) {
			t.Errorf("%s: %v\n%s", c.what, err, text)
		}
	}
}
