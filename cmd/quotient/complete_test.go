package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// completed returns the candidates for words, as the program prints them.
func completed(t *testing.T, words ...string) []string {
	t.Helper()
	var out, err bytes.Buffer
	code := run(t.Context(), append([]string{"complete", "--"}, words...), streams{&out, &err})
	if code != exitOK {
		t.Fatalf("complete %q exits %d: %s", words, code, &err)
	}
	var all []string
	for line := range strings.Lines(out.String()) {
		word, _, _ := strings.Cut(line, "\t")
		all = append(all, word)
	}
	return all
}

func TestComplete(t *testing.T) {
	for _, c := range []struct {
		words string // the last is completed
		want  string
	}{
		{"", "proxy leases check version completion"},
		{"c", "check completion"},
		{"proxy --r", "--rpm --refuse --replicas"},
		{"proxy --refuse --r", "--rpm --replicas"},
		{"proxy --rpm=5 --r", "--refuse --replicas"},
		{"proxy --policy ", "fixed tracking"},
		{"proxy --policy t", "tracking"},
		{"proxy --policy=t", "--policy=tracking"},
		{"proxy --log=", "--log=text --log=json"},
		{"proxy --pool ", "dns: file: redis:// rediss:// etcd:// kube: gossip: env:"},
		{"proxy --pool=k", "--pool=kube:"},
		{"proxy --config ", ""}, // names of files
		{"proxy --config --r", ""},
		{"proxy --refuse localhost:80 --ver", ""},
		{"proxy localhost:80 --print", "--print-config"},
		{"check ", ""},
		{"completion ", "bash zsh fish"},
		{"completion f", "fish"},
		{"completion bash ", ""},
		{"leases --adm", "--admin --admin-token-file"},
		{"leases --admin ", "off 127.0.0.1:"},
		{"leases --election=a:2379 --e", ""},
		{"leases -c ", ""},       // names of files
		{"comple", "completion"}, // complete itself is not shown
		{"nosuch ", "proxy leases check version completion"},
	} {
		t.Run(c.words, func(t *testing.T) {
			if got := completed(t, strings.Split(c.words, " ")...); strings.Join(got, " ") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestCompleteKnowsEveryFlag(t *testing.T) {
	all := completed(t, "proxy", "--")
	for _, name := range []string{
		"help", "listen", "admin", "config", "replicas", "ordinal", "rpm", "inflight", "policy", "max-keys",
		"max-wait", "refuse", "pool", "demo", "demo-for", "log", "print-config",
	} {
		if !slices.Contains(all, "--"+name) {
			t.Errorf("--%s is missing in %q", name, all)
		}
	}
}

// inBash runs the script in a real bash, as if a line had been typed and tab pressed, and returns the
// candidates.
func inBash(t *testing.T, line string) []string {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	file := filepath.Join(t.TempDir(), "completion")
	if err := os.WriteFile(file, []byte(scripts["bash"]), 0o600); err != nil {
		t.Fatal(err)
	}
	script := `
source "$2"
COMP_LINE=$1 COMP_POINT=${#1}
# as readline does it: words are split at blanks, = and :, which are words of their own
COMP_WORDS=($(sed 's/[=:]\+/ & /g' <<<"$1"))
case $1 in *" ") COMP_WORDS+=("") ;; esac
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_quotient
printf '%s\n' "${COMPREPLY[@]}"
complete -p quotient >&2`
	cmd := exec.CommandContext(t.Context(), bash, "--norc", "-c", script, "bash", line, file)
	cmd.Env = append(os.Environ(), "PATH="+onPath(t)+":"+os.Getenv("PATH"), asProgram+"=yes")
	var registered bytes.Buffer
	cmd.Stderr = &registered
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("bash: %v: %s", err, &registered)
	}
	if !strings.Contains(registered.String(), "-F _quotient quotient") {
		t.Errorf("bash has registered %q", &registered)
	}
	return strings.Fields(string(out))
}

func TestCompletionInBash(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"quotient ", "proxy leases check version completion"},
		{"quotient proxy --pol", "--policy"},
		{"quotient proxy --policy ", "fixed tracking"},
		{"quotient proxy --policy=t", "tracking"}, // bash replaces what stands behind the =
		{"quotient proxy --pool=d", "dns:"},
		{"quotient proxy --pool=redis:", "//"},
		{"quotient proxy --config ", ""},
	} {
		t.Run(c.line, func(t *testing.T) {
			if got := inBash(t, c.line); strings.Join(got, " ") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestCompletionScripts runs the scripts' syntax through the shells that are here.
func TestCompletionScripts(t *testing.T) {
	for shell, script := range scripts {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skipf("no %s here", shell)
			}
			cmd := exec.CommandContext(t.Context(), path, "-n")
			cmd.Stdin = strings.NewReader(script)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
