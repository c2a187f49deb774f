package proxy

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient/config"
)

// TestLeaseFlagsOfThePage compares the table of flags with what the program says of them.
func TestLeaseFlagsOfThePage(t *testing.T) {
	help, err := run(t, t.TempDir(), "leases", "--help")
	if err != nil {
		t.Fatalf("%v: %s", err, help)
	}
	says := map[string]string{}
	_, help, _ = strings.Cut(help, "\nFlags:\n")
	parts := regexp.MustCompile(`(?m)^ {2,6}(?:-[a-z], )?(--[a-z-]+)(?:=\S+)? `).
		FindAllStringSubmatchIndex(help, -1)
	for i, at := range parts {
		end := len(help)
		if i+1 < len(parts) {
			end = parts[i+1][0]
		}
		says[help[at[2]:at[3]]] = help[at[1]:end]
	}
	delete(says, "--help")
	for _, m := range flagRow.FindAllStringSubmatch(read(t, leasesPage), -1) {
		name, value := m[1], strings.Trim(m[2], "`")
		text, ok := says[name]
		if named := value != "none" && !strings.HasPrefix(value, "from "); !ok ||
			named && !strings.Contains(text, value) {
			t.Errorf("the page has %s with the default %s, the program says %q", name, value, text)
		}
		delete(says, name)
	}
	if len(says) > 0 {
		t.Errorf("the page lacks %v", says)
	}
}

var flagRow = regexp.MustCompile("(?m)^\\| `(--[a-z-]+)` \\| ([^|]+) \\|")

// TestLeaseMetricsOfThePage compares the metrics of the page with those of a server.
func TestLeaseMetricsOfThePage(t *testing.T) {
	_, scrape := get(t, startLeases(t)+"/metrics")
	names := func(pattern, text string) (all []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, m[1])
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	has := names(`(?m)^# TYPE ((?:throttle|quotient_lease)_\w+) `, scrape)
	shown := names("`((?:throttle|quotient_lease)_\\w+)`", read(t, leasesPage))
	if len(has) < 16 || !slices.Equal(has, shown) {
		t.Errorf("only in the program %q, only on the page %q", without(has, shown), without(shown, has))
	}
}

// TestFilesOfTheLeasesPage checks that each file of the page has a name and is well.
func TestFilesOfTheLeasesPage(t *testing.T) {
	files := blocksOf(t, leasesPage, "toml")
	for _, b := range files {
		name, _, _ := strings.Cut(strings.TrimPrefix(b.text, "# "), "\n")
		f, err := config.ParseAny(name, []byte(b.text))
		if err != nil || f.Leases == nil || len(f.Leases.Semaphores) == 0 || len(f.Warnings) > 0 {
			t.Errorf("%s:%d: %v, %+v", leasesPage, b.line, err, f)
		}
	}
	if least := 3; len(files) < least {
		t.Errorf("%d files, want %d at least", len(files), least)
	}
}

// startLeases starts a lease server, and returns its URL when it is ready.
func startLeases(t *testing.T) string {
	t.Helper()
	listen := free(t)
	host, port, _ := net.SplitHostPort(listen)
	cmd := exec.Command(binary(t), "leases", "-s", "A=1", "--address", host, "--port", port)
	cmd.Dir = t.TempDir()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	deadline := time.Now().Add(20 * time.Second)
	for ; time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		resp, err := client.Get("http://" + listen + "/ready")
		if err == nil {
			_ = resp.Body.Close()
		}
		if err == nil && resp.StatusCode == http.StatusOK {
			return "http://" + listen
		}
	}
	t.Fatal("it is not ready after 20 s")
	return ""
}
