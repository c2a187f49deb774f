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
	"github.com/quotient-go/quotient/internal/tested"
)

// text is a file whose number of slots tells it from others.
func text(slots int) string { return fmt.Sprintf("[limiters.api]\nin-flight = %d\n", slots) }

func slots(f *config.File) int { return f.Limiters["api"].Limit.InFlight }

// followed is a file that is watched, and what is put in force.
type followed struct {
	*config.Config
	t    *testing.T
	path string
	puts chan int // what tells each file that is put in force from others
	log  logged
}

// follow watches a file until the test ends. Tell tells it from others; set changes the Config before.
func follow(t *testing.T, f *config.File, tell func(*config.File) int, set func(*config.Config)) *followed {
	t.Helper()
	w := &followed{t: t, path: f.Path, puts: make(chan int, 10_000)}
	var err error
	w.Config, err = config.New(f, &quotient.Registry{}, config.Logger(w.log.logger()), config.With(part{
		commit: func(f *config.File) { w.puts <- tell(f) },
	}))
	must(t, err)
	w.want(tell(f))
	w.Every(time.Hour) // events alone must do
	if set != nil {
		set(w.Config)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Watch(ctx) }()
	t.Cleanup(func() { cancel(); must(t, <-done) })
	return w
}

// followFile watches a file of its own with one slot, or the one at a path.
func followFile(t *testing.T, path string, set func(*config.Config)) *followed {
	t.Helper()
	if path == "" {
		path = write(t, filepath.Join(t.TempDir(), "q.toml"), text(1))
	}
	f, err := config.Read(path)
	must(t, err)
	return follow(t, f, slots, set)
}

// want waits for the next file that is put in force, which must be this one.
func (w *followed) want(file int) {
	w.t.Helper()
	select {
	case got := <-w.puts:
		if got != file {
			w.t.Fatalf("a file of %d is in force, want %d", got, file)
		}
	case <-time.After(tested.Patience):
		w.t.Fatalf("no file of %d; %+v\n%s", file, w.State(), w.log.take())
	}
}

// failed waits until so many files were refused, the last for this reason.
func (w *followed) failed(n uint64, why string) {
	w.t.Helper()
	for end := time.Now().Add(tested.Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if st := w.State(); st.Failures >= n && strings.Contains(st.Error, why) {
			return
		}
	}
	w.t.Fatalf("not %d failures: %+v", n, w.State())
}

// counted requires so many reloads and failures.
func (w *followed) counted(reloads, failures int) {
	w.t.Helper()
	if st := w.State(); st.Reloads != uint64(reloads) || st.Failures != uint64(failures) || st.Error != "" {
		w.t.Errorf("%+v, want %d reloads and %d failures", st, reloads, failures)
	}
}

// TestWatchWritten: a file is written in place; another is renamed to its name, also after it was removed.
func TestWatchWritten(t *testing.T) {
	w := followFile(t, "", nil)
	for i := 2; i < 8; i++ {
		if i < 4 {
			write(t, w.path, text(i))
		} else {
			next := write(t, w.path+"~", text(i))
			if i%2 == 0 {
				must(t, os.Remove(w.path))
			}
			must(t, os.Rename(next, w.path))
		}
		w.want(i)
	}
	w.counted(6, 0)
	err := w.Watch(t.Context())
	fails(t, err, "config: Watch: another Watch is running")
}

// TestWatchConfigMap: Kubernetes mounts q.toml -> ..data/q.toml and ..data -> a folder, and swaps ..data.
func TestWatchConfigMap(t *testing.T) {
	for name, linked := range map[string]bool{"in the folder": false, "through a link to it": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			in := func(names ...string) string { return filepath.Join(dir, filepath.Join(names...)) }
			swap := func(i int) {
				t.Helper()
				data := fmt.Sprintf("..2026_%d", i)
				must(t, os.Mkdir(in(data), 0o700))
				write(t, in(data, "q.toml"), text(i))
				must(t, os.Symlink(data, in("..data_tmp")))
				must(t, os.Rename(in("..data_tmp"), in("..data")))
				must(t, os.RemoveAll(in(fmt.Sprintf("..2026_%d", i-2))))
			}
			swap(1)
			path := in("q.toml")
			must(t, os.Symlink(filepath.Join("..data", "q.toml"), path))
			if linked {
				path = filepath.Join(t.TempDir(), "link.toml")
				must(t, os.Symlink(in("q.toml"), path))
			}
			w := followFile(t, path, nil)
			for i := 2; i < 6; i++ {
				swap(i)
				w.want(i)
			}
			w.counted(4, 0)
		})
	}
}

