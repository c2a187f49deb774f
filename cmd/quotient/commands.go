package main

import (
	"fmt"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
)

type checkCmd struct {
	File string `arg:"" help:"The file."`
}

// Help shows an example.
func (checkCmd) Help() string {
	return `It starts nothing and calls no upstream. The exit code is 1 if the file has an error.

Examples:

    quotient check quotient.toml
    quotient check throttle.toml`
}

// Run reads the file.
func (c checkCmd) Run(s streams) error {
	f, err := config.ReadAny(c.File)
	if err != nil {
		return err
	}
	for _, w := range f.Warnings {
		fmt.Fprintln(s.err, w)
	}
	rules := 0
	if f.Proxy != nil {
		// A program that embeds the library has sources of its own: of a file without [proxy] they are not checked.
		rules = len(f.Proxy.Rules)
		all := sources() // which open nothing before they are watched
		all["kube"] = kubeNamed
		if _, err := config.New(f, new(quotient.Registry), config.WithSources(all)); err != nil {
			return err
		}
	}
	var has []string
	if f.Proxy != nil || len(f.Limiters) > 0 {
		has = append(has, count(len(f.Limiters), "limiter"), count(rules, "rule"))
	}
	if f.Leases != nil {
		has = append(has, count(len(f.Leases.Semaphores), "semaphore"))
	}
	_, err = fmt.Fprintf(s.out, "%s: ok: %s\n", c.File, strings.Join(has, ", "))
	return err
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

type versionCmd struct{}

// Help shows an example.
func (versionCmd) Help() string {
	return `Example:

    quotient version`
}

// Run prints what the build says of itself.
func (versionCmd) Run(s streams) error {
	_, err := fmt.Fprintln(s.out, version())
	return err
}

// version is the version of the program, the commit it was built from, Go's version and the platform.
func version() string {
	v, commit := "(devel)", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			v = info.Main.Version
		}
		commit = commitOf(info.Settings)
	}
	return fmt.Sprintf("quotient %s%s %s %s/%s", v, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// commitOf is the commit among the settings of a build, with a mark if files were changed since.
func commitOf(settings []debug.BuildSetting) string {
	commit, changed := "", ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			commit = " " + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+changes"
		}
	}
	if commit == "" {
		return ""
	}
	return commit + changed
}

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help shows an example for each shell.
func (completionCmd) Help() string {
	return `The script calls the program for each completion, so it stays valid after an update.

Examples:

    source <(quotient completion bash)             # in ~/.bashrc
    source <(quotient completion zsh)              # in ~/.zshrc, after compinit
    quotient completion fish | source              # in ~/.config/fish/config.fish`
}

// Run prints the script.
func (c completionCmd) Run(s streams) error {
	_, err := fmt.Fprint(s.out, scripts[c.Shell])
	return err
}

// completeCmd is what the scripts of completionCmd call, with the words up to the cursor.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run prints what the word at the cursor may become, one candidate a line: the word, and what it is behind a
// tab.
func (c completeCmd) Run(k *kong.Context, s streams) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, candidate := range complete(k.Model.Node, words) {
		if _, err := fmt.Fprintf(s.out, "%s\t%s\n", candidate.word, candidate.help); err != nil {
			return err
		}
	}
	return nil
}

// scripts are short: what may come next is for complete to say. bash 3.2, which macOS has, knows neither
// mapfile nor compopt. Where nothing is printed, all three go on with the names of files.
var scripts = map[string]string{
	"bash": `# Completion of quotient for bash: source <(quotient completion bash)
_quotient() {
  local IFS=$'\n' line words cur=${COMP_WORDS[COMP_CWORD]}
  # COMP_WORDS is split at "=" and ":", the line itself is not.
  IFS=$' \t\n' read -r -a words <<<"${COMP_LINE:0:COMP_POINT}"
  case ${COMP_LINE:0:COMP_POINT} in *[[:space:]]) words+=("") ;; esac
  COMPREPLY=()
  while IFS=$'\t' read -r line _; do
    case $cur in
      [=:]) line=${line#"${words[${#words[@]}-1]}"} ;;
      *) line=$cur${line#"${words[${#words[@]}-1]}"} ;;
    esac
    COMPREPLY+=("$line")
  done < <("${COMP_WORDS[0]}" complete -- "${words[@]:1}" 2>/dev/null)
  case ${COMPREPLY[0]-} in *[=:]) compopt -o nospace 2>/dev/null ;; esac
}
complete -o default -F _quotient quotient
`,
	"zsh": `#compdef quotient
# Completion of quotient for zsh: source <(quotient completion zsh), after compinit
_quotient() {
  local line
  local -a plain open
  while IFS= read -r line; do
    case ${line%%$'\t'*} in
      *[=:]) open+=("${line%%$'\t'*}") ;;
      *) plain+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
    esac
  done < <("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
  (( $#open )) && compadd -S '' -a open
  (( $#plain )) && _describe quotient plain
  (( $#open + $#plain )) || _files
}
if [ "$funcstack[1]" = "_quotient" ]; then _quotient "$@"; else compdef _quotient quotient; fi
`,
	"fish": `# Completion of quotient for fish: quotient completion fish | source
function __quotient
    set -l words (commandline -opc) (commandline -ct)
    $words[1] complete -- $words[2..-1] 2>/dev/null
end
complete -c quotient -a '(__quotient)'
`,
}

