package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
)

// soon is the deadline of what must happen without help.
const soon = 10 * time.Second

// idle is an assignment without an upstream to mention.
func idle() assignment {
	return assignment{
		ID: 1, Upstream: "http://127.0.0.1:1/", Limit: 100, Burst: 10, Replicas: 3, Ordinal: 1,
	}
}

// startReady starts a replica that ends with the test.
func startReady(t *testing.T, a assignment) *process {
	t.Helper()
	p, err := start(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	return p
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

// TestAReplicaEnds: in order, by itself with its own words, or killed; and is waited for.
func TestAReplicaEnds(t *testing.T) {
	t.Parallel()
	killTwice := func(p *process) error {
		p.kill()
		p.kill()
		return nil
	}
	for _, tt := range []struct {
		name   string
		change func(*assignment)
		end    func(*process) error
		ok     bool
		says   string
	}{
		{"its input ends", nil, func(p *process) error { return p.stdin.Close() }, true, ""},
		{"it is killed, twice", nil, killTwice, false, ""},
		{"an order without sense", nil, func(p *process) error { return p.order(-1) }, true,
			"replica 1 ended by itself"},
		{"its source ends", func(a *assignment) { a.Pool = "file" }, nil, false, // no path
			"the source of the pool size ended: "},
	} {
		a := idle()
		if tt.change != nil {
			tt.change(&a)
		}
		p := startReady(t, a)
		if tt.end != nil {
			if err := errors.Join(p.ended(), tt.end(p)); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
		eventually(t, tt.name, func() bool { return p.ended() != nil })
		if ok := p.cmd.ProcessState.Success(); ok != tt.ok || !strings.Contains(p.ended().Error(), tt.says) {
			t.Errorf("%s: success %v, %v", tt.name, ok, p.ended())
		}
	}
}

func TestABadAssignmentIsExplained(t *testing.T) {
	a := idle()
	a.Limit = -1
	if _, err := start(t.Context(), a); err == nil || !strings.Contains(err.Error(), "Events: -1") {
		t.Errorf("start: %v, want the limiter's own words", err)
	}
	for _, in := range []string{"", "no newline", "no JSON\n"} {
		if got := replicaMain(strings.NewReader(in), io.Discard, io.Discard); got != exitFailed {
			t.Errorf("%q: exit status %d", in, got)
		}
	}
}

// TestTellSetsThePool, over a connection of its own: the replica may close an idle one just when the next request
// is sent.
func TestTellSetsThePool(t *testing.T) {
	p := startReady(t, idle())
	if err := p.tell(t.Context(), 4, 2); err != nil {
		t.Fatal(err)
	}
	client, err := admin.NewClient(p.reported().Admin, admin.HTTPClient(operator))
	if err != nil {
		t.Fatal(err)
	}
	state, err := client.State(t.Context())
	if pool := state.Limiters["fleet"].Pool; err != nil || pool.Replicas != 4 || pool.Ordinal != 2 {
		t.Errorf("%+v, %v", pool, err)
	}
	if err := p.tell(t.Context(), 4, 5); err == nil || !strings.Contains(err.Error(), "ordinal") {
		t.Errorf("a refusal is no error: %v", err)
	}
	closes := false
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { closes = r.Close }))
	defer srv.Close()
	if err := (&process{state: message{Admin: srv.URL}}).tell(t.Context(), 1, 1); !closes {
		t.Errorf("the connection stays: %v", err)
	}
}

// waiting is a fleet that is not started, and began a minute ago.
func waiting(out io.Writer, p plan) *fleet {
	return &fleet{plan: p, out: newScreen(out, p), up: newUpstream(p.Limit, p.Burst, p.Tell), begin: -time.Minute,
		phases: []phase{{Limit: 100}}}
}

// TestNoLineIsLost: all seconds that have passed are printed, and none beyond the plan. What comes after a slow
// join keeps its distance.
func TestNoLineIsLost(t *testing.T) {
	var out bytes.Buffer
	f := waiting(&out, plan{Limit: 100, Burst: 1, Replicas: 1, Duration: 5 * time.Second})
	if next := f.catchUp(3); next != 6 || strings.Count(out.String(), "\n") != 3 {
		t.Errorf("the next line is %d after\n%s", next, out.String())
	}
	f.behind = 2 * time.Second
	if next := f.catchUp(6); next != 8 {
		t.Errorf("the next line is %d, want 8", next)
	}
	most := -53*time.Second - f.up.now()
	if left := f.until(moment{at: 5 * time.Second}); left > most || left < most-soon {
		t.Errorf("%v until the end, want %v", left, most)
	}
}

// TestAReplicaThatEndedLate ended after the last line of the output, and is noticed.
func TestAReplicaThatEndedLate(t *testing.T) {
	ended := &process{id: 1, done: make(chan struct{})}
	close(ended.done)
	f := waiting(io.Discard, plan{Limit: 100, Burst: 1, Replicas: 1, Duration: 10 * ms})
	f.all = []*process{ended}
	if err := f.play(t.Context(), division(f)); err == nil || !strings.Contains(err.Error(), "ended by itself") {
		t.Errorf("play: %v", err)
	}
}

// parentMain starts a replica, prints where it is, and does nothing until it is killed.
func parentMain() int {
	p, err := start(context.Background(), idle())
	if err != nil {
		return exitFailed
	}
	fmt.Println(p.reported().Admin)
	select {
	case <-p.done:
	case <-time.After(soon):
	}
	return exitFailed
}

// TestAReplicaDoesNotOutliveItsParent kills a parent that has no chance to clean up.
func TestAReplicaDoesNotOutliveItsParent(t *testing.T) {
	parent := exec.Command(os.Args[0], parentArg)
	stdout, err := parent.StdoutPipe()
	if err = errors.Join(err, parent.Start()); err != nil {
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

// A replica that joins starts with an empty bucket, also where it counts the others first.
func TestANewReplicaStartsEmpty(t *testing.T) {
	for _, pool := range []string{"", "file"} {
		for _, joins := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := replica{assignment: assignment{Pool: pool, Join: joins, Limit: 50, Burst: 6, Replicas: 4, Ordinal: 4}}
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
