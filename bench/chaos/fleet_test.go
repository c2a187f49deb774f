package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/internal/needed"
)

// TestMain lets the test program be a replica too, because a fleet starts the program that runs.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == replicaArg {
		os.Exit(replicaMain(os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// TestFleets is the command's own claim, in little, and the proof that its verdict can fail.
func TestFleets(t *testing.T) {
	for args, c := range map[string]struct {
		status int
		want   []string
	}{
		"-duration 10s": {0, []string{"0 broken", " did, of ", "kill -9", "SIGSTOP", "redis: ", "dns ", "file: "}},
		"-duration 10s -believe 4": {1, []string{"bounds 2, 3, the fleet, file: ", "bounds 2, 3, the fleet, dns: ",
			"bounds 5, 10, in flight, slots: ", "agree with the truth, one believes in 4"}},
		"-gossip -duration 20s": {0, []string{"0 broken", " did, of ", "kill -9", "SIGSTOP", "partition", "one leaves in order"}},
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(args, "gossip") {
				if _, err := exec.LookPath("redis-server"); err != nil {
					needed.Without(t, "redis-server", "redis-server is not on the PATH")
				}
			}
			var stdout, stderr bytes.Buffer
			status := command(strings.Fields(args), &stdout, &stderr)
			for _, want := range c.want {
				if status != c.status || !strings.Contains(stdout.String(), want) {
					t.Fatalf("exit status %d, no %q\n%s%s", status, want, stdout.String(), stderr.String())
				}
			}
		})
	}
}

func TestRunsThatDoNotEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := play(ctx, config{Gossip: true, Duration: cycle}, io.Discard); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Error(err)
	}
	for args, want := range map[string]string{
		"-duration 9s": "10s", "-gossip -duration 15s": "cycle",
		"-believe -1": "0 and 100", "more": `unexpected argument "more"`, "-nothing": "not defined: -nothing",
	} {
		var stdout, stderr bytes.Buffer
		if got := command(strings.Fields(args), &stdout, &stderr); got != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit status %d, said %q, want %q", args, got, stderr.String(), want)
		}
	}
}

// TestSchedule: ten minutes have so many faults of each lane, of all kinds, and time for what follows them.
func TestSchedule(t *testing.T) {
	for _, gossip := range []bool{false, true} {
		for seed := range uint64(50) {
			count := map[string]int{}
			for _, x := range schedule(config{Duration: 10 * time.Minute, Seed: seed, Gossip: gossip}) {
				count[x.name]++
				late := x.at < warmUp || x.at+x.lasts > 10*time.Minute-coolDown
				if gossip {
					late = x.at%cycle+x.lasts > storm && x.name != "a calm"
				}
				if late || x.lasts < x.least {
					t.Fatalf("seed %d: %s at %v for %v", seed, x.name, x.at, x.lasts)
				}
			}
			lanes := map[bool][]lane{false: sourceLanes, true: gossipLanes}[gossip]
			for _, l := range lanes {
				for _, k := range l.kinds {
					if n := count[k.name]; n < l.inTenMinutes/len(l.kinds) {
						t.Fatalf("seed %d: %s comes %d times", seed, k.name, n)
					}
				}
			}
		}
	}
}

// TestMesh: what one seat sends another comes there under the sender's public address, unless a cut stops it. Without
// the connections that a mesh joins no fleet that gossips would begin.
func TestMesh(t *testing.T) {
	m, err := newMesh()
	if err != nil {
		t.Fatal(err)
	}
	var seats [2]*seat
	var udp [2]*net.UDPConn
	for i := range seats {
		s, err1 := m.open(i + 1)
		u, err2 := net.ListenUDP("udp", net.UDPAddrFromAddrPort(s.bind))
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = u.Close() })
		seats[i], udp[i] = s, u
	}
	arrives := func(from, to int) (came bool) {
		for range 20 { // some are lost by chance
			_, _ = udp[from].WriteToUDPAddrPort([]byte("word"), seats[to].public)
		}
		_ = udp[to].SetReadDeadline(time.Now().Add(20 * mostLate))
		for buf := make([]byte, 10); ; came = true {
			n, addr, err := udp[to].ReadFromUDPAddrPort(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return came
			}
			if err != nil || string(buf[:n]) != "word" || addr != seats[from].public {
				t.Fatalf("%q from %v, %v; want it from %v", buf[:n], addr, err, seats[from].public)
			}
		}
	}
	if !arrives(0, 1) || !arrives(1, 0) {
		t.Error("nothing comes through the whole mesh")
	}
	m.part(func(from, to int) bool { return from == 1 && to == 2 })
	if arrives(0, 1) || !arrives(1, 0) {
		t.Error("a cut of one way stops something else")
	}
	m.part(nil)
	if !arrives(0, 1) {
		t.Error("nothing comes through the mesh that was mended")
	}
	if err := m.close(); err != nil {
		t.Error(err)
	}
}

// TestBeliefsAreTakenOnTheSafeSide: a smaller share at the latest, and a larger one at the earliest.
func TestBeliefsAreTakenOnTheSafeSide(t *testing.T) {
	l := life{Died: 9 * sec}
	for _, n := range []note{{From: sec, To: 2 * sec, N: 4}, {From: 3 * sec, To: 4 * sec, N: 5}, {From: 5 * sec, To: 6 * sec, N: 3}} {
		n.What = isPool
		l.take(n)
	}
	for at, want := range map[time.Duration]int{0: 0, sec: 4, 3500 * ms: 4, 4 * sec: 5, 5 * sec: 3, 8 * sec: 3, 9 * sec: 0} {
		if got := l.pool(0, at); got != want {
			t.Errorf("at %v: %d, want %d", at, got, want)
		}
	}
}
