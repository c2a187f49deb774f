package file

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/internal/watched"
	"github.com/quotient-go/quotient/poolsize/pooltest"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// must fails the test if something that it does itself does not work.
func must(t watched.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

func write(t watched.TB, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o600))
}

// replace puts content in the place of a file in one step.
func replace(t watched.TB, path, content string) {
	t.Helper()
	write(t, path+".new", content)
	must(t, os.Rename(path+".new", path))
}

func fresh(t testing.TB) string { return filepath.Join(t.TempDir(), "pool") }

// watching is a Watch in a bubble.
type watching struct {
	*watched.Log
	t watched.TB
}

func watch(t watched.TB, s quotient.Source) *watching { return &watching{watched.Start(t, s.Watch), t} }

// pass lets time pass, and returns what is reported in it.
func (w *watching) pass(d time.Duration) []watched.Report {
	synctest.Wait()
	w.Take()
	time.Sleep(d)
	synctest.Wait()
	return w.Take()
}

// say fails unless there are n reports or more, and all say the pool.
func (w *watching) say(reports []watched.Report, n int, want quotient.Pool) {
	w.t.Helper()
	if len(reports) < n {
		w.t.Errorf("%d reports, want at least %d", len(reports), n)
	}
	for _, r := range reports {
		if r.Err != nil || r.Pool != want {
			w.t.Errorf("reported %+v, %v; want %+v", r.Pool, r.Err, want)
		}
	}
}

// fail fails unless there are n reports, all of them errors with these words.
func (w *watching) fail(reports []watched.Report, n int, words ...string) {
	w.t.Helper()
	if len(reports) != n {
		w.t.Errorf("%d reports, want %d", len(reports), n)
	}
	for _, r := range reports {
		for _, word := range words {
			if r.Err == nil || !strings.Contains(r.Err.Error(), word) || r.Pool != (quotient.Pool{}) {
				w.t.Errorf("reported %+v, %v; want an error that says %q", r.Pool, r.Err, word)
			}
		}
	}
}

// The first report comes when the file has settled, then one each Every.
func TestReportsAtEachPoll(t *testing.T) {
	for _, every := range []time.Duration{0, 10 * time.Millisecond, 60 * time.Millisecond, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			path := fresh(t)
			write(t, path, "5\n")
			w := watch(t, &Source{Path: path, Every: every})
			if every == 0 {
				every = time.Second
			}
			start := time.Now()
			reports := w.pass(20 * every)
			w.say(reports, 20, quotient.Pool{Replicas: 5})
			for i, r := range reports {
				at, want := r.At.Sub(start), min(50*time.Millisecond, every/2)+time.Duration(i)*every
				if at != want {
					t.Errorf("every %v: report %d after %v, want %v", every, i, at, want)
				}
			}
		})
	}
}

// A mistake in the file is reported at each poll; TestConformance shows that a limiter keeps the last good pool.
func TestWhatIsNoPool(t *testing.T) {
	absent := func(t testing.TB, path string) { must(t, os.RemoveAll(path)) }
	rows := []struct {
		name string
		harm func(t testing.TB, path string)
		says string
	}{
		{"deleted", absent, "no such file"},
		{"a directory in its place", func(t testing.TB, path string) {
			absent(t, path)
			must(t, os.Mkdir(path, 0o700))
		}, "no regular file: d"},
		{"a link to nothing", func(t testing.TB, path string) {
			absent(t, path)
			must(t, os.Symlink("nothing", path))
		}, "no such file"},
		{"a link to itself", func(t testing.TB, path string) {
			absent(t, path)
			must(t, os.Symlink(path, path))
		}, "too many levels"},
		{"a device", func(t testing.TB, path string) {
			absent(t, path)
			must(t, os.Symlink(os.DevNull, path))
		}, "no regular file: D"},
		{"empty", func(t testing.TB, path string) { write(t, path, "") }, "empty"},
		{"white space", func(t testing.TB, path string) { write(t, path, " \n\t") }, "empty"},
		{"0", func(t testing.TB, path string) { write(t, path, "0") }, "Replicas: 0"},
		{"garbage", func(t testing.TB, path string) { write(t, path, "x\x00\xff") }, "no whole number"},
		{"no permission", func(t testing.TB, path string) {
			if os.Geteuid() == 0 {
				t.Skip("root may read everything")
			}
			must(t, os.Chmod(path, 0))
		}, "permission denied"},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			path := fresh(t)
			write(t, path, "5")
			synctest.Test(t, func(t *testing.T) {
				w := watch(t, &Source{Path: path})
				w.say(w.pass(2100*time.Millisecond), 2, quotient.Pool{Replicas: 5})
				r.harm(t, path)
				w.fail(w.pass(10*time.Second), 10, path, r.says)
				must(t, os.RemoveAll(path))
				write(t, path, "6")
				w.pass(2 * time.Second)
				w.say(w.pass(time.Second), 1, quotient.Pool{Replicas: 6})
			})
		})
	}
}

