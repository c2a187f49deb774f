package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

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

// read reads a regular file. It looks before it opens, since to open a pipe or a device does something to it.
// It opens without waiting, in case the file has become a pipe since, and looks again.
func read(path string) (snapshot, error) {
	if info, err := os.Stat(path); err != nil {
		return snapshot{}, bare(err)
	} else if err := usable(info); err != nil {
		return snapshot{}, err
	}
	return open(path)
}

func open(path string) (snapshot, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return snapshot{}, bare(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return snapshot{}, bare(err)
	}
	if err := usable(info); err != nil {
		return snapshot{}, err
	}
	// Not a byte more than the file says it has: a read of what is yet to come may wait for ever.
	// Pseudo-files of the kernel, some of which call themselves regular, say 0, and are not read at all.
	content, err := io.ReadAll(io.LimitReader(f, info.Size()))
	if err != nil {
		return snapshot{}, bare(err)
	}
	return snapshot{info, string(content)}, nil
}

// usable refuses what is not a regular file of a size that is read.
func usable(info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("it is no regular file: %v", info.Mode())
	}
	if info.Size() > maxSize {
		return fmt.Errorf("it is larger than %d bytes", maxSize)
	}
	return nil
}

// bare is an error without the path, which is named once by the caller.
func bare(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return fmt.Errorf("%s: %w", p.Op, p.Err)
	}
	return err
}
