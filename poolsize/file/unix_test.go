//go:build unix

package file

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"go.uber.org/goleak"
)

// patience bounds what waits for the real file system.
const patience = 20 * time.Second

// A pipe without a writer holds up no reader.
func TestPipeIsRefused(t *testing.T) {
	path := fresh(t)
	must(t, syscall.Mkfifo(path, 0o600))
	isNoPool(t, path, "no regular file")
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

// A pseudo-file of the kernel is no pool, whatever a read of it would give or wait for: a kernel log, which
// calls itself a regular file, has no end. The context's end ends Watch at once, and nothing is left behind.
func TestPseudoFiles(t *testing.T) {
	for _, r := range []struct{ path, says string }{
		{"/proc/kmsg", "it is empty"},                   // a read waits, and takes lines from other readers
		{"/proc/sys/kernel/ngroups_max", "it is empty"}, // a read gives a whole number
		{"/dev/kmsg", "no regular file"},
		{"/dev/zero", "no regular file"},
		{"/dev", "no regular file"},
	} {
		t.Run(r.path, func(t *testing.T) {
			if _, err := os.Stat(r.path); err != nil {
				t.Skipf("not on this machine: %v", err)
			}
			isNoPool(t, r.path, r.says)
		})
	}
}

// isNoPool watches a path for three reports.
func isNoPool(t *testing.T, path, says string) {
	before := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(t.Context())
	failed, ended := make(chan error), make(chan error, 1)
	s := Source{Path: path, Every: leastEvery}
	go func() {
		ended <- s.Watch(ctx, func(p quotient.Pool, err error) {
			if err == nil {
				t.Errorf("reported %+v", p)
			}
			select {
			case failed <- err:
			case <-ctx.Done():
			}
		})
	}()
	for range 3 {
		err := within(t, failed)
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), path) {
			t.Errorf("reported %v, want an error that says %q", err, says)
		}
	}
	cancel()
	if err := within(t, ended); err != context.Canceled {
		t.Errorf("Watch returned %v", err)
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

// No more is read than a file said when it was opened, so that a read never waits for what is yet to come:
// larger files not at all.
func TestReadIsBounded(t *testing.T) {
	path := fresh(t)
	for _, size := range []int64{0, 1, maxSize, maxSize + 1, 1 << 40} {
		write(t, path, "")
		if err := os.Truncate(path, size); err != nil {
			t.Skipf("this file system has no files of %d bytes: %v", size, err)
		}
		s, err := read(path)
		switch {
		case size <= maxSize && (err != nil || int64(len(s.content)) != size):
			t.Errorf("%d bytes: read %d, %v", size, len(s.content), err)
		case size > maxSize && (err == nil || !strings.Contains(err.Error(), "larger than 4096 bytes")):
			t.Errorf("%d bytes: read %d, %v", size, len(s.content), err)
		}
	}
}
