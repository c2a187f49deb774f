package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/examples/fleet/upstream"
)

// soon is the deadline of what must happen without help.
const soon = 10 * time.Second

// idle is an assignment without an upstream to mention.
func idle() assignment {
	return assignment{
		ID: 1, Upstream: "http://127.0.0.1:1/", Limit: 100, Burst: 10, Replicas: 3, Ordinal: 1,
		Want: 1, Patience: ms, Life: time.Minute,
	}
}

// startReady starts a replica that ends with the test.
func startReady(t *testing.T, a assignment) *process {
	t.Helper()
	p, err := start(a, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.stop() })
	if _, err := p.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func waitDone(t *testing.T, p *process) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(soon):
		t.Fatalf("replica %d is still there", p.id)
	}
}

func TestAReplicaEndsWithItsInput(t *testing.T) {
	p := startReady(t, idle())
	if err := p.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	waitDone(t, p)
	if !p.cmd.ProcessState.Success() {
		t.Errorf("%v", p.ended())
	}
}

func TestAReplicaEndsByItself(t *testing.T) {
	a := idle()
	a.Life = 200 * ms
	p := startReady(t, a)
	waitDone(t, p)
	if err := p.ended(); err == nil || !strings.Contains(err.Error(), "replica 1 ended by itself") {
		t.Errorf("ended() = %v", err)
	}
}

func TestAKilledReplicaIsWaitedFor(t *testing.T) {
	p := startReady(t, idle())
	if err := p.ended(); err != nil {
		t.Errorf("before: %v", err)
	}
	if err := p.kill(); err != nil {
		t.Fatal(err)
	}
	if p.cmd.ProcessState == nil || p.cmd.ProcessState.Success() {
		t.Errorf("state %v", p.cmd.ProcessState)
	}
	if err := p.kill(); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func TestABadAssignmentIsExplained(t *testing.T) {
	a := idle()
	a.Limit = -1
	p, err := start(a, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.ready(t.Context())
	if err == nil || !strings.Contains(err.Error(), "Events: -1") {
		t.Errorf("ready: %v, want the limiter's own words", err)
	}
	var stderr bytes.Buffer
	for _, in := range []string{"", "no newline", "no JSON\n"} {
		if got := replicaMain(strings.NewReader(in), io.Discard, &stderr); got != exitFailed {
			t.Errorf("%q: exit status %d", in, got)
		}
	}
}

// TestASourceThatEndsIsExplained: a replica that cannot count ends, rather than to send nothing for ever.
func TestASourceThatEndsIsExplained(t *testing.T) {
	a := idle()
	a.Pool, a.Want = "file", 0 // without a path
	p := startReady(t, a)
	waitDone(t, p)
	if err := p.ended(); err == nil || !strings.Contains(err.Error(), "the source of the pool size ended: ") {
		t.Errorf("ended() = %v", err)
	}
}

func TestTellSetsThePool(t *testing.T) {
	p := startReady(t, idle())
	client := newAdminClient()
	if err := p.tell(t.Context(), client, 4, 2); err != nil {
		t.Fatal(err)
	}
	resp, err := client.Get(p.admin + "/state")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var state struct {
		Limiters map[string]struct{ Pool quotient.Pool }
	}
	if err := json.NewDecoder(resp.Body).Decode(&state); err != nil {
		t.Fatal(err)
	}
	if pool := state.Limiters["fleet"].Pool; pool.Replicas != 4 || pool.Ordinal != 2 {
		t.Errorf("pool %+v", pool)
	}
	if err := p.tell(t.Context(), client, 4, 5); err == nil || !strings.Contains(err.Error(), "ordinal") {
		t.Errorf("a refusal is no error: %v", err)
	}
}

// TestTellAfterAPause plays a replica that closes its idle connection just when the next request is sent.
func TestTellAfterAPause(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r := bufio.NewReader(conn)
			if req, err := http.ReadRequest(r); err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
				fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				_, _ = r.Peek(1) // the next request, or the end
			}
			_ = conn.Close()
		}
	})
	p := &process{id: 1, admin: "http://" + listener.Addr().String()}
	client := newAdminClient()
	for range 2 {
		if err := p.tell(t.Context(), client, 4, 2); err != nil {
			t.Error(err)
		}
	}
	_ = listener.Close()
	serving.Wait()
}

