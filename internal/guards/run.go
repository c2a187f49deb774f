package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// outcome says what became of a guard.
type outcome string

const (
	holds  outcome = "ok"     // the test fails without the guard, as it must
	missed outcome = "MISSED" // the test passes without the guard
	broken outcome = "BROKEN" // nothing was proven: the row, the code or the test is wrong
)

// result is a checked guard. Detail says in one line what was seen.
type result struct {
	guard
	outcome outcome
	detail  string
}

// runner checks guards in the module in dir.
type runner struct {
	dir      string
	timeout  time.Duration
	standing map[string]testRun // by package: all the tests of its guards, as the code stands
}

// runAsItStands runs the tests of all guards of a package together, which builds it once and not once a guard.
func (r runner) runAsItStands(ctx context.Context, guards []guard) map[string]testRun {
	tests := make(map[string][]string)
	for _, g := range guards {
		if !slices.Contains(tests[g.pkg], g.test) {
			tests[g.pkg] = append(tests[g.pkg], g.test)
		}
	}
	runs := make(map[string]testRun)
	r = r.patient()
	for pkg, names := range tests {
		if run, err := r.goTestOnce(ctx, guard{pkg: pkg, test: strings.Join(names, "|")}, ""); err == nil {
			runs[pkg] = run
		}
	}
	return runs
}

// patient is a runner for the code as it stands: a busy machine is no fault of its tests.
func (r runner) patient() runner {
	r.timeout *= 10
	return r
}

// stands reports whether the tests of g have run together with the others, and have passed. If not they are
// run by themselves, to find out why.
func (r runner) stands(g guard) bool {
	name, err := regexp.Compile(g.test)
	if err != nil {
		return false
	}
	passed := false
	for test, end := range r.standing[g.pkg].tests {
		if top, _, _ := strings.Cut(test, "/"); name.MatchString(top) {
			if end == "fail" {
				return false
			}
			passed = passed || end == "pass"
		}
	}
	return passed
}

// checkAll checks guards, up to parallel of them at a time, and keeps their order.
func (r runner) checkAll(ctx context.Context, guards []guard, parallel int) []result {
	r.standing = r.runAsItStands(ctx, guards)
	results := make([]result, len(guards))
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for i, g := range guards {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			results[i] = r.check(ctx, g)
			if bad := results[i]; bad.outcome != holds { // said at once: the table comes when all are done
				fmt.Fprintf(os.Stderr, "guards: mode %s, %s, %s: %s: %s\n", bad.mode, bad.file, bad.test, bad.outcome, bad.detail)
			}
		})
	}
	wg.Wait()
	return results
}

func (r runner) check(ctx context.Context, g guard) result {
	overlay, cleanup, err := r.takeOut(g)
	if err != nil {
		return result{g, broken, err.Error()}
	}
	defer cleanup()
	if !r.stands(g) {
		with, err := r.patient().goTest(ctx, g, "")
		if err != nil {
			return result{g, broken, err.Error()}
		}
		if why := with.mustPass(); why != "" {
			return result{g, broken, "as the code stands: " + why}
		}
	}
	without, err := r.goTest(ctx, g, overlay)
	if err == nil && without.passed { // rapid ends a property early when the machine stalls and the time-out is near
		without, err = r.patient().goTest(ctx, g, overlay)
	}
	if err != nil {
		return result{g, broken, err.Error()}
	}
	return judge(g, without)
}

// judge reads the test run without the guard. Only a test that ran and failed proves anything.
func judge(g guard, without testRun) result {
	switch {
	case without.buildFailed:
		return result{g, broken, "without the guard: does not build: " + without.firstLine}
	case without.ran == 0:
		return result{g, broken, "without the guard: no test ran"}
	case without.passed:
		return result{g, missed, "passes without the guard"}
	case without.timedOut:
		return result{g, holds, "hangs without the guard"}
	}
	return result{g, holds, "fails without the guard"}
}

// takeOut writes the file of g without its guard, and the overlay that puts it in the place of
// the real one. It returns the overlay's name. The caller calls cleanup in the end.
func (r runner) takeOut(g guard) (overlay string, cleanup func(), err error) {
	path, err := filepath.Abs(filepath.Join(r.dir, g.file))
	if err != nil {
		return "", nil, err
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	if n := strings.Count(string(source), g.find); n != 1 {
		return "", nil, fmt.Errorf("the text to find stands %d times in %s, not once", n, g.file)
	}
	if g.find == g.replace {
		return "", nil, fmt.Errorf("the replacement changes nothing")
	}
	patched := strings.Replace(string(source), g.find, g.replace, 1)
	return writeOverlay(path, patched)
}

func writeOverlay(path, patched string) (overlay string, cleanup func(), err error) {
	dir, err := os.MkdirTemp("", "guards")
	if err != nil {
		return "", nil, err
	}
	cleanup = func() { os.RemoveAll(dir) }
	instead := filepath.Join(dir, filepath.Base(path))
	overlay = filepath.Join(dir, "overlay.json")
	spec, err := json.Marshal(map[string]any{"Replace": map[string]string{path: instead}})
	if err == nil {
		err = os.WriteFile(instead, []byte(patched), 0o600)
	}
	if err == nil {
		err = os.WriteFile(overlay, spec, 0o600)
	}
	if err != nil {
		cleanup()
		return "", nil, err
	}
	return overlay, cleanup, nil
}

func printTable(out io.Writer, results []result) {
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "mode\t| guard\t| test\t| result")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t| %s\t| %s %s\t| %s: %s\n", r.mode, r.file, r.pkg, r.test, r.outcome, r.detail)
	}
	w.Flush()
}
