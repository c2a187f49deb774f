//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/quotient-go/quotient/internal/tested"
)

var must = tested.Must

// dieAt leaves a socket without a listener behind.
func dieAt(t *testing.T, path string) {
	t.Helper()
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	must(t, err)
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
}

// reachable fails unless a server listens at path.
func reachable(t *testing.T, path string) {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Errorf("no listener is reached: %v", err)
		return
	}
	_ = conn.Close()
}

// TestTwoAtOneSocket: of two that start at one dead socket one listens, and the other gets the reason why it does not.
// The lock is that of an open file, and so holds between two of one process too.
func TestTwoAtOneSocket(t *testing.T) {
	dir := t.TempDir()
	for i := range 300 {
		path := filepath.Join(dir, fmt.Sprint(i, ".sock"))
		if i%3 > 0 { // else there is none
			dieAt(t, path)
		}
		var listeners [2]net.Listener
		var errs [2]error
		var both sync.WaitGroup
		for k := range listeners {
			both.Go(func() { listeners[k], errs[k] = Unix(t.Context(), path, i%2 > 0) })
		}
		both.Wait()
		first := 0
		if listeners[0] == nil {
			first = 1
		}
		if err := errs[1-first]; errs[first] != nil || err == nil ||
			!strings.Contains(err.Error(), "another process listens at "+path) {
			t.Fatalf("round %d: %v", i, errs)
		}
		reachable(t, path)
		must(t, listeners[first].Close())
		if left, err := filepath.Glob(path + "*"); err != nil || len(left) > 0 {
			t.Fatalf("round %d: %v is left, %v", i, left, err)
		}
	}
}

// TestSocketOfAnotherStays: what stands at the path when a listener ends is removed only if it is its own.
func TestSocketOfAnotherStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.sock")
	l, err := Unix(t.Context(), path, true)
	must(t, err)
	must(t, os.Remove(path))
	other, err := net.Listen("unix", path)
	must(t, err)
	defer other.Close()
	if err := l.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	reachable(t, path)
	_ = l.Close() // a second time
	reachable(t, path)
	if _, err := Unix(t.Context(), path, true); err == nil ||
		!strings.Contains(err.Error(), "another process listens at "+path) {
		t.Errorf("Listen where another program listens: %v", err)
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// TestLockThatWasRemoved: the lock of a file that is not there any more is not the lock of its path.
func TestLockThatWasRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.sock")
	for _, again := range []bool{false, true} {
		f, err := os.Create(path + ".lock")
		must(t, err)
		defer f.Close()
		if held, err := lockFile(f, path); !held || err != nil {
			t.Errorf("a lock: %v, %v", held, err)
		}
		must(t, os.Remove(f.Name()))
		if again {
			must(t, os.WriteFile(f.Name(), nil, 0o600))
		}
		if held, err := lockFile(f, path); held || err != nil {
			t.Errorf("the lock of a file that was removed: %v, %v", held, err)
		}
	}
}

// TestLockOfTheDead: a lock file that a process left behind when it died holds up none that come later, and
// what is no lock file is not touched.
func TestLockOfTheDead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "q.sock")
	dieAt(t, path)
	must(t, os.WriteFile(path+".lock", nil, 0o600))
	l, err := Unix(t.Context(), path, true)
	must(t, err)
	if info, err := os.Stat(path + ".lock"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the lock file: %v, %v", info, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path + ".lock"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the lock file is still there: %v", err)
	}
	elsewhere := filepath.Join(t.TempDir(), "precious")
	must(t, os.Symlink(elsewhere, path+".lock"))
	if l, err := Unix(t.Context(), path, true); err == nil {
		_ = l.Close()
		t.Error("a symbolic link is followed")
	}
	if _, err := os.Stat(elsewhere); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it has made a file elsewhere: %v", err)
	}
	must(t, os.Remove(path+".lock"))
	must(t, os.WriteFile(path, []byte("keep me"), 0o600))
	if _, err := Unix(t.Context(), path, true); err == nil {
		t.Error("a file is taken for a socket")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "keep me" {
		t.Errorf("the file is %q, %v", text, err)
	}
	for _, bad := range []string{"", "@abstract"} {
		if l, err := Unix(t.Context(), bad, true); err == nil ||
			!strings.Contains(err.Error(), "address") {
			t.Errorf("%q: %v, %v", bad, l, err)
		}
	}
}
