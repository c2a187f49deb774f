package proxy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/internal/needed"
)

// analyze is the program that checks units.
const analyze = "systemd-analyze"

// program is the path of the binary in the unit.
const program = "/usr/local/bin/quotient"

// units are the units of systemd: that of the proxy, and that of the lease server.
var units = []string{"quotient.service", "../leases/quotient-leases.service"}

// unit returns the text of the proxy's unit.
func unit(t *testing.T) string {
	t.Helper()
	return read(t, units[0])
}

// verify runs systemd-analyze with the arguments on a unit of this text, and returns its output. The unit's
// program stands for one that exists.
func verify(t *testing.T, text string, args ...string) (string, error) {
	t.Helper()
	exe, err := exec.LookPath(analyze)
	if err != nil {
		needed.Without(t, analyze, analyze+" is not installed: nothing is known about the unit (apt-get "+
			"install systemd)")
	}
	self, err := os.Executable()
	must(t, err)
	file := filepath.Join(t.TempDir(), "quotient.service")
	must(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, program, self)), 0o600))
	out, err := exec.CommandContext(t.Context(), exe, append(args, file)...).CombinedOutput()
	return string(out), err
}

// TestUnitIsValid checks that systemd understands each line: it warns of others, and goes on.
func TestUnitIsValid(t *testing.T) {
	for _, name := range units {
		if out, err := verify(t, read(t, name), "verify"); err != nil || out != "" {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
	if out, err := verify(t, unit(t)+"ProtectSytem=strict\n", "verify"); err == nil && out == "" {
		t.Error("a line that is misspelt was not noticed")
	}
}

// TestUnitIsClosed checks that the service has little to do harm with. 0 is nothing, 10 is all that root
// has. Only the network is left.
func TestUnitIsClosed(t *testing.T) {
	const most = "15" // tenths
	for _, name := range units {
		out, err := verify(t, read(t, name), "security", "--offline=true", "--no-pager", "--threshold="+most)
		if err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
	text := unit(t)
	open := strings.Replace(text, "CapabilityBoundingSet=\n", "", 1)
	if open == text {
		t.Fatal("the unit sets no CapabilityBoundingSet")
	}
	_, err := verify(t, open, "security", "--offline=true", "--no-pager", "--threshold="+most)
	if err == nil {
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
