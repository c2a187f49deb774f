package main

import (
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

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
