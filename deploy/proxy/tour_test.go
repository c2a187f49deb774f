package proxy

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient/config"
)

// commandPage is the README of the command.
const commandPage = "../../cmd/quotient/README.md"

// folder is a directory with the files that the page's commands name.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{}
	for _, b := range blocks(t, "toml") {
		name := "quotient.toml" // the first
		if strings.HasPrefix(b.text, "# broken.toml\n") {
			name = "broken.toml"
		}
		if files[name] == "" {
			files[name] = b.text
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// run runs the program with arguments, and returns what it prints.
func run(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t), args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestCommandsOfThePage checks that the program takes each command of the page, of the command's README, and
// of the files beside it. A proxy is not started: its flags are printed as a file, or the file that they name
// is checked.
func TestCommandsOfThePage(t *testing.T) {
	dir, seen := folder(t), 0
	for _, b := range blocks(t, "console") {
		for _, c := range commands(b.text) {
			args, ours := strings.CutPrefix(c.line, "quotient ")
			if !ours {
				continue
			}
			seen++
			checkCommand(t, dir, strings.Fields(args), c.answer)
		}
	}
	for _, b := range blocksOf(t, commandPage, "console") {
		for _, c := range commands(b.text) {
			if args := strings.Fields(c.line)[1:]; args[0] != "leases" { // that would start a server
				seen++
				checkCommand(t, dir, args, c.answer)
			}
		}
	}
	if least := 13; seen < least {
		t.Errorf("%d commands, want %d at least", seen, least)
	}
	checkCommand(t, ".", []string{"proxy", "--config", "quotient.toml"}, "")
	for dir := range variants {
		checkCommand(t, t.TempDir(), []string{"check", abs(t, filepath.Join(of(dir), "quotient.toml"))}, "")
	}
}

// of is the folder with the file of a variant.
func of(dir string) string {
	if _, err := os.Stat(filepath.Join(dir, "quotient.toml")); err == nil {
		return dir
	}
	return "kustomize/base"
}

func abs(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// checkCommand runs one command, or what stands for it, and compares what it prints with what the page shows.
func checkCommand(t *testing.T, dir string, args []string, want string) {
	t.Helper()
	shown := strings.Join(args, " ")
	switch {
	case args[0] == "proxy" && args[1] == "--config":
		args = []string{"check", args[2]}
	case args[0] == "proxy" && !strings.Contains(shown, "--print-config"):
		args = append([]string{"proxy", "--print-config"}, args[1:]...)
	}
	out, err := run(t, dir, args...)
	if broken := strings.Contains(shown, "broken"); (err != nil) != broken {
		t.Errorf("quotient %s: %v: %s", shown, err, out)
		return
	}
	if args[0] == "proxy" {
		if _, err := config.Parse("printed", []byte(out)); err != nil {
			t.Errorf("quotient %s: %v in\n%s", shown, err, out)
		}
	}
	// The program may name a file by its whole path.
	if got := strings.ReplaceAll(out, dir+"/", ""); want != "" && got != want {
		t.Errorf("quotient %s prints\n%s\nthe page has\n%s", shown, got, want)
	}
}

// free returns an address on which nothing listens.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts the program and waits until it is ready.
func start(t *testing.T, admin string, args ...string) {
	t.Helper()
	cmd := exec.Command(binary(t), args...)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		err := cmd.Wait()
		if err != nil || t.Failed() || !strings.Contains(log.String(), "overhead of requests") {
			t.Errorf("it ended with %v, and logged: %s", err, log.String())
		}
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	deadline := time.Now().Add(20 * time.Second)
	for ; time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		resp, err := client.Get("http://" + admin + "/ready")
		if err == nil {
			_ = resp.Body.Close()
		}
		if err == nil && resp.StatusCode == http.StatusOK {
			return
		}
	}
	t.Fatal("it is not ready after 20 s")
}

// TestTour plays the first limit of the page: its command, and what its curl prints.
func TestTour(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed: the tour is not played (apt-get install curl)")
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	listen, admin := free(t), free(t)
	const shown = "quotient proxy --rpm 5 --refuse localhost:8080"
	answer(t, shown) // the page has it
	start(t, admin, "proxy", "--rpm", "5", "--refuse", "--listen", listen, "--admin", admin, upstream.URL)
	for _, b := range blocks(t, "console") {
		for _, c := range commands(b.text) {
			if !strings.HasPrefix(c.line, "curl ") {
				continue
			}
			line := strings.ReplaceAll(c.line, "localhost:4040", listen)
			if got := within1Minute(t, line); squeeze(got) != squeeze(c.answer) {
				t.Errorf("%s prints\n%s\nthe page has\n%s", line, got, c.answer)
			}
		}
	}
}

// TestRefusalOfThePage compares the answer on the page, but for its times, with one of the program, and the
// metrics of the page with those that it has then.
func TestRefusalOfThePage(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	listen, admin := free(t), free(t)
	start(t, admin, "proxy", "--rpm", "1", "--refuse", "--listen", listen, "--admin", admin, upstream.URL)
	var got string
	for range 3 { // a minute of the clock may begin between two requests
		if status, text := get(t, "http://"+listen+"/"); status == http.StatusTooManyRequests {
			got = text
			break
		}
	}
	seconds := regexp.MustCompile(`\d+( seconds?|})`)
	spaces := regexp.MustCompile(`\s+("|})|(:) `)
	want := spaces.ReplaceAllString(blocks(t, "json")[0].text, "$1$2")
	plain := func(s string) string { return strings.TrimSpace(seconds.ReplaceAllString(s, "n")) }
	if plain(got) != plain(want) {
		t.Errorf("refused with\n%s\nthe page has\n%s", plain(got), plain(want))
	}
	_, scrape := get(t, "http://"+admin+"/metrics")
	names := metricRow.FindAllStringSubmatch(read(t, page), -1)
	for _, m := range names {
		if !strings.Contains(scrape, "\n# TYPE "+m[1]+" ") {
			t.Errorf("there is no metric %s in\n%s", m[1], scrape)
		}
	}
	if len(names) < 3 {
		t.Errorf("%d metrics, want 3 at least", len(names))
	}
}

var metricRow = regexp.MustCompile("(?m)^\\| `(quotient_[a-z_]+)` \\|")

// get returns the status and the body of an answer.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// squeeze is text with one space where there are several: uniq has its own columns.
func squeeze(s string) string { return regexp.MustCompile(`[ \t]+`).ReplaceAllString(s, " ") }

// within1Minute runs a line of the shell, again if a minute of the clock began meanwhile.
func within1Minute(t *testing.T, line string) string {
	t.Helper()
	for range 3 {
		minute := time.Now().Truncate(time.Minute)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if time.Now().Truncate(time.Minute).Equal(minute) {
			return string(out)
		}
	}
	t.Fatal("a minute of the clock began during each of three attempts")
	return ""
}
