package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/internal/tested"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var must = tested.Must

// pipe makes a pipe that nobody writes to, where the system has such files.
func pipe(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := mkfifo(path); err != nil {
		t.Logf("no pipe: %v", err)
		return os.DevNull
	}
	return path
}

// TestWhatIsRead: a regular file, no more of it than it said when it was opened, and none that is larger. A pipe
// without a writer holds up nobody, nor does a file that becomes one after it was looked at. A pseudo-file of the
// kernel has nothing, whatever a read of it would give or wait for: a kernel log, which calls itself regular, has no end.
func TestWhatIsRead(t *testing.T) {
	const most = 4096
	sized := func(size int64) string {
		path := filepath.Join(t.TempDir(), "sized")
		must(t, os.WriteFile(path, nil, 0o600))
		if err := os.Truncate(path, size); err != nil {
			t.Logf("this file system has no files of %d bytes: %v", size, err)
			return filepath.Join(path, "none")
		}
		return path
	}
	for _, r := range []struct {
		path string
		open opener
		size int
		says string // of the error
	}{
		{sized(0), open, 0, ""},
		{sized(1), open, 1, ""},
		{sized(most), open, most, ""},
		{sized(most + 1), open, 0, "it is larger than 4096 bytes"},
		{sized(1 << 40), open, 0, "it is larger than 4096 bytes"},
		{pipe(t), open, 0, "it is no regular file: "},
		{pipe(t), read, 0, "it is no regular file: "},
		{t.TempDir(), open, 0, "it is no regular file: d"},
		{filepath.Join(t.TempDir(), "none"), open, 0, "no such file"},
		{"/proc/kmsg", open, 0, ""},                   // a read waits, and takes lines from other readers
		{"/proc/sys/kernel/ngroups_max", open, 0, ""}, // a read gives a whole number
		{"/dev/kmsg", open, 0, "it is no regular file: "},
		{"/dev/zero", open, 0, "it is no regular file: "},
	} {
		if _, err := os.Stat(r.path); err != nil && r.says != "no such file" {
			t.Logf("not on this machine: %v", err)
			continue
		}
		text, _, err := readBy(t.Context(), r.path, most, r.open)
		switch {
		case len(text) != r.size || (err == nil) != (r.says == ""):
			t.Errorf("%s: %d bytes and %v, want %d and %q", r.path, len(text), err, r.size, r.says)
		case err != nil && (!strings.HasPrefix(err.Error(), r.path+": ") || !strings.Contains(err.Error(), r.says) ||
			strings.Count(err.Error(), r.path) != 1 || errors.Is(err, fs.ErrNotExist) != (r.says == "no such file")):
			t.Errorf("%s: %v, want %q", r.path, err, r.says)
		}
	}
}

// TestAFileThatDoesNotAnswer costs one goroutine, however often it is asked for, and each time two seconds or until the
// context ends. When it answers, or another takes its place, that one is read. Other files are read meanwhile, up to
// many of them that do not answer.
func TestAFileThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		hanging := func(string, int) ([]byte, fs.FileInfo, error) { <-answer; return []byte("late"), nil, nil }
		well := func(string, int) ([]byte, fs.FileInfo, error) { return []byte("well"), nil, nil }
		must := func(path string, ctx context.Context, open opener, after time.Duration, text string, want error) {
			t.Helper()
			start := time.Now()
			got, _, err := readBy(ctx, path, 1, open)
			if string(got) != text || !errors.Is(err, want) || time.Since(start) != after {
				t.Errorf("%s: %q, %v after %v; want %q, %v after %v", path, got, err, time.Since(start), text, want, after)
			}
			if err != nil && !strings.HasPrefix(err.Error(), path+": ") {
				t.Errorf("%v does not begin with %s", err, path)
			}
		}
		before := runtime.NumGoroutine()
		for range 10 {
			must("hanging", t.Context(), hanging, patience, "", errSlow)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		must("hanging", soon, hanging, time.Second, "", context.DeadlineExceeded)
		must("hanging", soon, hanging, 0, "", context.DeadlineExceeded)
		if n := runtime.NumGoroutine() - before; n != 1 {
			t.Errorf("%d goroutines read", n)
		}
		must("another", t.Context(), well, 0, "well", nil)
		for i := range mostReads - 1 {
			path := fmt.Sprint("hanging", i)
			must(path, t.Context(), hanging, patience, "", errSlow)
		}
		must("another", t.Context(), well, 0, "", errMany)
		go func() { time.Sleep(time.Second); close(answer) }()
		must("hanging", t.Context(), well, time.Second, "well", nil)
		synctest.Wait()
		must("another", t.Context(), well, 0, "well", nil)
	})
}

// TestReplace: the file has the new text or, on an error, the old one, and nothing else is left.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	for _, text := range []string{"one, which is longer", "two", ""} {
		must(t, os.WriteFile(path+".new", []byte("what a crash has left"), 0o600))
		must(t, Replace(path, []byte(text)))
		now, info, err := Read(t.Context(), path, 100)
		must(t, err)
		tested.Want(t, "the text", string(now), text)
		tested.Want(t, "the mode", info.Mode(), 0o600)
	}
	must(t, Replace(path, []byte("old")))
	must(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	must(t, os.Mkdir(path+".new", 0o700))
	for _, to := range []string{path, filepath.Join(dir, "folder"), filepath.Join(dir, "none", "a")} {
		if err := Replace(to, []byte("new")); err == nil {
			t.Errorf("%s was replaced", to)
		}
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	tested.Want(t, "what is left", fmt.Sprint(names), fmt.Sprint([]string{path, path + ".new", filepath.Join(dir, "folder")}))
	now, err := os.ReadFile(path)
	must(t, err)
	tested.Want(t, "the text after an error", string(now), "old")
}

// TestLock: one at a time has it, and the next one when it is given back.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	for range 2 {
		f, err := Lock(path)
		must(t, err)
		if _, err := Lock(path); err == nil || !strings.Contains(err.Error(), path+".lock is locked") {
			t.Errorf("a second lock: %v", err)
		}
		must(t, f.Close())
	}
	if _, err := Lock(filepath.Join(path, "none", "a")); err == nil {
		t.Error("there is a lock in a folder that is not there")
	}
}
