package proxy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// instructions returns the lines of the Dockerfile by their instruction, without comments.
func instructions(t *testing.T) map[string][]string {
	t.Helper()
	lines := map[string][]string{}
	for line := range strings.Lines(read(t, "Dockerfile")) {
		if name, rest, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !strings.HasPrefix(name, "#") {
			lines[name] = append(lines[name], rest)
		}
	}
	return lines
}

// made is what buildOnce has made, for all tests of this run.
var made struct {
	sync.Once
	exe string
	err error
}

// binary is the program as the Dockerfile builds it: its own command, but for the path of the result.
func binary(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("the program is not built with -short")
	}
	run := instructions(t)["RUN"]
	if len(run) != 1 || !strings.Contains(run[0], " -o /quotient ") {
		t.Fatalf("RUN is %q, want one line that builds /quotient", run)
	}
	made.Do(func() {
		dir, err := os.MkdirTemp("", "quotient")
		if err != nil {
			made.err = err
			return
		}
		made.exe = filepath.Join(dir, "quotient")
		build := exec.Command("sh", "-c", strings.Replace(run[0], " /quotient ", " "+made.exe+" ", 1))
		build.Dir = "../.."
		if out, err := build.CombinedOutput(); err != nil {
			made.err = errors.Join(err, errors.New(string(out)))
		}
	})
	if made.err != nil {
		t.Fatal(made.err)
	}
	return made.exe
}

// TestImageBuilds checks that the image's one command makes a program that needs no library, and that it
// runs.
func TestImageBuilds(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), binary(t), "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "quotient ") {
		t.Errorf("%v: %s", err, out)
	}
	build, err := exec.CommandContext(t.Context(), "go", "version", "-m", binary(t)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, build)
	}
	for _, want := range []string{`CGO_ENABLED=0`, `-trimpath=true`} {
		if !strings.Contains(string(build), want) {
			t.Errorf("built without %s: %s", want, build)
		}
	}
}

// TestImageHoldsLittle checks that the last stage is empty but for the program and certificates, and that it
// runs as a user that is none of the system's.
func TestImageHoldsLittle(t *testing.T) {
	lines := instructions(t)
	from := lines["FROM"]
	if len(from) != 2 || from[1] != "scratch" {
		t.Errorf("FROM is %q, want a stage that builds and scratch", from)
	}
	user := regexp.MustCompile(`^[1-9]\d{4}:[1-9]\d{4}$`)
	if got := lines["USER"]; len(got) != 1 || !user.MatchString(got[0]) {
		t.Errorf("USER is %q, want numbers: Kubernetes cannot see that a name is not root", got)
	}
	want := []string{
		". .",
		"--from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/", "--from=build /quotient /quotient",
	}
	if got := lines["COPY"]; !slices.Equal(got, want) {
		t.Errorf("COPY is %q, want %q", got, want)
	}
	if got := lines["ENTRYPOINT"]; len(got) != 1 || got[0] != `["/quotient"]` {
		t.Errorf("ENTRYPOINT is %q: there is no shell", got)
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	if made.exe != "" {
		_ = os.RemoveAll(filepath.Dir(made.exe))
	}
	os.Exit(code)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
