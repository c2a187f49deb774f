package etcd

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// keeper runs a command in the shell's own process, so that signals reach it. Beside it a subshell kills it
// when the pipe at its input ends without a word: the test's process is gone.
const keeper = `exec 3<&0; (trap "" HUP INT TERM; read word <&3 || kill -9 $$) & exec 3<&- </dev/null; exec "$@"`

// server is one member of etcd that a test owns.
type server struct {
	t     testing.TB
	name  string
	dir   string
	urls  [2]string // for clients and for peers
	extra []string

	mu    sync.Mutex // guards what follows
	cmd   *exec.Cmd  // nil while it is stopped
	alive io.WriteCloser
	ended chan struct{}
}

// start returns a server that ends with the test. Without etcd the test is skipped, or fails if
// QUOTIENT_REQUIRE lists it.
func start(t testing.TB) *server {
	t.Helper()
	needReal(t)
	s := newServer(t, "one")
	for range 3 { // another process may take a port meanwhile
		s.urls = [2]string{"http://" + freeAddr(t), "http://" + freeAddr(t)}
		s.extra = []string{"--initial-cluster", s.name + "=" + s.urls[1]}
		if s.run() == nil {
			return s
		}
	}
	t.Fatalf("etcd does not start: %s", s.log())
	return nil
}

// newServer returns a server without addresses that does not run yet.
func newServer(t testing.TB, name string) *server {
	s := &server{t: t, name: name, dir: t.TempDir()}
	t.Cleanup(func() { s.end(syscall.SIGKILL) })
	return s
}

func needReal(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err == nil {
		return
	}
	const text = "etcd is not installed: nothing is known about a real store (apt-get install etcd-server)"
	if strings.Contains(","+os.Getenv("QUOTIENT_REQUIRE")+",", ",etcd,") {
		t.Fatal(text)
	}
	t.Skip(text)
}

// freeAddr returns an address on loopback without a listener. Its port is below those that connections get,
// or one of them may take it while the server is stopped.
func freeAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10_000+rand.IntN(20_000)))
		if err == nil {
			must(t, l.Close())
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// run starts the server and returns when it serves.
func (s *server) run() error {
	s.launch()
	return s.serves()
}

// launch starts the server's process.
func (s *server) launch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(s.t, err)
	defer out.Close() //nolint:errcheck // the server has it
	args := append([]string{"-c", keeper, "sh", "etcd", "--name", s.name, "--log-level", "warn",
		"--data-dir", filepath.Join(s.dir, "data"), "--unsafe-no-fsync",
		"--listen-client-urls", s.urls[0], "--advertise-client-urls", s.urls[0],
		"--listen-peer-urls", s.urls[1], "--initial-advertise-peer-urls", s.urls[1]}, s.extra...)
	s.cmd = exec.Command("sh", args...)
	s.cmd.Stdout, s.cmd.Stderr = out, out
	in, alive, err := os.Pipe()
	must(s.t, err)
	defer in.Close() //nolint:errcheck // the keeper has it
	s.cmd.Stdin, s.alive = in, alive
	must(s.t, s.cmd.Start())
	ended, cmd := make(chan struct{}), s.cmd
	s.ended = ended
	go func() {
		defer close(ended)
		cmd.Wait() //nolint:errcheck // a signal ends it
	}()
}

// serves waits until the server answers, and returns an error if it ends before.
func (s *server) serves() error {
	c := clientOf(s.t, s)
	defer c.Close() //nolint:errcheck // nothing is lost
	for end := time.Now().Add(patience); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		_, err := c.Get(ctx, "is it there")
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("etcd has ended: %s", s.log())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return fmt.Errorf("etcd does not answer after %v: %s", patience, s.log())
}

func (s *server) log() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "log")) //nolint:errcheck // only makes an error clearer
	return string(text[max(0, len(text)-2000):])
}

func (s *server) addr() string { return strings.TrimPrefix(s.urls[0], "http://") }

// end ends the process if it runs.
func (s *server) end(how syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Signal(how) //nolint:errcheck // it may have ended
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.cmd.Process.Kill() //nolint:errcheck // see above
		<-s.ended
	}
	s.alive.Write([]byte("over\n")) //nolint:errcheck // nothing is left to kill; the keeper may be gone
	s.alive.Close()                 //nolint:errcheck // see above
	s.cmd = nil
}

// restart starts the server on its ports again, and kills it before if it runs. With wipe its data is lost.
func (s *server) restart(wipe bool) {
	s.t.Helper()
	s.end(syscall.SIGKILL)
	if wipe {
		must(s.t, os.RemoveAll(filepath.Join(s.dir, "data")))
	}
	must(s.t, s.run())
}

// signal sends a signal to the server, which goes on.
func (s *server) signal(sig syscall.Signal) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	must(s.t, s.cmd.Process.Signal(sig))
}

// clientOf returns a client of servers with the options that the package's page names.
func clientOf(t testing.TB, servers ...*server) *clientv3.Client {
	t.Helper()
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.addr())
	}
	return clientAt(t, addrs...)
}

func clientAt(t testing.TB, addrs ...string) *clientv3.Client {
	t.Helper()
	return clientWith(t, clientv3.Config{Endpoints: addrs,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second})
}

func clientWith(t testing.TB, config clientv3.Config) *clientv3.Client {
	t.Helper()
	config.Logger = zap.NewNop() // the client's own words about servers that tests have killed
	c, err := clientv3.New(config)
	must(t, err)
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // a test may have closed it
	return c
}