// newUp is the upstream of a fleet that is not started.
func newUp(p plan) *upstream.Upstream {
	return upstream.New(upstream.NewClock(), p.Limit, p.Burst, upstream.Nothing)
}

// TestNoLineIsLost: all seconds that have passed are printed, and none beyond the plan.
func TestNoLineIsLost(t *testing.T) {
	var out bytes.Buffer
	plan := plan{Limit: 100, Burst: 1, Replicas: 1, Duration: 5 * time.Second}
	f := &fleet{plan: plan, out: newScreen(&out, plan), up: newUp(plan), begin: -time.Minute,
		phases: []phase{{Limit: 100}}}
	if next := f.catchUp(3); next != 6 || strings.Count(out.String(), "\n") != 3 {
		t.Errorf("the next line is %d after\n%s", next, out.String())
	}
}

// TestAReplicaThatEndedLate ended after the last line of the output, and is noticed.
func TestAReplicaThatEndedLate(t *testing.T) {
	ended := &process{id: 1, done: make(chan struct{})}
	close(ended.done)
	plan := plan{Limit: 100, Burst: 1, Replicas: 1, Duration: 10 * ms}
	f := &fleet{plan: plan, out: newScreen(io.Discard, plan), up: newUp(plan), all: []*process{ended},
		phases: []phase{{}}}
	if err := f.play(t.Context(), division(f)); err == nil ||
		!strings.Contains(err.Error(), "ended by itself") {
		t.Errorf("play: %v", err)
	}
}

// parentMain starts a replica, prints where it is, and does nothing until it is killed.
func parentMain() int {
	p, err := start(idle(), nil)
	if err != nil {
		return exitFailed
	}
	hello, err := p.ready(context.Background())
	if err != nil {
		return exitFailed
	}
	fmt.Println(hello.Admin)
	<-p.done // the replica's life is bounded, so this is too
	return exitFailed
}

// TestAReplicaDoesNotOutliveItsParent kills a parent that has no chance to clean up.
func TestAReplicaDoesNotOutliveItsParent(t *testing.T) {
	parent := exec.Command(os.Args[0], parentArg)
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	admin, err := url.Parse(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if !answers(admin.Host) {
		t.Fatalf("nobody answers at %s", admin.Host)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed: an error by design
	look := time.NewTicker(10 * ms)
	defer look.Stop()
	for deadline := time.After(soon); answers(admin.Host); {
		select {
		case <-look.C:
		case <-deadline:
			t.Fatalf("the replica at %s outlives its parent", admin.Host)
		}
	}
}

// answers reports whether a server listens at a TCP address.
func answers(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

func TestTailKeepsTheEnd(t *testing.T) {
	var out tail
	for i := range 1000 {
		fmt.Fprintf(&out, "line %d\n", i)
	}
	if got := out.String(); len(got) > 2<<10 || !strings.HasSuffix(got, "line 999") {
		t.Errorf("tail of %d bytes: …%q", len(got), got[len(got)-20:])
	}
}

// A replica that joins starts with an empty bucket, also where it counts the others first.
func TestANewReplicaStartsEmpty(t *testing.T) {
	for _, pool := range []string{"", "file"} {
		for _, joins := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := replica{assignment: assignment{Pool: pool, Join: joins, Limit: 50, Burst: 6, Replicas: 4,
					Ordinal: 4}}
				if err := r.makeLimiter(); err != nil {
					t.Fatal(err)
				}
				if err := r.limiter.SetPool(quotient.Pool{Replicas: 4}, 0); err != nil {
					t.Fatal(err)
				}
				if full := r.limiter.Allow("upstream"); full == joins {
					t.Errorf("pool %q, joins %v: the first request is admitted: %v", pool, joins, full)
				}
			})
		}
	}
}
