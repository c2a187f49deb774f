// Package rig is what the benchmarks share: addresses and programs, tables, verdicts and the command line of a
// program that measures one part after the other.
package rig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-go/quotient/internal/files"
	"github.com/quotient-go/quotient/internal/rest"
)

// Dials reports an error until connections are accepted at an address.
func Dials(addr string) func() error {
	return func() error {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// Until calls f every 5 ms until it returns no error, and returns its last one when the time is over.
func Until(ctx context.Context, within time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w", within, err)
		}
	}
}

// At is the address of a port on loopback.
func At(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// FreePort is a free port that the system gives to no connection: it stays free between two starts.
func FreePort() (int, error) {
	for range 100 {
		port := 20_000 + rand.IntN(12_000)
		if l, err := net.Listen("tcp", At(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port between 20000 and 32000")
}

// Find returns the path of a program; Debian keeps servers outside of the PATH of users.
func Find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + program)
	}
	if err != nil {
		err = fmt.Errorf("%s is not installed (apt-get install %s): %w", program, program, err)
	}
	return path, err
}

// Build builds a package into a file, as the go command finds it in a folder. One process does so at a time, for ten
// minutes at most, because several that begin with an empty cache would compile everything several times.
func Build(ctx context.Context, file, dir, pkg string, env ...string) error {
	turn := filepath.Join(os.TempDir(), fmt.Sprintf("quotient-build-%d", os.Getuid()))
	lock, err := files.Lock(turn)
	for tries := 0; err != nil && tries < 6000 && rest.For(ctx, 100*time.Millisecond); tries++ {
		lock, err = files.Lock(turn)
	}
	if err == nil {
		defer lock.Close() //nolint:errcheck // nothing was written
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", file, pkg)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", file, err, text)
	}
	return nil
}

// Used is the processor time of a process and its children so far. Only Linux tells it so.
func Used(pid int) (sum time.Duration, err error) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		return 0, err
	}
	for _, one := range append(strings.Fields(string(children)), strconv.Itoa(pid)) {
		text, err := os.ReadFile("/proc/" + one + "/stat")
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(string(text), ") ") // the name may hold anything
		fields := strings.Fields(rest)
		if len(fields) < 13 {
			return 0, fmt.Errorf("process %s: its stat has %d fields", one, len(fields))
		}
		user, err1 := strconv.Atoi(fields[11])
		system, err2 := strconv.Atoi(fields[12])
		if err := errors.Join(err1, err2); err != nil {
			return 0, err
		}
		sum += time.Duration(user+system) * 10 * time.Millisecond // a tick
	}
	return sum, nil
}
