//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package listen

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ownerOnly sets a socket's mode before it has a name. Linux then gives the file that mode, so there is no
// instant at which others could connect; elsewhere the mode is set when the file is there.
func ownerOnly(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0o600) })
}

// refusedConnection reports whether an error of a dial means that no process listens.
func refusedConnection(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// lockPath takes the lock of a socket's path. The kernel gives it back when the process ends without unlock.
func lockPath(ctx context.Context, path string) (unlock func() error, err error) {
	name := path + ".lock"
	for ctx.Err() == nil {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		held, err := lockFile(f, path)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if held {
			return func() error { return errors.Join(os.Remove(name), f.Close()) }, nil
		}
		_ = f.Close() // nothing was written
	}
	return nil, ctx.Err()
}

// lockFile locks the lock file of a path. It reports false if the process that had the lock has removed the
// file in the meantime.
func lockFile(f *os.File, path string) (bool, error) {
	own, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !own.Mode().IsRegular() || own.Size() > 0 {
		return false, fmt.Errorf("%s exists and is not the lock of a socket", f.Name())
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, fmt.Errorf("another process listens at %s, or is about to: %s is locked", path, f.Name())
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", f.Name(), err)
	}
	now, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(now, own), nil
}
