package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	lookEvery = 10 * time.Second
	// settling is how long a file must be as it is to count: what is half-written changes within it.
	settling = 50 * time.Millisecond
	// looks is how many times settling a file may be absent, or keep changing, before that is an error.
	looks = 20
)

// errChanging is what is wrong with a file that is never twice the same.
var errChanging = errors.New("config: the file keeps changing")

// Watch follows the file and the source of the pool's size until the context ends, and then returns nil. It
// applies a changed file as a whole. If the file is refused, Watch logs and counts that, and the old file stays
// in force.
//
// A change counts once the file has stayed the same for 50 ms. A program that writes more slowly should write
// another file and rename it. Watch follows the symbolic links that Kubernetes swaps. It also reads the file
// every 10 s, since some systems send no events, such as network file systems. A second Watch at the same time
// is an error.
func (c *Config) Watch(ctx context.Context) error {
	c.mu.Lock()
	if c.watching {
		c.mu.Unlock()
		return errors.New("config: Watch: another Watch is running")
	}
	c.watching = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.watching = false
		c.mu.Unlock()
	}()
	var sources sync.WaitGroup
	defer sources.Wait()
	sources.Go(func() { c.followSource(ctx) })
	if c.path == "" {
		<-ctx.Done()
		return nil
	}
	c.watchFile(ctx)
	return nil
}

func (c *Config) watchFile(ctx context.Context) {
	w := c.newWatcher()
	if w.dirs != nil {
		defer w.fs.Close()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	soon := true // the timer is set for at most settling
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.fs.Events:
			if soon {
				continue
			}
			timer.Reset(c.settle)
			soon = true
			continue
		case <-w.fs.Errors: // such as events that were lost
		case <-timer.C:
		}
		w.follow(c.path)
		next := c.look(ctx, w)
		timer.Reset(next)
		soon = next <= c.settle
	}
}

type watcher struct {
	fs    *fsnotify.Watcher // the zero value, without events, where the system has none left
	dirs  map[string]bool   // that fs watches; nil where there are no events
	seen  [sha256.Size]byte // of the text that was read last
	since time.Time         // when the file was last as it is in force, or refused; zero while it is
	said  string            // the last error that was counted
}

// newWatcher returns a watcher that makes do without events if need be.
func (c *Config) newWatcher() *watcher {
	fs, err := c.notify()
	if err != nil {
		c.log.Warn("the system sends no file events: the file is read at intervals", "every", c.every, "error", err)
		return &watcher{fs: &fsnotify.Watcher{}}
	}
	return &watcher{fs: fs, dirs: make(map[string]bool)}
}

// follow watches the folders that the path leads through, and no other. A folder is watched and not the file:
// what is renamed to its name is another file.
func (w *watcher) follow(path string) {
	if w.dirs == nil {
		return
	}
	now := folders(path)
	for dir := range w.dirs {
		if !now[dir] {
			w.fs.Remove(dir) //nolint:errcheck // it may be gone
			delete(w.dirs, dir)
		}
	}
	for dir := range now {
		if w.fs.Add(dir) == nil { // again, should the folder be another of that name
			w.dirs[dir] = true
		}
	}
}

// folders are those in which the file and all symbolic links to it stand.
func folders(path string) map[string]bool {
	const maxLinks = 40
	dirs := make(map[string]bool)
	path, err := filepath.Abs(path)
	if err != nil {
		return dirs
	}
	dirs[filepath.Dir(path)] = true
	for range maxLinks {
		link, to := firstLink(path)
		if link == "" {
			dirs[filepath.Dir(path)] = true
			break
		}
		dirs[filepath.Dir(link)] = true
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(link), to)
		}
		path = filepath.Join(to, path[len(link):])
	}
	return dirs
}

// firstLink is the first part of a path that is a symbolic link, and where that leads; "" for none.
func firstLink(path string) (link, to string) {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && !os.IsPathSeparator(path[i]) {
			continue
		}
		if to, err := os.Readlink(path[:i]); err == nil {
			return path[:i], to
		}
	}
	return "", ""
}

// look reads the file, puts it in force if it is another and does not change any more, and returns when to
// look again.
func (c *Config) look(ctx context.Context, w *watcher) time.Duration {
	text, err := readWhole(ctx, c.path)
	if ctx.Err() != nil {
		return c.every
	}
	sum := sha256.Sum256(text)
	c.turn.Lock()
	defer c.turn.Unlock()
	now := time.Now()
	switch {
	case c.absent && errors.Is(err, fs.ErrNotExist): // as it was at the start
		return c.every
	case err == nil && sum == c.tried && w.said == "" && !c.absent:
		w.since = time.Time{}
		return c.every
	case w.since.IsZero():
		w.since = now
	case err == nil && sum == w.seen:
		w.since, w.said = time.Time{}, ""
		c.take(text) //nolint:errcheck // it is logged and counted
		return c.every
	}
	if w.seen = sum; err != nil {
		w.seen = [sha256.Size]byte{}
	}
	if now.Sub(w.since) < looks*c.settle {
		return c.settle
	}
	next := c.every
	if w.since = (time.Time{}); err == nil {
		err, next = errChanging, c.settle
	}
	if err.Error() != w.said {
		w.said = err.Error()
		c.refuse(err) //nolint:errcheck // it is logged and counted
	}
	return next
}

// settled reads a file until it has been the same for so long.
func settled(path string, settle time.Duration) ([]byte, error) {
	var before string
	for i := range looks + 1 {
		text, err := readWhole(context.Background(), path)
		if err != nil {
			return nil, err
		}
		if i > 0 && string(text) == before {
			return text, nil
		}
		before = string(text)
		time.Sleep(settle)
	}
	return nil, fmt.Errorf("%w: %s", errChanging, strings.TrimSpace(path))
}
