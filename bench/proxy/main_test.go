package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/internal/needed"
)

// TestMain lets the test program be what it starts: a keeper, or a bare proxy.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case keeperArg:
			os.Exit(keeperMain(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case bareArg:
			os.Exit(bareMain(os.Args[2:], os.Stderr))
		}
	}
	dir, err := os.MkdirTemp("", "quotient-proxy-")
	if err != nil {
		panic(err)
	}
	built.dir = dir
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// built is the program quotient, which is built once.
var built struct {
	once sync.Once
	dir  string
	file string
	err  error
}

// program returns it.
func program(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("short: the program quotient is not built")
	}
	built.once.Do(func() { built.file, built.err = build(t.Context(), built.dir) })
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.file
}

// needs skips the test unless these programs are installed.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := find(program); err != nil {
			needed.Without(t, program, err.Error())
		}
	}
}

func TestBadFlagsAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"-rounds 0": "-rounds: 0 is not between 1 and 100", "-slice 99ms": "-slice: 99",
		"-window 2m": "-window: 120000", "-windows 11": "-windows: 11", "-blocked 15001": "-blocked: 15001",
		"-hostile 1": "-hostile: 1", "-quiet 1h": "-quiet: 3600000", "-reloads 9": "-reloads: 9",
		"-only fleet,speed": `-only: no figure is called "speed"`,
		"more":              `unexpected argument "more"`,
		"-nothing":          "not defined: -nothing",
	} {
		var out, errs bytes.Buffer
		if code := command(strings.Fields(args), &out, &errs); code != 2 ||
			!strings.Contains(errs.String(), want) || out.Len() > 0 {
			t.Errorf("%s: %d %q", args, code, errs.String())
		}
	}
}

// TestAFigureThatFailsIsNamed checks that it is no figure, and that the others are measured.
func TestAFigureThatFailsIsNamed(t *testing.T) {
	saved := figures
	defer func() { figures = saved }()
	figures = slices.Clone(figures[:2])
	luck := errors.New("no luck")
	figures[0].run = func(*bench, context.Context) (section, error) { return section{}, luck }
	figures[1].run = func(*bench, context.Context) (section, error) { return section{title: "fine"}, nil }
	var out, errs bytes.Buffer
	code := command([]string{"-quotient", "none"}, &out, &errs)
	named := strings.Contains(errs.String(), "throughput: no luck")
	if code != 2 || !named || !strings.Contains(out.String(), "## fine") {
		t.Errorf("%d %q %q", code, out.String(), errs.String())
	}
}

// TestReportIsWritten holds what the exit status says, and that -out gets what stdout gets.
func TestReportIsWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.md")
	fine := []section{{title: "one", verdicts: []verdict{exactly("a", 1, 1)}}}
	missed := append(fine, section{title: "two", verdicts: []verdict{exactly("b", 1, 2)}})
	for _, c := range []struct {
		what string
		b    bench
		all  []section
		code int
	}{
		{"met", bench{out: file}, fine, 0},
		{"missed", bench{out: file}, missed, 1},
		{"missed, and only reported", bench{report: true}, missed, 0},
		{"a figure without goals", bench{}, []section{{title: "none"}}, 1},
		{"no such folder", bench{out: filepath.Join(file, "x")}, fine, 2},
	} {
		var out, errs bytes.Buffer
		if code := c.b.write(c.all, &out, &errs); code != c.code || (code == 2) != (errs.Len() > 0) {
			t.Errorf("%s: %d %q", c.what, code, errs.String())
		}
		if c.b.out != file {
			continue
		}
		if text, err := os.ReadFile(file); err != nil || !bytes.Equal(text, out.Bytes()) ||
			bytes.Contains(text, []byte("MISSED")) != (c.code == 1) {
			t.Errorf("%s: %v\n%s", c.what, err, text)
		}
	}
}

// TestAKeeperEndsItsServer checks that a server ends with its keeper's input, in order or by force.
func TestAKeeperEndsItsServer(t *testing.T) {
	var pid, said bytes.Buffer
	if status := keeperMain([]string{"sleep", "600"}, strings.NewReader(""), &pid, &said); status != 0 ||
		said.Len() > 0 || pid.Len() == 0 {
		t.Errorf("status %d, process %q: %s", status, pid.String(), said.String())
	}
	open, input := io.Pipe()
	defer input.Close()
	if status := keeperMain([]string{"false"}, open, &pid, &said); status != 1 {
		t.Errorf("a server that fails: status %d", status)
	}
	if status := keeperMain([]string{"/nowhere/to/be/found"}, open, &pid, &said); status != 1 {
		t.Errorf("no server: status %d", status)
	}
}

// TestAServerThatFailsIsNamed checks that the error has what the server wrote, and that no process is left.
func TestAServerThatFailsIsNamed(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	fails := func(string, int) ([]string, error) {
		return []string{sh, "-c", "echo no luck >&2; exit 3"}, nil
	}
	_, err = launch(t.Context(), "a server", fails)
	if err == nil || !strings.Contains(err.Error(), "no luck") ||
		!strings.Contains(err.Error(), "a server does not start") {
		t.Error(err)
	}
	p, err := start(t.TempDir(), "sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := memoryOf(p.pid); err != nil || m.own <= 0 || m.resident < m.own || m.most < m.resident {
		t.Error(m, err)
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	if _, err := memoryOf(p.pid); err == nil {
		t.Error("the server is there after its end")
	}
	if err := p.signal(os.Interrupt); err == nil {
		t.Error("a server that has ended takes a signal")
	}
}

// small is a bench that takes seconds.
var small = bench{
	rounds: 1, keys: 20, slice: 300 * time.Millisecond, window: 2500 * time.Millisecond, windows: 1, paths: 2,
	blocked: 300, hostile: 2000, quiet: time.Second, reloads: 30,
}

// live is a small bench of the real program.
func live(t *testing.T) *bench {
	t.Helper()
	b := small
	b.quotient = program(t)
	return &b
}
