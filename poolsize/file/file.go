// Package file reads the size of the pool from a file, such as one that a ConfigMap or an agent on
// the machine keeps.
package file

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quotient-go/quotient"
)

// Source is a quotient.Source that reads a file again and again. Set its fields before the first
// Watch and leave them be; then any number of Watches may run at once.
//
// The file holds a whole number, or JSON:
//
//	{"replicas": 5, "weight": 2, "ordinal": 2, "fixed": true}
//
// weight and ordinal, from 1, and fixed, as in quotient.Pool, may be left out. They are for a file that each replica has for itself:
// in one that all share, such as a ConfigMap, all would hold the same ordinal. White space around either form
// does not count. All else is refused whole: more than 4 KiB, a sign or a leading zero, an unknown
// name, a name twice, something after the end.
//
// A content counts when two reads in a row have seen the same file with it, at least 50 ms apart, or half of
// Every if that is less. So a file that is half-written, for no longer than that, is not believed. A program
// that writes more slowly writes JSON, which is refused until it is whole, or another file that is then
// renamed. Renaming is always safe, and the symbolic links that Kubernetes swaps are.
type Source struct {
	// Path names the file, or a symbolic link to it. It must be a regular file: anything else is an error,
	// and nothing is waited for. No more is read than the size that the file says it has. So the kernel's
	// pseudo-files (below /proc, a kernel log), which say 0, are empty, whatever a read would give. A file
	// system that does not answer (a network's, whose server is gone) holds Watch up until it does.
	Path string
	// Every is the time between reads: 10 ms to 24 h; 0 is 1 s.
	Every time.Duration
}

// Defaults and bounds.
const (
	defaultEvery = time.Second
	leastEvery   = 10 * time.Millisecond
	mostEvery    = 24 * time.Hour
	settling     = 50 * time.Millisecond
)

// Watch reads the file at once and then at each Every, and reports the pool that it holds at each read. A
// file that is absent, unreadable, not whole or out of range, or that keeps changing for as long as Every, is
// never a pool. It is reported as an error that names it, once each Every. Watch returns the context's error
// when the context ends. If a field is out of range it returns an error that says so, and reports nothing.
func (s *Source) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	if err := s.validate(); err != nil {
		return err
	}
	w := newWatcher(s)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		timer.Reset(w.poll(report))
	}
}

// validate reports the first field that is out of range.
func (s *Source) validate() error {
	if s.Path == "" {
		return errors.New(`file: Source.Path: ""`)
	}
	if s.Every != 0 && (s.Every < leastEvery || s.Every > mostEvery) {
		return fmt.Errorf("file: Source.Every: %v is not between %v and %v", s.Every, leastEvery, mostEvery)
	}
	return nil
}

// watcher is one Watch.
type watcher struct {
	path          string
	every, settle time.Duration
	seen          snapshot      // what was read last; the zero value when nothing was
	changing      time.Duration // how long it has been changing
}

func newWatcher(s *Source) *watcher {
	w := &watcher{path: s.Path, every: s.Every}
	if w.every == 0 {
		w.every = defaultEvery
	}
	w.settle = min(settling, w.every/2)
	return w
}

// poll reads the file once, reports if there is something to report, and returns when to read it again.
func (w *watcher) poll(report func(quotient.Pool, error)) time.Duration {
	now, err := read(w.path)
	if err == nil && !now.same(w.seen) {
		w.seen = now
		if w.changing += w.settle; w.changing <= w.every {
			return w.settle
		}
		err = fmt.Errorf("it has been changing for %v", w.every)
	}
	var p quotient.Pool
	if err != nil {
		w.seen = snapshot{}
	} else {
		p, err = parse(now.content)
	}
	if w.changing = 0; err != nil {
		p, err = quotient.Pool{}, fmt.Errorf("file: %s: %w", w.path, err)
	}
	report(p, err)
	return w.every
}
