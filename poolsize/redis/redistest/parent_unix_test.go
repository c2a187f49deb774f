//go:build unix

package redistest

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-go/quotient/internal/kept"
)

// A process that is killed leaves no server behind, nor does a group that is hung up.
func TestServerEndsWithItsParent(t *testing.T) {
	needReal(t, start(t))
	endsWithParent(t, func(child int) error { return syscall.Kill(child, syscall.SIGKILL) })
	endsWithParent(t, func(child int) error { return syscall.Kill(-child, syscall.SIGHUP) })
}

func endsWithParent(t *testing.T, end func(child int) error) {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command(exe, childArg)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	must(t, err)
	defer in.Close() //nolint:errcheck // the child is gone
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	lines.Scan()
	addr, dir, ok := strings.Cut(lines.Text(), " ")
	if !ok {
		t.Fatalf("the child says %q", lines.Text())
	}
	defer os.RemoveAll(dir) //nolint:errcheck // what the child could not do
	if got, err := ask(addr, "PING", kept.Patience); got != "+PONG" {
		t.Fatalf("got %q, %v", got, err)
	}
	must(t, end(cmd.Process.Pid))
	cmd.Wait() //nolint:errcheck // it was killed
	for end := time.Now().Add(kept.Patience); pong(addr) == nil; {
		if time.Now().After(end) {
			t.Fatal("the server lives on")
		}
	}
}
