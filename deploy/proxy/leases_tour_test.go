package proxy

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-go/quotient/internal/needed"
)

// leasesPage is the page of leases.
const leasesPage = "../../docs/leases.md"

// TestLeasesTour plays each command of docs/leases.md with the real program, all in one shell and in order,
// and compares what it prints with the page.
func TestLeasesTour(t *testing.T) {
	for _, program := range []string{"bash", "curl", "etcd"} {
		if _, err := exec.LookPath(program); err != nil {
			needed.Without(t, program, program+" is not installed: the tour is not played")
		}
	}
	moved, back := ports(t)
	var typed []command
	for _, b := range blocksOf(t, leasesPage, "console") {
		typed = append(typed, commands(b.text)...)
	}
	t.Setenv("ETCD_LISTEN_CLIENT_URLS", moved.Replace("http://127.0.0.1:2379"))
	t.Setenv("ETCD_ADVERTISE_CLIENT_URLS", moved.Replace("http://127.0.0.1:2379"))
	t.Setenv("ETCD_LISTEN_PEER_URLS", moved.Replace("http://127.0.0.1:2380"))
	t.Setenv("ETCD_INITIAL_ADVERTISE_PEER_URLS", moved.Replace("http://127.0.0.1:2380"))
	t.Setenv("ETCD_INITIAL_CLUSTER", moved.Replace("default=http://127.0.0.1:2380"))
	printed := play(t, leasesFolder(t, moved), typed, moved)
	for i, c := range typed {
		if got := back.Replace(printed[i]); plainNumbers(got) != plainNumbers(c.answer) {
			t.Errorf("%s prints\n%s\nthe page has\n%s", c.line, got, c.answer)
		}
	}
	if least := 30; len(typed) < least {
		t.Errorf("%d commands, want %d at least", len(typed), least)
	}
}

// ports returns what replaces the ports of the page by some that are free, and what does the opposite.
func ports(t *testing.T) (moved, back *strings.Replacer) {
	t.Helper()
	var there, here []string
	for _, p := range []string{"8000", "8001", "8002", "4042", "2379", "2380"} {
		_, port, err := net.SplitHostPort(free(t))
		if err != nil {
			t.Fatal(err)
		}
		there, here = append(there, p, port), append(here, port, p)
	}
	return strings.NewReplacer(there...), strings.NewReplacer(here...)
}

// leasesFolder is a directory with the files of the page, each named in its first line.
func leasesFolder(t *testing.T, moved *strings.Replacer) string {
	t.Helper()
	dir := t.TempDir()
	for _, b := range blocksOf(t, leasesPage, "toml") {
		name, _, _ := strings.Cut(strings.TrimPrefix(b.text, "# "), "\n")
		if filepath.Ext(name) != ".toml" {
			t.Errorf("%s:%d: the file has no name in its first line", leasesPage, b.line)
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(moved.Replace(b.text)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// prelude is what a shell needs so that it can go on where a reader would look and wait. A listener has 20
// s.
const prelude = `
trap 'kill -9 $(jobs -p) 2>/dev/null' EXIT
curl() { command curl -m 15 "$@"; }
await() { for _ in $(seq 400); do curl -sf "localhost:$1/health" >/dev/null && return; sleep .05; done; }
`

// mark stands between what two commands print.
const mark = "@@@ next @@@\n"

var (
	portOfLine = regexp.MustCompile(`^quotient leases .*--port (\d+)`)
	long16     = regexp.MustCompile(`\d{16,}`)
)

// play types lines into one shell, and returns what each prints.
func play(t *testing.T, dir string, typed []command, moved *strings.Replacer) []string {
	t.Helper()
	script := prelude
	for _, c := range typed {
		line := c.line
		if strings.HasPrefix(line, "quotient leases") && !portOfLine.MatchString(line) {
			line = strings.Replace(line, "quotient leases", "quotient leases --port 8000", 1)
		}
		script += moved.Replace(line) + "\n"
		if m := portOfLine.FindStringSubmatch(line); m != nil {
			script += moved.Replace("await " + m[1] + "\n")
		} else if strings.HasPrefix(line, "etcd ") {
			script += moved.Replace("await 2379\n")
		}
		script += "printf '" + strings.ReplaceAll(mark, "\n", `\n`) + "'\n"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", script)
	shell.Dir, shell.WaitDelay = dir, 5*time.Second
	// it ends what it has started
	shell.Cancel = func() error { return shell.Process.Signal(syscall.SIGTERM) }
	shell.Env = append(os.Environ(), "PATH="+filepath.Dir(binary(t))+string(filepath.ListSeparator)+
		os.Getenv("PATH"))
	var out, log bytes.Buffer
	shell.Stdout, shell.Stderr = &out, &log
	err := shell.Run()
	printed := strings.Split(out.String(), mark)
	if len(printed) != len(typed)+1 {
		t.Fatalf("%v: %d of %d commands have ended: %s%s", err, len(printed)-1, len(typed), out.String(),
			log.String())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the shell: %s", log.String())
		}
	})
	return printed
}

// plainNumbers is text with one name for each long number: tokens, and the ids of peers.
func plainNumbers(s string) string { return long16.ReplaceAllString(squeeze(s), "N") }
