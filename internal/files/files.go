// Package files reads what a program reads again and again while it runs: settings, certificates, keys, tokens. In the
// place of such a file there may be a pipe one day, or a server that answers no more, and neither may hold up the
// program, its other files or its end.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// patience is how long a file may take.
	patience = 2 * time.Second
	// mostReads bounds the files that are being read: one whose server does not answer holds a thread of the system.
	mostReads = 64
)

var (
	errSlow = fmt.Errorf("the file system has not answered for %v", patience)
	errMany = fmt.Errorf("%d other files are being read and do not answer", mostReads)
)

var (
	mu   sync.Mutex
	busy = make(map[string]chan struct{}) // what is being read, by path; closed and removed at the end
)

// Read returns what a regular file of at most most bytes holds, and what the file system said of it when it was opened.
// Anything but a regular file is refused unread. Errors begin with the path.
//
// Read returns when ctx ends, and after two seconds at the latest. The read itself may go on, in a goroutine of its
// own, and nobody else reads that path meanwhile: so each path costs one goroutine at most. 64 paths are read at once.
func Read(ctx context.Context, path string, most int) ([]byte, fs.FileInfo, error) {
	return readBy(ctx, path, most, open)
}

type opener = func(path string, most int) ([]byte, fs.FileInfo, error)

func readBy(ctx context.Context, path string, most int, open opener) ([]byte, fs.FileInfo, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errSlow)
	defer cancel()
	ended, err := begin(ctx, path)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	var text []byte
	var info fs.FileInfo
	go func() {
		text, info, err = open(path, most)
		mu.Lock()
		delete(busy, path)
		mu.Unlock()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("%s: %w", path, context.Cause(ctx))
	}
	if p := (*fs.PathError)(nil); errors.As(err, &p) { // which names the path too
		err = p.Err
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, info, nil
}

// begin notes that a path is being read, as soon as nobody else reads it. The reader closes ended.
func begin(ctx context.Context, path string) (ended chan struct{}, err error) {
	for ctx.Err() == nil {
		mu.Lock()
		other := busy[path]
		if other == nil && len(busy) < mostReads {
			ended = make(chan struct{})
			busy[path] = ended
		}
		mu.Unlock()
		switch {
		case ended != nil:
			return ended, nil
		case other == nil:
			return nil, errMany
		}
		select {
		case <-other:
		case <-ctx.Done():
		}
	}
	return nil, context.Cause(ctx)
}

// open looks before it opens, since to open a pipe or a device does something to it. It opens without waiting, in case
// the file has become a pipe since, and looks again.
func open(path string, most int) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if err := usable(info, most); err != nil {
		return nil, nil, err
	}
	return read(path, most)
}

func read(path string, most int) ([]byte, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if err := usable(info, most); err != nil {
		return nil, nil, err
	}
	// Not a byte more than the file says it has: a read of what is yet to come may wait for ever.
	// Pseudo-files of the kernel, some of which call themselves regular, say 0, and are not read at all.
	text := make([]byte, info.Size())
	n, err := io.ReadFull(f, text)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // it has become shorter
		err = nil
	}
	return text[:n], info, err
}

// usable refuses what is not a regular file of a size that is read.
func usable(info fs.FileInfo, most int) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("it is no regular file: %v", info.Mode())
	}
	if info.Size() > int64(most) {
		return fmt.Errorf("it is larger than %d bytes", most)
	}
	return nil
}
