package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain lets the test program be a replica too, because a fleet starts the program that runs.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == replicaArg {
		os.Exit(replicaMain(os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

func TestBadFlagsAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"-duration 9s": "-duration: 9s", "-duration 2h": "-duration: 2h", "-replicas 2": "-replicas: 2",
		"-replicas 17": "-replicas: 17",
		"-limit NaN":   "-limit: NaN", "-limit 501": "-limit: 501", "-burst 0": "-burst: 0",
		"-believe -1": "-believe: -1",
		"more":        `unexpected argument "more"`, "-nothing": "not defined: -nothing",
	} {
		var stdout, stderr bytes.Buffer
		if got := run(t.Context(), strings.Fields(args), &stdout, &stderr); got != exitFailed ||
			!strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit status %d, said %q, want %q", args, got, stderr.String(), want)
		}
	}
}

func TestSchedule(t *testing.T) {
	for _, c := range []struct {
		duration time.Duration
		want     [lanes]int
	}{
		{10 * time.Second, [...]int{1, 1, 1, 1, 1, 1, 1, 1}},
		{time.Minute, [...]int{6, 6, 4, 7, 5, 2, 3, 4}},
		{10 * time.Minute, [...]int{60, 60, 30, 20, 20, 20, 20, 20}},
	} {
		for seed := range uint64(50) {
			faults := schedule(config{Duration: c.duration, Seed: seed})
			var count [lanes]int
			kinds := map[fault]bool{}
			free := [lanes]time.Duration{}
			for _, f := range faults {
				count[f.lane]++
				kinds[fault{lane: f.lane, kind: f.kind}] = true
				if f.at < max(warmUp, free[f.lane]) || f.lasts <= 0 || f.at+f.lasts > c.duration-coolDown {
					t.Fatalf("%v, seed %d: %+v after one that ends at %v", c.duration, seed, f, free[f.lane])
				}
				free[f.lane] = f.at + f.lasts
			}
			if count != c.want {
				t.Fatalf("%v, seed %d: %v, want %v", c.duration, seed, count, c.want)
			}
			all := 2 + 2 + len(redisKinds) + len(dnsKinds) + len(fileKinds) + 1 + len(silenceKinds) +
				len(clockKinds)
			if c.duration >= time.Minute && len(kinds) != all {
				t.Fatalf("%v, seed %d: %d kinds", c.duration, seed, len(kinds))
			}
			if again := schedule(config{Duration: c.duration, Seed: seed}); !reflect.DeepEqual(again,
				faults) {
				t.Fatalf("seed %d gives two schedules", seed)
			}
		}
	}
}

func TestARecorderIsBounded(t *testing.T) {
	u := recorder{most: 2, start: 100}
	for i, want := range []bool{true, true, false} {
		if err := u.note(fromDNS, stamp{1, 103, 102, 101}, nil); (err == nil) != want {
			t.Errorf("line %d: %v", i, err)
		}
	}
	if want := (entry{1, 3, 2, 1}); len(u.logs[fromDNS]) != 2 || u.logs[fromDNS][0] != want || u.err == nil {
		t.Errorf("%+v, %v", u.logs, u.err)
	}
	if s, err := parseStamp(stamp{1, 2, 3, 4}.String()); err != nil || s != (stamp{1, 2, 3, 4}) {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := parseStamp("1 2 x"); err == nil {
		t.Error("a bad stamp passes")
	}
}

// TestAFleetUnderFaults is the command's own claim, in little.
func TestAFleetUnderFaults(t *testing.T) {
	name := t.TempDir() + "/results.md"
	var stdout, stderr bytes.Buffer
	if got := run(t.Context(), []string{"-duration", "10s", "-o", name}, &stdout, &stderr); got != exitHeld {
		t.Fatalf("exit status %d\n%s%s", got, stdout.String(), stderr.String())
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Everything held.", "8 processes ended in order, 0 of them left",
		"kill -9 | redis | 2"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "Wall clocks were stepped 0 times") {
		t.Errorf("no clock was stepped in\n%s", text)
	}
	const failover = "redis cluster: kill -9 of the master"
	for _, want := range []string{
		"kill -9 of replica", "SIGSTOP of replica", "redis ", "dns ", "file ", failover, "silence ",
		"wall clock of ",
	} {
		if want == failover && strings.Contains(string(text), "There is no Redis Cluster") {
			continue
		}
		if !strings.Contains(stdout.String(), "s  "+want) {
			t.Errorf("%q did not happen in\n%s", want, stdout.String())
		}
	}
}

// TestAFleetThatBelievesWrong is the proof that the verdict can fail. In so short a run the replicas of
// Redis, where the pool grows one by one at the start, have an excuse.
func TestAFleetThatBelievesWrong(t *testing.T) {
	var stdout, stderr bytes.Buffer
	got := run(t.Context(), []string{"-duration", "10s", "-believe", "4"}, &stdout, &stderr)
	if got != exitBroken {
		t.Fatalf("exit status %d\n%s%s", got, stdout.String(), stderr.String())
	}
	for _, want := range []string{"bounds 2 and 3, file", "bounds 2 and 3, dns", "- file: from",
		"- dns: from", "replicas agree with the truth, one believes in 4"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout.String())
		}
	}
}

// TestALeakIsReported: a replica looks for what it leaves behind, and finds it.
func TestALeakIsReported(t *testing.T) {
	for _, leaks := range []bool{false, true} {
		var said bytes.Buffer
		r := &replica{out: json.NewEncoder(&said)}
		end := make(chan struct{})
		if leaks {
			go func() { <-end }()
		}
		r.lastWords(goleak.IgnoreAnyFunction("testing.tRunner"), goleak.IgnoreAnyFunction("testing.(*T).Run"))
		close(end)
		var m message
		if err := json.Unmarshal(said.Bytes(), &m); err != nil || m.End == nil ||
			strings.Contains(m.End.Leak, "TestALeakIsReported") != leaks {
			t.Errorf("leaks %v: %v, %s", leaks, err, said.Bytes())
		}
	}
}

func TestAnInterruptEndsEverything(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	if got := run(ctx, []string{"-duration", "10s"}, &stdout, &stderr); got != exitFailed ||
		!strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("exit status %d\n%s%s", got, stdout.String(), stderr.String())
	}
}
