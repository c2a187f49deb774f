package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/admin"
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
		err = p.order(0)
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

// TestAReplicaEnds by itself, or because it does not answer; and is waited for.
func TestAReplicaEnds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		end  func(*process) error
		says string
	}{
		{func(p *process) error { return send(p, syscall.SIGTERM) }, "ended by itself: signal: terminated"},
		{func(p *process) error { return send(p, os.Kill) }, "replica 1 ended by itself: signal: killed"},
	} {
		p, err := ready(t.Context(), idle())
		if err == nil {
			err = tt.end(p)
		}
		eventually(t, tt.says, func() bool {
			if err == nil {
				err = p.order(0)
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
	if got := replicaMain("no JSON", nil, nil, io.Discard); got != exitFailed {
		t.Errorf("exit status %d", got)
	}
}

func TestTellSetsThePool(t *testing.T) {
	p := startReady(t, idle())
	if err := p.tell(4); err != nil {
		t.Fatal(err)
	}
	client, err := admin.NewClient(p.state.Admin)
	if err != nil {
		t.Fatal(err)
	}
	if state, err := client.State(t.Context()); err != nil || state.Limiters["fleet"].Pool.Replicas != 4 {
		t.Errorf("%+v, %v", state, err)
	}
	if err := p.tell(0); err == nil || !strings.Contains(err.Error(), "replicas") {
		t.Errorf("a refusal is no error: %v", err)
	}
}

// waiting is a fleet that is not started, and began a minute ago.
func waiting(out io.Writer) *fleet {
	f := newFleet(plan{Limit: 100, Burst: 1, Replicas: 1}, newScreen(out, plan{Limit: 100}))
	f.begin, f.phases = -time.Minute, []phase{{Limit: 100}}
	return f
}

// TestNoLineIsLost: all seconds that have passed are printed.
func TestNoLineIsLost(t *testing.T) {
	var out bytes.Buffer
	f := waiting(&out)
	if err := f.play(t.Context(), []moment{{0, f.finish}}); err != nil || strings.Count(out.String(), "\n") != 60 {
		t.Errorf("%v after\n%s", err, out.String())
	}
}

// TestAReplicaThatEndedLate ended after the last line of the output, and is noticed.
func TestAReplicaThatEndedLate(t *testing.T) {
	p := startReady(t, idle())
	if err := send(p, os.Kill); err != nil {
		t.Fatal(err)
	}
	f := waiting(io.Discard)
	f.all = []*process{p}
	err := f.play(t.Context(), []moment{{0, f.finish}})
	if err == nil || !strings.Contains(err.Error(), "ended by itself") {
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
