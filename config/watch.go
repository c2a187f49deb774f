package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/quotient-go/quotient/internal/rest"
)

const (
	lookEvery = 10 * time.Second
	// settling is how long a file must be as it is to count: what is half-written changes within it.
	settling = 50 * time.Millisecond
	// looks is how many times settling a file may be absent, or keep changing, before that is an error.
	looks = 20
)

// Watch follows the file and the source of the pool's size until the context ends, and then returns nil. It applies a
// changed file as a whole. If the file is refused, Watch logs and counts that, and the old file stays in force.
//
// A change counts once the file has stayed the same for 50 ms. A program that writes more slowly should write another
// file and rename it. Watch follows the symbolic links that Kubernetes swaps. It also reads the file every 10 s,
// since some systems send no events, such as network file systems. A second Watch at the same time is an error.
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
	w := &watcher{fs: &fsnotify.Watcher{}}
	if fs, err := c.notify(); err != nil {
		c.log.Warn("the system sends no file events: the file is read at intervals", "every", c.every, "error", err)
	} else {
		defer fs.Close()
		w.fs, w.dirs = fs, make(map[string]bool)
	}
	for ctx.Err() == nil {
		w.follow(c.path)
		c.look(ctx, w)
		select {
		case <-ctx.Done():
		case <-w.fs.Events:
			rest.For(ctx, c.settle) // what follows belongs to it
		case <-w.fs.Errors: // such as events that were lost
		case <-time.After(c.every):
		}
	}
}

type watcher struct {
	fs   *fsnotify.Watcher // the zero value, without events, where the system has none left
	dirs map[string]bool   // that fs watches; nil where there are no events
	said string            // the last error that was counted
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
	for i, links := 1, 0; i <= len(path) && links < maxLinks; i++ {
		if i < len(path) && !os.IsPathSeparator(path[i]) {
			continue
		}
		to, err := os.Readlink(path[:i])
		if err != nil {
			continue
		}
		dir := filepath.Dir(path[:i])
		dirs[dir] = true
		if !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		path, i, links = filepath.Join(to, path[i:]), 0, links+1
	}
	dirs[filepath.Dir(path)] = true
	return dirs
}

// look reads the file when it does not change any more, and puts it in force if it is another.
func (c *Config) look(ctx context.Context, w *watcher) {
	text, err := settled(ctx, c.path, c.settle)
	if ctx.Err() != nil {
		return
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	switch {
	case c.absent && errors.Is(err, fs.ErrNotExist): // as it was at the start
	case err == nil && (sha256.Sum256(text) != c.tried || w.said != "" || c.absent):
		w.said = ""
		c.take(text) //nolint:errcheck // it is logged and counted
	case err != nil && err.Error() != w.said:
		w.said = err.Error()
		c.refuse(err) //nolint:errcheck // it is logged and counted
	}
}

// settled reads a file until it has been the same for so long. One that is absent may be about to be replaced.
func settled(ctx context.Context, path string, settle time.Duration) ([]byte, error) {
	var before string
	seen := false
	for end := time.Now().Add(looks * settle); ; {
		text, err := readWhole(ctx, path)
		switch absent := errors.Is(err, fs.ErrNotExist); {
		case seen && err == nil && string(text) == before:
			return text, nil
		case err != nil && (!absent || time.Now().After(end)):
			return nil, err
		case time.Now().After(end):
			return nil, fmt.Errorf("config: the file keeps changing: %s", path)
		}
		if before, seen = string(text), err == nil; !rest.For(ctx, settle) {
			return nil, ctx.Err()
		}
	}
}