// A writer that takes less than 50 ms from byte to byte is never believed half-way.
func TestPropertyHalfWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, halfWritten)
	})
}

func halfWritten(t *rapid.T) {
	dir, err := os.MkdirTemp("", "quotient")
	must(t, err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "pool")
	write(t, path, "77")
	w := watch(t, &Source{Path: path,
		Every: rapid.SampledFrom([]time.Duration{0, 100 * time.Millisecond, time.Minute}).Draw(t, "every")})
	content := rapid.SampledFrom([]string{"123456", "12\n", `{"replicas":12}`, "12345 "}).Draw(t, "content")
	want, err := parse(content)
	must(t, err)
	time.Sleep(time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "later")))
	f, err := os.Create(path)
	must(t, err)
	for _, b := range []byte(content) {
		time.Sleep(time.Duration(rapid.Int64Range(0, int64(settling-1)).Draw(t, "pause")))
		_, err := f.Write([]byte{b})
		must(t, err)
	}
	must(t, f.Close())
	time.Sleep(2 * time.Minute)
	w.Leave()
	reports := w.Take()
	for _, r := range reports {
		if r.Err == nil && r.Pool.Replicas != 77 && r.Pool != want ||
			r.Err != nil && !strings.Contains(r.Err.Error(), "changing") {
			t.Fatalf("%q: reported %+v, %v", content, r.Pool, r.Err)
		}
	}
	if last := reports[len(reports)-1]; last.Pool != want {
		t.Fatalf("%q: reported last %+v, %v", content, last.Pool, last.Err)
	}
}

// A file that never settles is an error each Every, and no pool.
func TestKeepsChanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := fresh(t)
		write(t, path, "5")
		w := watch(t, &Source{Path: path})
		w.say(w.pass(100*time.Millisecond), 1, quotient.Pool{Replicas: 5})
		var reports []watched.Report
		for i := range 500 {
			replace(t, path, fmt.Sprint(10+i))
			reports = append(reports, w.pass(40*time.Millisecond)...)
		}
		if len(reports) < 8 || len(reports) > 20 { // of 20 s
			t.Errorf("%d reports", len(reports))
		}
		w.fail(reports, len(reports), path, "changing for 1s")
		w.pass(2 * time.Second)
		w.say(w.pass(3*time.Second), 3, quotient.Pool{Replicas: 509})
	})
}

// Kubernetes keeps the file behind a link to a directory behind a link, which it swaps; then it removes
// the old directory.
func TestConfigMapSwap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		publish := func(n int) {
			version := fmt.Sprintf("..version_%d", n)
			must(t, os.Mkdir(filepath.Join(dir, version), 0o700))
			write(t, filepath.Join(dir, version, "replicas"), fmt.Sprint(n))
			old, _ := os.Readlink(filepath.Join(dir, "..data")) // none at first
			must(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
			must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
			if old != "" {
				must(t, os.RemoveAll(filepath.Join(dir, old)))
			}
		}
		publish(1)
		path := filepath.Join(dir, "replicas")
		must(t, os.Symlink(filepath.Join("..data", "replicas"), path))
		w := watch(t, &Source{Path: path, Every: 100 * time.Millisecond})
		w.say(w.pass(time.Second), 9, quotient.Pool{Replicas: 1})
		for n := 2; n < 100; n++ {
			publish(n)
			w.pass(150 * time.Millisecond)
			w.say(w.pass(137*time.Millisecond), 1, quotient.Pool{Replicas: n})
		}
	})
}

// A half-written number that stays is believed once it has settled: this is what Source says to avoid.
func TestASlowWriterIsBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := fresh(t)
		write(t, path, "1") // of 12
		w := watch(t, &Source{Path: path})
		w.say(w.pass(time.Second), 1, quotient.Pool{Replicas: 1})
		write(t, path, `{"replicas":1`) // of 12}
		w.fail(w.pass(3*time.Second), 3, "no JSON object")
	})
}

func TestConformance(t *testing.T) {
	path := fresh(t)
	n := 0
	heal := func(t testing.TB) { replace(t, path, fmt.Sprint(n)) }
	pooltest.Run(t, pooltest.World{
		Source:  func(testing.TB) quotient.Source { return &Source{Path: path, Every: leastEvery} },
		Set:     func(t testing.TB, size int) { n = size; heal(t) },
		Break:   func(t testing.TB) { must(t, os.Remove(path)) },
		Garbage: func(t testing.TB) { replace(t, path, "12 replicas") },
		Heal:    heal,
		Wrong: map[string]quotient.Source{
			`file: Source.Path: ""`:    &Source{},
			"file: Source.Every: -1ns": &Source{Path: "pool", Every: -1},
			"file: Source.Every: 1ms":  &Source{Path: "pool", Every: time.Millisecond},
			"file: Source.Every: 25h":  &Source{Path: "pool", Every: 25 * time.Hour},
		},
	})
}