// A candidate is what a word may become.
type candidate struct{ word, help string }

// openEnded are the flags whose values begin in known ways.
var openEnded = map[string][]string{
	"pool":  {"dns:", "file:", "redis://", "rediss://", "etcd://", "kube:", "gossip:", "env:"},
	"admin": {"off", "127.0.0.1:"},
}

// complete returns what the word at the cursor, the end of words, may become on the command line of root.
// Where there is nothing, the shell goes on with the names of files.
func complete(root *kong.Node, words []string) []candidate {
	if len(words) == 0 {
		words = []string{""}
	}
	node, last, args := root, words[len(words)-1], 0
	for i := 0; i < len(words)-1; i++ {
		word := words[i]
		flag, value := flagNamed(node, word)
		switch {
		case flag != nil && value == "" && !strings.Contains(word, "=") && !flag.IsBool():
			if i == len(words)-2 {
				return values(flag.Value, "", last)
			}
			i++ // its value
		case strings.HasPrefix(word, "-"):
		default:
			if child := commandNamed(node, word); child != nil {
				node = child
			} else {
				args++
			}
		}
	}
	if flag, value := flagNamed(node, last); flag != nil && strings.Contains(last, "=") {
		return values(flag.Value, "--"+flag.Name+"=", value)
	}
	if strings.HasPrefix(last, "-") {
		return flags(node, words, last)
	}
	return append(commands(node, last), positional(node, args, last)...)
}

// flagNamed returns the flag of a node, or of one above it, that a word such as --pool=dns: names, and the
// value in the word.
func flagNamed(node *kong.Node, word string) (*kong.Flag, string) {
	name, value, _ := strings.Cut(word, "=")
	for _, group := range node.AllFlags(false) {
		for _, f := range group {
			if name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short) {
				return f, value
			}
		}
	}
	return nil, ""
}

func commandNamed(node *kong.Node, name string) *kong.Node {
	i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return node.Children[i]
}

// commands are those below a node that begin with the prefix.
func commands(node *kong.Node, prefix string) (all []candidate) {
	for _, n := range node.Children {
		if !n.Hidden && strings.HasPrefix(n.Name, prefix) {
			all = append(all, candidate{n.Name, n.Help})
		}
	}
	return all
}

// flags are those of a node that begin with the prefix and do not stand among the words.
func flags(node *kong.Node, words []string, prefix string) (all []candidate) {
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			word := "--" + f.Name
			stands := func(w string) bool { return w == word || strings.HasPrefix(w, word+"=") }
			if strings.HasPrefix(word, prefix) && !slices.ContainsFunc(words[:len(words)-1], stands) {
				all = append(all, candidate{word, f.Help})
			}
		}
	}
	return all
}

// positional is what the n-th argument of a node may be.
func positional(node *kong.Node, n int, prefix string) []candidate {
	if len(node.Positional) == 0 {
		return nil
	}
	p := node.Positional[min(n, len(node.Positional)-1)]
	if n >= len(node.Positional) && p.Target.Kind() != reflect.Slice {
		return nil
	}
	return values(p, "", prefix)
}

// values are those of an enum, or the known beginnings, that begin with the prefix; before stands in front
// of each.
func values(v *kong.Value, before, prefix string) (all []candidate) {
	known := openEnded[v.Name]
	if v.Enum != "" {
		known = v.EnumSlice()
	}
	for _, word := range known {
		if strings.HasPrefix(word, prefix) {
			all = append(all, candidate{before + word, ""})
		}
	}
	return all
}
