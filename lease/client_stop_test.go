//go:build unix

package lease

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

const stoppedURL = "LEASE_TEST_STOPPED_URL"

// A process is stopped until its lease has ended and another client has the lock. When it goes on it must see
// that at once, and must not restore what it held.
func TestClientOfAStoppedProcess(t *testing.T) {
	if url := os.Getenv(stoppedURL); url != "" {
		stoppedChild(t, url)
		return
	}
	s, err := NewServer(mutex("A"), ServerOptions{})
	must(t, err)
	defer s.Close()
	web := httptest.NewServer(s)
	defer web.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestClientOfAStoppedProcess$")
	child.Env = append(os.Environ(), stoppedURL+"="+web.URL)
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	said := bufio.NewScanner(out)
	if !said.Scan() || said.Text() != "held" {
		t.Fatal(said.Text(), said.Err())
	}
	must(t, child.Process.Signal(syscall.SIGSTOP))
	c := &Client{URLs: []string{web.URL}, HTTP: web.Client()}
	l := locked(t, ctx, c, "A") // once the lease of the child has ended
	must(t, child.Process.Signal(syscall.SIGCONT))
	if !said.Scan() || said.Text() != "lost" {
		t.Error(said.Text(), said.Err())
	}
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
	heldBy(t, s, "A", l, 0)
	unlock(t, l)
}

// stoppedChild is the process that is stopped. It does not wait for Lost: it asks Err, as one does before a step that
// needs the lock.
func stoppedChild(t *testing.T, url string) {
	c := &Client{URLs: []string{url}, ExpiresIn: time.Second}
	l := locked(t, t.Context(), c, "A")
	fmt.Println("held")
	last := time.Now()
	for now := last; l.Err() == nil && now.Sub(last) < time.Second; last, now = now, time.Now() {
		runtime.Gosched()
	}
	if err := l.Err(); !errors.Is(err, ErrCutOff) {
		t.Fatalf("after a stop of %v: %v", time.Since(last), err)
	}
	fmt.Println("lost")
	c.http().CloseIdleConnections()
}
