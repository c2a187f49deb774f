//go:build unix

package readme

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A block is a fenced block of a page.
type block struct {
	heading  string // the nearest heading above it
	language string
	text     string
}

// blocks returns the fenced blocks of a page, in order.
func blocks(text string) (all []block) {
	heading, open := "", false
	for line := range strings.Lines(text) {
		fenced := strings.HasPrefix(line, "```")
		switch {
		case fenced && !open:
			all = append(all, block{heading: heading, language: strings.TrimSpace(line[3:])})
			open = true
		case fenced:
			open = false
		case open:
			all[len(all)-1].text += line
		case strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	return all
}

// A typed is one command of a page, with the output that the page shows.
type typed struct{ command, prints string }

// commands returns the commands of a block of shell: each line of "sh", which may show its output after "  # ", and
// each line after "$ " of "console". A backslash at a line's end continues it.
func commands(b block) (all []typed) {
	for line := range strings.Lines(strings.ReplaceAll(b.text, "\\\n", "")) {
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case b.language == "sh":
			line, prints, _ := strings.Cut(line, "  # ")
			all = append(all, typed{line, prints})
		case isCommand:
			all = append(all, typed{command: command})
		default:
			all[len(all)-1].prints += line
		}
	}
	return all
}

// A shell is a bash that runs one command after the other, as a reader does in a terminal.
type shell struct {
	t     *testing.T
	stdin io.Writer
	lines *bufio.Reader
}

// newShell starts a bash in dir. Everything that it started ends with the test.
func newShell(t *testing.T, dir string, env ...string) *shell {
	t.Helper()
	for _, program := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	cmd := exec.CommandContext(ctx, "bash")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	return &shell{t, in, bufio.NewReader(out)}
}

const ended = "@@@@ ended with "

// run runs one command and returns what it printed. A command that fails ends the test.
func (s *shell) run(command string) string {
	s.t.Helper()
	fmt.Fprintf(s.stdin, "{ %s\n} </dev/null\nprintf '\\n%s%%s\\n' $?\n", command, ended)
	var printed strings.Builder
	for {
		line, err := s.lines.ReadString('\n')
		if status, over := strings.CutPrefix(line, ended); over {
			if status != "0\n" {
				s.t.Fatalf("%s\nends with status %s and prints:\n%s", command, status, printed.String())
			}
			return strings.TrimSuffix(printed.String(), "\n")
		}
		if printed.WriteString(line); err != nil {
			s.t.Fatalf("%s\n%v after:\n%s", command, err, printed.String())
		}
	}
}

// freeAddr returns an address of the loopback on which nothing listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return fmt.Sprintf("localhost:%d", l.Addr().(*net.TCPAddr).Port)
}

// awaitListener waits until something listens at an address. It may have to be built first, from empty caches.
func awaitListener(t *testing.T, addr string) {
	t.Helper()
	for start := time.Now(); time.Since(start) < 8*time.Minute; time.Sleep(20 * time.Millisecond) {
		if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			_ = c.Close()
			return
		}
	}
	t.Fatalf("nothing listens at %s", addr)
}

// A player plays the shell blocks of one page in order.
type player struct {
	page   string
	here   *strings.Replacer     // the page's addresses by those of this test
	server func(string) []string // the addresses at which a command will serve; nil for one that ends
	before func(b block)         // what happens at a block of another language; may be nil
	after  map[string]func()     // the checks after the last command below a heading; nil for none wanted
	same   func(got, want string) bool
}

// play runs every command of the page, and compares what it prints with the page.
func (p *player) play(t *testing.T, s *shell) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, p.page))
	if err != nil {
		t.Fatal(err)
	}
	all := blocks(string(text))
	for i, b := range all {
		switch b.language {
		case "sh", "console":
		case "bash", "shell", "zsh":
			t.Errorf("%s: a block of %s is not run", p.page, b.language)
		default:
			if p.before != nil {
				p.before(b)
			}
			continue
		}
		for _, c := range commands(b) {
			p.one(t, s, c)
		}
		if last := i+1 == len(all) || all[i+1].heading != b.heading; p.after != nil && last {
			if check := p.after[b.heading]; check == nil {
				t.Errorf("%s: no check of what %q does", p.page, b.heading)
			} else {
				check()
			}
			delete(p.after, b.heading)
		}
	}
	for heading := range p.after {
		t.Errorf("%s: no commands below %q", p.page, heading)
	}
}

// one runs one command.
func (p *player) one(t *testing.T, s *shell, c typed) {
	t.Helper()
	command := strings.TrimSpace(c.command)
	if strings.Contains(command, " & ") {
		t.Errorf("%s: Ctrl-C does not end what %s has started", p.page, command)
	}
	if addresses := p.server(command); addresses != nil {
		s.run(p.here.Replace(command) + " &>'" + filepath.Join(t.TempDir(), "log") + "' &")
		for _, addr := range addresses {
			awaitListener(t, p.here.Replace(addr))
		}
		return
	}
	got := s.run(p.here.Replace(command))
	if c.prints != "" && !p.same(got, c.prints) {
		t.Errorf("%s: %s\nprints\n%s\nwant\n%s", p.page, command, got, c.prints)
	}
}
