// Command guards shows that failure modes and bounds are held by tests. The table in table.go names code that
// guards against a failure, and the test that must notice when it is gone. Each guard is taken out in turn, and
// its test must fail. The checkout stays as it is: the go command reads the altered file by its -overlay flag.
//
//	go run ./internal/guards             all guards
//	go run ./internal/guards -only 3,34a the guards of these failure modes (docs/failure-modes.md) or bounds (B2)
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// guard is code that holds a failure mode or a bound, and the test that must fail without it.
type guard struct {
	mode    string // of docs/failure-modes.md, or B and the number of a bound of docs/bounds.md
	file    string // relative to the module of the working directory
	test    string // package, a space, and the expression for -run
	find    string // text that stands once in file
	replace string // what to put there instead; the result must build
}

// patience is how long a test may take without its guard: without some, a caller waits for ever.
const patience = 15 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	only := flag.String("only", "", "check the guards of these failure `modes`, separated by commas")
	flag.Parse()
	bad, checked := 0, 0
	for g, err := range checkAll(ctx, ".", pick(guards, *only)) {
		checked++
		if err != nil {
			bad++
			fmt.Printf("mode %s, %s, %s: %v\n", g.mode, g.file, g.test, err)
		}
	}
	fmt.Printf("%d of %d guards hold\n", checked-bad, checked)
	if bad > 0 || checked == 0 {
		os.Exit(1)
	}
}

// pick returns the guards of some modes, all of them for an empty list.
func pick(all []guard, only string) []guard {
	modes := strings.Split(only, ",")
	return slices.DeleteFunc(slices.Clone(all), func(g guard) bool {
		return only != "" && !slices.Contains(modes, g.mode)
	})
}

// checkAll checks the guards in the module in dir, a few at a time, since some wait for the end of patience.
func checkAll(ctx context.Context, dir string, guards []guard) func(yield func(guard, error) bool) {
	return func(yield func(guard, error) bool) {
		results := make([]chan error, len(guards))
		slots := make(chan struct{}, runtime.NumCPU()+1)
		var wg sync.WaitGroup
		defer wg.Wait()
		for i := range guards {
			results[i] = make(chan error, 1)
			wg.Go(func() {
				slots <- struct{}{}
				results[i] <- check(ctx, dir, guards[i])
				<-slots
			})
		}
		for i, g := range guards {
			if !yield(g, <-results[i]) {
				return
			}
		}
	}
}

// check returns an error unless the test of g runs and fails without the guard. That the test passes with it is
// shown by go test. A busy machine may end a property early, so a test that passes is run a second time.
func check(ctx context.Context, dir string, g guard) error {
	overlay, err := takeOut(dir, g)
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(overlay))
	var out string
	for range 2 {
		out, err = goTest(ctx, dir, g.test, overlay)
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if strings.Contains(out, "\n--- FAIL: ") || strings.Contains(out, "panic: ") {
			return nil
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("does not build without the guard: %s", out)
	case strings.Contains(out, "no tests to run"):
		return errors.New("no test ran")
	}
	return errors.New("the test passes without the guard")
}

// goTest runs a test and returns what it printed. A failing property writes no file into the checkout.
func goTest(ctx context.Context, dir, test, overlay string) (string, error) {
	pkg, run, _ := strings.Cut(test, " ")
	cmd := exec.CommandContext(ctx, "go", "test", "-v", "-vet=off", "-count=1", "-timeout="+patience.String(),
		"-overlay="+overlay, "-run="+run, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "RAPID_NOFAILFILE=1", "RAPID_SHRINKTIME=1s")
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return "\n" + string(out), err
}

// takeOut writes the file of g without its guard, and an overlay that puts it in the place of the real one.
// Both are alone in a folder. It returns the overlay's name.
func takeOut(dir string, g guard) (string, error) {
	file, err := filepath.Abs(filepath.Join(dir, g.file))
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), g.find); n != 1 {
		return "", fmt.Errorf("the text of the guard stands %d times in the file, not once", n)
	}
	folder, err := os.MkdirTemp("", "guards")
	if err != nil {
		return "", err
	}
	without, overlay := filepath.Join(folder, filepath.Base(file)), filepath.Join(folder, "overlay.json")
	spec, err := json.Marshal(map[string]any{"Replace": map[string]string{file: without}})
	patched := strings.Replace(string(source), g.find, g.replace, 1)
	return overlay, errors.Join(err, os.WriteFile(without, []byte(patched), 0o600), os.WriteFile(overlay, spec, 0o600))
}
