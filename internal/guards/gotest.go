package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// testRun is what one go test said.
type testRun struct {
	passed      bool              // the package passed
	buildFailed bool              // it did not get as far as running
	timedOut    bool              // the time-out ended it
	ran         int               // tests that ran and were not skipped
	firstLine   string            // of what the compiler or a failed test said
	tests       map[string]string // how each test and subtest ended: pass, fail or skip
}

// mustPass says in what respect t is not a pass of at least one test; empty when it is.
func (t testRun) mustPass() string {
	switch {
	case t.buildFailed:
		return "does not build: " + t.firstLine
	case t.timedOut:
		return "the test runs into the time-out"
	case !t.passed:
		return "the test fails: " + t.firstLine
	case t.ran == 0:
		return "no test ran"
	}
	return ""
}

// goTest runs the tests of g, with the files that overlay names when it is not empty. A build must fail
// twice to count. On a busy machine the go command once lost a package of the standard library from its
// cache, and built it a moment later.
func (r runner) goTest(ctx context.Context, g guard, overlay string) (testRun, error) {
	run, err := r.goTestOnce(ctx, g, overlay)
	if err == nil && run.buildFailed {
		run, err = r.goTestOnce(ctx, g, overlay)
	}
	return run, err
}

func (r runner) goTestOnce(ctx context.Context, g guard, overlay string) (testRun, error) {
	args := []string{"test", "-json", "-vet=off", "-timeout=" + r.timeout.String(), "-run=" + g.test}
	if overlay != "" { // a property that has missed the change once is run again, and its cached result is not used
		args = append(args, "-overlay="+overlay, "-count=1")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, g.pkg)...)
	cmd.Dir = r.dir
	// A failing property writes no file into the checkout and spends no half minute on shrinking.
	cmd.Env = append(os.Environ(), "RAPID_NOFAILFILE=1", "RAPID_SHRINKTIME=1s")
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return testRun{}, err
	}
	if ctx.Err() != nil {
		return testRun{}, ctx.Err()
	}
	run, parseErr := readEvents(stdout.Bytes())
	if parseErr != nil {
		return testRun{}, fmt.Errorf("go test: %w: %s", parseErr, firstLine(stderr.String()))
	}
	return run, nil
}

// event is one line of go test -json; see go doc test2json and go help buildjson.
type event struct {
	Action, Package, Test, Output, FailedBuild string
}

// readEvents reads the output of go test -json for one package.
func readEvents(output []byte) (testRun, error) {
	var t testRun
	ended := false
	for line := range bytes.Lines(output) {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return t, fmt.Errorf("not an event: %q", line)
		}
		ended = t.add(e) || ended
	}
	if !ended {
		return t, errors.New("it ended without a result")
	}
	return t, nil
}

// add takes one event in and reports whether it is the package's result.
func (t *testRun) add(e event) bool {
	if e.Test != "" {
		switch e.Action {
		case "run":
			t.ran++
		case "skip":
			t.ran--
		}
		if e.Action == "pass" || e.Action == "fail" || e.Action == "skip" {
			if t.tests == nil {
				t.tests = make(map[string]string)
			}
			t.tests[e.Test] = e.Action
		}
	}
	switch e.Action {
	case "output", "build-output":
		t.output(e.Output)
	case "build-fail":
		t.buildFailed = true
	case "pass", "fail", "skip":
		if e.Test == "" {
			t.passed = e.Action != "fail"
			t.buildFailed = t.buildFailed || e.FailedBuild != ""
			return true
		}
	}
	return false
}

func (t *testRun) output(text string) {
	if strings.HasPrefix(text, "panic: test timed out after ") {
		t.timedOut = true
	}
	line := firstLine(text)
	noise := line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "# ")
	if t.firstLine == "" && !noise {
		t.firstLine = line
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
