package proxy

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/needed"
	"github.com/quotient-go/quotient/internal/tested"
)

// entries returns the values of each name in a Dockerfile or a unit, in lines, without the comments.
func entries(text, separator string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), separator)
		if ok && !strings.HasPrefix(name, "#") {
			found[name] = strings.TrimPrefix(found[name]+"\n"+value, "\n")
		}
	}
	return found
}

// dir is where the program is built.
var dir string

var image = flag.Bool("image", false, "test the image's program, which takes minutes to build with an empty cache")

// made builds the program once, for all tests of this run: with -image as the Dockerfile does, but for the path of the
// result, and else as other tests of the workspace do, whose packages it shares.
var made = sync.OnceValues(func() (exe string, err error) {
	exe = filepath.Join(dir, "quotient")
	run := "go build -o /quotient ./cmd/quotient"
	if *image {
		text, err := os.ReadFile("Dockerfile")
		if err != nil {
			return "", err
		}
		run = entries(string(text), " ")["RUN"]
	}
	if strings.Contains(run, "\n") || !strings.Contains(run, " -o /quotient ") {
		return "", fmt.Errorf("RUN is %q, want one line that builds /quotient", run)
	}
	build := exec.Command("sh", "-c", strings.Replace(run, " /quotient ", " "+exe+" ", 1))
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return exe, nil
})

// binary is the program.
func binary(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("the program is not built with -short")
	}
	exe, err := made()
	must(t, err)
	return exe
}

// TestImageBuilds checks that the image's one command makes a program that needs no library, and that it
// runs.
func TestImageBuilds(t *testing.T) {
	if !*image {
		t.Skip("it compiles everything anew: make image does")
	}
	out, err := run(t, ".", "version")
	if err != nil || !strings.HasPrefix(out, "quotient ") {
		t.Errorf("%v: %s", err, out)
	}
	build, err := exec.CommandContext(t.Context(), "go", "version", "-m", binary(t)).CombinedOutput()
	if err != nil || !strings.Contains(string(build), "CGO_ENABLED=0") || !strings.Contains(string(build), "-trimpath=true") {
		t.Errorf("%v: %s", err, build)
	}
}

// TestImageHoldsLittle checks that the last stage is empty but for the program and certificates, that it runs as a
// user that is none of the system's, since Kubernetes cannot see that a name is not root, and that the program is one
// for the image's platform.
func TestImageHoldsLittle(t *testing.T) {
	lines := entries(read(t, "Dockerfile"), " ")
	if from := lines["FROM"]; strings.Count(from, "\n") != 1 || !strings.HasSuffix(from, "\nscratch") {
		t.Errorf("FROM is %q, want a stage that builds and scratch", from)
	}
	for name, want := range map[string]string{
		"USER": "65532:65532", "ENTRYPOINT": `["/quotient"]`, "ARG": "TARGETOS TARGETARCH",
		"COPY": ". .\n--from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/\n" +
			"--from=build /quotient /quotient",
	} {
		if got := lines[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if run := lines["RUN"]; !strings.Contains(run, " GOOS=$TARGETOS GOARCH=$TARGETARCH ") {
		t.Errorf("RUN is %q, which builds for the platform of the builder alone", run)
	}
}

func TestMain(m *testing.M) {
	var err error
	if dir, err = os.MkdirTemp("", "quotient"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

var must = tested.Must

// analyze is the program that checks units.
const analyze = "systemd-analyze"

// program is the path of the binary in the unit.
const program = "/usr/local/bin/quotient"

// units are the units of systemd: that of the proxy, and that of the lease server.
var units = []string{"quotient.service", "../leases/quotient-leases.service"}

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

// TestUnitsAreValidAndClosed checks that systemd understands each line, since it only warns of others, and that
// the services have little to do harm with. 0 is nothing, 10 is all that root has. Only the network is left.
func TestUnitsAreValidAndClosed(t *testing.T) {
	for _, name := range units {
		if out, err := verify(t, read(t, name), "verify"); err != nil || out != "" {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		const most = "15" // tenths
		out, err := verify(t, read(t, name), "security", "--offline=true", "--no-pager", "--threshold="+most)
		if err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// TestUnitsAgreeWithTheirFiles checks that the services read the files that their comments install, and get the
// time, descriptors and memory that those need.
func TestUnitsAgreeWithTheirFiles(t *testing.T) {
	f, err := config.Parse("quotient.toml", []byte(read(t, "quotient.toml")))
	must(t, err)
	l := leasesOf(t, "../leases/quotient.toml")
	if l.Grace <= 0 || l.Election != nil || len(l.Semaphores) == 0 {
		t.Errorf("the file has grace %v, election %v, %d semaphores", l.Grace, l.Election, len(l.Semaphores))
	}
	for i, want := range []struct {
		start string
		stop  time.Duration
		files int
	}{
		{"proxy --config /etc/quotient/quotient.toml", f.Proxy.Timeouts.Shutdown, 2 * f.Proxy.Max.Connections},
		{"leases --admin 127.0.0.1:4042 -c /etc/quotient/leases.toml", time.Second, leaseConnections},
	} {
		set := entries(read(t, units[i]), "=")
		if got := set["ExecStart"]; got != program+" "+want.start || set["ExecReload"] != "/bin/kill -HUP $MAINPID" {
			t.Errorf("ExecStart is %q, ExecReload %q", got, set["ExecReload"])
		}
		stop, err := strconv.Atoi(set["TimeoutStopSec"])
		if err != nil || time.Duration(stop)*time.Second <= want.stop {
			t.Errorf("TimeoutStopSec is %d, a shutdown may take %v: %v", stop, want.stop, err)
		}
		files, err := strconv.Atoi(set["LimitNOFILE"])
		if err != nil || files < want.files+1000 {
			t.Errorf("LimitNOFILE is %d for %d connections: %v", files, want.files, err)
		}
	}
	memory := resource.MustParse(entries(read(t, units[0]), "=")["MemoryMax"] + "i")
	most := memory.Value()
	need := int64(f.Proxy.Max.Connections)*connectionCost + int64(f.Proxy.Max.HeldBytes)
	if need > most*9/10 {
		t.Errorf("MemoryMax is %d MiB, %d MiB may be needed", most>>20, need>>20)
	}
}
