package config_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
)

const patience = 20 * time.Second

// text is a file whose number of slots tells it from others.
func text(slots int) string { return fmt.Sprintf("[limiters.api]\nin-flight = %d\n", slots) }

// followed is a file that is watched, and what is put in force.
type followed struct {
	*config.Config
	t    *testing.T
	reg  *quotient.Registry
	puts chan int // the slots of each file that is put in force
	log  *logged
	stop context.CancelFunc
	done chan error
}

// followFile watches a file until the test ends; set changes the Config before.
func followFile(t *testing.T, path string, set func(*config.Config)) *followed {
	t.Helper()
	f, err := config.Read(path)
	must(t, err)
	w := &followed{t: t, reg: &quotient.Registry{}, puts: make(chan int, 10_000), log: &logged{},
		done: make(chan error, 1)}
	w.Config, err = config.New(f, w.reg, config.Logger(w.log.logger()), config.With(part{
		commit: func(f *config.File) { w.puts <- f.Limiters["api"].Limit.InFlight },
	}))
	must(t, err)
	w.want(f.Limiters["api"].Limit.InFlight)
	w.Every(time.Hour) // events alone must do
	if set != nil {
		set(w.Config)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = cancel
	go func() { w.done <- w.Watch(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-w.done; err != nil {
			t.Errorf("Watch: %v", err)
		}
	})
	return w
}

// want waits for the next file that is put in force, which must have so many slots.
func (w *followed) want(slots int) {
	w.t.Helper()
	select {
	case got := <-w.puts:
		if got != slots {
			w.t.Fatalf("a file of %d slots is in force, want %d", got, slots)
		}
	case <-time.After(patience):
		w.t.Fatalf("no file of %d slots; %+v\n%s", slots, w.State(), w.log.take())
	}
}

// failures waits until so many files were refused.
func (w *followed) failures(n uint64) config.State {
	w.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if st := w.State(); st.Failures >= n {
			return st
		}
	}
	w.t.Fatalf("not %d failures: %+v", n, w.State())
	return config.State{}
}

func TestWatchWrittenInPlace(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "q.toml"), text(1))
	w := followFile(t, path, nil)
	for i := 2; i < 5; i++ {
		write(t, path, text(i))
		w.want(i)
	}
}

// TestWatchRenamed: an editor writes another file and renames it, or removes the old one first.
func TestWatchRenamed(t *testing.T) {
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "q.toml"), text(1))
	w := followFile(t, path, nil)
	for i := 2; i < 5; i++ {
		next := write(t, filepath.Join(dir, "q.toml~"), text(i))
		if i%2 == 0 {
			must(t, os.Remove(path))
		}
		must(t, os.Rename(next, path))
		w.want(i)
	}
	if st := w.State(); st.Failures != 0 || st.Reloads != 3 {
		t.Errorf("%+v", st)
	}
}

