//go:build unix

package file

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-go/quotient/poolsize/internal/watched"
)

// refused fails unless a file is refused with these words, without waiting for what it may bring.
func refused(t *testing.T, read func() error, says string) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- read() }()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error that says %q", err, says)
		}
	case <-time.After(watched.Patience):
		t.Fatalf("not refused within %v", watched.Patience)
	}
}

// A pipe without a writer holds up no reader, nor does a file that becomes one after it was looked at. A
// pseudo-file of the kernel is no pool, whatever a read of it would give or wait for: a kernel log, which
// calls itself a regular file, has no end.
func TestPipesAndPseudoFiles(t *testing.T) {
	path := fresh(t)
	must(t, syscall.Mkfifo(path, 0o600))
	refused(t, func() error { _, err := open(path); return err }, "no regular file")
	for _, r := range []struct{ path, says string }{
		{path, "no regular file"},
		{"/proc/kmsg", "it is empty"},                   // a read waits, and takes lines from other readers
		{"/proc/sys/kernel/ngroups_max", "it is empty"}, // a read gives a whole number
		{"/dev/kmsg", "no regular file"},
		{"/dev/zero", "no regular file"},
		{"/dev", "no regular file"},
	} {
		if _, err := os.Stat(r.path); err != nil {
			t.Logf("not on this machine: %v", err)
			continue
		}
		refused(t, func() error {
			s, err := read(r.path)
			if err == nil {
				_, err = parse(s.content)
			}
			return err
		}, r.says)
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
