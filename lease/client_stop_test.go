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
	s, err := NewServer(mutex("A"), ServerOptions{})
	must(t, err)
	defer s.Close()
	web := httptest.NewServer(s)
	defer web.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestClientStoppedChild$")
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

// TestClientStoppedChild is the process that is stopped. It does not wait for Lost: it asks Err, as one does
// before a step that needs the lock.
func TestClientStoppedChild(t *testing.T) {
	url := os.Getenv(stoppedURL)
	if url == "" {
		t.Skip("part of TestClientOfAStoppedProcess")
	}
	c := &Client{URLs: []string{url}, ExpiresIn: time.Second}
	l := locked(t, t.Context(), c, "A")
	fmt.Println("held")
	for last := time.Now(); ; runtime.Gosched() {
		now := time.Now()
		switch err := l.Err(); {
		case errors.Is(err, ErrCutOff):
			fmt.Println("lost")
			c.http().CloseIdleConnections()
			return
		case err != nil || now.Sub(last) >= time.Second:
			t.Fatalf("after a stop of %v: %v", now.Sub(last), err)
		}
		last = now
	}
}
