//go:build unix

package file

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
)

// patience bounds what waits for the real file system.
const patience = 20 * time.Second

// A pipe without a writer holds up no reader.
func TestPipeIsRefused(t *testing.T) {
	path := fresh(t)
	must(t, syscall.Mkfifo(path, 0o600))
	ctx, cancel := context.WithCancel(context.Background())
	failed, ended := make(chan error, 100), make(chan error, 1)
	s := Source{Path: path, Every: leastEvery}
	go func() {
		ended <- s.Watch(ctx, func(p quotient.Pool, err error) {
			select {
			case failed <- err:
			case <-ctx.Done():
			}
		})
	}()
	for range 3 {
		if err := within(t, failed); err == nil {
			t.Error("a pipe is a pool")
		}
	}
	cancel()
	if err := within(t, ended); err != context.Canceled {
		t.Errorf("Watch returned %v", err)
	}
}

// A file that becomes a pipe after it was looked at is opened without waiting, and refused.
func TestPipeIsOpenedWithoutWaiting(t *testing.T) {
	path := fresh(t)
	must(t, syscall.Mkfifo(path, 0o600))
	refused := make(chan error, 1)
	go func() {
		_, err := open(path)
		refused <- err
	}()
	select {
	case err := <-refused:
		if err == nil {
			t.Error("a pipe was read")
		}
	case <-time.After(patience):
		f, err := os.OpenFile(path, os.O_WRONLY, 0) // lets the reader go
		must(t, err)
		f.Close()
		t.Errorf("not refused within %v", patience)
	}
}

func within(t *testing.T, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(patience):
		t.Fatalf("nothing within %v", patience)
		return nil
	}
}
