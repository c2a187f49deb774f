package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/internal/kept"
	"github.com/quotient-go/quotient/internal/needed"
	"github.com/quotient-go/quotient/internal/tested"
)

// childArg makes the test binary a process that starts a server and waits to be killed.
const childArg = "redistest-child"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == childArg {
		child()
		return
	}
	goleak.VerifyTestMain(m)
}

func child() {
	hangUp := make(chan os.Signal, 1)
	// or it would be ignored where the parent of the tests ignores it, say under nohup
	signal.Notify(hangUp, syscall.SIGHUP)
	go func() {
		<-hangUp
		os.Exit(1)
	}()
	s, err := Start()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Addr(), s.Dir())
	io.Copy(io.Discard, os.Stdin) //nolint:errcheck // until the test ends
}

// start returns a server, and logs when it is miniredis.
func start(t *testing.T, config ...string) *Server {
	t.Helper()
	s, err := Start(config...)
	tested.Must(t, err)
	if !s.Real() {
		t.Log("miniredis stands in for redis-server, which is not installed")
	}
	t.Cleanup(func() {
		tested.Want(t, "Close", s.Close(), nil)
	})
	return s
}

func needReal(t *testing.T, s *Server) {
	t.Helper()
	if !s.Real() {
		t.Skip("miniredis cannot do this")
	}
}

var must = tested.Must

// ask sends one command and returns the first line of the answer, or the value of a bulk string.
func ask(addr, command string, within time.Duration) (string, error) {
	c, err := net.DialTimeout("tcp", addr, within)
	if err != nil {
		return "", err
	}
	defer c.Close()                       //nolint:errcheck // nothing is lost
	c.SetDeadline(time.Now().Add(within)) //nolint:errcheck // then it takes longer
	var b strings.Builder
	words := strings.Fields(command)
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	if _, err := io.WriteString(c, b.String()); err != nil {
		return "", err
	}
	lines := bufio.NewScanner(c)
	lines.Scan()
	if n := lines.Text(); strings.HasPrefix(n, "$") && n != "$-1" {
		lines.Scan()
	}
	return lines.Text(), lines.Err()
}

// wants fails unless the server answers so.
func wants(t *testing.T, s *Server, command, answer string) {
	t.Helper()
	if got, err := ask(s.Addr(), command, kept.Patience); err != nil || got != answer {
		t.Errorf("%s: got %q, %v, want %q", command, got, err, answer)
	}
}

func TestServerKeepsItsData(t *testing.T) { keepsItsData(t, start(t)) }

func keepsItsData(t *testing.T, s *Server) {
	t.Helper()
	wants(t, s, "SET a 1", "+OK")
	for _, end := range []func() error{s.Stop, s.Kill, s.Kill} {
		must(t, end())
		if got, err := ask(s.Addr(), "GET a", time.Second); err == nil && got != "" {
			t.Errorf("a server that was ended answers %q", got)
		}
		must(t, s.Restart(false))
		wants(t, s, "GET a", "1")
	}
	must(t, s.Restart(true)) // while it runs
	wants(t, s, "GET a", "$-1")
}

func TestPause(t *testing.T) {
	s := start(t)
	needReal(t, s)
	must(t, s.Pause())
	if got, err := ask(s.Addr(), "PING", 200*time.Millisecond); err == nil {
		t.Errorf("a paused server answers %q", got)
	}
	must(t, s.Resume())
	wants(t, s, "PING", "+PONG")
	must(t, s.Pause())
	must(t, s.Stop()) // a paused server can be stopped
	if err := s.Pause(); err == nil {
		t.Error("a stopped server can be paused")
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	s := start(t)
	must(t, s.Close())
	must(t, s.Close())
	if s.Real() {
		if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", s.Dir(), err)
		}
	}
}

func TestConfiguration(t *testing.T) {
	s, err := Start("--requirepass", "secret")
	if errors.Is(err, ErrNoServer) {
		t.Skip(err)
	}
	must(t, err)
	wants(t, s, "PING", "-NOAUTH Authentication required.")
	must(t, s.Close())
	if _, err := Start("--no-such-thing", "yes"); err == nil ||
		!strings.Contains(err.Error(), "no-such-thing") {
		t.Errorf("a wrong configuration: %v", err)
	}
}

func TestWithoutRedisServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv(needed.Variable, "nginx,redis-server")
	if _, err := Start(); !errors.Is(err, ErrNoServer) {
		t.Errorf("required: %v", err)
	}
	t.Setenv(needed.Variable, "nginx")
	if _, err := Start("--port", "1"); !errors.Is(err, ErrNoServer) {
		t.Errorf("configured: %v", err)
	}
	s := start(t)
	if s.Real() || s.Dir() != "" {
		t.Errorf("real %v, directory %q", s.Real(), s.Dir())
	}
	keepsItsData(t, s)
	if err := s.Pause(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Pause: %v", err)
	}
}

func TestStartFails(t *testing.T) {
	needReal(t, start(t))
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	if s, err := Start(); err == nil {
		t.Errorf("without a temporary directory: %s", s.Addr())
	}
}

// A port that another process has taken meanwhile is an error, and the server can be started later.
func TestRestartOnATakenPort(t *testing.T) {
	s := start(t)
	must(t, s.Stop())
	l, err := net.Listen("tcp", s.Addr())
	must(t, err)
	if err := s.Restart(false); err == nil {
		t.Error("two servers have one port")
	}
	must(t, l.Close())
	must(t, s.Restart(false))
	wants(t, s, "PING", "+PONG")
}
