package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// soon is the deadline of what must happen without help.
const soon = 10 * time.Second

// idle is an assignment without an upstream to mention.
func idle() assignment {
	return assignment{
		ID: 1, Upstream: "http://127.0.0.1:1/", Limit: 100, Burst: 10, Replicas: 3,
	}
}

// ready starts a replica, and waits until it answers.
func ready(ctx context.Context, a assignment) (*process, error) {
	p, err := start(ctx, a)
	if err == nil {
		err = p.look(watcher())
	}
	return p, err
}

// startReady starts a replica that ends with the test.
func startReady(t *testing.T, a assignment) *process {
	t.Helper()
	p, err := ready(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !p.ended {
			_ = p.end()
		}
	})
	return p
}

// send sends a signal to the process, which is an error once it was waited for.
func send(p *process, sig os.Signal) error {
	found, err := os.FindProcess(p.state.Pid)
	if err == nil {
		err = found.Signal(sig)
	}
	return err
}

// watcher is a fleet that only looks at replicas.
func watcher() *fleet { return &fleet{up: newUpstream(1, 1, tellNothing)} }

// eventually waits until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	look := time.NewTicker(10 * ms)
	defer look.Stop()
	for deadline := time.After(soon); !so(); {
		select {
		case <-look.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// TestAReplicaEnds by itself, with its own words, or because it does not answer; and is waited for.
func TestAReplicaEnds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		end  func(*process) error
		says string
	}{
		{func(p *process) error { return send(p, syscall.SIGTERM) }, "ended by itself: signal: terminated"},
		{func(p *process) error { return p.replica.Close() }, "replica 1 ended by itself"},
	} {
		p, err := ready(t.Context(), idle())
		if err == nil {
			err = tt.end(p)
		}
		eventually(t, tt.says, func() bool {
			if err == nil {
				err = p.look(watcher())
			}
			return err != nil
		})
		if !p.ended || send(p, syscall.Signal(0)) == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v, want %q", err, tt.says)
		}
	}
}

func TestABadAssignmentIsExplained(t *testing.T) {
	a := idle()
	a.Limit = -1
	if _, err := ready(t.Context(), a); err == nil || !strings.Contains(err.Error(), "Events: -1") {
		t.Errorf("start: %v, want the limiter's own words", err)
	}
	if got := replicaMain("no JSON", nil, io.Discard); got != exitFailed {
		t.Errorf("exit status %d", got)
	}
}

func TestTellSetsThePool(t *testing.T) {
	p := startReady(t, idle())
	if err := p.tell(4); err != nil {
		t.Fatal(err)
	}
	if err := p.look(watcher()); err != nil || p.state.Replicas != 4 {
		t.Errorf("%+v, %v", p.state, err)
	}
	if err := p.tell(0); err == nil || !strings.Contains(err.Error(), "replicas") {
		t.Errorf("a refusal is no error: %v", err)
	}
}

// waiting is a fleet that is not started, and began a minute ago.
func waiting(out io.Writer, p plan) *fleet {
	return &fleet{plan: p, out: newScreen(out, p), up: newUpstream(p.Limit, p.Burst, p.Tell), begin: -time.Minute,
		phases: []phase{{Limit: 100}}}
}

// TestNoLineIsLost: all seconds that have passed are printed.
func TestNoLineIsLost(t *testing.T) {
	var out bytes.Buffer
	f := waiting(&out, plan{Limit: 100, Burst: 1, Replicas: 1})
	if next := f.catchUp(59); next != 61 || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("the next line is %d after\n%s", next, out.String())
	}
}

// TestAReplicaThatEndedLate ended after the last line of the output, and is noticed.
func TestAReplicaThatEndedLate(t *testing.T) {
	p := startReady(t, idle())
	if err := send(p, os.Kill); err != nil {
		t.Fatal(err)
	}
	f := waiting(io.Discard, plan{Limit: 100, Burst: 1, Replicas: 1, Duration: 10 * ms})
	f.all = []*process{p}
	if err := f.play(t.Context(), division(f)); err == nil || !strings.Contains(err.Error(), "ended by itself") {
		t.Errorf("play: %v", err)
	}
}

// parentMain starts a replica, prints where it is, and does nothing until it is killed.
func parentMain() int {
	p, err := ready(context.Background(), idle())
	if err != nil {
		return exitFailed
	}
	fmt.Println(p.state.Admin)
	time.Sleep(soon)
	return exitFailed
}

// TestAReplicaDoesNotOutliveItsParent kills a parent that has no chance to clean up.
func TestAReplicaDoesNotOutliveItsParent(t *testing.T) {
	parent := exec.Command(os.Args[0], parentArg)
	stdout, err := parent.StdoutPipe()
	if err = cmp.Or(err, parent.Start()); err != nil {
		t.Fatal(err)
	}
	var address string
	if _, err := fmt.Fscan(stdout, &address); err != nil {
		t.Fatal(err)
	}
	address = strings.TrimPrefix(address, "http://")
	answers := func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
	if !answers() {
		t.Fatalf("nobody answers at %s", address)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait() // killed: an error by design
	eventually(t, "the replica ends with its parent", func() bool { return !answers() })
}

// A replica that joins starts with an empty bucket.
func TestANewReplicaStartsEmpty(t *testing.T) {
	for _, joins := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r, err := newReplica(assignment{Join: joins, Limit: 50, Burst: 6, Replicas: 4})
			if err != nil {
				t.Fatal(err)
			}
			if full := r.limiter.Allow("upstream"); full == joins {
				t.Errorf("joins %v: the first request is admitted: %v", joins, full)
			}
		})
	}
}

// A teller is a replica that reports one pool size after the other.
type teller []int

func (s *teller) Report(_ struct{}, known *Report) error {
	known.Replicas, *s = (*s)[0], (*s)[1:]
	return nil
}

// TestEntitled: nothing before the first hint, and between two looks the larger share.
func TestEntitled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, its := net.Pipe()
		server := rpc.NewServer()
		if err := server.RegisterName("replica", &teller{0, 3, 3, 4, 2, 0}); err != nil {
			t.Fatal(err)
		}
		go server.ServeConn(its)
		p := &process{replica: rpc.NewClient(ours), steps: []step{{}}}
		f := &fleet{plan: plan{Limit: 120, Burst: 12}, up: newUpstream(120, 12, tellNothing), all: []*process{p}}
		for range 5 {
			if err := p.look(f); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * ms)
		}
		want := []step{{}, {0, 40, 4, 0}, {30 * ms, 30, 3, 0}, {30 * ms, 60, 6, 0}}
		if !slices.Equal(p.steps, want) {
			t.Errorf("%+v, want %+v", p.steps, want)
		}
		_ = p.replica.Close()
	})
}