// TestHalfWritten: a file that is being written is not believed, also where what is there is valid. Watch and
// Reload wait for its end.
func TestHalfWritten(t *testing.T) {
	settle := func(c *config.Config) { c.Settle(2 * time.Second) } // a writer may be held up on a busy machine
	slowly := func(path string, parts int, part func(int) string) {
		file, err := os.Create(path)
		must(t, err)
		for i := range parts {
			_, err := file.WriteString(part(i))
			must(t, err)
			time.Sleep(900 * time.Millisecond / time.Duration(parts)) // the writer is slow
		}
		must(t, file.Close())
	}
	w := followFile(t, "", settle)
	whole := text(2) + strings.Repeat("# more\n", 20) + "dry-run = true\n"
	slowly(w.path, len(whole), func(i int) string { return whole[i : i+1] }) // whole files were there all along
	w.want(2)
	if !w.File().Limiters["api"].DryRun {
		t.Error("half a file is in force")
	}
	w.counted(1, 0)

	s := start(t, text(1))
	settle(s.Config)
	write(t, s.path, text(2))
	done := make(chan error, 1)
	go func() { done <- s.Reload() }()
	slowly(s.path, 20, func(i int) string { return map[bool]string{true: text(2), false: "# more\n"}[i == 0] })
	write(t, s.path, text(3))
	must(t, <-done)
	want(t, "slots", slots(s.File()), 3)
}

// TestWatchBroken: a broken file is logged once, the old one stays, and a file that is whole again ends it.
func TestWatchBroken(t *testing.T) {
	w := followFile(t, "", nil)
	old := w.File()
	write(t, w.path, text(-1)+"x = 1\n")
	w.failed(1, w.path+":2:13: limiters.api.in-flight: -1 is not between 0 and 1073741824\n"+
		w.path+":3:1: limiters.api.x: unknown field")
	want(t, "the file", w.File(), old)
	write(t, w.path, text(-2))
	w.failed(2, "-2 is not between")
	if st := w.State(); st.Reloads != 0 || st.ErrorAt.IsZero() {
		t.Errorf("%+v", st)
	}
	write(t, w.path, text(1))
	w.want(1)
	w.counted(1, 2)
	const line = "level=ERROR msg=\"file refused: the old one stays in force\""
	want(t, "errors in the log", strings.Count(w.log.take(), line), 2)
}

// TestWatchAbsent: a file that is gone is an error once, and its return is seen, also by a look where no
// events come.
func TestWatchAbsent(t *testing.T) {
	for line, set := range map[string]func(*config.Config){
		"": nil, "no file events": func(c *config.Config) { c.WithoutEvents(20 * time.Millisecond) },
	} {
		t.Run(line, func(t *testing.T) {
			w := followFile(t, "", set)
			must(t, os.Remove(w.path))
			w.failed(1, "no such file")
			write(t, w.path, text(1))
			w.want(1)
			write(t, w.path, text(2))
			w.want(2)
			w.counted(2, 1)
			if text := w.log.take(); !strings.Contains(text, line) {
				t.Error(text)
			}
		})
	}
}

// TestWatchNoisyFolder: events of other files neither hold the file up nor have it put in force.
func TestWatchNoisyFolder(t *testing.T) {
	w := followFile(t, "", nil)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = os.WriteFile(filepath.Join(filepath.Dir(w.path), "noise"), []byte("x"), 0o600)
		}
	}()
	write(t, w.path, text(2))
	w.want(2)
	stop()
	<-done
	w.counted(1, 0)
}
