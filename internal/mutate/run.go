package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// fate says what became of a mutant.
type fate string

const (
	killed   fate = "killed"
	timedOut fate = "timed out" // a test hung; it counts as killed
	survived fate = "SURVIVED"
	unbuilt  fate = "not built" // it does not count
)

// bench builds and runs the tests of the package in dir.
type bench struct {
	dir     string
	tests   string        // regular expression of the tests
	timeout time.Duration // of each run; 0: three times that of the code as it stands
	runs    []testRun     // of one mutant, until a test fails
}

// testRun is a part of the tests, which runs by itself.
type testRun struct {
	which   string // a flag of the test binary
	timeout time.Duration
}

// slowTest is how long a test takes that runs last: most mutants are killed before.
const slowTest = 250 * time.Millisecond

// leastTimeout is for machines that are busy now and then.
const leastTimeout = 10 * time.Second

// memory is the address space of a test run, in KiB. A mutant that loops may ask for all there is.
const memory = 6 << 20

var passed = regexp.MustCompile(`(?m)^--- PASS: (Test\S+) \(([0-9.]+s)\)`)

// warmUp runs the tests on the code as it stands. They must pass. It finds the time-out and the slow tests.
func (b *bench) warmUp(ctx context.Context, temp string) (time.Duration, error) {
	binary := filepath.Join(temp, "clean.test")
	if out, err := b.build(ctx, binary, ""); err != nil {
		return 0, fmt.Errorf("the code as it stands: %w\n%s", err, out)
	}
	began := time.Now()
	out, err := b.exec(ctx, binary, "-test.v", "-test.timeout=10m")
	took := time.Since(began)
	if err != nil {
		return took, fmt.Errorf("the tests of the code as it stands: %w\n%s", err, complaints(out))
	}
	if bytes.Contains(out, []byte("testing: warning: no tests to run")) {
		return took, fmt.Errorf("-run %q: no test has such a name", b.tests)
	}
	b.plan(out, took)
	return took, nil
}

// plan lets the slow tests run after the others: most mutants are killed before.
func (b *bench) plan(out []byte, took time.Duration) {
	var names []string
	var slow time.Duration
	for _, m := range passed.FindAllSubmatch(out, -1) {
		if d, err := time.ParseDuration(string(m[2])); err == nil && d >= slowTest {
			names, slow = append(names, string(m[1])), slow+d
		}
	}
	limit := func(clean time.Duration) time.Duration {
		return cmp.Or(b.timeout, max(leastTimeout, (3*clean).Round(time.Second)))
	}
	if len(names) == 0 {
		b.runs = []testRun{{"-test.run=" + b.tests, limit(took)}}
		return
	}
	list := "^(" + strings.Join(names, "|") + ")$"
	b.runs = []testRun{{"-test.skip=" + list, limit(took - slow)}, {"-test.run=" + list, limit(slow)}}
}

// build compiles the tests, with the files that overlay names when it is not empty.
func (b *bench) build(ctx context.Context, binary, overlay string) ([]byte, error) {
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary}
	if overlay != "" {
		args = append(args, "-overlay="+overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, ".")...)
	cmd.Dir = b.dir
	return cmd.CombinedOutput()
}

// exec runs a test binary in the folder of its package. A property that fails writes no file into it, does
// not search for the shortest history, and is the same for each mutant.
func (b *bench) exec(ctx context.Context, binary string, args ...string) ([]byte, error) {
	limited := fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, memory)
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", limited, binary, "-test.run=" + b.tests}, args...)...)
	cmd.Dir = b.dir
	cmd.Env = append([]string{"RAPID_SEED=1"}, os.Environ()...)
	cmd.Env = append(cmd.Env, "RAPID_NOFAILFILE=1", "RAPID_SHRINKTIME=1ms")
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		return out.Bytes(), context.Cause(ctx)
	}
	return out.Bytes(), err
}

// try builds m, runs the tests, and says what became of it and which test noticed.
func (b *bench) try(ctx context.Context, m mutant) (fate, string, error) {
	temp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(temp)
	overlay, err := writeOverlay(temp, b.dir, m)
	if err != nil {
		return "", "", err
	}
	binary := filepath.Join(temp, "mutant.test")
	if out, err := b.build(ctx, binary, overlay); err != nil {
		if ctx.Err() != nil {
			return "", "", ctx.Err()
		}
		return unbuilt, lineAfterHeader(out), nil
	}
	return b.runMutant(ctx, binary)
}

// writeOverlay writes the mutant's file, and the file that tells the go command to read it.
func writeOverlay(temp, dir string, m mutant) (string, error) {
	original, err := filepath.Abs(filepath.Join(dir, m.file))
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(temp, "mutant.go"), filepath.Join(temp, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(os.WriteFile(changed, m.text(), 0o600), os.WriteFile(overlay, text, 0o600))
}

// errTime ends a run that does not end by its own time-out.
var errTime = errors.New("out of time")

// runMutant runs the quick tests, then the slow ones, until one fails.
func (b *bench) runMutant(ctx context.Context, binary string) (fate, string, error) {
	for _, r := range b.runs {
		limited, cancel := context.WithTimeoutCause(ctx, r.timeout+10*time.Second, errTime)
		out, err := b.exec(limited, binary, r.which, "-test.failfast", "-test.timeout="+r.timeout.String())
		cancel()
		exit := new(exec.ExitError)
		switch {
		case ctx.Err() != nil:
			return "", "", ctx.Err()
		case errors.Is(err, errTime), bytes.Contains(out, []byte("panic: test timed out after ")):
			return timedOut, firstOf(hung, out), nil
		case errors.As(err, &exit):
			return killed, firstOf(blamed, out), nil
		case err != nil:
			return "", "", err
		}
	}
	return survived, "", nil
}

var (
	hung   = regexp.MustCompile(`(?m)^\t+((?:Test|Example).* \([0-9a-z.]+\))$`)
	blamed = regexp.MustCompile(`(?m)^(?:--- FAIL: (\S+)|panic: (.*)|fatal error: (.*))`)
)

// firstOf names the test that failed or hung, or what ended the run.
func firstOf(what *regexp.Regexp, out []byte) string {
	m := what.FindSubmatch(out)
	if m == nil {
		return ""
	}
	return string(bytes.Join(m[1:], nil))
}

func lineAfterHeader(out []byte) string {
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return ""
}

var quiet = regexp.MustCompile(`(?m)^\s*(=== |--- PASS|--- SKIP).*\n`)

// complaints is the end of what a test run says, without what has passed.
func complaints(out []byte) []byte {
	out = quiet.ReplaceAll(out, nil)
	return out[max(0, len(out)-4000):]
}
