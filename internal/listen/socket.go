package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"
)

// socket is a listener at a Unix socket.
type socket struct {
	net.Listener
	close func() error
}

// Close ends the listening, and removes the socket and its lock.
func (s *socket) Close() error { return s.close() }

// Unix listens at a socket while it holds the lock of its path: a file beside it, whose name has ".lock" more. To look
// who listens, to remove a dead socket and to make one are three steps, and another process may take them at the same
// time. With private only the owner may connect, else who the umask lets. Close removes both, the socket only if it is
// still that of the listener.
func Unix(ctx context.Context, path string, private bool) (net.Listener, error) {
	if path == "" || path[0] == '@' {
		return nil, fmt.Errorf("address: %q is not the path of a Unix socket", path)
	}
	unlock, err := lockPath(ctx, path)
	if err != nil {
		return nil, err
	}
	l, own, err := listenLocked(ctx, path, private)
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	end := func() error { return errors.Join(removeOwn(path, own), l.Close(), unlock()) }
	return &socket{l, sync.OnceValue(end)}, nil
}

// listenLocked listens at a path that is locked. It also returns what the socket is, to know it by.
func listenLocked(ctx context.Context, path string, private bool) (net.Listener, fs.FileInfo, error) {
	if err := removeDead(ctx, path); err != nil {
		return nil, nil, err
	}
	var config net.ListenConfig
	if private {
		config.Control = ownerOnly
	}
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, nil, err
	}
	if private {
		err = os.Chmod(path, 0o600) // where ownerOnly could not
	}
	own, lost := os.Lstat(path)
	if err := errors.Join(err, lost); err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // it would remove whatever is there then
	}
	return l, own, nil
}

// removeOwn removes a socket, unless another one has taken its place.
func removeOwn(path string, own fs.FileInfo) error {
	if now, err := os.Lstat(path); err != nil || !os.SameFile(now, own) {
		return nil
	}
	return os.Remove(path)
}

// removeDead removes a socket without a listener. Anything else stays, and then listening fails.
func removeDead(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket", path)
	}
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("another process listens at %s", path), conn.Close())
	}
	if !refusedConnection(err) {
		return err
	}
	return os.Remove(path)
}
