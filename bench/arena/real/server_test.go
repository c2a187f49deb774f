package real

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient/internal/needed"
)

// find returns the path of a server, which Debian keeps outside of the PATH of users. It skips the test where
// there is none.
func find(t *testing.T, name string) string {
	t.Helper()
	for _, at := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(at); err == nil {
			return path
		}
	}
	const text = "%[1]s is not installed: nothing is known about that upstream (apt-get install %[1]s)"
	needed.Without(t, name, fmt.Sprintf(text, name))
	return ""
}

// An answer is one line of an upstream's log.
type answer struct {
	at     time.Duration // since the start of the run
	status int
	who    int // the replica
}

func (a answer) served() bool { return a.status == http.StatusOK || a.status == http.StatusNoContent }

// A server is an upstream that can be queried once, at its end, for its answers since the start of a run.
type server struct {
	url     string
	speaks  string // the host as whose its answers are read; "" for its own
	answers func(begin time.Time) []answer
}

// launch starts a server on a port of the loopback interface. prepare writes its configuration into a folder
// and returns its command line. The port is looked for first, so another program may take it meanwhile: it is
// tried again. The server writes its log, and nothing else, on its standard output or error, and is ended to
// read it. unit is that of its instants.
func launch(t *testing.T, unit time.Duration, prepare func(dir string, port int) (command []string)) server {
	t.Helper()
	for range 3 {
		port, dir := freePort(t), t.TempDir()+"/"
		p := start(t, nil, append([]string{keeperArg}, prepare(dir, port)...)...)
		if serves(p, port) {
			return server{fmt.Sprintf("http://127.0.0.1:%d/ok", port), "", func(begin time.Time) []answer {
				if err := p.stop(); err != nil {
					t.Fatal(err)
				}
				return logged(t, p.stderr.String(), begin, unit)
			}}
		}
		t.Logf("did not start: %v", p.stop())
	}
	t.Fatal("a server did not start three times")
	return server{}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Clean(file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// serves waits until a program answers on the port, and returns whether that is before the process ends.
func serves(p *process, port int) bool {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for deadline := time.After(10 * time.Second); ; {
		if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = conn.Close()
			return true
		}
		select {
		case <-look.C:
		case <-p.done:
			return false
		case <-deadline:
			return false
		}
	}
}

// logged reads a log: in each line an instant since 1970, a status, a replica, and possibly how many requests
// came before.
func logged(t *testing.T, log string, begin time.Time, unit time.Duration) (all []answer) {
	t.Helper()
	for line := range strings.Lines(log) {
		var at float64
		var before int
		var a answer
		n, err := fmt.Sscan(line, &at, &a.status, &a.who, &before)
		if n < 3 {
			t.Fatalf("%q: %v", line, err)
		}
		if n > 3 && before != len(all) {
			t.Fatalf("line %d of the log is about request %d: lines were lost", len(all), before)
		}
		a.at = time.Unix(0, int64(at*float64(unit))).Sub(begin)
		all = append(all, a)
	}
	return all
}
