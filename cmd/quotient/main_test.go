package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// asProgram is the environment variable that makes a test's binary the program itself. So what is tested has
// the race detector, and the files that a guard has changed.
const asProgram = "QUOTIENT_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// program returns a command that runs the program.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), asProgram+"=yes")
	return cmd
}

// onPath returns a folder in which the program is called quotient.
func onPath(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(path, filepath.Join(dir, "quotient")); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	return dir
}
