// Command guards shows that failure modes and bounds are held by tests. The table in table.go names code that
// guards against a failure, and the test that must notice when it is gone. A package is built once with a switch at
// each of its guards; its tests must pass, and then, with one switch after the other set, the test of that guard
// must fail. The checkout stays as it is: the go command reads the altered files by its -overlay flag.
//
//	go run ./internal/guards                    # all guards
//	go run ./internal/guards -only keys,34a,B2  # of a group and a failure of README.md, and of a bound
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// guard is code that holds a failure mode or a bound, and the test that must fail without it.
type guard struct {
	mode string // of README.md, or B and the number of a bound of docs/bounds.md
	file string // relative to the module of the working directory
	test string // package, a space, and the expression for -run
	find string // text that stands once in file
	with string // what stands there instead, where off is whether the guard is taken out; "" is find in an if
}

// patience is how long a test may take without its guard: without some, a caller waits for ever.
const patience = 15 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	only := flag.String("only", "", "check the guards of these failure `modes` or groups of them, separated by commas")
	flag.Parse()
	bad, picked := 0, pick(guards, *only)
	for i, err := range checkAll(ctx, ".", picked) {
		if g := picked[i]; err != nil {
			bad++
			fmt.Printf("mode %s, %s, %s: %v\n", g.mode, g.file, g.test, err)
		}
	}
	fmt.Printf("%d of %d guards hold\n", len(picked)-bad, len(picked))
	if bad > 0 || len(picked) == 0 {
		os.Exit(1)
	}
}

// pick returns the guards of some modes or groups, all of them for an empty list.
func pick(all []guard, only string) []guard {
	modes := strings.Split(only, ",")
	for _, name := range modes {
		modes = append(modes, groups[name]...)
	}
	return slices.DeleteFunc(slices.Clone(all), func(g guard) bool {
		return only != "" && !slices.Contains(modes, g.mode)
	})
}

// checkAll returns what is wrong with each guard of the module in dir. It runs one program more than there are
// processors, since some tests wait for the end of patience.
func checkAll(ctx context.Context, dir string, guards []guard) []error {
	errs, packages := make([]error, len(guards)), map[string]*switched{}
	for i, g := range guards {
		pkg, _, _ := strings.Cut(g.test, " ")
		if packages[pkg] == nil {
			packages[pkg] = &switched{dir: dir, pkg: pkg, texts: map[string]string{}, tests: map[int]string{}}
		}
		errs[i] = packages[pkg].put(i, g)
	}
	slots := make(chan struct{}, runtime.NumCPU()+1)
	var wg sync.WaitGroup
	for _, s := range packages {
		wg.Go(func() {
			slots <- struct{}{}
			err := s.build(ctx)
			<-slots
			var each sync.WaitGroup
			for i, test := range s.tests {
				each.Go(func() {
					slots <- struct{}{}
					if errs[i] = err; err == nil {
						errs[i] = s.check(ctx, i, test)
					}
					<-slots
				})
			}
			each.Wait()
			_ = os.RemoveAll(s.folder)
		})
	}
	wg.Wait()
	return errs
}

// switched is a package whose guards can be switched off, one at a time, in one test program.
type switched struct {
	dir, pkg string
	folder   string            // of what is written
	texts    map[string]string // of the altered files, by name
	tests    map[int]string    // by the place of the guard
}

var packageClause = regexp.MustCompile(`(?m)^package \w+$`)

// put puts a guard behind a switch.
func (s *switched) put(place int, g guard) error {
	file, err := filepath.Abs(filepath.Join(s.dir, g.file))
	if err != nil {
		return err
	}
	if s.texts[file] == "" {
		source, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		s.texts[file] = string(source)
	}
	if n := strings.Count(s.texts[file], g.find); n != 1 {
		return fmt.Errorf("the text of the guard stands %d times in the file, not once", n)
	}
	off := fmt.Sprint("off", place)
	with := regexp.MustCompile(`\boff\b`).ReplaceAllString(g.with, off)
	if g.with == "" {
		with = "if !" + off + " {\n" + g.find + "\n}"
	}
	s.texts[file] = strings.Replace(s.texts[file], g.find, with, 1)
	switches := filepath.Join(filepath.Dir(file), "switches_of_guards.go")
	if s.texts[switches] == "" {
		s.texts[switches] = packageClause.FindString(s.texts[file]) + "\n\nimport \"os\"\n"
	}
	s.texts[switches] += fmt.Sprintf("\nvar %s = os.Getenv(%q) == %q\n", off, "GUARD_OFF", off)
	_, s.tests[place], _ = strings.Cut(g.test, " ")
	return nil
}

// build makes the test program and runs the tests of all guards once, while none is off: they must pass.
func (s *switched) build(ctx context.Context) error {
	var err error
	if s.folder, err = os.MkdirTemp("", "guards"); err != nil {
		return err
	}
	replace := map[string]string{}
	for file, text := range s.texts {
		replace[file] = filepath.Join(s.folder, fmt.Sprint(len(replace), ".go"))
		err = errors.Join(err, os.WriteFile(replace[file], []byte(text), 0o600))
	}
	overlay := filepath.Join(s.folder, "overlay.json")
	spec, _ := json.Marshal(map[string]any{"Replace": replace})
	if err = errors.Join(err, os.WriteFile(overlay, spec, 0o600)); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay="+overlay, "-o="+s.folder+"/test", s.pkg)
	cmd.Dir = s.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("does not build: %s", out)
	}
	if out, err := s.run(ctx, "", strings.Join(slices.Collect(maps.Values(s.tests)), "|"), time.Minute); err != nil {
		return fmt.Errorf("fails with its guards: %w\n%s", err, out)
	}
	return nil
}

// check returns an error unless the test of a guard runs, and fails while the guard is off. A busy machine may end
// a property early, so a test that passes is run a second time.
func (s *switched) check(ctx context.Context, place int, test string) error {
	for range 2 {
		out, err := s.run(ctx, fmt.Sprint("off", place), test, patience)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case strings.Contains(out, "\n--- FAIL: ") || strings.Contains(out, "panic: "):
			return nil
		case err != nil:
			return fmt.Errorf("%w: %s", err, out)
		case strings.Contains(out, "no tests to run"):
			return errors.New("no test ran")
		}
	}
	return errors.New("the test passes without the guard")
}

// run runs tests with a guard off and returns what they print. A failing property writes no file into the checkout.
func (s *switched) run(ctx context.Context, off, tests string, atMost time.Duration) (string, error) {
	cmd := exec.CommandContext(ctx, s.folder+"/test", "-test.v", "-test.timeout="+atMost.String(), "-test.run="+tests)
	cmd.Dir = filepath.Join(s.dir, s.pkg)
	cmd.Env = append(os.Environ(), "RAPID_NOFAILFILE=1", "RAPID_SHRINKTIME=1s", "GUARD_OFF="+off)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return "\n" + string(out), err
}
