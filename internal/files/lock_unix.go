//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package files

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Lock takes the lock of a path, which is the file path.lock; it stays. To close what it returns gives the lock back,
// and so does the end of the process. While another one has it, that is an error.
func Lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("another process has it: %s is locked", f.Name())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// syncFolder brings the names of a folder to the disk.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
