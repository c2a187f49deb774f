package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
)

// TestThousandReloads: many reloads, some of them broken and some with other limiters, leave no goroutine, no
// file that is open, and no memory.
func TestThousandReloads(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "q.toml"), text(1))
	w := followFile(t, path, func(c *config.Config) { c.Settle(1) })
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint("/", i)
	}
	reload := func(i int) {
		next := fmt.Sprintf("%s[limiters.n%d]\ndeny = true\n[limiters.api.plans.p%d]\nin-flight = %d\n",
			text(i%7+1), i%5, i%3, i%11+1)
		broken := i%10 == 9
		if broken {
			next = strings.Replace(next, "deny", "dney", 1)
		}
		write(t, path, next)
		if err := w.Reload(); (err != nil) != broken {
			t.Fatalf("%d: %v", i, err)
		}
		l := w.limiter("api")
		l.Allow(keys[i%len(keys)])
	}
	for i := range 200 {
		reload(i)
	}
	heap, goroutines, files := resources(t)
	for i := range 1000 {
		reload(i)
	}
	heap2, goroutines2, files2 := resources(t)
	if heap2 > heap+2<<20 || goroutines2 > goroutines+2 || files2 > files+2 {
		t.Errorf("heap %d, then %d bytes; goroutines %d, then %d; files %d, then %d",
			heap, heap2, goroutines, goroutines2, files, files2)
	}
	if st := w.State(); st.Failures < 120 || st.Reloads < 1000 {
		t.Errorf("%+v", st)
	}
}

func (w *followed) limiter(name string) *quotient.Limiter {
	l, ok := w.reg.Get(name)
	if !ok {
		w.t.Fatalf("no limiter %s", name)
	}
	return l
}

// resources are the live heap, the goroutines and, where the system tells, the open files.
func resources(t *testing.T) (heap uint64, goroutines, files int) {
	t.Helper()
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		open = nil
	}
	return m.HeapAlloc, runtime.NumGoroutine(), len(open)
}
