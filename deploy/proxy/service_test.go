package proxy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// required is the environment variable that lists, with commas, what must be there: a test fails without it
// rather than be skipped.
const required = "QUOTIENT_REQUIRE"

// analyze is the program that checks units.
const analyze = "systemd-analyze"

// program is the path of the binary in the unit.
const program = "/usr/local/bin/quotient"

// unit returns the text of the unit.
func unit(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("quotient.service")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// verify runs systemd-analyze with the arguments on a unit of this text, and returns its output. The unit's
// program stands for one that exists.
func verify(t *testing.T, text string, args ...string) (string, error) {
	t.Helper()
	exe, err := exec.LookPath(analyze)
	if err != nil {
		const missing = analyze + " is not installed: nothing is known about the unit (apt-get install systemd)"
		if slices.Contains(strings.Split(os.Getenv(required), ","), analyze) {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "quotient.service")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, program, self)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), exe, append(args, file)...).CombinedOutput()
	return string(out), err
}

// TestUnitIsValid holds that systemd understands each line: it warns of others, and goes on.
func TestUnitIsValid(t *testing.T) {
	text := unit(t)
	if out, err := verify(t, text, "verify"); err != nil || out != "" {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := verify(t, text+"ProtectSytem=strict\n", "verify"); err == nil && out == "" {
		t.Error("a line that is misspelt was not noticed")
	}
}

// TestUnitIsClosed holds that the service has little to do harm with. 0 is nothing, 10 is all that root has.
// What is left is the network.
func TestUnitIsClosed(t *testing.T) {
	text := unit(t)
	const most = "15" // tenths
	if out, err := verify(t, text, "security", "--offline=true", "--no-pager", "--threshold="+most); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	open := strings.Replace(text, "CapabilityBoundingSet=\n", "", 1)
	if open == text {
		t.Fatal("the unit sets no CapabilityBoundingSet")
	}
	if _, err := verify(t, open, "security", "--offline=true", "--no-pager", "--threshold="+most); err == nil {
		t.Error("a service with all capabilities is as closed")
	}
}

// settings returns the values of each setting of a unit, in order.
func settings(text string) map[string][]string {
	set := map[string][]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			set[name] = append(set[name], value)
		}
	}
	return set
}
