// Package file reads the number of replicas from a file. It is for fleets whose size somebody else knows: an operator
// who writes a ConfigMap, a script of an autoscaler, or an agent on the machine such as Nomad's template.
//
//	source := &file.Source{Path: "/etc/quotient/pool"}
//	if err := source.Validate(); err != nil {
//		return err
//	}
//	return limiter.Follow(ctx, source)
//
// A change counts after Source.Every, a second. A kubelet needs one to two minutes to bring that of a ConfigMap, and
// never brings it to a file that is mounted with subPath. So raise the number before you scale up, and lower it after
// you have scaled down.
package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/files"
	"github.com/quotient-go/quotient/internal/rest"
	"github.com/quotient-go/quotient/poolsize/internal/setting"
)

// Source is a quotient.Source that reads a file again and again. Set its fields before the first Watch, and
// do not change them afterwards. Then any number of Watches may run at once.
//
// The file holds a whole number, or JSON:
//
//	{"replicas": 5, "weight": 2, "ordinal": 2, "fixed": true}
//
// The fields are those of quotient.Pool. Only replicas is required. The others are for a file that each
// replica has for itself: a file that all share, such as a ConfigMap, would give all of them one ordinal.
// White space around the number or the object is ignored.
//
// Anything else is an error, and nothing of the file counts: more than 4 KiB, a sign, a leading zero, an
// unknown or repeated field, or text after the end.
//
// A content counts once two reads in a row have found it in the same file. The reads are at least 50 ms apart, or
// half of Every if that is less. So a file that is half-written for no longer than that does not count. A program
// that writes more slowly should write JSON, which is an error until it is complete, or write another file and rename
// it. Renaming is always safe, and so are the symbolic links that Kubernetes swaps.
type Source struct {
	// Path names a regular file, or a symbolic link to one. Anything else is an error. Watch does not read
	// beyond the size that the file system reports. So pseudo-files of the kernel, such as those in /proc,
	// have size 0 and count as empty. A file system that does not answer for two seconds, such as one of a
	// dead server, is an error like any other.
	Path string
	// Every is the time between reads: 10 ms to 24 h; 0 means 1 s.
	Every time.Duration
}

// Defaults and bounds.
const (
	defaultEvery = time.Second
	leastEvery   = 10 * time.Millisecond
	mostEvery    = 24 * time.Hour
	settling     = 50 * time.Millisecond
)

// Watch reads the file at once and then at each Every, and reports the pool that it holds at each read. A file that
// is absent, unreadable, incomplete or out of range, or that keeps changing for as long as Every, is never a pool.
// Watch reports an error that names the file, once each Every. It returns the context's error when the context ends.
// If a field is out of range, Watch reports nothing and returns an error that names the field.
func (s *Source) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	if err := s.Validate(); err != nil {
		return err
	}
	w := &watcher{path: s.Path, every: cmp.Or(s.Every, defaultEvery)}
	w.settle = min(settling, w.every/2)
	for rest.For(ctx, w.poll(ctx, report)) {
	}
	return ctx.Err()
}

// Validate reports the first field that is wrong, as Watch does. It does not look at the file.
func (s *Source) Validate() error {
	if s.Path == "" {
		return errors.New(`file: Source.Path: "" names no file`)
	}
	return setting.Default("file: Source.Every", s.Every, leastEvery, mostEvery)
}

// watcher is one Watch.
type watcher struct {
	path          string
	every, settle time.Duration
	seen          snapshot      // what was read last; the zero value when nothing was
	changing      time.Duration // how long it has been changing
}

// poll reads the file once, reports if there is something to report, and returns when to read it again.
func (w *watcher) poll(ctx context.Context, report func(quotient.Pool, error)) time.Duration {
	now, err := read(ctx, w.path)
	if ctx.Err() != nil {
		return w.every
	}
	if err == nil && !now.same(w.seen) {
		w.seen = now
		if w.changing += w.settle; w.changing <= w.every {
			return w.settle
		}
		err = fmt.Errorf("%s: it has been changing for %v", w.path, w.every)
	}
	var p quotient.Pool
	if err != nil {
		w.seen = snapshot{}
	} else if p, err = parse(now.content); err != nil {
		err = fmt.Errorf("%s: %w", w.path, err)
	}
	if w.changing = 0; err != nil {
		p, err = quotient.Pool{}, fmt.Errorf("file: %w", err)
	}
	report(p, err)
	return w.every
}

// maxSize is the largest file that is read, in bytes. A pool needs about forty.
const maxSize = 4 << 10

// snapshot is a file as it was read.
type snapshot struct {
	info    fs.FileInfo
	content string
}

// same reports whether two reads have seen one file, without a write in between.
func (s snapshot) same(o snapshot) bool {
	return s.info != nil && o.info != nil && os.SameFile(s.info, o.info) &&
		s.info.ModTime().Equal(o.info.ModTime()) && s.content == o.content
}

func read(ctx context.Context, path string) (snapshot, error) {
	text, info, err := files.Read(ctx, path, maxSize)
	return snapshot{info, string(text)}, err
}