// TestWatchConfigMap: Kubernetes mounts q.toml -> ..data/q.toml and ..data -> a folder, and swaps ..data.
func TestWatchConfigMap(t *testing.T) {
	for name, mount := range map[string]string{"in the folder": ".", "through a link to it": "mounted"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			swap := func(i int) {
				t.Helper()
				data := fmt.Sprintf("..2026_%d", i)
				must(t, os.Mkdir(filepath.Join(dir, data), 0o700))
				write(t, filepath.Join(dir, data, "q.toml"), text(i))
				must(t, os.Symlink(data, filepath.Join(dir, "..data_tmp")))
				must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
				must(t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..2026_%d", i-2))))
			}
			swap(1)
			must(t, os.Symlink(filepath.Join("..data", "q.toml"), filepath.Join(dir, "q.toml")))
			path := filepath.Join(dir, "q.toml")
			if mount != "." {
				path = filepath.Join(t.TempDir(), "link.toml")
				must(t, os.Symlink(filepath.Join(dir, "q.toml"), path))
			}
			w := followFile(t, path, nil)
			for i := 2; i < 6; i++ {
				swap(i)
				w.want(i)
			}
			if st := w.State(); st.Failures != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestWatchHalfWritten: a file that is being written is not believed, also where what is there is valid.
func TestWatchHalfWritten(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "q.toml"), text(1))
	w := followFile(t, path, func(c *config.Config) { c.Settle(600 * time.Millisecond) })
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	must(t, err)
	defer file.Close()
	whole := text(2) + strings.Repeat("# more\n", 20) + "dry-run = true\n"
	for i := range len(whole) {
		if _, err := file.WriteString(whole[i : i+1]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Millisecond) // the writer is slow; whole files were there all along
	}
	w.want(2)
	if f := w.File(); !f.Limiters["api"].DryRun {
		t.Error("half a file is in force")
	}
	if st := w.State(); st.Reloads != 1 || st.Failures != 0 {
		t.Errorf("%+v", st)
	}
}

// TestReloadHalfWritten: Reload waits for the end of a file that is being written.
func TestReloadHalfWritten(t *testing.T) {
	s := start(t, text(1))
	s.Settle(600 * time.Millisecond)
	must(t, os.WriteFile(s.path, []byte(text(2)), 0o600))
	done := make(chan error, 1)
	go func() { done <- s.Reload() }()
	for range 20 {
		time.Sleep(50 * time.Millisecond) // the writer is slow
		file, err := os.OpenFile(s.path, os.O_WRONLY|os.O_APPEND, 0)
		must(t, err)
		_, err = file.WriteString("# more\n")
		must(t, err)
		must(t, file.Close())
	}
	must(t, os.WriteFile(s.path, []byte(text(3)), 0o600))
	must(t, <-done)
	if n := s.File().Limiters["api"].Limit.InFlight; n != 3 {
		t.Errorf("a file of %d slots is in force, want 3", n)
	}
}

// TestWatchBroken: a broken file is logged once, the old one stays, and a file that is whole again ends it.
func TestWatchBroken(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "q.toml"), text(1))
	w := followFile(t, path, nil)
	write(t, path, text(-1))
	st := w.failures(1)
	if !strings.Contains(st.Error, ":2:13: limiters.api.in-flight: -1 is not between") ||
		w.File().Limiters["api"].Limit.InFlight != 1 {
		t.Errorf("%+v", st)
	}
	write(t, path, text(-2))
	w.failures(2)
	write(t, path, text(1))
	w.want(1)
	if st := w.State(); st.Error != "" || st.Failures != 2 {
		t.Errorf("%+v", st)
	}
	if n := strings.Count(w.log.take(), "level=ERROR"); n != 2 {
		t.Errorf("%d errors are logged, want 2", n)
	}
}

// TestWatchAbsent: a file that is gone is an error once, and its return is seen.
func TestWatchAbsent(t *testing.T) {
	for name, set := range map[string]func(*config.Config){
		"events": nil, "none": func(c *config.Config) { c.WithoutEvents(20 * time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, filepath.Join(t.TempDir(), "q.toml"), text(1))
			w := followFile(t, path, set)
			must(t, os.Remove(path))
			if st := w.failures(1); !strings.Contains(st.Error, "no such file") {
				t.Errorf("%+v", st)
			}
			write(t, path, text(1))
			w.want(1)
			if st := w.State(); st.Error != "" || st.Failures != 1 {
				t.Errorf("%+v", st)
			}
			write(t, path, text(2))
			w.want(2)
		})
	}
}

// TestWatchWithoutEvents: where events are lost, a look finds the change.
func TestWatchWithoutEvents(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "q.toml"), text(1))
	w := followFile(t, path, func(c *config.Config) { c.WithoutEvents(10 * time.Millisecond) })
	write(t, path, text(2))
	w.want(2)
	if line := w.log.take(); !strings.Contains(line, "no file events") {
		t.Error(line)
	}
}

// TestWatchNoisyFolder: events of other files neither hold the file up nor have it put in force.
func TestWatchNoisyFolder(t *testing.T) {
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "q.toml"), text(1))
	w := followFile(t, path, nil)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.WriteFile(filepath.Join(dir, "noise"), []byte("x"), 0o600)
			}
		}
	}()
	write(t, path, text(2))
	w.want(2)
	close(stop)
	<-done
	if st := w.State(); st.Reloads != 1 {
		t.Errorf("%+v", st)
	}
}

func TestWatchRunsOnce(t *testing.T) {
	w := followFile(t, write(t, filepath.Join(t.TempDir(), "q.toml"), text(1)), nil)
	write(t, w.State().Path, text(2))
	w.want(2) // it runs
	if err := w.Watch(t.Context()); err == nil || err.Error() != "config: Watch: another Watch is running" {
		t.Error(err)
	}
}
