package main

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
	"sync"
	"syscall"
	"time"
)

// building builds the program quotient once.
type building struct {
	once      sync.Once
	dir, file string
	err       error
}

// program returns the file of the program quotient.
func (b *bench) program(ctx context.Context) (string, error) {
	b.built.once.Do(func() {
		if b.quotient != "" {
			b.built.file, b.built.err = filepath.Abs(b.quotient)
			return
		}
		if b.built.dir, b.built.err = os.MkdirTemp("", "quotient-leases-"); b.built.err != nil {
			return
		}
		b.built.file = filepath.Join(b.built.dir, "quotient")
		const program = "github.com/quotient-go/quotient/cmd/quotient"
		cmd := exec.CommandContext(ctx, "go", "build", "-o", b.built.file, program)
		if text, err := cmd.CombinedOutput(); err != nil {
			b.built.err = fmt.Errorf("building quotient: %w: %s", err, text)
		}
	})
	return b.built.file, b.built.err
}

// clean removes what was built.
func (b *bench) clean() error {
	if b.built.dir == "" {
		return nil
	}
	return os.RemoveAll(b.built.dir)
}

// leases starts quotient leases at a port, and waits until it accepts connections.
func (b *bench) leases(ctx context.Context, port int, more ...string) (*process, error) {
	file, err := b.program(ctx)
	if err != nil {
		return nil, err
	}
	args := append([]string{file, "leases", "--port", strconv.Itoa(port)}, more...)
	dir := b.built.dir
	if dir == "" {
		dir = os.TempDir()
	}
	p, err := start(dir, args...)
	if err != nil {
		return nil, err
	}
	if err := p.serves(ctx, at(port)); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func at(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// freePort is one that was free a moment ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// quietPort is a free port that the system gives to no connection: it stays free between two starts.
func quietPort() (int, error) {
	for range 100 {
		port := 20_000 + rand.IntN(12_000)
		if l, err := net.Listen("tcp", at(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port between 20000 and 32000")
}

// shutdown measures how long the program takes from SIGTERM to its end, with peers and waiters.
func (b *bench) shutdown(ctx context.Context) (took time.Duration, err error) {
	port, err := freePort()
	if err != nil {
		return 0, err
	}
	p, err := b.leases(ctx, port, "-s", "held=1099511627776", "-s", "scarce=1")
	if err != nil {
		return 0, err
	}
	l := &load{p: &pair{addresses: addresses{Leases: at(port)}}, tokens: make([]uint64, b.waiters)}
	if err := l.add(ctx, b.peers); err != nil {
		return 0, errors.Join(err, p.stop())
	}
	h, failed := l.wait(ctx)
	if h.err != nil {
		return 0, errors.Join(h.err, p.stop())
	}
	began := time.Now()
	if err := p.signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	<-p.done
	took = time.Since(began)
	l.waiting.Wait()
	ended := len(failed) // each waiter was answered, or lost its connection
	if ended != b.waiters {
		return took, fmt.Errorf("%d waiters ended with the program, of %d", ended, b.waiters)
	}
	return took, p.stop()
}
