// Package redistest runs a Redis server for tests and examples: redis-server from the PATH, on a free
// port of the loopback interface, with its data in a temporary directory. Where there is none it is
// miniredis, which is Redis in this process; Real tells. Miniredis cannot be paused and takes no configuration.
//
// If the environment variable QUOTIENT_REQUIRE lists redis-server (names with commas between them), Start fails where
// there is none.
package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/quotient-go/quotient/internal/kept"
	"github.com/quotient-go/quotient/internal/needed"
)

// ErrNoServer is returned by Start when only a real redis-server will do, and there is none.
var ErrNoServer = errors.New("redistest: redis-server is not on the PATH")

// Server is a Redis server that a test owns. Its methods may be called from many goroutines. It ends with Close, and
// also when this process ends in whatever way.
type Server struct {
	addr   netip.AddrPort
	dir    string
	exe    string
	config []string

	mu   sync.Mutex           // guards what follows
	run  *kept.Process        // the real server; nil while it is stopped
	mini *miniredis.Miniredis // nil when the server is real
}

// Start starts a server and returns when it answers. Arguments are those of redis-server's command line, such as
// "--cluster-enabled", "yes", or "--sentinel"; with any, the server must be a real one. Every acknowledged
// write survives Stop and Kill.
func Start(config ...string) (*Server, error) {
	exe, err := exec.LookPath("redis-server")
	if err == nil {
		return startReal(exe, config)
	}
	if len(config) > 0 || needed.Listed("redis-server") {
		return nil, ErrNoServer
	}
	mini, err := miniredis.Run()
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	mini.ClockTTL(true)
	return &Server{addr: netip.MustParseAddrPort(mini.Addr()), mini: mini}, nil
}

// startReal looks for a port first, so another process may take it meanwhile: it tries again.
func startReal(exe string, config []string) (*Server, error) {
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	s := &Server{dir: dir, exe: exe, config: config}
	for range 3 {
		if s.addr, err = freeAddr(); err != nil {
			break
		}
		if err = s.start(); err == nil {
			return s, nil
		}
	}
	return nil, errors.Join(err, os.RemoveAll(dir))
}

func freeAddr() (netip.AddrPort, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("redistest: %w", err)
	}
	return l.Addr().(*net.TCPAddr).AddrPort(), l.Close()
}

// start starts the real server. Called with mu held, or before another goroutine has the server.
func (s *Server) start() error {
	file := filepath.Join(s.dir, "conf") // Sentinel must have one to write to
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	args := append([]string{s.exe, file, "--bind", s.addr.Addr().String(), "--port", strconv.Itoa(s.Port()),
		"--dir", s.dir, "--save", "", "--appendonly", "yes"}, s.config...)
	run, err := kept.Start("", args...)
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	if err = run.Serves(context.Background(), func() error { return pong(s.Addr()) }); err == nil {
		s.run = run
		return nil
	}
	_ = run.Kill() // it may have ended
	return fmt.Errorf("redistest: %w", err)
}

// Addr returns host and port of the server. They stay the same through Restart.
func (s *Server) Addr() string { return s.addr.String() }

// Port returns the port of Addr.
func (s *Server) Port() int { return int(s.addr.Port()) }

// Real reports whether the server is redis-server, and not miniredis.
func (s *Server) Real() bool { return s.exe != "" }

// Dir returns the directory of the server's data, "" for miniredis. It is removed by Close.
func (s *Server) Dir() string { return s.dir }

// Stop ends the server in an orderly way. A server that is stopped already stays so.
func (s *Server) Stop() error { return s.end((*kept.Process).Stop) }

// Kill ends the server at once, as a crash does. A server that is stopped already stays so.
func (s *Server) Kill() error { return s.end((*kept.Process).Kill) }

func (s *Server) end(how func(*kept.Process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mini != nil {
		s.mini.Close()
		return nil
	}
	if s.run == nil {
		return nil
	}
	resume(s.run) //nolint:errcheck // it may not be paused
	err := how(s.run)
	s.run = nil
	if errors.Is(err, os.ErrProcessDone) { // it has ended by itself
		return nil
	}
	return err
}

// Restart starts the server on the port that it had, after it has killed it if it runs. With wipe it comes back with no
// data.
func (s *Server) Restart(wipe bool) error {
	if err := s.Kill(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mini != nil {
		if wipe {
			s.mini.FlushAll()
		}
		return s.mini.Restart()
	}
	if wipe {
		if err := os.RemoveAll(filepath.Join(s.dir, "appendonlydir")); err != nil {
			return fmt.Errorf("redistest: %w", err)
		}
	}
	return s.start()
}

// Pause stops the server's process by SIGSTOP: connections stay, and nothing answers. The error is
// errors.ErrUnsupported for miniredis, and where there is no such signal.
func (s *Server) Pause() error { return s.signal(pause) }

// Resume lets a paused server go on, by SIGCONT. Errors are as for Pause.
func (s *Server) Resume() error { return s.signal(resume) }

func (s *Server) signal(send func(*kept.Process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mini != nil:
		return fmt.Errorf("redistest: miniredis: %w", errors.ErrUnsupported)
	case s.run == nil:
		return errors.New("redistest: the server does not run")
	}
	return send(s.run)
}

// Close ends the server and removes its data. Only the first call does anything.
func (s *Server) Close() error {
	err := s.Kill()
	if s.dir == "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// pong reports an error until a Redis server serves at the address, even if it wants a password first.
func pong(addr string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()                            //nolint:errcheck // nothing is lost
	c.SetDeadline(time.Now().Add(time.Second)) //nolint:errcheck // then it takes longer
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer := make([]byte, 64)
	n, err := c.Read(answer)
	if bytes.HasPrefix(answer[:n], []byte("+PONG")) || bytes.HasPrefix(answer[:n], []byte("-NOAUTH")) {
		return nil
	}
	return fmt.Errorf("it answers %q: %v", answer[:n], err)
}
